"""Bytes as they come from a server to whole samples: halves are kept, headers read. Pure."""

from __future__ import annotations

import struct

from qwen3tts_engine.base import SAMPLE_RATE
from qwen3tts_engine.upstream.faults import garbage
from qwen3tts_wire.errors import EngineFailed

MAX_HEADER = 65_536
"""Bytes of a WAV file before its samples."""
_PCM, _EXTENSIBLE = 1, 0xFFFE


def check_rate(rate: object, channels: object = 1) -> None:
    """Refuse sound that would be heard at another pitch.

    Raises:
        EngineFailed: it is not SAMPLE_RATE, or not mono.
    """
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
    """Signed 16 bits little-endian, mono, SAMPLE_RATE; raw or behind a WAV header.

    However the bytes are cut, the same samples come out.
    """

    def __init__(self) -> None:
        self._head: bytearray | None = bytearray()
        """What came before it is known what it is; None: it is known."""
        self._half = b""
        self._left: int | None = None
        """Bytes of samples that a WAV file has left; None: any number."""

    def push(self, data: bytes) -> bytes:
        """More bytes; the whole samples that are complete with them.

        Raises:
            EngineFailed: a WAV header of another kind of sound.
        """
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
        """No more bytes; what is left. Half a sample is none.

        Raises:
            EngineFailed: it ended within a WAV header.
        """
        if not self._head:
            return b""
        if len(self._head) >= 12:
            raise garbage("a WAV file without samples")
        data, self._head = bytes(self._head), None
        return data[: len(data) & ~1]

    def _known(self, head: bytearray) -> bool:
        """Whether ``head`` now holds samples alone; a header is taken off."""
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
