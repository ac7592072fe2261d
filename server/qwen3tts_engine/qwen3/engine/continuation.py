"""What a generation left unsaid is said by another one. Pure.

A model may fail in the middle of a text: it goes on in silence, makes no sound at all, or is not
done when its frames are used up. What it said stays; the rest of the text, from the word that was
not complete, is given to a new generation with other random numbers.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, replace

from qwen3tts_engine.base import EndReason, PcmChunk, SynthesisRequest
from qwen3tts_engine.qwen3.engine.jobs import Job
from qwen3tts_engine.qwen3.kernels.step_runner import Snapshot
from qwen3tts_engine.qwen3.model.prompt import Reference
from qwen3tts_text.word_units import usual_s
from qwen3tts_wire.errors import EngineFailed
from qwen3tts_wire.heard import Word

log = logging.getLogger(__name__)

TRIES = 3
"""Generations in a row that may say nothing of their text."""
MOST = 12
"""Generations of one request."""


class Regeneration:
    """The generations of one request, one after the other."""

    def __init__(self, request: SynthesisRequest) -> None:
        self.request: SynthesisRequest = request
        """Of the generation under way."""
        self._more = request.more
        """Text that the first generation has no room for."""
        self._seed = request.seed
        self._count = 1
        self._fruitless = 0
        self._samples = 0
        """Samples given out,"""
        self._before = 0
        """and by generations that are over."""
        self._told = 0
        """Where the last word told ends in the original text."""

    def chunk(self, chunk: PcmChunk) -> PcmChunk:
        """A chunk of the generation under way as one of the request: its words count from the
        request's first sample, and no word is reported twice."""
        self._samples += chunk.samples
        words: list[Word] = []
        for word in chunk.words:
            if self._count == 1 or word.char_end > self._told:
                moved = replace(word, start=word.start + self._before, end=word.end + self._before)
                words.append(moved)
        if words:
            self._told = max(self._told, words[-1].char_end)
        end: EndReason | None = chunk.end
        if self._count > 1 and end is not None:
            end = "regenerated"
        return replace(chunk, words=tuple(words), end=end)

    def following(self, job: Job) -> SynthesisRequest | None:
        """The next generation, after one that is over; None: all is said.

        Raises:
            EngineFailed: several generations in a row said nothing, or too many were needed.
        """
        unsaid, track, limits = job.unsaid, job.track, self.request.limits
        own_bound = job.cut and limits is not None and limits.max_new_tokens is not None
        if own_bound and self.request.layout:
            # A whole text in the official layout has the official bound, which cuts it: what did
            # not fit the generation is cut as well.
            if self._more is not None:
                self._more.close()
                self._more.take()
            return None
        if unsaid is None or unsaid >= len(track.text):
            return None
        sounded = self._samples > self._before
        self._fruitless = 0 if unsaid > 0 and sounded else self._fruitless + 1
        log.warning(
            "generation %d ended (%s) with %d of %d characters unsaid",
            self._count, job.end, len(track.text) - unsaid, len(track.text),
        )  # fmt: skip
        if self._fruitless >= TRIES or self._count >= MOST:
            if own_bound and self._fruitless >= TRIES:
                return None
            what = "left words unsaid" if self._samples else "made no sound of the text"
            raise EngineFailed(
                f"The model {what}: {self._count} generations ended early ({job.end}).",
                remedy="Raise max_new_tokens, or send the text in shorter parts."
                if job.cut
                else "Say it again with another seed or voice; if it happens often, check the"
                " checkpoint.",
            )
        text, offsets = track.rest(unsaid)
        if usual_s(text) == 0.0:
            return None
        self._before = self._samples
        self.request = replace(
            self.request,
            text=text,
            offsets=offsets,
            more=None,
            continued=self.request.continued or self._samples > 0,
            seed=None if self._seed is None else self._seed + self._count,
        )
        self._count += 1
        return self.request


ENOUGH_FRAMES = 38
"""A reference of so many frames (3 s) is long enough to know a voice by; a shorter one is made
longer by the next generation."""
TAIL_FRAMES = 2
"""Frames kept behind the last sound."""


@dataclass(frozen=True, slots=True)
class DesignedVoice:
    """What is kept of a context's voice."""

    seed: int
    reference: Reference | None = None
    codec: Snapshot | None = None
    """The codec's state behind the reference."""

    def heard(self, job: Job, most_frames: int) -> DesignedVoice:
        """The voice after another generation of the context, which is over."""
        before = self.reference
        if before is not None and len(before.codes) >= ENOUGH_FRAMES:
            return self
        track = job.track
        said = len(track.text) if job.unsaid is None else job.unsaid
        text = tuple(token for token, end in zip(track.ids, track.ends, strict=True) if end <= said)
        frames = job.codes[: job.voiced_frames + TAIL_FRAMES]
        codes = tuple(tuple(map(int, frame)) for frame in frames)
        if before is not None:
            text, codes = (*before.text_ids, *text), (*before.codes, *codes)
        if not text or not codes or not job.voiced_frames or len(codes) > most_frames:
            return self
        return replace(self, reference=Reference(text, codes), codec=None)


def voice_of(request: SynthesisRequest) -> DesignedVoice:
    """The voice of the request's context, a new one where there is none."""
    kept = None if request.context is None else request.context.kept
    if isinstance(kept, DesignedVoice):
        return kept
    return DesignedVoice(random.getrandbits(63) if request.seed is None else request.seed)
