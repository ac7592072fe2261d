"""The part of a context that one server speaks: how its positions lie in the whole. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from qwen3tts_wire.alignment import Word
from qwen3tts_wire.errors import ConnectionLost
from qwen3tts_wire.messages import ContextOpen
from qwen3tts_wire.splice import Cut, Splice, Tail, cut


class Leg:
    """Between the positions of a context and those of the context that its server knows.

    There is one for the life of a context; ``begin`` and ``join`` move it to the next server.
    """

    def __init__(self, opened: ContextOpen) -> None:
        self.opened = opened
        """What this server was told."""
        self.base = 0
        """Position in the context at which the sound of this server begins."""
        self.char = 0
        """Where its text begins in that of the context."""
        self.splice: Splice | None = None
        """Set while it is not known where its sound joins."""
        self.paid = 0
        """Samples in the queue for which credit was given already."""
        self.clauses = 0
        """Clauses begun, of all servers."""
        self._skip = 0
        """Samples of this server that are left out."""
        self._attempts = 0
        self._last_sound: float | None = None
        self._reason = ""
        self._written = 0
        self._first_offset_s: float | None = None
        self._marks_ms = 0.0

    # --- positions ---

    def there(self, position: int) -> int:
        """A position of the context, as this server counts."""
        return 0 if self.splice is not None else max(0, position - self.base + self._skip)

    def position(self, there: int) -> int:
        """A position of this server, as the context counts."""
        return self.base if self.splice is not None else self.base + max(0, there - self._skip)

    def here(self, word: Word) -> Word:
        """A word told by this server, as the context counts."""
        return self.in_text(word.moved(self.base - self._skip))

    def in_text(self, word: Word) -> Word:
        """The same word, placed in the whole text."""
        return replace(
            word, char_start=word.char_start + self.char, char_end=word.char_end + self.char
        )

    def marks(self, marks: Mapping[str, float]) -> Mapping[str, float]:
        """Times of this server, on the clock of the first one."""
        if not self._marks_ms:
            return marks
        return {name: value + self._marks_ms for name, value in marks.items()}

    # --- sound ---

    def fruitful(self, now: float) -> None:
        """Sound came."""
        self._attempts = 0
        self._last_sound = now

    def owed(self, samples: int) -> int:
        """Of so many samples taken from the queue, those for which credit is to be given."""
        paid = min(self.paid, samples)
        self.paid -= paid
        return samples - paid

    # --- another server ---

    def lose(
        self, reason: str, offset_s: float, text: str, words: Sequence[Word], got: int, tail: Tail
    ) -> Cut:
        """The server is lost; ``offset_s`` is the offset of its clock. Where to go on."""
        if self._first_offset_s is None:
            self._first_offset_s = offset_s
        self._reason = reason
        self._written = len(text)
        self.splice = None
        return cut(text, words, got, tail, self._written)

    def count_attempt(self, most: int) -> None:
        """One more server is tried.

        Raises:
            ConnectionLost: ``most`` of them gave no sound.
        """
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
        tail: Tail,
    ) -> None:
        """Another server has the rest of the text, from ``char`` on."""
        made = cut(text, words, got, tail, self._written)
        self.opened = opened
        self.base = got
        self.char = made.char
        self.splice = Splice(made, opened.format)
        self._skip = 0
        if self._first_offset_s is not None:
            self._marks_ms = 1000 * (self._first_offset_s - offset_s)

    def join(self, position: int, now: float) -> tuple[int, float, str]:
        """The sound of this server begins at ``position``.

        Returns where in the text that is, the seconds since the last sound, and why it is so.
        """
        assert self.splice is not None
        passed = self.splice.passed
        char = self.char + (passed[-1].char_end if passed else 0)
        self.base, self._skip = position, self.splice.skip
        self.splice = None
        gap_s = 0.0 if self._last_sound is None else now - self._last_sound
        return char, gap_s, self._reason
