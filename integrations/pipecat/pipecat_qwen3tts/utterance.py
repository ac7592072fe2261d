"""One audio context of Pipecat, and the server's context that makes its sound."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Iterable

from qwen3tts_wire.client import Cancelled, Context
from qwen3tts_wire.heard import Word

UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
"""Scripts that put no space between words, as the names of their characters begin."""
SECOND_NS = 1_000_000_000


class Utterance:
    """How far a context was spoken, given to the pipeline, and heard. Times are nanoseconds."""

    def __init__(self, context: Context, *, interruptible: bool = True) -> None:
        self.context = context
        self.interruptible = interruptible
        self.reader: asyncio.Task[None] | None = None
        """Takes what the server sends."""
        self.watch: asyncio.Task[None] | None = None
        """Waits until the text stands still."""
        self.ended = False
        """No more text follows."""
        self.failed = False
        """The server gave it up; the error was reported."""
        self.told = 0
        """Code points of its text whose words are known."""
        self.announced = 0
        """Code points of its text that Pipecat has cut into sentences."""
        self._samples = 0
        self._first = 0
        """The sample that Pipecat counts times from."""
        self._waits: list[tuple[int, int]] = [(0, 0)]
        """From which sample on all is heard so much later, since the sound ran out before it."""
        self.until_ns = 0
        """When what was given to the pipeline will have been heard."""

    def given(self, samples: int, until_ns: int) -> None:
        """``samples`` more went down the pipeline; the last is heard at ``until_ns``."""
        began_ns = until_ns - self._ns(samples)
        if self._samples > self._first and began_ns > self.until_ns:
            wait_ns = self._waits[-1][1] + began_ns - self.until_ns
            self._waits.append((self._samples, wait_ns))
        self._samples += samples
        self.until_ns = until_ns

    def _ns(self, samples: float) -> int:
        return int(samples * SECOND_NS / self.context.format.sample_rate)

    def heard_s(self, position: float, now_ns: int) -> float:
        """When a sample is heard, seconds from the first, as far as that is known by ``now_ns``."""
        wait_ns = next(wait for first, wait in reversed(self._waits) if first <= position)
        if self._first < self._samples <= position:
            wait_ns += max(0, now_ns - self.until_ns)
        return (self._ns(position - self._first) + wait_ns) / SECOND_NS

    def restart(self) -> None:
        """Pipecat has closed the audio context; more sound begins another of the same name."""
        self._first = self._samples
        self._waits = [(0, 0)]

    def played(self, now_ns: int) -> int:
        """Samples that were heard by ``now_ns``."""
        left_ns = max(0, self.until_ns - now_ns)
        left = -(-left_ns * self.context.format.sample_rate // SECOND_NS)
        return max(0, self._samples - left)

    def over(self, now_ns: int) -> bool:
        """Whether nothing of it is left to be made or heard."""
        given = self._samples >= self.context.received
        return self.context.over and given and self.until_ns <= now_ns

    def cancel(self, now_ns: int) -> asyncio.Future[Cancelled]:
        """Stop it where the listener is now."""
        return self.context.cancel(self.played(now_ns))

    def spoken(self, words: Iterable[Word], now_ns: int) -> list[tuple[str, float, bool]]:
        """Yield each word with its closing signs, seconds until heard, own spacing.

        A word counts as heard when half of it was played, as in the server's ``text_heard``.
        """
        text = self.context.text
        out = []
        for word in words:
            if word.char_start < self.told:
                continue  # told again by another server
            end = word.char_end
            while end < len(text) and not text[end].isalnum() and not text[end].isspace():
                end += 1
            self.told = end
            piece = text[word.char_start : end]
            heard_s = self.heard_s((word.start + word.end) / 2, now_ns)
            out.append((piece, heard_s, unspaced(piece)))
        return out


def unspaced(word: str) -> bool:
    """Whether the word is of a script that writes without spaces."""
    return unicodedata.name(word[:1] or " ", "").startswith(UNSPACED)
