"""Our own voice that comes back from the line is not the caller's.

What we have sent is looked for in what is heard (`echo_path`). Once the path is known the echo is
computed and taken away, and what is left is judged: the caller who speaks over it is in that, and
an echo is not. (Both without what is below the telephone's band: hum would hide a faint echo.)
While it is not known, speech that is well below what we have sent waits for a
moment, until it is found to be an echo, or not to be one; speech as loud as ours is nobody's echo
unless it is found to be one in time. `benchmarks/echo_guard.py` has the figures.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.listening.echo_path import MOST_DELAY, Path, find_delay, fit
from qwen3tts_phone.listening.high_pass import HighPass
from qwen3tts_phone.listening.sample_line import SampleLine
from qwen3tts_phone.sent_audio import SentFrame

Samples = NDArray[np.int16]
Floats = NDArray[np.float32]

RATE_HZ: Final = 8000
SNAP: Final = 80
"""Samples: a frame that begins so near to the end of the one before follows it."""
REANCHOR: Final = 1600
"""What is heard has another place when it comes so much off the count of its samples."""
FAINT: Final = 10 ** (-58 / 10)
"""Power below which nothing is looked for."""
LIKELY: Final = 10 ** (-12 / 10)
"""Speech so much below what we have sent may well be its echo..."""
POSSIBLE: Final = 10 ** (-4 / 10)
"""...and what is so much below it, a loud one; nothing louder is."""
ALIKE: Final = 0.3
"""Correlation from which a filter is tried."""
GOOD_DB: Final = -2.5
"""A path is one that leaves less than this of what is heard: about half of it is echo then..."""
LOUDEST: Final = 10 ** (-2 / 10)
"""No echo has more than this of what was sent."""
LOUDER: Final = 10 ** (6 / 10)
"""Nor more than so much more than before..."""
SURE_DB: Final = -12.0
"""...unless it leaves no more than this."""
CHANGES: Final = 10 ** (10 / 10)
"""A path that changes does not return so much more than before."""
SHORT_DB: Final = -8.0
"""...or less than this of less than a fifth of a second, which more paths fit by chance."""
SHORT: Final = 1600
LEAST: Final = 640
"""Samples that are looked at, 80 ms..."""
MOST: Final = 2048
"""...to a quarter of a second."""
RESIDUE: Final = 10 ** (-10 / 10)
"""What is left is nobody's where it is so much below the loudest echo."""
WAITS_LIKELY_S: Final = 0.2
"""What is likely to be an echo waits so long for a verdict while no path is known..."""
WAITS_S: Final = 0.08
"""...and so long when one is (it may have changed), or when it is merely possible."""
DOUBT_S: Final = 1.0
"""So long after a change of the codec a known path is as good as none: it has another delay."""
REFIT_S: Final = 0.32
"""How often a known path is looked at again: clocks drift."""
QUIET_S: Final = 0.2
"""After so much silence a verdict is forgotten."""
MARGIN: Final = 10 ** (8 / 10)
"""What is left of an echo may be so much more than when its path was found."""
DOUBTS: Final = 8
"""Speech that was found to be the caller's is looked at again each so many times."""


class EchoGuard:
    """One call's (pure); at 8 kHz. While nothing of ours is on the line it costs nothing."""

    def __init__(self) -> None:
        self.path: Path | None = None
        """The echo's, as far as it is known."""
        self._sent = SampleLine(2 * RATE_HZ)
        self._heard = SampleLine(RATE_HZ)
        self._sent_above, self._heard_above = HighPass(), HighPass()
        self._resampler: Resampler | None = None
        self._rate_hz = 0
        """Of what was sent last; 0 = nothing was."""
        self._powers: deque[tuple[int, float]] = deque()
        """Of what was sent and may come back: each frame's last index, and its power."""
        self._idle = True
        """Whether nothing of ours could come back when the last frame came."""
        self._next: int | None = None
        self._power = 0.0
        """Of the last frame without the echo."""
        self._sound = 0
        """Samples of sound since the last silence."""
        self._silence = 0
        """Samples of silence since the last sound."""
        self._waited = 0.0
        """Seconds of speech that wait for a verdict."""
        self._callers = False
        """Whether this speech was found to be the caller's."""
        self._asked = 0
        self._since_fit = 0
        self._doubted = 0
        """Samples for which the known path is not to be relied on."""

    @property
    def active(self) -> bool:
        """Whether anything of ours may come back now."""
        return bool(self._powers)

    def sent(self, frame: SentFrame) -> None:
        """A frame of ours has gone out."""
        samples = frame.samples
        if self._rate_hz not in (0, frame.rate_hz):
            self._doubted = round(DOUBT_S * RATE_HZ)
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
        power = float(sound @ sound) / len(sound)
        if power > FAINT:
            self._powers.append((at + len(sound), power))

    def push(self, samples: Samples, at: float) -> Samples:
        """Samples at 8 kHz, shape [n], the last of which arrived ``at``; the same without our echo,
        as far as its path is known; silence where nothing else is in them."""
        start = self._place(len(samples), at)
        self._doubted = max(0, self._doubted - len(samples))
        while self._powers and self._powers[0][0] + MOST_DELAY < start:
            self._powers.popleft()
        if not self._powers:
            self._idle = True
            return samples
        if self._idle:
            self._heard_above.reset()
            self._idle = False
        sound = self._heard_above.push(_floats(samples))
        self._heard.put(sound, start)
        stop = start + len(sound)
        rest, echo_power = sound, 0.0
        if self.path is not None:
            echo = self.path.echo(self._sent, start, stop)
            echo_power = float(echo @ echo) / len(echo)
            rest = sound - echo
        self._power = float(rest @ rest) / len(rest)
        self._since_fit += len(sound)
        if self._power <= max(FAINT, self._left(echo_power)):
            self._silent(len(sound), echo_power)
            self._refit(stop, echo_power)
            return np.zeros_like(samples)
        self._silence = 0
        self._sound += len(sound)
        return np.clip(np.rint(rest * 32768), -32768, 32767).astype(np.int16)

    def may_be_ours(self, length_s: float) -> bool:
        """Whether what was pushed last may be our own voice.

        Asked about what sounds like speech, ``length_s`` of it: only then it is searched for.
        """
        if not self._powers:
            return False
        if self.path is not None and self._power < RESIDUE * self.path.gain * self._loudest():
            return True
        self._asked += 1
        if self._callers and self._asked % DOUBTS:
            return False
        if self._found():
            return True
        self._waited += length_s
        if not self._callers and self._waited < self._waits_s():
            return True
        self._callers = True
        return False

    # --- inside

    def _place(self, count: int, at: float) -> int:
        """The index of the first sample: by count, and anew where arrival says otherwise."""
        arrived = round(at * RATE_HZ) - count
        known = self._next
        start = arrived if known is None or abs(arrived - known) > REANCHOR else known
        self._next = start + count
        return start

    def _loudest(self) -> float:
        """Of what may come back now, the power."""
        return max(power for _, power in self._powers)

    def _waits_s(self) -> float:
        """How long speech as loud as the last waits for a verdict."""
        loudest = self._loudest()
        if self.path is not None and not self._doubted:
            return 0.0 if self._power > CHANGES * self.path.gain * loudest else WAITS_S
        if self._power > POSSIBLE * loudest:
            return 0.0
        return WAITS_LIKELY_S if self._power <= LIKELY * loudest else WAITS_S

    def _left(self, echo_power: float) -> float:
        """The power that the known path leaves of its echo, at most."""
        if self.path is None:
            return 0.0
        return echo_power * 10 ** (self.path.explained_db / 10) * MARGIN

    def _silent(self, count: int, echo_power: float) -> None:
        self._silence += count
        if self._silence >= QUIET_S * RATE_HZ:
            self._callers, self._waited, self._asked = False, 0.0, 0
            if echo_power <= FAINT:
                self._sound = 0

    def _found(self) -> bool:
        """Whether the last sound is our echo, by the known path as it is now, or by another."""
        length = min(MOST, self._sound)
        if length < LEAST:
            return False
        start = self._heard.end - length
        heard = self._heard.get(start, start + length)
        good_db = GOOD_DB if length >= SHORT else SHORT_DB
        path = self._fit_known(heard, start)
        if not self._plausible(path, good_db):
            delay, alike = find_delay(heard, self._sent, start)
            if alike < ALIKE:
                return False
            path = fit(heard, self._sent, start, delay)
            if not self._plausible(path, good_db):
                return False
        self.path = path
        self._since_fit, self._waited, self._callers = 0, 0.0, False
        return True

    def _plausible(self, path: Path | None, good_db: float) -> bool:
        """Whether it may be our echo's: what another voice happens to have in common with ours
        takes a filter that makes it loud."""
        if path is None or path.explained_db > good_db or path.gain > LOUDEST:
            return False
        if self.path is None or path.explained_db <= SURE_DB:
            return True
        return path.gain <= LOUDER * self.path.gain

    def _fit_known(self, heard: Floats, start: int) -> Path | None:
        """The path anew where it was; None where there was none, or nothing was sent."""
        if self.path is None:
            return None
        middle = self.path.delay + int(np.argmax(np.abs(self.path.taps)))
        return fit(heard, self._sent, start, middle)

    def _refit(self, stop: int, echo_power: float) -> None:
        """The echo is alone: see whether its path is still the same."""
        path = self.path
        if path is None or self._since_fit < REFIT_S * RATE_HZ or echo_power < 10 * FAINT:
            return
        self._since_fit = 0
        found = self._fit_known(self._heard.get(stop - MOST, stop), stop - MOST)
        if self._plausible(found, min(GOOD_DB, path.explained_db + 6)):
            self.path = found


def _floats(samples: Samples) -> Floats:
    return np.multiply(samples, np.float32(1 / 32768), dtype=np.float32)
