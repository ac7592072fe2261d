"""What calls in both directions share: the state, requests inside the dialog, hanging up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from qwen3tts_phone.errors import CalleeUnreachable, CallError, WrongState
from qwen3tts_phone.sip.call_state import TABLE, By, CallEvent, CallState, Ended, Step
from qwen3tts_phone.sip.dialog import Dialog
from qwen3tts_phone.sip.exchange import Exchange, Listener
from qwen3tts_phone.sip.message import Request, Response, reply
from qwen3tts_phone.sip.modification import Modification
from qwen3tts_phone.sip.session_timer import Due, SessionTimer
from qwen3tts_phone.sip.transaction import Failure, Transaction

if TYPE_CHECKING:
    from qwen3tts_phone.sip.agent import Agent
    from qwen3tts_phone.sip.auth import Digest


class Call:
    """A call: sans-I/O, driven by the agent, telling its owner by ``notify``."""

    direction: Literal["in", "out"]

    def __init__(self, agent: Agent, state: CallState, digest: Digest | None) -> None:
        self.agent = agent
        self.state = state
        self.digest = digest
        self.dialog: Dialog | None = None
        self.notify: Callable[[CallEvent], None] = lambda event: None
        self.modification = Modification(self)
        self.timer = SessionTimer(agent.settings.session_expires_s)
        self.local_sdp: str | None = None
        """What we described last and holds, for refreshes."""
        self._told_end = False

    # The state

    def can(self, step: Step) -> bool:
        """Whether the table knows that step now."""
        return (self.state, step) in TABLE

    def step(self, step: Step) -> None:
        """Make a move; raises WrongState when the table has none."""
        state = TABLE.get((self.state, step))
        if state is None:
            raise WrongState(f"{step.name.lower()} is not possible while {self.state.name}.")
        if state is not self.state:
            self.state = state
            if state is CallState.ENDED:
                self.agent.forget(self)

    def tell_end(
        self, by: By, status: int | None = None, reason: str = "", error: CallError | None = None
    ) -> None:
        """Tell the owner, once, that the call is over."""
        if not self._told_end:
            self._told_end = True
            self.timer.stop()
            self.modification.abort()
            self.notify(Ended(by, status, reason, error))

    # Hanging up

    def hang_up(self, now: float) -> None:
        """End the call whatever its state; does nothing when it is over or about to be."""
        if self.can(Step.BYE):
            self.bye(now)

    def bye(self, now: float) -> None:
        """Hang up an answered call; before the ACK it waits for it."""
        already = self.state in (CallState.ENDING, CallState.LEAVING)
        self.step(Step.BYE)
        if not already and self.state is CallState.ENDING:
            self.send_bye(now)
            self.tell_end("local")

    def send_bye(self, now: float) -> None:
        """Send the BYE of the dialog; the state has been moved."""
        if self.dialog is not None:
            self.send_inside(self.dialog.request("BYE"), _Bye(self), now)

    def lost(self, now: float, error: CallError) -> None:
        """The dialog is gone at the far end (408, 481, no answer): RFC 3261 section 12.2.1.2."""
        if self.can(Step.LOST):
            self.step(Step.LOST)
            self.send_bye(now)
            self.tell_end("error", error=error)

    # Inside the dialog

    def send_inside(self, request: Request, listener: Listener, now: float) -> Exchange:
        """Send a request of our dialog."""
        dialog = self.dialog
        if dialog is None:
            raise WrongState("There is no dialog yet.")
        hop = self.agent.hop(dialog.next_hop, dialog.flow)
        return self.agent.exchange(
            request, hop, listener, now, next_cseq=dialog.next_cseq, digest=self.digest
        )

    def receive(self, request: Request, transaction: Transaction, now: float) -> None:
        """A request of the far end inside the dialog, checked for its order by the agent."""
        if request.method == "BYE":
            self._remote_bye(request, transaction, now)
        elif request.method == "INVITE":
            self.modification.receive(request, transaction, now)
        else:
            transaction.send_response(reply(request, 405), now)

    def _remote_bye(self, request: Request, transaction: Transaction, now: float) -> None:
        transaction.send_response(reply(request, 200), now)
        if not self.can(Step.REMOTE_BYE):
            return
        self.before_remote_bye(now)
        self.step(Step.REMOTE_BYE)
        self.tell_end("remote", reason=request.get("Reason") or "")

    def before_remote_bye(self, now: float) -> None:
        """For the callee: end a pending INVITE first."""

    def receive_ack(self, request: Request, now: float) -> None:
        """An ACK inside the dialog."""
        self.modification.receive_ack(request, now)

    def next_deadline(self) -> float | None:
        """When :meth:`tick` is next needed."""
        own = (self.modification.next_deadline(), self.timer.next_deadline())
        return min((at for at in own if at is not None), default=None)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self.modification.tick(now)
        due = self.timer.due(now)
        if due is Due.EXPIRE:
            self.lost(
                now,
                CalleeUnreachable(
                    "The far end has not refreshed the session in time.",
                    remedy="It is gone, or the network between is; call again.",
                ),
            )
        elif due is Due.REFRESH and self.state is CallState.UP:
            self.modification.refresh(now)


class _Bye:
    """Waits for the answer to our BYE; whatever it is, the call is over."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def on_provisional(self, response: Response, now: float) -> None:
        """Nothing to do."""

    def on_final(self, response: Response, now: float) -> None:
        """Any final answer ends it."""
        if self._call.can(Step.BYE_DONE):
            self._call.step(Step.BYE_DONE)

    def on_failure(self, failure: Failure, now: float) -> None:
        """So does none."""
        if self._call.can(Step.BYE_DONE):
            self._call.step(Step.BYE_DONE)
