"""A call's recognition by whatever turns the sound of a whole turn into text."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from qwen3tts_phone.recognise.base import PartialTaker, Samples, Transcript
from qwen3tts_phone.recognise.errors import RecognitionFailed, RecognitionTimeout
from qwen3tts_phone.recognise.joining import joined
from qwen3tts_phone.recognise.turn_audio import LONGEST_S, TurnAudio

log = logging.getLogger(__name__)

Work = Callable[[Samples], Awaitable[Transcript]]
"""Turns samples [n] into text; cancelled when nobody wants it any more. Raises SpeechError."""


@dataclass(frozen=True, slots=True)
class TurnRules:
    """How a call's turns become work."""

    rate_hz: int
    early: bool = True
    """Begin at a pause, not only when the turn is over."""
    piece_s: float | None = None
    """Work on a turn longer than this piece by piece, while the caller speaks; None = at once."""
    timeout_s: float = 15.0
    """How long a turn's text may take after its end."""
    longest_s: float = LONGEST_S
    """Sound of one turn that is kept; of a longer one the beginning is lost."""
    late: Callable[[], str] = lambda: "Use a faster recogniser, or allow more time."
    """What to do when a text did not come in time."""


@dataclass(slots=True)
class _Turn:
    """A turn's work."""

    pieces: list[asyncio.Task[Transcript]] = field(default_factory=list)
    """Of what the caller said first and the sound of which is given away."""
    guess: asyncio.Task[Transcript] | None = None
    """Of the rest, as if the turn ended at the pause."""

    def give_up(self) -> None:
        """Nobody wants it."""
        for each in (*self.pieces, *filter(None, [self.guess])):
            each.cancel()


class TurnRecognition:
    """One call's; see `Recognition`."""

    def __init__(
        self, work: Work, rules: TurnRules, on_partial: PartialTaker | None = None
    ) -> None:
        self._work = work
        self._rules = rules
        self._on_partial = on_partial
        self._audio = TurnAudio(rules.rate_hz, longest_s=rules.longest_s)
        self._turn: _Turn | None = None
        self._tasks: set[asyncio.Task[Transcript]] = set()
        self._closed = False

    def push(self, samples: Samples, at: float) -> None:
        """Take the caller's sound; see `Recognition`."""
        self._audio.push(samples, at)
        turn, piece_s = self._turn, self._rules.piece_s
        if turn is None or piece_s is None or turn.guess is not None:
            return
        if self._audio.duration_s > piece_s:
            turn.pieces.append(self._begin(self._audio.cut(piece_s)))
            self._tell(turn, turn.pieces[-1])

    def begin_turn(self, at: float) -> None:
        """The caller speaks since ``at``; see `Recognition`."""
        if self._turn is not None:
            self._turn.give_up()
        self._audio.begin(at)
        self._turn = None if self._closed else _Turn()

    def pause(self, at: float) -> None:
        """The caller is silent since ``at``; see `Recognition`."""
        turn = self._turn
        if turn is None or turn.guess is not None or not self._rules.early:
            return
        turn.guess = self._begin(self._audio.samples(until=at))
        self._tell(turn, turn.guess)

    def resume(self) -> None:
        """They speak on; see `Recognition`."""
        turn = self._turn
        if turn is not None and turn.guess is not None:
            turn.guess.cancel()
            turn.guess = None

    def drop_turn(self) -> None:
        """It was a noise; see `Recognition`."""
        if self._turn is not None:
            self._turn.give_up()
            self._turn = None
        self._audio.end()

    def end_turn(self, at: float) -> Coroutine[Any, Any, Transcript]:
        """The turn is over from this call on; see `Recognition` for what comes of it."""
        turn, self._turn = self._turn, None
        rest = self._audio.samples(until=at)
        self._audio.end(at)
        return self._text(turn, rest)

    async def close(self) -> None:
        """The call is over; see `Recognition`."""
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
                return joined([*parts, await self._last(turn, rest)])
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

    def _begin(self, samples: Samples) -> asyncio.Task[Transcript]:
        async def work() -> Transcript:
            return await self._work(samples)

        task = asyncio.get_running_loop().create_task(work(), name="recognise a turn")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Transcript]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits for it has it; if nobody does, nobody misses it

    def _tell(self, turn: _Turn, task: asyncio.Task[Transcript]) -> None:
        """Say what is understood so far, once this is done and if it still holds."""

        def done(_: object) -> None:
            if self._on_partial is None or turn is not self._turn:
                return
            known = [*turn.pieces, *filter(None, [turn.guess])]
            if task not in known:
                return
            good = [each for each in known if each.done() and _good(each)]
            if len(good) == len(known):
                self._on_partial(joined([each.result() for each in good]))

        if self._on_partial is not None:
            task.add_done_callback(done)


def _good(task: asyncio.Task[Transcript]) -> bool:
    return not task.cancelled() and task.exception() is None


async def _result(task: asyncio.Task[Transcript]) -> Transcript:
    """What a task gives; one that was cancelled by the call's end is a failure, not a cancel."""
    await asyncio.wait([task])
    if task.cancelled():
        raise _over()
    return task.result()


def _over() -> RecognitionFailed:
    return RecognitionFailed("The call was over before a turn's text came.")
