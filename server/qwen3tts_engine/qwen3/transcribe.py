"""What a reference recording says, where the caller does not tell."""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import torch

from qwen3tts_engine.qwen3.reference_audio import Recording, Samples
from qwen3tts_wire.errors import BadRequest, EngineUnavailable

WHISPER_RATE = 16_000
"""Hertz; of every Whisper model."""
WHISPER_WINDOW_S = 30
"""Seconds that Whisper hears at once; longer recordings go through it piece by piece."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/\w[\w.-]*)?", re.ASCII)
REMEDY = "Give the recording's words as ref_text, or ask for x_vector_only=true"


def check_whisper(model: str) -> None:
    """Refuse what is neither a folder nor a hub id; a hub is not asked.

    Raises:
        EngineUnavailable: there is no such folder.
    """
    path = Path(model)
    good = path.is_dir() if path.exists() else HUB_ID.fullmatch(model)
    if not (model and good):
        raise EngineUnavailable(
            f"There is no folder {model} with a Whisper model.",
            remedy="Name a Whisper model's folder, or a hub id such as openai/whisper-small.",
        )


class Transcriber(Protocol):
    """Writes down speech. Called in worker threads, from several at once."""

    @property
    def name(self) -> str:
        """What it is, in full: another name may hear other words."""
        ...

    def transcribe(self, recording: Recording) -> str:
        """The words of a recording.

        Raises:
            BadRequest: it cannot tell, or it is not installed; offers ``ref_text`` and
                ``x_vector_only``.
        """
        ...


class WhisperTranscriber:
    """Whisper through the package transformers, which is optional.

    Package and model are loaded with the first recording, which takes seconds to minutes. One
    recording is heard at a time.
    """

    def __init__(
        self,
        model: str,
        *,
        language: str | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Name a model; nothing is loaded yet.

        Args:
            model: A folder or hub id, such as ``openai/whisper-small``.
            language: The speech's language, by Whisper's names or codes; None: it finds out.
            device: Where it runs.
            dtype: In what it computes.
        """
        self.model = model
        self.language = language
        self._device = device
        self._dtype = dtype
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None

    @property
    def name(self) -> str:
        """The model, and the language if one was named."""
        return f"whisper {self.model} {self.language or 'auto'}"

    def transcribe(self, recording: Recording) -> str:
        """The words of a recording; see Transcriber."""
        samples = recording.at(WHISPER_RATE)
        with self._lock:
            model, processor = self._ready()
            text = self._generate(model, processor, samples)
        if not text:
            raise BadRequest("No words were heard in the reference recording.", remedy=f"{REMEDY}.")
        return text

    def _ready(self) -> tuple[Any, Any]:
        if self._loaded is None:
            transformers = _transformers()
            try:
                processor = transformers.WhisperProcessor.from_pretrained(self.model)
                model = transformers.WhisperForConditionalGeneration.from_pretrained(
                    self.model,
                    dtype=self._dtype,
                    use_safetensors=True,  # never pickles
                )
            # The library's, the hub's and the file formats' own errors, which differ by version.
            except Exception as error:
                raise BadRequest(
                    f"The Whisper model {self.model} could not be loaded: {type(error).__name__}.",
                    remedy=f"{REMEDY}; or name another model in the server's settings.",
                ) from error
            self._loaded = model.to(self._device).eval(), processor
        return self._loaded

    def _generate(self, model: Any, processor: Any, samples: Samples) -> str:
        options = {}
        if getattr(model.generation_config, "is_multilingual", False):
            options = {"task": "transcribe", "language": self.language}
        words = []
        for piece in _pieces(samples):
            heard = processor(
                piece,
                sampling_rate=WHISPER_RATE,
                return_tensors="pt",
                return_attention_mask=True,
            )
            with torch.no_grad():
                ids = model.generate(
                    heard.input_features.to(self._device, self._dtype),
                    attention_mask=heard.attention_mask.to(self._device),
                    **options,
                )
            words.append(processor.batch_decode(ids, skip_special_tokens=True)[0].strip())
        return " ".join(one for one in words if one)


def _pieces(samples: Samples) -> Iterator[Samples]:
    """What Whisper hears at once, cut where the last third of a window is quietest."""
    window, quiet = WHISPER_WINDOW_S * WHISPER_RATE, WHISPER_RATE // 10
    while len(samples) > window:
        third = samples[window - window // 3 : window].reshape(-1, quiet).astype(np.float64)
        cut = window - window // 3 + quiet * int((third**2).sum(axis=1).argmin()) + quiet // 2
        yield samples[:cut]
        samples = samples[cut:]
    yield samples


def _transformers() -> ModuleType:
    try:
        return importlib.import_module("transformers")
    except ImportError:
        raise BadRequest(
            "Finding out what the reference recording says needs the package transformers.",
            remedy=f"{REMEDY}; or install it: pip install transformers.",
        ) from None
