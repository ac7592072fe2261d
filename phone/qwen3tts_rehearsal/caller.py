"""Simulated caller (pure): plays a script against what it hears, frame by frame.

The line pulls `ScriptedCaller.frame` and pushes what comes; what the caller wants beyond sound
(keys, recognition, the end) waits in ``commands``. Times are the line's, seconds.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.audio.frames import HeardFrame, KeyPressed, SentFrame
from qwen3tts_phone.detection.vad import RATE_HZ as VAD_HZ
from qwen3tts_phone.detection.vad import VoiceActivityDetector
from qwen3tts_rehearsal.lines import FRAME_S, Samples
from qwen3tts_rehearsal.script import Action, Await, HangUp, Pause, PressKeys, Say, SayOver
from qwen3tts_rehearsal.sounds import Utterance
from qwen3tts_rehearsal.words import plain

ONSET_WINDOWS = 2
"""Windows of speech in a row that are an onset of the agent, which a click is not."""
THRESHOLD = 0.5
GAP_S = 0.01
"""Frames of one stretch of sound are no further apart than this and their length."""
LEAVES_WITHIN_S = 2.0
"""Longest time that sound waits in the line (keys and holds apart)."""


class AgentActivity:
    """Speech of the agent as it comes: last onset and silence since its last voiced window."""

    def __init__(self, detector: VoiceActivityDetector, rate_hz: int) -> None:
        self._detector = detector
        self._rate_hz = rate_hz
        self._resampler: Resampler | None = None
        self._run = 0
        self._windows = 0
        self._speaking = False
        self._heard_until = 0.0
        self.onset_at: float | None = None
        """Beginning of its last stretch of speech."""
        self.voiced_at: float | None = None
        """End of its last voiced window."""

    def push(self, frame: HeardFrame) -> None:
        samples = frame.samples
        self._heard_until = max(self._heard_until, frame.at + frame.duration_s)
        if frame.rate_hz != VAD_HZ:
            if self._resampler is None or self._resampler.from_hz != frame.rate_hz:
                self._resampler = Resampler(frame.rate_hz, VAD_HZ)
            samples = self._resampler.push(samples)
        window_s = self._detector.window / VAD_HZ
        probabilities = self._detector.push(samples)
        for number, probability in enumerate(probabilities):
            at = frame.at + frame.duration_s - (len(probabilities) - 1 - number) * window_s
            self._window(probability >= THRESHOLD, at, window_s)

    def silent_s(self, now: float) -> float:
        """Return how long it is known to be silent; 0 before its first word.

        What leaves ``now`` was made before: only what has been heard counts, unless the far end
        sends nothing in its pauses.
        """
        known = max(self._heard_until, now - UNHEARD_S)
        return max(0.0, known - self.voiced_at) if self.voiced_at is not None else 0.0

    def _window(self, voiced: bool, at: float, window_s: float) -> None:
        self._run = self._run + 1 if voiced else 0
        if not voiced:
            return
        known = self.voiced_at
        if self._run == ONSET_WINDOWS and (known is None or at - known > PAUSE_S):
            self.onset_at = at - ONSET_WINDOWS * window_s
        if self._run >= ONSET_WINDOWS:
            self.voiced_at = at


UNHEARD_S = 0.6
"""Longest time for which nothing is heard of an agent that is speaking."""
PAUSE_S = 0.35
"""Silence after which speech of the agent is a new stretch."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that the caller did, by positions in what it has sent (samples)."""

    kind: str
    """``turn``, ``barge_in``, ``backchannel``."""
    first: int
    """First voiced sample."""
    last: int
    """The one after the last voiced."""
    text: str
    answered: bool
    """True if an answer is awaited."""


@dataclass(frozen=True, slots=True)
class Press:
    """Command: press these keys, then call `ScriptedCaller.pressed`."""

    keys: str


@dataclass(frozen=True, slots=True)
class FindWords:
    """Command: recognise what the agent has said since ``since``, then call `found`."""

    since: float
    pattern: str


@dataclass(frozen=True, slots=True)
class EndCall:
    """Command: hang up."""


@dataclass(frozen=True, slots=True)
class NextTurn:
    """Command: the script is over, and a persona says what follows (`ScriptedCaller.go_on`)."""

    since: float
    """Beginning of the caller's last turn; the agent's words since then are the answer."""


Command = Press | FindWords | EndCall | NextTurn


@dataclass(slots=True)
class Sent:
    """What has left: samples by position, with times."""

    frames: list[SentFrame] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """Position of each frame's first sample."""
    total: int = 0

    def add(self, frame: SentFrame) -> None:
        self.starts.append(self.total)
        self.frames.append(frame)
        self.total += len(frame.samples)

    def gaps_s(self, first: int, last: int) -> float:
        """Return the silence between frames of these positions: underruns of this machine."""
        begin, end = (int(np.searchsorted(self.starts, each)) for each in (first, last))
        pairs = pairwise(self.frames[max(0, begin) : end])
        gaps = [after.at - before.at - after.duration_s for before, after in pairs]
        return sum(each for each in gaps if each > GAP_S)

    def time_of(self, position: int) -> float | None:
        """Return when this sample was spoken: a frame leaves with its last one. None: never."""
        if position >= self.total:
            return None
        index = int(np.searchsorted(self.starts, position, "right")) - 1
        frame = self.frames[index]
        return frame.at - frame.duration_s + (position - self.starts[index]) / frame.rate_hz


class ScriptedCaller:
    """A `Party` that plays actions.

    Args:
        actions: the script.
        rate_hz: rate of the call.
        answered_at: time of the answer.
        detector: for the agent's speech.
        background: noise around the caller, repeated; shape [0] = silence.
        persona: True if `NextTurn` follows the script, else `EndCall`.
    """

    def __init__(
        self,
        actions: Iterable[Action],
        rate_hz: int,
        answered_at: float,
        detector: VoiceActivityDetector,
        background: Samples,
        *,
        persona: bool = False,
    ) -> None:
        self.commands: deque[Command] = deque()
        self.sent_frames = Sent()
        self.heard_frames: list[HeardFrame] = []
        self.keys: list[KeyPressed] = []
        """Keys of the agent."""
        self.marks: list[Mark] = []
        self.pressed_spans: list[tuple[float, float, str, bool]] = []
        """Begin, end, keys, and whether an answer is awaited."""
        self.pauses: list[tuple[float, float]] = []
        """Times in which the caller says nothing on purpose."""
        self.problems: list[str] = []
        """Steps that did not go as the script has it."""
        self.agent = AgentActivity(detector, rate_hz)
        self._actions: deque[Action] = deque(actions)
        self._persona = persona
        self._rate_hz = rate_hz
        self._size = round(FRAME_S * rate_hz)
        self._background = background
        self._position = 0
        self._saying: Samples = np.zeros(0, np.int16)
        self._since = answered_at
        """Beginning of the caller's last turn."""
        self._after = answered_at
        """What the agent began to say before this was waited for already."""
        self._said_at = answered_at
        """When it had said the last of it."""
        self._step_at = answered_at
        """When the present action began."""
        self._over_at: float | None = None
        """When something is to be said over the agent."""
        self._busy = False
        """True while keys are being pressed, or words looked for."""
        self._looked_at = 0.0
        self._over = False

    @property
    def done(self) -> bool:
        return not self._actions and not len(self._saying)

    @property
    def left(self) -> int:
        """Return how many steps are left; none where the end of the call is waited for."""
        first = self._actions[0] if self._actions else None
        waits = isinstance(first, Await) and first.wait.until == "hang_up"
        return 0 if waits else len(self._actions)

    # --- a Party

    def frame(self, at: float) -> Samples:
        while not len(self._saying) and not self._busy and self._step(at):
            pass
        piece = self._saying[: self._size]
        self._saying = self._saying[self._size :]
        if len(piece) and not len(self._saying):
            self._step_at = self._said_at = at + FRAME_S
        made = np.zeros(self._size, np.int32)
        made[: len(piece)] = piece
        if len(self._background):
            place = np.arange(self._position, self._position + self._size)
            made += self._background[place % len(self._background)]
        self._position += self._size
        return np.clip(made, -32768, 32767).astype(np.int16)

    def sent(self, frame: SentFrame) -> None:
        self.sent_frames.add(frame)

    def heard(self, frame: HeardFrame) -> None:
        self.heard_frames.append(frame)
        self.agent.push(frame)

    def key(self, key: KeyPressed) -> None:
        self.keys.append(key)

    # --- what the shell tells

    def pressed(self, keys: str, began_at: float, ended_at: float) -> None:
        """Go on after `Press`."""
        action = self._actions[0] if self._actions else None
        answered = isinstance(action, PressKeys) and action.answered
        self.pressed_spans.append((began_at, ended_at, keys, answered))
        self._busy = False
        self._since = self._after = began_at
        self._advance(ended_at)

    def found(self, text: str, pattern: str, now: float) -> None:
        """Go on after `FindWords`, if the words are among the text."""
        self._busy = False
        if re.search(pattern, plain(text)):
            self._after = now
            self._advance(now)

    def go_on(self, actions: Iterable[Action], now: float) -> None:
        """Add to the script, after `NextTurn`."""
        self._actions.extend(actions)
        self._busy = False
        self._step_at = now

    def stop(self, problem: str) -> None:
        self.problems.append(problem)
        self._actions.clear()
        self._saying = np.zeros(0, np.int16)
        self._busy = True

    # --- inside

    def _step(self, at: float) -> bool:
        """Look at the present action; True if it is over."""
        if not self._actions:
            return self._end(at)
        action = self._actions[0]
        match action:
            case Say(utterance=said, answered=answered):
                self._say(said, "turn", answered, at)
            case SayOver():
                return self._say_over(action, at)
            case Pause(seconds=seconds):
                if at - self._step_at < seconds:
                    return False
                self.pauses.append((self._step_at, at))
            case Await():
                return self._await(action, at)
            case PressKeys(keys=keys):
                if self._is_heard(at):
                    self._busy = True
                    self.commands.append(Press(keys))
                return False
            case HangUp():
                if self._is_heard(at):
                    self._busy = self._over = True
                    self._actions.popleft()
                    self.commands.append(EndCall())
                return False
        self._advance(at)
        return not len(self._saying)

    def _is_heard(self, at: float) -> bool:
        left = not self.marks or self.sent_frames.total >= self.marks[-1].last
        return left or at - self._said_at > LEAVES_WITHIN_S

    def _end(self, at: float) -> bool:
        if not self._over and self._is_heard(at):
            self._busy = True
            if self._persona:
                self.commands.append(NextTurn(self._since))
            else:
                self._over = True
                self.commands.append(EndCall())
        return False

    def _say(self, said: Utterance, kind: str, answered: bool, at: float) -> None:
        first, last = (self._position + place for place in said.voiced)
        self.marks.append(Mark(kind, first, last, said.text, answered))
        self._saying = said.samples
        if kind != "backchannel":
            self._since = self._after = at

    def _say_over(self, action: SayOver, at: float) -> bool:
        if self._over_at is None:
            onset = self.agent.onset_at
            speaking = self.agent.silent_s(at) < PAUSE_S
            if onset is not None and onset > self._after and speaking:
                self._over_at = max(at, onset + action.after_s)
            elif at - self._step_at >= action.limit_s:
                self._problem(action.number, f"{action.kind}: the agent said nothing to talk over")
                self._advance(at)
                return True
            return False
        if at < self._over_at:
            return False
        if self.agent.silent_s(at) >= PAUSE_S:  # it has ended before: the next thing it says
            self._over_at = None
            return False
        self._over_at = None
        self._say(action.utterance, action.kind, action.answered, at)
        self._advance(at)
        return False

    def _await(self, action: Await, at: float) -> bool:
        wait, agent = action.wait, self.agent
        waited = at - self._step_at >= wait.limit_s
        if waited:
            what = wait.until if not wait.words else f"the words {wait.words!r}"
            self._problem(action.number, f"waited {wait.limit_s:g} s for {what}, in vain")
            self._advance(at)
            return True
        if wait.until == "hang_up":
            return False
        began = agent.onset_at is not None and agent.onset_at > self._after
        # What it said into the caller's turn, and broke off, is no answer.
        began = began and (agent.voiced_at or 0.0) > self._said_at
        if wait.until == "speech" and not wait.words:
            over = began
        else:
            over = began and agent.silent_s(at) >= wait.quiet_s
        if not over:
            return False
        if wait.words:
            heard_at = agent.voiced_at or 0.0
            if heard_at > self._looked_at:
                self._looked_at = heard_at
                self._busy = True
                self.commands.append(FindWords(self._since, wait.words))
            return False
        if wait.until == "quiet":
            self._after = at
        self._advance(at)
        return True

    def _advance(self, at: float) -> None:
        if self._actions:
            self._actions.popleft()
        self._step_at = at

    def _problem(self, number: int, text: str) -> None:
        if number >= 0:  # a step of the scenario
            self.problems.append(f"steps[{number}]: {text}")
