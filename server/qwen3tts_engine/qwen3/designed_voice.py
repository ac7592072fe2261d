"""One voice for a context of a VoiceDesign checkpoint. Pure.

Such a checkpoint has no speakers and no speaker encoder: it draws a voice from the description
with each generation. So the first generation of a context becomes the reference of the next ones:
its text stands in front of theirs and its codes in front of their speech. To the model that is one
text in the full layout, whose beginning it has spoken already. Where the reference has no room, the
seed alone is the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.qwen3.jobs import Job
from qwen3tts_engine.qwen3.prefixes import Snapshot
from qwen3tts_engine.qwen3.prompt import Reference

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
