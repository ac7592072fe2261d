"""Outgoing call: INVITE, early dialogs of forks (RFC 3262), CANCEL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from qwen3tts_phone.errors import BadSip, CalleeUnreachable, CallError
from qwen3tts_phone.sip.call.call import Call, CallRegistry
from qwen3tts_phone.sip.call.redirection import Redirection, RedirectTarget
from qwen3tts_phone.sip.call.state import Answered, CallState, CallStep, EarlyMedia, Ringing
from qwen3tts_phone.sip.core.failure import call_refused
from qwen3tts_phone.sip.core.ua_core import UserAgentCore
from qwen3tts_phone.sip.message.fields import CallHeaders, check_headers
from qwen3tts_phone.sip.message.message import Request, Response
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transaction.client_request import ClientRequest, NullListener
from qwen3tts_phone.sip.transaction.dialog import Dialog
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.transaction.transaction import Failure, cancel_for

MAX_PRACKS = 64
"""Acknowledged provisional responses a branch."""
MAX_RSEQ = 2**32 - 1

_NUMBER = re.compile(r"[0-9]{1,10}")


def rseq_of(response: Response) -> int | None:
    """Return a provisional response's RSeq; None where it is unreliable."""
    if not any(option.lower() == "100rel" for option in response.values("Require")):
        return None
    text = (response.get("RSeq") or "").strip()
    if response.status <= 100 or not _NUMBER.fullmatch(text):
        return None
    number = int(text)
    return number if 1 <= number <= MAX_RSEQ else None


class EarlyDialog:
    """Early dialog of one fork branch (RFC 3261 section 12.1.2, RFC 3262 section 4)."""

    def __init__(self, dialog: Dialog | None) -> None:
        self.dialog = dialog
        """None where its Contact or route cannot be used."""
        self.described = ""
        """SDP that it sent last."""
        self.agreed = False
        """True once our offer has a reliable answer: the session may be modified."""
        self._rseq: int | None = None
        self._left = MAX_PRACKS

    @classmethod
    def of(cls, invite: Request, response: Response) -> EarlyDialog:
        try:
            whole = response.to.tag is not None and response.contact is not None
            return cls(Dialog.of_caller(invite, response) if whole else None)
        except BadSip:
            return cls(None)

    def accepts(self, rseq: int) -> bool:
        # Section 4: others are neither processed nor acknowledged.
        if self._rseq is not None and rseq != self._rseq + 1:
            return False
        if self.dialog is None or self._left <= 0:
            return False
        self._left -= 1
        self._rseq = rseq
        return True

    def prack(self, response: Response, rseq: int) -> Request:
        """Return the PRACK (section 7.2), without Via."""
        if self.dialog is None:
            raise BadSip("There is no early dialog to acknowledge it in.")
        request = self.dialog.request("PRACK")
        request.add("RAck", f"{rseq} {response.cseq} {response.cseq_method}")
        return request


RANG = "It rang without an answer."
MAX_FORKS = 16
"""Fork responses kept by a call."""


class OutgoingCall(Call):
    direction: Literal["in", "out"] = "out"

    def __init__(
        self,
        agent: UserAgentCore,
        registry: CallRegistry,
        request: Request,
        hop: Hop,
        digest: Digest | None,
        now: float,
    ) -> None:
        super().__init__(agent, registry, CallState.CALLING, digest)
        self.call_id = request.call_id
        self.dialled_uri = request.uri
        self.remote_uri = request.uri
        self.local_uri = request.from_.uri
        self.local_host = agent.local_host(hop)
        self._cseq = request.cseq
        self._hop = hop
        self._branches: dict[str, EarlyDialog] = {}
        """Early dialogs of a fork by their To tags."""
        self._told: set[int] = set()
        """Provisional statuses reported to the owner."""
        self._cancel_sent = False
        self._cancel_lines: list[tuple[str, str]] = []
        self._ring_until: float | None = now + agent.settings.ring_timeout_s
        self._timed_out = False
        self._acks: dict[str, tuple[Request, Hop]] = {}
        self._request = request
        self.local_sdp = request.sdp
        self.timer.ask(request)
        self._client_request: ClientRequest | None = None
        self.redirection = Redirection(self, request.uri)
        self.servers: frozenset[str] = frozenset()
        """Server addresses of the calling account."""

    def start(self, now: float) -> None:
        self._client_request = self.agent.send_request(
            self._request, self._hop, self, now, next_cseq=self.next_cseq, digest=self.digest
        )

    def ask_at(
        self, target: RedirectTarget, request: Request, hop: Hop, digest: Digest | None, now: float
    ) -> None:
        self.registry.forget_dialogs(self)
        self._branches.clear()
        self._told.clear()
        self.digest = digest
        self.remote_uri = target.uri
        self._request, self._hop = request, hop
        self.start(now)

    @property
    def invite(self) -> Request:
        return self._sent

    # Responses

    def on_provisional(self, response: Response, now: float) -> None:
        if not self.can(CallStep.PROVISIONAL):
            return
        self.step(CallStep.PROVISIONAL)
        if self.state is CallState.CANCELLING:
            self._send_cancel(now)
            return
        if response.status <= 100:
            return
        tag = response.to.tag or ""
        branch = self._branches.get(tag)
        if branch is None:
            branch = EarlyDialog.of(self._sent, response)
            if len(self._branches) >= MAX_FORKS:
                return
            self._branches[tag] = branch
            if branch.dialog is not None:
                self.registry.remember(self, branch.dialog)
        rseq = rseq_of(response)
        if rseq is not None and not branch.accepts(rseq):
            return
        self.learn_capabilities(response)
        self._tell(response)
        if rseq is not None:
            # RFC 3262 section 4: an SDP that is sent reliably is the answer to our offer.
            branch.agreed = branch.agreed or response.sdp is not None
            self._acknowledge(branch, response, rseq, now)
        sdp = response.sdp
        if sdp is not None and sdp != branch.described:
            branch.described = sdp
            self.notify(EarlyMedia(sdp, tag))
        if branch.agreed:
            self.modification.start_queued(now)

    def _tell(self, response: Response) -> None:
        status = response.status
        if status in self._told or status < 180 or (status not in (180, 181, 182) and self._told):
            return
        self._told.add(status)
        self.notify(Ringing(status, response.reason))

    def _acknowledge(self, branch: EarlyDialog, response: Response, rseq: int, now: float) -> None:
        try:
            self.send_in_dialog(branch.prack(response, rseq), NullListener(), now, branch.dialog)
        except BadSip:
            # The branch cannot be reached; neither will its final response.
            branch.dialog = None

    def session_dialog(self) -> Dialog | None:
        if self.dialog is not None:
            return self.dialog
        agreed = [branch.dialog for branch in self._branches.values() if branch.agreed]
        return agreed[-1] if agreed else None

    def may_update_early(self) -> bool:
        return (
            self.state is CallState.PROCEEDING
            and self.session_dialog() is not None
            and self.may_allow("UPDATE")
        )

    def initial_offer(self, dialog: Dialog) -> Literal["ours", "theirs", "done"]:
        if self.dialog is dialog:
            return "done"
        branches = self._branches.values()
        return "done" if any(b.agreed and b.dialog is dialog for b in branches) else "ours"

    def on_final(self, response: Response, now: float) -> None:
        if response.status < 300:
            try:
                self._success(response, now)
            except BadSip as unusable:
                # Without a usable Contact or route no ACK can be sent.
                if self.can(CallStep.FAILURE):
                    self.step(CallStep.FAILURE)
                    self._stop_ringing()
                    self.report_end("error", response.status, response.reason, unusable, response)
            return
        if not self.can(CallStep.FAILURE):
            return
        cancelled = self.state is CallState.CANCELLING
        if not (cancelled or self.redirection.follows(response, now)):
            self._refused(response)
        elif cancelled:
            self._refused(response, cancelled=True)

    def end_with(self, outcome: Response | Failure, now: float) -> None:
        if isinstance(outcome, Response):
            self._refused(outcome)
        else:
            self._unanswered(outcome)

    def _refused(self, response: Response, *, cancelled: bool = False) -> None:
        self.step(CallStep.FAILURE)
        self._stop_ringing()
        remedy = ""
        contact = response.contact_uri if 300 <= response.status < 400 else None
        if contact is not None:
            remedy = self.redirection.remedy or f"It has moved; call {contact} instead."
        error: CallError = call_refused(response, self.digest, remedy=remedy)
        if self._timed_out:
            error = CalleeUnreachable(RANG, remedy="Call again later.", why="no_answer")
            self.report_end("timeout", response.status, response.reason, error, response)
        elif cancelled:
            self.report_end("local", response.status, response.reason, message=response)
        else:
            self.report_end("remote", response.status, response.reason, error, response)

    def on_failure(self, failure: Failure, now: float) -> None:
        if not self.can(CallStep.FAILURE):
            return
        if self.state is CallState.CANCELLING or not self.redirection.follows(failure, now):
            self._unanswered(failure)

    def _unanswered(self, failure: Failure) -> None:
        cancelled = self.state is CallState.CANCELLING
        self.step(CallStep.FAILURE)
        self._stop_ringing()
        if cancelled and not self._timed_out:
            self.report_end("local")
            return
        if cancelled and self._cancel_sent:
            # It was ringing; only the outcome of our CANCEL is unknown.
            unheard = CalleeUnreachable(RANG, remedy="Call again later.", why="no_answer")
            self.report_end("timeout", error=unheard)
            return
        hop = self.hop
        cause = self._client_request.cause if self._client_request is not None else None
        if failure is Failure.UNREACHABLE:
            error = cause or CalleeUnreachable(
                f"Nothing listens for SIP at {hop.words}.",
                remedy="Check address and port, and that the phone or server is running.",
                why="refused",
            )
            self.report_end("error", error=error)
        else:
            seconds = self.agent.settings.timers.timeout
            error = cause or CalleeUnreachable(
                f"No answer from {hop.words} within {seconds:g} s.",
                remedy="Check the address, the network and any firewall between.",
                why="timeout",
            )
            self.report_end("timeout", 408, "Request Timeout", error)

    def _success(self, response: Response, now: float) -> None:
        tag = response.to.tag or ""
        known = self._acks.get(tag)
        if known is not None:
            # Section 13.2.2.4: a retransmitted 200, because our ACK was lost.
            self.agent.layer.send_statelessly(*known)
            return
        if len(self._acks) >= MAX_FORKS:
            return
        dialog = Dialog.of_caller(self._sent, response)
        self._acks[tag] = ack = self.agent.ack(
            dialog, self._sent, self._sent.cseq, self.hop, self.digest
        )
        self.agent.layer.send_statelessly(*ack)
        if not self.can(CallStep.SUCCESS):
            # Another branch of a fork answered as well; one call is enough.
            bye = dialog.request("BYE")
            hop = self.agent.in_dialog_hop(dialog)
            self.agent.send_request(
                bye, hop, NullListener(), now, next_cseq=dialog.next_cseq, digest=self.digest
            )
            return
        branch = self._branches.get(tag)
        if branch is not None and branch.dialog is not None:
            # The CSeq continues that of the early dialog.
            branch.dialog.confirm(dialog, response)
            dialog = branch.dialog
        self.dialog = dialog
        self._stop_ringing()
        self.modification.other_branch(dialog, now)
        self.registry.keep_only(self, dialog)
        self.answer_headers = CallHeaders(response.headers)
        source = response.source
        self.is_identity_trusted = source is None or (
            source.host in self.servers or self.agent.trusts(source.host, None)
        )
        self.learn_capabilities(response)
        self.step(CallStep.SUCCESS)
        if self.state is CallState.ENDING:
            self.send_bye(now)
            self.report_end("timeout" if self._timed_out else "local")
            return
        self.timer.answered(response, now)
        # Some phones send their SDP with the 183 alone, as those must that sent it reliably. The
        # SDP of a branch's 200, where there is one, replaces the earlier one.
        described = branch.described if branch is not None else ""
        self.notify(Answered(response.sdp or described or None, tag))
        self.modification.start_queued(now)

    # Cancelling

    def hang_up(self, now: float, headers: Mapping[str, str] | None = None) -> None:
        if self.can(CallStep.CANCEL):
            self.cancel(now, headers)
        else:
            super().hang_up(now, headers)

    def cancel(self, now: float, headers: Mapping[str, str] | None = None) -> None:
        """Cancel, once a provisional response is there (section 9.1)."""
        lines = check_headers(headers)
        proceeding = self.state is CallState.PROCEEDING
        self.step(CallStep.CANCEL)
        self._ring_until = None
        self._cancel_lines = lines
        if self._client_request is not None:
            self._client_request.may_retry = False
        if self.redirection.stop():
            self._unanswered(Failure.TIMED_OUT)
        elif proceeding:
            self._send_cancel(now)

    def _send_cancel(self, now: float) -> None:
        if self._cancel_sent or self._client_request is None:
            return
        self._cancel_sent = True
        # Section 9.1: without a final response 64*T1 after the CANCEL, the INVITE is given up.
        self._client_request.limit(now + self.agent.settings.timers.timeout)
        cancel = cancel_for(self._sent)
        cancel.add_all(self._cancel_lines)
        self.agent.layer.send(cancel, self._client_request.hop, NullListener(), now)

    def next_deadline(self) -> float | None:
        own = (super().next_deadline(), self._ring_until)
        return min((at for at in own if at is not None), default=None)

    def tick(self, now: float) -> None:
        super().tick(now)
        if self._ring_until is not None and now >= self._ring_until:
            self._ring_until = None
            if self.can(CallStep.CANCEL):
                self._timed_out = True
                self.cancel(now)

    @property
    def hop(self) -> Hop:
        return self._client_request.hop if self._client_request is not None else self._hop

    @property
    def _sent(self) -> Request:
        return self._client_request.request if self._client_request is not None else self._request

    def _stop_ringing(self) -> None:
        self._ring_until = None

    def next_cseq(self) -> int:
        self._cseq += 1
        return self._cseq
