"""Audio from an upstream server: samples, read-ahead, words."""

from __future__ import annotations

import asyncio
import struct
import unicodedata
from collections import deque
from collections.abc import AsyncGenerator, Hashable, Iterator
from contextlib import aclosing

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.alignment import AlignedWord
from qwen3tts_engine.base import SAMPLE_RATE, EndReason, PcmChunk, SynthesisRequest
from qwen3tts_engine.guards import INT16, LeadingTrim, SilenceCut
from qwen3tts_engine.pause_aligner import PauseAligner
from qwen3tts_engine.speech_rhythm import SpeechRates
from qwen3tts_engine.speed import SpeechScale
from qwen3tts_engine.upstream.http import garbage
from qwen3tts_text.characters import Voiced, voiced
from qwen3tts_wire.errors import EngineFailed
from qwen3tts_wire.heard import Word

MAX_HEADER = 65_536
"""Bytes of a WAV file before its samples."""
_PCM, _EXTENSIBLE = 1, 0xFFFE


def check_rate(rate: object, channels: object = 1) -> None:
    for what, value, wanted in (
        ("hertz", rate, SAMPLE_RATE),
        ("channels", channels, 1),
    ):
        if value != wanted or isinstance(value, bool):
            shown = value if isinstance(value, (int, float)) else "no number of"
            raise EngineFailed(
                f"The upstream server sends {shown} {what}, not {wanted}.",
                remedy=f"Serve {SAMPLE_RATE} Hz mono there (as Qwen3-TTS does).",
            )


class PcmIntake:
    """s16le, mono, SAMPLE_RATE; raw or behind a WAV header; in any cut."""

    def __init__(self) -> None:
        self._head: bytearray | None = bytearray()
        """Bytes before the format is known; None: it is known."""
        self._half = b""
        self._left: int | None = None
        """Bytes of samples that a WAV file has left; None: any number."""

    def push(self, data: bytes) -> bytes:
        if self._head is not None:
            self._head += data
            if not self._known(self._head):
                return b""
            data, self._head = bytes(self._head), None
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        if self._half:
            data = self._half + data
        whole = len(data) & ~1
        self._half = data[whole:]
        return data[:whole]

    def end(self) -> bytes:
        if not self._head:
            return b""
        if len(self._head) >= 12:
            raise garbage("a WAV file without samples")
        data, self._head = bytes(self._head), None
        return data[: len(data) & ~1]

    def _known(self, head: bytearray) -> bool:
        if head[:4] != b"RIFF"[: len(head)] or (
            len(head) > 8 and head[8:12] != b"WAVE"[: len(head) - 8]
        ):
            return True
        at, formatted = 12, False
        while len(head) >= at + 8:
            name, size = struct.unpack_from("<4sI", head, at)
            if name == b"data":
                if not formatted:
                    raise garbage("a WAV file that does not say what its samples are")
                del head[: at + 8]
                # A stream does not know its length: 0, or as much as the field can hold.
                self._left = size if 0 < size < 0x7FFF_0000 else None
                return True
            if at + size > MAX_HEADER:
                raise garbage("a WAV header that does not end")
            if len(head) < at + 8 + size:
                return False
            if name == b"fmt ":
                self._format(bytes(head[at + 8 : at + 8 + size]))
                formatted = True
            at += 8 + size + (size & 1)
        return False

    @staticmethod
    def _format(fields: bytes) -> None:
        if len(fields) < 16:
            raise garbage("a WAV header that is too short")
        kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", fields)
        check_rate(rate, channels)
        if kind not in (_PCM, _EXTENSIBLE) or bits != 16:
            raise garbage(f"WAV samples of {bits} bits, kind {kind}, not of 16 bits PCM")


class ReadAhead:
    """Iterator over ``source``, read ahead by a task up to ``most`` bytes.

    A server that cannot write pings in vain, cuts a slow reader off and keeps its slot busy. Errors
    follow the items before.
    """

    def __init__(self, source: AsyncGenerator[bytes, None], most: int) -> None:
        self._most = most
        self._pieces: deque[bytes] = deque()
        self.held = 0
        """Bytes read and not yet taken."""
        self._change = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = False
        self._error: Exception | None = None
        self._task = asyncio.create_task(self._read(source), name="read from upstream")

    def __aiter__(self) -> ReadAhead:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._change.clear()
            await self._change.wait()
        piece = self._pieces.popleft()
        self.held -= len(piece)
        self._room.set()
        return piece

    def fail(self, error: Exception) -> None:
        self._task.cancel()
        self._pieces.clear()
        self.held = 0
        self._error = error
        self._change.set()

    async def aclose(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _read(self, source: AsyncGenerator[bytes, None]) -> None:
        try:
            async with aclosing(source):
                async for piece in source:
                    self._pieces.append(piece)
                    self.held += len(piece)
                    self._change.set()
                    while self.held > self._most:
                        self._room.clear()
                        await self._room.wait()
        except Exception as error:
            self._error = self._error or error
        finally:
            self._ended = True
            self._change.set()


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
"""Characters allowed between the mark and the end of the text."""
QUIET = 10 ** (-50 / 20) * 32768
"""Samples below are silence (-50 dBFS, as LeadingTrim has it)."""
SILENCE_S = 3.0
"""Silence after which nothing more is expected once the text was spoken, as far as the sound
shows;"""
PAUSE_S = 10.0
"""and while words are left, or before the first sound."""


def speakable(text: str) -> bool:
    return any(
        unicodedata.category(char)[0] in "LN" or unicodedata.category(char) in ("Sc", "So", "Sm")
        for char in text
        if voiced(char) is Voiced.KEPT
    )


class UpstreamAudio:
    """Bytes of one request in, chunks out: silence, words, an end.

    Args:
        request: to be spoken.
        voice: key of its rate in ``rates``.
        trim: whether silence before the first sound is dropped.
        speed: of the sound that comes; the rest of the request's is made here.
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
        self._rest_speed = request.speed / speed
        self._scale = SpeechScale(self._rest_speed)
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
        yield from self._samples(self._intake.push(data))

    def end(self) -> Iterator[PcmChunk]:
        if self.ended is None:
            yield from self._samples(self._intake.end())
        if not self.given:
            what = "only silence" if self._taken else "no sound"
            raise EngineFailed(
                f"The upstream server made {what} of the text.",
                remedy="Say it again; if it happens again, check that server and its checkpoint.",
            )
        rest, words = self._scale.end(self._words(self._aligner.end()))
        pcm = _to_pcm(rest) + bytes(2 * self._missing_pause())
        yield PcmChunk(pcm, words, end=self.ended or "text_end")

    def _missing_pause(self) -> int:
        if self._request.final or self.ended is not None:
            return 0
        last = self._request.text.rstrip().rstrip(CLOSERS)[-1:]
        wanted = SENTENCE_PAUSE_S if last and last in SENTENCE_ENDS else CLAUSE_PAUSE_S
        return max(0, round(wanted * SAMPLE_RATE - self._quiet / self._rest_speed))

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
                if self._scale.scales:
                    scaled, words = self._scale.push(kept.astype(np.float32) / INT16, words)
                    if len(scaled) or words:
                        yield PcmChunk(_to_pcm(scaled), words)
                else:
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


def _to_pcm(samples: NDArray[np.float32]) -> bytes:
    pcm: bytes = np.rint(samples * INT16).clip(-INT16, INT16 - 1).astype("<i2").tobytes()
    return pcm
