"""The Whisper model itself, in the process that has nothing else to do.

Decoding is greedy and done here, token by token, for what the library's `generate` does not give:
the probability that nobody speaks, the likeliest of a few languages, an end when the text goes
round in circles, and a stop between two tokens when nobody wants the text any more.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qwen3tts_phone.recognise.base import Samples
from qwen3tts_phone.recognise.guards import Answer, circling, most_tokens

RATE_HZ = 16_000
"""Of every Whisper model."""
WINDOW_S = 30
"""Seconds that the model hears at once."""
_SAFE = re.compile(r"[\w.,:;'\"/@+ -]{1,200}", re.ASCII)


class ModelMissing(Exception):
    """The model cannot be had; ``package``: or the software, and which."""

    def __init__(self, reason: str, remedy: str, package: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
        self.package = package


class WhisperModel:
    """A model that is loaded; `load` makes one."""

    def __init__(self, model: Any, processor: Any, torch: Any, languages: Sequence[str]) -> None:
        """Raises ModelMissing for a language that the model does not know."""
        self._model = model
        self._processor = processor
        self._torch = torch
        config = model.generation_config
        self._start = int(config.decoder_start_token_id)
        ends = config.eos_token_id
        self._end = int(ends[0] if isinstance(ends, (list, tuple)) else ends)
        self._most = int(model.config.max_target_positions)
        no_text = {*(config.suppress_tokens or ()), *self._specials()}
        first = {*no_text, *(getattr(config, "begin_suppress_tokens", None) or ()), self._end}
        self._no_text = torch.tensor(sorted(no_text), device=model.device)
        self._not_first = torch.tensor(sorted(first), device=model.device)
        no_timestamps = getattr(config, "no_timestamps_token_id", None)
        self._after: list[int] = [] if no_timestamps is None else [int(no_timestamps)]
        self._no_speech = self._no_speech_token()
        self._languages: dict[str, int] = {}
        if getattr(config, "is_multilingual", False):
            self._languages = self._allowed(config.lang_to_id, languages)
            self._after.insert(0, int(config.task_to_id["transcribe"]))
        elif languages and not {"en", "english"} & {each.lower() for each in languages}:
            raise ModelMissing(
                "This Whisper model knows English only.",
                "Name a model without .en at the end of its name.",
            )

    @classmethod
    def load(cls, wishes: dict[str, Any]) -> WhisperModel:
        """Load it, from its folder, the cache or the hub; seconds to minutes.

        Raises:
            ModelMissing: software, model or device are not there.
        """
        torch, transformers = _package("torch"), _package("transformers")
        device = wishes["device"]
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = wishes["dtype"]
        if dtype == "auto":
            dtype = "float16" if device.startswith("cuda") else "float32"
        torch.set_num_threads(wishes["threads"] or max(1, (os.cpu_count() or 2) - 1))
        transformers.utils.logging.set_verbosity_error()
        model, processor = _found(
            wishes["model"], transformers, getattr(torch, dtype), fetch=not wishes["offline"]
        )
        try:
            model = model.to(device).eval()
        except Exception as error:  # a driver's, or too little memory
            raise ModelMissing(
                f"The Whisper model cannot run on {device}: {_line(error)}.",
                "Choose another device, such as cpu.",
            ) from error
        return cls(model, processor, torch, wishes["languages"])

    @property
    def place(self) -> dict[str, Any]:
        """Where and how it runs."""
        return {
            "device": str(self._model.device),
            "dtype": str(self._model.dtype).removeprefix("torch."),
            "threads": int(self._torch.get_num_threads()),
        }

    def hear(self, samples: Samples, wanted: Callable[[], bool] = lambda: True) -> Answer | None:
        """The words of at most 30 s at 16 kHz, int16 [n]; None when they are not wanted any more.

        ``wanted`` is asked between two tokens.
        """
        seconds = len(samples) / RATE_HZ
        sound = samples.astype(np.float32) / 32768.0
        with self._torch.inference_mode():
            features = self._processor(
                sound, sampling_rate=RATE_HZ, return_tensors="pt"
            ).input_features.to(self._model.device, self._model.dtype)
            encoded = self._model.get_encoder()(features)
            if not wanted():
                return None
            return self._write_down(encoded, seconds, wanted)

    def _write_down(
        self, encoded: Any, seconds: float, wanted: Callable[[], bool]
    ) -> Answer | None:
        scores, past = self._step([self._start], encoded, None)
        chances = scores.softmax(-1)
        no_speech = 0.0 if self._no_speech is None else float(chances[self._no_speech])
        prompt, language = list(self._after), ""
        if self._languages:
            language = max(self._languages, key=lambda code: float(chances[self._languages[code]]))
            prompt.insert(0, self._languages[language])
        if prompt:
            scores, past = self._step(prompt, encoded, past)
        tokens: list[int] = []
        total = 0.0
        most = min(most_tokens(seconds), self._most - 1 - len(prompt))
        while True:
            # As in openai/whisper: an end at once is no answer, since no_speech tells silence.
            scores[self._no_text if tokens else self._not_first] = -float("inf")
            likely = scores.log_softmax(-1)
            token = int(likely.argmax())
            total += float(likely[token])
            if token == self._end or len(tokens) == most:
                break
            tokens.append(token)
            if again := circling(tokens):
                del tokens[len(tokens) - again :]
                break
            if not wanted():
                return None
            scores, past = self._step([token], encoded, past)
        text = self._processor.tokenizer.decode(tokens, skip_special_tokens=True)
        return Answer(text.strip(), language, total / (len(tokens) + 1), no_speech)

    def _step(self, tokens: list[int], encoded: Any, past: Any) -> tuple[Any, Any]:
        """Scores of the next token, float32 [vocabulary], and what to go on from."""
        out = self._model(
            encoder_outputs=encoded,
            decoder_input_ids=self._torch.tensor([tokens], device=self._model.device),
            past_key_values=past,
            use_cache=True,
        )
        return out.logits[0, -1].float(), out.past_key_values

    def _specials(self) -> list[int]:
        """Timestamps, languages and tasks, which are no text; the end is not among them."""
        known = self._processor.tokenizer.all_special_ids
        above = range(self._end + 1, int(self._model.config.vocab_size))
        return [each for each in {*known, *above} if each != self._end]

    def _no_speech_token(self) -> int | None:
        """The token by which the model says that nobody speaks."""
        tokenizer = self._processor.tokenizer
        for name in ("<|nospeech|>", "<|nocaptions|>"):
            token = tokenizer.convert_tokens_to_ids(name)
            if token is not None and token not in (tokenizer.unk_token_id, self._end):
                return int(token)
        return None

    def _allowed(self, known: dict[str, int], wished: Sequence[str]) -> dict[str, int]:
        codes = {name.strip("<|>"): int(token) for name, token in known.items()}
        if not wished:
            return codes
        names = _language_names()
        chosen = {}
        for wish in wished:
            code = wish.lower()
            code = code if code in codes else names.get(code, code)
            if code not in codes:
                raise ModelMissing(
                    f"This Whisper model does not know the language {wish!r}.",
                    f"It knows: {', '.join(sorted(codes))}.",
                )
            chosen[code] = codes[code]
        return chosen


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ModelMissing(
            f"Whisper needs the package {name}, which is not installed.",
            "Install it: pip install 'mr_qwen3tts[stt]'.",
            package=name,
        ) from None


def _language_names() -> dict[str, str]:
    """English names of languages to their codes."""
    module = importlib.import_module("transformers.models.whisper.tokenization_whisper")
    return {str(name): str(code) for name, code in module.TO_LANGUAGE_CODE.items()}


def _found(name: str, transformers: Any, dtype: Any, *, fetch: bool) -> tuple[Any, Any]:
    """Model and processor: from its folder, else the cache, else the hub if that may be asked.

    What is there is taken as it is: the hub is not asked whether there is anything newer.
    """

    def loaded(*, local: bool) -> tuple[Any, Any]:
        processor = transformers.WhisperProcessor.from_pretrained(name, local_files_only=local)
        model = transformers.WhisperForConditionalGeneration.from_pretrained(
            name,
            dtype=dtype,
            use_safetensors=True,  # never pickles
            local_files_only=local,
        )
        return model, processor

    # Broad: the library's, the hub's and the file formats' own errors, which differ by version.
    try:
        return loaded(local=True)
    except Exception as error:
        if Path(name).is_dir():
            raise ModelMissing(
                f"The Whisper model in {name} could not be loaded: {_line(error)}.",
                "It must be a folder as transformers keeps it: config.json, model.safetensors,"
                " preprocessor_config.json and the tokenizer's files.",
            ) from error
        if not fetch:
            raise _not_fetched(name, error) from error
    try:
        # One question first: the library would ask for minutes where there is no network.
        importlib.import_module("huggingface_hub").HfApi().model_info(name, timeout=10)
        return loaded(local=False)
    except Exception as error:
        raise _not_fetched(name, error) from error


def _not_fetched(name: str, error: Exception) -> ModelMissing:
    return ModelMissing(
        f"The Whisper model {name} is not on this machine and could not be fetched:"
        f" {_line(error)}.",
        f"Fetch it where there is a network (hf download {name}) and name the folder, or copy"
        " the cache (HF_HOME); check the model's name.",
    )


def _line(error: Exception) -> str:
    """The error's kind, and its first line as far as that is plain text."""
    first = _SAFE.match(next(iter(str(error).splitlines()), ""))
    return (
        f"{type(error).__name__}: {first.group().rstrip('. ')}" if first else type(error).__name__
    )
