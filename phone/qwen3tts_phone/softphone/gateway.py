"""From a page into telephone calls: dial somebody, or listen in to a call that runs.

    gateway = Gateway(phone, [streams])
    gateway.calls.shown()                                 # what runs, for the page
    party = await gateway.dial(web_call, "sip:bob@192.0.2.7")
    guest = await gateway.listen(web_call, call_id)       # muted until guest.talk(True)

Both give a `Joined`: a page's call and another one, whose sound goes to and fro until one ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.call import Call
from qwen3tts_phone.errors import CallError, NotPossible
from qwen3tts_phone.softphone.joined import Dialled, Guest, Joined, LineState
from qwen3tts_phone.softphone.running import HasCalls, RunningCall, RunningCalls

if TYPE_CHECKING:
    from qwen3tts_phone.phone import Phone

__all__ = ["Dialled", "Gateway", "Guest", "Joined", "LineState", "NoSuchCall", "RunningCall"]


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
        further: Sequence[HasCalls] = (),
        *,
        clock: Clock | None = None,
    ) -> None:
        self._phone = phone
        sources: list[HasCalls] = [] if phone is None else [phone]
        sources += further
        self.clock: Clock = clock or (phone.clock if phone is not None else LoopClock())
        self.calls = RunningCalls(sources, self.clock)
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

    async def dial(self, page: Call, uri: str, *, account: str | None = None) -> Dialled:
        """Call somebody for a page; returns at once, and `Joined.states` tells how it goes on.

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
        return Dialled(page, call)

    async def listen(self, page: Call, call_id: str) -> Guest:
        """Listen in to a call that runs; its parties notice nothing until the page talks.

        Raises:
            NoSuchCall: it is over, or there never was one of that name.
        """
        call = self.calls.find(call_id)
        if call is None:
            raise NoSuchCall(
                "There is no such call any more.", remedy="Choose one that is in the list."
            )
        return Guest(page, call, self.calls.find)
