"""Incoming call: provisional responses (RFC 3262), answer, refusal, CANCEL."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from typing import Literal

from qwen3tts_phone.errors import BadSip, CalleeUnreachable, WrongState
from qwen3tts_phone.sip.call.call import Call, CallRegistry
from qwen3tts_phone.sip.call.state import Answered, CallState, CallStep, EarlyAnswer
from qwen3tts_phone.sip.core.ua_core import UserAgentCore
from qwen3tts_phone.sip.message.fields import (
    CallHeaders,
    check_headers,
    check_reason,
    delta_seconds,
)
from qwen3tts_phone.sip.message.message import Request, Response, checked_sdp, reply
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transaction.dialog import Dialog, new_tag
from qwen3tts_phone.sip.transaction.transaction import ResponseRetransmitter, Transaction

MAX_WAITING = 4
"""Provisional responses queued for an earlier one's PRACK."""

REPEAT_S = 60.0
"""Interval of repeats: proxies give up a call after three minutes (RFC 3261 section 13.3.1.1)."""

Lines = list[tuple[str, str]]
_RACK = re.compile(r"\s*([0-9]{1,10})\s+([0-9]{1,10})\s+([A-Za-z]{1,32})\s*")


class ProvisionalResponses:
    """Provisional responses of one call, reliable where the caller supports it."""

    def __init__(self, call: IncomingCall) -> None:
        options = (*call.request.values("Supported"), *call.request.values("Require"))
        self.reliable = any(option.lower() == "100rel" for option in options)
        """True if the caller supports 100rel."""
        self.described: str | None = None
        """Our reliable SDP: the answer to their offer, or our offer."""
        self.answered: str | None = None
        """Their answer to that offer, from the PRACK."""
        self._call = call
        # Section 3: the initial RSeq is between 1 and 2**31 - 1, and counts up.
        self._rseq = call.agent.random.randint(1, 2**30)
        self._open = False
        """True while a PRACK is outstanding; also after the final response."""
        self._unacked: ResponseRetransmitter | None = None
        self._describes = False
        self._offers = False
        self._waiting: deque[tuple[int, str | None, Lines]] = deque(maxlen=MAX_WAITING)
        self._last: tuple[int, str | None, Lines] | None = None
        self._again_at: float | None = None

    @property
    def holds_answer(self) -> bool:
        """True while the 2xx must wait for a PRACK (section 3)."""
        return self._unacked is not None and self._describes

    def send(self, status: int, sdp: str | None, lines: Lines, now: float) -> None:
        call = self._call
        self._last, self._again_at = (status, sdp, lines), now + REPEAT_S
        if not self.reliable:
            # RFC 3262 section 5: an offer goes into reliable responses only.
            body = sdp if call.offer is not None else None
            dropped = sdp is not None and body is None
            response = call.response(180 if dropped and status == 183 else status, body)
            response.add_all(lines)
            call.transaction.send_response(response, now)
            return
        if self._unacked is not None:
            self._waiting.append((status, sdp, lines))
            return
        # RFC 3261 section 13.2.1: an SDP is sent once.
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
        self._unacked = ResponseRetransmitter(
            call.transaction, response, call.agent.settings.timers, now
        )

    def knows(self, request: Request) -> bool:
        """Return whether a PRACK acknowledges the pending response; raises BadSip."""
        match = _RACK.fullmatch(request.get("RAck") or "")
        if match is None:
            raise BadSip("The PRACK does not say what it acknowledges.")
        waits = (self._rseq, self._call.request.cseq, "INVITE")
        return self._open and (int(match[1]), int(match[2]), match[3]) == waits

    def acknowledged(
        self, request: Request, transaction: Transaction, dialog: Dialog, now: float
    ) -> None:
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
            self._call.modification.receive(request, transaction, dialog, now)
        if self._waiting and not self._call.is_answering and self._call.state is CallState.RINGING:
            status, described, lines = self._waiting.popleft()
            self.send(status, described, lines, now)

    def stop(self) -> None:
        self._waiting.clear()
        self._unacked = self._again_at = None

    def next_deadline(self) -> float | None:
        return self._unacked.next_at if self._unacked is not None else self._again_at

    def tick(self, now: float) -> bool:
        """Retransmit; False once given up (section 3: refuse the call)."""
        if self._unacked is None:
            if self._last is not None and self._again_at is not None and now >= self._again_at:
                self.send(*self._last, now)
            return True
        if self._unacked.tick(now):
            return True
        self.stop()
        return False


MAX_EXPIRES_S = 24 * 3600
UNANSWERED_S = 600.0
"""Silence of ours after which a call is refused with 480: a vanished caller must not keep its
place."""


class IncomingCall(Call):
    direction: Literal["in", "out"] = "in"

    def __init__(
        self,
        agent: UserAgentCore,
        registry: CallRegistry,
        request: Request,
        transaction: Transaction,
        now: float,
        replaced: Call | None = None,
    ) -> None:
        self.offer = checked_sdp(request)
        """Their offer; None where ours is wanted."""
        super().__init__(agent, registry, CallState.RECEIVED, None)
        self.request = request
        self.replaced = replaced
        """Call to be replaced by the answer (RFC 3891)."""
        self.headers = CallHeaders(request.headers)
        self.learn_capabilities(request)
        source = request.source
        self.is_identity_trusted = source is None or agent.trusts(source.host, request)
        self.call_id = request.call_id
        self.dialled_uri = request.uri
        self.remote_uri = request.from_.uri
        self.local_uri = request.to.uri
        self.local_host = agent.local_host(transaction.hop)
        self._hop = transaction.hop
        dialog = Dialog.of_callee(request, new_tag(), agent.contact(transaction.hop))
        # A caller that could not be reached later is refused now.
        agent.in_dialog_hop(dialog)
        self.dialog = dialog
        self.transaction = transaction
        self.provisionals = ProvisionalResponses(self)
        self._answer: ResponseRetransmitter | None = None
        self._held: tuple[str, Lines] | None = None
        """Answer that waits for a PRACK."""
        # Section 13.3.1: the INVITE may expire.
        seconds = delta_seconds(request.get("Expires"), MAX_EXPIRES_S)
        self._expires_at = now + seconds if seconds else None
        self._unanswered_at: float | None = now + UNANSWERED_S
        transaction.server_owner = self
        transaction.send_response(reply(request, 100), now)

    @property
    def hop(self) -> Hop:
        return self._hop

    def ring(
        self,
        now: float,
        sdp: str | None = None,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send 180, 183 with early media, or ``status`` (180 to 199)."""
        status = (183 if sdp else 180) if status is None else status
        if not 180 <= status <= 199:
            raise ValueError(f"status={status} is not between 180 and 199")
        lines = check_headers(headers)
        self._check_open()
        self.step(CallStep.RING)
        self._unanswered_at = now + UNANSWERED_S
        self.provisionals.send(status, sdp or None, lines, now)

    def answer(self, sdp: str, now: float, headers: Mapping[str, str] | None = None) -> None:
        lines = check_headers(headers)
        self._check_open()
        if self.can(CallStep.ANSWER) and self.provisionals.holds_answer:
            self._held = (sdp, lines)
            return
        self._answer_now(sdp, lines, now)

    def reject(
        self,
        status: int,
        now: float,
        reason: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if not 300 <= status <= 699:
            raise ValueError(f"status={status} is not between 300 and 699")
        lines = check_headers(headers)
        check_reason(reason)
        self.step(CallStep.REJECT)
        self._refuse(status, now, reason, lines)
        self.report_end("local", status, reason)

    def hang_up(self, now: float, headers: Mapping[str, str] | None = None) -> None:
        if self.can(CallStep.REJECT):
            self.reject(480, now, headers=headers)
        else:
            super().hang_up(now, headers)

    @property
    def is_answering(self) -> bool:
        return self._held is not None

    @property
    def can_send_early_media(self) -> bool:
        return self.offer is not None or self.provisionals.reliable

    def initial_offer(self, dialog: Dialog) -> Literal["ours", "theirs", "done"]:
        reliable = self.provisionals
        if self.state in (CallState.RECEIVED, CallState.RINGING):
            if self.offer is not None:
                return "done" if reliable.described is not None else "theirs"
            return "done" if reliable.answered is not None else "ours"
        if self.state is CallState.ANSWERED and self.offer is None and not reliable.answered:
            return "ours"
        return "done"

    def may_update_early(self) -> bool:
        return (
            self.state is CallState.RINGING
            and self.dialog is not None
            and self.initial_offer(self.dialog) == "done"
            and not self.provisionals.holds_answer
            and self.may_allow("UPDATE")
        )

    def receive_prack(
        self, request: Request, transaction: Transaction, dialog: Dialog, now: float
    ) -> None:
        self.provisionals.acknowledged(request, transaction, dialog, now)
        if self._held is not None and not self.provisionals.holds_answer:
            (sdp, lines), self._held = self._held, None
            if self.can(CallStep.ANSWER):
                self._answer_now(sdp, lines, now)

    def cancelled(self, transaction: Transaction, now: float, cancel: Request) -> None:
        if transaction is not self.transaction:
            self.modification.cancelled(transaction, now)
        else:
            self._cancelled(now, cancel)

    def on_remote_bye(self, now: float) -> None:
        if self.state in (CallState.RECEIVED, CallState.RINGING):
            self._refuse(487, now)
        self._answer = None

    def receive_ack(self, request: Request, now: float) -> None:
        if self._answer is None or request.cseq != self._answer.cseq:
            super().receive_ack(request, now)
            return
        self._answer = None
        if not self.can(CallStep.ACK):
            return
        self.step(CallStep.ACK)
        if self.state is CallState.ENDING:
            self.send_bye(now)
            self.report_end("local")
            return
        answer = self.provisionals.answered or request.sdp
        self.notify(Answered(answer if self.offer is None else None))
        self.modification.start_queued(now)

    def unacknowledged_since(self) -> float | None:
        return self._answer.sent_at if self._answer is not None else None

    def on_ack(self, request: Request, now: float) -> None:
        self.receive_ack(request, now)

    def on_no_ack(self, now: float) -> None: ...

    def next_deadline(self) -> float | None:
        answer = self._answer.next_at if self._answer else None
        own = (
            super().next_deadline(),
            answer,
            self._expires_at,
            self._unanswered_at,
            self.provisionals.next_deadline(),
        )
        return min((at for at in own if at is not None), default=None)

    def tick(self, now: float) -> None:
        super().tick(now)
        if self._expires_at is not None and now >= self._expires_at:
            self._expires_at = None
            self._cancelled(now)
        if self._unanswered_at is not None and now >= self._unanswered_at:
            self._unanswered_at = None
            if self.can(CallStep.REJECT):
                self.step(CallStep.REJECT)
                self._refuse(480, now)
                self.report_end("timeout", 480)
        if not self.provisionals.tick(now) and self.can(CallStep.REJECT):
            self.step(CallStep.REJECT)
            self._refuse(504, now)
            self.report_end("timeout", 504, error=_unheard("that it rings here (no PRACK)"))
        if self._answer is not None and not self._answer.tick(now):
            self.no_ack(now)

    def no_ack(self, now: float) -> None:
        self._answer = None
        if self.can(CallStep.NO_ACK):
            leaving = self.state is CallState.LEAVING
            self.step(CallStep.NO_ACK)
            self.send_bye(now)
            if leaving:
                self.report_end("local")
                return
            self.report_end("timeout", error=_unheard("our answer"))

    def response(self, status: int, sdp: str | None, reason: str = "") -> Response:
        dialog = self.dialog
        response = reply(self.request, status, reason, to_tag=dialog.local_tag if dialog else "")
        if dialog is not None and status < 300:
            # Section 12.1.1: Record-Route is copied into every response that creates a dialog.
            for route in self.request.headers.getlist("Record-Route"):
                response.headers.add("Record-Route", route)
            response.add("Contact", dialog.contact)
        self.agent.describe(response)
        response.set_body(sdp)
        return response

    def _answer_now(self, sdp: str, lines: Lines, now: float) -> None:
        self.step(CallStep.ANSWER)
        self._unanswered_at = None
        self.provisionals.stop()
        described = self.provisionals.described
        if described is None:
            self.local_sdp = sdp
        # Section 13.2.1: an SDP sent reliably is not sent again.
        response = self.response(200, sdp if described is None else None)
        response.add_all(lines)
        self.timer.answer(self.request, response, now)
        timers = self.agent.settings.timers
        self._answer = ResponseRetransmitter(self.transaction, response, timers, now)
        if self.replaced is not None:
            # RFC 3891 section 3: the old call ends with the answer to the new one.
            self.replaced.hand_over(self, now)

    def _check_open(self) -> None:
        if self._held is not None:
            raise WrongState("The call is being answered already.")

    def _cancelled(self, now: float, cancel: Request | None = None) -> None:
        if self.can(CallStep.REMOTE_CANCEL):
            self.step(CallStep.REMOTE_CANCEL)
            self._refuse(487, now)
            self.report_end("remote", 487, "Request Terminated", message=cancel)

    def _refuse(
        self, status: int, now: float, reason: str = "", lines: Lines | None = None
    ) -> None:
        self._held = None
        self.provisionals.stop()
        response = self.response(status, None, reason)
        response.add_all(lines or [])
        self.transaction.send_response(response, now)


def _unheard(what: str) -> CalleeUnreachable:
    return CalleeUnreachable(
        f"The caller never acknowledged {what}.",
        remedy="Check that the address in our Contact can be reached by the caller "
        "(advertised_host).",
        why="no_ack",
    )
