"""Script of a caller: a scenario's steps with their sounds, at the rate of the call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

from qwen3tts_rehearsal.scenario import Over, Scenario, Step, Wait, recording_path
from qwen3tts_rehearsal.sounds import (
    Sound,
    SoundBook,
    Utterance,
    joined,
    resampled,
    trimmed,
    utterance,
)

JOIN_S = 0.12
"""Pause between two things that are said one after the other in a turn."""


@dataclass(frozen=True, slots=True)
class Say:
    """A turn of the caller."""

    utterance: Utterance
    answered: bool
    """True if the script waits for an answer to it."""
    number: int
    """Of the step, from 0, as in the next."""


@dataclass(frozen=True, slots=True)
class SayOver:
    """Something said while the agent speaks."""

    utterance: Utterance
    kind: Literal["barge_in", "backchannel"]
    after_s: float
    limit_s: float
    answered: bool
    number: int


@dataclass(frozen=True, slots=True)
class Await:
    """Wait for something of the agent."""

    wait: Wait
    number: int


@dataclass(frozen=True, slots=True)
class Pause:
    """The caller says nothing for this time."""

    seconds: float
    number: int


@dataclass(frozen=True, slots=True)
class PressKeys:
    """Keys that the caller presses."""

    keys: str
    answered: bool
    number: int


@dataclass(frozen=True, slots=True)
class HangUp:
    """The caller ends the call."""

    number: int


Action = Say | SayOver | Await | Pause | PressKeys | HangUp


class ScriptMaker:
    """Makes the scripts of one scenario; its sounds come from a book.

    ``file``: of the scenario, for the paths of recordings.
    """

    def __init__(self, scenario: Scenario, file: Path, book: SoundBook) -> None:
        self._scenario = scenario
        self._file = file
        self._book = book

    async def prepare(self) -> None:
        """Make all sounds. Raises SpeechError, as BadConfiguration."""
        for step in self._scenario.steps:
            if step.kind in ("say", "wav"):
                await self._sound(step.say, step.wav)
            for over in (step.barge_in, step.backchannel):
                if over is not None:
                    await self._sound(over.say, over.wav)

    async def sounds(self, rate_hz: int) -> list[Sound]:
        return [
            await self._sound(step.say, step.wav, rate_hz)
            for step in self._scenario.steps
            if step.kind in ("say", "wav")
        ]

    async def actions(self, rate_hz: int) -> list[Action]:
        """Return the steps as actions; what is said without a wait between is one turn."""
        steps = list(enumerate(self._scenario.steps))
        made: list[Action] = []
        for said, group in groupby(steps, lambda each: each[1].kind in SAID):
            parts = list(group)
            if said:
                number = parts[0][0]
                after = steps[parts[-1][0] + 1 : parts[-1][0] + 2]
                spoken = await self._turn([step for _, step in parts], rate_hz)
                made.append(Say(spoken, _waits(after), number))
            else:
                for number, step in parts:
                    made.append(await self._action(number, step, rate_hz))
        if not made or not isinstance(made[-1], HangUp):
            made.append(HangUp(len(steps)))
        return made

    async def said(self, text: str, rate_hz: int) -> Utterance:
        """Return a text that is no part of the steps."""
        return await self._utterance(text, None, rate_hz)

    async def _action(self, number: int, step: Step, rate_hz: int) -> Action:
        after = list(enumerate(self._scenario.steps))[number + 1 : number + 2]
        if step.keys:
            return PressKeys(step.keys, _waits(after), number)
        if step.silence is not None:
            return Pause(step.silence, number)
        if step.hang_up:
            return HangUp(number)
        if step.wait is not None:
            return Await(step.wait, number)
        if step.barge_in is not None:
            return await self._over(number, step.barge_in, "barge_in", rate_hz, _waits(after))
        assert step.backchannel is not None
        return await self._over(number, step.backchannel, "backchannel", rate_hz, False)

    async def _over(
        self,
        number: int,
        over: Over,
        kind: Literal["barge_in", "backchannel"],
        rate_hz: int,
        answered: bool,
    ) -> SayOver:
        made = await self._utterance(over.say, over.wav, rate_hz)
        return SayOver(made, kind, over.after_s, over.limit_s, answered, number)

    async def _turn(self, steps: Sequence[Step], rate_hz: int) -> Utterance:
        parts: list[Sound | float] = []
        texts = []
        for step in steps:
            if step.hesitate is not None:
                parts.append(step.hesitate)
                texts.append("…")
                continue
            if parts and not isinstance(parts[-1], float):
                parts.append(JOIN_S)
            parts.append(await self._sound(step.say, step.wav, rate_hz))
            texts.append(_text(step.say, step.wav))
        whole = joined(parts, rate_hz)
        return utterance(whole, rate_hz, self._scenario.line.level_dbfs, " ".join(texts))

    async def _utterance(self, text: str, wav: Path | None, rate_hz: int) -> Utterance:
        sound = await self._sound(text, wav, rate_hz)
        level = self._scenario.line.level_dbfs
        return utterance(sound, rate_hz, level, _text(text, wav))

    async def _sound(self, text: str, wav: Path | None, rate_hz: int = 0) -> Sound:
        """Return a sound at a rate; 0 = its own."""
        if wav is not None:
            sound, own_hz = await self._book.recording(recording_path(self._file, wav))
            sound = trimmed(sound, own_hz)
        else:
            scenario = self._scenario
            sound, own_hz = await self._book.text(text, scenario.voice, scenario.language)
        return resampled(sound, own_hz, rate_hz or own_hz)


SAID = ("say", "wav", "hesitate")


def _text(text: str, wav: Path | None) -> str:
    return text if wav is None else f"({wav.name})"


def _waits(after: Sequence[tuple[int, Step]]) -> bool:
    """Return whether the step that follows waits for the agent to speak."""
    if not after:
        return False
    step = after[0][1]
    if step.kind in ("barge_in", "backchannel"):
        return True
    return step.wait is not None and step.wait.until in ("quiet", "speech")
