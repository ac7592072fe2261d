"""Call: state, requests inside the dialog and hanging up, for both directions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from qwen3tts_phone.errors import BadSip, CalleeUnreachable, CallError, CallRefused, WrongState
from qwen3tts_phone.sip.call.modification import SessionModification, no_response
from qwen3tts_phone.sip.call.state import (
    CALL_TRANSITIONS,
    By,
    CallEvent,
    CallState,
    CallStep,
    Ended,
    reasons,
)
from qwen3tts_phone.sip.core.failure import call_refused
from qwen3tts_phone.sip.core.ua_core import UserAgentCore
from qwen3tts_phone.sip.message.fields import CallHeaders, check_headers, check_secure, parse_uri
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.message.network import Hop, address_of
from qwen3tts_phone.sip.message.via import observed_source
from qwen3tts_phone.sip.transaction.client_request import (
    ClientRequest,
    OutcomeListener,
    ResponseListener,
)
from qwen3tts_phone.sip.transaction.dialog import Dialog, DialogId, Due, SessionTimer
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.transaction.transaction import Failure, Transaction

UPDATE_UNKNOWN = (405, 420, 501)
"""Responses to an UPDATE from a far end that does not support it after all."""


class Call:
    """Call without I/O, driven by the user agent."""

    direction: Literal["in", "out"]
    call_id: str
    local_uri: str
    """Our From, or the To that they called."""

    def __init__(
        self,
        agent: UserAgentCore,
        registry: CallRegistry,
        state: CallState,
        digest: Digest | None,
    ) -> None:
        self.agent = agent
        self.registry = registry
        self.state = state
        self.digest = digest
        self.dialog: Dialog | None = None
        self.dialogs: list[Dialog] = []
        """Dialogs, early ones included."""
        self.owner: object | None = None
        """The `SipCall` that a program has."""
        self.replaced_by: Call | None = None
        """The call that took the place of this one (RFC 3891)."""
        self.notify: Callable[[CallEvent], None] = lambda event: None
        self.modification = SessionModification(self)
        self.timer = SessionTimer(agent.settings.session_expires_s)
        self.local_sdp: str | None = None
        """Our last accepted SDP, for refreshes."""
        self.headers = CallHeaders()
        """Header fields of their INVITE; empty on an outgoing call."""
        self.answer_headers = CallHeaders()
        """Header fields of their answer; empty on an incoming call."""
        self.remote_agent = ""
        """Their User-Agent or Server."""
        self.is_identity_trusted = False
        """True if the identity asserted by the far end's network is trusted (RFC 3325)."""
        self.open_referrals = 0
        """Pending REFERs of the far end."""
        self._allow: frozenset[str] | None = None
        self._update_unknown = False
        self._updating = False
        self._end_reported = False

    @property
    def hop(self) -> Hop:
        raise NotImplementedError

    # The state

    def can(self, step: CallStep) -> bool:
        return (self.state, step) in CALL_TRANSITIONS

    def step(self, step: CallStep) -> None:
        """Make a state transition; raises WrongState where the table has none."""
        state = CALL_TRANSITIONS.get((self.state, step))
        if state is None:
            raise WrongState(f"{step.name.lower()} is not possible while {self.state.name}.")
        if state is not self.state:
            self.state = state
            if state is CallState.ENDED:
                self.registry.forget(self)

    def report_end(
        self,
        by: By,
        status: int | None = None,
        reason: str = "",
        error: CallError | None = None,
        message: Request | Response | None = None,
    ) -> None:
        """Report the end once; ``message`` is theirs that ended it."""
        if self._end_reported:
            return
        self._end_reported = True
        self.timer.stop()
        self.modification.abort()
        moved_to = ""
        if isinstance(message, Response) and 300 <= message.status < 400:
            moved_to = message.contact_uri or ""
        challenged = error if isinstance(error, CallRefused) else None
        ended = Ended(
            by,
            status,
            reason,
            error,
            headers=CallHeaders(message.headers if message is not None else None),
            causes=tuple(reasons(message)) if message is not None else (),
            moved_to=moved_to,
            realm=challenged.realm if challenged else "",
            user=challenged.user if challenged else "",
        )
        self.notify(ended)
        self.registry.call_ended(self, self.agent.now())

    # The session

    def session_dialog(self) -> Dialog | None:
        return self.dialog

    def may_update_early(self) -> bool:
        return False

    def initial_offer(self, dialog: Dialog) -> Literal["ours", "theirs", "done"]:
        return "done"

    def learn_capabilities(self, message: Request | Response) -> None:
        if message.get("Allow") is not None:
            self._allow = frozenset(method.upper() for method in message.values("Allow"))
        name = message.get("User-Agent") or message.get("Server")
        if name:
            self.remote_agent = name[:200]

    def allows_explicitly(self, method: str) -> bool:
        return self._allow is not None and method in self._allow

    def may_allow(self, method: str) -> bool:
        return self._allow is None or method in self._allow

    def refresh_target(self, dialog: Dialog, message: Request | Response) -> None:
        """Set the remote target from their Contact (section 12.2), never the route set.

        Raises:
            BadSip: our requests could not be sent there; nothing is changed.
        """
        contact = message.contact
        if contact is None:
            return
        parse_uri(contact.uri)
        # Behind a proxy the Contact may be reachable by the proxy only.
        check_secure(contact.uri)
        if not dialog.routes:
            self.agent.hop(contact.uri)
        dialog.target = contact.uri
        dialog.seen = observed_source(message)

    def may_be_steered_by(self, request: Request, dialog: Dialog) -> bool:
        """Return whether a REFER or Replaces from this source may transfer or replace the call."""
        # The dialog's peer may (RFC 3891 section 8): the host that the INVITE or our in-dialog
        # requests went to or came from. So may an account's servers, and trusted networks.
        source = request.source
        if source is None:
            return True
        hosts = [self.hop.host]
        with contextlib.suppress(BadSip):
            hosts.append(self.agent.hop(dialog.first_hop).host)
        peers = {address for host in hosts if (address := address_of(host)) is not None}
        return address_of(source.host) in peers or self.agent.trusts(source.host, request)

    # Hanging up

    def hang_up(self, now: float, headers: Mapping[str, str] | None = None) -> None:
        if self.can(CallStep.BYE):
            self.bye(now, headers)

    def bye(self, now: float, headers: Mapping[str, str] | None = None) -> None:
        lines = check_headers(headers)
        already = self.state in (CallState.ENDING, CallState.LEAVING)
        self.step(CallStep.BYE)
        if not already and self.state is CallState.ENDING:
            self.send_bye(now, lines)
            self.report_end("local")

    def send_bye(self, now: float, lines: list[tuple[str, str]] | None = None) -> None:
        if self.dialog is not None:
            bye = self.dialog.request("BYE")
            bye.add_all(lines or [])
            self.send_in_dialog(bye, OutcomeListener(self._bye_done), now)

    def _bye_done(self, outcome: Response | Failure, now: float) -> None:
        if self.can(CallStep.BYE_DONE):
            self.step(CallStep.BYE_DONE)

    def dialog_lost(self, now: float, error: CallError) -> None:
        """End a dialog lost at the far end (408, 481, no response; section 12.2.1.2)."""
        if self.can(CallStep.LOST):
            self.step(CallStep.LOST)
            self.send_bye(now)
            self.report_end("error", error=error)

    def hand_over(self, call: Call, now: float) -> None:
        self.replaced_by = call
        self.hang_up(now)

    # Inside the dialog

    def send_in_dialog(
        self, request: Request, listener: ResponseListener, now: float, dialog: Dialog | None = None
    ) -> ClientRequest:
        dialog = dialog or self.dialog
        if dialog is None:
            raise WrongState("There is no dialog yet.")
        return self.agent.send_request(
            request,
            self.agent.in_dialog_hop(dialog),
            listener,
            now,
            next_cseq=dialog.next_cseq,
            digest=self.digest,
        )

    def remote_bye(self, request: Request, transaction: Transaction, now: float) -> None:
        transaction.send_response(reply(request, 200), now)
        if not self.can(CallStep.REMOTE_BYE):
            return
        self.on_remote_bye(now)
        self.step(CallStep.REMOTE_BYE)
        causes = reasons(request)
        self.report_end("remote", reason=str(causes[0]) if causes else "", message=request)

    def on_remote_bye(self, now: float) -> None: ...

    def receive_prack(
        self, request: Request, transaction: Transaction, dialog: Dialog, now: float
    ) -> None:
        transaction.send_response(reply(request, 481), now)

    def receive_ack(self, request: Request, now: float) -> None:
        self.modification.receive_ack(request, now)

    def next_deadline(self) -> float | None:
        own = (self.modification.next_deadline(), self.timer.next_deadline())
        return min((at for at in own if at is not None), default=None)

    def tick(self, now: float) -> None:
        self.modification.tick(now)
        due = self.timer.due(now)
        if due is Due.EXPIRE:
            self.dialog_lost(
                now,
                CalleeUnreachable(
                    "The far end has not refreshed the session in time.",
                    remedy="It is gone, or the network between is; call again.",
                    why="session",
                ),
            )
        elif due is Due.REFRESH and self.state is CallState.UP:
            try:
                self._refresh(now)
            except BadSip:
                self.timer.refresh_failed(now)

    def _refresh(self, now: float) -> None:
        # RFC 4028 section 7.4: by an UPDATE without a body where they allow it.
        if self._update_unknown or not self.allows_explicitly("UPDATE"):
            self.modification.refresh(now)
            return
        if self.dialog is None or self._updating:
            self.timer.refresh_failed(now)
            return
        request = self.dialog.request("UPDATE")
        self.agent.describe(request)
        self.timer.ask(request)
        self._updating = True
        self.send_in_dialog(request, OutcomeListener(self._refreshed), now)

    def _refreshed(self, outcome: Response | Failure, now: float) -> None:
        self._updating = False
        if isinstance(outcome, Failure):
            self.dialog_lost(now, no_response())
        elif outcome.status < 300:
            with contextlib.suppress(BadSip):
                if self.dialog is not None:
                    self.refresh_target(self.dialog, outcome)
            self.learn_capabilities(outcome)
            self.timer.answered(outcome, now)
        elif outcome.status in UPDATE_UNKNOWN:
            self._update_unknown = True
            self.modification.refresh(now)
        elif outcome.status in (408, 481):
            error = call_refused(outcome, self.digest, what="refresh of the session")
            self.dialog_lost(now, error)
        else:
            self.timer.refresh_failed(now)


class DialogUsage(Protocol):
    """REFER and its notices, which may outlive the call (RFC 5057)."""

    dialog: Dialog

    def call_over(self, now: float) -> None: ...

    def close(self) -> None: ...

    def next_deadline(self) -> float | None: ...

    def tick(self, now: float) -> None: ...


class ReferSubscription(DialogUsage, Protocol):
    """REFER of ours, which receives notices."""

    @property
    def cseq(self) -> int: ...

    def receive(self, request: Request, transaction: Transaction, now: float) -> None: ...


class CallRegistry:
    """Calls of a user agent by dialog, and their REFERs."""

    def __init__(self) -> None:
        self.calls: set[Call] = set()
        self.usages: list[DialogUsage] = []
        self._dialogs: dict[DialogId, tuple[Call, Dialog]] = {}
        self._notified: dict[DialogId, list[ReferSubscription]] = {}

    def __len__(self) -> int:
        return len(self._dialogs) + len(self._notified)

    def remember(self, call: Call, dialog: Dialog) -> None:
        self.calls.add(call)
        if dialog not in call.dialogs:
            call.dialogs.append(dialog)
        self._dialogs[dialog.id] = (call, dialog)

    def find(self, call_id: str, local_tag: str, remote_tag: str) -> tuple[Call, Dialog] | None:
        return self._dialogs.get((call_id, local_tag, remote_tag))

    def has_dialog_of(self, call_id: str) -> bool:
        return any(each[0] == call_id for each in (*self._dialogs, *self._notified))

    def keep_only(self, call: Call, dialog: Dialog) -> None:
        self.forget_dialogs(call)
        self.remember(call, dialog)

    def forget_dialogs(self, call: Call) -> None:
        for dialog in call.dialogs:
            if self._dialogs.get(dialog.id, (None,))[0] is call:
                del self._dialogs[dialog.id]
        call.dialogs.clear()

    def forget(self, call: Call) -> None:
        self.calls.discard(call)
        self.forget_dialogs(call)

    def call_ended(self, call: Call, now: float) -> None:
        for usage in list(self.usages):
            if usage.dialog is call.dialog:
                usage.call_over(now)

    def close(self) -> None:
        for usage in list(self.usages):
            usage.close()

    def subscribe(self, subscription: ReferSubscription) -> None:
        self.usages.append(subscription)
        self._notified.setdefault(subscription.dialog.id, []).append(subscription)

    def unsubscribe(self, subscription: ReferSubscription) -> None:
        self.usages.remove(subscription)
        left = self._notified.get(subscription.dialog.id, [])
        left.remove(subscription)
        if not left:
            del self._notified[subscription.dialog.id]

    def subscription_of(self, request: Request, local_tag: str) -> ReferSubscription | None:
        """Return the REFER of a NOTIFY, by ``id`` (RFC 3515 section 2.4.6)."""
        here = self._notified.get((request.call_id, local_tag, request.from_.tag or ""), [])
        _, *parameters = (part.strip() for part in (request.get("Event") or "").split(";"))
        for parameter in parameters:
            name, _, number = parameter.partition("=")
            if name.strip().lower() == "id":
                return next((t for t in here if str(t.cseq) == number.strip()), None)
        return here[0] if here else None
