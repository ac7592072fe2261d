"""Whether a browser is still there, by what comes from it (pure)."""

from __future__ import annotations

from qwen3tts_phone.errors import CallError, StreamLost
from qwen3tts_phone.softphone.settings import WebSettings

REPORTS_S = 8.0
"""Where the browser sends no sound, a report of its is due every five seconds or so (RFC 3550)."""
NETWORK = (
    "Check the network of the device that the page is on (Wi-Fi, mobile network, VPN), then call "
    "again."
)

NO_WAY = (
    "Let UDP pass between the device that the page is on and this machine: firewalls, VPNs, a "
    "guest Wi-Fi and containers without the host's network are in the way most often."
)


class LineWatch:
    """One call's, from the connection on. Times are seconds of the clock."""

    def __init__(self, settings: WebSettings, now: float) -> None:
        self._settings = settings
        self._sound_at = self._any_at = now
        self._told = False
        self._any_sound = False

    def sound(self, now: float) -> bool:
        """A packet of sound came; True: the first, or the first after a silence that was told."""
        news = self._told or not self._any_sound
        self._sound_at = self._any_at = now
        self._any_sound, self._told = True, False
        return news

    def report(self, now: float) -> bool:
        """Something else came; True: the first after a silence that was told."""
        news, self._told = self._told, False
        self._any_at = now
        return news

    @property
    def lost(self) -> bool:
        """Whether a silence was told, and lasts."""
        return self._told

    def silent_s(self, now: float) -> float:
        """For how long nothing at all has come."""
        return max(0.0, now - self._any_at)

    def news(self, now: float) -> float | None:
        """For how long nothing has come, where that is to be told now: once each time."""
        silent_s = self.silent_s(now)
        if self._told or silent_s < self._most_s():
            return None
        self._told = True
        return silent_s

    def vanished(self, now: float) -> CallError | None:
        """Why nobody waits any longer; None = all is well."""
        silent_s = self.silent_s(now)
        if silent_s < self._settings.vanished_s:
            return None
        return StreamLost(
            f"The connection to the browser is lost: nothing has come for {silent_s:.0f} s.",
            remedy=NETWORK,
        )

    def _most_s(self) -> float:
        """How long nothing may come before that is worth a word."""
        short_s = self._settings.silent_s
        # What sends its sound still and stops with all at once has lost the network; what has
        # stopped its sound before (a microphone that is off) is heard of by its reports alone.
        alone = self._any_at - self._sound_at
        steady = self._any_sound and alone < short_s
        return short_s if steady else max(short_s, REPORTS_S)
