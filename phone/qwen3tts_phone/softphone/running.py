"""The calls that run in this process, for a page that lists them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.call import Call

LOOK_S = 0.5
"""How often it is looked whether a list has changed: a page is told twice a second at most."""

CallState = Literal["ringing", "up", "held"]


@dataclass(frozen=True, slots=True)
class RunningCall:
    """One line of the list."""

    id: str
    line: str
    direction: str
    remote: str
    """Whom the call is with; empty = the line does not say."""
    state: CallState
    since_ms: int
    """How long it has been in the list, to the second, milliseconds."""
    speaking: bool
    """Whether our side is saying something."""


class HasCalls(Protocol):
    """A phone, or a server of media streams."""

    @property
    def calls(self) -> Collection[Call]:
        """Those that are not over."""


class RunningCalls:
    """All calls of a process's phones and streams.

    Args:
        sources: where calls come from; each may be empty.
        clock: the calls' time.
    """

    def __init__(self, sources: Iterable[HasCalls], clock: Clock) -> None:
        self._sources = tuple(sources)
        self._clock = clock

    def find(self, call_id: str) -> Call | None:
        """The call of that name; None = it is over, or never was."""
        return next((call for call in self._all() if call.id == call_id), None)

    def shown(self) -> list[RunningCall]:
        """As they stand now, the oldest first."""
        now = self._clock.now()
        calls = sorted(self._all(), key=lambda call: (call.facts.started_at, call.id))
        return [_shown(call, now) for call in calls]

    async def follow(self) -> AsyncGenerator[list[RunningCall], None]:
        """The list, at once and then whenever it has changed, twice a second at most; for ever.

        The passing of time alone is no change.
        """
        told: list[tuple[object, ...]] | None = None
        while True:
            now = self.shown()
            key = [(each.id, each.remote, each.state, each.speaking) for each in now]
            if key != told:
                told = list(key)
                yield now
            await self._clock.sleep_until(self._clock.now() + LOOK_S)

    def _all(self) -> list[Call]:
        return [call for source in self._sources for call in source.calls if not call.over]


def _shown(call: Call, now: float) -> RunningCall:
    facts = call.facts
    state: CallState = "ringing" if facts.answered_at is None else "held" if call.held else "up"
    since_s = max(0, int(now - facts.started_at))
    return RunningCall(
        call.id, call.line, call.direction, call.remote_uri, state, since_s * 1000, call.speaking
    )
