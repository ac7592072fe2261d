"""Resuming contexts: policy, replay, attempts, join. Pure."""

from __future__ import annotations

import math
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

from qwen3tts_text.growing import GrowingText
from qwen3tts_text.surrogates import SurrogateJoiner, clean
from qwen3tts_wire.addresses import check_address
from qwen3tts_wire.errors import BadRequest, LimitExceeded
from qwen3tts_wire.formats import AudioFormat, audible, quietest
from qwen3tts_wire.heard import Word, heard
from qwen3tts_wire.states import CLIENT, ContextState, move


@dataclass(frozen=True)
class Resume:
    """Policy of reconnecting after a lost connection.

    Raises:
        ValueError: an invalid setting.
    """

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
        """Yield waits between attempts, seconds, without end.

        Each is shortened by up to half (``random``: 0 to 1), to spread the clients of a dead
        server.
        """
        wait = self.first_wait_s
        while True:
            yield min(wait, self.max_wait_s) * (1 - 0.5 * random())
            wait = min(2 * wait, self.max_wait_s)


class ReplayBuffer:
    """Text with flushes and end, for replay; positions in code points."""

    def __init__(self) -> None:
        self._text = GrowingText()
        self._joiner = SurrogateJoiner()
        self._flushes: list[int] = []
        self.ended = False

    def __str__(self) -> str:
        return str(self._text)

    def __len__(self) -> int:
        return len(self._text)

    @property
    def state(self) -> ContextState:
        return ContextState.ENDING if self.ended else ContextState.OPEN

    def add(self, text: str, most: int) -> str:
        """Append text with joined surrogates; return what is certain.

        Raises:
            BadRequest: not text.
            LimitExceeded: beyond ``most`` code points; nothing is kept.
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
        """End the text; return the addition for an unpaired surrogate."""
        move(CLIENT, self.state, "text.end")
        rest = self._joiner.finish()
        self._text.add(rest)
        self.ended = True
        return rest

    def rest(self, start: int) -> Iterator[tuple[str, bool]]:
        """Yield the text from ``start``, and whether a flush follows each piece."""
        text = str(self)
        for flush in self._flushes:
            if flush > start:
                yield text[start:flush], True
                start = flush
        if start < len(text):
            yield text[start:], False


TAIL_S = 5.0
"""Audio kept for matching."""
JOIN_TIMEOUT_S = 2.0
"""Audio without words, beyond the tail's length, before a cut by length."""
MARGIN_S = 0.02
"""Search range of the quietest place before a word, or its precision."""


class UnalignedTail:
    """Last audio received, words unknown."""

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
        """Return the first audible sample from ``start``, and the audible end."""
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
    """Continuation of a context, in the lost context's positions."""

    char: int
    """Start of the remaining text."""
    words: int
    """Aligned words received."""
    fragment: int
    """Samples of the repeated word, less than half of it."""
    tail_start: int
    """First sample of unaligned audio."""
    tail_end: int
    """End of unaligned audio."""
    received: int
    """Samples received."""
    written: int
    """Text length then, code points: later text is unsaid."""

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
    """Return the continuation of ``text`` after ``received`` samples and ``words``.

    ``written``: text length at the loss.
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
    """Audio and words of the new context until ``joined``.

    Omits ``skip`` new samples; ``passed`` words are old, ``pieces`` and ``words`` follow.
    """

    def __init__(self, made: ResumePoint, form: AudioFormat) -> None:
        self.cut = made
        self._form = form
        self._onset: int | None = None
        """First audible new sample."""
        self._end = 0
        self._known: list[Word] = []
        self._pieces: list[_Piece] = []
        self._taken = 0
        self.joined = made.tail <= 0
        self.skip = 0
        self.fragment = made.fragment
        """Old end samples to be repeated."""

    @property
    def passed(self) -> list[Word]:
        """Words spoken by the tail, at old positions."""
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
        """End the audio; the uncovered is omitted by length."""
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
