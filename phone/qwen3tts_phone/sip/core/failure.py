"""Errors and remedies for refusals, timeouts and failed look-ups."""

from __future__ import annotations

from qwen3tts_phone.errors import CalleeUnreachable, CallError, CallRefused, RegistrationFailed
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_phone.sip.message.message import Response
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transaction.digest import Digest, challenges
from qwen3tts_phone.sip.transaction.transaction import Failure

_REMEDIES = {
    400: "See the registrar's log; it did not understand the request.",
    401: "Check the user name and the password.",
    403: "Check the user name and the password; the account may be blocked.",
    404: "Check the user name; the registrar does not know it.",
    405: "Check the registrar's address; what answers there is no registrar.",
    407: "Check the user name and the password.",
    423: "Ask for a longer time (expires).",
    503: "The registrar has no room or is being serviced; it is asked again.",
}


def call_refused(
    response: Response, digest: Digest | None, *, what: str = "call", remedy: str = ""
) -> CallRefused:
    realm = user = ""
    if response.status in (401, 407):
        realm = next((challenge.realm for challenge in challenges(response)), "")
        user = digest.user if digest is not None else ""
        if not remedy:
            remedy = _unanswered(response.unanswered) or _remedy(realm, user)
    reason = response.reason
    return CallRefused(
        response.status,
        reason,
        remedy=remedy,
        what=what,
        realm=realm,
        user=user,
        withheld=response.unanswered,
    )


def _unanswered(why: str) -> str:
    if not why:
        return ""
    return f"The password was not used: {why}. Where that is right, say so in realm or digest."


def _remedy(realm: str, user: str) -> str:
    where = f"The realm {realm[:80]!r}" if realm else "The server"
    if not user:
        return f"{where} asks for a password: give the user name and password of an account there."
    if not realm:
        return f"{where} asks for a password in a way that is not understood (Digest is)."
    return (
        f"{where} goes on asking for the password of the user {user[:80]!r}: check user name and "
        "password, and whether that account may do this."
    )


def registration_refused(response: Response, account: Account) -> RegistrationFailed:
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


def registration_unanswered(
    failure: Failure, hop: Hop, cause: CallError | None
) -> RegistrationFailed:
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


def registrar_not_found(error: OSError, account: Account) -> RegistrationFailed:
    return RegistrationFailed(
        f"The registrar {account.proxy or account.registrar!r} has no address ({error}).",
        remedy="Check its spelling and the name server.",
        why="dns",
    )


def host_not_found(server: str, error: OSError) -> CalleeUnreachable:
    return CalleeUnreachable(
        f"The host of {server!r} has no address ({error.strerror or error}).",
        remedy="Check its spelling and the name server.",
        why="dns",
    )
