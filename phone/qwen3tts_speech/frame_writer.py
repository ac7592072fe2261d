"""One utterance's way into the sink: samples in, frames of the call's codec out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from qwen3tts_codecs.frames import EncodedFrame, FrameEncoder
from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.frame import Frame
from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_speech.remaking import Remaking

if TYPE_CHECKING:
    from qwen3tts_codecs.pcm import PcmBytes
    from qwen3tts_speech.line import Live, Speaker

SLICE_MS = 100
"""So much sound is encoded in one go: packets of this process's calls have to leave meanwhile."""
COSTLY_SLICE_MS = 20
"""The same for a codec with memory, frame by frame: on a busy machine Opus takes up to 10 ms for
one."""


class FrameWriter:
    """Writes what one of a speaker's utterances or sounds consists of, when its turn has come."""

    def __init__(self, speaker: Speaker, owner: Live, from_hz: int, record: UtteranceRecord):
        self.begun = False
        """Whether the sink knows it."""
        self.writing = False
        """Whether frames wait for the sink, and not the sink for them."""
        self._speaker = speaker
        self._owner = owner
        self._record = record
        self._payload: Payload = speaker.payload
        self._ptime_ms = speaker.ptime_ms
        self._encoder = FrameEncoder(from_hz, speaker.payload, speaker.ptime_ms)
        self._pending: list[Frame] = []
        """Frames that the sink has not taken yet."""
        self._stale: Remaking | None = None
        """Those of before a change of the codec; they go first."""
        self._ready: list[Frame] = []
        """Of these, what has been made anew."""
        self._position = 0
        self._in_one_go = 0
        """Bytes that were encoded since others had their turn."""
        self._finished = False

    async def push(self, pcm: PcmBytes, key: str) -> None:
        """Take s16le bytes; ``key`` names what the history of arrivals goes by."""
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
        """The last frames, of what was pushed."""
        await self._write(self._encoder.flush(), key)

    def finish(self) -> None:
        """No more follows; once is enough."""
        if self.begun and not self._finished:
            self._finished = True
            self._speaker.sink.finish(self._owner.number)

    def change(self) -> None:
        """The speaker has another codec from now on; what waits is said in it."""
        speaker = self._speaker
        new, ptime_ms = speaker.payload, speaker.ptime_ms
        if self._stale is not None:  # once more, before the last time was done with
            self._pending[:0] = self._ready + self._stale.take(self._stale.left)
            self._ready = []
        self._stale = Remaking(self._pending, self._payload, new, self._ptime_ms, ptime_ms)
        self._pending = self._frames(self._encoder.switch(new, ptime_ms))
        self._payload, self._ptime_ms = new, ptime_ms

    def pump(self) -> None:
        """Write what waits, as far as there is room; in its turn alone."""
        if self.begun and not self._finished:
            self._pump()

    # --- inside

    async def _write(self, encoded: list[EncodedFrame], key: str) -> None:
        self._pending += self._frames(encoded)
        if not self._waits():
            return
        speaker, record, clock = self._speaker, self._record, self._speaker.clock
        self.writing = True
        if not self.begun:
            record.mark(Mark.RESAMPLED, clock.now())
            await speaker.turn_of(self._owner)
            await speaker.sink.room()
            speaker.sink.begin(self._owner.number, key)
            self.begun = True
        self._pump()
        record.mark(Mark.QUEUED, clock.now())
        record.generated_samples = self._position
        while self._waits():
            await speaker.sink.room()
            if self._pump():
                await asyncio.sleep(0)
        self.writing = False

    def _waits(self) -> bool:
        return bool(self._pending) or self._stale is not None

    def _pump(self) -> bool:
        """As much as the sink takes now; of what is made anew a few at a time: whether more of it
        is left."""
        sink = self._speaker.sink
        if self._stale is not None:
            self._ready = self._ready or self._stale.take()
            if self._ready:
                del self._ready[: sink.write(self._ready)]
            if self._ready or self._stale.left:
                return True
            self._stale = None
        if self._pending:
            del self._pending[: sink.write(self._pending)]
        return False

    def _frames(self, encoded: list[EncodedFrame]) -> list[Frame]:
        frames, position = [], self._position
        for payload, tail, head, samples, silent in encoded:
            end = position + samples
            frames.append(Frame(payload, tail, head, self._owner.number, position, end, silent))
            if not silent:
                self._record.first_audible_sample(position)
            position = end
        self._position = position
        return frames
