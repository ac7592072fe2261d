"""Our side of each case: the slot-indexed step that the engine runs, driven by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.prompt import NO_SPEAKER, Prompt, Reference, build_prompt
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.step import frame_step, prefill
from qwen3tts_engine.qwen3.model.tokenizer import Tokenizer
from tests.parity.cases import Speech

CHUNKS = (1, 2, 4, 8, 3, 1, 16)
"""Frames of codes that the streaming decoder is given at once, in turn."""


@dataclass(frozen=True)
class Row:
    """One row, ready to speak."""

    prompt: Prompt
    embeds: Tensor
    """[T, hidden]."""
    reference: Tensor | None
    """[T, 16] codes that are decoded before the row's own."""


@dataclass(frozen=True)
class Spoken:
    """What a row made."""

    codes: NDArray[np.int64]
    """[n, 16]."""
    logits: NDArray[np.float32]
    """[n + 1, vocab]: scores of code 0 before each frame, and after the last."""


class Ours:
    """One checkpoint folder in our loader, float32."""

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)
        self.model = Qwen3Model.load(str(folder))
        assert isinstance(self.model.tokenizer, Tokenizer)
        self.tokenizer = self.model.tokenizer
        self.config = self.model.config

    def row(self, case: Speech, number: int, inputs: dict[str, NDArray[Any]]) -> Row:
        """Lay out and embed one row of a case."""
        encode, vector, reference, codes = self.tokenizer.encode, None, None, None
        if case.references:
            samples = torch.from_numpy(inputs[case.references[number]])
            assert self.model.speaker_encoder is not None
            vector = self.model.speaker_encoder.x_vector(samples)
            if case.reference_texts[number]:
                codes = self.encode(samples)
                frames = tuple(tuple(frame) for frame in codes.tolist())
                reference = Reference(tuple(encode(case.reference_texts[number])), frames)
        instruct = case.instructs[number] if case.instructs else ""
        language = case.languages[number]
        prompt = build_prompt(
            self.config,
            text_ids=encode(case.texts[number]),
            language=None if language.lower() == "auto" else language,
            speaker=(case.speakers[number] or NO_SPEAKER) if case.speakers else None,
            has_x_vector=vector is not None,
            instruct_ids=self.tokenizer.encode_instructions(instruct) if instruct else (),
            layout="full" if case.full else "streaming",
            reference=reference,
        )
        return Row(prompt, self.model.embed(prompt, x_vector=vector), codes)

    def encode(self, samples: Tensor) -> Tensor:
        """Reference codes [T, 16] of samples [n] at 24 kHz."""
        assert self.model.codec_encoder is not None
        return self.model.codec_encoder.encode(samples)

    def speak(self, rows: Sequence[Row], frames: int, penalty: float | None) -> list[Spoken]:
        """Greedy speech of several rows in one batch, each until its end or ``frames``."""
        usual = self.config.generation.repetition_penalty
        sampling = Sampling(
            temperature=0.0,
            predictor_temperature=0.0,
            repetition_penalty=usual if penalty is None else penalty,
        )
        lengths = torch.tensor([len(row.prompt) for row in rows])
        embeds = torch.nn.utils.rnn.pad_sequence([row.embeds for row in rows], batch_first=True)
        positions = int(lengths.max()) + frames + 1
        kv_cache = KvCache(self.config, slots=len(rows), positions=positions)
        for slot in range(len(rows)):
            kv_cache.reset(slot, sampling, 0)
        slots = torch.arange(len(rows))
        prefill(self.model, kv_cache, slots, embeds, lengths, torch.zeros_like(lengths))
        logits, codes = [kv_cache.logits.clone()], []
        allowed = torch.ones(len(rows), dtype=torch.bool)
        for frame in range(frames):
            text = torch.tensor([self.text_id(row.prompt, frame) for row in rows])
            codes.append(frame_step(self.model, kv_cache, slots, text, allowed, positions).clone())
            logits.append(kv_cache.logits.clone())
        made, scores = torch.stack(codes, dim=1), torch.stack(logits, dim=1)
        found = []
        for slot in slots.tolist():
            ends = (made[slot, :, 0] == self.config.talker.ids.eos).nonzero()
            count = int(ends[0]) if len(ends) else frames
            found.append(Spoken(made[slot, :count].numpy(), scores[slot, : count + 1].numpy()))
        return found

    def text_id(self, prompt: Prompt, frame: int) -> int:
        """What the text track holds behind a frame."""
        left = prompt.trailing
        return left[frame] if frame < len(left) else self.config.text_ids.tts_pad

    def decode(self, codes: Tensor) -> NDArray[np.float32]:
        """Samples of codes [T, 16], all at once."""
        return self.model.decoder.decode(codes).numpy()

    def stream(self, codes: Tensor, after: Tensor | None = None) -> NDArray[np.float32]:
        """The same in chunks, in the state that a reference leaves behind; without its samples."""
        decoder = self.model.decoder
        state, slot = decoder.new_state(2), torch.tensor([1])
        if after is not None:
            decoder.run(state, slot, after[None])
        chunks: list[Tensor] = []
        at = 0
        while at < len(codes):
            size = CHUNKS[len(chunks) % len(CHUNKS)]
            chunks.append(decoder.run(state, slot, codes[None, at : at + size])[0].clone())
            at += size
        return torch.cat(chunks).numpy()
