"""SIP failure statuses (RFC 3261 section 21 and later): meaning, remedy, outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_CODECS = (
    "Compare the codecs and the encryption of both sides: allow PCMU or PCMA there, and make SRTP "
    "optional, or required on both."
)
_SESSION = "The other side does not accept how we describe the sound."
_FORWARDING = "Check the forwarding at the number called, and the outbound proxy."


@dataclass(frozen=True, slots=True)
class StatusMeaning:
    """One row of the table of statuses."""

    code: str
    """Code of the finding, one of `qwen3tts_phone.diagnosis.findings.CODES`."""
    outcome: str
    """Value of `qwen3tts_phone.diagnosis.outcome.Outcome`."""
    sentence: str
    remedy: str


_CREDENTIALS = StatusMeaning(
    "no_password",
    "not_allowed",
    "The server asks for a password.",
    "Give the user name and password of an account that may call there.",
)

STATUSES: Final[dict[int, StatusMeaning]] = {
    401: _CREDENTIALS,
    402: StatusMeaning(
        "payment",
        "not_allowed",
        "The account has no credit.",
        "Pay for it, or ask the operator of the server.",
    ),
    403: StatusMeaning(
        "forbidden",
        "not_allowed",
        "The server forbids the call.",
        "Check that the account may call such numbers, that this machine's address is allowed "
        "there, and that the caller's number shown is one of the account's.",
    ),
    404: StatusMeaning(
        "wrong_number",
        "wrong_number",
        "The server knows no such number or user.",
        "Check how the number is written: providers want +COUNTRY NUMBER or a prefix of their own.",
    ),
    405: StatusMeaning(
        "not_supported",
        "failed",
        "The server does not take calls at that address.",
        "Check the address: it may be a registrar only, or another port may take the calls.",
    ),
    406: StatusMeaning("codec", "failed", _SESSION, _CODECS),
    407: _CREDENTIALS,
    408: StatusMeaning(
        "timeout",
        "unreachable",
        "The server got no answer from the phone called.",
        "Check that the phone is registered and reachable, then call again.",
    ),
    410: StatusMeaning(
        "wrong_number", "wrong_number", "The number is no longer in use.", "Ask for the new one."
    ),
    413: StatusMeaning(
        "not_supported", "failed", "The server found our message too large.", "Offer fewer codecs."
    ),
    415: StatusMeaning("codec", "no_codec", _SESSION, _CODECS),
    420: StatusMeaning(
        "not_supported",
        "failed",
        "The server lacks an extension that we required.",
        "Turn session timers, PRACK or encryption from required to optional.",
    ),
    421: StatusMeaning(
        "not_supported",
        "failed",
        "The server requires an extension that this call did not offer.",
        "Its log names the extension; turn it off for this phone there.",
    ),
    480: StatusMeaning(
        "unavailable",
        "unavailable",
        "The phone is known, but cannot be reached now.",
        "Check that the phone is switched on and registered; call again later.",
    ),
    481: StatusMeaning(
        "dialog_lost",
        "failed",
        "The other side no longer knew of the call.",
        "It or a server between was restarted, or messages went to another machine: check that "
        "one address always leads to the same server.",
    ),
    482: StatusMeaning(
        "loop", "failed", "The call went round in a circle between servers.", _FORWARDING
    ),
    483: StatusMeaning("loop", "failed", "The call passed through too many servers.", _FORWARDING),
    484: StatusMeaning(
        "wrong_number",
        "wrong_number",
        "The number is too short.",
        "Give all of it, with the area code.",
    ),
    485: StatusMeaning(
        "wrong_number",
        "wrong_number",
        "The number fits several phones.",
        "Give it with country and area.",
    ),
    486: StatusMeaning("busy", "busy", "The line is busy.", "Call again later."),
    487: StatusMeaning(
        "cancelled",
        "cancelled",
        "The call was given up before it was answered.",
        "Call again if it is still wanted.",
    ),
    488: StatusMeaning("codec", "no_codec", _SESSION, _CODECS),
    491: StatusMeaning(
        "glare",
        "failed",
        "Both sides wanted to change the call at the same moment.",
        "Try again; if it happens at every call, turn session refreshes off on one side.",
    ),
    493: StatusMeaning(
        "encryption",
        "failed",
        "The server cannot read an encrypted body.",
        "Turn S/MIME off there.",
    ),
    500: StatusMeaning(
        "server_failed",
        "failed",
        "The server there has failed.",
        "Its log says more; try again later.",
    ),
    502: StatusMeaning(
        "server_failed",
        "unavailable",
        "A gateway behind the server has failed.",
        "Try again later.",
    ),
    503: StatusMeaning(
        "overloaded",
        "unavailable",
        "The server has no room or is being serviced.",
        "Call again later; with a trunk, check how many concurrent calls were bought.",
    ),
    504: StatusMeaning(
        "server_failed",
        "unreachable",
        "A server behind the server did not answer.",
        "Try again later.",
    ),
    513: StatusMeaning(
        "not_supported",
        "failed",
        "The server found our message too large.",
        "Use TCP or fewer codecs.",
    ),
    600: StatusMeaning("busy", "busy", "The line is busy wherever it rings.", "Call again later."),
    603: StatusMeaning(
        "declined",
        "declined",
        "The call was declined.",
        "The person did not want it, or a provider blocks the caller's number: check the "
        "number shown.",
    ),
    604: StatusMeaning(
        "wrong_number", "wrong_number", "There is no such number anywhere.", "Check the number."
    ),
    606: StatusMeaning("codec", "no_codec", _SESSION, _CODECS),
    607: StatusMeaning(
        "declined",
        "declined",
        "The person called does not want such calls.",
        "Do not call again.",
    ),
    608: StatusMeaning(
        "declined",
        "declined",
        "A service of the callee blocks the call.",
        "Ask its operator; the number shown may be listed as a nuisance.",
    ),
}
_CLASSES: Final[dict[int, StatusMeaning]] = {
    3: StatusMeaning(
        "moved",
        "moved",
        "The number has moved.",
        "Call the new address; the server did not name it.",
    ),
    5: StatusMeaning(
        "server_failed", "failed", "The server there has failed.", "Its log says more."
    ),
    6: StatusMeaning(
        "declined",
        "failed",
        "The call is refused wherever it rings.",
        "Another attempt will be refused as well.",
    ),
}
_OTHER: Final = StatusMeaning(
    "refused", "failed", "The call was refused.", "The log of that server says more."
)


def meaning_of(status: int) -> StatusMeaning:
    return STATUSES.get(status) or _CLASSES.get(status // 100, _OTHER)
