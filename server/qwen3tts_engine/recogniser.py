"""Interface of speech recognisers, and of engines that have one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from qwen3tts_wire.errors import BadRequest


class LanguageUnknown(BadRequest):
    """The recogniser does not know the language of a recording."""


@dataclass(frozen=True, slots=True)
class TranscribedStretch:
    """Text of a stretch of a recording."""

    start_s: float
    end_s: float
    text: str


class Recogniser(Protocol):
    """Speech recogniser. Called in a worker thread."""

    @property
    def model(self) -> str: ...

    def hear(
        self,
        audio: bytes,
        language: str | None,
        *,
        max_s: float,
        stopped: Callable[[], bool],
    ) -> tuple[float, Sequence[TranscribedStretch]]:
        """Return a sound file's duration in seconds and its stretches of text.

        Args:
            audio: the file.
            language: name in English or BCP 47 tag; None: detected.
            max_s: longest recording, seconds.
            stopped: polled between stretches; true cancels.

        Raises:
            BadRequest: no sound.
            LanguageUnknown: an unknown language.
            LimitExceeded: longer than ``max_s``.
            EngineUnavailable: the model cannot be loaded.
        """
        ...


@runtime_checkable
class HasRecogniser(Protocol):
    """Engine that may have a recogniser."""

    def recogniser(self) -> Recogniser | None:
        """Return it; None: none is configured."""
        ...
