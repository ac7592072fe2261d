"""Attempts to speak one context on one connection after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from qwen3tts_wire.errors import ConnectionLost
from qwen3tts_wire.heard import Word
from qwen3tts_wire.messages import ContextOpen
from qwen3tts_wire.resume import ResumeJoin, ResumePoint, UnalignedTail, resume_point


class ContextAttempt:
    """Mapping of positions to the current server.

    ``begin`` and ``join`` move it to the next.
    """

    def __init__(self, opened: ContextOpen) -> None:
        self.opened = opened
        """Sent ``context.open``."""
        self.base = 0
        """Context position of this server's first sample."""
        self.char = 0
        """Start of its text."""
        self.pending_join: ResumeJoin | None = None
        """Set until joined."""
        self.paid = 0
        """Queued samples already credited."""
        self.clauses = 0
        """Clauses of all servers."""
        self._skip = 0
        """Omitted samples."""
        self._attempts = 0
        self._last_sound: float | None = None
        self._reason = ""
        self._written = 0
        self._first_offset_s: float | None = None
        self._marks_ms = 0.0

    # --- positions ---

    def there(self, position: int) -> int:
        return 0 if self.pending_join is not None else max(0, position - self.base + self._skip)

    def position(self, there: int) -> int:
        return (
            self.base if self.pending_join is not None else self.base + max(0, there - self._skip)
        )

    def here(self, word: Word) -> Word:
        return self.in_text(word.moved(self.base - self._skip))

    def in_text(self, word: Word) -> Word:
        return replace(
            word, char_start=word.char_start + self.char, char_end=word.char_end + self.char
        )

    def marks(self, marks: Mapping[str, float]) -> Mapping[str, float]:
        if not self._marks_ms:
            return marks
        return {name: value + self._marks_ms for name, value in marks.items()}

    # --- sound ---

    def fruitful(self, now: float) -> None:
        self._attempts = 0
        self._last_sound = now

    def owed(self, samples: int) -> int:
        """Return the taken samples that need credit."""
        paid = min(self.paid, samples)
        self.paid -= paid
        return samples - paid

    # --- another server ---

    def lose(
        self,
        reason: str,
        offset_s: float,
        text: str,
        words: Sequence[Word],
        got: int,
        tail: UnalignedTail,
    ) -> ResumePoint:
        """Note a loss with clock offset; return the continuation."""
        if self._first_offset_s is None:
            self._first_offset_s = offset_s
        self._reason = reason
        self._written = len(text)
        self.pending_join = None
        return resume_point(text, words, got, tail, self._written)

    def count_attempt(self, most: int) -> None:
        """Count a server; ConnectionLost after ``most`` without audio."""
        self._attempts += 1
        if self._attempts > most:
            raise ConnectionLost(
                f"{most} servers in turn were lost before they said anything of this text.",
                remedy="Look at the server's log.",
            )

    def begin(
        self,
        opened: ContextOpen,
        offset_s: float,
        text: str,
        words: Sequence[Word],
        got: int,
        tail: UnalignedTail,
    ) -> None:
        """Start at another server with the remaining text."""
        made = resume_point(text, words, got, tail, self._written)
        self.opened = opened
        self.base = got
        self.char = made.char
        self.pending_join = ResumeJoin(made, opened.format)
        self._skip = 0
        if self._first_offset_s is not None:
            self._marks_ms = 1000 * (self._first_offset_s - offset_s)

    def join(self, position: int, now: float) -> tuple[int, float, str]:
        """Place this server's audio at ``position``.

        Returns:
            Text position, gap in seconds, reason.
        """
        assert self.pending_join is not None
        passed = self.pending_join.passed
        char = self.char + (passed[-1].char_end if passed else 0)
        self.base, self._skip = position, self.pending_join.skip
        self.pending_join = None
        gap_s = 0.0 if self._last_sound is None else now - self._last_sound
        return char, gap_s, self._reason
