"""What a registrar's refusal or silence means, and what to do about it."""

from __future__ import annotations

from qwen3tts_phone.errors import CalleeUnreachable, CallError, RegistrationFailed
from qwen3tts_phone.sip.account import Account
from qwen3tts_phone.sip.auth import challenges
from qwen3tts_phone.sip.hop import Hop
from qwen3tts_phone.sip.message import Response
from qwen3tts_phone.sip.transaction import Failure

_REMEDIES = {
    400: "See the registrar's log; it did not understand the request.",
    401: "Check the user name and the password.",
    403: "Check the user name and the password; the account may be blocked.",
    404: "Check the user name; the registrar does not know it.",
    405: "Check the registrar's address; what is there is none.",
    407: "Check the user name and the password.",
    423: "Ask for a longer time (expires).",
    503: "The registrar has no room or is being serviced; it is asked again.",
}


def refused(response: Response, account: Account) -> RegistrationFailed:
    """The registrar's answer in words, with the realm and user that a password was asked for."""
    user = account.auth_user or account.user
    asked = challenges(response) if response.status in (401, 407) else []
    realm = asked[0].realm if asked else ""
    what = f"{response.status} {response.reason}".rstrip()
    text = f"The registrar answered {what} to {account.user!r}"
    if realm:
        text = f"{text} (user {user!r} of the realm {realm!r})"
    remedy = _REMEDIES.get(response.status, "Try again later.")
    if response.status in (401, 407) and not account.password:
        remedy = "Give the account's password."
    if asked == [] and response.status in (401, 407):
        remedy = "It asks for a kind of authentication that we do not have (Digest with MD5, "
        remedy += "SHA-256 or SHA-512-256)."
    if response.unanswered:
        remedy = f"The password was not used: {response.unanswered}."
    if 300 <= response.status < 400 and response.contact_uri is not None:
        remedy = f"It has moved; register with {response.contact_uri} instead."
    least = response.get("Min-Expires")
    if response.status == 423 and least is not None and least.strip().isdigit():
        remedy = f"Ask for a longer time (expires={least.strip()[:10]})."
    return RegistrationFailed(
        f"{text}.",
        remedy=remedy,
        status=response.status,
        realm=realm,
        user=user if realm else "",
        withheld=response.unanswered,
    )


def unanswered(failure: Failure, hop: Hop, cause: CallError | None) -> RegistrationFailed:
    """No answer, in words."""
    if cause is not None:
        why = cause.why if isinstance(cause, CalleeUnreachable) else "tls"
        failed = RegistrationFailed(
            f"The registrar cannot be reached: {cause.message}", remedy=cause.remedy, why=why
        )
        failed.__cause__ = cause
        return failed
    gone = failure is Failure.UNREACHABLE
    return RegistrationFailed(
        f"The registrar {hop.words} {'refused the connection' if gone else 'does not answer'}.",
        remedy="Check its address and port, and the network.",
        why="refused" if gone else "timeout",
    )


def not_found(error: OSError, account: Account) -> RegistrationFailed:
    """Its servers cannot be looked up."""
    return RegistrationFailed(
        f"The registrar {account.proxy or account.registrar!r} has no address ({error}).",
        remedy="Check its spelling and the name server.",
        why="dns",
    )
