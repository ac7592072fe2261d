"""The codecs that a call can have, as session descriptions name them; which of them is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qwen3tts_phone.description import Media, PayloadOffer

PTIMES_MS = (10, 20, 30, 40, 50, 60)
"""Packet times that can be sent."""
DEFAULT_PTIME_MS = 20
EVENT_PTS = {8000: 101, 48000: 102}
"""Payload types that our offers give to telephone-event, by its clock (RFC 4733 fixes none)."""
COMFORT_NOISE_PT = 13
"""RFC 3389 section 4."""


@dataclass(frozen=True, slots=True)
class Codec:
    """One codec in a description."""

    name: str
    """As it is written, and as `payload_by_name` knows it."""
    payload_type: int
    """Static (RFC 3551 table 4), or the number that our offers give it."""
    clock_hz: int = 8000
    channels: int = 1
    """As written in rtpmap (RFC 7587 section 7: always 2 for Opus, whatever is sent)."""
    parameters: str = ""
    """What our descriptions say in fmtp."""
    ptimes_ms: tuple[int, ...] = PTIMES_MS
    comfort_noise: bool = False
    """Whether RFC 3389's noise at 8 kHz goes with it."""

    @property
    def rtpmap(self) -> str:
        """As it stands behind the payload type."""
        channels = f"/{self.channels}" if self.channels > 1 else ""
        return f"{self.name}/{self.clock_hz}{channels}"

    @property
    def static(self) -> bool:
        """Whether its payload type needs no rtpmap to be understood."""
        return self.payload_type < 96

    def fits(self, offer: PayloadOffer) -> bool:
        """Whether this format of theirs is this codec."""
        # RFC 7587 section 7 wants two channels; some phones leave them out.
        channels = (1, 2) if self.channels == 2 else (1,)
        return (
            offer.name == self.name.upper()
            and offer.clock_hz == self.clock_hz
            and offer.channels in channels
        )


CODECS: dict[str, Codec] = {
    codec.name.upper(): codec
    for codec in (
        Codec("PCMU", 0, comfort_noise=True),
        Codec("PCMA", 8, comfort_noise=True),
        # RFC 3551 section 4.5.2: the clock of G.722 is written as 8000 for historical reasons.
        Codec("G722", 9),
        Codec(
            "opus",
            111,
            48000,
            2,
            "maxplaybackrate=24000;maxaveragebitrate=40000;stereo=0;sprop-stereo=0;useinbandfec=0",
            ptimes_ms=(10, 20, 40, 60),
        ),
    )
}
"""What we can speak, best known first, by the name in capitals."""


def codecs_of(names: Sequence[str]) -> tuple[Codec, ...]:
    """The codecs of these names, any case; raises ValueError for none and for unknown ones."""
    found = tuple(CODECS[name.upper()] for name in names if name.upper() in CODECS)
    if not found or len(found) != len(names):
        known = tuple(codec.name for codec in CODECS.values())
        raise ValueError(f"codecs={tuple(names)!r}: known are {known}")
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class AgreedPayload:
    """A payload type that may come, and what it is."""

    payload_type: int
    name: str
    clock_hz: int


def common(theirs: Media, ours: Sequence[Codec]) -> list[tuple[PayloadOffer, Codec]]:
    """What both ends have, in their order."""
    found = []
    for offer in theirs.payloads:
        codec = next((codec for codec in ours if codec.fits(offer)), None)
        if codec is not None:
            found.append((offer, codec))
    return found


def ptime_for(codec: Codec, wanted: int | None, most: int | None, ours: int) -> int:
    """The packet time to send with: what they ask for where it can be done, else ours.

    ``most`` is their maxptime (RFC 8866 section 6.4): the longest possible one within it counts.
    """
    ptime = wanted if wanted is not None else ours
    if ptime not in codec.ptimes_ms and (most is None or ptime <= most):
        ptime = DEFAULT_PTIME_MS
    if most and ptime > most:
        ptime = max((each for each in codec.ptimes_ms if each <= most), default=codec.ptimes_ms[0])
    return ptime
