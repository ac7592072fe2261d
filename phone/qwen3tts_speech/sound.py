"""Sound in a call beside speech: recordings, and live sound.

::

    live = speaker.live()
    await live.push(samples, 48_000)  # in real time
    live.close()

Live sound is a series of contexts, a `LiveSpell` for each time that the line is free. Utterances
and recordings go first (``gives_way``), or wait until it is closed. Its delay is bounded: beyond
`BOUND_S` (a stall, DTMF, a hold) the oldest is dropped; below, quiet parts.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from typing import Final

import numpy as np

from qwen3tts_codecs.pcm import Pcm, to_bytes
from qwen3tts_codecs.resample import Resampler
from qwen3tts_pacer.policy import LIVE_KEY, LIVE_LEAD_S
from qwen3tts_pacer.slot import Frame
from qwen3tts_pacer.states import PacerError
from qwen3tts_pacer.utterance_encoder import UtteranceEncoder
from qwen3tts_speech.frame_writer import FrameWriter
from qwen3tts_speech.latency import UtteranceRecord
from qwen3tts_speech.playout_queue import PlayoutQueue
from qwen3tts_wire.errors import SpeechError

BLOCK_S = 0.1


class Sound:
    """Recording in progress; starts when its turn has come."""

    live = False

    def __init__(self, speaker: PlayoutQueue, number: int, samples: Pcm, rate_hz: int) -> None:
        self.number = number
        self.written = asyncio.Event()
        """Set when all frames are with the sink."""
        self._speaker = speaker
        self._samples = samples
        self._block = max(1, int(rate_hz * BLOCK_S))
        self._interrupted = self._running = False
        self._writer = FrameWriter(speaker, self, rate_hz, UtteranceRecord("", str(number)))
        self._task = asyncio.create_task(self._run(), name=f"sound {number}")
        # Else asyncio logs an error that no caller retrieved.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def played(self) -> bool:
        """Wait for its end; False = interrupted. Raises SpeechError after the call."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(self._task)
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise asyncio.CancelledError
        return not self._interrupted

    @property
    def stopped(self) -> bool:
        return self._interrupted

    def give_way(self) -> None: ...

    def stop(self) -> None:
        self._interrupted = True
        if self._running:  # a task cancelled before its first step would never tell its end
            self._task.cancel()

    def change(self) -> None:
        self._writer.change()

    async def settled(self, most_s: float | None = None) -> None:
        await asyncio.wait([self._task], timeout=most_s)

    async def _run(self) -> None:
        self._running = True
        try:
            if self._interrupted:
                raise asyncio.CancelledError
            for start in range(0, len(self._samples), self._block):
                await self._writer.push(to_bytes(self._samples[start : start + self._block]), "")
                await asyncio.sleep(0)  # a sink with room does not yield by itself
            await self._writer.flush("")
            self._writer.finish()
            self.written.set()
            if self._writer.begun:
                await self._speaker.sink.drained(self.number)
        finally:
            with contextlib.suppress(SpeechError):  # the call may be over
                if not self._interrupted:
                    self._writer.finish()
            self.written.set()
            self._speaker.ended(self)


BOUND_S: Final = 0.2
"""Longest wait; a longer delay makes people talk over each other (ITU-T G.114)."""
KEPT_S: Final = 0.06
"""The newest audio that is kept of more: it outlasts the jitter of a busy machine."""
SPARE_S: Final = 0.08
"""Delay above which quiet parts are left out."""
AHEAD_S: Final = LIVE_LEAD_S
"""Greatest lead in the sink: it cannot be taken back."""
FADE_S: Final = 0.005
"""Crossfade over what was left out."""
QUIET: Final = 0.1
"""Level of a pause relative to the voice (recent RMS)."""
QUIET_RMS: Final = 60.0
"""Level that is quiet in any case."""
FORGETTING: Final = 0.995
"""Decay of the voice's level, each push."""
OVER = (SpeechError, PacerError)
"""Errors of a sink whose call is over."""
REMEMBERED: Final = 128
"""Frames remembered for `LiveSound.made`."""


class LiveSound:
    """One live source; `push` from one task.

    Args:
        speaker: the call's speaker.
        gives_way: drop this sound while others are on the line; else it holds the line until
            closed.
    """

    def __init__(self, speaker: PlayoutQueue, *, gives_way: bool = True) -> None:
        self.gives_way = gives_way
        self.closed = False
        self.dropped_s = 0.0
        """Sound dropped: the line was taken, or there was too much."""
        self.left_out_s = 0.0
        """Pauses shortened to catch up with a delay."""
        self.spells = 0
        self._speaker = speaker
        self._spell: LiveSpell | None = None
        self._waiting: deque[Pcm] = deque()
        self._rate_hz = 0
        """Rate of the first samples; other rates are resampled to it."""
        self._resampler: Resampler | None = None
        self._level = 0.0
        self._cut: Pcm | None = None
        """Sound left out just before what waits."""
        self._made: deque[tuple[bytes, bytes | None, bytes | None]] = deque(maxlen=REMEMBERED)
        if not gives_way:
            self._claim()

    @property
    def on_the_line(self) -> bool:
        return self._spell is not None and self._spell.begun and not self._spell.written.is_set()

    @property
    def delay_s(self) -> float:
        spell = self._spell
        return self._here_s + (spell.waiting_s if spell is not None else 0.0)

    async def push(self, samples: Pcm, rate_hz: int) -> None:
        """Take int16 samples, shape [n], in real time.

        Raises SpeechError after the call, ValueError for an invalid rate.
        """
        if self.closed or not len(samples):
            return
        self._rate_hz = self._rate_hz or rate_hz
        if rate_hz != self._rate_hz:
            if self._resampler is None or self._resampler.from_hz != rate_hz:
                self._resampler = Resampler(rate_hz, self._rate_hz)
            samples = self._resampler.push(samples)
        else:
            self._resampler = None
        self._waiting.append(samples)
        if not await self._has_line():
            self._forget()
            return
        self._keep_up()
        self._give()

    def close(self) -> None:
        """End the source; what waits is played if it has the line."""
        if self.closed:
            return
        self.closed = True
        if self._spell is not None and self.on_the_line:
            with contextlib.suppress(*OVER):
                while self._waiting:
                    self._spell.push(self._next())
        self._forget()
        self._end()

    def made(self, payload: bytes) -> bool:
        return any(payload in forms for forms in self._made)

    # --- inside

    @property
    def _here_s(self) -> float:
        return sum(map(len, self._waiting)) / self._rate_hz if self._rate_hz else 0.0

    async def _has_line(self) -> bool:
        spell = self._spell
        if spell is None or spell.written.is_set():
            if not self._speaker.takes_live():
                return False
            spell = self._claim()
        if not spell.begun:
            if not self._speaker.takes_live(before=spell.number):
                return False
            await self._speaker.sink.room()
            if spell.written.is_set():  # it has given way meanwhile, or all is over
                return False
            spell.begin(self._rate_hz)
            self.spells += 1
        return True

    def _claim(self) -> LiveSpell:
        self._spell = self._speaker.begins(lambda number: LiveSpell(self._speaker, self, number))
        return self._spell

    def _keep_up(self) -> None:
        spell = self._spell
        assert spell is not None
        delay_s = self.delay_s
        if delay_s > BOUND_S:
            while len(self._waiting) > 1 and delay_s > KEPT_S:
                cut = self._waiting.popleft()
                self._cut = cut if self._cut is None else self._cut
                delay_s -= len(cut) / self._rate_hz
                self.dropped_s += len(cut) / self._rate_hz
            return
        newest = self._waiting[-1]
        level = math.sqrt(float(np.mean(np.square(newest, dtype=np.float64))))
        self._level = max(level, self._level * FORGETTING)
        quiet = level <= max(QUIET_RMS, QUIET * self._level)
        newest_s = len(newest) / self._rate_hz
        if quiet and delay_s - newest_s > SPARE_S:
            self._waiting.pop()  # between two pauses there is no step
            self.left_out_s += newest_s

    def _give(self) -> None:
        spell = self._spell
        assert spell is not None
        while self._waiting and not spell.pending and spell.waiting_s < AHEAD_S:
            spell.push(self._next())

    def _next(self) -> Pcm:
        samples = self._waiting.popleft()
        if self._cut is not None:
            samples, self._cut = _faded(self._cut, samples, self._rate_hz), None
        return samples

    def _forget(self) -> None:
        self.dropped_s += self._here_s
        self._waiting.clear()
        self._cut = None

    def _end(self) -> None:
        if self._spell is not None:
            self._spell.end()
            self._spell = None

    def cut_off(self) -> None:
        if not (self.gives_way or self.closed or self._speaker.closed):
            self._claim()

    def remember(self, frame: Frame) -> None:
        self._made.append((frame.payload, frame.tail, frame.head))


class LiveSpell:
    """Live sound while it has the line: one context."""

    live = True

    def __init__(self, speaker: PlayoutQueue, sound: LiveSound, number: int) -> None:
        self.number = number
        self.written = asyncio.Event()
        """Set when nothing more of it follows."""
        self.stopped = False
        self.pending: list[Frame] = []
        """Frames that the sink has not taken yet."""
        self._speaker = speaker
        self._sound = sound
        self._encoder: UtteranceEncoder | None = None
        self._draining: asyncio.Task[None] | None = None

    @property
    def begun(self) -> bool:
        return self._encoder is not None

    @property
    def waiting_s(self) -> float:
        here_s = len(self.pending) * self._speaker.ptime_ms / 1000
        return here_s + self._speaker.sink.waiting_s(self.number)

    def begin(self, rate_hz: int) -> None:
        speaker = self._speaker
        encoder = UtteranceEncoder(rate_hz, speaker.payload, speaker.ptime_ms, self.number)
        speaker.sink.begin(self.number, LIVE_KEY)
        self._encoder = encoder

    def push(self, samples: Pcm) -> None:
        """Encode and write. Raises SpeechError after the call."""
        assert self._encoder is not None
        self._keep(self._encoder.push(to_bytes(samples)))
        self._write()

    def end(self) -> None:
        if self.written.is_set():
            return
        self.written.set()
        if self._encoder is None:
            self._speaker.ended(self)
            return
        with contextlib.suppress(*OVER):
            self._keep(self._encoder.flush())
            self._write()
            self._speaker.sink.finish(self.number)
        self.pending.clear()
        self._draining = asyncio.create_task(self._drained(), name=f"live sound {self.number}")

    # --- for `Speaker`

    def give_way(self) -> None:
        if self._sound.gives_way:
            self.end()

    def stop(self) -> None:
        going = not self.written.is_set()
        self.stopped = True
        self.pending.clear()
        self.written.set()
        if self._draining is None:
            self._speaker.ended(self)
        else:
            self._draining.cancel()
        if going:
            self._sound.cut_off()

    def change(self) -> None:
        encoder, speaker = self._encoder, self._speaker
        if encoder is None:
            return
        if self.written.is_set():
            speaker.sink.finish(self.number)
        else:  # a frame is lost, and what the sink has flushed
            self.pending.clear()
            encoder.resume(speaker.payload, speaker.ptime_ms, encoder.position)

    async def settled(self, most_s: float | None = None) -> None:
        if self._draining is not None:
            await asyncio.wait([self._draining], timeout=most_s)

    # --- inside

    def _keep(self, frames: list[Frame]) -> None:
        for frame in frames:
            self._sound.remember(frame)
        self.pending += frames

    def _write(self) -> None:
        if self.pending:
            del self.pending[: self._speaker.sink.write(self.pending)]

    async def _drained(self) -> None:
        try:
            with contextlib.suppress(*OVER):
                await self._speaker.sink.drained(self.number)
        finally:
            self._speaker.ended(self)


def _faded(cut: Pcm, samples: Pcm, rate_hz: int) -> Pcm:
    count = min(int(rate_hz * FADE_S), len(cut), len(samples))
    share = np.arange(1, count + 1) / (count + 1)
    mixed = cut[:count] * (1.0 - share) + samples[:count] * share
    return np.concatenate((np.rint(mixed).astype(np.int16), samples[count:]))
