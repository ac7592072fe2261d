"""Diagnosis of calls that failed to set up or broke off, by SIP status and error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from qwen3tts_phone.diagnosis.table import Finding
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
from qwen3tts_wire.errors import SpeechError

REFUSALS: Final[dict[int, tuple[str, str, str]]] = {
    402: ("payment", "The account has no credit.", "Pay for it, or ask whoever runs the server."),
    404: (
        "wrong_number",
        "The server knows no such number or user.",
        "Check how the number is written: providers want +COUNTRY NUMBER or a prefix of their own.",
    ),
    405: (
        "not_supported",
        "The server does not take calls at that address.",
        "Check the address: it may be a registrar only, or another port may take the calls.",
    ),
    410: ("wrong_number", "The number is no longer in use.", "Ask for the new one."),
    413: ("not_supported", "The server found our message too large.", "Offer fewer codecs."),
    420: (
        "not_supported",
        "The server lacks an extension that we required.",
        "Turn session timers, PRACK or encryption from required to optional.",
    ),
    421: (
        "not_supported",
        "The server requires an extension that this call did not offer.",
        "Its log names the extension; turn it off for this phone there.",
    ),
    480: (
        "unavailable",
        "The phone is known, but nobody can be reached there now.",
        "Check that the phone is switched on and registered; call again later.",
    ),
    481: (
        "dialog_lost",
        "The other side no longer knew of the call.",
        "It or a server between was restarted, or messages went to another machine: check that "
        "one address always leads to the same server.",
    ),
    482: (
        "loop",
        "The call went round in a circle between servers.",
        "Check the forwarding at the number called, and the outbound proxy.",
    ),
    483: (
        "loop",
        "The call passed through too many servers.",
        "Check the forwarding at the number called, and the outbound proxy.",
    ),
    484: ("wrong_number", "The number is too short.", "Give all of it, with the area code."),
    485: ("wrong_number", "The number fits several phones.", "Give it with country and area."),
    486: ("busy", "The line is busy.", "Call again later."),
    487: ("cancelled", "The call was given up before it was answered.", ""),
    491: (
        "glare",
        "Both sides wanted to change the call at the same moment.",
        "Try again; if it happens at every call, turn session refreshes off on one side.",
    ),
    493: ("encryption", "The server cannot read an encrypted body.", "Turn S/MIME off there."),
    500: ("server_failed", "The server there has failed.", "Its log says more; try again later."),
    502: ("server_failed", "A gateway behind the server has failed.", "Try again later."),
    503: (
        "overloaded",
        "The server has no room or is being serviced.",
        "Call again later; with a trunk, check how many calls at once were bought.",
    ),
    504: ("server_failed", "A server behind the server did not answer.", "Try again later."),
    513: ("not_supported", "The server found our message too large.", "Use TCP or fewer codecs."),
    600: ("busy", "The line is busy wherever it rings.", "Call again later."),
    603: (
        "declined",
        "The call was declined.",
        "The person did not want it, or a provider blocks the caller's number: check the one that "
        "is shown.",
    ),
    604: ("wrong_number", "There is no such number anywhere.", "Check the number."),
    607: ("declined", "The person called does not want such calls.", "Do not call again."),
    608: (
        "declined",
        "A service of the callee blocks the call.",
        "Ask its operator; the number shown may be listed as a nuisance.",
    ),
}
"""Status -> code of the finding, words, remedy; those that need more are in `why_no_call`."""


FIREWALL = (
    "Check the address and the port, and that firewalls on the way let SIP through in both "
    "directions; many providers want another port or TCP or TLS."
)


BAD_SDP = (
    "The other side, or a server on the way, describes its sound wrongly: its log or its maker "
    "can say why; fewer codecs and no encryption here may help it."
)
UNREGISTERED_THERE = (
    "The phone called is probably switched off or not registered there, or the server does not "
    "reach it: the server's log says more."
)


_CODES = {"bad_certificate": "certificate", "call_not_allowed": "not_allowed"}


def of_error(error: SpeechError) -> Finding:
    """What an error means, also without a call (a registration, an OPTIONS request, a name)."""
    match error:
        case CallRefused(status=401 | 407 as status, withheld=withheld) if withheld:
            said = f"{status} {error.reason}".strip()
            return _password(said, error.realm, error.user, withheld)
        case CallRefused(status=status, realm=realm, user=user):
            return of_status(status, error.reason, realm=realm, user=user, remedy=error.remedy)
        case RegistrationFailed():
            return of_registration(error)
        case CalleeUnreachable(why=why):
            return _unreachable(error, why)
        case NoCommonCodec():
            return Finding("codec", error.message, error.remedy)
        case BadSdp():
            return Finding("bad_sdp", error.message, error.remedy or BAD_SDP)
    if not isinstance(error, CallError):
        return Finding("speech", error.message, error.remedy)
    return Finding(_CODES.get(error.code, error.code), error.message, error.remedy)


def of_status(
    status: int, reason: str = "", *, realm: str = "", user: str = "", remedy: str = ""
) -> Finding:
    """What a refusal of a call means."""
    said = f"{status} {reason}".strip()
    if status in (401, 407):
        return _password(said, realm, user)
    if status == 403:
        whom = f" The server asked as {realm!r}." if realm else ""
        return Finding(
            "forbidden",
            f"The server forbids the call ({said}).{whom}",
            "Check that the account may call such numbers, that this machine's address is allowed "
            "there, and that the caller's number shown is one of the account's.",
        )
    if status == 408:
        return Finding(
            "timeout",
            f"The server got no answer from the phone called ({said}).",
            "Check that the phone is registered and reachable, then call again.",
        )
    if status in (406, 415, 488, 606):
        return Finding(
            "codec",
            f"The other side does not accept how we describe the sound ({said}).",
            "Compare the codecs and the encryption of both sides: allow PCMU or PCMA there, and "
            "make SRTP optional, or required on both.",
        )
    if 300 <= status < 400:
        return Finding(
            "moved",
            f"The number has moved ({said}).",
            remedy or "Call the new address; the server did not name it.",
        )
    known = REFUSALS.get(status)
    if known is not None:
        code, words, advice = known
        return Finding(code, f"{words[:-1]} ({said}).", advice)
    if 500 <= status < 600:
        return Finding(
            "server_failed", f"The server there has failed ({said}).", "Its log says more."
        )
    if status >= 600:
        return Finding("declined", f"The call is refused wherever it rings ({said}).", "")
    return Finding(
        "refused", f"The call was refused ({said}).", "The log of that server says more."
    )


def _password(said: str, realm: str, user: str, withheld: str = "") -> Finding:
    whose = f" for the realm {realm!r}" if realm else ""
    if not user:
        return Finding(
            "no_password",
            f"The server asks for a password{whose}, and this call has none for it ({said}).",
            "Call by an account of that server, and give it the user name (user or auth_user) and "
            "the password (password_env or password_file).",
        )
    if withheld:
        return Finding(
            "password_withheld",
            f"The password{whose} was asked for and not given: {withheld} ({said}).",
            "Where that is right, set the account's realm, digest or allowed_sources accordingly; "
            "else somebody on the way tries to get it.",
        )
    return Finding(
        "wrong_password",
        f"The server does not accept the password of the user {user!r}{whose} ({said}).",
        "Check the password, and whether the server wants another name for logging in "
        "(auth_user); after many attempts it may have locked the account for a while.",
    )


def of_registration(error: RegistrationFailed) -> Finding:
    """What a failed registration means."""
    if error.status in (401, 407):
        return _password(str(error.status), error.realm, error.user, error.withheld)
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
        found = _unreachable(error, error.why)
        return Finding(found.code, found.words, found.remedy)
    return Finding("registration_refused", error.message, error.remedy)


_SILENCES: dict[WhyUnreachable, tuple[str, str]] = {
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
    "tls": (
        "tls",
        "Check that the port speaks TLS, and the certificates of both sides.",
    ),
}


def _unreachable(error: CallError, why: WhyUnreachable) -> Finding:
    if not why:
        return Finding("no_reply", error.message, error.remedy or FIREWALL)
    code, remedy = _SILENCES[why]
    return Finding(code, error.message, remedy, severe=code != "no_answer")


_STATES: dict[str, Callable[[RegistrationFacts], Finding | None]] = {
    "registered": lambda _: None,
    "unregistered": lambda _: None,
    "trying": lambda facts: Finding(
        "registering",
        f"The account {facts.user or 'of this phone'} is not registered yet at "
        f"{facts.server or 'its registrar'}.",
        "Calls to it do not reach this phone until it is.",
        severe=False,
    ),
    "expired": lambda facts: Finding(
        "registration_expired",
        f"The registration of {facts.user or 'the account'} at "
        f"{facts.server or 'its registrar'} has run out and was not renewed"
        f"{': ' + facts.error.message if facts.error is not None else '.'}",
        "Calls do not reach this phone. Check that the registrar can be reached; it is tried "
        "again on its own.",
    ),
    "failed": lambda facts: Finding(
        "registration_refused",
        f"The account {facts.user or 'of this phone'} is not registered at "
        f"{facts.server or 'its registrar'}.",
        "Calls do not reach this phone. Check the account's user, password and server.",
    ),
}


def registration_findings(facts: RegistrationFacts | None) -> list[Finding]:
    """What is wrong with the account's registration."""
    if facts is None:
        return []
    if facts.state in ("failed", "trying") and facts.error is not None:
        found = of_error(facts.error)
        if facts.status in (401, 407) and not getattr(facts.error, "user", ""):
            found = _password(str(facts.status), facts.realm, facts.user)
        return [Finding(found.code, found.words, found.remedy, severe=facts.state != "trying")]
    found_state = _STATES[facts.state](facts)
    return [] if found_state is None else [found_state]


def call_findings(facts: CallFacts) -> list[Finding]:
    """Why there was no call, or why it broke off."""
    end = facts.end
    if end is None:
        return []
    if facts.was_answered:
        return [of_error(end.error)] if end.error is not None else []
    if end.by == "local" and end.error is None and end.status not in (406, 415, 488):
        return []  # we did not want it
    found = _not_answered(facts)
    return [] if found is None else [found]


def _not_answered(facts: CallFacts) -> Finding | None:
    end = facts.end
    assert end is not None
    if end.status in (406, 415, 488, 606) and not isinstance(end.error, NoCommonCodec):
        return _codecs(facts, end.status, end.reason)
    if _never_rang(facts):
        return Finding(
            "timeout",
            "The server took the call, but it never rang: no phone there answered it.",
            UNREGISTERED_THERE,
        )
    if end.error is not None:
        return of_error(end.error)
    if end.status is not None:
        found = of_status(end.status, end.reason)
        return Finding(found.code, found.words, found.remedy, severe=end.by != "remote")
    if end.by == "remote":
        return Finding("cancelled", "The caller gave up before the answer.", "", severe=False)
    return Finding("no_reply", "The call ended before it was answered.", FIREWALL)


def _never_rang(facts: CallFacts) -> bool:
    """Whether a call of ours was given up, and no phone had ever said that it rings."""
    error = facts.end.error if facts.end is not None else None
    given_up = isinstance(error, CalleeUnreachable) and error.why == "no_answer"
    return given_up and facts.ringing_at is None and facts.early_media_at is None


def _codecs(facts: CallFacts, status: int, reason: str) -> Finding:
    found = of_status(status, reason)
    if facts.media.srtp_setting == "require":
        found = Finding(
            "codec",
            f"{found.words} This side requires encryption (SRTP).",
            "Turn SRTP by SDES on at the other side, or set srtp to accept here; else compare the "
            "codecs of both sides.",
        )
    ours, theirs = facts.media.our_codecs, facts.media.their_codecs
    if not (ours and theirs):
        if not ours:
            return found
        words = f"{found.words} We offered {', '.join(ours)}."
        return Finding(found.code, words, found.remedy)
    common = {name.upper() for name in ours} & {name.upper() for name in theirs}
    words = (
        f"{found.words} This side has {', '.join(ours)}, the other {', '.join(theirs)[:120]}"
        f"{'' if common else ': nothing in common'}."
    )
    return Finding(found.code, words, found.remedy)
