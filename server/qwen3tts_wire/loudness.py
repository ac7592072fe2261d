"""Where in some samples there is sound, and where it is quiet, in every format of the wire."""

from __future__ import annotations

import sys
from array import array

from qwen3tts_wire.formats import AudioFormat

AUDIBLE = 327
"""1 % of full scale, as for the mark ``first_audible``; less is a pause."""
BLOCK_S = 0.0025
"""Quiet places are looked for in steps of this length."""


def levels(data: bytes, form: AudioFormat) -> array[int]:
    """The distance of each sample from zero, 0 to 32768; shape [samples]."""
    if form.encoding == "pcm_s16le":
        samples = array("h", data[: len(data) // 2 * 2])
        if sys.byteorder == "big":
            samples.byteswap()
        return array("H", map(abs, samples))
    table = _TABLES[form.encoding]
    return array("H", [table[code] for code in data])


def audible(data: bytes, form: AudioFormat) -> tuple[int, int]:
    """The first audible sample and the one after the last; both 0 where there is none."""
    loud = bytes(level > AUDIBLE for level in levels(data, form))
    return max(0, loud.find(1)), loud.rfind(1) + 1


def quietest(data: bytes, form: AudioFormat) -> int:
    """The sample at which to cut, so that it is heard least; the last of equally good places."""
    height = levels(data, form)
    step = max(1, int(BLOCK_S * form.sample_rate))
    best, place = 1 << 16, len(height)
    for end in range(len(height), 0, -step):
        level = max(height[max(0, end - step) : end])
        if level < best:
            best, place = level, end
    return place


def _mulaw() -> list[int]:
    # ITU-T G.711, table 2a: inverted; 3 bits of segment, 4 of step, a bias of 33 in 14 bits.
    codes = [~code & 0x7F for code in range(256)]
    return [((((code & 15) << 3) + 132) << (code >> 4)) - 132 for code in codes]


def _alaw() -> list[int]:
    # ITU-T G.711, table 1a: every other bit inverted; 3 bits of segment, 4 of step, 13 bits.
    magnitudes = []
    for code in ((each ^ 0x55) & 0x7F for each in range(256)):
        segment, step = code >> 4, (code & 15) << 4
        magnitudes.append(step + 8 if segment == 0 else (step + 264) << (segment - 1))
    return magnitudes


_TABLES = {"mulaw": _mulaw(), "alaw": _alaw()}
