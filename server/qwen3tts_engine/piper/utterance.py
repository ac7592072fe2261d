"""One request's sound and words, from what the worker says to what the engine gives out: pure."""

from __future__ import annotations

import numpy as np

from qwen3tts_engine.base import SAMPLE_RATE, PcmChunk, SynthesisRequest
from qwen3tts_engine.embedded.text import SENTENCE_ENDS, Piece
from qwen3tts_engine.guards import LeadingTrim
from qwen3tts_engine.workers.messages import Word
from qwen3tts_engine.workers.output import Output

QUIET = 100
"""Samples up to this (-50 dB of full scale) are no speech."""
PRE_ROLL_S = 0.01
"""Silence that is kept before the first sound of a context."""
PAUSE_S, SENTENCE_PAUSE_S = 0.15, 0.3
"""Silence after a clause and after a sentence, at the voice's usual speed."""


class Utterance:
    """Takes the sound of one piece after the other; returns the engine's chunks.

    ``begin`` a piece, feed it by ``sound``, ``end`` it; ``again`` before it is said once more, with
    the same seed, so that it is the same sample for sample; ``finish`` when all pieces are said.
    """

    def __init__(self, request: SynthesisRequest, rate: int) -> None:
        self._request = request
        self._rate = rate
        self._output = Output(request, rate)
        # The networks begin with some 50 ms of silence; where sound goes before, it is a pause.
        self._trim = LeadingTrim(PRE_ROLL_S * rate / SAMPLE_RATE, heard=request.continued)
        self._piece = Piece(0, "", False)
        self._base = 0
        """Where the piece begins, before the trim."""
        self._heard = 0
        """Samples of this saying of the piece that came, and"""
        self._told = 0
        """words of it."""
        self._used = 0
        """Samples of the piece that were used, and"""
        self._known = 0
        """words of it."""
        self._waiting: list[Word] = []
        """Words that came before the first sound."""
        self._quiet = 0
        """Quiet samples at the end of what was taken."""

    def begin(self, piece: Piece) -> None:
        """A piece is about to be said."""
        self._piece = piece
        self._base = self._output.taken + self._trim.dropped
        self._used = self._known = 0
        self.again()

    def again(self) -> None:
        """The piece will be said from its start once more."""
        self._heard = self._told = 0

    def sound(self, pcm: bytes, words: tuple[Word, ...] = ()) -> PcmChunk | None:
        """Take samples at the voice's rate, and words: characters [first, end) and samples
        [first, end) from the piece's start, 1 where they are exact."""
        for word in words:
            self._told += 1
            if self._told > self._known:
                self._known += 1
                self._waiting.append(word)
        samples = np.frombuffer(pcm, "<i2").astype(np.int16)
        had = self._used - self._heard
        self._heard += len(samples)
        samples = samples[max(0, had) :]
        self._used += len(samples)
        samples = self._trim.push(samples)
        loud = np.flatnonzero((samples > QUIET) | (samples < -QUIET))
        self._quiet = len(samples) - 1 - int(loud[-1]) if len(loud) else self._quiet + len(samples)
        self._place()
        return self._output.take(samples)

    def end(self) -> PcmChunk | None:
        """The piece has been said to its end: the rest of the pause after it, if it has one."""
        self._place()
        if not self._piece.pause or not self._used:
            return self._output.words()
        last = self._piece.text.rstrip("\"'”’»)]}」』）】 \t\n")[-1:]  # noqa: RUF001
        pause_s = SENTENCE_PAUSE_S if last in SENTENCE_ENDS else PAUSE_S
        missing = round(pause_s / self._request.speed * self._rate) - self._quiet
        return self._output.take(np.zeros(max(0, missing), np.int16))

    def finish(self) -> PcmChunk | None:
        """All pieces have been said."""
        return self._output.finish()

    def _place(self) -> None:
        """Place the words that came, as soon as it is known how much the trim dropped."""
        if not self._trim.heard:
            return
        base = self._base - self._trim.dropped
        for first, last, start, end, exact in self._waiting:
            chars = (self._piece.start + first, self._piece.start + last)
            scaled = self._output.scaled
            samples = (scaled(max(0, base + start)), scaled(max(0, base + end)))
            self._output.add(chars, samples, "exact" if exact else "estimated")
        self._waiting.clear()
