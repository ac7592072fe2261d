"""Audio of one request from eSpeak NG, resumed without a click after a lost worker. Pure.

The library's noise is unseeded and its pitch cycle runs on from text to text, so a second attempt's
words lie within some 30 samples. It is entered where it looks most like the end of what was given
out; the remaining step is faded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.base import PcmChunk, SynthesisRequest
from qwen3tts_engine.request_text import TextPiece
from qwen3tts_engine.workers.messages import WordNumbers
from qwen3tts_engine.workers.pool_engine import Pcm, ResampledOutput
from qwen3tts_text.word_units import WordSpans

TAIL_S = 0.015
"""Compared length of given-out sound: more than a period of the lowest voice."""
REACH_S = 0.012
"""Search range around the same place."""
FADE_S = 0.005
"""Fade of the remaining step."""


def entry(tail: NDArray[np.int16], again: NDArray[np.int16], near: int, reach: int) -> int:
    """Return where ``again`` [n] best continues ``tail`` [t], within ``reach`` of ``near``."""
    tail = tail[-near:] if near else tail[:0]
    size = len(tail)
    first = max(size, near - reach)
    last = min(len(again), near + reach)
    if size == 0 or last <= first:
        return min(near, len(again))
    windows = np.lib.stride_tricks.sliding_window_view(
        again[first - size : last].astype(np.float64), size
    )
    likeness = windows @ tail.astype(np.float64)  # over the energies: -1 to 1
    energy = np.sqrt(np.einsum("ij,ij->i", windows, windows)) * np.linalg.norm(tail) + 1.0
    # Among equals (silence) the nearest place.
    distance = np.abs(np.arange(first, first + len(windows)) - near)
    best = np.lexsort((distance, -np.round(likeness / energy, 3)))[0]
    return int(first + best)


def faded_step(sound: NDArray[np.int16], step: int, fade: int) -> NDArray[np.int16]:
    """Add ``step`` to the first sample, fading over ``fade`` samples."""
    count = min(fade, len(sound))
    if count == 0 or step == 0:
        return sound
    joined = sound.astype(np.int32)
    joined[:count] += np.round(step * (1.0 - np.arange(count) / fade)).astype(np.int32)
    return np.clip(joined, -32768, 32767).astype(np.int16)


LOUD = 100
"""A sample beyond this is heard (-50 dB of full scale). A word ends with its last such sample, so
that the pause after it is not counted as the word."""

HEADROOM = 0.8
"""Factor on the library's samples, some of which reach full scale, which the resampler's filter
would overshoot."""


@dataclass(slots=True)
class _Open:
    span: int
    start: int
    """Samples at the library's rate from the request's start, as all that follow."""


@dataclass(slots=True)
class _Attempt:
    heard: int = 0
    """Samples that came."""
    events: int = 0
    """Words that came."""
    held: list[Pcm] = field(default_factory=list)
    """Sound before it is known that the piece says anything, or where to go on."""
    held_words: list[WordNumbers] = field(default_factory=list)


class EspeakAudio:
    """Audio and words of one request, piece by piece (PieceAudio).

    ``begin`` a piece, feed ``sound``, ``end`` it; ``again`` after a lost worker; ``finish`` at the
    end. Samples are never given out twice.
    """

    def __init__(self, request: SynthesisRequest, rate: int) -> None:
        self._rate = rate
        self._output = ResampledOutput(request, rate)
        self._last_loud = -1
        self._tail: Pcm = np.zeros(0, np.int16)
        self._piece = TextPiece(0, "", False)
        self._spans = WordSpans("")
        self._base = 0
        """Beginning of the piece."""
        self._open: _Open | None = None
        self._known = 0
        """Word events of the piece that were used."""
        self._attempt = _Attempt()
        self._rejoin = False

    def begin(self, piece: TextPiece) -> None:
        self._piece = piece
        self._spans = WordSpans(piece.text)
        self._base = self._output.taken
        self._open = None
        self._known = 0
        self._attempt = _Attempt()
        self._rejoin = False

    def again(self) -> None:
        self._attempt = _Attempt()
        self._rejoin = self._output.taken > self._base

    def sound(self, pcm: bytes, words: tuple[WordNumbers, ...] = ()) -> PcmChunk | None:
        samples = np.frombuffer(pcm, np.int16)
        attempt = self._attempt
        attempt.heard += len(samples)
        if self._rejoin:
            attempt.held.append(samples)
            attempt.held_words += words
            enough = self._output.taken - self._base + round(REACH_S * self._rate)
            return self._join() if attempt.heard >= enough else None
        if self._known == 0 and not words:
            # Nothing is said yet, and perhaps nothing will be.
            attempt.held.append(samples)
            return None
        if attempt.held:
            samples = np.concatenate((*attempt.held, samples))
            attempt.held = []
        return self._use(samples, words)

    def end(self) -> PcmChunk | None:
        chunk = self._join() if self._rejoin else None
        self._close(len(self._spans), self._output.taken)
        words = self._output.words()
        if chunk is None or words is None:
            return chunk or words
        return PcmChunk(chunk.pcm, chunk.words + words.words)

    def finish(self) -> PcmChunk | None:
        return self._output.finish()

    def _join(self) -> PcmChunk | None:
        attempt = self._attempt
        sound = np.concatenate((*attempt.held, np.zeros(0, np.int16)))
        near = self._output.taken - self._base
        at = entry(self._tail, sound, near, round(REACH_S * self._rate))
        step = int(self._tail[-1]) - int(sound[at - 1]) if 0 < at <= len(sound) else 0
        rest = faded_step(sound[at:], step, round(FADE_S * self._rate))
        # The place in the second attempt that is the place reached in the first.
        self._base = self._output.taken - at
        self._rejoin = False
        words = tuple(attempt.held_words)
        attempt.held, attempt.held_words = [], []
        return self._use(rest, words)

    def _use(self, samples: Pcm, events: tuple[WordNumbers, ...]) -> PcmChunk | None:
        attempt = self._attempt
        loud = np.flatnonzero((samples > LOUD) | (samples < -LOUD)) + self._output.taken
        for position, sample in events:
            attempt.events += 1
            if attempt.events <= self._known:
                continue  # said already, before the attempt broke off
            self._known += 1
            self._event(position, self._base + sample, loud)
        if len(loud):
            self._last_loud = int(loud[-1])
        keep = round(TAIL_S * self._rate)
        self._tail = np.concatenate((self._tail, samples))[-keep:]
        return self._output.take(np.rint(samples * HEADROOM).astype(np.int16))

    def _event(self, position: int, sample: int, loud: NDArray[np.intp]) -> None:
        span = self._spans.at(position)
        if span is None and self._open is None:
            span = self._spans.after(position)
        if span is None or (self._open is not None and span <= self._open.span):
            return
        before = int(np.searchsorted(loud, sample))
        if before:
            self._last_loud = int(loud[before - 1])
        if self._open is not None:
            sample = max(sample, self._open.start)
        self._close(span, sample)
        self._open = _Open(span, sample)

    def _close(self, following: int, sample: int) -> None:
        word = self._open
        if word is None:
            return
        self._open = None
        end = self._last_loud + 1 if self._last_loud >= word.start else sample
        start, end = self._output.scaled(word.start), self._output.scaled(min(end, sample))
        told = self._spans.words(word.span, following)
        # The library speaks some phrases ("for a") as one and tells them once: the time is shared
        # out by letters.
        letters = sum(last - first for first, last in told)
        precision = "exact" if len(told) == 1 else "estimated"
        so_far = 0
        for first, last in told:
            word_start = start + (end - start) * so_far // letters
            so_far += last - first
            word_end = start + (end - start) * so_far // letters
            chars = (first + self._piece.start, last + self._piece.start)
            self._output.add(chars, (word_start, word_end), precision)
