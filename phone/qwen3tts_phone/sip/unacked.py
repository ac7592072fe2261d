"""Answers that are repeated until they are acknowledged: a 2xx to an INVITE (RFC 3261 section
13.3.1.4), and a reliable provisional one (RFC 3262 section 3)."""

from __future__ import annotations

from qwen3tts_phone.sip.machines import State
from qwen3tts_phone.sip.message import Response
from qwen3tts_phone.sip.settings import Timers
from qwen3tts_phone.sip.transaction import Transaction


class UnackedAnswer:
    """An answer, sent again at T1, 2*T1 and so on, given up after 64*T1.

    A 2xx waits T2 at most (until its ACK); a provisional answer doubles on (until its PRACK).
    """

    def __init__(
        self, transaction: Transaction, response: Response, timers: Timers, now: float
    ) -> None:
        final = response.status >= 200
        self._transaction = transaction
        self._response = response
        self._while = State.ACCEPTED if final else State.PROCEEDING
        self._longest = timers.t2 if final else timers.timeout
        self.cseq = transaction.request.cseq
        self._wait = timers.t1
        self.sent_at = now
        """When it was first sent."""
        self.next_at = now + self._wait
        self._give_up_at = now + timers.timeout
        transaction.send_response(response, now)

    def tick(self, now: float) -> bool:
        """Send it again if that is due; False once it is given up."""
        if now >= self._give_up_at:
            return False
        if now >= self.next_at:
            self._wait = min(self._wait * 2, self._longest)
            self.next_at = min(now + self._wait, self._give_up_at)
            if self._transaction.state is self._while:
                self._transaction.send_response(self._response, now)
        return True
