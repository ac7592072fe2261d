"""A refusal as an error: who asked for a password, and what it said about the one it got."""

from __future__ import annotations

from qwen3tts_phone.errors import CallRefused
from qwen3tts_phone.sip.auth import Digest, challenges
from qwen3tts_phone.sip.message import Response


def refused(
    response: Response, digest: Digest | None, *, what: str = "call", remedy: str = ""
) -> CallRefused:
    """The error for a final response of 300 to 699."""
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
