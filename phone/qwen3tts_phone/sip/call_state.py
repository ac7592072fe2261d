"""The states of a call and the moves between them, and what a call tells its owner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Literal

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.sip.call_headers import CallHeaders
from qwen3tts_phone.sip.info import DtmfInfo, InfoReceived
from qwen3tts_phone.sip.reason import Reason
from qwen3tts_phone.sip.transfer_events import ReferReceived


class CallState(Enum):
    """Where a call stands."""

    CALLING = auto()
    """Our INVITE is out, nothing has come back."""
    PROCEEDING = auto()
    """A provisional answer has come."""
    CANCELLING = auto()
    """We no longer want the call; its final answer is still to come."""
    RECEIVED = auto()
    """Their INVITE is here, we have not answered."""
    RINGING = auto()
    """We said 180."""
    ANSWERED = auto()
    """We said 200; the ACK is still to come."""
    LEAVING = auto()
    """We want to hang up, and must wait for the ACK first (RFC 3261 section 15.1.1)."""
    UP = auto()
    """Both ends agree."""
    ENDING = auto()
    """Our BYE is out."""
    ENDED = auto()


class Step(Enum):
    """What may happen to a call."""

    PROVISIONAL = auto()
    SUCCESS = auto()
    FAILURE = auto()
    CANCEL = auto()
    RING = auto()
    ANSWER = auto()
    REJECT = auto()
    REMOTE_CANCEL = auto()
    ACK = auto()
    NO_ACK = auto()
    BYE = auto()
    REMOTE_BYE = auto()
    BYE_DONE = auto()
    LOST = auto()


S, P = CallState, Step

TABLE: dict[tuple[CallState, Step], CallState] = {
    # We call.
    (S.CALLING, P.PROVISIONAL): S.PROCEEDING,
    (S.CALLING, P.SUCCESS): S.UP,
    (S.CALLING, P.FAILURE): S.ENDED,
    (S.CALLING, P.CANCEL): S.CANCELLING,
    (S.PROCEEDING, P.PROVISIONAL): S.PROCEEDING,
    (S.PROCEEDING, P.SUCCESS): S.UP,
    (S.PROCEEDING, P.FAILURE): S.ENDED,
    (S.PROCEEDING, P.CANCEL): S.CANCELLING,
    (S.CANCELLING, P.PROVISIONAL): S.CANCELLING,
    # RFC 3261 section 9.1: the 200 crossed the CANCEL; acknowledge, then hang up.
    (S.CANCELLING, P.SUCCESS): S.ENDING,
    (S.CANCELLING, P.FAILURE): S.ENDED,
    (S.CANCELLING, P.CANCEL): S.CANCELLING,
    # They call.
    (S.RECEIVED, P.RING): S.RINGING,
    (S.RECEIVED, P.ANSWER): S.ANSWERED,
    (S.RECEIVED, P.REJECT): S.ENDED,
    (S.RECEIVED, P.REMOTE_CANCEL): S.ENDED,
    (S.RECEIVED, P.REMOTE_BYE): S.ENDED,
    (S.RINGING, P.RING): S.RINGING,
    (S.RINGING, P.ANSWER): S.ANSWERED,
    (S.RINGING, P.REJECT): S.ENDED,
    (S.RINGING, P.REMOTE_CANCEL): S.ENDED,
    (S.RINGING, P.REMOTE_BYE): S.ENDED,
    (S.ANSWERED, P.ACK): S.UP,
    (S.ANSWERED, P.NO_ACK): S.ENDING,
    (S.ANSWERED, P.BYE): S.LEAVING,
    (S.ANSWERED, P.REMOTE_BYE): S.ENDED,
    (S.LEAVING, P.ACK): S.ENDING,
    (S.LEAVING, P.NO_ACK): S.ENDING,
    (S.LEAVING, P.BYE): S.LEAVING,
    (S.LEAVING, P.REMOTE_BYE): S.ENDED,
    # Either way.
    (S.UP, P.ACK): S.UP,
    (S.UP, P.BYE): S.ENDING,
    (S.UP, P.REMOTE_BYE): S.ENDED,
    (S.UP, P.LOST): S.ENDING,
    (S.ENDING, P.ACK): S.ENDING,
    (S.ENDING, P.BYE): S.ENDING,
    (S.ENDING, P.BYE_DONE): S.ENDED,
    # Both hang up at once: each answers the other's BYE.
    (S.ENDING, P.REMOTE_BYE): S.ENDED,
}
"""What is not here does not happen: of ours it is WrongState, of theirs it is ignored."""


@dataclass(frozen=True, slots=True)
class Ringing:
    """The phone at the far end rings, or something else goes on there.

    ``status`` is 180 (it rings), 181 (the call is being forwarded), 182 (it is queued) or 183
    (something goes on). Each status is told once, and 183 only where nothing was told before.
    """

    status: int
    reason: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class EarlyMedia:
    """The far end sends sound before it answers (an announcement, a ring-back tone)."""

    sdp: str
    tag: str = field(default="", compare=False)
    """Which branch of a fork describes it: its To tag."""


@dataclass(frozen=True, slots=True)
class EarlyAnswer:
    """The caller's answer to the offer that :meth:`ringing` made: early media may begin."""

    sdp: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The call is up. ``sdp`` is the far end's answer, or its offer where we made none.

    On a call that came in it is the caller's answer (of the ACK, or of an earlier PRACK), and None
    where the INVITE had the offer.
    """

    sdp: str | None
    tag: str = field(default="", compare=False)
    """Which branch of a fork it was: its To tag; empty on a call that came in."""


@dataclass(frozen=True, slots=True)
class ReinviteReceived:
    """The far end wants to change the session (hold, resume, another address).

    ``offer`` is its description, or None when it asks for ours. ``respond(sdp)`` accepts;
    ``respond(None)`` refuses with 488 and leaves the session as it was. Where the change has
    been withdrawn in the meantime, responding does nothing. Who does not respond within 30 s (an
    UPDATE or PRACK: 10 s) refuses with 500.
    """

    offer: str | None
    respond: Callable[[str | None], None]
    method: Literal["INVITE", "UPDATE", "PRACK"] = "INVITE"
    early: bool = False
    """Whether the call has not been answered yet (UPDATE, RFC 3311, or PRACK, RFC 3262)."""


@dataclass(frozen=True, slots=True)
class ReinviteConfirmed:
    """A change of theirs holds; ``sdp`` is its answer where the offer was ours.

    After a re-INVITE it comes with the ACK, after an UPDATE or PRACK at once.
    """

    sdp: str | None


By = Literal["local", "remote", "timeout", "error"]


@dataclass(frozen=True, slots=True)
class Ended:
    """The call is over; the last event of every call.

    ``by`` says whose doing it was; ``status`` and ``reason`` are SIP's where there are any;
    ``error`` is set when it ended otherwise than by hanging up.
    """

    by: By
    status: int | None = None
    reason: str = ""
    error: CallError | None = None
    headers: CallHeaders = field(default_factory=CallHeaders, compare=False, repr=False)
    """Of the message that ended it: their BYE, CANCEL or failure; empty where there was none."""
    causes: tuple[Reason, ...] = field(default=(), compare=False)
    """The reasons that message gives (RFC 3326)."""
    moved_to: str = field(default="", compare=False)
    """The address that a 3xx points to, where it was not followed (``follow_redirects``)."""
    realm: str = field(default="", compare=False)
    """Who asked for a password that we do not have, or that was wrong (401, 407)."""
    user: str = field(default="", compare=False)
    """The user name that we answered with; empty where we had none."""


CallEvent = (
    Ringing
    | EarlyMedia
    | EarlyAnswer
    | Answered
    | ReinviteReceived
    | ReinviteConfirmed
    | InfoReceived
    | DtmfInfo
    | ReferReceived
    | Ended
)
