"""From a page into telephone calls: dial, or monitor a running call.

gateway = Gateway(phone, [streams]) gateway.calls.shown()                                  # running
calls, for the page party = await gateway.dial(web_call, "sip:bob@192.0.2.7") guest = await
gateway.listen(web_call, call_id)        # muted until guest.talk(True)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.call.call import Call
from qwen3tts_phone.errors import CallError, NotPossible
from qwen3tts_phone.softphone.bridge import DialledBridge, MonitorBridge
from qwen3tts_phone.softphone.entries import CallEntry

if TYPE_CHECKING:
    from qwen3tts_phone.phone import Phone

POLL_INTERVAL_S = 0.5


class NoSuchCall(CallError):
    code = "no_such_call"


class CallSource(Protocol):
    """A phone, or a server of media streams."""

    @property
    def calls(self) -> Collection[Call]: ...


class CallList:
    def __init__(self, sources: Iterable[CallSource], clock: Clock) -> None:
        self._sources = tuple(sources)
        self._clock = clock

    def find(self, call_id: str) -> Call | None:
        return next((call for call in self._all() if call.id == call_id), None)

    def shown(self) -> list[CallEntry]:
        now = self._clock.now()
        calls = sorted(self._all(), key=lambda call: (call.facts.started_at, call.id))
        return [_entry(call, now) for call in calls]

    async def follow(self) -> AsyncGenerator[list[CallEntry], None]:
        """Yield the list immediately and after each change but that of time."""
        last: list[tuple[object, ...]] | None = None
        while True:
            now = self.shown()
            key = [(each.id, each.remote, each.state, each.speaking) for each in now]
            if key != last:
                last = list(key)
                yield now
            await self._clock.sleep_until(self._clock.now() + POLL_INTERVAL_S)

    def _all(self) -> list[Call]:
        return [call for source in self._sources for call in source.calls if not call.over]


def _entry(call: Call, now: float) -> CallEntry:
    facts = call.facts
    state = "ringing" if facts.answered_at is None else "held" if call.held else "up"
    since_ms = 1000 * max(0, int(now - facts.started_at))
    return CallEntry(
        call.id, call.line, call.direction, call.remote_uri, state, since_ms, call.speaking
    )


class Gateway:
    """Access of pages to this process's telephone.

    Args:
        phone: dials, and has calls; None = no telephone.
        further: other sources of calls, such as `Streams`.
        clock: the calls' time; default: the phone's.
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
        self._has_sources = bool(sources)

    @property
    def can_dial(self) -> bool:
        return self._phone is not None

    @property
    def can_listen(self) -> bool:
        return self._has_sources

    @property
    def accounts(self) -> tuple[str, ...]:
        return () if self._phone is None else tuple(self._phone.registrations)

    async def dial(self, page: Call, uri: str, *, account: str | None = None) -> DialledBridge:
        """Dial for a page; returns immediately, see `CallBridge.states`.

        Raises NotPossible (no phone), CallNotAllowed, BadSip, CalleeUnreachable, PortBusy.
        """
        if self._phone is None:
            raise NotPossible(
                "Dialling", page.line, remedy="Start the softphone with --sip or --config FILE."
            )
        call = await self._phone.dial(uri.strip(), account=account)
        return DialledBridge(page, call)

    async def listen(self, page: Call, call_id: str) -> MonitorBridge:
        """Monitor a running call, inaudibly until the page talks.

        Raises NoSuchCall.
        """
        call = self.calls.find(call_id)
        if call is None:
            raise NoSuchCall(
                "There is no such call any more.", remedy="Choose one that is in the list."
            )
        return MonitorBridge(page, call, self.calls.find)
