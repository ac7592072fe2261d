"""The two laws of G.711 into each other, code word by code word (ITU-T G.711), without numpy."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from qwen3tts_pacer.frame import Frame
from qwen3tts_phone.media.types import RemoteMedia


def _ulaw_level(code: int) -> int:
    code ^= 0xFF
    level = (((code & 0x0F) << 3) + 0x84 << (code >> 4 & 7)) - 0x84
    return -level if code & 0x80 else level


def _alaw_level(code: int) -> int:
    code ^= 0x55
    segment = code >> 4 & 7
    level = (code & 0x0F) << 4
    level = level + 8 if segment == 0 else (level + 0x108) << segment - 1
    return level if code & 0x80 else -level


def _table(levels: list[int], codes: list[int]) -> bytes:
    """For each level the code whose own is nearest; between two the one of the same sign."""
    order = sorted(range(256), key=lambda code: (codes[code], code))
    ladder = [codes[code] for code in order]
    found = bytearray()
    for index, level in enumerate(levels):
        place = bisect_left(ladder, level)
        near = [at for at in (place - 1, place, place + 1) if 0 <= at < 256]
        # A code below 0x80 is negative in both laws, also where its level is 0.
        negative = index < 0x80
        found.append(
            min(
                (order[at] for at in near),
                key=lambda code: (abs(codes[code] - level), (code < 0x80) != negative, code),
            )
        )
    return bytes(found)


_ULAW = [_ulaw_level(code) for code in range(256)]
_ALAW = [_alaw_level(code) for code in range(256)]
_ULAW_TO_ALAW = _table(_ULAW, _ALAW)
_ALAW_TO_ULAW = _table(_ALAW, _ULAW)
_CODECS = {"PCMU": 1, "PCMA": 2}
_TABLES = {(1, 2): _ULAW_TO_ALAW, (2, 1): _ALAW_TO_ULAW}


def codec_number(payload_name: str) -> int | None:
    """The number that stands for one of the two in a call's ring; None = another codec."""
    return _CODECS.get(payload_name)


def translated(frame: Frame, table: bytes) -> Frame:
    """The same sound in the other law."""
    return frame._replace(
        payload=frame.payload.translate(table),
        tail=None if frame.tail is None else frame.tail.translate(table),
        head=None if frame.head is None else frame.head.translate(table),
    )


def table_between(one: int, other: int) -> bytes | None:
    """How code words of one codec become those of the other; None = they do not."""
    return _TABLES.get((one, other))


def keeping_ptime(remote: RemoteMedia, before: RemoteMedia) -> RemoteMedia:
    """The same codec with the packet duration of before; frames of it are queued."""
    if remote.ptime_ms == before.ptime_ms:
        return remote
    silence = before.silence if remote.payload_name == before.payload_name else ""
    return replace(remote, ptime_ms=before.ptime_ms, silence=silence)
