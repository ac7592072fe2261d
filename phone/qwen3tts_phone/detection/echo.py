"""Our own voice that comes back from the line is not the caller's.

    sent ---> delay (echo_search) ---> adaptive filter (echo_canceller) --> echo
    heard ---------------------------------------------------- minus ------> the rest

The rest is judged. It is the caller's where it is some dB louder than what the filter usually
leaves of what was sent (echo_level). While no path is known, what is heard is judged in the same
way, by the most that any path has returned; speech within that bound waits for a moment, until it
is found to be an echo or not to be one. Both sides are taken without what is below the telephone's
band: hum would hide a faint echo. `benchmarks/echo_guard.py` has the figures.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.audio.frames import SentFrame
from qwen3tts_phone.detection.echo_canceller import TAPS, EchoCanceller, HighPass, SampleTimeline
from qwen3tts_phone.detection.echo_search import (
    CHANGED,
    LEAST_DELAY,
    LEAST_SEARCHED,
    MOST_DELAY,
    MOST_SEARCHED,
    PEAK,
    PIECE,
    STILL,
    EchoLeakEstimate,
    GainBound,
    find_path,
    find_shift,
)

Samples = NDArray[np.int16]
Floats = NDArray[np.float32]
Array = NDArray[np.float64]

RATE_HZ: Final = 8000
SNAP: Final = 80
"""Samples: a frame that begins so near to the end of the one before follows it."""
REANCHOR: Final = 1600
"""What is heard has another place when it comes so far off the count of its samples."""
FAINT: Final = 10 ** (-58 / 10)
"""Power below which nothing is looked for."""
STEP: Final = 80
"""Delays whose gain is bounded are so many samples apart."""
ABOVE: Final = 10 ** (8 / 10)
"""What is louder than an echo usually is by this factor, is not an echo..."""
ABOVE_ON: Final = 10 ** (4 / 10)
"""...or by this one, while the caller speaks."""
NEW_DB: Final = 8.0
"""A new path leaves more of sounds that were not heard yet, up to this..."""
NEW_S: Final = 1.0
"""...and for this time."""
CHANGES: Final = 10 ** (10 / 10)
"""A path that changes does not return louder than before by this factor."""
EVERY: Final = 640
"""How often a path is looked for, and the filter fitted, 80 ms..."""
SELDOM: Final = 2560
"""...and the latter where it is as good as it gets, 320 ms."""
GAINS: Final = 10 ** (-1.5 / 10)
"""A fit that leaves more than this of what was left before gains little."""
PROVES: Final = 10 ** (-4 / 10)
"""A filter has proved itself when it once leaves less than this."""
UNMOVED: Final = 10 ** (-10 / 10)
"""A path of whose echo less than this is left has not moved."""
TRUSTED: Final = 0.45
"""Of the dB that a fit gains where it was fitted, so many it will gain later."""
WAITS_S: Final = 0.25
"""Speech that may be an echo waits at most this time for a verdict, twice it where a delay was
found that may be one."""
WAITS_MOVED_S: Final = 0.1
"""...and this where a known path has failed: one that has moved is found by 40 ms of its echo."""
DOUBT_S: Final = 1.0
"""So long after a change of the codec a known path is as good as none: it has another delay."""
SETTLED: Final = 1600
"""Samples after which the caller's speech is no more asked whether it is a path that has moved."""
SUSPECTED: Final = 2400
"""Samples for which a path that has failed once is suspected to have changed."""
QUIET_S: Final = 0.2
"""After this silence a verdict is forgotten."""
LOOKED_BACK: Final = 320
"""Samples that one verdict is of, about a detector's window."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Energies of up to 20 ms."""

    count: int
    """Samples."""
    heard: float
    rest: float
    echo: float
    bound: float
    """What an echo usually leaves."""


class EchoGuard:
    """One call's (pure); at 8 kHz. While nothing of ours is on the line it costs nothing."""

    def __init__(self) -> None:
        self.canceller: EchoCanceller | None = None
        """The echo's, as far as its path is known."""
        self._sent = SampleTimeline(2 * RATE_HZ)
        self._heard = SampleTimeline(RATE_HZ)
        self._sent_above, self._heard_above = HighPass(), HighPass()
        self._resampler: Resampler | None = None
        self._rate_hz = 0
        """Of what was sent last; 0 = nothing was."""
        self._last_sound: int | None = None
        """Index after the last sound that was sent, while it may come back."""
        self._next: int | None = None
        self._since = 0
        """Index from which on what was heard is one piece."""
        self._path_since = 0
        """Index from which on it came by the known path."""
        self._anywhere = GainBound((MOST_DELAY - LEAST_DELAY) // STEP)
        self._leak = EchoLeakEstimate()
        self._loudest = 0.0
        """Power of what was sent and may come back now."""
        self._pieces: deque[_Piece] = deque()
        self._proved = False
        """Whether the known path has explained an echo."""
        self._peak = 0.0
        """Of the last delay that was looked for."""
        self._sound = 0
        """Samples of sound since something of ours could come back."""
        self._silence = 0
        """Samples since the last sound that is no echo."""
        self._waited = 0.0
        """Seconds of speech that wait for a verdict."""
        self._callers = False
        """Whether this speech was found to be the caller's..."""
        self._callers_for = 0
        """...and samples since then."""
        self._age = self._since_search = self._since_fit = 0
        """Samples since the path was found, looked for, fitted."""
        self._fit_every = EVERY
        """Samples until it is fitted again."""
        self._suspected = 0
        """Samples for which the known path may have changed: it has failed lately."""
        self._doubted = 0
        """The same, because the codec has changed."""

    @property
    def active(self) -> bool:
        """Whether anything of ours may come back now."""
        return self._last_sound is not None

    def sent(self, frame: SentFrame) -> None:
        """A frame of ours has gone out."""
        samples = frame.samples
        if self._rate_hz not in (0, frame.rate_hz):
            self._doubted = round(DOUBT_S * RATE_HZ)
            self._anywhere.reset()
        self._rate_hz = frame.rate_hz
        if frame.rate_hz != RATE_HZ:
            if self._resampler is None or self._resampler.from_hz != frame.rate_hz:
                self._resampler = Resampler(frame.rate_hz, RATE_HZ)
            samples = self._resampler.push(samples)
        if not len(samples):
            return
        at = round(frame.at * RATE_HZ)
        if not self._sent.empty and abs(at - self._sent.end) <= SNAP:
            at = self._sent.end
        else:
            self._sent_above.reset()
        sound = self._sent_above.push(_floats(samples))
        self._sent.put(sound, at)
        if _energy(sound) > FAINT * len(sound):
            self._last_sound = at + len(sound)

    def push(self, samples: Samples, at: float) -> Samples:
        """Samples at 8 kHz, shape [n], the last of which arrived ``at``; the same without our echo,
        as far as its path is known."""
        start = self._place(len(samples), at)
        if self._last_sound is not None and self._last_sound + MOST_DELAY + TAPS < start:
            self._last_sound = None
        if self._last_sound is None or not len(samples):
            self._rests(start + len(samples))
            return samples
        sound = self._heard_above.push(_floats(samples))
        self._heard.put(sound, start)
        rest = np.concatenate(
            [self._piece(sound[at : at + PIECE], start + at) for at in range(0, len(sound), PIECE)]
        )
        self._learn(start + len(sound))
        left: Samples = np.clip(np.rint(rest * 32768), -32768, 32767).astype(np.int16)
        return left

    def may_be_ours(self, length_s: float) -> bool:
        """Whether what was pushed last may be our own voice.

        Asked about what sounds like speech, ``length_s`` of it.
        """
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
                if sum(piece.rest for piece in self._pieces) <= FAINT * self._count():
                    return True  # the end of a sound, which tells nothing
                self._waited += length_s
                if self._waited < self._longest_wait():
                    return True
        elif self.canceller is not None:
            if not self._above(ABOVE_ON):
                return True
            if self._proved and self._callers_for < SETTLED and self._shift(self._heard.end):
                self._callers = False
                return True
        if not self._callers:
            self._callers, self._callers_for = True, 0
        return False

    # --- inside

    def _place(self, count: int, at: float) -> int:
        """The index of the first sample: by count, and by arrival where that says otherwise."""
        arrived = round(at * RATE_HZ) - count
        known = self._next
        start = arrived if known is None or abs(arrived - known) > REANCHOR else known
        if start != known:
            self._since = start
        self._next = start + count
        return start

    def _rests(self, stop: int) -> None:
        """Nothing of ours can come back up to ``stop``."""
        if self._pieces or self._sound:
            self._pieces.clear()
            self._heard_above.reset()
            self._sound, self._waited, self._callers = 0, 0.0, False
        self._since = stop

    def _piece(self, sound: Floats, start: int) -> Floats:
        """Up to 20 ms without the echo.

        What the echo leaves stays in it: a detector that hears nothing in between is late for the
        next word.
        """
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
            if heard > FAINT * 10 * count:
                self._proved = self._proved or left < PROVES * heard
                if left < UNMOVED * heard:
                    self._suspected = 0
        self._pieces.append(piece)
        while self._count() - self._pieces[0].count >= LOOKED_BACK:
            self._pieces.popleft()
        if heard > FAINT * count:
            self._sound += count
        if piece.rest > FAINT * count and (self.canceller is None or self._above(ABOVE_ON)):
            self._silence = 0
            return rest
        self._silence += count
        if self._silence >= QUIET_S * RATE_HZ:
            self._callers, self._waited = False, 0.0
        return rest

    def _count(self) -> int:
        return sum(piece.count for piece in self._pieces)

    def _above(self, above: float) -> bool:
        """Whether the rest is louder than what an echo usually leaves, by this factor."""
        rest = sum(piece.rest for piece in self._pieces)
        return rest > above * sum(piece.bound for piece in self._pieces)

    def _margin(self) -> float:
        """What a rest must be louder than usual to be the caller's first word."""
        new = max(0.0, 1 - self._age / (NEW_S * RATE_HZ))
        return ABOVE * float(10 ** (NEW_DB / 10 * new))

    def _may_be_another(self) -> bool:
        """Whether what was heard last may be an echo by a path that is not known, or has changed.

        A path that merely changes returns about as much as before.
        """
        if self.canceller is None:
            return not self._above(ABOVE)
        if not self._proved:
            return True
        heard = sum(piece.heard for piece in self._pieces)
        louder = heard > CHANGES * self.canceller.gain * self._loudest * self._count()
        return not louder and (self._doubted > 0 or self._suspected > 0)

    def _longest_wait(self) -> float:
        """Seconds that speech which may be an echo waits for a verdict."""
        if self._proved and not self._doubted:
            return WAITS_MOVED_S
        return WAITS_S if self._peak < PEAK else 2 * WAITS_S

    def _fails(self) -> bool:
        """Whether the known path does not explain what it should."""
        heard = sum(piece.heard for piece in self._pieces)
        rest = sum(piece.rest for piece in self._pieces)
        echo = sum(piece.echo for piece in self._pieces)
        return heard - rest < 0.3 * echo and echo > 0.3 * heard

    def _learn(self, stop: int) -> None:
        """Look for a path where none is known, or it fails; bring the known one forward."""
        known, last = self.canceller, self._pieces[-1]
        if known is not None and self._proved and self._fails():
            self._suspected = SUSPECTED
        if known is not None and self._suspected and last.heard > FAINT * last.count:
            self._shift(stop)
        wanted = known is None or not self._proved or self._suspected > 0
        if wanted and last.heard > FAINT * last.count:
            most = MOST_SEARCHED if known is None else CHANGED
            count = min(most, self._sound, stop - self._since)
            if count >= LEAST_SEARCHED and self._since_search >= EVERY:
                self._since_search = 0
                self._search(count, stop)
                if self.canceller is not known:
                    return
        if known is None or self._callers:
            return
        if self._since_fit >= self._fit_every:
            self._since_fit = 0
            left = known.fit(max(self._since, self._path_since), stop)
            self._leak.scale(left**TRUSTED)
            longer = 2 * self._fit_every if left > GAINS else 0
            self._fit_every = max(EVERY, min(longer, SELDOM))

    def _shift(self, stop: int) -> bool:
        """Whether the path has merely moved: a jitter buffer or the line has slipped."""
        if self.canceller is None:
            return False
        shift = find_shift(self._sent, self._heard, self.canceller)
        if shift is None or (abs(shift) < STILL and self._fails()):
            return False
        self._suspected = self._doubted = 0
        if abs(shift) < STILL:
            return False
        self.canceller.shift(shift)
        for last in range(stop - LOOKED_BACK + PIECE, stop + 1, PIECE):
            rest = self._heard.get(last - PIECE, last) - self.canceller.echo(last - PIECE, last)
            self._leak.begin(rest, self.canceller.excitation(last, EchoLeakEstimate.EXCITED))
        self._path_since, self._fit_every = stop - LOOKED_BACK, EVERY
        self._pieces.clear()
        return True

    def _search(self, count: int, stop: int) -> None:
        found = find_path(self._sent, self._heard, count, self.canceller)
        self._peak = found.peak
        if found.canceller is None:
            return
        self.canceller = found.canceller
        self._leak = EchoLeakEstimate()
        for last in range(stop - count + PIECE, stop + 1, PIECE):
            heard = self._heard.get(last - PIECE, last)
            self._leak.begin(heard, self.canceller.excitation(last, EchoLeakEstimate.EXCITED))
        self._pieces.clear()
        self._waited, self._callers, self._proved = 0.0, False, False
        self._path_since = stop - count
        self._suspected = self._doubted = self._age = self._since_fit = 0
        self._fit_every = EVERY

    def _everywhere(self, start: int) -> Array:
        """The power that paths of each delay would return at a gain of 1, shape [count]."""
        first = start - MOST_DELAY
        line = self._sent.get(first, first + STEP * (len(self._anywhere.gains) + 1))
        blocks = np.square(line).reshape(-1, STEP).mean(axis=1)
        powers: Array = (blocks[:-1] + blocks[1:]).astype(np.float64) / 2
        return powers


def _floats(samples: Samples) -> Floats:
    return np.multiply(samples, np.float32(1 / 32768), dtype=np.float32)


def _energy(sound: Floats) -> float:
    return float(sound @ sound)
