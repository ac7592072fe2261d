"""A call's recording: what went out and what came in, each at its place on one time axis."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.call_events import HeardFrame
from qwen3tts_phone.playout import Playout, PlayoutSettings
from qwen3tts_phone.record import StereoRecorder
from qwen3tts_phone.sent_audio import SentFrame

Samples = NDArray[np.int16]

SNAP_S = 0.01
"""A frame this near to the end of the one before follows it exactly: the clock's own jitter."""

BEHIND_S = 0.5
"""The caller's track is written so long after its time. Nobody waits for it, and what a busy
process takes from the line only now has its place all the same."""

HOLD_S = 0.4
"""So much jitter does not change a sample of the caller's words."""
PLAYOUT = PlayoutSettings(max_delay_s=1.5, hold_s=HOLD_S)


class CallTracks:
    """Puts both directions of one call into a `StereoRecorder`, at its rate.

    The agent's frames lie where they went out. What the caller says goes through a `Playout`, one
    that holds it long: it lies where it came in on a line at rest, without holes, and its clock
    cannot run away from ours. The pauses make up for that: no period of a word is left out or
    repeated unless the buffer would run dry, or over. A codec may change in mid-call; the recording
    keeps its rate.
    """

    def __init__(self, recorder: StereoRecorder, origin: float) -> None:
        self._recorder = recorder
        self._origin = origin
        self._rate_hz = recorder.rate_hz
        self._agent_end = 0
        self._playout = Playout(recorder.rate_hz, settings=PLAYOUT)
        self._caller_from: int | None = None
        self._resampler: Resampler | None = None

    @property
    def error(self) -> OSError | None:
        """Why the file is not complete; None while all is well."""
        return self._recorder.error

    def sent(self, frame: SentFrame) -> None:
        """A frame of ours went out."""
        samples = self._resampled(frame)
        position = round((frame.at - self._origin) * self._rate_hz)
        if abs(position - self._agent_end) <= SNAP_S * self._rate_hz:
            position = self._agent_end
        if position >= 0:
            self._recorder.agent(samples, position)
            self._agent_end = position + len(samples)

    def heard(self, heard: HeardFrame) -> None:
        """A frame of the far end came."""
        self._playout.push(heard)

    def tick(self, now: float) -> None:
        """Write what is due half a second before ``now``."""
        for frame in self._playout.due(now - BEHIND_S):
            self._put(frame)

    def close(self, now: float) -> None:
        """The call is over."""
        for frame in (*self._playout.due(now), *self._playout.end()):
            if not frame.concealed or frame.at - HOLD_S + frame.duration_s <= now:
                self._put(frame)
        self._recorder.close(end=round((now - self._origin) * self._rate_hz))

    def _put(self, frame: HeardFrame) -> None:
        if self._caller_from is None:
            came_at = frame.at - HOLD_S - self._origin
            self._caller_from = round(came_at * self._rate_hz) - frame.timestamp
        position = self._caller_from + frame.timestamp
        if position >= 0:
            self._recorder.caller(frame.samples, position)

    def _resampled(self, frame: SentFrame) -> Samples:
        if frame.rate_hz == self._rate_hz:
            self._resampler = None
            return frame.samples
        if self._resampler is None or self._resampler.from_hz != frame.rate_hz:
            self._resampler = Resampler(frame.rate_hz, self._rate_hz)
        return self._resampler.push(frame.samples)
