"""A transfer of ours: REFER, and the notices of how the new call goes (RFC 3515, RFC 4488).

The notices come inside the dialog of the call and may come after its end (RFC 5057 section 4.1).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from qwen3tts_phone.errors import CalleeUnreachable, CallError, TransferFailed
from qwen3tts_phone.sip.message import Request, Response, reply
from qwen3tts_phone.sip.refused import refused
from qwen3tts_phone.sip.sipfrag import read_status
from qwen3tts_phone.sip.transaction import Failure, Transaction
from qwen3tts_phone.sip.transfer_events import TransferProgress

if TYPE_CHECKING:
    from qwen3tts_phone.sip.call import Call
    from qwen3tts_phone.sip.dialog import Dialog
    from qwen3tts_phone.sip.exchange import Exchange
    from qwen3tts_phone.sip.replaces import ReferTo

NEXT_NOTICE_S = 240.0
"""Longest wait from one notice to the next; it covers a telephone that rings for three minutes."""
NO_NOTICE = "The far end took the transfer and did not say what became of it."
NO_NOTICE_REMEDY = "Ask at the target whether the call came; that telephone sends no notices."


class ReferState(Enum):
    """How far a transfer has come."""

    ASKED = auto()
    """REFER is out."""
    TAKEN = auto()
    """It was accepted; notices are to come."""
    TOLD = auto()
    """The target's final answer is known; the last notice may still come."""
    OVER = auto()


class TransferListener(Protocol):
    """Who wants to know."""

    def taken(self, status: int, *, quiet: bool) -> None:
        """The far end will do it; ``quiet``: it will not tell how it goes."""

    def progress(self, progress: TransferProgress) -> None:
        """A notice."""

    def over(self, outcome: int | CallError) -> None:
        """The target's final status, or why none is known. The last that is told."""


class TransferCore:
    """One REFER and its notices."""

    def __init__(
        self,
        call: Call,
        refer_to: ReferTo,
        listener: TransferListener,
        lines: list[tuple[str, str]],
        now: float,
    ) -> None:
        dialog = call.dialog
        if dialog is None:
            raise TransferFailed(481, "", message="The call has no other end yet.")
        self.stage = ReferState.ASKED
        self.dialog: Dialog = dialog
        self._call = call
        self._agent = call.agent
        self._listener = listener
        self._timeout_s = call.agent.settings.timers.timeout
        self._deadline: float | None = None
        request = dialog.request("REFER")
        request.add("Refer-To", refer_to.value)
        if not any(name.lower() in ("referred-by", "b") for name, _ in lines):
            # RFC 3892: who sends them there; our address as they know it.
            request.add("Referred-By", f"<{call.local_uri}>")
        call.agent.describe(request)
        request.add_all(lines)
        self._exchange: Exchange = call.send_inside(request, self, now, dialog)
        self._agent.watch(self)

    @property
    def cseq(self) -> int:
        """What the notices of this REFER are told from others' by (RFC 3515 section 2.4.6)."""
        return self._exchange.request.cseq

    # The REFER

    def on_provisional(self, response: Response, now: float) -> None:
        """Nothing to do."""

    def on_final(self, response: Response, now: float) -> None:
        """Whether they will do it."""
        if self.stage is not ReferState.ASKED:
            # A notice was faster than the answer.
            return
        if response.status >= 300:
            error = refused(response, self._call.digest, what="transfer")
            self._end(error)
            if response.status in (408, 481):
                self._call.lost(now, error)
            return
        quiet = (response.get("Refer-Sub") or "").strip().lower() == "false"
        self._listener.taken(response.status, quiet=quiet)
        if quiet:
            self._end(response.status)
            return
        self.stage = ReferState.TAKEN
        # RFC 6665 section 4.1.2.4, timer N: the first notice comes within 64*T1.
        self._deadline = now + self._timeout_s

    def on_failure(self, failure: Failure, now: float) -> None:
        """No answer to the REFER: the dialog is lost."""
        if self.stage is not ReferState.ASKED:
            return
        error = CalleeUnreachable(
            "The far end did not answer to the transfer.",
            remedy="Check the network, then call again.",
            why="session",
        )
        self._end(error)
        self._call.lost(now, error)

    # The notices

    def receive(self, request: Request, transaction: Transaction, now: float) -> None:
        """A NOTIFY of this transfer, checked for its order by the agent."""
        if self.stage is ReferState.ASKED:
            self.stage = ReferState.TAKEN
            self._listener.taken(202, quiet=False)
        state = (request.get("Subscription-State") or "").partition(";")[0].strip().lower()
        last = state == "terminated"
        read = read_status(request.body)
        transaction.send_response(reply(request, 200), now)
        self._deadline = now + NEXT_NOTICE_S
        if read is not None and self.stage is ReferState.TAKEN:
            status, reason = read
            final = status >= 200
            self._listener.progress(TransferProgress(status, reason, final))
            if final:
                self.stage = ReferState.TOLD
                self._listener.over(status)
                self._deadline = now + self._timeout_s
        if last:
            self._end(_unknown())

    def call_over(self, now: float) -> None:
        """The call has ended: what is still to come comes soon."""
        if self._deadline is not None:
            self._deadline = min(self._deadline, now + self._timeout_s)

    def close(self) -> None:
        """The endpoint is closed."""
        self._end(TransferFailed(487, "", message="The phone was closed before the transfer."))

    def next_deadline(self) -> float | None:
        """When :meth:`tick` is next needed."""
        return self._deadline

    def tick(self, now: float) -> None:
        """No notice within the time."""
        if self._deadline is not None and now >= self._deadline:
            self._end(_unknown())

    def _end(self, outcome: int | CallError) -> None:
        if self.stage is ReferState.OVER:
            return
        told = self.stage is ReferState.TOLD
        self.stage = ReferState.OVER
        self._deadline = None
        self._agent.unwatch(self)
        if not told:
            self._listener.over(outcome)


def _unknown() -> TransferFailed:
    return TransferFailed(408, "No Notice", message=NO_NOTICE, remedy=NO_NOTICE_REMEDY)
