"""Diagnosis of failed calls and registrations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from qwen3tts_phone.diagnosis.findings import Finding, Group, Rule, findings_of
from qwen3tts_phone.errors import (
    BadCertificate,
    BadSdp,
    CalleeUnreachable,
    CallError,
    CallRefused,
    NoCommonCodec,
    RegistrationFailed,
    WhyUnreachable,
)
from qwen3tts_phone.facts import CallFacts, RegistrationFacts
from qwen3tts_phone.sip_statuses import meaning_of
from qwen3tts_wire.errors import SpeechError

FIREWALL: Final = (
    "Check the address and the port, and that firewalls on the way let SIP through in both "
    "directions; many providers want another port or TCP or TLS."
)
BAD_SDP: Final = (
    "The other side, or a server on the way, describes its sound wrongly: its log or its maker "
    "can say why; fewer codecs and no encryption here may help it."
)
UNREGISTERED_THERE: Final = (
    "The phone called is probably switched off or not registered there, or the server does not "
    "reach it: the server's log says more."
)
NOT_ACCEPTABLE: Final = (406, 415, 488, 606)
"""Statuses of a description that is refused."""
CODE_OF_ERROR: Final = {"bad_certificate": "certificate", "call_not_allowed": "not_allowed"}
"""Errors whose findings have another code than they."""
UNREACHABLE: Final[dict[WhyUnreachable, tuple[str, str]]] = {
    "": ("no_reply", FIREWALL),
    "dns": (
        "dns",
        "Check the spelling of the host, and that this machine's name servers answer.",
    ),
    "refused": (
        "port_closed",
        "Check the port and the transport (udp, tcp or tls), and that the server is running there.",
    ),
    "timeout": ("no_reply", FIREWALL),
    "no_answer": ("no_answer", "Call again later."),
    "no_ack": (
        "no_ack",
        "Our answer does not reach the caller, or its acknowledgement does not reach us: the "
        "address in our Contact is probably one that it cannot reach. Set advertised_host to this "
        "machine's public address and let its SIP port through.",
    ),
    "session": (
        "vanished",
        "The other side or the network is gone, or a NAT has closed: refresh more often "
        "(session_expires_s, keepalive_s).",
    ),
    "tls": ("tls", "Check that the port speaks TLS, and the certificates of both sides."),
}
"""Code and remedy by the kind of silence."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """Password challenge (401, 407) that ended a request."""

    said: str
    """Status and reason."""
    realm: str = ""
    user: str = ""
    withheld: str = ""
    """Why it got no answer."""

    @property
    def for_realm(self) -> str:
        return f" for the realm {self.realm!r}" if self.realm else ""


PASSWORD: Final[Group[Challenge]] = (
    Rule(
        lambda e: not e.user,
        "no_password",
        "The server asks for a password{e.for_realm}, and this call has none for it ({e.said}).",
        "Call by an account of that server, and give it the user name (user or auth_user) and the "
        "password (password_env or password_file).",
    ),
    Rule(
        lambda e: bool(e.withheld),
        "password_withheld",
        "The password{e.for_realm} was asked for and not given: {e.withheld} ({e.said}).",
        "Where that is right, set the account's realm, digest or allowed_sources accordingly; else "
        "it is an attempt to get the password.",
    ),
    Rule(
        lambda e: True,
        "wrong_password",
        "The server does not accept the password of the user {e.user!r}{e.for_realm} ({e.said}).",
        "Check the password, and whether the server wants another name for logging in "
        "(auth_user); after many attempts it may have locked the account for a while.",
    ),
)


@dataclass(frozen=True, slots=True)
class AccountEvidence:
    facts: RegistrationFacts

    @property
    def user(self) -> str:
        return self.facts.user or "of this phone"

    @property
    def server(self) -> str:
        return self.facts.server or "its registrar"

    @property
    def because(self) -> str:
        return f": {self.facts.error.message}" if self.facts.error is not None else "."


REGISTRATION: Final[Group[AccountEvidence]] = (
    Rule(
        lambda e: e.facts.state == "trying",
        "registering",
        "The account {e.user} is not registered yet at {e.server}.",
        "Calls to it do not reach this phone until it is.",
        severe=False,
    ),
    Rule(
        lambda e: e.facts.state == "expired",
        "registration_expired",
        "The registration of the account {e.user} at {e.server} has run out and was not "
        "renewed{e.because}",
        "Calls do not reach this phone. Check that the registrar can be reached; retries are "
        "automatic.",
    ),
    Rule(
        lambda e: e.facts.state == "failed",
        "registration_refused",
        "The account {e.user} is not registered at {e.server}.",
        "Calls do not reach this phone. Check the account's user, password and server.",
    ),
)


def finding_of(error: SpeechError) -> Finding:
    match error:
        case CallRefused(status=401 | 407 as status, withheld=withheld) if withheld:
            said = f"{status} {error.reason}".strip()
            return _challenge_finding(Challenge(said, error.realm, error.user, withheld))
        case CallRefused():
            return status_finding(
                error.status,
                error.reason,
                realm=error.realm,
                user=error.user,
                remedy=error.remedy if 300 <= error.status < 400 else "",
            )
        case RegistrationFailed():
            return _registration_error(error)
        case CalleeUnreachable(why=why):
            return _unreachable(error, why)
        case NoCommonCodec():
            return Finding("codec", error.message, error.remedy)
        case BadSdp():
            return Finding("bad_sdp", error.message, error.remedy or BAD_SDP)
    if not isinstance(error, CallError):
        return Finding("speech", error.message, error.remedy)
    return Finding(CODE_OF_ERROR.get(error.code, error.code), error.message, error.remedy)


def status_finding(
    status: int, reason: str = "", *, realm: str = "", user: str = "", remedy: str = ""
) -> Finding:
    said = f"{status} {reason}".strip()
    if status in (401, 407):
        return _challenge_finding(Challenge(said, realm, user))
    meaning = meaning_of(status)
    asked = f" The server asked as {realm!r}." if status == 403 and realm else ""
    words = f"{meaning.sentence[:-1]} ({said}).{asked}"
    return Finding(meaning.code, words, remedy or meaning.remedy)


def _challenge_finding(challenge: Challenge) -> Finding:
    return next(findings_of((PASSWORD,), challenge))


def _registration_error(error: RegistrationFailed) -> Finding:
    if error.status in (401, 407):
        said = str(error.status)
        return _challenge_finding(Challenge(said, error.realm, error.user, error.withheld))
    if error.status == 403:
        return Finding(
            "registration_refused",
            f"The registrar refuses the account ({error.message.rstrip('.')}).",
            "Check the user name and that the account is active and may register from here; some "
            "servers answer 403 to a wrong password.",
        )
    if isinstance(error.__cause__, BadCertificate):
        return Finding("certificate", error.message, error.__cause__.remedy or error.remedy)
    if error.status is None and error.why:
        return replace(_unreachable(error, error.why), severe=True)
    return Finding("registration_refused", error.message, error.remedy)


def _unreachable(error: CallError, why: WhyUnreachable) -> Finding:
    code, remedy = UNREACHABLE[why]
    remedy = remedy if why else error.remedy or remedy
    return Finding(code, error.message, remedy, severe=code != "no_answer")


def registration_findings(facts: RegistrationFacts | None) -> list[Finding]:
    if facts is None:
        return []
    if facts.state in ("failed", "trying") and facts.error is not None:
        found = finding_of(facts.error)
        if facts.status in (401, 407) and not getattr(facts.error, "user", ""):
            found = _challenge_finding(Challenge(str(facts.status), facts.realm, facts.user))
        return [replace(found, severe=facts.state != "trying")]
    return list(findings_of((REGISTRATION,), AccountEvidence(facts)))


def call_findings(facts: CallFacts) -> list[Finding]:
    end = facts.end
    if end is None:
        return []
    if facts.was_answered:
        return [finding_of(end.error)] if end.error is not None else []
    if end.by == "local" and end.error is None and end.status not in (406, 415, 488):
        return []  # hung up here before the answer
    return [_not_answered(facts)]


def _not_answered(facts: CallFacts) -> Finding:
    end = facts.end
    assert end is not None
    if end.status in NOT_ACCEPTABLE and not isinstance(end.error, NoCommonCodec):
        return _codec_finding(facts, end.status, end.reason)
    if _never_rang(facts):
        return Finding(
            "timeout",
            "The server took the call, but it never rang: no phone there answered it.",
            UNREGISTERED_THERE,
        )
    if end.error is not None:
        return finding_of(end.error)
    if end.status is not None:
        return replace(status_finding(end.status, end.reason), severe=end.by != "remote")
    if end.by == "remote":
        return Finding("cancelled", "The caller gave up before the answer.", "", severe=False)
    return Finding("no_reply", "The call ended before it was answered.", FIREWALL)


def _never_rang(facts: CallFacts) -> bool:
    error = facts.end.error if facts.end is not None else None
    given_up = isinstance(error, CalleeUnreachable) and error.why == "no_answer"
    return given_up and facts.ringing_at is None and facts.early_media_at is None


def _codec_finding(facts: CallFacts, status: int, reason: str) -> Finding:
    found = status_finding(status, reason)
    if facts.media.srtp_setting == "require":
        found = Finding(
            "codec",
            f"{found.words} This side requires encryption (SRTP).",
            "Turn SRTP by SDES on at the other side, or set srtp to accept here; else compare the "
            "codecs of both sides.",
        )
    ours, theirs = facts.media.our_codecs, facts.media.their_codecs
    if not ours:
        return found
    if not theirs:
        return replace(found, words=f"{found.words} We offered {', '.join(ours)}.")
    common = {name.upper() for name in ours} & {name.upper() for name in theirs}
    words = (
        f"{found.words} This side has {', '.join(ours)}, the other {', '.join(theirs)[:120]}"
        f"{'' if common else ': nothing in common'}."
    )
    return replace(found, words=words)
