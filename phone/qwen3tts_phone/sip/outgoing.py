"""A call of ours: INVITE until its answer, forks, CANCEL and the answers that cross it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from qwen3tts_phone.errors import BadSip, CalleeUnreachable, CallError, CallRefused
from qwen3tts_phone.sip.call import Call
from qwen3tts_phone.sip.call_state import Answered, CallState, EarlyMedia, Ringing, Step
from qwen3tts_phone.sip.dialog import Dialog
from qwen3tts_phone.sip.exchange import Exchange, Unheard
from qwen3tts_phone.sip.message import Request, Response
from qwen3tts_phone.sip.transaction import Failure, Hop, cancel_for

if TYPE_CHECKING:
    from qwen3tts_phone.sip.agent import Agent
    from qwen3tts_phone.sip.auth import Digest

MAX_FORKS = 16
"""Most answers of a fork, provisional or final, that one call keeps."""


class OutgoingCall(Call):
    """The caller's side of a call."""

    direction: Literal["in", "out"] = "out"

    def __init__(
        self, agent: Agent, request: Request, hop: Hop, digest: Digest | None, now: float
    ) -> None:
        super().__init__(agent, CallState.CALLING, digest)
        self.call_id = request.call_id
        self.dialled_uri = request.uri
        self.remote_uri = request.uri
        self.local_host = agent.local_host(hop)
        self._cseq = request.cseq
        self._hop = hop
        self._early: dict[str, str] = {}
        """What the branches of a fork described before the answer, by their tags."""
        self._rang = False
        self._cancel_sent = False
        self._ring_until: float | None = now + agent.settings.ring_timeout_s
        self._timed_out = False
        self._acks: dict[str, tuple[Request, Hop]] = {}
        self._request = request
        self.local_sdp = request.sdp
        self.timer.ask(request)
        self._exchange: Exchange | None = None

    def start(self, now: float) -> None:
        """Send the INVITE."""
        self._exchange = self.agent.exchange(
            self._request, self._hop, self, now, next_cseq=self._next_cseq, digest=self.digest
        )

    # Answers

    def on_provisional(self, response: Response, now: float) -> None:
        """A 1xx: it rings, it plays early media, and CANCEL is allowed from now on."""
        if not self.can(Step.PROVISIONAL):
            return
        self.step(Step.PROVISIONAL)
        if self.state is CallState.CANCELLING:
            self._send_cancel(now)
            return
        if response.status >= 180 and not self._rang:
            self._rang = True
            self.notify(Ringing(response.status))
        tag, sdp = response.to.tag or "", response.sdp
        if sdp is None or sdp == self._early.get(tag):
            return
        if tag in self._early or len(self._early) < MAX_FORKS:
            self._early[tag] = sdp
            self.notify(EarlyMedia(sdp))

    def on_final(self, response: Response, now: float) -> None:
        """The final answer; every 2xx is acknowledged, the first alone makes the call."""
        if response.status < 300:
            try:
                self._success(response, now)
            except BadSip as unusable:
                # Without a usable Contact or route there is nothing to acknowledge to.
                if self.can(Step.FAILURE):
                    self.step(Step.FAILURE)
                    self._quiet()
                    self.tell_end("error", response.status, response.reason, unusable)
            return
        if not self.can(Step.FAILURE):
            return
        cancelled = self.state is CallState.CANCELLING
        self.step(Step.FAILURE)
        self._quiet()
        remedy = ""
        contact = response.contact_uri if 300 <= response.status < 400 else None
        if contact is not None:
            remedy = f"It has moved; call {contact} instead."
        error: CallError = CallRefused(response.status, response.reason, remedy=remedy)
        if self._timed_out:
            error = CalleeUnreachable("It rang, and nobody answered.", remedy="Call again later.")
            self.tell_end("timeout", response.status, response.reason, error)
        elif cancelled:
            self.tell_end("local", response.status, response.reason)
        else:
            self.tell_end("remote", response.status, response.reason, error)

    def on_failure(self, failure: Failure, now: float) -> None:
        """No answer at all."""
        if not self.can(Step.FAILURE):
            return
        cancelled = self.state is CallState.CANCELLING
        self.step(Step.FAILURE)
        self._quiet()
        if cancelled and not self._timed_out:
            self.tell_end("local")
            return
        where = f"{self._hop.host}:{self._hop.port} over {self._hop.transport.upper()}"
        if failure is Failure.UNREACHABLE:
            error = CalleeUnreachable(
                f"Nothing listens for SIP at {where}.",
                remedy="Check address and port, and that the phone or server is running.",
            )
            self.tell_end("error", error=error)
        else:
            seconds = self.agent.settings.timers.timeout
            error = CalleeUnreachable(
                f"No answer from {where} within {seconds:g} s.",
                remedy="Check the address, the network and any firewall between.",
            )
            self.tell_end("timeout", 408, "Request Timeout", error)

    def _success(self, response: Response, now: float) -> None:
        tag = response.to.tag or ""
        known = self._acks.get(tag)
        if known is not None:
            # Section 13.2.2.4: the 200 came again because our ACK was lost.
            self.agent.layer.send_alone(*known)
            return
        if len(self._acks) >= MAX_FORKS:
            return
        dialog = Dialog.of_caller(self._sent, response)
        self._acks[tag] = ack = self.agent.ack(dialog, self._sent, self._sent.cseq)
        self.agent.layer.send_alone(*ack)
        if not self.can(Step.SUCCESS):
            # Another branch of a fork answered as well; one call is enough.
            bye = dialog.request("BYE")
            hop = self.agent.hop(dialog.next_hop, dialog.flow)
            self.agent.exchange(
                bye, hop, Unheard(), now, next_cseq=dialog.next_cseq, digest=self.digest
            )
            return
        self.dialog = dialog
        self._quiet()
        self.agent.remember(self)
        self.step(Step.SUCCESS)
        if self.state is CallState.ENDING:
            self.send_bye(now)
            self.tell_end("timeout" if self._timed_out else "local")
            return
        self.timer.answered(response, now)
        # Some phones give their description with the 183 alone.
        self.notify(Answered(response.sdp or self._early.get(tag)))
        self.modification.call_is_up(now)

    # Giving up

    def hang_up(self, now: float) -> None:
        """CANCEL before the answer, BYE after it."""
        if self.can(Step.CANCEL):
            self.cancel(now)
        else:
            super().hang_up(now)

    def cancel(self, now: float) -> None:
        """Stop calling. Section 9.1: the CANCEL waits for a provisional answer."""
        proceeding = self.state is CallState.PROCEEDING
        self.step(Step.CANCEL)
        self._ring_until = None
        if self._exchange is not None:
            self._exchange.may_retry = False
        if proceeding:
            self._send_cancel(now)

    def _send_cancel(self, now: float) -> None:
        if self._cancel_sent or self._exchange is None:
            return
        self._cancel_sent = True
        # Section 9.1: no final answer 64*T1 after the CANCEL, and the INVITE is given up.
        self._exchange.limit(now + self.agent.settings.timers.timeout)
        self.agent.layer.send(cancel_for(self._sent), self._exchange.hop, Unheard(), now)

    def next_deadline(self) -> float | None:
        """When :meth:`tick` is next needed."""
        own = (super().next_deadline(), self._ring_until)
        return min((at for at in own if at is not None), default=None)

    def tick(self, now: float) -> None:
        """Give up a call that rings for ever."""
        super().tick(now)
        if self._ring_until is not None and now >= self._ring_until:
            self._ring_until = None
            if self.can(Step.CANCEL):
                self._timed_out = True
                self.cancel(now)

    @property
    def _sent(self) -> Request:
        return self._exchange.request if self._exchange is not None else self._request

    def _quiet(self) -> None:
        self._ring_until = None

    def _next_cseq(self) -> int:
        self._cseq += 1
        return self._cseq
