"""The official package with an ear on it: what it computes on the way, besides what it returns.

Runs inside the oracle's environment only. Recording wraps bound methods of one loaded model and
asks `generate` for outputs that it can give anyway; nothing of the computation is changed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Arrays = dict[str, NDArray[Any]]


Inputs = Mapping[str, NDArray[Any]]


@dataclass
class Recording:
    """What one call computed: prompt embeddings, logits, decisions, sound."""

    prompt: Any = None
    mask: Any = None
    talker: Any = None
    codes: list[Any] = field(default_factory=list)
    predictor: list[Any] = field(default_factory=list)
    sound: list[Any] = field(default_factory=list)


class Official:
    """One checkpoint folder in the official loader, float32."""

    def __init__(self, folder: Path) -> None:
        package = importlib.import_module("qwen_tts")
        self.wrapper: Any = package.Qwen3TTSModel.from_pretrained(str(folder), dtype=torch.float32)
        self.model: Any = self.wrapper.model
        self.codec: Any = self.model.speech_tokenizer
        self.heard = Recording()
        self._listen()

    def _listen(self) -> None:
        talker, predictor, codec = self.model.talker, self.model.talker.code_predictor, self.codec
        run_talker, run_predictor = talker.generate, predictor.generate
        run_model, run_decoder = self.model.generate, codec.decode

        def generate_frames(**given: Any) -> Any:
            self.heard.prompt, self.heard.mask = given["inputs_embeds"], given["attention_mask"]
            self.heard.talker = run_talker(**given, output_logits=True, output_scores=True)
            return self.heard.talker

        def generate_groups(**given: Any) -> Any:
            result = run_predictor(**given, output_logits=True, output_scores=True)
            self.heard.predictor.append(result)
            return result

        def generate_codes(**given: Any) -> Any:
            result = run_model(**given)
            self.heard.codes = result[0]
            return result

        def decode(encoded: Any) -> Any:
            result = run_decoder(encoded)
            self.heard.sound = result[0]
            return result

        talker.generate, predictor.generate = generate_frames, generate_groups
        self.model.generate, codec.decode = generate_codes, decode

    def speak(self, case: dict[str, Any], inputs: Inputs) -> Arrays:
        """Run one case of cases.py; one array a kind and row of the batch."""
        self.heard = Recording()
        options: dict[str, Any] = {
            "text": list(case["texts"]),
            "language": list(case["languages"]),
            "non_streaming_mode": case["full"],
            "max_new_tokens": case["frames"] + 1,
            **case["sampling"],
        }
        if case["penalty"] is not None:
            options["repetition_penalty"] = case["penalty"]
        torch.manual_seed(case["seed"])
        head = self.model.talker.codec_head
        if case["logits"] is not None:
            head.forward = given_logits(torch.from_numpy(inputs[case["logits"]]))
        try:
            self._call(case, options, inputs)
        finally:
            vars(head).pop("forward", None)
        return self._arrays(groups=case["sampling"].get("subtalker_dosample", True))

    def _call(self, case: dict[str, Any], options: dict[str, Any], inputs: Inputs) -> None:
        task = self.model.tts_model_type
        if task == "custom_voice":
            self.wrapper.generate_custom_voice(
                speaker=list(case["speakers"]), instruct=list(case["instructs"]), **options
            )
        elif task == "voice_design":
            self.wrapper.generate_voice_design(instruct=list(case["instructs"]), **options)
        elif case["vector"]:
            package = importlib.import_module("qwen_tts.inference.qwen3_tts_model")
            item = package.VoiceClonePromptItem(
                ref_code=torch.from_numpy(inputs[case["codes"]]) if case["codes"] else None,
                ref_spk_embedding=torch.from_numpy(inputs[case["vector"]]),
                x_vector_only_mode=not case["codes"],
                icl_mode=bool(case["codes"]),
                ref_text=case["reference_texts"][0] if case["codes"] else None,
            )
            self.wrapper.generate_voice_clone(voice_clone_prompt=[item], **options)
        else:
            items = self.wrapper.create_voice_clone_prompt(
                ref_audio=[(inputs[name], 24_000) for name in case["references"]],
                ref_text=[text or None for text in case["reference_texts"]],
                x_vector_only_mode=[not text for text in case["reference_texts"]],
            )
            self.wrapper.generate_voice_clone(voice_clone_prompt=items, **options)

    def _arrays(self, groups: bool) -> Arrays:
        heard, found = self.heard, Arrays()
        for row, codes in enumerate(heard.codes):
            found[f"codes_{row}"] = codes.numpy()
            found[f"prompt_{row}"] = heard.prompt[row][heard.mask[row].bool()].numpy()
            found[f"sound_{row}"] = heard.sound[row]
        found["logits"] = torch.stack(heard.talker.logits).numpy()
        found["scores"] = torch.stack(heard.talker.scores).numpy()
        found["first_codes"] = heard.talker.sequences.numpy()
        found["margins"] = np.stack([margin(result.scores) for result in heard.predictor])
        if groups:
            found["group_logits"] = every(result.logits for result in heard.predictor)
            found["group_scores"] = every(result.scores for result in heard.predictor)
        return found

    def listen(self, samples: NDArray[np.float32]) -> Arrays:
        """Reference codes, speaker vector and log-mel of float32 samples [n] at 24 kHz."""
        mel = importlib.import_module(type(self.model).__module__).mel_spectrogram
        features = mel(
            torch.from_numpy(samples)[None],
            n_fft=1024,
            num_mels=128,
            sampling_rate=24_000,
            hop_size=256,
            win_size=1024,
            fmin=0,
            fmax=12_000,
        )[0]
        return {
            "codes": self.codec.encode(samples, sr=24_000).audio_codes[0].numpy(),
            "x_vector": self.model.extract_speaker_embedding(samples, 24_000).numpy(),
            "mel": features.numpy(),
        }

    def decode(self, codes: NDArray[np.int64]) -> Arrays:
        """Samples of codes [T, 16]: the decoder over all of them at once, unchunked."""
        with torch.inference_mode():
            sound = self.codec.model.decoder(torch.from_numpy(codes).T[None])
        return {"sound": sound[0, 0].numpy()}

    def supported(self) -> dict[str, list[str]]:
        """Names of languages and speakers."""
        return {
            "languages": self.wrapper.get_supported_languages(),
            "speakers": self.wrapper.get_supported_speakers(),
        }

    def token_ids(self, text: str) -> dict[str, list[int]]:
        """Ids of a text where the model puts it: target, reference transcript, instructions."""
        build, tokenize = self.wrapper, self.wrapper._tokenize_texts
        target = tokenize([build._build_assistant_text(text)])[0][0].tolist()
        reference = tokenize([build._build_ref_text(text)])[0][0].tolist()
        instructions = tokenize([build._build_instruct_text(text)])[0][0].tolist()
        return {
            "role": target[:3],
            "target": target[3:-5],
            "reference": reference[3:-2],
            "instructions": instructions,
        }


def given_logits(logits: Tensor) -> Callable[[Tensor], Tensor]:
    """A head that answers with rows of [steps, vocab], one after the other."""
    steps = iter(logits)
    return lambda hidden: next(steps).expand(*hidden.shape[:2], -1)


def every(steps: Iterable[Any]) -> NDArray[Any]:
    """[frames, groups, rows, vocab] of each frame's tuple of [rows, vocab]."""
    found: NDArray[Any] = torch.stack([torch.stack(step) for step in steps]).numpy()
    return found


def margin(scores: Iterable[Tensor]) -> NDArray[Any]:
    """[rows]: the least distance of the best from the second best over a frame's decisions."""
    best = torch.stack([score.topk(2).values for score in scores])
    found: NDArray[Any] = (best[..., 0] - best[..., 1]).amin(0).numpy()
    return found
