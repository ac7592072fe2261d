"""A row's sound on its way out: guards, words, samples as bytes. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from qwen3tts_engine.alignment import AlignedWord, WordAligner
from qwen3tts_engine.base import PcmChunk
from qwen3tts_engine.guards import FrameCap, SoundGuard
from qwen3tts_wire.alignment import Word

from .rows import Samples
from .text_track import TextTrack

if TYPE_CHECKING:
    from .jobs import Job

FASTEST = 2
"""Frames of a token in the quickest speech: 6 tokens a second. Before so many frames are out, a
silence may be a pause within the text, though the model has read all of it."""
FULL_SCALE = 32767


class Voicing:
    """One generation's."""

    def __init__(self, track: TextTrack, guard: SoundGuard, aligner: WordAligner) -> None:
        """``aligner`` knows nothing of the text yet."""
        self._track = track
        self._guard = guard
        self._aligner = aligner
        self._cap = FrameCap()
        self._told = 0
        """Characters of the text that the aligner knows."""
        self._told_end = False
        self._entered = 0
        """Tokens of which it knows with which frame they went in."""

    def frame_cap(self, tokens: int) -> int:
        """Most frames that so many tokens of text can last."""
        return self._cap.frames(tokens)

    def sound(self, job: Job, samples: Samples) -> tuple[PcmChunk | None, bool]:
        """What goes out of some sound; and whether only silence follows, so that it is over.

        Raises:
            EngineFailed: it holds what is no number.
        """
        if self._track.ended:
            self._guard.text_ended(FASTEST * len(self._track.ids))
        first = not self._guard.given
        kept = self._guard.push(samples)
        if not len(kept):
            return None, self._guard.ended
        self._tell_text(job)
        words = self._words(self._aligner.push(kept))
        pcm = np.rint(kept * FULL_SCALE).astype("<i2").tobytes()
        return PcmChunk(pcm, words, marks=dict(job.marks) if first else {}), self._guard.ended

    def last(self, job: Job) -> PcmChunk:
        """What goes out behind all sound."""
        self._tell_text(job)
        words = self._words(self._aligner.end()) if self._guard.given else ()
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
