"""What can go wrong when a caller's words are written down; none of it ends a call.

RecogniserUnavailable           it cannot work here: a package, a model or an address is missing
RecognitionFailed               it broke over one turn; the next may be understood
├── RecognitionTimeout          no text came in time
└── RecogniserBusy              more turns wait than it may keep
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
    """The recogniser cannot work here: a package, a model, a key or an address is missing."""

    code = "recogniser_unavailable"


class RecognitionFailed(SpeechError):
    """One turn could not be written down; its words are lost, the next may be understood."""

    code = "recognition_failed"
    retryable = True


class RecognitionTimeout(RecognitionFailed):
    """The text of a turn did not come in time."""

    code = "recognition_timeout"


class RecogniserBusy(RecognitionFailed):
    """More turns wait for the recogniser than it may keep."""

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
    """What was understood."""

    text: str = field(repr=False)
    """The caller's words; empty = nothing was said. Not in ``repr``, so that no log has them."""
    language: str = ""
    """The language's code (``en``), where the recogniser tells; empty = it does not."""
    confidence: float | None = None
    """0 to 1, where the recogniser tells."""


Recognise = Callable[[Samples, int], "Awaitable[str | Transcript] | str | Transcript"]
"""Takes samples (int16, mono, shape [n]) and their rate in Hz; returns the words, "" for none."""

PartialCallback = Callable[[Transcript], None]
"""Takes what is understood so far of a turn that has not ended; called in the event loop."""


class Recognition(Protocol):
    """One call's recogniser. All times are seconds of the call's clock, as in `HeardFrame.at`.

    Everything but `end_turn` and `close` returns at once and raises nothing: what goes wrong is
    told by `end_turn`, turn by turn.
    """

    def push(self, samples: Samples, at: float) -> None:
        """Take the caller's sound, all of it, in order: at `Recogniser.rate_hz`, int16 [n].

        ``at``: when the last of them was heard. Never blocks; what is kept is bounded.
        """
        ...

    def begin_turn(self, at: float) -> None:
        """The caller speaks since ``at`` (their first voiced sample, which was pushed before).

        The recognition takes somewhat more of what came before by itself. A turn that was not
        ended is given up.
        """
        ...

    def pause(self, at: float) -> None:
        """The caller is silent since ``at`` (after the last voiced sample); perhaps it is the end.

        The recognition may begin to work on the turn as it is.
        """
        ...

    def resume(self) -> None:
        """They speak on: what was begun at the pause does not hold any more."""
        ...

    def drop_turn(self) -> None:
        """What began was a noise, no turn: nobody asks for its text. May come where none began."""
        ...

    async def end_turn(self, at: float) -> Transcript:
        """The turn is over, its last voiced sample was at ``at``; the words of the whole turn.

        Those built in take it as over from the call on, not from when it is first waited for: what
        is pushed in between belongs to the next. Another turn may begin while this one is waited
        for. Cancelling it gives the turn up.

        Raises:
            SpeechError: `RecognitionFailed` and its kinds, or `RecogniserUnavailable`.
        """
        ...

    async def close(self) -> None:
        """The call is over. A turn that is waited for ends with `RecognitionFailed`."""
        ...


class Recogniser(Protocol):
    """Writes down what callers say; one object for all calls of a process."""

    @property
    def rate_hz(self) -> int:
        """Rate of the samples that it takes."""
        ...

    async def warm(self) -> None:
        """Load or reach what is needed, so that no caller waits for it; may take minutes.

        Raises:
            RecogniserUnavailable: it cannot work here; says what to do.
            RecognitionFailed: not now.
        """
        ...

    async def open(self, on_partial: PartialCallback | None = None) -> Recognition:
        """Begin to recognise one call. Does not wait for models or servers; see `end_turn`.

        ``on_partial`` is given what is understood before a turn ends, where the recogniser tells.
        """
        ...

    async def close(self) -> None:
        """End it; calls that are still open can recognise nothing more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecogniserReport:
    """Result of a recogniser's check: what would write down callers' words, and how fast."""

    kind: str
    """Name of the kind, as ``--stt`` takes it: ``whisper``, ``openai``, ``deepgram``, ``ws``."""
    model: str = ""
    """Name or folder of the model; empty = the server's own."""
    language: str = ""
    """What callers may speak, as a code; empty = any that the model knows."""
    address: str = ""
    """Where callers' sound is sent; empty = it stays on this machine."""
    real_time_factor: float | None = None
    """Seconds of work for a second of sound; None = not measured."""
    wait_s: float | None = None
    """Seconds from the end of a turn to its text, as measured; None = not measured."""


class RecogniserCheck(Protocol):
    """The function ``check`` of the module of each kind of recogniser, given its settings.

    It loads the model or asks the server as a call would, and lets go of both.
    """

    async def __call__(self, settings: Any, /) -> RecogniserReport:
        """Try the recogniser that these settings describe.

        Raises:
            RecogniserUnavailable: it cannot work here: package, model, key or address; with the
                remedy.
            RecognitionFailed: not now.
        """
        ...


RECOGNITION: Final = "qwen3tts_agent.recognition.kinds"
"""Module with ``recogniser_of``. It is above this package, which imports it by this name when a
call first names a recogniser, as `logging.config` does with handlers."""


class RecogniserPool:
    """One for all calls of a phone; what it has made ends with it."""

    def __init__(self) -> None:
        self._made: dict[str | Recognise, Recogniser] = {}

    def chosen(self, given: Recogniser | Recognise | str | None) -> Recogniser | None:
        """A recogniser as it is; or the one of a name (`recogniser_named`) or of a function.

        It loads its model, or connects, with the first turn. Raises BadRequest for a name or a
        thing that is none.
        """
        if given is None or hasattr(given, "open"):
            return cast("Recogniser | None", given)
        if not (isinstance(given, str) or callable(given)):
            raise BadRequest(
                f"A {type(given).__name__} is no recogniser.",
                remedy="Give a name such as whisper, a function, or a Recogniser.",
            )
        if given not in self._made:
            self._made[given] = import_module(RECOGNITION).recogniser_of(given)
        return self._made[given]

    async def close(self) -> None:
        """End all of them."""
        made = list(self._made.values())
        self._made.clear()
        for each in made:
            await each.close()
