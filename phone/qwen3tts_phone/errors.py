"""Errors of a phone call, all below `CallError`, with their remedy."""

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
    """Failure status of the far end (300 to 699).

    ``realm`` and ``user`` are those of a challenge (401, 407); ``withheld``: why it got no
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
    """No answer from an address: refused, not resolved, or silent."""

    code = "callee_unreachable"
    retryable = True

    def __init__(self, message: str, *, remedy: str = "", why: WhyUnreachable = "") -> None:
        super().__init__(message, remedy=remedy)
        self.why: WhyUnreachable = why


class PortBusy(CallError):
    """Local address in use, or not ours to bind."""

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
    """Unusable session description; the message says where."""

    code = "bad_sdp"


class NoCommonFamily(BadSdp):
    """No media address of our family (IPv4, IPv6)."""


class BadSip(CallError):
    """Unusable SIP message, address or URI; the message says where."""

    code = "bad_sip"


class RegistrationFailed(CallError):
    """Refusal by the registrar, with ``status``, or no answer (None).

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
    """Invalid TLS certificate: ours (before any bind), or the far end's."""

    code = "bad_certificate"


class CallNotAllowed(CallError):
    """Call forbidden by the guard; nothing was sent.

    ``rule``: ``emergency``, ``emergency_somewhere``, ``denied``, ``premium``, ``not_allowed``,
    ``address``, ``concurrent``, ``rate`` or ``transfers``.
    """

    code = "call_not_allowed"

    def __init__(self, message: str, *, rule: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.rule = rule


class WrongState(CallError):
    """Operation on a call that is over, or not yet answered."""

    code = "wrong_state"


class NotPossible(CallError):
    """Operation that the kind of line lacks, such as hold on a media stream.

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
    """Failed transfer; the call goes on. ``status``, ``reason``: the target's answer."""

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
    """Call taken by an answering machine; no message was left."""

    code = "machine_answered"


class StreamLost(CallError):
    """Media stream that broke off without an end message."""

    code = "stream_lost"


def traceback_without_message(error: BaseException) -> str:
    """Format an error for logs without its text, which may quote a caller."""
    lines = traceback.format_tb(error.__traceback__)
    return f"Traceback (most recent call last):\n{''.join(lines)}{type(error).__name__}"
