"""Results of a rehearsal: what was said when, what was judged, and how it is kept as JSON.

Times are seconds since the call was answered, unless a name says otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Side = Literal["caller", "agent"]
Measured = float | str | None
"""A figure, a text, or None where there was nothing to measure."""


@dataclass(frozen=True, slots=True)
class TurnSpan:
    """One stretch of speech, or of keys, of one side."""

    side: Side
    start_s: float
    """First voiced sample: as sent for the caller, as received for the agent."""
    end_s: float
    """Last voiced sample."""
    text: str = ""
    """The script's words, or what was understood of the agent; empty = unknown."""
    note: str = ""
    """Kind of the span where it is no plain turn, such as ``barge_in``, ``backchannel``,
    ``keys 12#`` or ``stopped``.
    """

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Verdict:
    """One expectation, judged."""

    name: str
    """Name of the expectation in the scenario, such as ``response_s``."""
    passed: bool
    measured: Measured = None
    limit: Measured = None
    detail: str = ""
    """One sentence: where it was measured, and what that means for a failure."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """One call of one scenario."""

    scenario: str
    seed: int
    started: float
    """Wall clock at dialling, seconds since 1970."""
    duration_s: float
    """From the answer to the end; 0 = not answered."""
    verdicts: tuple[Verdict, ...] = ()
    spans: tuple[TurnSpan, ...] = ()
    """In order of their start."""
    recording: Path | None = None
    """WAV file in stereo: the caller left, the agent right; its first sample is the answer."""
    error: str = ""
    """Reason why the call could not be judged; empty = it was."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What was measured beside the verdicts, by name; names end in their unit."""
    repeat: int = 0
    """Number among the calls of the same scenario and seed."""

    @property
    def passed(self) -> bool:
        return not self.error and all(each.passed for each in self.verdicts)

    @property
    def failed(self) -> tuple[Verdict, ...]:
        return tuple(each for each in self.verdicts if not each.passed)

    @property
    def name(self) -> str:
        """Name of scenario, seed and repetition, unique within a rehearsal."""
        return f"{self.scenario}#{self.seed}" + (f".{self.repeat}" if self.repeat else "")


@dataclass(frozen=True, slots=True)
class RehearsalResult:
    """All calls of a rehearsal, in the order of the plan; after Ctrl-C those that were made."""

    calls: tuple[CallResult, ...]
    seconds: float
    """Duration of the rehearsal."""
    planned: int = 0
    """Calls that were planned; more than ``calls`` where it was interrupted."""

    @property
    def complete(self) -> bool:
        return len(self.calls) >= self.planned

    @property
    def passed(self) -> bool:
        return self.complete and bool(self.calls) and all(each.passed for each in self.calls)

    @property
    def failed(self) -> tuple[CallResult, ...]:
        return tuple(each for each in self.calls if not each.passed)

    def to_json(self) -> str:
        """Return it as one JSON object; `from_json` reads it."""
        content = asdict(self)
        for call in content["calls"]:
            call["recording"] = str(call["recording"]) if call["recording"] is not None else None
            call["figures"] = dict(call["figures"])
        return json.dumps({**content, "passed": self.passed}, indent=1, ensure_ascii=False)


def from_json(text: str) -> RehearsalResult:
    """Read what `RehearsalResult.to_json` wrote. Raises ValueError for anything else."""
    try:
        content = json.loads(text)
        return RehearsalResult(
            tuple(_call(each) for each in content["calls"]),
            float(content["seconds"]),
            int(content["planned"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no result of a rehearsal: {error!r}") from error


def _call(content: dict[str, Any]) -> CallResult:
    recording = content["recording"]
    return CallResult(
        **{
            **content,
            "verdicts": tuple(Verdict(**each) for each in content["verdicts"]),
            "spans": tuple(TurnSpan(**each) for each in content["spans"]),
            "recording": Path(recording) if recording is not None else None,
        }
    )
