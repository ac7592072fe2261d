"""Samples as audio files: WAV, FLAC, MP3, Opus, AAC, raw PCM.

A second of audio costs 0.4 (FLAC) to 8 ms (MP3) of a core: compressed forms use
``EncodingThreads``. FFmpeg's encoders release the GIL.
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO, Literal, ParamSpec, Protocol, TypeVar, cast

import numpy as np

from qwen3tts_codecs.wav import wav_bytes, wav_header
from qwen3tts_wire.errors import BadRequest, EngineUnavailable

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.stream import AudioStream
    from av.container import OutputContainer

INSTALL = "Install it on the server: pip install 'mr_qwen3tts[server]'. wav and pcm need nothing."
JOB_BYTES = 48_000
"""One second at 24 kHz: longest use of a thread by one client."""


@dataclass(frozen=True)
class _Form:
    content_type: str
    container: str = ""
    """FFmpeg's muxer; empty: none."""
    codec: str = ""
    bit_rate: int = 0
    codec_options: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    """The muxer's, for a stream."""
    rates: tuple[int, ...] = ()
    """Supported rates, rising, hertz; empty: any."""


_MPEG_RATES = (8000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
_FORMS: Mapping[str, _Form] = {
    "wav": _Form("audio/wav"),
    "pcm": _Form("audio/pcm"),
    # The header's room for tags (8 KiB) would be a third of a short sentence.
    "flac": _Form("audio/flac", "flac", "flac", options={"metadata_header_padding": "0"}),
    # A stream cannot be gone back in: no table of contents at its start.
    "mp3": _Form(
        "audio/mpeg",
        "mp3",
        "libmp3lame",
        64_000,
        options={"write_xing": "0", "id3v2_version": "0"},
        rates=_MPEG_RATES,
    ),
    # Pages of 100 ms, in microseconds; FFmpeg's own second would be a second's wait.
    "opus": _Form(
        "audio/ogg",
        "ogg",
        "libopus",
        48_000,
        {"application": "voip", "frame_duration": "20"},
        {"page_duration": "100000"},
        rates=(8000, 12_000, 16_000, 24_000, 48_000),
    ),
    "aac": _Form("audio/aac", "adts", "aac", 64_000, rates=_MPEG_RATES),
}
FORMS = tuple(_FORMS)
"""By ``response_format``."""
Form = Literal["wav", "pcm", "flac", "mp3", "opus", "aac"]


_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Encoder(Protocol):
    def push(self, pcm: bytes) -> bytes: ...
    def flush(self) -> bytes: ...


class SoundEncoder:
    """Encoder of a stream, s16le mono at ``sample_rate`` hertz. Not thread-safe.

    The results of ``push`` and ``flush`` make one file.

    Raises:
        BadRequest: unknown form.
        EngineUnavailable: its library is missing.
    """

    def __init__(self, form: str, sample_rate: int) -> None:
        kind = _kind(form)
        self.form = form
        self.compressed = bool(kind.container)
        """True if it must run on a thread."""
        self.content_type = kind.content_type
        self._rest = b""
        self._flushed = False
        self._inner: _Encoder
        if kind.container:
            self._inner = _Muxed(kind, sample_rate, _Stream())
        else:
            self._inner = _Plain(wav_header(None, sample_rate) if form == "wav" else b"")

    def push(self, pcm: bytes) -> bytes:
        """Encode samples; return the ready bytes."""
        if self._flushed:
            raise ValueError("flush() was called: the file is complete")
        pcm = self._rest + pcm
        even = len(pcm) & ~1
        pcm, self._rest = pcm[:even], pcm[even:]
        return self._inner.push(pcm) if pcm else b""

    def flush(self) -> bytes:
        if self._flushed:
            return b""
        self._flushed = True
        return self._inner.flush()


def content_type(form: str) -> str:
    return _kind(form).content_type


def rate_for(form: str, sample_rate: int) -> int:
    """Return a form's lowest rate that keeps ``sample_rate``, at most 48 kHz."""
    rates = _kind(form).rates or (sample_rate,)
    return next((each for each in rates if each >= sample_rate), rates[-1])


class SoundFile:
    """Encoder of s16le mono into a seekable file with exact header."""

    def __init__(self, form: str, sample_rate: int, file: BinaryIO) -> None:
        """``form``: one with a container, such as mp3; ``file`` stays open."""
        self._muxed = _Muxed(_kind(form), sample_rate, file)

    def push(self, pcm: bytes) -> None:
        """Append samples; raises ``OSError``."""
        self._muxed.push(pcm)

    def close(self) -> None:
        self._muxed.flush()


def encode_whole(form: str, sample_rate: int, pcm: bytes) -> bytes:
    """Encode s16le mono with exact lengths, FLAC checksum, MP3 gaps."""
    kind = _kind(form)
    pcm = pcm[: len(pcm) & ~1]
    if form == "pcm":
        return pcm
    if form == "wav":
        return wav_bytes(pcm, sample_rate)
    file = io.BytesIO()
    encoder = _Muxed(kind, sample_rate, file)
    if pcm:
        encoder.push(pcm)
    encoder.flush()
    return file.getvalue()


class EncodingThreads:
    """Encoder threads of all clients; one core is left free.

    A job is at most JOB_BYTES of audio; jobs run in order.
    """

    def __init__(self, threads: int = 0) -> None:
        self._threads = ThreadPoolExecutor(
            threads or max(1, (os.cpu_count() or 2) - 1), thread_name_prefix="encode"
        )

    async def open(self, form: str, sample_rate: int) -> SoundEncoder:
        if not _kind(form).container:
            return SoundEncoder(form, sample_rate)
        return await self._run(lambda: SoundEncoder(form, sample_rate))

    async def push(self, encoder: SoundEncoder, pcm: bytes) -> bytes:
        if not encoder.compressed:
            return encoder.push(pcm)
        return b"".join([await self._run(encoder.push, block) for block in _blocks(pcm)])

    async def flush(self, encoder: SoundEncoder) -> bytes:
        return await self._run(encoder.flush) if encoder.compressed else encoder.flush()

    async def whole(self, form: str, sample_rate: int, pcm: bytes) -> bytes:
        kind = _kind(form)
        if not kind.container:
            return encode_whole(form, sample_rate, pcm)
        file = io.BytesIO()
        muxed = await self._run(_Muxed, kind, sample_rate, file)
        for block in _blocks(pcm[: len(pcm) & ~1]):
            await self._run(muxed.push, block)
        await self._run(muxed.flush)
        return file.getvalue()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *args, **kwargs))


def _blocks(pcm: bytes) -> list[bytes]:
    return [pcm[at : at + JOB_BYTES] for at in range(0, len(pcm), JOB_BYTES)]


def _kind(form: str) -> _Form:
    kind = _FORMS.get(form)
    if kind is None:
        raise BadRequest(
            "There is no such response format.", remedy=f"Choose one of {', '.join(FORMS)}."
        )
    return kind


class _Plain:
    def __init__(self, header: bytes) -> None:
        self._header = header

    def push(self, pcm: bytes) -> bytes:
        header, self._header = self._header, b""
        return header + pcm

    def flush(self) -> bytes:
        return self.push(b"")


class _Stream:
    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data


class _Muxed:
    def __init__(self, kind: _Form, sample_rate: int, file: _Stream | BinaryIO) -> None:
        av = _pyav()
        self._rate = sample_rate
        self._file = file
        self._at = 0
        self._frame: Callable[..., AudioFrame] = av.AudioFrame.from_ndarray
        whole = not isinstance(file, _Stream)
        options = {} if whole and kind.container == "mp3" else dict(kind.options)
        self._container = cast(
            "OutputContainer", av.open(file, "w", format=kind.container, options=options)
        )
        try:
            self._stream = cast(
                "AudioStream",
                self._container.add_stream(
                    kind.codec, rate=sample_rate, options=dict(kind.codec_options), layout="mono"
                ),
            )
            if kind.bit_rate:
                # At 8 kHz no codec has use for more than four bits a sample.
                self._stream.bit_rate = min(kind.bit_rate, 4 * sample_rate)
            self._container.start_encoding()
        except (av.FFmpegError, ValueError) as error:
            raise EngineUnavailable(
                f"This server cannot write {kind.codec} at {sample_rate} Hz.",
                remedy="Ask for wav or pcm, or another sample rate.",
            ) from error

    def push(self, pcm: bytes) -> bytes:
        block = np.frombuffer(pcm, "<i2").astype(np.int16, copy=False)[None, :]
        frame = self._frame(block, format="s16", layout="mono")
        frame.sample_rate = self._rate
        frame.pts = self._at
        self._at += block.shape[1]
        self._container.mux(self._stream.encode(frame))
        return self._taken()

    def flush(self) -> bytes:
        if self._at:
            self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._taken()

    def _taken(self) -> bytes:
        return self._file.take() if isinstance(self._file, _Stream) else b""


def _pyav() -> ModuleType:
    try:
        import av
    except ImportError as error:
        raise EngineUnavailable(
            "This server cannot write compressed audio: PyAV is missing.", remedy=INSTALL
        ) from error
    return av
