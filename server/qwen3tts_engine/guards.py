"""Guards of a model's sound: a cap on its length, silence at both ends, repetition. Pure.

A language model of speech misses its end in about one utterance in 300 of the published
checkpoints, begins with nothing, or says a word over and over. Guards take sound in chunks of any
size: numpy arrays at SAMPLE_RATE, float32 in +-1 or int16. The engine speaks what is left of a text
after a guard ends a generation.
"""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3tts_wire.errors import EngineFailed

SAMPLE_RATE = 24_000
"""Hertz, as base.SAMPLE_RATE."""
BLOCK = 240
"""Samples whose level is judged together: 10 ms."""
INT16 = 32768.0
"""Full scale of int16."""
FRAME_S = 0.08
"""Sound in one codec frame."""

Sound = NDArray[Any]
"""Samples [n], float32 or int16."""


def full_scale(samples: Sound) -> float:
    return 1.0 if np.issubdtype(samples.dtype, np.floating) else INT16


def check_finite(samples: Sound) -> None:
    if np.issubdtype(samples.dtype, np.floating) and not bool(np.isfinite(samples).all()):
        raise EngineFailed(
            "The model's sound held values that are not numbers.",
            remedy="Say it again; if it happens again, check the checkpoint, or use float32.",
        )


@dataclass(frozen=True, slots=True)
class FrameCap:
    """Longest generation, by the text's usual duration.

    A short text ("Ha!", a name, a sigh) may be drawn out to the checkpoint's limit.
    """

    most: int = 8192
    """Frames that the checkpoint allows a generation (its ``max_new_tokens``)."""
    per_token: float = 8.0
    """Frames for each token at least: usual speech takes 2 to 4."""
    base: int = 25
    """Frames at least, whatever the text."""
    slowest: float = 2.5
    """Times the usual length that the slowest speech takes."""
    base_s: float = 3.0
    """Pauses before and after it, whatever the text."""
    short_s: float = 2.0
    """A text whose usual duration is at most this is short."""

    def frames(self, usual_s: float, tokens: int = 0) -> int:
        if usual_s <= self.short_s:
            return self.most
        slow = math.ceil((self.slowest * usual_s + self.base_s) / FRAME_S)
        return min(self.most, max(slow, int(self.per_token * tokens) + self.base))


@dataclass(slots=True)
class LeadingTrim:
    """Drops silence before the first sound, up to a short pre-roll."""

    pre_roll_s: float = 0.02
    """Silence to keep before the first sound: its onset is softer than the threshold."""
    threshold: float = 10 ** (-50 / 20)
    """The first sample beyond this part of full scale is sound."""
    dropped: int = 0
    """Samples dropped; final once ``heard``."""
    heard: bool = False
    """True if sound has begun. False at the end: all was silence, and nothing was kept."""
    _roll: Sound | None = None

    def push(self, samples: Sound) -> Sound:
        """Take samples [n]; return those kept, with the pre-roll."""
        if self.heard:
            return samples
        # As floats: int16 has no absolute value of its lowest number.
        levels = np.abs(samples.astype(np.float32))
        loud = np.flatnonzero(levels > self.threshold * full_scale(samples))
        held = samples if self._roll is None else np.concatenate((self._roll, samples))
        rolled = len(held) - len(samples)
        keep = round(self.pre_roll_s * SAMPLE_RATE)
        onset = rolled + int(loud[0]) if len(loud) else len(held)
        drop = max(0, onset - keep)
        self.dropped += drop
        if len(loud):
            self.heard = True
            self._roll = None
            return held[drop:]
        self._roll = held[drop:].copy()
        return held[:0]

    @property
    def held(self) -> int:
        return 0 if self._roll is None else len(self._roll)


@dataclass(slots=True)
class SilenceCut:
    """Ends an utterance that is silent after its text.

    Silence is counted in blocks of 10 ms from the end of the text track.
    """

    after_s: float = 1.2
    """Silence that ends it. May be set between two pushes, where it is found out how much of the
    text has been said."""
    onset_s: float = 3.0
    """The same before its first sound: some voices begin late."""
    threshold: float = 10 ** (-48 / 20)
    """A block whose root mean square is below this part of full scale is silent."""
    text_end: int | None = None
    """Sample from which on the text track had ended; None: text is left. May be set later, not to
    a place that has passed with another answer."""
    cut: bool = False
    """True if it has ended. Nothing goes out after that."""
    position: int = 0
    """Samples taken that counted: those that went out."""
    last_loud: int = 0
    """Sample behind the last block that was not silent."""
    _rest: Sound | None = None
    """Samples of the block that is not whole yet."""
    _silent: int = 0
    """Blocks of silence since the text ended."""
    _heard: bool = False

    def push(self, samples: Sound) -> Sound:
        if self.cut:
            return samples[:0]
        held: Sound = samples if self._rest is None else np.concatenate((self._rest, samples))
        before = len(held) - len(samples)
        whole = len(held) // BLOCK
        blocks = held[: whole * BLOCK].astype(np.float32).reshape(whole, BLOCK)
        levels = np.sqrt(np.mean(np.square(blocks), axis=1)) / full_scale(samples)
        if (self._silent + whole) * BLOCK < round(self.after_s * SAMPLE_RATE):
            self._count(levels >= self.threshold, self.position - before)
            self.position += len(samples)
            self._rest = held[whole * BLOCK :].copy()
            return samples
        for index, loud in enumerate((levels >= self.threshold).tolist()):
            if self._judge(loud, self.position - before + index * BLOCK):
                given = (index + 1) * BLOCK - before
                self.position += given
                return samples[:given]
        self.position += len(samples)
        self._rest = held[whole * BLOCK :].copy()
        return samples

    def _count(self, loud: NDArray[np.bool_], at: int) -> None:
        last = int(loud.nonzero()[0][-1]) + 1 if loud.any() else 0
        if last:
            self._heard = True
            self._silent = 0
            self.last_loud = at + last * BLOCK
        if self.text_end is not None:
            late = -(-max(0, self.text_end - at) // BLOCK)
            self._silent += max(0, len(loud) - max(last, late))

    def _judge(self, loud: bool, at: int) -> bool:
        if loud:
            self._heard = True
            self._silent = 0
            self.last_loud = at + BLOCK
        elif self.text_end is not None and at >= self.text_end:
            self._silent += 1
        limit_s = self.after_s if self._heard else max(self.onset_s, self.after_s)
        self.cut = self._silent * BLOCK >= round(limit_s * SAMPLE_RATE)
        return self.cut


GRAM = 4
"""Frames of an n-gram of codes: 0.32 s, about a syllable and a half."""
_REPEATED = re.compile(r"(\w{1,12}?)\1{2,}")
_NO_LETTER = re.compile(r"[\W_]+")


def repeats_in(text: str) -> int:
    """Return how often a text says the same in a row: 1, or 3 and more ("ha ha ha")."""
    letters = _NO_LETTER.sub("", text.casefold())
    runs = (len(run[0]) // len(run[1]) for run in _REPEATED.finditer(letters))
    return max(runs, default=1)


@dataclass(slots=True)
class RepetitionGuard:
    """Finds codes that repeat: the model says a word or holds a sound over and over.

    An n-gram of first-codebook codes that occurs so often within a few seconds, without overlap, is
    no speech; what the text itself repeats is added. A sound of a single code is held longer than
    any breath.
    """

    window: int = 100
    """Frames within which occurrences count: 8 s."""
    times: int = 6
    held: int = 75
    """Frames of one code: 6 s, more than a pause within a text."""
    _codes: deque[int] = field(default_factory=lambda: deque(maxlen=GRAM))
    _frame: int = 0
    _same: int = 0
    """Frames since the code changed."""
    _starts: dict[tuple[int, ...], deque[int]] = field(default_factory=dict)
    """First frames of each n-gram's occurrences."""

    def push(self, code: int, text: str) -> int | None:
        """Take a frame's first code; return the frame at which the repetition begins, or None."""
        self._same = self._same + 1 if self._codes and self._codes[-1] == code else 1
        self._codes.append(code)
        start = self._frame - GRAM + 1
        self._frame += 1
        if self._same >= GRAM:
            # Silence and held sounds are many n-grams of one code; each run counts once.
            return self._frame - self._same + GRAM if self._same >= self.held else None
        if start < 0:
            return None
        gram = tuple(self._codes)
        starts = self._starts.setdefault(gram, deque())
        if starts and start < starts[-1] + GRAM:
            return None
        starts.append(start)
        while starts[0] <= start - self.window:
            starts.popleft()
        if len(starts) < self.times or len(starts) < self.times + repeats_in(text) - 1:
            return None
        return starts[1]


class SoundGuard:
    def __init__(self, trim: LeadingTrim | None = None, silence: SilenceCut | None = None) -> None:
        self.trim = trim or LeadingTrim()
        self.silence = silence or SilenceCut()
        self.given = 0
        """Samples that went out."""

    @property
    def dropped(self) -> int:
        return self.trim.dropped

    @property
    def ended(self) -> bool:
        return self.silence.cut

    def text_ended(self, frame: int, frame_samples: int = 1920) -> None:
        if self.silence.text_end is None:
            self.silence.text_end = frame * frame_samples

    def push(self, samples: Sound) -> Sound:
        """Take samples [n] of the codec; return what goes out."""
        check_finite(samples)
        kept = self.trim.push(self.silence.push(samples))
        self.given += len(kept)
        return kept
