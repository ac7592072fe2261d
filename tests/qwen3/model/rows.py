"""Rows of an kv_cache, spoken by hand: what the tests of the model share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.step import frame_step, prefill

GREEDY = Sampling(temperature=0.0, predictor_temperature=0.0)


@dataclass
class Script:
    """What one row says: a prompt, and the text of its frames."""

    embeds: Tensor
    """[T, hidden]."""
    text: Sequence[int]
    sampling: Sampling = GREEDY
    seed: int = 0


@dataclass
class Spoken:
    """What came of it."""

    codes: list[Tensor] = field(default_factory=list)
    """[16] each."""
    logits: list[Tensor] = field(default_factory=list)
    """[vocab] before each frame."""


class Stage:
    """A KV cache and a model; rows are prefilled, stepped and finished."""

    def __init__(self, model: Qwen3Model, *, slots: int, positions: int = 96) -> None:
        self.model = model
        self.kv_cache = KvCache(model.config, slots=slots, positions=positions, dtype=model.dtype)
        self.scripts: dict[int, Script] = {}
        self.spoken: dict[int, Spoken] = {}

    def prefill(self, rows: dict[int, Script], *, pad: int = 0, padding_rows: int = 0) -> None:
        """Prefill slots together; ``pad`` positions more than the longest needs."""
        for slot, script in rows.items():
            self.kv_cache.reset(slot, script.sampling, script.seed)
            self.scripts[slot], self.spoken[slot] = script, Spoken()
        longest = max(len(script.embeds) for script in rows.values()) + pad
        count = len(rows) + padding_rows
        width = self.model.config.talker.layers.hidden
        embeds = torch.zeros(count, longest, width, dtype=self.model.dtype)
        lengths = torch.ones(count, dtype=torch.int64)
        for at, script in enumerate(rows.values()):
            embeds[at, : len(script.embeds)] = script.embeds
            lengths[at] = len(script.embeds)
        slots = torch.tensor([*rows] + [self.kv_cache.scratch] * padding_rows)
        starts = torch.zeros(count, dtype=torch.int64)
        prefill(self.model, self.kv_cache, slots, embeds, lengths, starts, kv_len=longest)

    def step(self, slots: Sequence[int], *, padding_rows: int = 0, kv_len: int = 96) -> None:
        """One frame of these rows, in this order."""
        at = [*slots] + [self.kv_cache.scratch] * padding_rows
        text = [self.scripts[slot].text[len(self.spoken[slot].codes)] for slot in slots]
        logits = self.kv_cache.logits[list(slots)].clone()
        codes = frame_step(
            self.model,
            self.kv_cache,
            torch.tensor(at),
            torch.tensor(text + [0] * padding_rows),
            torch.zeros(len(at), dtype=torch.bool),
            kv_len,
        )
        for slot, row, scores in zip(slots, codes, logits, strict=False):
            self.spoken[slot].codes.append(row)
            self.spoken[slot].logits.append(scores)

    def codes(self, slot: int) -> Tensor:
        """[n, 16]."""
        return torch.stack(self.spoken[slot].codes)


def alone(model: Qwen3Model, script: Script, frames: int) -> Spoken:
    """A row that shares nothing with anybody."""
    stage = Stage(model, slots=1)
    stage.prefill({0: script})
    for _ in range(frames):
        stage.step([0])
    return stage.spoken[0]


def script(model: Qwen3Model, seed: int, frames: int, sampling: Sampling = GREEDY) -> Script:
    """A row of random prompt and text."""
    draw = torch.Generator().manual_seed(seed)
    table = model.talker.table
    length = int(torch.randint(4, 14, (1,), generator=draw))
    rows = torch.randint(0, len(table), (2, length), generator=draw)
    text = torch.randint(0, model.config.talker.text_vocab, (frames,), generator=draw)
    return Script(table[rows].sum(0), text.tolist(), sampling, seed)
