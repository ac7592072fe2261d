"""The sound of one request on its way out: silence at its start, words, an end. No torch."""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Iterator

import numpy as np

from qwen3tts_engine.alignment import AlignedWord
from qwen3tts_engine.base import SAMPLE_RATE, EndReason, PcmChunk, SynthesisRequest
from qwen3tts_engine.guards import LeadingTrim, SilenceCut
from qwen3tts_engine.pause_aligner import PauseAligner
from qwen3tts_engine.speech_rates import SpeechRates
from qwen3tts_engine.upstream.sound import PcmIntake
from qwen3tts_text.characters import Voiced, voiced
from qwen3tts_wire.alignment import Word
from qwen3tts_wire.errors import EngineFailed

CONTINUED_PRE_ROLL_S = 0.12
"""Silence that is kept at the start where sound of the same context goes before."""
CHUNK = SAMPLE_RATE // 5
"""Most samples in a chunk: between two of them others have their turn."""
LONGEST_CHAR_S = 1.3
"""No speech lasts longer: a character is a token or less, a token a slow number's word or two."""
LONGEST_BASE_S = 10.0
"""Pauses before and after it, whatever the text."""
SENTENCE_PAUSE_S = 0.3
CLAUSE_PAUSE_S = 0.12
"""Silence at least between a clause and the next of its context: servers leave out what follows the
last sound of a request, for they do not know that there is more."""
SENTENCE_ENDS = ".!?…。！？।॥؟"  # noqa: RUF001
CLOSERS = "\"')]}»”’"  # noqa: RUF001
"""What may stand between the mark and the end of the text."""
QUIET = 10 ** (-50 / 20) * 32768
"""Samples below are silence (-50 dBFS, as LeadingTrim has it)."""
SILENCE_S = 3.0
"""Silence after which nothing more is expected once the text has been said, as far as the sound
shows;"""
PAUSE_S = 10.0
"""and while words are left, or before the first sound."""


def speakable(text: str) -> bool:
    """Whether there is anything to say: letters, numbers, signs that are read; no emoji."""
    return any(
        unicodedata.category(char)[0] in "LN" or unicodedata.category(char) in ("Sc", "So", "Sm")
        for char in text
        if voiced(char) is Voiced.KEPT
    )


class Voicing:
    """Bytes of one request in, chunks out.

    Args:
        request: what is spoken.
        voice: whose rate of speech ``rates`` keeps.
        trim: whether silence before the first sound is left out.
    """

    def __init__(
        self,
        request: SynthesisRequest,
        rates: SpeechRates,
        voice: Hashable = None,
        *,
        trim: bool = True,
        speed: float = 1.0,
    ) -> None:
        self._request = request
        self._intake = PcmIntake()
        self._trim: LeadingTrim | None = None
        if trim:
            self._trim = LeadingTrim(CONTINUED_PRE_ROLL_S) if request.continued else LeadingTrim()
        self._aligner = PauseAligner(
            request.text, ended=True, language=request.language, rates=rates, voice=(voice, speed)
        )
        self._most = round(
            SAMPLE_RATE * (LONGEST_BASE_S + LONGEST_CHAR_S * len(request.text) / speed)
        )
        self._silence = SilenceCut(after_s=SILENCE_S, onset_s=PAUSE_S, text_end=0)
        self._taken = 0
        self._quiet = 0
        """Samples of silence given out last."""
        self.given = 0
        """Samples given out."""
        self.ended: EndReason | None = None
        """Why nothing more is taken though more may come: it went on for longer than its text can,
        or in silence."""

    def push(self, data: bytes) -> Iterator[PcmChunk]:
        """More bytes, in any cut.

        Raises:
            EngineFailed: the sound is of another kind.
        """
        yield from self._samples(self._intake.push(data))

    def end(self) -> Iterator[PcmChunk]:
        """No more bytes: the rest, with the last chunk.

        Raises:
            EngineFailed: nothing of it could be heard.
        """
        if self.ended is None:
            yield from self._samples(self._intake.end())
        if not self.given:
            what = "only silence" if self._taken else "no sound"
            raise EngineFailed(
                f"The upstream server made {what} of the text.",
                remedy="Say it again; if it happens again, check that server and its checkpoint.",
            )
        words = self._words(self._aligner.end())
        yield PcmChunk(bytes(2 * self._missing_pause()), words, end=self.ended or "text_end")

    def _missing_pause(self) -> int:
        """Samples of silence that lack before the next clause."""
        if self._request.final or self.ended is not None:
            return 0
        last = self._request.text.rstrip().rstrip(CLOSERS)[-1:]
        wanted = SENTENCE_PAUSE_S if last and last in SENTENCE_ENDS else CLAUSE_PAUSE_S
        return max(0, round(wanted * SAMPLE_RATE) - self._quiet)

    def _samples(self, pcm: bytes) -> Iterator[PcmChunk]:
        for first in range(0, len(pcm), 2 * CHUNK):
            if self.ended is not None:
                return
            samples = np.frombuffer(pcm[first : first + 2 * CHUNK], "<i2")
            self._taken += len(samples)
            kept = samples if self._trim is None else self._trim.push(samples)
            said = self._quiet == 0 or self._aligner.unsaid() is None
            self._silence.after_s = SILENCE_S if said else PAUSE_S
            kept = self._silence.push(kept)
            if self._taken >= self._most:
                self.ended = "frame_cap"
            elif self._silence.cut:
                self.ended = "silence"
            if len(kept):
                words = self._words(self._aligner.push(kept))
                self.given += len(kept)
                loud = np.flatnonzero(np.abs(kept.astype(np.int32)) > QUIET)
                self._quiet = (
                    len(kept) - 1 - int(loud[-1]) if len(loud) else self._quiet + len(kept)
                )
                yield PcmChunk(kept.astype("<i2").tobytes(), words)

    def _words(self, found: list[AlignedWord]) -> tuple[Word, ...]:
        request = self._request
        return tuple(
            Word(
                request.text[each.char_start : each.char_end],
                each.start,
                each.end,
                *request.original(each.char_start, each.char_end),
                "estimated",
                each.precision_ms,
            )
            for each in found
        )
