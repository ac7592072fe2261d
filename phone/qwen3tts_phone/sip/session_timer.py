"""Session timers, RFC 4028: a call whose far end is gone is noticed, and ended, in the end.

One side refreshes the session by a re-INVITE at half the interval; the other hangs up when no
refresh has come shortly before the interval is over.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Literal

from qwen3tts_phone.sip.fields import delta_seconds
from qwen3tts_phone.sip.message import Request, Response

MIN_SE_S = 90
"""The smallest interval (section 4)."""
MAX_SE_S = 24 * 3600

Role = Literal["uac", "uas"]
"""Who sent the request that is being answered, and who answers it."""


class Due(Enum):
    """What a timer asks for."""

    NOTHING = auto()
    REFRESH = auto()
    EXPIRE = auto()


def session_expires(message: Request | Response) -> tuple[int, Role | None] | None:
    """Interval in seconds and refresher of a message, or None where there is none to be used."""
    value = message.get("Session-Expires")
    if value is None:
        return None
    seconds = delta_seconds(value, MAX_SE_S)
    if seconds is None:
        return None
    role: Role | None = None
    for parameter in value.split(";")[1:]:
        name, _, text = parameter.partition("=")
        if name.strip().lower() == "refresher":
            role = "uac" if text.strip().lower() == "uac" else "uas"
    return seconds, role


def min_se(message: Request | Response) -> int:
    """The least interval that a 422 wants."""
    least = delta_seconds(message.get("Min-SE"), MAX_SE_S)
    return MIN_SE_S if least is None else least


def too_brief(request: Request) -> bool:
    """Whether an INVITE asks for an interval below the least (section 9: 422)."""
    asked = session_expires(request)
    return asked is not None and asked[0] < MIN_SE_S and supports_timer(request)


def supports_timer(message: Request | Response) -> bool:
    """Whether the sender knows session timers."""
    options = (*message.values("Supported"), *message.values("Require"))
    return any(option.lower() == "timer" for option in options)


class SessionTimer:
    """The timer of one call; off until both sides agree on one."""

    def __init__(self, wanted_s: int) -> None:
        self.interval_s = 0
        """Seconds; 0 = off."""
        self.refresher = False
        """Whether refreshing is ours."""
        self._wanted_s = wanted_s
        self._refresh_at: float | None = None
        self._expires_at: float | None = None

    def ask(self, request: Request) -> None:
        """Put what we want into an INVITE or re-INVITE of ours (section 7.1)."""
        seconds = self.interval_s or self._wanted_s
        if not seconds:
            return
        # On a refresh the roles stay as they are (section 7.4).
        role = f";refresher={'uac' if self.refresher else 'uas'}" if self.interval_s else ""
        request.add("Session-Expires", f"{seconds}{role}")
        request.add("Min-SE", str(min(seconds, MIN_SE_S)))

    def answered(self, response: Response, now: float) -> None:
        """A 2xx to an INVITE of ours: what it says is what holds (section 7.2)."""
        agreed = session_expires(response)
        if agreed is None:
            self.stop()
            return
        # Section 4: none is below 90 s; a far end that says so must not make us refresh like mad.
        # Without a refresher, section 7.2 leaves it to the caller.
        self._start(agreed[0] and max(agreed[0], MIN_SE_S), agreed[1] != "uas", now)

    def answer(self, request: Request, response: Response, now: float) -> None:
        """Put our part into a 2xx to an INVITE of theirs (section 9)."""
        asked = session_expires(request)
        if asked is None or asked[0] < MIN_SE_S:
            self.stop()
            return
        able = supports_timer(request)
        # Whoever does not know the extension cannot be asked to refresh.
        role: Role = (asked[1] or "uac") if able else "uas"
        if role == "uac":
            response.add("Require", "timer")
        response.add("Session-Expires", f"{asked[0]};refresher={role}")
        self._start(asked[0], role == "uas", now)

    def refresh_failed(self, now: float) -> None:
        """The far end refused a refresh; it is tried again in what is left of the interval."""
        if self._expires_at is not None:
            self._refresh_at = now + max(5.0, (self._expires_at - now) / 2)

    def stop(self) -> None:
        """No timer from now on."""
        self.interval_s = 0
        self._refresh_at = self._expires_at = None

    def next_deadline(self) -> float | None:
        """When :meth:`due` is next worth asking."""
        known = [at for at in (self._refresh_at, self._expires_at) if at is not None]
        return min(known, default=None)

    def due(self, now: float) -> Due:
        """What is to be done now; each deadline is told once."""
        if self._expires_at is not None and now >= self._expires_at:
            self.stop()
            return Due.EXPIRE
        if self._refresh_at is not None and now >= self._refresh_at:
            self._refresh_at = None
            return Due.REFRESH
        return Due.NOTHING

    def _start(self, seconds: int, refresher: bool, now: float) -> None:
        if not seconds:
            self.stop()
            return
        self.interval_s, self.refresher = seconds, refresher
        # Section 10: half the interval; and a BYE the smaller of 32 s and a third before its end.
        self._refresh_at = now + seconds / 2 if refresher else None
        self._expires_at = now + seconds - min(32.0, seconds / 3)
