"""Errors of a phone call, all below `CallError`: each says what happened, and what to do."""

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
    """The far end answered the request with a failure status (300 to 699).

    ``realm`` and ``user`` are those of a challenge (401, 407); ``withheld`` says why it got no
    answer.
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
"""Kind of silence: the name has no address; nothing listens there; no answer until the timer; it
rang without an answer; our answer was never acknowledged; the session was not refreshed or a BYE
never answered; no TLS connection. Empty = not known."""


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
        if error.errno == errno.EADDRNOTAVAIL:
            return "Check that the address belongs to this machine; 0.0.0.0 is all that it has."
        if error.errno == errno.EACCES:
            return "Ports below 1024 need a right of their own: choose a higher one."
        return "Another program has the port: choose another, or 0 for any free one."


class NoCommonCodec(CallError):
    """No codec is common to both ends (488)."""

    code = "no_common_codec"


class BadSdp(CallError):
    """A session description that cannot be used; the message says where."""

    code = "bad_sdp"


class NoCommonFamily(BadSdp):
    """The far end describes no media address of our family (IPv4, IPv6)."""


class BadSip(CallError):
    """A SIP message, address or URI that cannot be used; the message says where."""

    code = "bad_sip"


class RegistrationFailed(CallError):
    """The registrar refused, with ``status``, or did not answer (None).

    ``realm``, ``user`` and ``withheld`` as of `CallRefused`; ``why``: the kind of silence.
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
    """A TLS certificate is not valid: ours (before anything is bound), or the far end's."""

    code = "bad_certificate"


class CallNotAllowed(CallError):
    """The guard forbids the call; nothing was sent.

    ``rule``: ``emergency``, ``emergency_somewhere``, ``denied``, ``premium``, ``not_allowed``,
    ``address``, ``concurrent``, ``rate`` or ``transfers``.
    """

    code = "call_not_allowed"

    def __init__(self, message: str, *, rule: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.rule = rule


class WrongState(CallError):
    """The call cannot do that now: it is over, or not yet answered."""

    code = "wrong_state"


class NotPossible(CallError):
    """The kind of line cannot do that at all, such as hold on a media stream.

    ``what`` is the operation, ``line`` the kind of line (`Call.line`).
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
    """The transfer failed; the call goes on. ``status`` and ``reason``: the target's answer."""

    code = "transfer_failed"

    def __init__(self, status: int, reason: str, *, message: str = "", remedy: str = "") -> None:
        super().__init__(
            message or f"The transfer failed: {status} {reason}".rstrip() + ".",
            remedy=remedy or meaning_of(status).remedy,
        )
        self.status = status
        self.reason = reason


class MissingEncryption(CallError):
    """Encrypted calls are required, and not available here."""

    code = "missing_encryption"


class MachineAnswered(CallError):
    """An answering machine took the call, and gets no message."""

    code = "machine_answered"


class StreamLost(CallError):
    """The media stream that was the call broke off without an end message."""

    code = "stream_lost"


def traceback_without_message(error: BaseException) -> str:
    """Format the traceback and type of an error for logs, without its text, which may quote a
    caller.
    """
    lines = traceback.format_tb(error.__traceback__)
    return f"Traceback (most recent call last):\n{''.join(lines)}{type(error).__name__}"
