"""A row's sound on its way out: guards, words, samples as bytes. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qwen3tts_engine.alignment import AlignedWord, WordAligner
from qwen3tts_engine.base import PcmChunk
from qwen3tts_engine.guards import FrameCap, SoundGuard
from qwen3tts_engine.qwen3.model_config import FRAME_SAMPLES
from qwen3tts_engine.qwen3.rows import Samples
from qwen3tts_engine.qwen3.text_track import TextTrack
from qwen3tts_text.word_units import usual_s
from qwen3tts_wire.alignment import Word

if TYPE_CHECKING:
    from qwen3tts_engine.qwen3.jobs import Job

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


class Voicing:
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
