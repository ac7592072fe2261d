"""Adaptive jitter buffer: one frame of inbound audio a tick of our clock.

The delay follows a high quantile of the packets' lateness (as in WebRTC's NetEQ). Late packets are
concealed and still played; surplus and shortage are corrected by whole pitch periods, first in
pauses. ``hold_s`` makes the delay long and constant, for recordings.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.pitch import MIN_LIKENESS, lengthen, shorten
from qwen3tts_codecs.resample import RateConverter
from qwen3tts_phone.audio.concealment import Concealer, measure_noise
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_settings.constraints import bounded, check_fields

BIN_S = 0.005
BINS = 128
"""Histogram up to 640 ms."""
BUCKET_S = 0.5
"""The latest packet of each half second counts: a single stall is one event."""
FORGET = 0.97
"""Decay of a half second's weight by each later one: half after 11 s (NetEQ's 0.983 keeps the delay
of ten bad seconds for a minute)."""
QUANTILE = 0.95
"""Share of half seconds without a late packet (NetEQ's figure)."""
BUCKETS = 8
"""The least transit is that of the last 4 s: a clock that is 200 ppm slow moves by 0.8 ms."""
PRIOR = 0.5
"""Weight of the initial estimate, in half seconds: it fades after five of them."""


REPEAT_TICKS = 4
"""Ticks between two changes of the length: at most a fifth in 20 ms frames."""
SURPLUS_S = 0.01
"""Surplus over the target delay that is removed in pauses."""
SURPLUS_SPEECH_S = 0.04
"""More than this in the middle of speech, too. (Of 40 ms taken out of 8 s of speech PESQ makes 4.08
out of 4.33.)"""
SHORTAGE_S = 0.004
"""Shortage that is filled in pauses."""
SPARE_S = 0.01
"""Reserve besides a frame below which speech is lengthened too: the next tick might underrun."""
PAUSE_SLACK_S = 0.02
"""With ``hold_s``: tolerance, in pauses too."""
PAUSE_AHEAD_S = 0.15
PAUSE_BEHIND_S = 0.05
"""With ``hold_s``: a pause has no speech for this time before and after it, as far as is known;
within a word, before a plosive, it may be silent for 100 ms."""
QUIET_PIECE_S = 0.005
"""The level of a pause is looked at in pieces of this length: a word may begin in any of them."""
URGENT_S = 0.1
"""Surplus above which each tick may be shortened, at a lower correlation."""
URGENT_ALIKE = 0.5
NEW_STREAM_S = 2.0
"""A transit that grows by more is another count of timestamps (RFC 3550 section 5.1)."""
AHEAD_S = 0.5
"""The same for a transit that falls by more."""
BACK_S = 0.2
"""And so is a frame that lies by more before the end of the last one: they come in order."""
END_S = 2.0
"""Longest playout after the end."""


class DelayEstimator:
    """Estimator of lateness: a decaying histogram of the latest packet per half second.

    A packet's *transit* is arrival less media time; only differences of transits have a meaning.
    """

    def __init__(self, first_guess_s: float = 0.02) -> None:
        self._weights = [0.0] * BINS
        self._weights[min(BINS - 1, int(first_guess_s / BIN_S))] = PRIOR
        self._bridge = self._quantile()
        self._buckets: deque[tuple[int, float]] = deque()  # number of the bucket, least transit
        self._least = 0.0
        self._latest = 0.0  # lateness of the latest packet of the last bucket

    @property
    def known(self) -> bool:
        return bool(self._buckets)

    @property
    def least_s(self) -> float:
        return self._least

    @property
    def bridge_s(self) -> float:
        return self._bridge

    def arrived(self, at: float, transit_s: float) -> None:
        number = int(at // BUCKET_S)
        buckets = self._buckets
        if not buckets or buckets[-1][0] != number:
            if buckets:
                self._count(self._latest)
            buckets.append((number, transit_s))
            while len(buckets) > 1 and buckets[0][0] <= number - BUCKETS:
                buckets.popleft()
            self._least = min(transit for _, transit in buckets)
            self._latest = 0.0
        elif transit_s < buckets[-1][1]:
            buckets[-1] = (number, transit_s)
            self._least = min(self._least, transit_s)
        self._latest = max(self._latest, transit_s - self._least)

    def restart(self) -> None:
        self._buckets.clear()

    def _count(self, late_s: float) -> None:
        self._weights = [FORGET * weight for weight in self._weights]
        self._weights[min(BINS - 1, int(late_s / BIN_S))] += 1.0
        self._bridge = self._quantile()

    def _quantile(self) -> float:
        left = (1 - QUANTILE) * sum(self._weights)
        for number in range(BINS - 1, 0, -1):
            left -= self._weights[number]
            if left < 0:
                return (number + 1) * BIN_S
        return BIN_S


Samples = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class PlayoutSettings:
    min_delay_s: float = bounded(0.0, 2.0, default=0.02)
    max_delay_s: float = bounded(0.0, 2.0, default=0.4)
    """Upper bound: of a longer stall the oldest part is dropped."""
    first_delay_s: float = bounded(0.0, default=0.04)
    """Initial estimate of the network's lateness, besides a frame."""
    hold_s: float | None = bounded(0.0, default=None)
    """A constant delay instead of a learnt one, for what is not listened to live."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("min_delay_s", "first_delay_s", "hold_s"):
            value = getattr(self, name)
            if value is not None and value > self.max_delay_s:
                raise ValueError(f"{name}={value} must not be above max_delay_s")


class _Segment(NamedTuple):
    start: int  # media time, samples
    samples: Samples
    noise: bool
    concealed: bool


class Playout:
    """Jitter buffer of one stream (pure). Times are seconds of the clock of the frames' ``at``."""

    def __init__(
        self, rate_hz: int = 8000, ptime_ms: int = 20, settings: PlayoutSettings | None = None
    ) -> None:
        self.rate_hz = rate_hz
        self.ptime_s = ptime_ms / 1000
        self.settings = settings or PlayoutSettings()
        self._holds = self.settings.hold_s is not None
        self._count = rate_hz * ptime_ms // 1000
        self._delay = DelayEstimator(self.settings.first_delay_s)
        self._concealer = Concealer(rate_hz)
        self._arriving: deque[tuple[HeardFrame, float]] = deque()  # with the time they count from
        self._queue: deque[_Segment] = deque()
        self._queued = 0  # samples in the queue
        self._ready: Samples = np.zeros(0, np.int16)
        self._head = 0  # media time of the first sample that is ready
        self._converter = RateConverter(rate_hz)
        self._anchor: tuple[int, int, int] | None = None  # timestamp, its clock, media time
        self._stamp: int | None = None  # timestamp of the last frame
        self._end = 0  # media time behind the last piece
        self._last_at = 0.0
        self._made_up = True  # whether the piece being played was
        self._origin: float | None = None
        self._first: HeardFrame | None = None
        self._ticks = 0
        self._filled = 0  # samples concealed since something was played
        self._changed = -REPEAT_TICKS  # tick of the last change of the length
        self.concealed_s = 0.0
        """Sound concealed on underrun; pauses are in it."""
        self.shortened_s = 0.0
        self.lengthened_s = 0.0
        self.dropped_s = 0.0
        """Sound dropped on overflow after a stall."""

    @property
    def wanted_s(self) -> float:
        if self.settings.hold_s is not None:
            return self.settings.hold_s
        # A frame more than the network needs: what is played at a tick may end in any packet.
        wanted = self._delay.bridge_s + self.ptime_s
        return min(self.settings.max_delay_s, max(self.settings.min_delay_s, wanted))

    @property
    def waiting_s(self) -> float:
        arriving = sum(frame.duration_s for frame, _ in self._arriving)
        return (len(self._ready) + self._queued) / self.rate_hz + arriving

    @property
    def next_deadline(self) -> float | None:
        return None if self._origin is None else self._origin + self._ticks * self.ptime_s

    def push(self, frame: HeardFrame) -> None:
        """Take a frame of `AudioDecoder`, in play order; resampled if needed."""
        if not len(frame.samples):
            return
        # A frame behind a hole was held back until the hole was given up: none overtakes.
        self._last_at = max(self._last_at, frame.at)
        self._arriving.append((frame, self._last_at))
        hold_s = self.settings.hold_s or 0.0
        if self._origin is None or self._first is None:
            self._first, self._origin = frame, frame.at + hold_s
        elif frame.at <= self._origin and frame.clock_hz == self._first.clock_hz:
            # While nothing was played, a first packet that turns out to have been late costs none.
            media_s = (frame.timestamp - self._first.timestamp) / frame.clock_hz
            early_s = media_s - (frame.at - self._first.at)
            if self._ticks == 0 and 0.0 < early_s <= hold_s:
                self._origin = min(self._origin, self._first.at + hold_s - early_s)

    def _arrive(self, frame: HeardFrame, at: float) -> None:
        samples = self._converter.push(frame.samples, frame.rate_hz)
        if not len(samples):
            return
        start = self._placed(frame, at)
        if not frame.noise or not self._delay.known:
            self._delay.arrived(at, at - start / self.rate_hz)
        late = self._end - start if self._queue or len(self._ready) else self._head - start
        if late > 0:  # what is there already is not played again
            samples, start = samples[late:], start + late
        if len(samples):
            self._queue.append(_Segment(start, samples, frame.noise, frame.concealed))
            self._queued += len(samples)
            self._end = start + len(samples)
            self._bound()

    def due(self, now: float) -> list[HeardFrame]:
        """Return the frames due at the tick ``at``."""
        frames = []
        while (tick := self.next_deadline) is not None and tick <= now:
            frames.append(self._tick(tick))
        return frames

    def end(self) -> list[HeardFrame]:
        frames: list[HeardFrame] = []
        while self.waiting_s and len(frames) * self.ptime_s < END_S:
            tick = self.next_deadline
            assert tick is not None
            frames.append(self._tick(tick))
        return frames

    # --- taking frames

    def _placed(self, frame: HeardFrame, at: float) -> int:
        standing, self._stamp = frame.timestamp == self._stamp, frame.timestamp
        if standing and not frame.noise:
            # The sender's timestamps stand still; its packets come in order, and so does the sound.
            start = self._end
            if self._delay.known and at - start / self.rate_hz - self._delay.least_s > BACK_S:
                start = round((at - self._delay.least_s) * self.rate_hz)
            self._anchor = (frame.timestamp, frame.clock_hz, start)
            return start
        if self._anchor is not None:
            timestamp, clock_hz, media = self._anchor
            step = frame.timestamp - timestamp
            start = media + round(step * self.rate_hz / clock_hz)
            goes_on = frame.clock_hz == clock_hz and start >= self._end - BACK_S * self.rate_hz
            if not self._delay.known:
                return start
            change = at - start / self.rate_hz - self._delay.least_s
            # What is later than is held anyway may be a far end that counts no pauses: where it
            # is only the network, the frames behind it come early and say so.
            most = NEW_STREAM_S if self.settings.hold_s is None else self.settings.hold_s
            if goes_on and -AHEAD_S < change < most:
                return start
            start = max(self._end, round((at - self._delay.least_s) * self.rate_hz))
        else:
            start = 0
        self._anchor = (frame.timestamp, frame.clock_hz, start)
        self._delay.restart()
        return start

    def _bound(self) -> None:
        held = (len(self._ready) + self._queued) / self.rate_hz
        if held <= self.settings.max_delay_s + self.wanted_s:
            return
        drop = round((held - self.wanted_s) * self.rate_hz)
        self.dropped_s += drop / self.rate_hz
        self._concealer.fill(0)  # what follows is faded into
        self._head += min(drop, len(self._ready))
        drop, self._ready = max(0, drop - len(self._ready)), self._ready[drop:]
        while drop > 0:
            piece = self._queue.popleft()
            self._queued -= len(piece.samples)
            if len(piece.samples) > drop:
                rest = piece._replace(start=piece.start + drop, samples=piece.samples[drop:])
                self._queue.appendleft(rest)
                self._queued += len(rest.samples)
            drop -= len(piece.samples)

    # --- playing

    def _tick(self, tick: float) -> HeardFrame:
        self._ticks += 1
        while self._arriving and self._arriving[0][1] <= tick:
            self._arrive(*self._arriving.popleft())
        self._take_up()
        self._adjust(tick)
        parts: list[Samples] = []
        missing, made_up = self._count, 0
        while missing:
            if not len(self._ready):
                wait = self._wait(tick + (self._count - missing) / self.rate_hz)
                fill = missing if wait is None else min(missing, wait)
                if fill:
                    parts.append(self._concealer.fill(fill))
                    made_up += fill
                    missing -= fill
                    self._filled += fill
                if missing:
                    self._begin()
                continue
            piece = self._ready[:missing]
            self._ready = self._ready[missing:]
            self._head += len(piece)
            missing -= len(piece)
            parts.append(self._concealer.accept(piece))
            made_up += len(piece) if self._made_up else 0
        samples = parts[0] if len(parts) == 1 else np.concatenate(parts)
        self.concealed_s += made_up / self.rate_hz
        at = (self._ticks - 1) * self._count
        concealed = 2 * made_up > self._count
        return HeardFrame(samples, tick, concealed, self.rate_hz, at, self.rate_hz)

    def _take_up(self) -> None:
        parts = [self._ready]
        end = self._head + len(self._ready)
        while len(self._ready) and self._queue:
            piece = self._queue[0]
            if piece.start > end or piece.noise:
                break
            self._queue.popleft()
            self._queued -= len(piece.samples)
            parts.append(piece.samples)
            end += len(piece.samples)
            self._made_up = piece.concealed
        if len(parts) > 1:
            self._ready = np.concatenate(parts)

    def _wait(self, now: float) -> int | None:
        if not self._queue:
            return None
        if self._holds and self._ticks == 1:
            return 0  # the first tick is where it belongs
        due = self._delay.least_s + self._queue[0].start / self.rate_hz + self.wanted_s
        return max(0, round((due - now) * self.rate_hz))

    def _begin(self) -> None:
        piece = self._queue.popleft()
        self._queued -= len(piece.samples)
        self._head, self._ready, self._made_up = piece.start, piece.samples, piece.concealed
        filled, self._filled = self._filled, 0
        if piece.noise:  # its sound is made here, as long as nothing else comes
            self._concealer.use_comfort_noise(measure_noise(piece.samples))
            self._head, self._ready = piece.start + len(piece.samples), piece.samples[:0]
        elif piece.concealed and filled:
            # It was concealed here already, before it was known to be lost.
            self._filled = max(0, filled - len(piece.samples))
            self._head += min(filled, len(piece.samples))
            self._ready = piece.samples[filled:]
        else:
            self._take_up()

    def _adjust(self, tick: float) -> None:
        if not len(self._ready):
            return
        held = tick - self._head / self.rate_hz - self._delay.least_s
        surplus = held - self.wanted_s
        urgent = abs(surplus) > URGENT_S if self._holds else surplus > URGENT_S
        if self._ticks - self._changed < (1 if urgent else REPEAT_TICKS):
            return
        slack = (PAUSE_SLACK_S, PAUSE_SLACK_S) if self._holds else (SHORTAGE_S, SURPLUS_S)
        if -slack[0] <= surplus <= slack[1]:
            return
        quiet = self._is_quiet()
        speech_s = self.settings.max_delay_s / 2 if self._holds else SURPLUS_SPEECH_S
        if surplus > (slack[1] if quiet else speech_s):
            most = round(surplus * self.rate_hz)
            alike = URGENT_ALIKE if urgent else MIN_LIKENESS
            self._ready, cut = shorten(self._ready, self.rate_hz, most, alike=alike, quiet=quiet)
            self._head += cut
            self.shortened_s += cut / self.rate_hz
        elif surplus < 0 and (quiet or held < self.ptime_s + SPARE_S):
            heard = self._concealer.history
            self._ready, cut = lengthen(heard, self._ready, self.rate_hz, quiet=quiet)
            self._head -= cut
            self.lengthened_s += cut / self.rate_hz
        else:
            return
        if cut:
            self._changed = self._ticks

    def _is_quiet(self) -> bool:
        quiet_rms = self._concealer.quiet_rms
        if not self._holds:
            return _rms(self._ready[: self._count]) <= quiet_rms
        behind = self._concealer.history[-round(PAUSE_BEHIND_S * self.rate_hz) :]
        around = np.concatenate((behind, self._ready[: round(PAUSE_AHEAD_S * self.rate_hz)]))
        piece = round(QUIET_PIECE_S * self.rate_hz)
        pieces = around[: len(around) // piece * piece].reshape(-1, piece).astype(np.float32)
        return float(np.square(pieces).mean(axis=1).max()) <= quiet_rms**2


def _rms(samples: Samples) -> float:
    signal = samples.astype(np.float32)
    return math.sqrt(float(signal @ signal) / len(signal))
