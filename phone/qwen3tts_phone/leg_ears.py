"""What comes to a call's leg, as frames for its ears: packets decoded in the format agreed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from qwen3tts_codecs.opus import OpusSettings
from qwen3tts_codecs.payload import Payload, opus, payload_by_name
from qwen3tts_phone.ears import Ears
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.hearing import Hearing
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.sdp import Negotiated
from qwen3tts_phone.sdp_codecs import DEFAULT_PTIME_MS


def payload_of(name: str, payload_type: int, parameters: str = "") -> Payload:
    """The codec of this name in a description, with the number that was agreed.

    ``parameters``: the far end's fmtp, which says how it wants to be sent to.
    """
    if name.lower() == "opus":
        # RFC 7587 section 6.1: bitrate, FEC and band are the receiver's to choose.
        return opus(payload_type, OpusSettings().for_far_end(parameters))
    payload = payload_by_name(name)
    return payload if payload.payload_type == payload_type else payload.with_type(payload_type)


def warm(names: Iterable[str]) -> None:
    """Load what the codecs need now: no call shall wait for it. Raises CodecMissing."""
    for name in names:
        payload = payload_by_name(name)
        payload.encoder(DEFAULT_PTIME_MS)
        payload.decoder()


class LegEars:
    """Feeds a call's `Ears` from its leg."""

    def __init__(self, leg: MediaLeg, ears: Ears) -> None:
        self._leg = leg
        self._ears = ears
        self._hearing: Hearing | None = None
        ears.fetch = self.take

    def agree(self, agreed: Negotiated) -> None:
        """What may come from now on."""
        payloads = {agreed.payload_type: payload_of(agreed.payload_name, agreed.payload_type)}
        for each in agreed.also_receive:
            payloads.setdefault(each.payload_type, payload_of(each.name, each.payload_type))
        noise = {13} if agreed.comfort_noise_pt is None else {13, agreed.comfort_noise_pt}
        if self._hearing is None:
            self._hearing = Hearing(payloads, comfort_noise=frozenset(noise))
        else:
            self._hearing.change(payloads)
        self._ears.ptime_ms = agreed.ptime_ms

    async def listen(self) -> None:
        """Take what comes, until the leg is closed."""
        with contextlib.suppress(CallError):
            while True:
                await self._leg.wait_inbound()
                self.take()

    def take(self) -> None:
        """Take what has come."""
        hearing = self._hearing
        for frame in self._leg.read_inbound():
            for heard in hearing.take(frame) if hearing is not None else ():
                self._ears.take(heard)
