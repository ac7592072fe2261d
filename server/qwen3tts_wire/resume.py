"""Resuming contexts after a lost connection: policy, replay, attempts and their join. Pure."""

from __future__ import annotations

import math
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from qwen3tts_text.growing import GrowingText
from qwen3tts_text.surrogates import SurrogateJoiner, clean
from qwen3tts_wire.addresses import check_address
from qwen3tts_wire.errors import BadRequest, ConnectionLost, LimitExceeded
from qwen3tts_wire.formats import AudioFormat, audible, quietest
from qwen3tts_wire.heard import Word, heard
from qwen3tts_wire.messages import ContextOpen
from qwen3tts_wire.states import CLIENT, ContextState, move


@dataclass(frozen=True)
class Resume:
    """How a client reconnects after a lost connection. Raises ValueError for an invalid setting."""

    within_s: float = 10.0
    """Time to reconnect; then the contexts end with ConnectionLost."""
    first_wait_s: float = 0.05
    """Between the first attempt, made immediately, and the second."""
    max_wait_s: float = 1.0
    """Between two attempts at most; each wait is twice the one before."""
    fruitless: int = 3
    """Attempts without a sample after which a context ends: its
    text may be what breaks the servers."""
    elsewhere: tuple[str, ...] = ()
    """Further addresses that are tried after the client's own: other servers, which go on too."""

    def __post_init__(self) -> None:
        for url in self.elsewhere:
            check_address(url)
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name != "elsewhere" and (not math.isfinite(value) or value <= 0):
                raise ValueError(f"{each.name}={value} must be above 0")

    def waits(self, random: Callable[[], float]) -> Iterator[float]:
        """Yield the waits between attempts, in seconds, without end.

        Each is shortened by up to a half (``random`` gives 0 to 1), so that clients of a dead
        server do not all reconnect at the same moment.
        """
        wait = self.first_wait_s
        while True:
            yield min(wait, self.max_wait_s) * (1 - 0.5 * random())
            wait = min(2 * wait, self.max_wait_s)


class ReplayBuffer:
    """Text of a context with its flushes and its end, to send again. Positions are code points."""

    def __init__(self) -> None:
        self._text = GrowingText()
        self._joiner = SurrogateJoiner()
        self._flushes: list[int] = []
        self.ended = False
        """Whether no more text follows."""

    def __str__(self) -> str:
        return str(self._text)

    def __len__(self) -> int:
        return len(self._text)

    @property
    def state(self) -> ContextState:
        return ContextState.ENDING if self.ended else ContextState.OPEN

    def add(self, text: str, most: int) -> str:
        """Append text, with surrogates joined; return what became certain.

        Raises:
            BadRequest: it is not text.
            LimitExceeded: there would be more than ``most`` code points; nothing of it is kept.
            ProtocolError: the text has ended.
        """
        if not isinstance(text, str):
            raise BadRequest(f"Text must be a str, not {type(text).__name__}.")
        move(CLIENT, self.state, "text.append")
        if len(self) + len(clean(text)) > most:
            raise LimitExceeded(
                f"A context holds at most {most} characters of text.",
                remedy="End it and go on in another one.",
            )
        joined = self._joiner.push(text)
        self._text.add(joined)
        return joined

    def flush(self) -> None:
        move(CLIENT, self.state, "text.flush")
        if not self._flushes or self._flushes[-1] != len(self):
            self._flushes.append(len(self))

    def end(self) -> str:
        """End the text; return what this adds for an unpaired surrogate."""
        move(CLIENT, self.state, "text.end")
        rest = self._joiner.finish()
        self._text.add(rest)
        self.ended = True
        return rest

    def rest(self, start: int) -> Iterator[tuple[str, bool]]:
        """Yield the text from ``start`` on, each piece with whether a flush follows it."""
        text = str(self)
        for flush in self._flushes:
            if flush > start:
                yield text[start:flush], True
                start = flush
        if start < len(text):
            yield text[start:], False


TAIL_S = 5.0
"""Audio kept for the match; words that arrive later count as unaligned."""
JOIN_TIMEOUT_S = 2.0
"""Audio beyond the tail's length without a word, after which the cut is made by length alone."""
MARGIN_S = 0.02
"""Before a word's start the quietest place is looked for within this, or the word's precision."""


class UnalignedTail:
    """The last received audio of a context whose words may not be known."""

    def __init__(self, form: AudioFormat) -> None:
        self._form = form
        self._frames: deque[tuple[int, bytes]] = deque()
        self._samples = 0

    def push(self, offset: int, data: bytes) -> None:
        self._frames.append((offset, data))
        self._samples += len(data) // self._form.bytes_per_sample
        while self._samples > TAIL_S * self._form.sample_rate and len(self._frames) > 1:
            self._drop()

    def aligned_to(self, end: int) -> None:
        while self._frames and self._end(0) <= end:
            self._drop()

    def clear(self) -> None:
        self._frames.clear()
        self._samples = 0

    def after(self, start: int) -> tuple[int, int]:
        """Return the first audible sample from ``start`` on, and the end of the audible audio."""
        width = self._form.bytes_per_sample
        data = b"".join(each for _, each in self._frames)
        if not data:
            return start, start
        first = self._frames[0][0]
        skipped = max(0, start - first)
        begin, end = audible(data[skipped * width :], self._form)
        return first + skipped + begin, first + skipped + end

    def _end(self, index: int) -> int:
        offset, data = self._frames[index]
        return offset + len(data) // self._form.bytes_per_sample

    def _drop(self) -> None:
        _, data = self._frames.popleft()
        self._samples -= len(data) // self._form.bytes_per_sample


@dataclass(frozen=True)
class ResumePoint:
    """Where a context goes on. Positions are those of the lost context."""

    char: int
    """The rest of the text begins here."""
    words: int
    """How many of the aligned words were received."""
    fragment: int
    """Samples received of the word that is said again, less than half of it."""
    tail_start: int
    """First sample of the sound of which is not known what it says, ..."""
    tail_end: int
    """... and the first one after it."""
    received: int
    """Samples received."""
    written: int
    """Code points of the text then: what came later cannot have been said."""

    @property
    def tail(self) -> int:
        return self.tail_end - self.tail_start

    def nothing_left(self, text: str) -> bool:
        return not any(
            each.isalnum() or unicodedata.category(each).startswith("S")
            for each in text[self.char :]
        )


def resume_point(
    text: str, words: Sequence[Word], received: int, tail: UnalignedTail, written: int
) -> ResumePoint:
    """Return where ``text`` goes on after ``received`` samples with aligned ``words``.

    ``written`` is how much of the text existed when the server was lost.
    """
    known = heard(text, words, received)
    count, char = known.words_heard, len(known.text_heard)
    if count < len(words):
        fragment = max(0, received - max(words[count].start, words[count - 1].end if count else 0))
        return ResumePoint(char, count, fragment, received, received, received, written)
    start, end = tail.after(min(words[-1].end, received) if words else 0)
    return ResumePoint(char, count, 0, start, min(end, received), received, written)


@dataclass
class _Piece:
    offset: int
    data: bytes
    flags: int


class ResumeJoin:
    """Collects audio and words of the new context until their join is known (``joined``).

    ``skip`` samples of the new audio are left out, ``passed`` are words received before, ``pieces``
    and ``words`` follow.
    """

    def __init__(self, made: ResumePoint, form: AudioFormat) -> None:
        self.cut = made
        self._form = form
        self._onset: int | None = None
        """First audible sample of the new sound."""
        self._end = 0
        self._known: list[Word] = []
        self._pieces: list[_Piece] = []
        self._taken = 0
        self.joined = made.tail <= 0
        self.skip = 0
        self.fragment = made.fragment
        """Samples at the end of the old sound that are said again."""

    @property
    def passed(self) -> list[Word]:
        """Words that the tail has spoken, at their positions in the old audio."""
        shift = self.cut.tail_start - (self._onset or 0)
        moved, last = [], self.cut.tail_start
        for word in self._known[: self._taken]:
            start = min(max(word.start + shift, last), self.cut.received)
            end = min(max(word.end + shift, start), self.cut.received)
            moved.append(replace(word, start=start, end=end, precision="estimated"))
            last = end
        return moved

    @property
    def words(self) -> list[Word]:
        return self._known[self._taken :]

    @property
    def pieces(self) -> list[tuple[int, bytes, int]]:
        width = self._form.bytes_per_sample
        rest = []
        for each in self._pieces:
            out = max(0, self.skip - each.offset)
            if out * width < len(each.data):
                flags = each.flags if not out else 0
                rest.append((each.offset + out, each.data[out * width :], flags))
        return rest

    def audio(self, offset: int, data: bytes, flags: int) -> None:
        self._pieces.append(_Piece(offset, data, flags))
        self._end = offset + len(data) // self._form.bytes_per_sample
        if self._onset is None:
            first, end = audible(data, self._form)
            if end:
                self._onset = offset + first
        self._decide()

    def add_words(self, words: Sequence[Word]) -> None:
        self._known.extend(words)
        self._decide()

    def finish(self) -> None:
        """End the audio: what no word covers is left out by length."""
        if not self.joined:
            self._join(min(self._end, self._reached()) if self._pieces else 0)

    def _reached(self) -> int:
        return (self._onset or 0) + self.cut.tail

    def _decide(self) -> None:
        if self.joined or self._onset is None:
            return
        reached = self._reached()
        while self._taken < len(self._known):
            word = self._known[self._taken]
            if word.start > self._end:
                return
            late = word.char_start + self.cut.char >= self.cut.written
            if late or 2 * reached < word.start + word.end:
                self._before(word, reached)
                return
            self._taken += 1
        if self._end >= reached + JOIN_TIMEOUT_S * self._form.sample_rate:
            last = self._known[-1].end if self._known else 0
            self._join(max(last, reached))

    def _before(self, word: Word, reached: int) -> None:
        if self._taken == 0:
            self.fragment = max(0, self.cut.received - self.cut.tail_start)
            self._join(0)
            return
        previous = self._known[self._taken - 1]
        start = max(word.start, previous.end)
        old = self.cut.tail_start + start - (self._onset or 0)
        self.fragment = max(0, self.cut.received - old) if reached > start else 0
        margin = max(MARGIN_S, min(0.1, (word.precision_ms or 0) / 1000))
        low = max(
            start - int(margin * self._form.sample_rate), (previous.start + previous.end) // 2
        )
        self._join(min(word.start, low + quietest(self._between(low, start), self._form)))

    def _between(self, start: int, end: int) -> bytes:
        width = self._form.bytes_per_sample
        data = b"".join(each.data for each in self._pieces)
        return data[start * width : end * width]

    def _join(self, skip: int) -> None:
        self.skip = skip
        self.joined = True


class ContextAttempt:
    """Mapping between a context's positions and those of the current server.

    ``begin`` and ``join`` move it to the next server.
    """

    def __init__(self, opened: ContextOpen) -> None:
        self.opened = opened
        """The ``context.open`` sent to this server."""
        self.base = 0
        """Position in the context at which the sound of this server begins."""
        self.char = 0
        """Start of its text in that of the context."""
        self.pending_join: ResumeJoin | None = None
        """Set until the join of its audio is known."""
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
        """Convert a position of the context to this server's."""
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
        """Convert this server's times to the first server's clock."""
        if not self._marks_ms:
            return marks
        return {name: value + self._marks_ms for name, value in marks.items()}

    # --- sound ---

    def fruitful(self, now: float) -> None:
        self._attempts = 0
        self._last_sound = now

    def owed(self, samples: int) -> int:
        """Return how many of the samples taken from the queue need credit."""
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
        """Note a lost server with its clock offset; return where to go on."""
        if self._first_offset_s is None:
            self._first_offset_s = offset_s
        self._reason = reason
        self._written = len(text)
        self.pending_join = None
        return resume_point(text, words, got, tail, self._written)

    def count_attempt(self, most: int) -> None:
        """Count another server; ConnectionLost after ``most`` without audio."""
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
        """Start at another server with the rest of the text."""
        made = resume_point(text, words, got, tail, self._written)
        self.opened = opened
        self.base = got
        self.char = made.char
        self.pending_join = ResumeJoin(made, opened.format)
        self._skip = 0
        if self._first_offset_s is not None:
            self._marks_ms = 1000 * (self._first_offset_s - offset_s)

    def join(self, position: int, now: float) -> tuple[int, float, str]:
        """Place this server's audio at ``position``; return its text position, the gap in seconds,
        and the reason.
        """
        assert self.pending_join is not None
        passed = self.pending_join.passed
        char = self.char + (passed[-1].char_end if passed else 0)
        self.base, self._skip = position, self.pending_join.skip
        self.pending_join = None
        gap_s = 0.0 if self._last_sound is None else now - self._last_sound
        return char, gap_s, self._reason
