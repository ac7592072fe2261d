"""Successive generations of one request: unsaid text, designed voice. Pure.

When a model falls silent in a text, repeats itself or uses up its frames, a new generation with
another seed says the rest, from the incomplete word.
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
"""Consecutive generations that may say nothing."""
MOST = 12
"""Generations per request."""


_REGENERATED: dict[EndReason | None, EndReason] = {
    "repeated": "regenerated_repeated",
    "frame_cap": "regenerated_cap",
}
"""End of a request by that of a generation that left words unsaid; others: ``regenerated``."""


class Regeneration:
    def __init__(self, request: SynthesisRequest) -> None:
        self.request: SynthesisRequest = request
        self._more = request.more
        """Text beyond the first generation's room."""
        self._seed = request.seed
        self._count = 1
        self._end: EndReason = "regenerated"
        self._fruitless = 0
        self._samples = 0
        """Samples delivered,"""
        self._before = 0
        """and by finished generations."""
        self._reported_end = 0
        """End of the last reported word in the original text."""

    def chunk(self, chunk: PcmChunk) -> PcmChunk:
        """Convert a chunk to the request's: word times, each word once."""
        self._samples += chunk.samples
        words: list[Word] = []
        for word in chunk.words:
            if self._count == 1 or word.char_end > self._reported_end:
                moved = replace(word, start=word.start + self._before, end=word.end + self._before)
                words.append(moved)
        if words:
            self._reported_end = max(self._reported_end, words[-1].char_end)
        end: EndReason | None = chunk.end
        if self._count > 1 and end is not None:
            end = self._end
        return replace(chunk, words=tuple(words), end=end)

    def next_request(self, job: Job) -> SynthesisRequest | None:
        """Return the next request; None: all is said.

        Raises:
            EngineFailed: several generations said nothing, or too many were needed.
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
        self._end = _REGENERATED.get(job.end, self._end)
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
"""A reference of this length (3 s) identifies a voice; a shorter one is extended by the next
generation."""
TAIL_FRAMES = 2
"""Frames kept behind the last voiced one."""


@dataclass(frozen=True, slots=True)
class DesignedVoice:
    """A VoiceDesign checkpoint draws a new voice each time: the first generation is a reference.

    Without room for it only the seed is kept.
    """

    seed: int
    reference: Reference | None = None
    codec: Snapshot | None = None
    """Codec state behind the reference."""

    def after(self, job: Job, most_frames: int) -> DesignedVoice:
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
    kept = None if request.context is None else request.context.kept
    if isinstance(kept, DesignedVoice):
        return kept
    return DesignedVoice(random.getrandbits(63) if request.seed is None else request.seed)
