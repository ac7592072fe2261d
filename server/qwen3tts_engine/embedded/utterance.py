"""One request's sound and words, from what the worker says to what the engine gives out: pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.base import PcmChunk, SynthesisRequest
from qwen3tts_engine.embedded.joint import FADE_S, REACH_S, TAIL_S, entry, faded_step
from qwen3tts_engine.embedded.text import Piece
from qwen3tts_engine.workers.messages import Word
from qwen3tts_engine.workers.output import Output, Pcm
from qwen3tts_text.word_units import Spans

LOUD = 100
"""A sample beyond this is heard (-50 dB of full scale). A word ends with its last such sample, so
that the pause after it is not counted as the word."""

HEADROOM = 0.8
"""Factor on the library's samples, some of which reach full scale, which the resampler's filter
would overshoot."""


@dataclass(slots=True)
class _Open:
    """The word that is being said."""

    span: int
    start: int
    """Samples at the library's rate from the request's start, as all that follow."""


@dataclass(slots=True)
class _Saying:
    """One saying of a piece, which may be its second."""

    heard: int = 0
    """Samples that came."""
    events: int = 0
    """Words that came."""
    held: list[Pcm] = field(default_factory=list)
    """What came before it is known that the piece says anything, or where to go on."""
    held_words: list[Word] = field(default_factory=list)


class Utterance:
    """Takes the sound of one piece after the other; returns the engine's chunks.

    ``begin`` a piece, feed it by ``sound``, ``end`` it; ``again`` after a saying that broke off;
    ``finish`` when all pieces are said. Samples given out are never given out again.
    """

    def __init__(self, request: SynthesisRequest, rate: int) -> None:
        self._rate = rate
        self._output = Output(request, rate)
        self._last_loud = -1
        self._tail: Pcm = np.zeros(0, np.int16)
        self._piece = Piece(0, "", False)
        self._spans = Spans("")
        self._base = 0
        """Where the piece begins."""
        self._open: _Open | None = None
        self._known = 0
        """Word events of the piece that were used."""
        self._saying = _Saying()
        self._rejoin = False

    def begin(self, piece: Piece) -> None:
        """A piece is about to be said."""
        self._piece = piece
        self._spans = Spans(piece.text)
        self._base = self._output.taken
        self._open = None
        self._known = 0
        self._saying = _Saying()
        self._rejoin = False

    def again(self) -> None:
        """The piece will be said from its start once more."""
        self._saying = _Saying()
        self._rejoin = self._output.taken > self._base

    def sound(self, pcm: bytes, words: tuple[Word, ...] = ()) -> PcmChunk | None:
        """Samples at the library's rate, and the words that begin in them as (code point, sample)
        from the piece's start."""
        samples = np.frombuffer(pcm, np.int16)
        saying = self._saying
        saying.heard += len(samples)
        if self._rejoin:
            saying.held.append(samples)
            saying.held_words += words
            enough = self._output.taken - self._base + round(REACH_S * self._rate)
            return self._join() if saying.heard >= enough else None
        if self._known == 0 and not words:
            # Nothing is said yet, and perhaps nothing will be.
            saying.held.append(samples)
            return None
        if saying.held:
            samples = np.concatenate((*saying.held, samples))
            saying.held = []
        return self._use(samples, words)

    def end(self) -> PcmChunk | None:
        """The piece has been said to its end."""
        chunk = self._join() if self._rejoin else None
        self._close(len(self._spans), self._output.taken)
        words = self._output.words()
        if chunk is None or words is None:
            return chunk or words
        return PcmChunk(chunk.pcm, chunk.words + words.words)

    def finish(self) -> PcmChunk | None:
        """All pieces have been said."""
        return self._output.finish()

    def _join(self) -> PcmChunk | None:
        """Go on from where the broken saying ended."""
        saying = self._saying
        sound = np.concatenate((*saying.held, np.zeros(0, np.int16)))
        near = self._output.taken - self._base
        at = entry(self._tail, sound, near, round(REACH_S * self._rate))
        step = int(self._tail[-1]) - int(sound[at - 1]) if 0 < at <= len(sound) else 0
        rest = faded_step(sound[at:], step, round(FADE_S * self._rate))
        # The place in the second saying that is the place reached in the first.
        self._base = self._output.taken - at
        self._rejoin = False
        words = tuple(saying.held_words)
        saying.held, saying.held_words = [], []
        return self._use(rest, words)

    def _use(self, samples: Pcm, events: tuple[Word, ...]) -> PcmChunk | None:
        """Sound and words that are to be heard."""
        saying = self._saying
        loud = np.flatnonzero((samples > LOUD) | (samples < -LOUD)) + self._output.taken
        for position, sample in events:
            saying.events += 1
            if saying.events <= self._known:
                continue  # said already, before the saying broke off
            self._known += 1
            self._event(position, self._base + sample, loud)
        if len(loud):
            self._last_loud = int(loud[-1])
        keep = round(TAIL_S * self._rate)
        self._tail = np.concatenate((self._tail, samples))[-keep:]
        return self._output.take(np.rint(samples * HEADROOM).astype(np.int16))

    def _event(self, position: int, sample: int, loud: NDArray[np.intp]) -> None:
        """A word begins, or goes on: the parts of a number are told one by one."""
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
        """The open word ends at ``sample`` at the latest; span ``following`` comes next."""
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
