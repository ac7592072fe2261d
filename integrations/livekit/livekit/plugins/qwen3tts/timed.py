"""Words with their times, cut so that they join to the very text that was given."""

from __future__ import annotations

from collections.abc import Iterable

from livekit.agents.types import TimedString

from qwen3tts_wire.heard import Word


class TimedText:
    """Turns words into pieces of the text, in order and without a hole."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._char = 0
        """Code points given out."""

    def pieces(self, text: str, words: Iterable[Word]) -> list[TimedString]:
        """The words as pieces of ``text``.

        With the space before them and the signs that close them. Times are seconds from the first
        sample. Words told again are left out.
        """
        out = []
        for word in words:
            if word.char_start < self._char:
                continue
            end = word.char_end
            while end < len(text) and not text[end].isalnum() and not text[end].isspace():
                end += 1
            start_s, end_s = word.start / self._rate_hz, word.end / self._rate_hz
            out.append(TimedString(text[self._char : end], start_time=start_s, end_time=end_s))
            self._char = end
        return out

    def rest(self, text: str) -> list[TimedString]:
        """What has no word: signs and spaces at the end. Nothing where no word was told."""
        begin, self._char = self._char, len(text)
        return [TimedString(text[begin:])] if begin and text[begin:] else []
