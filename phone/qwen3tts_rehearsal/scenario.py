"""Scenarios: what a simulated caller does, over what line, and what is expected of the agent.

    name: table_for_two
    language: en
    steps:
      - wait: quiet                          # the greeting
      - say: I would like a table
      - hesitate: 0.8                        # a pause in mid-sentence, of the same turn
      - say: for two at seven.
      - wait: quiet
      - hang_up: true
    expect:
      response_s: 2.5
      cut_offs: 0
      heard:
        - contains: seven

`read_scenarios` reads files and folders; an unknown or invalid name is refused with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from qwen3tts_settings.building import build
from qwen3tts_settings.constraints import bounded, check_fields, matching
from qwen3tts_settings.entries import BadConfiguration, Entry, from_file

EXAMPLE = "configs/scenarios/happy_path.yaml"
"""A file that may be copied."""
SUFFIXES = (".yaml", ".yml")
MAX_SCENARIOS = 1000
MAX_STEPS = 200

NoiseKind = Literal["none", "white", "street", "hum", "babble"]
Codec = Literal["any", "PCMU", "PCMA", "G722", "opus"]
Until = Literal["quiet", "speech", "hang_up"]
STEP_KINDS = ("say", "wav", "hesitate", "wait", "barge_in", "backchannel", "keys", "silence")
"""Fields of `Step` of which just one is set, or ``hang_up``."""


@dataclass(frozen=True, slots=True)
class LineSettings:
    """Line between the caller and the agent, and the caller's surroundings."""

    codec: Codec = "any"
    """Only codec that the caller offers; ``any`` = those of the phone's settings."""
    loss: float = bounded(0.0, 50.0, unit="percent", default=0.0)
    """Percent of the packets that are lost."""
    burst: float = bounded(1.0, 20.0, unit="packets", default=1.0)
    """Mean length of a run of lost packets (Gilbert's model)."""
    jitter_ms: int = bounded(0, 400, unit="milliseconds", default=0)
    """Packets are delayed by 0 to this."""
    impaired: Literal["both", "to_agent"] = "both"
    """Directions of loss and jitter; with ``to_agent`` the agent's words come whole."""
    noise: NoiseKind = "none"
    """Noise around the caller."""
    snr_db: float = bounded(-10.0, 60.0, unit="dB", default=20.0)
    """Level of the caller's speech above that noise."""
    level_dbfs: float = bounded(-50.0, -6.0, unit="dBFS", default=-22.0)
    """Active level of the caller's speech."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for something of the agent; ``limit_s`` over, the script goes on."""

    until: Until = "quiet"
    """``quiet``: the agent has spoken since the caller's last turn, and is silent for ``quiet_s``;
    ``speech``: it begins to speak; ``hang_up``: it ends the call.
    """
    words: str = ""
    """Regular expression of words that the agent has to say; Whisper listens at its pauses. Empty =
    any words.
    """
    quiet_s: float = bounded(0.2, 30.0, unit="seconds", default=1.2)
    """Silence of the agent that ends what it says."""
    limit_s: float = bounded(0.5, 300.0, unit="seconds", default=20.0)

    def __post_init__(self) -> None:
        check_fields(self)
        _check_pattern("words", self.words)


@dataclass(frozen=True, slots=True)
class Over:
    """Something said while the agent speaks."""

    say: str = ""
    wav: Path | None = None
    """Recording in place of a text."""
    after_s: float = bounded(0.0, 60.0, unit="seconds", default=1.0)
    """Time after the agent's first sound."""
    limit_s: float = bounded(0.5, 300.0, unit="seconds", default=20.0)
    """Longest wait for that first sound."""

    def __post_init__(self) -> None:
        check_fields(self)
        if bool(self.say.strip()) == (self.wav is not None):
            raise ValueError("say and wav: one of them is needed")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a caller's script: just one of its fields is set."""

    say: str = ""
    """Text to say."""
    wav: Path | None = None
    """Recording to play, WAV, as it is but for its level; relative to the scenario's file."""
    hesitate: float | None = bounded(0.05, 10.0, unit="seconds", default=None)
    """Seconds of a pause within a turn, between two that are said."""
    wait: Wait | None = None
    """What to wait for: ``quiet``, ``speech``, ``hang_up``, or a section; a number is a silence."""
    barge_in: Over | None = None
    """Interrupt the agent."""
    backchannel: Over | None = None
    """Confirm that one listens ("mhm"); the agent should go on."""
    keys: str = matching("[0-9*#A-D]*", "keys (0-9, *, #, A-D), in quotes", default="")
    """Keys to press."""
    silence: float | None = bounded(0.1, 300.0, unit="seconds", default=None)
    """Seconds in which the caller says nothing, whatever the agent does."""
    hang_up: bool = False
    """End the call."""

    def __post_init__(self) -> None:
        check_fields(self)
        found = [name for name in STEP_KINDS if getattr(self, name) not in (None, "")]
        found += ["hang_up"] * self.hang_up
        if len(found) != 1:
            raise ValueError(
                f"a step has just one of {', '.join(STEP_KINDS)}, hang_up;"
                f" this one has {' and '.join(found) or 'none'}"
            )

    @property
    def kind(self) -> str:
        return next(
            name
            for name in (*STEP_KINDS, "hang_up")
            if getattr(self, name) not in (None, "", False)
        )


@dataclass(frozen=True, slots=True)
class Persona:
    """A language model that plays the caller, in place of steps."""

    model: str
    """OpenAI-compatible endpoint, such as ``http://127.0.0.1:11434/v1``."""
    persona: str
    """Who calls, and what for."""
    name: str = "default"
    """Name of the model there."""
    key_env: str = "MR_QWEN3TTS_LLM_KEY"
    """Variable of the environment with the key."""
    max_turns: int = bounded(1, 50, default=8)
    """Turns of the caller; then it hangs up."""
    quiet_s: float = bounded(0.2, 10.0, unit="seconds", default=1.2)
    """Silence of the agent after which the caller answers."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("model", "persona"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name} is empty")


@dataclass(frozen=True, slots=True)
class Words:
    """Words that the agent has to say, or must not; by Whisper, without regard to case."""

    contains: str = ""
    """Words in this order, next to each other; digits and number words are the same."""
    matches: str = ""
    """Regular expression on the text in lower case without punctuation."""
    excludes: str = ""
    """Regular expression that must match nowhere."""
    digits: str = matching("[0-9]*", "digits, in quotes", default="")
    """Digits that the agent reads out, in this order, however grouped."""

    def __post_init__(self) -> None:
        check_fields(self)
        if (
            sum(bool(each) for each in (self.contains, self.matches, self.excludes, self.digits))
            != 1
        ):
            raise ValueError("contains, matches, excludes, digits: just one of them is needed")
        _check_pattern("matches", self.matches)
        _check_pattern("excludes", self.excludes)


@dataclass(frozen=True, slots=True)
class Ending:
    """End of the call."""

    by: Literal["agent", "caller"] = "agent"
    within_s: float | None = bounded(0.1, 3600.0, unit="seconds", default=None)
    """Longest time from the caller's last turn to the end."""
    after_s: float = bounded(0.0, 3600.0, unit="seconds", default=0.0)
    """Least time from the answer to the end."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Webhook:
    """What the agent's tools have to report by HTTP POST of a JSON object."""

    path: str = "/"
    """Path of the posts that are looked at."""
    where: dict[str, Any] = field(default_factory=dict)
    """Names, with dots for what lies deeper, and the values that one post has to have."""
    count: int | None = bounded(0, 1000, default=None)
    """Number of posts with these values; None = at least one."""
    within_s: float | None = bounded(0.1, 600.0, unit="seconds", default=None)
    """Longest time from the caller's last turn before it to the post."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.path.startswith("/"):
            raise ValueError(f"path={self.path!r} must begin with a slash")


@dataclass(frozen=True, slots=True)
class Expect:
    """Limits; None = not judged. Times are of the caller's end of the line."""

    first_response_s: float | None = bounded(0.1, 300.0, unit="seconds", default=None)
    """From the answer to the agent's first sound."""
    response_s: float | None = bounded(0.05, 300.0, unit="seconds", default=None)
    """From the caller's last sound to the agent's answer, for every turn; no answer fails."""
    cut_offs: int | None = bounded(0, 1000, default=None)
    """Turns in which the agent began to speak before the caller had ended."""
    dead_air_s: float | None = bounded(0.1, 300.0, unit="seconds", default=None)
    """Longest silence of both sides, the caller's own waiting apart."""
    talk_over_s: float | None = bounded(0.0, 300.0, unit="seconds", default=None)
    """Longest time in which both speak."""
    interruption_ms: int | None = bounded(50, 30_000, unit="milliseconds", default=None)
    """From a barge-in's first sound to the agent's last one before it is silent."""
    backchannel_stops: int | None = bounded(0, 1000, default=None)
    """Backchannels at which the agent stopped."""
    repeats: int | None = bounded(0, 1000, default=None)
    """Sentences that the agent said again without being asked, of four words or more."""
    gaps: int | None = bounded(0, 100_000, default=None)
    """Holes in the agent's sound, 20 ms to 0.2 s: frames that are missing or late within a word."""
    heard: tuple[Words, ...] = ()
    """Words of the agent."""
    keys: str | None = matching("[0-9*#A-D]*", "keys, in quotes", default=None)
    """Keys that the agent presses."""
    hang_up: Ending | None = None
    """Who ends the call, and when."""
    codec: Codec | None = None
    """Codec of the call."""
    webhook: tuple[Webhook, ...] = ()
    """What the agent's tools have to post."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One caller and what is expected of the agent."""

    name: str = matching(r"\w[\w.-]{0,63}", "a name of letters, digits, _ . -", default="")
    """Unique in a rehearsal; default: the file's name."""
    about: str = ""
    """One line for the report."""
    language: str = matching("[a-z]{2,3}(-[A-Za-z]{2,4})?", "a language, such as en", default="en")
    voice: str = ""
    """Voice of the caller: ``natural``, an eSpeak voice such as ``espeak:en-gb+f3``, or a name that
    ``mr-qwen3tts voices`` lists. Empty = the language's default.
    """
    seed: int = bounded(0, 999_999, default=1)
    """Of noise, loss and jitter; with ``--repeat`` the following numbers."""
    line: LineSettings = field(default_factory=LineSettings)
    """Line and surroundings of the caller."""
    steps: tuple[Step, ...] = ()
    """Script of the caller."""
    caller: Persona | None = None
    """A language model that plays the caller, in place of steps."""
    expect: Expect = field(default_factory=Expect)
    """What is judged."""
    max_seconds: float = bounded(1.0, 1800.0, unit="seconds", default=120.0)
    """Longest call; then the caller hangs up."""

    def __post_init__(self) -> None:
        check_fields(self)
        if bool(self.steps) == (self.caller is not None):
            raise ValueError("steps and caller: one of them is needed")
        if len(self.steps) > MAX_STEPS:
            raise ValueError(f"steps: {len(self.steps)} are more than {MAX_STEPS}")
        for number, step in enumerate(self.steps):
            around = self.steps[max(0, number - 1) : number] + self.steps[number + 1 : number + 2]
            said = [each.kind in ("say", "wav") for each in around]
            if step.kind == "hesitate" and said != [True, True]:
                raise ValueError(f"steps[{number}]: hesitate stands between two that are said")
            if step.hang_up and number + 1 < len(self.steps):
                raise ValueError(f"steps[{number}]: hang_up is the last step")


def scenario_of(entry: Entry, name: str) -> Scenario:
    """Build a scenario of a file's content; ``name`` where it has none. Raises BadConfiguration."""
    content = dict(entry.value)
    content.setdefault("name", Entry(name, entry.where))
    steps = content.get("steps")
    if steps is not None and isinstance(steps.value, list):
        content["steps"] = Entry([_written_out(each) for each in steps.value], steps.where)
    return build(Scenario, Entry(content, entry.where))


def _written_out(step: Entry) -> Entry:
    """Return a step whose wait is a section: ``wait: quiet`` → ``wait: {until: quiet}``."""
    wait = step.value.get("wait") if isinstance(step.value, dict) else None
    if wait is None or isinstance(wait.value, (dict, list, bool)) or wait.value is None:
        return step
    rest = {name: entry for name, entry in step.value.items() if name != "wait"}
    if isinstance(wait.value, (int, float)):
        return Entry({**rest, "silence": wait}, step.where)
    return Entry({**rest, "wait": Entry({"until": wait}, wait.where)}, step.where)


def read_scenario(path: Path) -> Scenario:
    """Read one file. Raises BadConfiguration with the line of what is wrong."""
    name = re.sub(r"[^\w.-]|^[.-]", "_", path.stem)[:64]
    scenario = scenario_of(from_file(path, EXAMPLE), name)
    _check_recordings(scenario, path)
    return scenario


def read_scenarios(paths: Iterable[Path]) -> list[tuple[Scenario, Path]]:
    """Read files, and those of folders in the order of their names; each with its file.

    Raises:
        BadConfiguration: not there, empty, invalid, or two have one name.
    """
    found: list[tuple[Scenario, Path]] = []
    names: dict[str, Path] = {}
    for path in paths:
        for file in _files(path):
            scenario = read_scenario(file)
            if scenario.name in names:
                raise BadConfiguration(
                    f"Two scenarios are called {scenario.name}: {names[scenario.name]} and {file}.",
                    remedy="Give each a name of its own.",
                )
            names[scenario.name] = file
            found.append((scenario, file))
    if len(found) > MAX_SCENARIOS:
        raise BadConfiguration(
            f"{len(found)} scenarios are more than {MAX_SCENARIOS}.",
            remedy="Rehearse them in parts.",
        )
    return found


def recording_path(scenario_file: Path, recording: Path) -> Path:
    return recording if recording.is_absolute() else scenario_file.parent / recording


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES)
    if not files:
        raise BadConfiguration(
            f"The folder {path} has no scenario, *.yaml.",
            remedy=f"Put NAME.yaml there; {EXAMPLE} is an example.",
        )
    return files


def recordings_of(scenario: Scenario) -> list[Path]:
    overs = [over for step in scenario.steps for over in (step.barge_in, step.backchannel) if over]
    named = [step.wav for step in scenario.steps] + [over.wav for over in overs]
    return [each for each in named if each is not None]


def _check_recordings(scenario: Scenario, file: Path) -> None:
    for recording in recordings_of(scenario):
        if not recording_path(file, recording).is_file():
            raise BadConfiguration(
                f"{file}: the recording {recording} is not there.",
                remedy="Paths are relative to the scenario's file.",
            )


def _check_pattern(name: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{name}: {pattern!r} is no regular expression: {error}") from error
