"""Turns of a call with audio and text, in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import RateConverter
from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.detection.events import Turn, TurnEnded
from qwen3tts_phone.detection.noise_suppression import RATES_HZ, NoiseSuppressor
from qwen3tts_phone.detection.recogniser import (
    Recogniser,
    Recognition,
    RecognitionFailed,
    Transcript,
)
from qwen3tts_phone.detection.settings import NoiseMode
from qwen3tts_phone.detection.turn_buffer import PRE_ROLL_S, TurnBuffer
from qwen3tts_phone.errors import traceback_without_message
from qwen3tts_speech.utterance import Utterance
from qwen3tts_wire.errors import SpeechError

Samples = NDArray[np.int16]

MIN_GAP_S: Final = 0.03
"""Least missing media time that is filled with silence..."""
MAX_GAP_S: Final = 2.0
"""...up to this."""
MIN_ARRIVAL_GAP_S: Final = 0.2
"""The same by times of arrival, which jitter, where timestamps stand still."""


class GapMeter:
    """Meter of gaps between frames (pure): some far ends send nothing in pauses."""

    def __init__(self) -> None:
        self._next: int | None = None
        self._clock_hz = 8000
        self._last_at = 0.0

    def hole_s(self, frame: HeardFrame) -> float:
        hole = 0.0
        if self._next is not None and frame.clock_hz == self._clock_hz:
            length = round(frame.duration_s * frame.clock_hz)
            if frame.timestamp != self._next - length:  # it moves
                missing = (frame.timestamp - self._next) / frame.clock_hz
                hole = missing if missing >= MIN_GAP_S else 0.0
            else:
                missing = frame.at - self._last_at - frame.duration_s
                hole = missing if missing >= MIN_ARRIVAL_GAP_S else 0.0
        self._next = frame.timestamp + round(frame.duration_s * frame.clock_hz)
        self._clock_hz = frame.clock_hz
        self._last_at = frame.at
        return min(hole, MAX_GAP_S)


class HeardSound:
    """Sound of a call as a recogniser has it (pure): at its rate, with the noise suppressed."""

    def __init__(self, rate_hz: int, noise_suppression: NoiseMode) -> None:
        self.late_s = 0.0
        """Time by which what was returned last ends before what was pushed."""
        self._to_rate = RateConverter(rate_hz)
        self._mode: NoiseMode = noise_suppression
        self._suppressor: NoiseSuppressor | None = None
        self._to_suppressor = RateConverter(RATES_HZ[0])

    def push(self, samples: Samples, rate_hz: int) -> Samples:
        if self._mode == "off":
            return self._to_rate.push(samples, rate_hz)
        narrow, wide = RATES_HZ
        at_hz = narrow if rate_hz <= narrow else wide
        if self._suppressor is None or self._suppressor.rate_hz != at_hz:
            self._suppressor = NoiseSuppressor(at_hz, always=self._mode == "on")
            self._to_suppressor = RateConverter(at_hz)
        suppressed = self._suppressor.push(self._to_suppressor.push(samples, rate_hz))
        self.late_s = self._suppressor.held_samples / at_hz
        return self._to_rate.push(suppressed, at_hz)


logger = logging.getLogger(__name__)

Deliver = Callable[[Turn], None]


class TurnTranscriber:
    """Transcriber of turns of at most ``most_s``; without a recogniser no text."""

    def __init__(
        self,
        recogniser: Recogniser | None,
        clock: Clock,
        most_s: float,
        noise_suppression: NoiseMode = "off",
    ) -> None:
        self.partial = ""
        """Partial text of the open turn."""
        self.guess = ""
        """Last text of the open turn that came while it was paused."""
        self.on_guess: Callable[[str], None] | None = None
        """Called with each such text, where it differs from the one before."""
        self.on_words: Callable[[Transcript, bool], None] | None = None
        """Called with each partial text of the open turn, and whether it is paused."""
        self.language = ""
        """Language of the last text that came with one."""
        self._paused = False
        self._recogniser = recogniser
        self._recognition: Recognition | None = None
        self._clock = clock
        self._longest_s = most_s + 2 * PRE_ROLL_S
        self._buffer: TurnBuffer | None = None
        self._to_buffer: RateConverter | None = None
        self._gaps = GapMeter()
        self._heard = (
            HeardSound(recogniser.rate_hz, noise_suppression) if recogniser is not None else None
        )
        self._last: asyncio.Task[None] | None = None
        """Delivery of the newest turn, after all before it."""
        self._failure: SpeechError | None = None
        """Reason why there is no recognition."""

    @property
    def recognises(self) -> bool:
        return self._recognition is not None

    @property
    def rate_hz(self) -> int:
        return self._buffer.rate_hz if self._buffer is not None else 8000

    async def open(self) -> None:
        if self._recogniser is not None:
            try:
                self._recognition = await self._recogniser.open(self._understood)
            except SpeechError as error:
                self._failure = error

    def push(self, frame: HeardFrame) -> None:
        hole_s = self._gaps.hole_s(frame)
        if hole_s:
            silence = np.zeros(round(hole_s * frame.rate_hz), np.int16)
            self._push(silence, frame.rate_hz, frame.at - frame.duration_s)
        if len(frame.samples):
            self._push(frame.samples, frame.rate_hz, frame.at)

    def begin(self, at: float) -> None:
        self.partial = self.guess = ""
        self._paused = False
        if self._buffer is not None:
            self._buffer.begin(at)
        if self._recognition is not None:
            self._recognition.begin_turn(at)

    def pause(self, at: float) -> None:
        self._paused = True
        if self._recognition is not None:
            self._recognition.pause(at)

    def resume(self) -> None:
        self._paused = False
        self.guess = ""  # the same text after more speech is another guess
        if self._recognition is not None:
            self._recognition.resume()

    def so_far(self, longest_s: float) -> NDArray[np.int16]:
        return self._turn_samples()[-round(longest_s * self.rate_hz) :]

    def give_up(self) -> None:
        if self._recognition is not None:
            self._recognition.drop_turn()
        self._end_turn()
        self.partial = self.guess = ""

    def end(
        self, ended: TurnEnded, stopped: tuple[Utterance, ...], keys: str, deliver: Deliver
    ) -> None:
        turn = Turn(
            keys=keys,
            began_at=ended.began_at,
            ended_at=ended.ended_at,
            decided_at=ended.at,
            transcribed_at=ended.at,
            why=ended.why,
            barge_in=ended.cut_in or bool(stopped),
            interrupted=stopped,
            samples=self._end_turn(),
            rate_hz=self.rate_hz,
            error=self._failure,
            rule=ended.rule,
            guess=self.guess,
        )
        if self._recognition is None or ended.why == "noise":
            if self._recognition is not None:
                self._recognition.drop_turn()
            self.deliver(turn, deliver)
            return
        # Called here and not in the task: what is heard from now on belongs to the next turn.
        text = asyncio.create_task(_text(self._recognition.end_turn(ended.ended_at)))
        self._then(self._with_text(turn, text, self._last, deliver))

    def deliver(self, turn: Turn, deliver: Deliver) -> None:
        if self._last is None or self._last.done():
            deliver(turn)
        else:
            self._then(_after(self._last, turn, deliver))

    async def settled(self) -> None:
        if self._last is not None:
            await asyncio.wait([self._last])

    async def close(self) -> None:
        if self._last is not None:
            self._last.cancel()
        if self._recognition is not None:
            await self._recognition.close()

    # --- inside

    def _push(self, samples: NDArray[np.int16], rate_hz: int, at: float) -> None:
        if self._buffer is None or self._to_buffer is None:
            # Samples at the rates of later codecs are brought to that of the first.
            self._buffer = TurnBuffer(rate_hz, longest_s=self._longest_s)
            self._to_buffer = RateConverter(rate_hz)
        self._buffer.push(self._to_buffer.push(samples, rate_hz), at)
        if self._recognition is not None and self._heard is not None:
            taken = self._heard.push(samples, rate_hz)
            if len(taken):
                self._recognition.push(taken, at - self._heard.late_s)

    def _turn_samples(self) -> NDArray[np.int16]:
        return self._buffer.samples() if self._buffer is not None else np.zeros(0, np.int16)

    def _end_turn(self) -> NDArray[np.int16]:
        self._paused = False
        samples = self._turn_samples()
        if self._buffer is not None:
            self._buffer.end()
        return samples

    def _understood(self, so_far: Transcript) -> None:
        self.partial = so_far.text
        self.language = so_far.language or self.language
        if self.on_words is not None:
            self.on_words(so_far, self._paused)
        guess = so_far.text.strip()
        if self._paused and guess and guess != self.guess:
            self.guess = guess
            if self.on_guess is not None:
                self.on_guess(guess)

    def _then(self, delivering: Coroutine[Any, Any, None]) -> None:
        self._last = asyncio.create_task(delivering, name="a turn's text")

    async def _with_text(
        self,
        turn: Turn,
        text: asyncio.Task[Transcript | SpeechError],
        before: asyncio.Task[None] | None,
        deliver: Deliver,
    ) -> None:
        try:
            result = await text
            at = self._clock.now()
            if before is not None:
                await asyncio.wait([before])
        except asyncio.CancelledError:
            text.cancel()
            raise
        if isinstance(result, SpeechError):
            deliver(replace(turn, transcribed_at=at, error=result))
            return
        deliver(
            replace(
                turn,
                text=result.text,
                language=result.language,
                confidence=result.confidence,
                transcribed_at=at,
            )
        )


async def _text(ending: Awaitable[Transcript]) -> Transcript | SpeechError:
    try:
        return await ending
    except SpeechError as error:
        return error
    except Exception as error:
        logger.error("the recogniser failed\n%s", traceback_without_message(error))
        return RecognitionFailed(
            "The recogniser failed.", remedy="Its traceback is in this program's log."
        )


async def _after(before: asyncio.Task[None], turn: Turn, deliver: Deliver) -> None:
    await asyncio.wait([before])
    deliver(turn)
