"""Provisional answers to an INVITE of theirs, sent reliably where the caller can (RFC 3262)."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.call_state import CallState, EarlyAnswer
from qwen3tts_phone.sip.message import Request, checked_sdp, reply
from qwen3tts_phone.sip.transaction import Transaction
from qwen3tts_phone.sip.unacked import UnackedAnswer

if TYPE_CHECKING:
    from qwen3tts_phone.sip.dialog import Dialog
    from qwen3tts_phone.sip.incoming import IncomingCall

MAX_WAITING = 4
"""Provisional answers that wait for the PRACK of the one before."""

REPEAT_S = 60.0
"""While nobody answers, the last one is said anew so often: proxies give up a call of which they
have heard nothing for three minutes (RFC 3261 section 13.3.1.1)."""

Lines = list[tuple[str, str]]
_RACK = re.compile(r"\s*([0-9]{1,10})\s+([0-9]{1,10})\s+([A-Za-z]{1,32})\s*")


class Provisionals:
    """The provisional answers of one incoming call."""

    def __init__(self, call: IncomingCall) -> None:
        options = (*call.request.values("Supported"), *call.request.values("Require"))
        self.reliable = any(option.lower() == "100rel" for option in options)
        """Whether the caller acknowledges them."""
        self.described: str | None = None
        """What we described reliably: the answer to their offer, or our offer."""
        self.answered: str | None = None
        """Their answer to that offer, from the PRACK."""
        self._call = call
        # Section 3: between 1 and 2**31 - 1, and counting up from there.
        self._rseq = call.agent.random.randint(1, 2**30)
        self._open = False
        """Whether one has been sent whose PRACK has not come; also after the final answer."""
        self._unacked: UnackedAnswer | None = None
        self._describes = False
        self._offers = False
        self._waiting: deque[tuple[int, str | None, Lines]] = deque(maxlen=MAX_WAITING)
        self._last: tuple[int, str | None, Lines] | None = None
        self._again_at: float | None = None

    @property
    def holds_answer(self) -> bool:
        """Section 3: no 2xx before the PRACK of an answer with a description."""
        return self._unacked is not None and self._describes

    def send(self, status: int, sdp: str | None, lines: Lines, now: float) -> None:
        """Send one, or keep it until the one before has been acknowledged."""
        call = self._call
        self._last, self._again_at = (status, sdp, lines), now + REPEAT_S
        if not self.reliable:
            # RFC 3262 section 5: an offer goes into reliable answers only.
            body = sdp if call.offer is not None else None
            dropped = sdp is not None and body is None
            response = call.response(180 if dropped and status == 183 else status, body)
            response.add_all(lines)
            call.transaction.send_response(response, now)
            return
        if self._unacked is not None:
            self._waiting.append((status, sdp, lines))
            return
        # RFC 3261 section 13.2.1: what has been described once is not described again.
        body = sdp if self.described is None else None
        response = call.response(status, body)
        response.add_all(lines)
        response.add("Require", "100rel")
        response.add("RSeq", str(self._rseq))
        self._describes = body is not None
        self._offers = self._describes and call.offer is None
        if body is not None:
            self.described = call.local_sdp = body
        self._open = True
        self._unacked = UnackedAnswer(call.transaction, response, call.agent.settings.timers, now)

    def knows(self, request: Request) -> bool:
        """Whether a PRACK is for the answer that waits for it; raises BadSip."""
        match = _RACK.fullmatch(request.get("RAck") or "")
        if match is None:
            raise BadSip("The PRACK does not say what it acknowledges.")
        waits = (self._rseq, self._call.request.cseq, "INVITE")
        return self._open and (int(match[1]), int(match[2]), match[3]) == waits

    def acknowledged(
        self, request: Request, transaction: Transaction, dialog: Dialog, now: float
    ) -> None:
        """A PRACK; with the answer to our offer, or with a new offer of theirs."""
        if not self.knows(request):
            transaction.send_response(reply(request, 481), now)
            return
        sdp = checked_sdp(request)
        offers = self._offers
        self._unacked, self._open, self._describes, self._offers = None, False, False, False
        self._rseq += 1
        if offers or sdp is None:
            transaction.send_response(reply(request, 200), now)
            if offers and sdp is not None:
                self.answered = sdp
                self._call.notify(EarlyAnswer(sdp))
        else:
            self._call.modification.received.receive(request, transaction, dialog, now)
        if self._waiting and not self._call.is_answering and self._call.state is CallState.RINGING:
            status, described, lines = self._waiting.popleft()
            self.send(status, described, lines, now)

    def stop(self) -> None:
        """A final answer goes out: nothing is repeated any more; a PRACK may still come."""
        self._waiting.clear()
        self._unacked = self._again_at = None

    def next_deadline(self) -> float | None:
        """When :meth:`tick` is next needed."""
        return self._unacked.next_at if self._unacked is not None else self._again_at

    def tick(self, now: float) -> bool:
        """Repeat what has no PRACK; False once it is given up (section 3: the call is refused)."""
        if self._unacked is None:
            if self._last is not None and self._again_at is not None and now >= self._again_at:
                self.send(*self._last, now)
            return True
        if self._unacked.tick(now):
            return True
        self.stop()
        return False
