"""The calls that run in this process, for a page that lists them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.call.call import Call
from qwen3tts_phone.errors import CallError, NotPossible
from qwen3tts_phone.softphone.bridge import CallBridge, DialledBridge, LineState, MonitorBridge

if TYPE_CHECKING:
    from qwen3tts_phone.phone import Phone


POLL_INTERVAL_S = 0.5
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


class CallSource(Protocol):
    """A phone, or a server of media streams."""

    @property
    def calls(self) -> Collection[Call]:
        """Those that are not over."""


class CallList:
    """All calls of a process's phones and streams.

    Args:
        sources: where calls come from; each may be empty.
        clock: the calls' time.
    """

    def __init__(self, sources: Iterable[CallSource], clock: Clock) -> None:
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
            await self._clock.sleep_until(self._clock.now() + POLL_INTERVAL_S)

    def _all(self) -> list[Call]:
        return [call for source in self._sources for call in source.calls if not call.over]


def _shown(call: Call, now: float) -> RunningCall:
    facts = call.facts
    state: CallState = "ringing" if facts.answered_at is None else "held" if call.held else "up"
    since_s = max(0, int(now - facts.started_at))
    return RunningCall(
        call.id, call.line, call.direction, call.remote_uri, state, since_s * 1000, call.speaking
    )


__all__ = [
    "DialledBridge",
    "Gateway",
    "MonitorBridge",
    "CallBridge",
    "LineState",
    "NoSuchCall",
    "RunningCall",
]


class NoSuchCall(CallError):
    """No call of that name runs here."""

    code = "no_such_call"


class Gateway:
    """What a page can do with the telephone of this process.

    Args:
        phone: dials, and has calls; None = there is no telephone.
        further: other lines that have calls, such as `Streams`.
        clock: the calls' time; the phone's if left out.
    """

    def __init__(
        self,
        phone: Phone | None = None,
        further: Sequence[CallSource] = (),
        *,
        clock: Clock | None = None,
    ) -> None:
        self._phone = phone
        sources: list[CallSource] = [] if phone is None else [phone]
        sources += further
        self.clock: Clock = clock or (phone.clock if phone is not None else LoopClock())
        self.calls = CallList(sources, self.clock)
        """Those that run: ``shown()``, and ``follow()`` for whenever they change."""
        self._has_lines = bool(sources)

    @property
    def can_dial(self) -> bool:
        """Whether there is a phone that dials."""
        return self._phone is not None

    @property
    def can_listen(self) -> bool:
        """Whether there is a line whose calls can be listened in to."""
        return self._has_lines

    @property
    def accounts(self) -> tuple[str, ...]:
        """Names of the accounts in whose name it can dial."""
        return () if self._phone is None else tuple(self._phone.registrations)

    async def dial(self, page: Call, uri: str, *, account: str | None = None) -> DialledBridge:
        """Call somebody for a page; returns at once, and `CallBridge.states` tells how it goes on.

        The page's call must be up, or about to be. It is not ended here when this raises.

        Raises:
            NotPossible: there is no phone.
            CallNotAllowed: a rule of the phone's guard forbids it; nothing was sent.
            BadSip: ``uri`` is no SIP address, or there is no such account.
            CalleeUnreachable: its host has no address.
            PortBusy: no RTP port is free.
        """
        if self._phone is None:
            raise NotPossible(
                "Dialling", page.line, remedy="Start the softphone with --sip or --config FILE."
            )
        call = await self._phone.dial(uri.strip(), account=account)
        return DialledBridge(page, call)

    async def listen(self, page: Call, call_id: str) -> MonitorBridge:
        """Listen in to a call that runs; its parties notice nothing until the page talks.

        Raises:
            NoSuchCall: it is over, or there never was one of that name.
        """
        call = self.calls.find(call_id)
        if call is None:
            raise NoSuchCall(
                "There is no such call any more.", remedy="Choose one that is in the list."
            )
        return MonitorBridge(page, call, self.calls.find)
