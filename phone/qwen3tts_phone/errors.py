"""What can go wrong with a phone call: each error says what happened, and what to do about it.

CallError                       the base; a SpeechError
├── CallRefused                 the far end answered with a failure (status and reason)
├── CalleeUnreachable           nobody answered at that address
├── PortBusy                    a local port is taken by another program
├── NoCommonCodec               both ends speak, and no codec is common to them
├── BadSdp                      a session description that cannot be used
├── BadSip                      a SIP message, address or URI that cannot be used
├── BadCertificate              a TLS certificate of ours or of the far end that is no good
├── CallNotAllowed              a rule of ours forbids that call (destination, rate, number)
├── RegistrationFailed          the registrar would not have us
├── NotPossible                 this line has no way to do that
├── WrongState                  the call cannot do that now (it is over, or not yet answered)
├── NotPossible                 the line that the call is on cannot do that at all
├── TransferFailed              the far end did not hand the call on
├── MissingEncryption           encrypted calls are required, and cannot be made here
├── MachineAnswered             an answering machine took the call, and was to get no message
└── StreamLost                  the media stream that was the call broke off
"""

from __future__ import annotations

import errno
import traceback
from typing import Literal

from qwen3tts_phone.sip_statuses import meaning_of
from qwen3tts_wire.errors import SpeechError


class CallError(SpeechError):
    """Base of all errors of a phone call."""

    code = "call_error"


class CallRefused(CallError):
    """The far end answered the request with a failure.

    ``status`` is the SIP status code (300 to 699), ``reason`` its reason phrase. ``realm`` and
    ``user`` are those of the challenge where a password was asked for (401, 407); ``withheld`` says
    why it got no answer, where the account has a password and this was not the place to use it.
    """

    code = "call_refused"

    def __init__(
        self,
        status: int,
        reason: str,
        *,
        remedy: str = "",
        what: str = "call",
        realm: str = "",
        user: str = "",
        withheld: str = "",
    ) -> None:
        super().__init__(
            f"The {what} was refused: {status} {reason}".rstrip() + ".",
            remedy=remedy or meaning_of(status).remedy,
        )
        self.status = status
        self.reason = reason
        self.realm = realm
        self.user = user
        self.withheld = withheld


WhyUnreachable = Literal["", "dns", "refused", "timeout", "no_answer", "no_ack", "session", "tls"]
"""Which silence it was: the name has no address; nothing listens there; nothing came back until the
timer; it rang and nobody answered; our answer was never acknowledged; the session was not refreshed
or a BYE never answered; the TLS connection could not be made. Empty = not said."""


class CalleeUnreachable(CallError):
    """No answer came from that address: refused, not resolved, or silent until the timer."""

    code = "callee_unreachable"
    retryable = True

    def __init__(self, message: str, *, remedy: str = "", why: WhyUnreachable = "") -> None:
        super().__init__(message, remedy=remedy)
        self.why: WhyUnreachable = why


class PortBusy(CallError):
    """A local address is taken by another program, or not ours to bind."""

    code = "port_busy"

    @staticmethod
    def remedy_for(error: OSError) -> str:
        """What to do where a port could not be bound."""
        if error.errno == errno.EADDRNOTAVAIL:
            return "Check that the address belongs to this machine; 0.0.0.0 is all that it has."
        if error.errno == errno.EACCES:
            return "Ports below 1024 need a right of their own: choose a higher one."
        return "Another program has the port: choose another, or 0 for any free one."


class NoCommonCodec(CallError):
    """No codec is common to both ends; answer 488."""

    code = "no_common_codec"


class BadSdp(CallError):
    """A session description that cannot be used; the message says where."""

    code = "bad_sdp"


class NoCommonFamily(BadSdp):
    """The far end describes no media address of a family (IPv4, IPv6) that this end has."""


class BadSip(CallError):
    """A SIP message, address or URI that cannot be used; the message says where."""

    code = "bad_sip"


class RegistrationFailed(CallError):
    """The registrar would not have us; ``status`` is its answer, or None when none came.

    ``realm`` and ``user`` are those of the challenge where a password was asked for, ``withheld``
    why it got no answer; ``why`` says which silence it was where no answer came.
    """

    code = "registration_failed"

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        status: int | None = None,
        realm: str = "",
        user: str = "",
        why: WhyUnreachable = "",
        withheld: str = "",
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.status = status
        self.realm = realm
        self.user = user
        self.withheld = withheld
        self.why: WhyUnreachable = why


class BadCertificate(CallError):
    """A TLS certificate that is no good: ours (before anything is bound), or the far end's."""

    code = "bad_certificate"


class CallNotAllowed(CallError):
    """A rule of ours forbids the call; nothing was sent.

    ``rule`` is which one: ``emergency``, ``emergency_somewhere``, ``denied``, ``premium``,
    ``not_allowed``, ``address``, ``concurrent``, ``rate`` or ``transfers``.
    """

    code = "call_not_allowed"

    def __init__(self, message: str, *, rule: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.rule = rule


class WrongState(CallError):
    """The call cannot do that now: it is over, or has not come that far."""

    code = "wrong_state"


class NotPossible(CallError):
    """The line that the call is on cannot do that at all, such as hold on a media stream.

    ``what`` is what was asked for, ``line`` the kind of line (`Call.line`).
    """

    code = "not_possible"

    def __init__(self, what: str, line: str, *, remedy: str = "") -> None:
        super().__init__(
            f"{what} is not possible on a call over {line}.",
            remedy=remedy or "Let the telephone system at the other end do it, or use a SIP trunk.",
        )
        self.what = what
        self.line = line


class TransferFailed(CallError):
    """The far end did not hand the call on; the call goes on as it was.

    ``status`` and ``reason`` are what the target answered, or the far end itself.
    """

    code = "transfer_failed"

    def __init__(self, status: int, reason: str, *, message: str = "", remedy: str = "") -> None:
        super().__init__(
            message or f"The transfer failed: {status} {reason}".rstrip() + ".",
            remedy=remedy or meaning_of(status).remedy,
        )
        self.status = status
        self.reason = reason


class MissingEncryption(CallError):
    """Encrypted calls are required, and cannot be made here."""

    code = "missing_encryption"


class MachineAnswered(CallError):
    """An answering machine took the call, and was to get no message."""

    code = "machine_answered"


class StreamLost(CallError):
    """The media stream that was the call broke off, and its end was not told before."""

    code = "stream_lost"


def traceback_without_message(error: BaseException) -> str:
    """The traceback and the kind of an error; not its text, which may hold what a caller said."""
    lines = traceback.format_tb(error.__traceback__)
    return f"Traceback (most recent call last):\n{''.join(lines)}{type(error).__name__}"
