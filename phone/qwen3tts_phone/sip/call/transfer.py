"""Call transfer by REFER in both directions (RFC 3515, RFC 3892, RFC 4488).

NOTIFY bodies are ``message/sipfrag`` (RFC 3420); notices may follow the call's end (RFC 5057
section 4.1).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from enum import Enum, auto
from typing import Protocol

from qwen3tts_phone.errors import BadSip, CalleeUnreachable, CallError, TransferFailed
from qwen3tts_phone.sip.call.call import Call
from qwen3tts_phone.sip.call.state import CallState, ReferReceived, TransferProgress
from qwen3tts_phone.sip.core.failure import call_refused
from qwen3tts_phone.sip.message.fields import parse_address, parse_uri
from qwen3tts_phone.sip.message.message import REASONS, Request, Response, reply
from qwen3tts_phone.sip.transaction.client_request import ClientRequest, OutcomeListener
from qwen3tts_phone.sip.transaction.dialog import Dialog, ReferTo
from qwen3tts_phone.sip.transaction.transaction import Failure, Transaction

MAX_UNREAD_NOTICES = 64


class Transfer:
    """Our transfer; made by :meth:`SipCall.refer`."""

    def __init__(self) -> None:
        self.quiet = False
        """True if the far end suppresses notices (RFC 4488)."""
        loop = asyncio.get_running_loop()
        self._taken: asyncio.Future[int] = loop.create_future()
        self._outcome: asyncio.Future[int] = loop.create_future()
        self._notices: asyncio.Queue[TransferProgress | None] = asyncio.Queue()

    @property
    def events(self) -> AsyncIterator[TransferProgress]:
        return self._events()

    async def _events(self) -> AsyncIterator[TransferProgress]:
        while (notice := await self._notices.get()) is not None:
            yield notice
        self._notices.put_nowait(None)

    async def done(self) -> int:
        """Wait for the target's final status, or the REFER's 2xx where ``quiet``.

        Raises:
            TransferFailed: the target refused.
        """
        return await asyncio.shield(self._outcome)

    async def accepted(self) -> None:
        """Wait until the far end has accepted the REFER; raises CallRefused."""
        await asyncio.shield(self._taken)

    # Called by the REFER

    def taken(self, status: int, *, quiet: bool) -> None:
        self.quiet = quiet
        if not self._taken.done():
            self._taken.set_result(status)

    def progress(self, progress: TransferProgress) -> None:
        if self._notices.qsize() < MAX_UNREAD_NOTICES or progress.final:
            self._notices.put_nowait(progress)

    def over(self, outcome: int | CallError) -> None:
        for future in (self._taken, self._outcome):
            if future.done():
                continue
            if isinstance(outcome, CallError):
                future.set_exception(outcome)
                # Retrieved, so that asyncio logs nothing.
                future.exception()
            else:
                future.set_result(outcome)
        self._notices.put_nowait(None)


CONTENT_TYPE = "message/sipfrag;version=2.0"
MAX_REASON_CHARS = 100

_STATUS_LINE = re.compile(r"SIP/2\.0[ \t]+([1-6][0-9][0-9])(?:[ \t]+([^\r\n]*))?", re.I)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")


def read_status(body: bytes) -> tuple[int, str] | None:
    """Return status and reason of a sipfrag, or None."""
    match = _STATUS_LINE.match(body[:512].decode("utf-8", "replace").lstrip())
    if match is None:
        return None
    status = int(match[1])
    reason = _UNPRINTABLE.sub(" ", match[2] or "").strip()[:MAX_REASON_CHARS]
    return status, reason or REASONS.get(status, "")


def write_status(status: int, reason: str = "") -> bytes:
    reason = _UNPRINTABLE.sub(" ", reason).strip()[:MAX_REASON_CHARS]
    return f"SIP/2.0 {status} {reason or REASONS.get(status, 'Answer')}\r\n".encode()


NEXT_NOTICE_S = 240.0
"""Longest wait for a notice; covers three minutes of ringing."""
NO_NOTICE = "The far end took the transfer and did not say what became of it."
NO_NOTICE_REMEDY = "Ask at the target whether the call came; that telephone sends no notices."


class OutgoingReferState(Enum):
    ASKED = auto()
    """REFER is out."""
    TAKEN = auto()
    """It was accepted; notices are to come."""
    TOLD = auto()
    """Final status known; the last notice may follow."""
    OVER = auto()


class TransferListener(Protocol):
    def taken(self, status: int, *, quiet: bool) -> None: ...

    def progress(self, progress: TransferProgress) -> None: ...

    def over(self, outcome: int | CallError) -> None: ...


class OutgoingRefer:
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
        self.stage = OutgoingReferState.ASKED
        self.dialog: Dialog = dialog
        self._call = call
        self._agent = call.agent
        self._listener = listener
        self._timeout_s = call.agent.settings.timers.timeout
        self._deadline: float | None = None
        request = dialog.request("REFER")
        request.add("Refer-To", refer_to.value)
        if not any(name.lower() in ("referred-by", "b") for name, _ in lines):
            # RFC 3892: our address as they know it.
            request.add("Referred-By", f"<{call.local_uri}>")
        call.agent.describe(request)
        request.add_all(lines)
        self._client_request: ClientRequest = call.send_in_dialog(request, self, now, dialog)
        call.registry.subscribe(self)

    @property
    def cseq(self) -> int:
        return self._client_request.request.cseq

    # The REFER

    def on_provisional(self, response: Response, now: float) -> None: ...

    def on_final(self, response: Response, now: float) -> None:
        if self.stage is not OutgoingReferState.ASKED:
            # A notice overtook the response.
            return
        if response.status >= 300:
            error = call_refused(response, self._call.digest, what="transfer")
            self._end(error)
            if response.status in (408, 481):
                self._call.dialog_lost(now, error)
            return
        quiet = (response.get("Refer-Sub") or "").strip().lower() == "false"
        self._listener.taken(response.status, quiet=quiet)
        if quiet:
            self._end(response.status)
            return
        self.stage = OutgoingReferState.TAKEN
        # RFC 6665 section 4.1.2.4, timer N: the first notice comes within 64*T1.
        self._deadline = now + self._timeout_s

    def on_failure(self, failure: Failure, now: float) -> None:
        if self.stage is not OutgoingReferState.ASKED:
            return
        error = CalleeUnreachable(
            "The far end did not answer to the transfer.",
            remedy="Check the network, then call again.",
            why="session",
        )
        self._end(error)
        self._call.dialog_lost(now, error)

    # Notices

    def receive(self, request: Request, transaction: Transaction, now: float) -> None:
        if self.stage is OutgoingReferState.ASKED:
            self.stage = OutgoingReferState.TAKEN
            self._listener.taken(202, quiet=False)
        state = (request.get("Subscription-State") or "").partition(";")[0].strip().lower()
        last = state == "terminated"
        read = read_status(request.body)
        transaction.send_response(reply(request, 200), now)
        self._deadline = now + NEXT_NOTICE_S
        if read is not None and self.stage is OutgoingReferState.TAKEN:
            status, reason = read
            final = status >= 200
            self._listener.progress(TransferProgress(status, reason, final))
            if final:
                self.stage = OutgoingReferState.TOLD
                self._listener.over(status)
                self._deadline = now + self._timeout_s
        if last:
            self._end(_outcome_unknown())

    def call_over(self, now: float) -> None:
        if self._deadline is not None:
            self._deadline = min(self._deadline, now + self._timeout_s)

    def close(self) -> None:
        self._end(TransferFailed(487, "", message="The phone was closed before the transfer."))

    def next_deadline(self) -> float | None:
        return self._deadline

    def tick(self, now: float) -> None:
        if self._deadline is not None and now >= self._deadline:
            self._end(_outcome_unknown())

    def _end(self, outcome: int | CallError) -> None:
        if self.stage is OutgoingReferState.OVER:
            return
        told = self.stage is OutgoingReferState.TOLD
        self.stage = OutgoingReferState.OVER
        self._deadline = None
        self._call.registry.unsubscribe(self)
        if not told:
            self._listener.over(outcome)


def _outcome_unknown() -> TransferFailed:
    return TransferFailed(408, "No Notice", message=NO_NOTICE, remedy=NO_NOTICE_REMEDY)


DECIDE_WITHIN_S = 20.0
"""Time for a decision; then 603. Its sender waits 32 s."""
EXPIRES_S = 240
"""Duration of the implicit subscription."""
MAX_REFERRALS = 4
"""Concurrent transfers of one call."""


class IncomingReferState(Enum):
    ASKED = auto()
    TAKEN = auto()
    """Accepted: notices go out until the new call's final status."""
    OVER = auto()


class IncomingRefer:
    def __init__(
        self, call: Call, request: Request, transaction: Transaction, dialog: Dialog, now: float
    ) -> None:
        self.stage = IncomingReferState.ASKED
        self.dialog = dialog
        self._call = call
        self._agent = call.agent
        self._transaction: Transaction | None = transaction
        self._event = f"refer;id={request.cseq}"
        self._deadline: float | None = now + DECIDE_WITHIN_S
        # RFC 4488: they may suppress notices.
        self._quiet = (request.get("Refer-Sub") or "").strip().lower() == "false"

    @classmethod
    def receive(
        cls, call: Call, request: Request, transaction: Transaction, dialog: Dialog, now: float
    ) -> None:
        if call.state is not CallState.UP or call.dialog is not dialog:
            status = 481 if call.state is CallState.ENDING else 403
            transaction.send_response(reply(request, status), now)
            return
        if not call.may_be_steered_by(request, dialog):
            transaction.send_response(reply(request, 403), now)
            return
        if call.open_referrals >= MAX_REFERRALS:
            response = reply(request, 503)
            response.add("Retry-After", "10")
            transaction.send_response(response, now)
            return
        values = request.headers.getlist("Refer-To")
        if len(values) != 1:
            # RFC 3515 section 2.4.2.
            raise BadSip("A REFER names one target.")
        refer_to = ReferTo.parse(values[0])
        call.refresh_target(dialog, request)
        referral = cls(call, request, transaction, dialog, now)
        call.open_referrals += 1
        call.registry.usages.append(referral)
        call.notify(
            ReferReceived(
                refer_to.target,
                _referred_by(request),
                refer_to.replaces,
                referral._accept,
                referral._refuse,
                referral._notify,
            )
        )

    # Called by the owner

    def _accept(self) -> bool:
        if self.stage is not IncomingReferState.ASKED:
            return False
        now = self._agent.now()
        response = self._answer(202)
        if self._quiet:
            response.add("Refer-Sub", "false")
        self._respond(response, now)
        if self._quiet:
            self._end()
        else:
            self.stage = IncomingReferState.TAKEN
            self._deadline = now + EXPIRES_S
            # RFC 3515 section 2.4.4: the first notice goes out immediately.
            self._tell(100, "", now)
        self._agent.flush()
        return True

    def _refuse(self, status: int = 603) -> None:
        if not 300 <= status <= 699:
            raise ValueError(f"status={status} is not between 300 and 699")
        if self.stage is IncomingReferState.ASKED:
            self._respond(self._answer(status), self._agent.now())
            self._end()
            self._agent.flush()

    def _notify(self, status: int, reason: str = "") -> None:
        if not 100 <= status <= 699:
            raise ValueError(f"status={status} is not between 100 and 699")
        if self.stage is not IncomingReferState.TAKEN:
            return
        self._tell(status, reason, self._agent.now())
        if status >= 200:
            self._end()
        self._agent.flush()

    # Internals

    def _answer(self, status: int) -> Response:
        transaction = self._transaction
        if transaction is None:
            raise RuntimeError("the REFER has been answered")
        response = reply(transaction.request, status)
        if status < 300:
            response.add("Contact", self.dialog.contact)
        self._agent.describe(response)
        return response

    def _respond(self, response: Response, now: float) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.send_response(response, now)

    def _tell(self, status: int, reason: str, now: float, why: str = "noresource") -> None:
        request = self.dialog.request("NOTIFY")
        request.add("Event", self._event)
        left = max(1, int((self._deadline or now) - now))
        going = status < 200 and why == "noresource"
        state = f"active;expires={left}" if going else f"terminated;reason={why}"
        request.add("Subscription-State", state)
        self._agent.describe(request)
        request.headers.set("Content-Type", CONTENT_TYPE)
        request.body = write_status(status, reason)
        try:
            self._call.send_in_dialog(request, OutcomeListener(self._told), now, self.dialog)
        except BadSip:
            self._end()

    def _told(self, outcome: Response | Failure, now: float) -> None:
        if isinstance(outcome, Failure) or outcome.status >= 300:
            # RFC 6665 section 4.2.2: the subscription has ended.
            self._end()

    def call_over(self, now: float) -> None:
        if self.stage is IncomingReferState.ASKED:
            self._respond(self._answer(481), now)
            self._end()

    def close(self) -> None:
        self._end()

    def next_deadline(self) -> float | None:
        return self._deadline

    def tick(self, now: float) -> None:
        if self._deadline is None or now < self._deadline:
            return
        if self.stage is IncomingReferState.ASKED:
            self._respond(self._answer(603), now)
        elif self.stage is IncomingReferState.TAKEN:
            self._tell(100, "", now, "timeout")
        self._end()

    def _end(self) -> None:
        if self.stage is not IncomingReferState.OVER:
            self.stage = IncomingReferState.OVER
            self._deadline = None
            self._call.open_referrals -= 1
            self._call.registry.usages.remove(self)


def _referred_by(request: Request) -> str | None:
    values = request.headers.getlist("Referred-By")
    if not values:
        return None
    try:
        uri = parse_address(values[0]).uri
        parse_uri(uri)
    except BadSip:
        return None
    return uri
