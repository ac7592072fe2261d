"""Recognition by turns: pieces, early and partial texts."""

from __future__ import annotations

import asyncio
import logging
import unicodedata
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from qwen3tts_phone.detection.recogniser import (
    PartialCallback,
    Recognition,
    RecognitionFailed,
    RecognitionTimeout,
    Samples,
    Transcript,
)
from qwen3tts_phone.detection.turn_buffer import LONGEST_S, TurnBuffer

_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "IDEOGRAPHIC")
"""Beginnings of Unicode names of characters whose scripts put no blanks between words."""


def joined_transcripts(parts: Sequence[Transcript]) -> Transcript:
    text = ""
    for part in parts:
        piece = part.text.strip()
        blank = " " if text and piece and not (_unspaced(text[-1]) or _unspaced(piece[0])) else ""
        text += blank + piece
    spoken = [part for part in parts if part.text.strip()]
    language = max(spoken, key=lambda part: len(part.text)).language if spoken else ""
    sure = [part.confidence for part in spoken if part.confidence is not None]
    return Transcript(text, language, min(sure) if sure and len(sure) == len(spoken) else None)


def _unspaced(char: str) -> bool:
    return unicodedata.name(char, "").startswith(_UNSPACED)


log = logging.getLogger(__name__)

MIN_NEW_AUDIO_S = 0.15
"""New audio before the next partial text in a pause."""
PARTIAL_RETRY_S = 0.06
"""New audio before a partial text is attempted again that had to give way to other work."""
PARTIAL_INTERVAL_FACTOR = 2.0
"""Interval of partial texts as a multiple of what the last one took: one call takes at most half of
a core.
"""

SHORT_PAUSE_S = 0.1
"""Silence that makes a short pause; most stops inside words are shorter."""
BELOW_DB = 22.0
"""Level below the turn's loudest sound that is silence; the same as in speech detection."""
FALL_DB_S = 6.0
"""Decay of the loudest: people grow quieter."""
FAINT_DBFS = -60.0


class ShortPauseDetector:
    """Detector of short silences in a turn, by level (pure)."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._loudest = FAINT_DBFS
        self._quiet_s = 0.0
        self._spoken = False

    @property
    def in_pause(self) -> bool:
        return self._quiet_s >= SHORT_PAUSE_S - 1e-6

    @property
    def spoken(self) -> bool:
        return self._spoken

    def mark_covered(self) -> None:
        self._spoken = False

    def mark_uncovered(self) -> None:
        self._spoken = True

    def push(self, samples: Samples) -> None:
        if not len(samples):
            return
        seconds = len(samples) / self._rate_hz
        signal = samples.astype(np.float32)
        power = float(signal @ signal) / len(signal)
        dbfs = 10 * float(np.log10(power / 32768.0**2 + 1e-12))
        self._loudest = max(self._loudest - FALL_DB_S * seconds, dbfs, FAINT_DBFS)
        if dbfs < max(self._loudest - BELOW_DB, FAINT_DBFS):
            self._quiet_s += seconds
        else:
            self._quiet_s, self._spoken = 0.0, True


RecogniseSamples = Callable[[Samples], Awaitable[Transcript]]
"""Recognises samples [n]; cancelled when its text is not needed any more. Raises SpeechError."""


@dataclass(frozen=True, slots=True)
class TurnRecognitionOptions:
    """Options of `TurnRecognition`."""

    rate_hz: int
    early: bool = True
    """Begin at a pause, not only when the turn is over."""
    every_s: float | None = None
    """Recognise the turn so far after this much more speech, and in each short pause; None = at
    pauses alone.
    """
    piece_s: float | None = None
    """Recognise a turn longer than this piece by piece, while the caller speaks; None = as a whole.
    """
    timeout_s: float = 15.0
    """Time limit of a turn's text after its end."""
    longest_s: float = LONGEST_S
    """Audio of one turn that is kept; of a longer one the beginning is lost."""
    late: Callable[[], str] = lambda: "Use a faster recogniser, or allow more time."
    """Returns the remedy for a text that did not come in time."""


R = TypeVar("R", bound=Recognition)


class OpenRecognitions(Generic[R]):
    """Open recognitions of a recogniser, which end with it."""

    def __init__(self) -> None:
        self._open: weakref.WeakSet[R] = weakref.WeakSet()
        self._closed = False

    def check(self) -> None:
        """Raise RecognitionFailed where the recogniser is closed."""
        if self._closed:
            raise RecognitionFailed("The recogniser is closed.")

    def add(self, recognition: R) -> R:
        self._open.add(recognition)
        return recognition

    async def close(self) -> None:
        self._closed = True
        for recognition in list(self._open):
            await recognition.close()
        self._open.clear()


@dataclass(slots=True, eq=False)
class _Turn:
    pauses: ShortPauseDetector
    pieces: list[asyncio.Task[Transcript]] = field(default_factory=list)
    """Recognition of the turn's beginning, whose audio is not kept."""
    guess: asyncio.Task[Transcript] | None = None
    """Recognition of the rest, as if the turn ended at the pause."""
    partial: asyncio.Task[Transcript] | None = None
    """Recognition of the rest as it was a moment ago."""
    busy: bool = False
    """True if a partial text is under way."""
    covered: int = 0
    """Samples of the rest that the partial text covers."""
    not_before_s: float = 0.0
    """Length of the rest at which the next partial text may begin."""

    def give_up(self) -> None:
        for each in (*self.pieces, *filter(None, [self.guess, self.partial])):
            each.cancel()


class TurnRecognition:
    """Recognition of one call turn by turn; see `Recognition`."""

    def __init__(
        self,
        work: RecogniseSamples,
        rules: TurnRecognitionOptions,
        on_partial: PartialCallback | None = None,
        spare_work: RecogniseSamples | None = None,
    ) -> None:
        self._work = work
        self._spare_work = spare_work
        self._rules = rules
        self._on_partial = on_partial
        self._audio = TurnBuffer(rules.rate_hz, longest_s=rules.longest_s)
        self._turn: _Turn | None = None
        self._tasks: set[asyncio.Task[Transcript]] = set()
        self._closed = False

    def push(self, samples: Samples, at: float) -> None:
        self._audio.push(samples, at)
        turn, piece_s = self._turn, self._rules.piece_s
        if turn is None:
            return
        turn.pauses.push(samples)
        if turn.guess is not None:
            return
        if piece_s is not None and self._audio.duration_s > piece_s:
            if turn.partial is not None:
                turn.partial.cancel()
                turn.partial = None
            turn.pieces.append(self._begin(self._audio.cut(piece_s), self._work_retried))
            turn.not_before_s = self._audio.duration_s + MIN_NEW_AUDIO_S
            self._tell(turn, turn.pieces[-1])
        else:
            self._ahead(turn)

    def begin_turn(self, at: float) -> None:
        if self._turn is not None:
            self._turn.give_up()
        self._audio.begin(at)
        self._turn = None if self._closed else _Turn(ShortPauseDetector(self._rules.rate_hz))

    def pause(self, at: float) -> None:
        turn = self._turn
        if turn is None or turn.guess is not None or not self._rules.early:
            return
        if (known := self._known(turn, at)) is not None:
            turn.guess = known
            if known.done():  # reported before the pause: now it is the text of a paused turn
                self._tell(turn, known)
            return
        if turn.partial is not None:
            turn.partial.cancel()
            turn.partial = None
        turn.guess = self._begin(self._audio.samples(until=at))
        self._tell(turn, turn.guess)

    def resume(self) -> None:
        turn = self._turn
        if turn is not None and turn.guess is not None:
            if turn.guess is not turn.partial:
                turn.guess.cancel()
            turn.guess = None

    def drop_turn(self) -> None:
        if self._turn is not None:
            self._turn.give_up()
            self._turn = None
        self._audio.end()

    def end_turn(self, at: float) -> Coroutine[Any, Any, Transcript]:
        turn, self._turn = self._turn, None
        if turn is not None and turn.guess is None:
            turn.guess = self._known(turn, at)
        rest = self._audio.samples(until=at)
        self._audio.end(at)
        return self._text(turn, rest)

    async def close(self) -> None:
        self._closed = True
        self._turn = None
        self._audio.end()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _text(self, turn: _Turn | None, rest: Samples) -> Transcript:
        if self._closed:
            raise _over()
        if turn is None:
            return Transcript("")
        try:
            async with asyncio.timeout(self._rules.timeout_s):
                parts = [await _result(piece) for piece in turn.pieces]
                return joined_transcripts([*parts, await self._last(turn, rest)])
        except TimeoutError:
            raise RecognitionTimeout(
                f"A turn's text did not come within {self._rules.timeout_s:g} s.",
                remedy=self._rules.late(),
            ) from None
        finally:
            turn.give_up()

    async def _last(self, turn: _Turn, rest: Samples) -> Transcript:
        if turn.guess is not None:
            try:
                return await _result(turn.guess)
            except RecognitionFailed as error:
                if self._closed or isinstance(error, RecognitionTimeout):
                    raise
                log.debug("what was begun at the pause failed (%s); once more", error.code)
        if not len(rest):
            return Transcript("")
        turn.guess = self._begin(rest)
        return await _result(turn.guess)

    async def _work_retried(self, samples: Samples) -> Transcript:
        """Recognise a piece, whose audio is not kept, a second time where that fails."""
        try:
            return await self._work(samples)
        except RecognitionTimeout:
            raise
        except RecognitionFailed as error:
            log.debug("a piece failed (%s); once more", error.code)
            return await self._work(samples)

    def _ahead(self, turn: _Turn) -> None:
        every_s, now_s = self._rules.every_s, self._audio.duration_s
        if every_s is None or self._spare_work is None or not turn.pauses.spoken:
            return
        if turn.busy:
            return
        began_s = turn.covered / self._rules.rate_hz if turn.partial is not None else 0.0
        due = now_s - began_s >= (MIN_NEW_AUDIO_S if turn.pauses.in_pause else every_s)
        if not due or now_s < turn.not_before_s:
            return
        samples = self._audio.samples()
        turn.partial, turn.covered = self._begin(samples, self._spare_work), len(samples)
        turn.pauses.mark_covered()
        turn.busy = True
        turn.partial.add_done_callback(lambda task: self._took(turn, task, now_s))
        self._tell(turn, turn.partial)

    def _took(self, turn: _Turn, task: asyncio.Task[Transcript], began_s: float) -> None:
        turn.busy = False
        if turn is not self._turn or turn.partial is not task:
            return
        if _good(task):
            took_s = max(0.0, self._audio.duration_s - began_s)
            turn.not_before_s = began_s + PARTIAL_INTERVAL_FACTOR * took_s
        else:  # there was other work
            turn.partial = None
            turn.not_before_s = self._audio.duration_s + PARTIAL_RETRY_S
            turn.pauses.mark_uncovered()

    def _known(self, turn: _Turn, at: float) -> asyncio.Task[Transcript] | None:
        partial = turn.partial
        if partial is None or turn.covered < self._audio.before(at):
            return None
        return partial if not partial.done() or _good(partial) else None

    def _begin(
        self, samples: Samples, how: RecogniseSamples | None = None
    ) -> asyncio.Task[Transcript]:
        async def work() -> Transcript:
            return await (how or self._work)(samples)

        task = asyncio.get_running_loop().create_task(work(), name="recognise a turn")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Transcript]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it

    def _tell(self, turn: _Turn, task: asyncio.Task[Transcript]) -> None:

        def done(_: object) -> None:
            if self._on_partial is None or turn is not self._turn:
                return
            known = [*turn.pieces, *filter(None, [turn.guess or turn.partial])]
            if task not in known:
                return
            good = [each for each in known if each.done() and _good(each)]
            if len(good) == len(known):
                self._on_partial(joined_transcripts([each.result() for each in good]))

        if self._on_partial is not None:
            task.add_done_callback(done)


def _good(task: asyncio.Task[Transcript]) -> bool:
    return not task.cancelled() and task.exception() is None


async def _result(task: asyncio.Task[Transcript]) -> Transcript:
    await asyncio.wait([task])
    if task.cancelled():
        raise _over()
    return task.result()


def _over() -> RecognitionFailed:
    return RecognitionFailed("The call was over before a turn's text came.")
