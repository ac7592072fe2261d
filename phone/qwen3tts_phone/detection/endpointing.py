"""Endpointing of turns from voiced and unvoiced pieces (pure), and its plug-in point.

    QUIET --onset--> SPEAKING --notice--> PAUSED --its pause or the detector--> QUIET
                        ^------resumed------|

A piece is 10 or 32 ms. Voiced pieces add evidence, unvoiced ones subtract, so that neither a gap
within a syllable nor a click decides.

The pause is ``pause_ms`` unless it is set, as `PauseControl` does.

A `TurnDetector` is asked once each time the caller was silent for ``detector_ms``. True, or at
least 0.5, ends the turn; False extends the pause to ``longest_pause_ms``. Until it answers, and
when it fails, the pause decides.

    class Smart:
        async def finished(self, turn: TurnSoFar) -> bool | float:
            return await model.end_of_turn(turn.samples, turn.rate_hz, turn.text)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.detection.events import (
    CallerCutIn,
    CallerQuiet,
    ListenEvent,
    OnsetHeard,
    SpeechPaused,
    SpeechResumed,
    TurnEnded,
    WhyEnded,
)
from qwen3tts_phone.detection.settings import ListenSettings

BARGE_IN_REPEAT_S: Final = 0.5
"""Time after a barge-in when an agent that still seems to speak is not silenced again."""
DETECTOR_ENDS: Final = "detector:end"
"""Rule of a pause that a turn detector has shortened."""
_EPSILON: Final = 1e-6


class EndpointState(Enum):
    """State of the caller's turn."""

    QUIET = "quiet"
    SPEAKING = "speaking"
    PAUSED = "paused"


class Endpointer:
    """Endpointer of one call; pieces come in order, times are seconds."""

    def __init__(self, settings: ListenSettings, now: float) -> None:
        self.state = EndpointState.QUIET
        self.began_at = now
        """First voiced sample of the turn."""
        self.ended_at = now
        """Last voiced sample."""
        self.cut_in = False
        """True if this turn has silenced the agent (barge-in)."""
        self._settings = settings
        self._evidence_s = 0.0
        self._run_at = now
        """Beginning of the evidence."""
        self._cutting_s = 0.0
        """Evidence for a barge-in."""
        self._speech_s = 0.0
        self._pause_s = settings.pause_ms / 1000
        self._rule = ""
        """Rule that has set the pause."""
        self.last_pause_s = 0.0
        """Silence before the last `SpeechResumed`."""
        self._heard_until = now
        """End of the last piece."""
        self._agent = False
        self._silenced_at: float | None = None
        """Time of the barge-in; the agent may take a moment to report silence."""
        self._audible_at: float | None = None
        self._active_at = now
        """Last speech of either side."""
        self._told_quiet = False

    @property
    def speaking(self) -> bool:
        """True during a turn, its pauses included."""
        return self.state is not EndpointState.QUIET

    @property
    def speech_s(self) -> float:
        """Return the voiced seconds of the open turn."""
        return self._speech_s

    @property
    def silence_s(self) -> float:
        """Return the silence since the last voiced sample of the open turn."""
        return self._heard_until - self.ended_at if self.speaking else 0.0

    def agent(self, speaking: bool, now: float) -> None:
        if speaking or self._agent:
            self._active(now)
        if not speaking:
            self._audible_at = self._silenced_at = None
        self._agent = speaking

    def agent_goes_on(self) -> None:
        """Note that the barge-in has not silenced the agent: the next one counts."""
        self.cut_in = False
        self._silenced_at = None

    def agent_audible(self, at: float) -> None:
        """Note outbound audio ``at``; the grace counts from the first."""
        if self._audible_at is None:
            self._audible_at = at

    def piece(self, voiced: bool, begins: float, ends: float, now: float) -> list[ListenEvent]:
        length = ends - begins
        self._heard_until = ends
        if voiced:
            if self._evidence_s <= _EPSILON:
                self._run_at = begins
            self._evidence_s += length
            self._cutting_s = min(self._cutting_s + length, self._settings.barge_in_ms / 1000)
        else:
            self._evidence_s = max(0.0, self._evidence_s - length)
            self._cutting_s = max(0.0, self._cutting_s - length)
        if self.speaking:
            events = self._while_open(voiced, length, ends, now)
        else:
            events = self._while_quiet(voiced, ends, now)
        if voiced:
            events += self._cut_in(now)
        return events

    def tick(self, now: float) -> list[ListenEvent]:
        """Take silence up to ``now``, where nothing arrives."""
        self._evidence_s = self._cutting_s = 0.0
        self._heard_until = max(self._heard_until, now)
        events = self._pauses(now, now) if self.speaking else []
        return events + self._quiet(now)

    def finish(self, why: WhyEnded, now: float, rule: str = "") -> list[ListenEvent]:
        """End the open turn for another reason than a pause."""
        return [self._end(why, now, rule)] if self.speaking else []

    def set_pause(self, pause_s: float, rule: str) -> None:
        """Set the pause of the present silence, until the caller goes on."""
        if self.speaking:
            self._pause_s, self._rule = pause_s, rule

    def due(self, now: float) -> list[ListenEvent]:
        """Return the events of a pause that has been set and is over."""
        return self._pauses(self._heard_until, now) if self.speaking else []

    # --- inside

    def _while_quiet(self, voiced: bool, ends: float, now: float) -> list[ListenEvent]:
        if voiced and self._evidence_s + _EPSILON >= self._settings.onset_ms / 1000:
            return [self._begin(self._run_at, ends, now)]
        return self._quiet(now)

    def _begin(self, began_at: float, ends: float, now: float) -> ListenEvent:
        self.state = EndpointState.SPEAKING
        self.began_at, self.ended_at = began_at, ends
        self.cut_in = False
        self._speech_s = self._evidence_s
        self._reset_pause()
        self._active(ends)
        return OnsetHeard(now, began_at)

    def _while_open(
        self, voiced: bool, length: float, ends: float, now: float
    ) -> list[ListenEvent]:
        events: list[ListenEvent] = []
        if voiced:
            self._speech_s += length
            resumes = self._evidence_s + _EPSILON >= min(self._settings.onset_ms / 1000, 0.06)
            paused_s = ends - length - self.ended_at
            if self.state is EndpointState.SPEAKING or resumes:
                self.ended_at = ends
                self._active(ends)
                self._reset_pause()
            if self.state is EndpointState.PAUSED and resumes:
                self.state = EndpointState.SPEAKING
                self.last_pause_s = max(0.0, paused_s)
                events.append(SpeechResumed(now))
        events += self._pauses(ends, now)
        if self.speaking and ends - self.began_at >= self._settings.max_turn_s:
            events.append(self._end("too_long", now))
            if voiced:  # and goes on
                self._evidence_s = length
                events.append(self._begin(ends - length, ends, now))
        return events

    def _pauses(self, until: float, now: float) -> list[ListenEvent]:
        events: list[ListenEvent] = []
        pause = until - self.ended_at + _EPSILON
        if self.state is EndpointState.SPEAKING and pause >= self._settings.notice_ms / 1000:
            self.state = EndpointState.PAUSED
            events.append(SpeechPaused(now, self.ended_at))
        if self.state is EndpointState.PAUSED and pause >= self._pause_s:
            why: WhyEnded = "detector" if self._rule == DETECTOR_ENDS else "pause"
            events.append(self._end(why, now, self._rule))
        return events

    def _reset_pause(self) -> None:
        self._pause_s, self._rule = self._settings.pause_ms / 1000, ""

    def _end(self, why: WhyEnded, now: float, rule: str = "") -> TurnEnded:
        if self._speech_s + _EPSILON < self._settings.min_speech_ms / 1000:
            why, rule = "noise", ""
        ended = TurnEnded(now, self.began_at, self.ended_at, why, self.cut_in, self._speech_s, rule)
        self.state = EndpointState.QUIET
        self._evidence_s = self._cutting_s = self._speech_s = 0.0
        return ended

    def _cut_in(self, now: float) -> list[ListenEvent]:
        settings = self._settings
        if not (settings.barge_in and self._agent and self.state is EndpointState.SPEAKING):
            return []
        if self._cutting_s + _EPSILON < settings.barge_in_ms / 1000:
            return []
        if self._silenced_at is not None and now < self._silenced_at + BARGE_IN_REPEAT_S:
            return []
        audible = self._audible_at
        if audible is not None and now < audible + settings.grace_ms / 1000:
            return []
        self.cut_in = True
        self._silenced_at = now
        self._audible_at = None
        return [CallerCutIn(now, self.began_at)]

    def _active(self, at: float) -> None:
        self._active_at = max(self._active_at, at)
        self._told_quiet = False

    def _quiet(self, now: float) -> list[ListenEvent]:
        longest = self._settings.quiet_s
        if not longest or self._told_quiet or self._agent or self.speaking:
            return []
        if now - self._active_at < longest:
            return []
        self._told_quiet = True
        return [CallerQuiet(now, now - self._active_at)]


@dataclass(frozen=True, slots=True)
class TurnSoFar:
    """Open turn, for a turn detector."""

    samples: NDArray[np.int16] = field(repr=False)
    """Audio up to now, with the pause; linear, shape [n]. The last 30 s at most."""
    rate_hz: int
    text: str = field(repr=False)
    """Partial text of the recogniser; empty = nothing yet."""
    began_at: float
    ended_at: float
    """Last voiced sample."""
    now: float


class TurnDetector(Protocol):
    """Detector of a turn's end, beside its pause."""

    async def finished(self, turn: TurnSoFar) -> bool | float | None:
        """Return whether the turn is over, or its probability; None: the pause decides.

        Cancelled when the caller goes on. A detector that is to be one opinion beside the rules
        of the pause has an attribute ``thresholds``, two probabilities: below the first the caller
        is waited for, from the second on the turn ends after ``min_pause_ms``; digits, addresses
        and their like are waited for all the same.
        """


@runtime_checkable
class LoadedTurnDetector(TurnDetector, Protocol):
    """Turn detector that is loaded before the first call, by `Agent.warm`."""

    async def warm(self) -> None:
        """Load it. Raises SpeechError."""


TURN_GAP_S: Final = 0.4
"""Shortest time between two turns of keys: what is complete earlier is joined to one turn. Each may
cost a request to a language model, and a machine presses thousands of keys a second.
"""
MAX_WAITING_KEYS: Final = 64
"""Keys that wait for the next turn; where ``max_keys`` is more, that many."""


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """Keys of one turn."""

    digits: str
    began_at: float
    ended_at: float


class KeyTurns:
    """Turns of keys of one call (pure); times are seconds."""

    def __init__(self, settings: ListenSettings) -> None:
        self.dropped = 0
        """Keys dropped while too many waited."""
        self._settings = settings
        self._pressed: list[tuple[str, float]] = []
        self._taken: list[tuple[str, float]] = []
        """Keys of the last turn."""
        self._taken_at = -math.inf

    @property
    def waiting(self) -> bool:
        return bool(self._pressed)

    @property
    def complete(self) -> bool:
        return self._complete_keys() > 0

    @property
    def deadline(self) -> float | None:
        if not self._pressed:
            return None
        earliest = self._taken_at + TURN_GAP_S
        if self.complete:
            return earliest
        return max(earliest, self._pressed[-1][1] + self._settings.keys_pause_ms / 1000)

    def press(self, digit: str, at: float) -> KeyGroup | None:
        if len(self._pressed) >= max(MAX_WAITING_KEYS, self._settings.max_keys):
            self.dropped += 1
            return None
        self._pressed.append((digit, at))
        return self.due(at) if self.complete else None

    def due(self, now: float) -> KeyGroup | None:
        deadline = self.deadline
        if deadline is None or now < deadline:
            return None
        return self._take(self._complete_keys() or len(self._pressed), now)

    def take(self, now: float) -> KeyGroup | None:
        return self._take(len(self._pressed), now)

    def restore(self) -> None:
        self._pressed[:0], self._taken = self._taken, []

    def _complete_keys(self) -> int:
        most, until = self._settings.max_keys, self._settings.keys_until
        for number in range(min(most, len(self._pressed)), 0, -1):
            if number == most or (until and self._pressed[number - 1][0] == until):
                return number
        return 0

    def _take(self, count: int, now: float) -> KeyGroup | None:
        count = min(count, self._settings.max_keys)
        if not count:
            return None
        self._taken, self._pressed = self._pressed[:count], self._pressed[count:]
        self._taken_at = now
        digits = "".join(digit for digit, _ in self._taken)
        return KeyGroup(digits, self._taken[0][1], self._taken[-1][1])
