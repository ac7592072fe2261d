"""States and events of a call and of its session modification."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Literal

from qwen3tts_phone.errors import BadSip, CallError
from qwen3tts_phone.sip.message.fields import CallHeaders, split_list
from qwen3tts_phone.sip.message.message import Request, Response
from qwen3tts_phone.sip.transaction.dialog import Replaces


class ModificationState(Enum):
    """State of the offer/answer exchange."""

    IDLE = auto()
    SENT = auto()
    """Our re-INVITE or UPDATE is out."""
    GLARE = auto()
    """Glare (491, 500): waiting to resend."""
    RECEIVED = auto()
    """Theirs awaits the owner's answer."""
    ANSWERED = auto()
    """Our 200 to a re-INVITE awaits its ACK."""


class ModificationEvent(Enum):
    SEND = auto()
    DONE = auto()
    PENDING = auto()
    """491, or 500 with Retry-After."""
    RECEIVE = auto()
    ACCEPT = auto()
    """A re-INVITE is accepted."""
    SETTLE = auto()
    """An UPDATE or PRACK is accepted: it has no ACK."""
    REFUSE = auto()
    ACK = auto()
    ABORT = auto()


H, M = ModificationState, ModificationEvent
MODIFICATION_TRANSITIONS: dict[tuple[ModificationState, ModificationEvent], ModificationState] = {
    (H.IDLE, M.SEND): H.SENT,
    (H.IDLE, M.RECEIVE): H.RECEIVED,
    (H.IDLE, M.ABORT): H.IDLE,
    (H.SENT, M.DONE): H.IDLE,
    (H.SENT, M.PENDING): H.GLARE,
    (H.SENT, M.ABORT): H.IDLE,
    (H.GLARE, M.SEND): H.SENT,
    (H.GLARE, M.RECEIVE): H.RECEIVED,
    (H.GLARE, M.ABORT): H.IDLE,
    (H.RECEIVED, M.ACCEPT): H.ANSWERED,
    (H.RECEIVED, M.SETTLE): H.IDLE,
    (H.RECEIVED, M.REFUSE): H.IDLE,
    (H.RECEIVED, M.ABORT): H.IDLE,
    (H.ANSWERED, M.ACK): H.IDLE,
    # A new one shows that the 200 arrived, even if its ACK was lost.
    (H.ANSWERED, M.RECEIVE): H.RECEIVED,
    (H.ANSWERED, M.ABORT): H.IDLE,
}


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """Progress of our transfer by NOTIFY; ``status`` is the target's."""

    status: int
    reason: str
    final: bool = False
    """True for the last notice."""


@dataclass(frozen=True, slots=True)
class ReferReceived:
    """REFER from the far end; refused with 603 without a decision within 20 s.

    Call ``accept()`` (False: too late, place no call) or ``refuse(status)``; then
    ``notify(status, reason)`` for the new call, the final status once.
    """

    target: str
    """URI to call."""
    referred_by: str | None
    """URI of Referred-By (RFC 3892), unverified."""
    replaces: Replaces | None
    """Dialog that our call must name in its Replaces header."""
    accept: Callable[[], bool] = field(repr=False)
    refuse: Callable[[int], None] = field(repr=False)
    notify: Callable[[int, str], None] = field(repr=False)


DTMF_RELAY = "application/dtmf-relay"
DTMF = "application/dtmf"
DIGITS = "0123456789*#ABCD"
MIN_DURATION_MS = 40
MAX_DURATION_MS = 5000
DEFAULT_DURATION_MS = 160
"""Key duration where none is given (``application/dtmf``)."""

_LINE = re.compile(r"\s*(signal|duration)\s*=\s*([^\s;]{1,16})\s*", re.I)
_NUMBERED = {"10": "*", "11": "#", "12": "A", "13": "B", "14": "C", "15": "D"}
"""RFC 4733 event numbers that some senders write for keys."""


@dataclass(frozen=True, slots=True)
class InfoReceived:
    """INFO other than DTMF, already answered with 200."""

    content_type: str
    """Lower case, without parameters; empty without a body."""
    body: bytes


@dataclass(frozen=True, slots=True)
class DtmfInfo:
    """DTMF key of the far end, by INFO."""

    digit: str
    """One of ``0`` to ``9``, ``*``, ``#``, ``A`` to ``D``."""
    duration_ms: int


def read_dtmf(content_type: str, body: bytes) -> DtmfInfo:
    """Parse ``application/dtmf-relay`` or ``application/dtmf``; raises BadSip."""
    text = body[:256].decode("latin-1")
    duration_ms = DEFAULT_DURATION_MS
    signal = text.strip()
    if content_type == DTMF_RELAY or "=" in text:
        found = {m[1].lower(): m[2] for line in text.splitlines() if (m := _LINE.fullmatch(line))}
        signal = found.get("signal", "")
        duration = found.get("duration", "")
        if duration.isascii() and duration.isdigit():
            duration_ms = max(1, min(int(duration), MAX_DURATION_MS))
    digit = _NUMBERED.get(signal, signal).upper()
    if len(digit) != 1 or digit not in DIGITS:
        raise BadSip("The body of the INFO names no key of a telephone.")
    return DtmfInfo(digit, duration_ms)


def dtmf_relay(digit: str, duration_ms: int) -> bytes:
    """Return the ``application/dtmf-relay`` body for a key; raises ValueError."""
    digit = digit.upper()
    if len(digit) != 1 or digit not in DIGITS:
        raise ValueError(f"digit={digit!r} is not one of {DIGITS}")
    if not MIN_DURATION_MS <= duration_ms <= MAX_DURATION_MS:
        raise ValueError(
            f"duration_ms={duration_ms} is not between {MIN_DURATION_MS} and {MAX_DURATION_MS}"
        )
    return f"Signal={digit}\r\nDuration={duration_ms}\r\n".encode()


MAX_TEXT_CHARS = 200
_PARAMETER = re.compile(r';\s*([A-Za-z-]{1,32})\s*=\s*("(?:[^"\\]|\\.)*"|[^;\s]*)')


@dataclass(frozen=True, slots=True)
class Reason:
    """One Reason value (RFC 3326): ``SIP`` with a status code, or ``Q.850`` with a cause."""

    protocol: str
    cause: int | None = None
    text: str = ""

    def __str__(self) -> str:
        number = "" if self.cause is None else f" {self.cause}"
        return self.text or f"{self.protocol}{number}"


def reasons(message: Request | Response) -> list[Reason]:
    found = []
    for line in message.headers.getlist("Reason"):
        for value in split_list(line[:4096]):
            protocol = value.partition(";")[0].strip()
            if not protocol or len(protocol) > 32:
                continue
            cause, text = None, ""
            for match in _PARAMETER.finditer(value):
                name, given = match[1].lower(), match[2]
                if given.startswith('"'):
                    given = re.sub(r"\\(.)", r"\1", given[1:-1])
                if name == "cause" and given.isascii() and given.isdigit() and len(given) <= 3:
                    cause = int(given)
                elif name == "text":
                    text = given[:MAX_TEXT_CHARS]
            found.append(Reason(protocol, cause, text))
    return found[:8]


class CallState(Enum):
    CALLING = auto()
    """Our INVITE is out, without a response."""
    PROCEEDING = auto()
    """A provisional response has come."""
    CANCELLING = auto()
    """CANCEL sent, final response pending."""
    RECEIVED = auto()
    """Their INVITE awaits our answer."""
    RINGING = auto()
    """We sent 180."""
    ANSWERED = auto()
    """We sent 200; the ACK is still to come."""
    LEAVING = auto()
    """BYE pending until the ACK (RFC 3261 section 15.1.1)."""
    UP = auto()
    """Confirmed at both ends."""
    ENDING = auto()
    """Our BYE is out."""
    ENDED = auto()


class CallStep(Enum):
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


S, P = CallState, CallStep

CALL_TRANSITIONS: dict[tuple[CallState, CallStep], CallState] = {
    # Outgoing calls.
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
    # Incoming calls.
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
    # Both directions.
    (S.UP, P.ACK): S.UP,
    (S.UP, P.BYE): S.ENDING,
    (S.UP, P.REMOTE_BYE): S.ENDED,
    (S.UP, P.LOST): S.ENDING,
    (S.ENDING, P.ACK): S.ENDING,
    (S.ENDING, P.BYE): S.ENDING,
    (S.ENDING, P.BYE_DONE): S.ENDED,
    # Both hang up together: each answers the other's BYE.
    (S.ENDING, P.REMOTE_BYE): S.ENDED,
}
"""An absent pair raises WrongState for us and is ignored from the far end."""


@dataclass(frozen=True, slots=True)
class Ringing:
    """Provisional response: 180 (ringing), 181 (forwarded), 182 (queued) or 183 (progress).

    Reported once a status; 183 only before any other.
    """

    status: int
    reason: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class EarlyMedia:
    """Early media, such as an announcement or ring-back tone."""

    sdp: str
    tag: str = field(default="", compare=False)
    """To tag: the branch of a fork."""


@dataclass(frozen=True, slots=True)
class EarlyAnswer:
    """Answer to the offer of :meth:`ringing`: early media may begin."""

    sdp: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The call is up; ``sdp`` is the far end's answer, or its offer where we made none.

    None on an incoming call whose INVITE had the offer.
    """

    sdp: str | None
    tag: str = field(default="", compare=False)
    """To tag of the fork's branch; empty on an incoming call."""


@dataclass(frozen=True, slots=True)
class ReinviteReceived:
    """Offer of a session change (hold, resume, address); ``offer`` None: ours is asked for.

    ``respond(sdp)`` accepts, ``respond(None)`` refuses with 488. Refused with 500 after 30 s
    (UPDATE, PRACK: 10 s).
    """

    offer: str | None
    respond: Callable[[str | None], None]
    method: Literal["INVITE", "UPDATE", "PRACK"] = "INVITE"
    early: bool = False
    """True before the call's answer (UPDATE, RFC 3311, or PRACK, RFC 3262)."""


@dataclass(frozen=True, slots=True)
class ReinviteConfirmed:
    """Accepted change of theirs; ``sdp`` is its answer to an offer of ours.

    Reported with the ACK of a re-INVITE, immediately for an UPDATE or PRACK.
    """

    sdp: str | None


By = Literal["local", "remote", "timeout", "error"]


@dataclass(frozen=True, slots=True)
class Ended:
    """Last event of every call.

    ``by`` is the side that ended it, ``status`` and ``reason`` are SIP's; ``error`` is None
    after a regular hang-up.
    """

    by: By
    status: int | None = None
    reason: str = ""
    error: CallError | None = None
    headers: CallHeaders = field(default_factory=CallHeaders, compare=False, repr=False)
    """Header fields of the BYE, CANCEL or failure."""
    causes: tuple[Reason, ...] = field(default=(), compare=False)
    """Reasons of that message (RFC 3326)."""
    moved_to: str = field(default="", compare=False)
    """Contact of a 3xx that was not followed (``follow_redirects``)."""
    realm: str = field(default="", compare=False)
    """Realm that challenged us (401, 407) without a valid password of ours."""
    user: str = field(default="", compare=False)
    """User name that we answered with; empty without one."""


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
