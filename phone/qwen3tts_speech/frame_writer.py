"""Writer of PCM to the sink, encoded just ahead of it."""

from __future__ import annotations

import asyncio
import contextlib

from qwen3tts_codecs.frames import PAST_MS
from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.pcm import PcmBytes
from qwen3tts_pacer.slot import Frame
from qwen3tts_pacer.utterance_encoder import UtteranceEncoder
from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_speech.playout_queue import PlayoutQueue, QueuedPlayout
from qwen3tts_wire.errors import SpeechError

SLICE_MS = 100
"""Audio encoded in one batch: other calls' packets have to leave meanwhile."""
COSTLY_SLICE_MS = 20
"""The same for a predictive codec: on a busy machine one Opus frame takes up to 10 ms."""


class PcmQueue:
    """PCM of one utterance (s16le) from the first sample that may be needed on.

    Args:
        keeps: keep what was taken until `forget`.
    """

    def __init__(self, *, keeps: bool) -> None:
        self._keeps = keeps
        self._data = bytearray()
        self._first = 0  # bytes before the data
        self._next = 0  # bytes taken

    @property
    def end(self) -> int:
        """Position after the last whole sample."""
        return (self._first + len(self._data)) // 2

    @property
    def kept(self) -> int:
        return len(self._data) // 2

    def push(self, pcm: PcmBytes) -> None:
        self._data += pcm

    def take(self, size: int) -> bytes:
        """Return the next bytes, at most so many; empty = none wait."""
        at = self._next - self._first
        if at == len(self._data):
            return b""
        taken = bytes(self._data[at : at + size])
        self._next += len(taken)
        if not self._keeps:
            self._drop(self._next)
        return taken

    def rewind(self, position: int, past: int) -> bytes:
        """Take from ``position`` on again; return the samples before it, at most ``past``."""
        self._next = max(2 * position, self._first)
        at = self._next - self._first
        return bytes(self._data[max(0, at - 2 * past) : at])

    def forget(self, position: int) -> None:
        """Drop what was taken before ``position``."""
        self._drop(min(2 * position, self._next))

    def _drop(self, end: int) -> None:
        if end > self._first:
            del self._data[: end - self._first]
            self._first = end


class FrameWriter:
    """Writer of one utterance's or sound's PCM in its turn.

    Little more is encoded than the sink takes. Where its codec may change, PCM is kept until it was
    played: what the sink has flushed is encoded again.
    """

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
        self._slice = _slice(from_hz, speaker.payload)
        """Bytes encoded in one batch."""
        self._encoder = UtteranceEncoder(from_hz, speaker.payload, speaker.ptime_ms, owner.number)
        self._past = from_hz * PAST_MS // 1000
        self._most_kept = from_hz
        """Samples of which the played ones are dropped."""
        self._pcm = PcmQueue(keeps=speaker.sink.changes_codec)
        self._pending: list[Frame] = []
        """Frames of one slice that the sink has not taken yet."""
        self._key = ""
        self._in_one_go = 0
        """Bytes encoded since other tasks ran."""
        self._ended = False  # no more PCM comes
        self._flushed = False  # and all of it is encoded
        self._finished = False
        self._changed = False  # and not written since
        self._lock = asyncio.Lock()
        self._rewriting: asyncio.Task[None] | None = None

    async def push(self, pcm: PcmBytes, key: str) -> None:
        self._key = key
        self._pcm.push(pcm)
        if self.begun and self._pcm.kept > self._most_kept:
            position = self._speaker.sink.position(self._owner.number)
            self._pcm.forget(position - self._past)
            self._most_kept = self._pcm.kept + self._encoder.from_hz
        await self._write()

    async def flush(self, key: str) -> None:
        self._key = key
        self._ended = True
        await self._write()

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
        """Take the speaker's codec: what the sink does not have is encoded in it."""
        speaker, encoder = self._speaker, self._encoder
        resume_at = speaker.sink.resume_at(self._owner.number) if self.begun else None
        if resume_at is None:  # what is written stays
            resume_at = self._pending[0].start if self._pending else encoder.position
        self._slice = _slice(encoder.from_hz, speaker.payload)
        self._pending.clear()
        self._flushed = self._ended and resume_at >= self._pcm.end
        past = self._pcm.rewind(resume_at, self._past)
        encoder.resume(speaker.payload, speaker.ptime_ms, resume_at, past)
        if not self.begun:
            return
        self._changed = True
        if self._finished:
            self._owner.written.clear()
        self._rewriting = asyncio.create_task(self._rewrite(), name="frames encoded again")

    # --- inside

    async def _write(self) -> None:
        record, clock, sink = self._record, self._speaker.clock, self._speaker.sink
        async with self._lock:
            while not self._owner.stopped and self._encode():
                self.writing = True
                if self._changed or not self.begun:
                    await self._turn()
                if self._pending:  # the codec may have changed meanwhile
                    del self._pending[: sink.write(self._pending)]
                record.mark(Mark.QUEUED, clock.now())
                record.generated_samples = self._encoder.position
                if self._pending:
                    await sink.room()
                elif self._in_one_go >= self._slice:
                    self._in_one_go = 0
                    await asyncio.sleep(0)
            self.writing = False

    def _encode(self) -> bool:
        """Encode the next slice if no frame waits; return whether one does."""
        while not self._pending:
            pcm = self._pcm.take(self._slice)
            if pcm:
                self._in_one_go += len(pcm)
                frames = self._encoder.push(pcm)
            elif self._ended and not self._flushed:
                self._flushed = True
                frames = self._encoder.flush()
            else:
                return False
            for frame in frames:
                if not frame.silent:
                    self._record.first_audible_sample(frame.start)
            self._pending = frames
        return True

    async def _turn(self) -> None:
        speaker = self._speaker
        if self.begun:
            self._changed = False
            await speaker.turn_of(self._owner)
            return
        self._record.mark(Mark.RESAMPLED, speaker.clock.now())
        await self.released.wait()
        await speaker.turn_of(self._owner)
        await speaker.sink.room()
        while not speaker.next_to_write(self._owner):  # a change has flushed an earlier one
            await speaker.turn_of(self._owner)
            await speaker.sink.room()
        speaker.sink.begin(self._owner.number, self._key)
        self.begun = True

    async def _rewrite(self) -> None:
        try:
            with contextlib.suppress(SpeechError):  # the call may be over
                await self._write()
                if self._finished:
                    self._speaker.sink.finish(self._owner.number)
        finally:
            if self._finished:
                self._owner.written.set()


def _slice(from_hz: int, payload: Payload) -> int:
    return 2 * (from_hz * (COSTLY_SLICE_MS if payload.stateful else SLICE_MS) // 1000)
