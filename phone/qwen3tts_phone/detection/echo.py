"""Echo guard: our own voice coming back from the line is not the caller's.

    sent ---> delay (echo_search) ---> adaptive filter (echo_canceller) --> echo
    heard ---------------------------------------------------- minus ------> residual

A residual some dB louder than the usual one is the caller's. Without a known path, input is
compared with the most that any path has returned; speech within that bound waits shortly for the
decision. Hum below the telephone band is filtered out first. Figures: `benchmarks/echo_guard.py`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import RateConverter
from qwen3tts_phone.audio.frames import SentFrame
from qwen3tts_phone.detection.echo_canceller import TAPS, EchoCanceller, HighPass, SampleTimeline
from qwen3tts_phone.detection.echo_search import (
    MAX_DELAY,
    MAX_SEARCHED,
    MAX_SEARCHED_CHANGED,
    MIN_DELAY,
    MIN_PEAK,
    MIN_SEARCHED,
    MIN_SHIFT,
    PIECE_SAMPLES,
    EchoGainBound,
    EchoLeakEstimate,
    find_path,
    find_shift,
)

Samples = NDArray[np.int16]
Floats = NDArray[np.float32]
Array = NDArray[np.float64]

RATE_HZ: Final = 8000
FRAME_GAP_TOLERANCE: Final = 80
"""Tolerance in samples within which a frame follows the one before."""
REANCHOR_OFFSET: Final = 1600
"""Offset in samples from which arrival replaces the count of samples."""
SEARCH_FLOOR_POWER: Final = 10 ** (-58 / 10)
"""Power below which nothing is searched."""
DELAY_STEP: Final = 80
"""Distance in samples of the delays whose gain is bounded."""
CALLER_FACTOR: Final = 10 ** (8 / 10)
"""Power above an echo's usual one that is the caller's..."""
CALLER_FACTOR_IN_SPEECH: Final = 10 ** (4 / 10)
"""...and the same while the caller speaks."""
NEW_PATH_MARGIN_DB: Final = 8.0
"""A new path leaves more of sounds that were not heard yet, up to this..."""
NEW_PATH_MARGIN_S: Final = 1.0
"""...and for this time."""
MAX_PATH_POWER_INCREASE: Final = 10 ** (10 / 10)
"""Largest increase of the power of a path that changes."""
FIT_INTERVAL: Final = 640
"""Interval in samples (80 ms) of searches for a path, and of fits..."""
SETTLED_FIT_INTERVAL: Final = 2560
"""...or of fits (320 ms) where the path is as good as it gets."""
SMALL_GAIN_SHARE: Final = 10 ** (-1.5 / 10)
"""Share of the residual above which a fit gains little."""
PROVEN_SHARE: Final = 10 ** (-4 / 10)
"""Share of the residual below which a filter has proved itself."""
UNMOVED_SHARE: Final = 10 ** (-10 / 10)
"""Share of the echo below which a path has not moved."""
TRUSTED_GAIN_SHARE: Final = 0.45
"""Share of the dB gained by a fit, where it was fitted, that later sound gains."""
DECISION_WAIT_S: Final = 0.25
"""Longest wait of speech that may be an echo, twice it where a likely delay was found..."""
MOVED_PATH_WAIT_S: Final = 0.1
"""...and this where a known path has failed: one that has moved is found by 40 ms of its echo."""
CODEC_CHANGE_DOUBT_S: Final = 1.0
"""Time after a change of the codec, hence of the delay, when a known path is not trusted."""
SETTLED_SAMPLES: Final = 1600
"""Samples after which the caller's speech is not tested for a moved path any more."""
SUSPICION_SAMPLES: Final = 2400
"""Samples for which a path that has failed is suspected to have changed."""
SILENCE_RESET_S: Final = 0.2
"""Silence after which a decision is forgotten."""
DECISION_SAMPLES: Final = 320
"""Samples of one decision, about a detector's window."""


@dataclass(frozen=True, slots=True)
class _Piece:
    count: int
    heard: float
    rest: float
    echo: float
    bound: float
    """Usual residual of an echo."""


class EchoGuard:
    """Echo guard of one call at 8 kHz (pure); idle without outbound sound."""

    def __init__(self) -> None:
        self.canceller: EchoCanceller | None = None
        """Canceller of the known path."""
        self._sent = SampleTimeline(2 * RATE_HZ)
        self._heard = SampleTimeline(RATE_HZ)
        self._sent_above, self._heard_above = HighPass(), HighPass()
        self._converter = RateConverter(RATE_HZ)
        self._rate_hz = 0
        """Rate of the last frame sent; 0 = none."""
        self._last_sound: int | None = None
        """Index after the last sound sent, while it may come back."""
        self._next: int | None = None
        self._since = 0
        """First index of what was heard without a gap."""
        self._path_since = 0
        """First index heard by the known path."""
        self._anywhere = EchoGainBound((MAX_DELAY - MIN_DELAY) // DELAY_STEP)
        self._leak = EchoLeakEstimate()
        self._loudest = 0.0
        """Power of what was sent and may come back now."""
        self._pieces: deque[_Piece] = deque()
        self._proved = False
        """True if the known path has explained an echo."""
        self._peak = 0.0
        """Peak of the last delay searched."""
        self._sound = 0
        """Samples of sound since something of ours could come back."""
        self._silence = 0
        """Samples since the last sound that is no echo."""
        self._waited = 0.0
        """Seconds of speech that wait for a decision."""
        self._callers = False
        """True if this speech is decided to be the caller's..."""
        self._callers_for = 0
        """...and samples since then."""
        self._age = self._since_search = self._since_fit = 0
        """Samples since the path was found, searched, fitted."""
        self._fit_every = FIT_INTERVAL
        """Samples between fits."""
        self._suspected = 0
        """Samples for which the known path may have changed: it has failed lately."""
        self._doubted = 0
        """The same, after a change of the codec."""

    @property
    def active(self) -> bool:
        return self._last_sound is not None

    def sent(self, frame: SentFrame) -> None:
        samples = frame.samples
        if self._rate_hz not in (0, frame.rate_hz):
            self._doubted = round(CODEC_CHANGE_DOUBT_S * RATE_HZ)
            self._anywhere.reset()
        self._rate_hz = frame.rate_hz
        samples = self._converter.push(samples, frame.rate_hz)
        if not len(samples):
            return
        at = round(frame.at * RATE_HZ)
        if not self._sent.empty and abs(at - self._sent.end) <= FRAME_GAP_TOLERANCE:
            at = self._sent.end
        else:
            self._sent_above.reset()
        sound = self._sent_above.push(_floats(samples))
        self._sent.put(sound, at)
        if _energy(sound) > SEARCH_FLOOR_POWER * len(sound):
            self._last_sound = at + len(sound)

    def push(self, samples: Samples, at: float) -> Samples:
        """Return the caller's samples without the known echo.

        ``samples``: 8 kHz, shape [n], the last of which arrived ``at``.
        """
        start = self._place(len(samples), at)
        if self._last_sound is not None and self._last_sound + MAX_DELAY + TAPS < start:
            self._last_sound = None
        if self._last_sound is None or not len(samples):
            self._rests(start + len(samples))
            return samples
        sound = self._heard_above.push(_floats(samples))
        self._heard.put(sound, start)
        rest = np.concatenate(
            [
                self._piece(sound[at : at + PIECE_SAMPLES], start + at)
                for at in range(0, len(sound), PIECE_SAMPLES)
            ]
        )
        self._learn(start + len(sound))
        left: Samples = np.clip(np.rint(rest * 32768), -32768, 32767).astype(np.int16)
        return left

    def may_be_ours(self, length_s: float) -> bool:
        """Return whether the last ``length_s`` of speech may be our own."""
        if self._last_sound is None:
            return False
        if not self._pieces:  # the path has just been found
            return True
        if not self._callers:
            if self.canceller is not None and not self._above(self._margin()):
                return True
            if self._proved and self._shift(self._heard.end):
                return True
            if self._may_be_another():
                if sum(piece.rest for piece in self._pieces) <= SEARCH_FLOOR_POWER * self._count():
                    return True  # the end of a sound, which tells nothing
                self._waited += length_s
                if self._waited < self._longest_wait():
                    return True
        elif self.canceller is not None:
            if not self._above(CALLER_FACTOR_IN_SPEECH):
                return True
            if (
                self._proved
                and self._callers_for < SETTLED_SAMPLES
                and self._shift(self._heard.end)
            ):
                self._callers = False
                return True
        if not self._callers:
            self._callers, self._callers_for = True, 0
        return False

    # --- inside

    def _place(self, count: int, at: float) -> int:
        arrived = round(at * RATE_HZ) - count
        known = self._next
        start = arrived if known is None or abs(arrived - known) > REANCHOR_OFFSET else known
        if start != known:
            self._since = start
        self._next = start + count
        return start

    def _rests(self, stop: int) -> None:
        if self._pieces or self._sound:
            self._pieces.clear()
            self._heard_above.reset()
            self._sound, self._waited, self._callers = 0, 0.0, False
        self._since = stop

    def _piece(self, sound: Floats, start: int) -> Floats:
        """Process up to 20 ms. An echo's residual stays: a gap delays the detector's next word."""
        count = len(sound)
        stop = start + count
        self._doubted = max(0, self._doubted - count)
        self._suspected = max(0, self._suspected - count)
        self._age += count
        self._callers_for += count
        self._since_search += count
        self._since_fit += count
        heard = _energy(sound)
        everywhere = self._everywhere(start)
        self._anywhere.push(heard / count, everywhere, count)
        self._loudest = float(everywhere.max())
        if self.canceller is None:
            rest = sound
            bound = self._anywhere.most(everywhere)
            piece = _Piece(count, heard, heard, 0.0, count * bound)
        else:
            echo = self.canceller.echo(start, stop)
            rest = sound - echo
            excitation = self.canceller.excitation(stop, EchoLeakEstimate.EXCITED)
            power, bound = self._leak.push(rest, excitation, self._callers)
            left = min(heard, count * power)  # what the filter adds is not the caller's
            piece = _Piece(count, heard, left, _energy(echo), count * bound)
            if heard > SEARCH_FLOOR_POWER * 10 * count:
                self._proved = self._proved or left < PROVEN_SHARE * heard
                if left < UNMOVED_SHARE * heard:
                    self._suspected = 0
        self._pieces.append(piece)
        while self._count() - self._pieces[0].count >= DECISION_SAMPLES:
            self._pieces.popleft()
        if heard > SEARCH_FLOOR_POWER * count:
            self._sound += count
        if piece.rest > SEARCH_FLOOR_POWER * count and (
            self.canceller is None or self._above(CALLER_FACTOR_IN_SPEECH)
        ):
            self._silence = 0
            return rest
        self._silence += count
        if self._silence >= SILENCE_RESET_S * RATE_HZ:
            self._callers, self._waited = False, 0.0
        return rest

    def _count(self) -> int:
        return sum(piece.count for piece in self._pieces)

    def _above(self, above: float) -> bool:
        rest = sum(piece.rest for piece in self._pieces)
        return rest > above * sum(piece.bound for piece in self._pieces)

    def _margin(self) -> float:
        new = max(0.0, 1 - self._age / (NEW_PATH_MARGIN_S * RATE_HZ))
        return CALLER_FACTOR * float(10 ** (NEW_PATH_MARGIN_DB / 10 * new))

    def _may_be_another(self) -> bool:
        if self.canceller is None:
            return not self._above(CALLER_FACTOR)
        if not self._proved:
            return True
        heard = sum(piece.heard for piece in self._pieces)
        louder = (
            heard > MAX_PATH_POWER_INCREASE * self.canceller.gain * self._loudest * self._count()
        )
        return not louder and (self._doubted > 0 or self._suspected > 0)

    def _longest_wait(self) -> float:
        if self._proved and not self._doubted:
            return MOVED_PATH_WAIT_S
        return DECISION_WAIT_S if self._peak < MIN_PEAK else 2 * DECISION_WAIT_S

    def _fails(self) -> bool:
        heard = sum(piece.heard for piece in self._pieces)
        rest = sum(piece.rest for piece in self._pieces)
        echo = sum(piece.echo for piece in self._pieces)
        return heard - rest < 0.3 * echo and echo > 0.3 * heard

    def _learn(self, stop: int) -> None:
        known, last = self.canceller, self._pieces[-1]
        if known is not None and self._proved and self._fails():
            self._suspected = SUSPICION_SAMPLES
        if known is not None and self._suspected and last.heard > SEARCH_FLOOR_POWER * last.count:
            self._shift(stop)
        wanted = known is None or not self._proved or self._suspected > 0
        if wanted and last.heard > SEARCH_FLOOR_POWER * last.count:
            most = MAX_SEARCHED if known is None else MAX_SEARCHED_CHANGED
            count = min(most, self._sound, stop - self._since)
            if count >= MIN_SEARCHED and self._since_search >= FIT_INTERVAL:
                self._since_search = 0
                self._search(count, stop)
                if self.canceller is not known:
                    return
        if known is None or self._callers:
            return
        if self._since_fit >= self._fit_every:
            self._since_fit = 0
            left = known.fit(max(self._since, self._path_since), stop)
            self._leak.scale(left**TRUSTED_GAIN_SHARE)
            longer = 2 * self._fit_every if left > SMALL_GAIN_SHARE else 0
            self._fit_every = max(FIT_INTERVAL, min(longer, SETTLED_FIT_INTERVAL))

    def _shift(self, stop: int) -> bool:
        if self.canceller is None:
            return False
        shift = find_shift(self._sent, self._heard, self.canceller)
        if shift is None or (abs(shift) < MIN_SHIFT and self._fails()):
            return False
        self._suspected = self._doubted = 0
        if abs(shift) < MIN_SHIFT:
            return False
        self.canceller.shift(shift)
        for last in range(stop - DECISION_SAMPLES + PIECE_SAMPLES, stop + 1, PIECE_SAMPLES):
            rest = self._heard.get(last - PIECE_SAMPLES, last) - self.canceller.echo(
                last - PIECE_SAMPLES, last
            )
            self._leak.begin(rest, self.canceller.excitation(last, EchoLeakEstimate.EXCITED))
        self._path_since, self._fit_every = stop - DECISION_SAMPLES, FIT_INTERVAL
        self._pieces.clear()
        return True

    def _search(self, count: int, stop: int) -> None:
        found = find_path(self._sent, self._heard, count, self.canceller)
        self._peak = found.peak
        if found.canceller is None:
            return
        self.canceller = found.canceller
        self._leak = EchoLeakEstimate()
        for last in range(stop - count + PIECE_SAMPLES, stop + 1, PIECE_SAMPLES):
            heard = self._heard.get(last - PIECE_SAMPLES, last)
            self._leak.begin(heard, self.canceller.excitation(last, EchoLeakEstimate.EXCITED))
        self._pieces.clear()
        self._waited, self._callers, self._proved = 0.0, False, False
        self._path_since = stop - count
        self._suspected = self._doubted = self._age = self._since_fit = 0
        self._fit_every = FIT_INTERVAL

    def _everywhere(self, start: int) -> Array:
        """Return the power by each delay at a gain of 1, shape [count]."""
        first = start - MAX_DELAY
        line = self._sent.get(first, first + DELAY_STEP * (len(self._anywhere.gains) + 1))
        blocks = np.square(line).reshape(-1, DELAY_STEP).mean(axis=1)
        powers: Array = (blocks[:-1] + blocks[1:]).astype(np.float64) / 2
        return powers


def _floats(samples: Samples) -> Floats:
    return np.multiply(samples, np.float32(1 / 32768), dtype=np.float32)


def _energy(sound: Floats) -> float:
    return float(sound @ sound)
