"""Generation under way: state machine, audio postprocessing, output queue. No torch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.alignment import AlignedWord, WordAligner
from qwen3tts_engine.base import EndReason, PcmChunk
from qwen3tts_engine.guards import FrameCap, RepetitionGuard, SoundGuard
from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.qwen3.engine.text_track import TextTrack
from qwen3tts_engine.qwen3.kernels.step_runner import PrefixStore
from qwen3tts_engine.qwen3.model.config import FRAME_SAMPLES, MIN_FRAMES, Samples
from qwen3tts_engine.speed import SpeechScale
from qwen3tts_text.word_units import usual_s
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.heard import Word

if TYPE_CHECKING:
    from qwen3tts_engine.qwen3.model.prompt import Prompt
    from qwen3tts_engine.qwen3.model.sampling import Sampling


class JobState(Enum):
    OPENING = auto()
    """Nothing to say has arrived yet."""
    WAITING = auto()
    """Admitted, without a slot."""
    RUNNING = auto()
    """In a slot; its next frame may be made."""
    STARVED = auto()
    """In a slot; the text of its next frame is missing (underrun of text)."""
    DRAINING = auto()
    """All frames are made; some are not yet decoded."""
    DONE = auto()
    """Finished, failed or cancelled."""


IN_SLOT = (JobState.RUNNING, JobState.STARVED, JobState.DRAINING)


class JobEvent(Enum):
    ADMIT = auto()
    PREFILL = auto()
    STARVE = auto()
    FEED = auto()
    LAST_FRAME = auto()
    FINISH = auto()


TRANSITIONS = {
    (JobState.OPENING, JobEvent.ADMIT): JobState.WAITING,
    (JobState.WAITING, JobEvent.PREFILL): JobState.RUNNING,
    (JobState.RUNNING, JobEvent.STARVE): JobState.STARVED,
    (JobState.STARVED, JobEvent.FEED): JobState.RUNNING,
    (JobState.RUNNING, JobEvent.LAST_FRAME): JobState.DRAINING,
    (JobState.STARVED, JobEvent.LAST_FRAME): JobState.DRAINING,
    (JobState.OPENING, JobEvent.FINISH): JobState.DONE,
    (JobState.WAITING, JobEvent.FINISH): JobState.DONE,
    (JobState.RUNNING, JobEvent.FINISH): JobState.DONE,
    (JobState.STARVED, JobEvent.FINISH): JobState.DONE,
    (JobState.DRAINING, JobEvent.FINISH): JobState.DONE,
}
"""All valid transitions."""


class OutputSink(Protocol):
    @property
    def unread(self) -> int: ...

    @property
    def gone(self) -> bool: ...

    def put(self, chunk: PcmChunk) -> None: ...

    def finish(self, error: SpeechError | None) -> None: ...


@dataclass(frozen=True, slots=True)
class VoiceConditioning:
    key: Hashable
    """Cache key of voice, language and instructions."""
    x_vector: Any | None = None
    """Speaker embedding [hidden]."""
    codec: Any | None = None
    """CodecSnapshot behind the reference."""
    prefixes: PrefixStore | None = None
    """Store of its prompt prefixes; None: the shared one."""


@dataclass(eq=False)
class Job:
    track: TextTrack
    lay_out: Callable[[TextTrack], Prompt]
    """Builds the prompt when the text, or the first token of live text, is there."""
    speaker: VoiceConditioning
    sampling: Sampling
    seed: int
    output: OutputSink
    lead: PlayoutLead | None
    pad: int
    """Text id behind the end (``tts_pad``)."""
    eos: int
    """Text id that ends the text (``tts_eos``)."""
    make_postprocessor: Callable[[], SpeechPostprocessor]
    """Makes ``postprocessor`` at the prefill."""
    initial_chunk: int | None = None
    bound: int | None = None
    """Most frames, from request or settings."""
    speed: float = 1.0
    """Factor on the rate of speech."""
    state: JobState = JobState.OPENING
    prompt: Prompt | None = None
    postprocessor: SpeechPostprocessor | None = None
    slot: int = -1
    launched: int = 0
    """Frames launched by the talker."""
    codes: list[NDArray[np.int64]] = field(default_factory=list)
    """Codes of each frame [16]."""
    repetition: RepetitionGuard | None = field(default_factory=RepetitionGuard)
    repeats_from: int | None = None
    """Frame at which its codes begin to repeat."""
    decodes_launched: int = 0
    """Frames of launched codec decodes."""
    decoded: int = 0
    """Frames whose audio came back."""
    total: int | None = None
    """Final number of frames, once known."""
    end: EndReason | None = None
    """Reason of the end."""
    unsaid: int | None = None
    """First code point left unsaid, once finished; None: all is said."""
    repeat: bool = False
    """True if it continues the unsaid text of another generation."""
    voiced_frames: int = 0
    """Frames up to the last voiced one, once finished."""
    has_text: bool = True
    """True if the next frame's text is there."""
    starved_since: float | None = None
    """Start of the text underrun."""
    held: bool = False
    """Backpressure: the reader is too far behind."""
    marks: dict[str, float] = field(default_factory=dict)

    def next_text(self) -> int | None:
        assert self.prompt is not None
        at = self.launched
        if not self.track.streaming:
            return self.prompt.trailing[at] if at < len(self.prompt.trailing) else self.pad
        # The first token is in the prompt.
        tokens = len(self.track.ids) - 1
        if at < tokens:
            return self.track.ids[at + 1]
        if not self.track.ended:
            return None
        return self.eos if at == tokens else self.pad

    def limit(self, positions: int) -> int:
        assert self.prompt is not None
        assert self.postprocessor is not None
        room = min(positions - len(self.prompt.text), self.bound or positions)
        if not self.track.ended:
            return room
        return min(room, self.postprocessor.frame_cap())

    @property
    def cut(self) -> bool:
        return self.end == "frame_cap" and self.bound is not None and self.total == self.bound

    def eos_allowed(self) -> bool:
        if self.launched < MIN_FRAMES:
            return False
        if not self.track.streaming:
            return True
        return self.track.ended and self.launched >= len(self.track.ids)

    def add(self, frame: NDArray[np.int64]) -> int | None:
        """Add a frame's codes [16]; return the number of frames to end with if they repeat."""
        self.codes.append(frame)
        if self.repetition is None:
            return None
        self.repeats_from = self.repetition.push(int(frame[0]), self.track.text)
        if self.repeats_from is None:
            return None
        # What was decoded is heard already.
        return max(self.repeats_from, self.decodes_launched)

    def move(self, event: JobEvent) -> None:
        self.state = TRANSITIONS[self.state, event]

    def mark(self, name: str, now: float) -> None:
        self.marks.setdefault(name, now)


FULL_SCALE = 32767


@dataclass(frozen=True, slots=True)
class EndLimits:
    silence_s: float = 1.2
    """Silence after its text was certainly said."""
    pause_s: float = 4.0
    """Silence while words may be left, which another generation then says."""
    max_frames: int = 8192
    """The checkpoint's ``max_new_tokens``."""


class SpeechPostprocessor:
    def __init__(
        self,
        track: TextTrack,
        guard: SoundGuard,
        aligner: WordAligner,
        *,
        limits: EndLimits | None = None,
        language: str | None = None,
        speed: float = 1.0,
    ) -> None:
        self._track = track
        self._guard = guard
        self._aligner = aligner
        self._scale = SpeechScale(speed)
        self._given = False
        """True if a chunk was delivered."""
        self._reported: list[tuple[int, int, int]] = []
        """Words found: end in samples, first code point, code point after it."""
        self._limits = limits or EndLimits()
        self._cap = FrameCap(most=self._limits.max_frames)
        self._language = language
        self._aligned_chars = 0
        """Characters given to the aligner."""
        self._aligned_end = False
        self._aligned_tokens = 0
        """Tokens whose frame the aligner knows."""

    def frame_cap(self) -> int:
        return self._cap.frames(usual_s(self._track.text, self._language), len(self._track.ids))

    def process(self, job: Job, samples: Samples) -> tuple[PcmChunk | None, bool]:
        track, guard = self._track, self._guard
        if track.ended:
            # A token enters with each frame; in the full layout, all before the first.
            guard.text_ended(len(track.ids) if track.streaming else 0)
        self._align_text(job)
        kept: list[Samples] = []
        found: list[AlignedWord] = []
        # Frame by frame, so that the end does not depend on how the sound is cut into chunks.
        for at in range(0, len(samples), FRAME_SAMPLES):
            guard.silence.after_s = self._silence_s()
            kept.append(guard.push(samples[at : at + FRAME_SAMPLES]))
            found += self._aligner.push(kept[-1])
        out, words = self._scale.push(np.concatenate(kept), self._words(found))
        if not len(out) and not words:
            return None, guard.ended
        marks = {} if self._given else dict(job.marks)
        self._given = True
        return PcmChunk(_to_pcm(out), words, marks=marks), guard.ended

    def _silence_s(self) -> float:
        limits, silence = self._limits, self._guard.silence
        if silence.position - silence.last_loud < FRAME_SAMPLES or not self._guard.given:
            return limits.silence_s
        if self._aligned_end and self._aligner.spent():
            return limits.silence_s
        return max(limits.pause_s, limits.silence_s)

    def finish(self, job: Job) -> PcmChunk:
        """Return the closing chunk; record the unsaid text in the job."""
        self._align_text(job)
        self._aligner.end_text()
        # EOS is trusted; in a continuation only where the text can be complete.
        early = job.repeat and self._aligner.too_short()
        if job.end in ("silence", "frame_cap", "repeated") or early:
            at = job.repeats_from
            job.unsaid = self._aligner.unsaid() if at is None else self._unsaid_from(at)
            if not self._guard.given and any(map(str.isalnum, self._track.text)):
                job.unsaid = 0
        job.voiced_frames = -(-self._guard.silence.last_loud // FRAME_SAMPLES)
        words = self._words(self._aligner.end(job.unsaid)) if self._guard.given else ()
        rest, words = self._scale.end(words)
        return PcmChunk(_to_pcm(rest), words, end=job.end, marks=dict(job.marks))

    def _align_text(self, job: Job) -> None:
        track = self._track
        if self._aligned_chars < len(track.text):
            self._aligner.append(track.text[self._aligned_chars :])
            self._aligned_chars = len(track.text)
        if track.ended and not self._aligned_end:
            self._aligner.end_text()
            self._aligned_end = True
        # The first token is in the prompt, the others enter with one frame each.
        while track.streaming and self._aligned_tokens < min(len(track.ends), job.decoded):
            self._aligner.entered(track.ends[self._aligned_tokens], self._aligned_tokens)
            self._aligned_tokens += 1

    def _unsaid_from(self, frame: int) -> int | None:
        at = frame * FRAME_SAMPLES - self._guard.dropped
        for end, first, _ in self._reported:
            if end > at:
                return first
        said = self._reported[-1][2] if self._reported else 0
        left = self._track.text[said:]
        if not any(map(str.isalnum, left)):
            return None
        return said + len(left) - len(left.lstrip())

    def _words(self, found: Iterable[AlignedWord]) -> tuple[Word, ...]:
        track = self._track
        found = tuple(found)
        self._reported += [(each.end, each.char_start, each.char_end) for each in found]
        return tuple(
            Word(
                track.text[each.char_start : each.char_end],
                each.start,
                each.end,
                *track.original(each.char_start, each.char_end),
                "estimated",
                each.precision_ms,
            )
            for each in found
        )


def _to_pcm(samples: Samples) -> bytes:
    return np.rint(samples * FULL_SCALE).astype("<i2").tobytes()


class OutputQueue:
    def __init__(self, bound: int, on_room: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._bound = bound
        self._on_room = on_room
        self._chunks: deque[PcmChunk] = deque()
        self._arrived = asyncio.Event()
        self._error: SpeechError | None = None
        self._finished = False
        # One writer each: the engine's thread and the reader's loop.
        self._put = 0
        self._read = 0
        self.gone = False
        """True if the loop was closed."""

    # The engine's thread

    @property
    def unread(self) -> int:
        return self._put - self._read

    def put(self, chunk: PcmChunk) -> None:
        self._put += chunk.samples
        self._tell(chunk)

    def finish(self, error: SpeechError | None) -> None:
        self._error = error
        self._tell(None)

    def _tell(self, chunk: PcmChunk | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._arrive, chunk)
        except RuntimeError:
            # The loop is closed, and its readers with it.
            self.gone = True
            self._on_room()

    # The loop

    def _arrive(self, chunk: PcmChunk | None) -> None:
        if chunk is None:
            self._finished = True
        else:
            self._chunks.append(chunk)
        self._arrived.set()

    async def next(self) -> PcmChunk | None:
        """Return the next chunk, None at the end; errors follow the audio."""
        while not self._chunks:
            if self._finished:
                if self._error is not None:
                    # Shared by several outputs: without this it would keep the frames of all.
                    raise self._error.with_traceback(None)
                return None
            self._arrived.clear()
            await self._arrived.wait()
        chunk = self._chunks.popleft()
        samples = chunk.samples
        self._read += samples
        # Compared afterwards: the engine may have put more meanwhile.
        unread = self.unread
        if unread < self._bound <= unread + samples:
            self._on_room()
        return chunk
