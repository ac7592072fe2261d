"""How a telephone call stands, as the page that is joined to it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

from qwen3tts_phone.call_events import (
    CallAnswered,
    CallEarlyMedia,
    CallEnded,
    CallEvent,
    CallForwarded,
    CallHeld,
    CallQueued,
    CallResumed,
    CallRinging,
)

LineStateName = Literal["connecting", "ringing", "up", "ended"]


@dataclass(frozen=True, slots=True)
class LineState:
    """Where the call stands."""

    state: LineStateName
    cause: str = ""
    """In plain words; empty = nothing to add."""
    remedy: str = ""
    by: str = ""
    """Who ended it: ``local``, ``remote``, ``timeout`` or ``error``."""
    code: str = ""
    """Name of the kind of error; empty = none."""


CONNECTING = LineState("connecting")
UP = LineState("up")


def state_after(event: CallEvent) -> LineState | None:
    """What an event of the call changes; None = nothing."""
    match event:
        case CallRinging():
            return LineState("ringing")
        case CallForwarded():
            return LineState("ringing", "The call is being forwarded.")
        case CallQueued():
            return LineState("ringing", "The call is queued.")
        case CallEarlyMedia():
            return LineState("ringing", "The other side plays something before it answers.")
        case CallAnswered() | CallResumed():
            return UP
        case CallHeld():
            return LineState("up", "The other side has put the call on hold.")
        case CallEnded():
            return LineState("ended", event.cause, event.remedy, event.by, event.code)
        case _:
            return None


class LineStates:
    """All states so far, for any number of readers."""

    def __init__(self, first: LineState) -> None:
        self._states = [first]
        self._news = asyncio.Event()

    @property
    def last(self) -> LineState:
        """The one that holds now."""
        return self._states[-1]

    def add(self, state: LineState) -> None:
        """It changes, if it does; nothing follows ``ended``."""
        if state != self.last and self.last.state != "ended":
            self._states.append(state)
            self._news.set()
            self._news = asyncio.Event()

    async def all(self) -> AsyncIterator[LineState]:
        """From the first to ``ended``."""
        count = 0
        while True:
            news = self._news
            for state in self._states[count:]:
                count += 1
                yield state
            if self.last.state == "ended" and count == len(self._states):
                return
            if count == len(self._states):
                await news.wait()
