"""One generation under way: its text, its row, what it has made, why it ends. No torch."""

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
from qwen3tts_engine.guards import FrameCap, SoundGuard
from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.qwen3.engine.text_track import TextTrack
from qwen3tts_engine.qwen3.kernels.step_runner import PrefixStore, Samples
from qwen3tts_engine.qwen3.model.config import FRAME_SAMPLES, MIN_FRAMES
from qwen3tts_text.word_units import usual_s
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.heard import Word

if TYPE_CHECKING:
    from qwen3tts_engine.qwen3.model.prompt import Prompt
    from qwen3tts_engine.qwen3.model.sampling import Sampling


class JobState(Enum):
    """Where a generation is. A row that is paced (enough of it is ahead of its listener) is
    RUNNING and simply not in the next step; the scheduler knows which."""

    OPENING = auto()
    """Nothing to say has arrived yet."""
    WAITING = auto()
    """Admitted, without a slot."""
    RUNNING = auto()
    """In a slot; its next frame may be made."""
    STARVED = auto()
    """In a slot; the token for its next frame has not arrived."""
    DRAINING = auto()
    """All frames are made; some are not yet sound."""
    DONE = auto()
    """Out: said, failed or cancelled."""


IN_SLOT = (JobState.RUNNING, JobState.STARVED, JobState.DRAINING)


class JobEvent(Enum):
    """What happens to a generation."""

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
"""Whatever is missing cannot happen."""


class OutputSink(Protocol):
    """Where a generation's sound goes. Called by the engine's thread."""

    @property
    def unread(self) -> int:
        """Samples put and not yet read."""
        ...

    @property
    def gone(self) -> bool:
        """Whether nobody can read any more."""
        ...

    def put(self, chunk: PcmChunk) -> None:
        """Sound, or words."""
        ...

    def finish(self, error: SpeechError | None) -> None:
        """Nothing follows; or it broke."""
        ...


@dataclass(frozen=True, slots=True)
class Speaker:
    """What a generation speaks with: everything about its voice that was computed before."""

    key: Hashable
    """The same for the same sound: voice, language, instructions."""
    x_vector: Any | None = None
    """Speaker vector [hidden]."""
    codec: Any | None = None
    """CodecSnapshot behind the reference."""
    prefixes: PrefixStore | None = None
    """Where computed beginnings of its prompts are kept; None: with those of all such voices."""


@dataclass(eq=False)
class Job:
    """One generation. Belongs to the engine's thread once it has been submitted.

    Of its frames so many were ``launched``, of these the codes of ``len(codes)`` were read; the
    sound of so many was launched (``sounding``), and came back (``sounded``).
    """

    track: TextTrack
    lay_out: Callable[[TextTrack], Prompt]
    """The prompt, once the text is there: of live text the first token."""
    speaker: Speaker
    sampling: Sampling
    seed: int
    output: OutputSink
    lead: PlayoutLead | None
    pad: int
    """Token of the text track behind its end (``tts_pad``)."""
    eos: int
    """Token of the text track that ends it (``tts_eos``)."""
    make_postprocessor: Callable[[], SpeechPostprocessor]
    """Makes ``postprocessor`` at the prefill."""
    initial_chunk: int | None = None
    bound: int | None = None
    """Most frames, where the request or the settings say so."""
    state: JobState = JobState.OPENING
    prompt: Prompt | None = None
    postprocessor: SpeechPostprocessor | None = None
    slot: int = -1
    launched: int = 0
    codes: list[NDArray[np.int64]] = field(default_factory=list)
    """Of each frame [16]."""
    sounding: int = 0
    sounded: int = 0
    total: int | None = None
    """Frames in all, once that is known."""
    end: EndReason | None = None
    """Why no more frames come."""
    unsaid: int | None = None
    """First code point of its text that it left unsaid, once it is over; None: none is."""
    repeat: bool = False
    """Whether it says what another generation left unsaid."""
    voiced_frames: int = 0
    """Frames up to the last one that was not silent, once it is over."""
    fed: bool = True
    """Whether the next frame's text is there."""
    dry_since: float | None = None
    """Since when it is not."""
    held: bool = False
    """Whether its reader is too far behind."""
    marks: dict[str, float] = field(default_factory=dict)

    def next_text(self) -> int | None:
        """The token that the next frame adds; None: it has not arrived."""
        assert self.prompt is not None
        at = self.launched
        if not self.track.streaming:
            return self.prompt.trailing[at] if at < len(self.prompt.trailing) else self.pad
        # The first token stands in the prompt.
        tokens = len(self.track.ids) - 1
        if at < tokens:
            return self.track.ids[at + 1]
        if not self.track.ended:
            return None
        return self.eos if at == tokens else self.pad

    def limit(self, positions: int) -> int:
        """Most frames: what the row's positions hold, and what its text can last."""
        assert self.prompt is not None
        assert self.postprocessor is not None
        room = min(positions - len(self.prompt.text), self.bound or positions)
        if not self.track.ended:
            return room
        return min(room, self.postprocessor.frame_cap())

    @property
    def cut(self) -> bool:
        """Whether ``bound`` ended it."""
        return self.end == "frame_cap" and self.bound is not None and self.total == self.bound

    def may_end(self) -> bool:
        """Whether the next frame may be the end: two frames are out, and all text that grows is in.

        A function of the text and not of when it came, so that late text changes nothing. Text that
        was all there is never barred from ending, as in the official package.
        """
        if self.launched < MIN_FRAMES:
            return False
        if not self.track.streaming:
            return True
        return self.track.ended and self.launched >= len(self.track.ids)

    def move(self, move: JobEvent) -> None:
        """Change the state.

        Raises:
            KeyError: the move is not one of this state.
        """
        self.state = TRANSITIONS[self.state, move]

    def mark(self, name: str, now: float) -> None:
        """Note when something happened first."""
        self.marks.setdefault(name, now)


FULL_SCALE = 32767


@dataclass(frozen=True, slots=True)
class EndLimits:
    """What ends a generation that does not end by itself."""

    silence_s: float = 1.2
    """Silence after its text has been said for certain."""
    pause_s: float = 4.0
    """Silence while words are or may be left; another generation says those that are."""
    max_frames: int = 8192
    """Frames of any generation: the checkpoint's ``max_new_tokens``."""


class SpeechPostprocessor:
    """One generation's."""

    def __init__(
        self,
        track: TextTrack,
        guard: SoundGuard,
        aligner: WordAligner,
        *,
        limits: EndLimits | None = None,
        language: str | None = None,
    ) -> None:
        """``aligner`` knows nothing of the text yet."""
        self._track = track
        self._guard = guard
        self._aligner = aligner
        self._limits = limits or EndLimits()
        self._cap = FrameCap(most=self._limits.max_frames)
        self._language = language
        self._told = 0
        """Characters of the text that the aligner knows."""
        self._told_end = False
        self._entered = 0
        """Tokens of which it knows with which frame they went in."""

    def frame_cap(self) -> int:
        """Most frames that the text so far can last."""
        return self._cap.frames(usual_s(self._track.text, self._language), len(self._track.ids))

    def sound(self, job: Job, samples: Samples) -> tuple[PcmChunk | None, bool]:
        """What goes out of some sound; and whether only silence follows, so that it is over.

        Raises:
            EngineFailed: it holds what is no number.
        """
        track, guard = self._track, self._guard
        if track.ended:
            # A token goes in with each frame; text that is read before the speech has ended there.
            guard.text_ended(len(track.ids) if track.streaming else 0)
        self._tell_text(job)
        first = not guard.given
        kept: list[Samples] = []
        found: list[AlignedWord] = []
        # Frame by frame, so that the end does not depend on how the sound is cut into chunks.
        for at in range(0, len(samples), FRAME_SAMPLES):
            guard.silence.after_s = self._silence_s()
            kept.append(guard.push(samples[at : at + FRAME_SAMPLES]))
            found += self._aligner.push(kept[-1])
        out = np.concatenate(kept)
        if not len(out):
            return None, guard.ended
        pcm = np.rint(out * FULL_SCALE).astype("<i2").tobytes()
        marks = dict(job.marks) if first else {}
        return PcmChunk(pcm, self._words(found), marks=marks), guard.ended

    def _silence_s(self) -> float:
        """Silence that ends it at this place."""
        limits, silence = self._limits, self._guard.silence
        if silence.position - silence.last_loud < FRAME_SAMPLES or not self._guard.given:
            return limits.silence_s
        if self._told_end and self._aligner.spent():
            return limits.silence_s
        return max(limits.pause_s, limits.silence_s)

    def last(self, job: Job) -> PcmChunk:
        """What goes out behind all sound; and in the job, what of its text was not said."""
        self._tell_text(job)
        self._aligner.end_text()
        # A model's own end is believed, but of one that says a rest only where it can be the end.
        early = job.repeat and self._aligner.too_short()
        if job.end in ("silence", "frame_cap") or early:
            job.unsaid = self._aligner.unsaid()
            if not self._guard.given and any(map(str.isalnum, self._track.text)):
                job.unsaid = 0
        job.voiced_frames = -(-self._guard.silence.last_loud // FRAME_SAMPLES)
        words = self._words(self._aligner.end(job.unsaid)) if self._guard.given else ()
        return PcmChunk(b"", words, end=job.end, marks=dict(job.marks))

    def _tell_text(self, job: Job) -> None:
        """What the aligner should know before it hears the sound of the frames so far."""
        track = self._track
        if self._told < len(track.text):
            self._aligner.append(track.text[self._told :])
            self._told = len(track.text)
        if track.ended and not self._told_end:
            self._aligner.end_text()
            self._told_end = True
        # The first token stands in the prompt, the others are added with one frame each.
        while track.streaming and self._entered < min(len(track.ends), job.sounded):
            self._aligner.entered(track.ends[self._entered], self._entered)
            self._entered += 1

    def _words(self, found: Iterable[AlignedWord]) -> tuple[Word, ...]:
        track = self._track
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


class OutputQueue:
    """An Outlet (jobs.py) whose reader is a coroutine of the loop that it was made in."""

    def __init__(self, bound: int, on_room: Callable[[], None]) -> None:
        """``on_room`` is called when less than ``bound`` samples are unread again, on the loop, and
        when the reader turns out to be gone, on the engine's thread."""
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
        """Whether nobody can read any more: the loop was closed."""

    # The engine's thread

    @property
    def unread(self) -> int:
        """Samples put and not yet read."""
        return self._put - self._read

    def put(self, chunk: PcmChunk) -> None:
        """Sound, or words."""
        self._put += chunk.samples
        self._tell(chunk)

    def finish(self, error: SpeechError | None) -> None:
        """Nothing follows; or it broke."""
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
        """The next chunk; None at the end.

        Raises:
            SpeechError: it broke; what was made before has been read.
        """
        while not self._chunks:
            if self._finished:
                if self._error is not None:
                    # Others are told the same: without this it would keep the frames of all.
                    raise self._error.with_traceback(None)
                return None
            self._arrived.clear()
            await self._arrived.wait()
        chunk = self._chunks.popleft()
        samples = chunk.samples
        self._read += samples
        # Looked at afterwards: the engine may have put more and found no room meanwhile.
        unread = self.unread
        if unread < self._bound <= unread + samples:
            self._on_room()
        return chunk
