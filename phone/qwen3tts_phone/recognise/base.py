"""What a recogniser is: it takes a caller's sound all the time and gives the text of each turn.

A `Recogniser` serves a whole process (a model, a server's address); a `Recognition` is one call's.
When a turn begins and ends is not theirs to decide: whoever listens says so.

    push push push begin_turn push push pause push resume push push pause push end_turn → text
                   └ speech began            └ more speech        └ perhaps the end
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.recognise.errors import (
    RecogniserBusy,
    RecogniserUnavailable,
    RecognitionFailed,
    RecognitionTimeout,
)
from qwen3tts_wire.errors import BadRequest

__all__ = [
    "PartialTaker",
    "Recogniser",
    "RecogniserBusy",
    "RecogniserUnavailable",
    "Recognition",
    "RecognitionFailed",
    "RecognitionTimeout",
    "Samples",
    "Transcript",
    "recogniser_named",
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


PartialTaker = Callable[[Transcript], None]
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

    async def open(self, on_partial: PartialTaker | None = None) -> Recognition:
        """Begin to recognise one call. Does not wait for models or servers; see `end_turn`.

        ``on_partial`` is given what is understood before a turn ends, where the recogniser tells.
        """
        ...

    async def close(self) -> None:
        """End it; calls that are still open can recognise nothing more."""
        ...


def recogniser_named(text: str, **options: Any) -> Recogniser:
    """The recogniser that a setting names; nothing is loaded or connected yet.

    ``whisper``, ``whisper:MODEL`` (a folder or a hub's name such as ``openai/whisper-small``),
    ``ws://…`` or ``wss://…`` (docs/recognisers.md). ``options`` are those of `WhisperSettings` or
    `SocketSettings`.

    Raises:
        BadRequest: it names none, or an option is wrong.
    """
    kind, colon, rest = text.strip().partition(":")
    if kind.lower() in ("ws", "wss") and colon:
        from qwen3tts_phone.recognise.socket_settings import SocketSettings
        from qwen3tts_phone.recognise.websocket import SocketRecogniser

        return SocketRecogniser(_settings(SocketSettings, {"url": text.strip(), **options}))
    if kind.lower() == "whisper" and (rest or not colon):
        from qwen3tts_phone.recognise.whisper import WhisperRecogniser
        from qwen3tts_phone.recognise.whisper_settings import WhisperSettings

        named = {"model": rest} if rest else {}
        return WhisperRecogniser(_settings(WhisperSettings, {**named, **options}))
    raise BadRequest(
        f"{text[:100]!r} names no recogniser.",
        remedy="Write whisper, whisper:MODEL_OR_FOLDER, ws://HOST:PORT/PATH or wss://HOST/PATH.",
    )


_S = TypeVar("_S")


def _settings(kind: type[_S], options: dict[str, Any]) -> _S:
    """The settings with these values; BadRequest names an option that there is not."""
    known = kind.__annotations__
    for name in options:
        if name not in known:
            raise BadRequest(
                f"The recogniser has no option {name[:40]!r}.",
                remedy=f"Its options are: {', '.join(known)}.",
            )
    try:
        return kind(**options)
    except (ValueError, TypeError) as error:
        raise BadRequest(f"The recogniser's settings: {error}.") from None
