"""Overlap of caller and agent: duck first, decide late (pure: events and ``now`` in, actions out).

    SPEAKING --CallerCutIn--> OVERLAP: DUCK
    OVERLAP  --0.6 s of voice, a key, or the agent has ended--> INTERRUPT
             --quiet for a moment--> JUDGING: GUESS (the recogniser's words so far)
    JUDGING  --little voice without words---> SPEAKING: UNDUCK
             --all of them backchannels-----> SPEAKING: UNDUCK, BACKCHANNEL
             --anything else----------------> INTERRUPT
             --the caller goes on-----------> OVERLAP: DISCARD (the guess; the voice counts on)
             --1.2 s after the onset--------> INTERRUPT, as without all this

A word that is no backchannel interrupts when it is known; a backchannel must be followed by
``quiet_s`` of silence, for the first words of somebody who still speaks say little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from qwen3tts_phone.detection.backchannels import judge_words
from qwen3tts_phone.detection.events import Verdict

VOICED_S: Final = 0.6
"""Voice that interrupts, whatever is said; gaps below `GUESS_S` included."""
DECIDED_S: Final = 1.2
"""Longest time from the onset to the verdict."""
GUESS_S: Final = 0.1
"""Silence after which the recogniser begins: its work runs beside the rest of ``quiet_s``."""
_EPSILON: Final = 1e-6


class OverlapState(Enum):
    """State of an overlap."""

    SPEAKING = "speaking"
    """No overlap: the agent speaks alone, or not at all."""
    OVERLAP = "overlap"
    JUDGING = "judging"


class OverlapAction(Enum):
    """Action, to be done in the order given."""

    DUCK = "duck"
    GUESS = "guess"
    """Recognise the turn so far."""
    DISCARD = "discard"
    """Discard that guess."""
    UNDUCK = "unduck"
    BACKCHANNEL = "backchannel"
    """Record it: no turn."""
    INTERRUPT = "interrupt"


Actions = tuple[OverlapAction, ...]


@dataclass(frozen=True, slots=True)
class OverlapLimits:
    """Limits of an overlap, in seconds."""

    quiet_s: float = 0.2
    """Silence after words that makes them all there is (``notice_ms``)."""
    min_speech_s: float = 0.12
    """Less voice is noise, unless words are found in it; more without words is in doubt
    (``min_speech_ms``).
    """
    voiced_s: float = VOICED_S
    decided_s: float = DECIDED_S


class Overlap:
    """Overlaps of one call, one after another; times are seconds."""

    def __init__(self, limits: OverlapLimits | None = None) -> None:
        self.state = OverlapState.SPEAKING
        self.began_at = 0.0
        """First voiced sample of the last overlap."""
        self.verdict: Verdict | None = None
        """Verdict on the last overlap; None = there was none, or it is open."""
        self.rule = ""
        """Rule of that verdict."""
        self.answers = False
        """True if the caller may be answering: a question, or the last clause, was being said."""
        self._limits = limits or OverlapLimits()
        self._before_s = 0.0
        """Voice of the turn before this overlap."""
        self._min_speech_s = self._limits.min_speech_s
        self._speech_s = 0.0
        self._voice_s = 0.0
        """Voice of the stretches before the present one."""
        self._stretch_at = 0.0
        """Beginning of that."""
        self._ended_at = 0.0
        """Last voiced sample."""
        self._quiet_s = 0.0
        self._waiting: tuple[Verdict, str] | None = None
        """Verdict, and its rule, that waits for ``quiet_s``."""

    @property
    def open(self) -> bool:
        return self.state is not OverlapState.SPEAKING

    @property
    def dropped(self) -> bool:
        """True if the last overlap was no turn."""
        return self.verdict in ("backchannel", "noise")

    def begin(
        self,
        began_at: float,
        before_s: float = 0.0,
        *,
        answers: bool = False,
        echo: bool = False,
    ) -> Actions:
        """Begin one; nothing while one is open.

        Args:
            began_at: its first voiced sample.
            before_s: voiced seconds of the caller's turn before it.
            answers: as `answers`.
            echo: the agent's echo covers some of the voice, so that a word may seem a click.
        """
        if self.open:
            return ()
        self.state = OverlapState.OVERLAP
        self.began_at, self.answers = began_at, answers
        self._min_speech_s = 0.0 if echo else self._limits.min_speech_s
        self.verdict, self.rule = None, ""
        self._before_s, self._speech_s, self._quiet_s = before_s, 0.0, 0.0
        self._voice_s, self._stretch_at, self._ended_at = 0.0, began_at, began_at
        self._waiting = None
        return (OverlapAction.DUCK,)

    def progress(self, now: float, speech_s: float, ended_at: float, *, agent: bool) -> Actions:
        """Take what was heard up to ``now``.

        Args:
            now: time of the decision.
            speech_s: voiced seconds of the caller's turn.
            ended_at: last voiced sample.
            agent: True while the agent speaks.
        """
        if not self.open:
            return ()
        limits = self._limits
        speech_s = max(0.0, speech_s - self._before_s)
        more_s = speech_s - self._speech_s
        goes_on = more_s > _EPSILON and ended_at > self._ended_at + _EPSILON
        self._speech_s, self._ended_at = speech_s, ended_at
        self._quiet_s = max(0.0, now - ended_at)
        if not agent:
            return self._interrupt("agent_ended")
        if self.state is OverlapState.JUDGING and goes_on:
            self.state, self._waiting = OverlapState.OVERLAP, None
            self._stretch_at = ended_at - more_s
            discarded: Actions = (OverlapAction.DISCARD,)
        else:
            discarded = ()
        stretch_s = ended_at - self._stretch_at if self.state is OverlapState.OVERLAP else 0.0
        if self._voice_s + stretch_s + _EPSILON >= limits.voiced_s:
            return self._interrupt(f"voiced_{round(1000 * limits.voiced_s)}")
        if now + _EPSILON >= self.began_at + limits.decided_s:
            return self._interrupt("undecided")
        if discarded:
            return discarded
        if self._waiting is not None and self._quiet_s + _EPSILON >= limits.quiet_s:
            return self._go_on(*self._waiting)
        if self.state is OverlapState.OVERLAP and self._quiet_s + _EPSILON >= GUESS_S:
            self.state = OverlapState.JUDGING
            self._voice_s += stretch_s
            return (OverlapAction.GUESS,)
        return ()

    def words(
        self,
        text: str,
        languages: Sequence[str],
        *,
        answers: bool = False,
        unsure: bool = False,
        final: bool = False,
    ) -> Actions:
        """Take the text of the turn so far.

        While the caller speaks only a word such as "stop" counts.

        Args:
            text: the recogniser's; empty = no words.
            languages: codes of the languages that the caller may speak.
            answers: as `answers`, now.
            unsure: the recogniser has little confidence in it.
            final: the turn is over, and this is all of it.
        """
        if not self.open:
            return ()
        self.answers = self.answers or answers
        verdict, rule = judge_words(text, languages)
        if self.state is OverlapState.OVERLAP and not final:
            return self._interrupt(rule) if rule == "stop_word" else ()
        short = self._speech_s + _EPSILON < self._min_speech_s
        if rule == "words" and short:
            rule = "too_short"
        if rule == "no_words" and not short:
            verdict = "interruption"
        elif verdict == "backchannel" and (self.answers or unsure):
            verdict, rule = "interruption", "answer" if self.answers else "unsure"
        if verdict == "interruption":
            return self._interrupt(rule)
        if final or self._quiet_s + _EPSILON >= self._limits.quiet_s:
            return self._go_on(verdict, rule)
        self._waiting = verdict, rule
        return ()

    def interrupt(self, rule: str) -> Actions:
        """Interrupt the agent for another reason: a key, the recogniser's failure."""
        return self._interrupt(rule) if self.open else ()

    def close(self, rule: str) -> Actions:
        return self._go_on("noise", rule) if self.open else ()

    # --- inside

    def _interrupt(self, rule: str) -> Actions:
        self.state = OverlapState.SPEAKING
        self.verdict, self.rule = "interruption", rule
        return (OverlapAction.INTERRUPT,)

    def _go_on(self, verdict: Verdict, rule: str) -> Actions:
        self.state = OverlapState.SPEAKING
        self.verdict, self.rule = verdict, rule
        if verdict == "backchannel":
            return OverlapAction.UNDUCK, OverlapAction.BACKCHANNEL
        return (OverlapAction.UNDUCK,)
