"""A call's recording: what went out and what came in, each at its place on one time axis."""

from __future__ import annotations

from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.ring import InboundFrame
from qwen3tts_phone.call_events import HeardFrame
from qwen3tts_phone.record import RtpPositions, StereoRecorder

SNAP_SAMPLES = 80
"""A frame this near to the end of the one before follows it exactly: the clock's own jitter."""


class CallTracks:
    """Puts both directions of one call into a `StereoRecorder`."""

    def __init__(self, recorder: StereoRecorder, payload: Payload, origin: float) -> None:
        self._recorder = recorder
        self._payload = payload
        self._origin = origin
        self._positions = RtpPositions(origin, rate_hz=recorder.rate_hz)
        self._agent_end = 0

    def sent(self, payload: bytes, at: float) -> None:
        """A frame of ours went out ``at`` (monotonic, s)."""
        samples = self._payload.decode(payload)
        position = round((at - self._origin) * self._recorder.rate_hz)
        if abs(position - self._agent_end) <= SNAP_SAMPLES:
            position = self._agent_end
        if position >= 0:
            self._recorder.agent(samples, position)
            self._agent_end = position + len(samples)

    def heard(self, frame: InboundFrame, heard: HeardFrame) -> None:
        """A frame of the far end came."""
        position = self._positions.position(frame.timestamp % (1 << 32), frame.at)
        if position >= 0:
            self._recorder.caller(heard.samples, position)

    def close(self, now: float) -> None:
        """The call is over."""
        self._recorder.close(end=round((now - self._origin) * self._recorder.rate_hz))
