"""Ducking of one call in the media process: its speech is lowered, or held, on command."""

from __future__ import annotations

from qwen3tts_pacer.gain import Attenuator, GainWriter, scale_of
from qwen3tts_pacer.memory import CallMemory
from qwen3tts_pacer.slot import Slot
from qwen3tts_pacer.states import State
from qwen3tts_phone.media.outbound import OutboundPacer, codec_number


class Ducking:
    """Attenuation of one call's slots.

    Frames of G.711 are scaled as they are sent; other codecs are held, which is a pause.
    """

    def __init__(self, memory: CallMemory, outbound: OutboundPacer, payload_name: str) -> None:
        self.active = False
        """True if slots must pass through `scaled`."""
        self._outbound = outbound
        self._log = GainWriter(memory)
        self._target = 0
        self._attenuator: Attenuator | None = None
        self._set_codec(payload_name)

    def command(self, attenuation: int, now: float) -> None:
        """Lower the speech by so many tenths of a decibel from the slot at ``now`` on."""
        self._target = attenuation
        self._apply(now)

    def change_codec(self, payload_name: str, now: float) -> None:
        self._set_codec(payload_name)
        self._apply(now)

    def scaled(self, slot: Slot) -> bytes:
        """Return the payload of a slot that is sent now."""
        attenuator, frame = self._attenuator, slot.frame
        if attenuator is None:
            return slot.payload
        payload = attenuator.slot(slot)
        if frame is not None:
            number = self._outbound.frames_sent(frame.context)
            self._log.sent(frame.context, number, attenuator.before, attenuator.level)
        self.active = attenuator.active or self._log.last > 0
        return payload

    # --- inside

    def _set_codec(self, payload_name: str) -> None:
        scale = scale_of(payload_name) if codec_number(payload_name) else None
        before, self._attenuator = self._attenuator, Attenuator(scale) if scale else None
        if before is not None and self._attenuator is not None:
            self._attenuator.level = before.level

    def _apply(self, now: float) -> None:
        attenuator, core = self._attenuator, self._outbound.core
        if attenuator is not None:
            attenuator.aim(self._target, sounding=core.sounding)
        self.active = attenuator is not None and (attenuator.active or self._log.last > 0)
        held = attenuator is None and self._target > 0
        if held and core.state is not State.HELD:
            core.hold(now, silence=True)
        elif not held and core.state is State.HELD:
            core.resume(now)
