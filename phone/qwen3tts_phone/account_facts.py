"""How a call's account stands with its registrar, for the call's record."""

from __future__ import annotations

from qwen3tts_phone.call_facts import RegistrationFacts
from qwen3tts_phone.sip.line import Line


def registration_facts(line: Line | None, *, draining: bool = False) -> RegistrationFacts | None:
    """What is known of an account's registration; None for a trunk, and without an account."""
    if line is None or line.registration is None:
        return None
    registration, error = line.registration, line.registration.error
    if draining:
        # It was taken back on purpose: nothing is wrong with it.
        return RegistrationFacts(state="unregistered", server=registration.server)
    ran_out = registration.expires_at is not None  # it was granted, and is no longer
    return RegistrationFacts(
        state="registered"
        if registration.bound
        else ("expired" if ran_out else "failed" if error else "trying"),
        server=registration.server,
        user=line.account.auth_user or line.account.user,
        realm=getattr(error, "realm", ""),
        status=getattr(error, "status", None),
        error=error,
    )
