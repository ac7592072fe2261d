"""Whether a far end does what it should: begins the stream, sends sound, is there (pure)."""

from __future__ import annotations

from qwen3tts_phone.errors import CalleeUnreachable
from qwen3tts_phone.streams.settings import StreamSettings


class StreamWatch:
    """One stream's. Times are seconds of the clock."""

    def __init__(self, settings: StreamSettings, now: float) -> None:
        self._settings = settings
        self._opened_at = self._last_at = self._sound_at = now
        self._begun = False
        self._any_sound = False
        self._told = False

    def begun(self, now: float) -> None:
        """The far end has said which call it is."""
        self._begun = True
        self._sound_at = now

    def message(self, now: float) -> None:
        """Anything came."""
        self._last_at = now

    def sound(self, now: float) -> bool:
        """Sound came; True: for the first time, or after a silence that was told."""
        news = self._told or not self._any_sound
        self._sound_at, self._any_sound, self._told = now, True, False
        return news

    def silent_s(self, now: float) -> float | None:
        """How long no sound has come, where that is to be told now: once each time."""
        silent_s, most_s = now - self._sound_at, self._settings.media_silent_s
        if not self._begun or not most_s or self._told or silent_s < most_s:
            return None
        self._told = True
        return silent_s

    def lost(self, now: float, blocked_at: float | None = None) -> CalleeUnreachable | None:
        """Why nobody waits any longer; None = all is well.

        ``blocked_at``: since when it takes nothing of what it is sent; None = it takes all.
        """
        settings = self._settings
        if not self._begun:
            if now - self._opened_at < settings.start_s:
                return None
            return CalleeUnreachable(
                "The far end has not begun the stream: it never said which call it is.",
                remedy="Check that what connects here is of the kind that the path says.",
                why="session",
            )
        if not settings.vanished_s:
            return None
        if blocked_at is not None and now - blocked_at >= settings.vanished_s:
            return CalleeUnreachable(
                "The far end takes nothing any more of what it is sent.",
                remedy="Check the network between and the far end, then call again.",
                why="session",
            )
        if now - self._last_at < settings.vanished_s:
            return None
        return CalleeUnreachable(
            "The far end has vanished: nothing at all came any more.",
            remedy="Check the network between, then call again.",
            why="session",
        )
