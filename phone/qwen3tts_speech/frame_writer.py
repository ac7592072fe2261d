"""Encoder towards the sink, and transcoder after a codec change."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import numpy as np

from qwen3tts_codecs.frames import EncodedFrame, FrameEncoder
from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.pcm import PcmBytes, to_bytes
from qwen3tts_pacer.slot import Frame
from qwen3tts_pacer.utterance_encoder import UtteranceEncoder
from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_speech.playout_queue import PlayoutQueue, QueuedPlayout

BATCH = 8
"""Frames transcoded in one batch, up to 1 ms each: other calls wait meanwhile."""


class FrameTranscoder:
    """Transcoder of one context's waiting frames, in order and place.

    Args:
        before: frame sent last, so that the signal continues without a step.
    """

    def __init__(
        self,
        frames: Sequence[Frame],
        old: Payload,
        new: Payload,
        old_ptime_ms: int,
        new_ptime_ms: int,
        before: Frame | None = None,
    ) -> None:
        self._all = list(frames)
        self._waiting = deque(self._all)
        self._old, self._new = old, new
        self._old_ms, self._new_ms = old_ptime_ms, new_ptime_ms
        stateless = not (old.stateful or new.stateful)
        self._alike = stateless and old.sample_hz == new.sample_hz and old_ptime_ms == new_ptime_ms
        self._count = -(-len(self._all) * old_ptime_ms // new_ptime_ms)
        self._made = 0
        self._transcoded: deque[EncodedFrame] = deque()
        if self._alike or not frames:
            return
        self._decoder = old.decoder()
        silence = np.zeros(old.frame_samples(old_ptime_ms), np.int16)
        heard = self._decoder.decode(before.payload) if before is not None else silence
        self._encoder = FrameEncoder(old.sample_hz, old, old_ptime_ms)
        self._encoder.push(to_bytes(heard))
        self._transcoded.extend(self._encoder.switch(new, new_ptime_ms))

    @property
    def left(self) -> int:
        return self._count - self._made

    def take(self, most: int = BATCH) -> list[Frame]:
        """Return the next frames, at most so many; [] at the end."""
        count = min(most, self.left)
        if self._alike:
            self._made += count
            return [self._translated(self._waiting.popleft()) for _ in range(count)]
        while len(self._transcoded) < count and self._waiting:
            pcm = self._decoder.decode(self._waiting.popleft().payload)
            self._transcoded.extend(self._encoder.push(to_bytes(pcm)))
        if len(self._transcoded) < count:
            self._transcoded.extend(self._encoder.flush())
        taken = [self._transcoded.popleft() for _ in range(min(count, len(self._transcoded)))]
        frames = [self._placed(self._made + index, each) for index, each in enumerate(taken)]
        # What the encoder does not give at all can only be less than a frame.
        self._made = self._made + len(frames) if len(frames) == count else self._count
        return frames

    def _translated(self, frame: Frame) -> Frame:
        def translate(data: bytes) -> bytes:
            return self._new.encode(self._old.decode(data))

        return frame._replace(
            payload=translate(frame.payload),
            tail=translate(frame.tail) if frame.tail is not None else None,
            head=translate(frame.head) if frame.head is not None else None,
        )

    def _placed(self, index: int, encoded: EncodedFrame) -> Frame:
        start = self._position(index * self._new_ms)
        end = self._position((index + 1) * self._new_ms)
        payload, tail, head, _, silent = encoded
        return Frame(payload, tail, head, self._all[0].context, start, end, silent)

    def _position(self, ms: int) -> int:
        index, rest = divmod(ms, self._old_ms)
        if index >= len(self._all):
            return self._all[-1].end
        frame = self._all[index]
        return frame.start + round((frame.end - frame.start) * rest / self._old_ms)


SLICE_MS = 100
"""Audio encoded in one batch: other calls' packets have to leave meanwhile."""
COSTLY_SLICE_MS = 20
"""The same for a predictive codec: on a busy machine one Opus frame takes up to 10 ms."""


class FrameWriter:
    """Writer of one utterance's or sound's frames in its turn."""

    def __init__(
        self, speaker: PlayoutQueue, owner: QueuedPlayout, from_hz: int, record: UtteranceRecord
    ):
        self.begun = False
        """True if the sink has begun the context."""
        self.writing = False
        """True if frames wait for the sink."""
        self.released = asyncio.Event()
        """Set when frames may go to the sink; until then the first ones are kept."""
        self.released.set()
        self._speaker = speaker
        self._owner = owner
        self._record = record
        self._payload: Payload = speaker.payload
        self._ptime_ms = speaker.ptime_ms
        self._encoder = UtteranceEncoder(from_hz, speaker.payload, speaker.ptime_ms, owner.number)
        self._pending: list[Frame] = []
        """Frames that the sink has not taken yet."""
        self._former: FrameTranscoder | None = None
        """Frames of before a change of the codec; they go first."""
        self._transcoded: list[Frame] = []
        """Transcoded ones of these."""
        self._in_one_go = 0
        """Bytes encoded since other tasks ran."""
        self._finished = False

    async def push(self, pcm: PcmBytes, key: str) -> None:
        slice_ms = COSTLY_SLICE_MS if self._payload.stateful else SLICE_MS
        size = 2 * (self._encoder.from_hz * slice_ms // 1000)
        for start in range(0, len(pcm), size):
            piece = pcm[start : start + size]
            await self._write(self._encoder.push(piece), key)
            self._in_one_go += len(piece)
            if self._in_one_go >= size:  # what has come already is taken without a pause
                self._in_one_go = 0
                await asyncio.sleep(0)

    async def flush(self, key: str) -> None:
        await self._write(self._encoder.flush(), key)

    def finish(self) -> None:
        if self.begun and not self._finished:
            self._finished = True
            self._speaker.sink.finish(self._owner.number)

    def release(self) -> None:
        """Let frames go to the sink, under the owner's present number."""
        number = self._encoder.context = self._owner.number
        self._pending = [frame._replace(context=number) for frame in self._pending]
        self.released.set()

    def change(self) -> None:
        speaker = self._speaker
        new, ptime_ms = speaker.payload, speaker.ptime_ms
        if self._former is not None:  # once more, before the last time was done with
            self._pending[:0] = self._transcoded + self._former.take(self._former.left)
            self._transcoded = []
        self._former = FrameTranscoder(self._pending, self._payload, new, self._ptime_ms, ptime_ms)
        self._pending = self._encoder.switch(new, ptime_ms)
        if not self.released.is_set():  # a few: their number changes at the release
            self._pending[:0] = self._former.take(self._former.left)
            self._former = None
        self._note_audible(self._pending)
        self._payload, self._ptime_ms = new, ptime_ms

    def pump(self) -> None:
        if self.begun and not self._finished:
            self._pump()

    # --- inside

    async def _write(self, frames: list[Frame], key: str) -> None:
        self._note_audible(frames)
        self._pending += frames
        if not self._waits():
            return
        speaker, record, clock = self._speaker, self._record, self._speaker.clock
        self.writing = True
        if not self.begun:
            record.mark(Mark.RESAMPLED, clock.now())
            await self.released.wait()
            await speaker.turn_of(self._owner)
            await speaker.sink.room()
            speaker.sink.begin(self._owner.number, key)
            self.begun = True
        self._pump()
        record.mark(Mark.QUEUED, clock.now())
        record.generated_samples = self._encoder.position
        while self._waits():
            await speaker.sink.room()
            if self._pump():
                await asyncio.sleep(0)
        self.writing = False

    def _waits(self) -> bool:
        return bool(self._pending) or self._former is not None

    def _pump(self) -> bool:
        sink = self._speaker.sink
        if self._former is not None:
            self._transcoded = self._transcoded or self._former.take()
            if self._transcoded:
                del self._transcoded[: sink.write(self._transcoded)]
            if self._transcoded or self._former.left:
                return True
            self._former = None
        if self._pending:
            del self._pending[: sink.write(self._pending)]
        return False

    def _note_audible(self, frames: list[Frame]) -> None:
        for frame in frames:
            if not frame.silent:
                self._record.first_audible_sample(frame.start)
