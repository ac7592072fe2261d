"""Gain of encoded frames: an utterance is lowered after it was encoded (ducking).

Pure Python: the media process has no numpy. G.711 is scaled by tables of code words (ITU-T G.711),
linear samples by multiplication. A change of gain is a ramp over the first 5 ms of a frame, one
step a sample: a step of 12 dB puts 0.4 to 0.9 % of the power of a 150 to 1000 Hz tone above 2 kHz,
the ramp 0.01 %, the noise of the codec itself.

Gains are in tenths of a decibel below full level.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from qwen3tts_pacer.memory import GAIN_ENTRIES, GAINS, CallMemory, MediaWord, fence
from qwen3tts_pacer.slot import Kind, Slot

MOST_DB: Final = 40.0
DUCK_DB: Final = 12.0
"""Usual attenuation; its tables are made at import."""
RAMP_S: Final = 0.005

Scale = Callable[[bytes, int, int], bytes]
"""Scales a frame from one attenuation to another: payload, before, after."""


def tenths(db: float) -> int:
    """Return ``db`` in tenths. Raises ValueError outside 0 to `MOST_DB`."""
    if isinstance(db, bool) or not isinstance(db, int | float) or not 0 <= db <= MOST_DB:
        raise ValueError(f"db={db!r} is not between 0 and {MOST_DB:g}")
    return round(db * 10)


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


ULAW_LEVELS: Final = tuple(map(_ulaw_level, range(256)))
"""Sample of each code word, 16 bits; likewise the next."""
ALAW_LEVELS: Final = tuple(map(_alaw_level, range(256)))


def _nearest(levels: tuple[int, ...]) -> tuple[tuple[int, ...], bytes]:
    """Return the levels from code word 0x80 on, and the code word of each sample from 0 on."""
    positive = levels[0x80:]
    rising = sorted(range(128), key=positive.__getitem__)
    codes = bytearray()
    for code, following in zip(rising, [*rising[1:], None], strict=True):
        # The nearest level, and of two the larger one.
        end = 32768 if following is None else (positive[code] + positive[following]) // 2
        codes += bytes([code | 0x80]) * (end - len(codes))
    return positive, bytes(codes)


_NEAREST = {"PCMU": _nearest(ULAW_LEVELS), "PCMA": _nearest(ALAW_LEVELS)}
_NEGATIVE = bytes(code ^ 0x80 for code in range(256))


@lru_cache(maxsize=1024)
def gain_table(name: str, attenuation: int) -> bytes:
    """Return the code word for each of PCMU or PCMA, ``attenuation`` tenths of a dB lower.

    It is that of the nearest level; the sign is kept.
    """
    factor = 10 ** (-attenuation / 200)
    levels, codes = _NEAREST[name]
    positive = bytes([codes[round(level * factor)] for level in levels])
    return positive.translate(_NEGATIVE) + positive


def _g711(name: str) -> Scale:
    ramp = round(8000 * RAMP_S)

    @lru_cache(maxsize=16)
    def tables(before: int, after: int) -> tuple[bytes, ...]:
        return tuple(
            gain_table(name, before + round((after - before) * (index + 1) / ramp))
            for index in range(ramp)
        )

    def scale(payload: bytes, before: int, after: int) -> bytes:
        if before == after:
            return payload.translate(gain_table(name, after)) if after else payload
        steps = tables(before, after)
        first = bytes([table[code] for table, code in zip(steps, payload, strict=False)])
        rest = payload[ramp:]
        return first + (rest.translate(gain_table(name, after)) if after else rest)

    return scale


def _linear(sample_hz: int, *, swapped: bool) -> Scale:
    ramp = round(sample_hz * RAMP_S)

    def scale(payload: bytes, before: int, after: int) -> bytes:
        if before == after == 0:
            return payload
        samples = array("h", payload)
        if swapped:
            samples.byteswap()
        factor = 10 ** (-after / 200)
        scaled = array("h", [round(sample * factor) for sample in samples])
        if before != after:
            for index in range(min(ramp, len(samples))):
                attenuation = before + (after - before) * (index + 1) / ramp
                scaled[index] = round(samples[index] * 10 ** (-attenuation / 200))
        if swapped:
            scaled.byteswap()
        return scaled.tobytes()

    return scale


_SCALES = {"PCMU": _g711("PCMU"), "PCMA": _g711("PCMA")}
for _scale in _SCALES.values():
    for _ends in ((0, tenths(DUCK_DB)), (tenths(DUCK_DB), 0)):
        _scale(b"\xff", *_ends)  # a media process has no time for tables


def scale_of(payload_name: str, sample_hz: int = 8000) -> Scale | None:
    """Return what scales frames of a format; None = it cannot be scaled once it is encoded."""
    if payload_name in ("L16", "L16LE"):
        little = sys.byteorder == "little"
        return _linear(sample_hz, swapped=(payload_name == "L16") == little)
    return _SCALES.get(payload_name)


class Attenuator:
    """Attenuation of one stream of slots: moves to its target within the next frame of speech.

    Args:
        scale: scales a frame of the stream's format.
    """

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.target = 0
        """Attenuation from the next frame of speech on."""
        self.before = 0
        """Attenuation at the begin of the last frame."""
        self.level = 0
        """Attenuation at its end."""
        self._sounding = False

    @property
    def active(self) -> bool:
        return bool(self.level or self.target)

    def aim(self, target: int, *, sounding: bool) -> None:
        """Set the target; ``sounding``: the last slot carried a frame."""
        if not self.active:
            self._sounding = sounding
        self.target = target

    def slot(self, slot: Slot) -> bytes:
        """Return the payload of a slot that is sent now; called for each while `active`."""
        if slot.frame is not None:
            return self.frame(slot.payload)
        if slot.kind is Kind.FADE:
            return self.fade(slot.payload)
        self.pause()
        return slot.payload

    def frame(self, payload: bytes) -> bytes:
        """Return a frame of speech, scaled."""
        self.before = self.level if self._sounding else self.target
        self.level = self.target
        self._sounding = True
        return self.scale(payload, self.before, self.target)

    def fade(self, payload: bytes) -> bytes:
        """Return a fade of the frame before it at the level of that frame."""
        level, self.level = self.level, self.target
        self._sounding = False
        return self.scale(payload, level, level)

    def pause(self) -> None:
        """Note a slot without sound: what follows begins at the target."""
        self.level = self.target
        self._sounding = False


class GainChange(NamedTuple):
    """Change of the attenuation with a frame of speech."""

    context: int
    frame: int
    """Number of the frame in its context."""
    before: int
    after: int


class GainWriter:
    """Log of the attenuation of frames sent: the media process's end."""

    def __init__(self, memory: CallMemory) -> None:
        self._words = memory.words
        self._count = 0
        self.last = 0
        """Attenuation of the last frame that was noted."""

    def sent(self, context: int, frame: int, before: int, after: int) -> None:
        """Note a frame before it is published as sent."""
        if before == after == self.last:
            return
        self.last = after
        at = GAINS + self._count % GAIN_ENTRIES * 2
        self._words[at] = context
        self._words[at + 1] = frame << 20 | before << 10 | after
        fence()
        self._count += 1
        self._words[MediaWord.GAIN_CHANGES] = self._count


class GainReader:
    """The parent's end; it reads before each command, so no change is overwritten unread."""

    def __init__(self, memory: CallMemory) -> None:
        self._words = memory.words
        self._count = 0
        self._changes: deque[GainChange] = deque(maxlen=GAIN_ENTRIES)

    def read(self) -> bool:
        """Read what is new; return whether any frame was ever scaled."""
        count = self._words[MediaWord.GAIN_CHANGES]
        if count != self._count:
            fence()
            for index in range(max(self._count, count - GAIN_ENTRIES), count):
                at = GAINS + index % GAIN_ENTRIES * 2
                packed = self._words[at + 1]
                self._changes.append(
                    GainChange(self._words[at], packed >> 20, packed >> 10 & 0x3FF, packed & 0x3FF)
                )
            self._count = count
        return bool(self._changes)

    def of(self, context: int, frame: int) -> tuple[int, int]:
        """Return a sent frame's attenuation, before and after; `read` was called since."""
        for change in reversed(self._changes):
            place = change[:2]
            if place <= (context, frame):
                exact = place == (context, frame)
                return (change.before if exact else change.after), change.after
        return 0, 0
