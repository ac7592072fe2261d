"""Protocols of recognition: a `Recogniser` a process, a `Recognition` a call.

The user decides when a turn begins and ends:

    push push push begin_turn push push pause push resume push push pause push end_turn → text
                   └ speech began            └ more speech        └ perhaps the end

Errors, of which none ends a call:

    RecogniserUnavailable           a package, a model, a key or an address is missing
    RecognitionFailed               it failed on one turn; the next may be recognised
    ├── RecognitionTimeout          no text came in time
    └── RecogniserBusy              too many turns wait
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from qwen3tts_wire.errors import BadRequest, SpeechError


class RecogniserUnavailable(SpeechError):
    """Missing package, model, key or address."""

    code = "recogniser_unavailable"


class RecognitionFailed(SpeechError):
    """Failure on one turn; the next may be recognised."""

    code = "recognition_failed"
    retryable = True


class RecognitionTimeout(RecognitionFailed):
    """No text of a turn in time."""

    code = "recognition_timeout"


class RecogniserBusy(RecognitionFailed):
    """Too many turns wait for the recogniser."""

    code = "recogniser_busy"


__all__ = [
    "PartialCallback",
    "Recognise",
    "Recogniser",
    "RecogniserBusy",
    "RecogniserCheck",
    "RecogniserReport",
    "RecogniserUnavailable",
    "Recognition",
    "RecognitionFailed",
    "RecognitionTimeout",
    "Samples",
    "Transcript",
]

Samples = NDArray[np.int16]
"""Linear samples, mono, shape [n]."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """Recognised text."""

    text: str = field(repr=False)
    """Text of the caller; empty = nothing was said. Not in ``repr``, so that no log has it."""
    language: str = ""
    """Code of the language (``en``); empty = unknown."""
    confidence: float | None = None
    """0 to 1; None = unknown."""


Recognise = Callable[[Samples, int], "Awaitable[str | Transcript] | str | Transcript"]
"""Function of samples (int16, mono, shape [n]) and their rate in Hz that returns the text, "" for
none.
"""

PartialCallback = Callable[[Transcript], None]
"""Called in the event loop with the partial text of an open turn."""


class Recognition(Protocol):
    """Recognition of one call; seconds as in `HeardFrame.at`.

    Only `end_turn` and `close` may block or raise: `end_turn` raises each turn's failure.
    """

    def push(self, samples: Samples, at: float) -> None:
        """Take all of the caller's audio in order, at `Recogniser.rate_hz`, int16 [n].

        ``at``: arrival of the last sample. What is kept is bounded.
        """
        ...

    def begin_turn(self, at: float) -> None:
        """Begin a turn; its first voiced sample, already pushed, was ``at``."""
        ...

    def pause(self, at: float) -> None:
        """Note silence since ``at``: recognition may begin."""
        ...

    def resume(self) -> None:
        """Discard what began at the pause: the caller goes on."""
        ...

    def drop_turn(self) -> None: ...

    async def end_turn(self, at: float) -> Transcript:
        """End the turn and return its text; raises SpeechError.

        ``at``: its last voiced sample. What is pushed afterwards belongs to the next turn, which
        may begin before this is awaited. Cancelled, it gives the turn up.
        """
        ...

    async def close(self) -> None:
        """End it; an awaited turn raises `RecognitionFailed`."""
        ...


class Recogniser(Protocol):
    """Speech recogniser shared by all calls of a process."""

    @property
    def rate_hz(self) -> int: ...

    async def warm(self) -> None:
        """Load or reach what is needed; may take minutes.

        Raises RecogniserUnavailable, RecognitionFailed.
        """
        ...

    async def open(self, on_partial: PartialCallback | None = None) -> Recognition:
        """Open a call's recognition without waiting for models or servers.

        ``on_partial``: receives partial texts, where there are some.
        """
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecogniserReport:
    """Result of a recogniser's check."""

    kind: str
    """Name of the kind, as ``--stt`` takes it: ``whisper``, ``openai``, ``deepgram``, ``ws``."""
    model: str = ""
    """Name or folder of the model; empty = the server's own."""
    language: str = ""
    """Code of the callers' language; empty = any that the model knows."""
    address: str = ""
    """Address that audio is sent to; empty = it stays on this machine."""
    real_time_factor: float | None = None
    """Seconds of work for a second of audio; None = not measured."""
    wait_s: float | None = None
    """Seconds from the end of a turn to its text; None = not measured."""


class RecogniserCheck(Protocol):
    """Function ``check`` of a recogniser's module."""

    async def __call__(self, settings: Any, /) -> RecogniserReport:
        """Load the model or ask the server as a call would.

        Raises RecogniserUnavailable, RecognitionFailed.
        """
        ...


RECOGNITION: Final = "qwen3tts_agent.recognition.kinds"
"""Module of ``recogniser_of``, in the package above. It is imported by this name when a call first
names a recogniser, as `logging.config` does with handlers.
"""


class RecogniserPool:
    """Recognisers by name or function, each made once and shared."""

    def __init__(self) -> None:
        self._made: dict[str | Recognise, Recogniser] = {}

    def chosen(self, given: Recogniser | Recognise | str | None) -> Recogniser | None:
        """Return a recogniser as it is, or by name or function; raises BadRequest."""
        if given is None or hasattr(given, "open"):
            return cast("Recogniser | None", given)
        if not (isinstance(given, str) or callable(given)):
            raise BadRequest(
                f"A {type(given).__name__} is not a recogniser.",
                remedy="Give a name such as whisper, a function, or a Recogniser.",
            )
        if given not in self._made:
            self._made[given] = import_module(RECOGNITION).recogniser_of(given)
        return self._made[given]

    async def close(self) -> None:
        made = list(self._made.values())
        self._made.clear()
        for each in made:
            await each.close()
