"""Record of one turn: texts and stage times."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Literal

from qwen3tts_phone.detection.events import OverlapEnded, Verdict
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.fields import JSON

TurnKind = Literal["greeting", "caller", "quiet", "not_understood", "goodbye", "continued"]
"""Cause of our speech: the call began; the caller said something, or pressed keys; silence; not
understood; the end of the call; ``continue_``.
"""

STAGES = (
    "caller_end",
    "turn_end",
    "transcript",
    "asked",
    "first_token",
    "first_clause",
    "first_pcm",
    "released",
    "first_audible",
    "filler_audible",
    "answered",
    "heard_end",
)
"""Stages in their order: the caller's last voiced sample; the end of the turn was decided; its text
was recognised; the model was asked; its first word came; the server had a whole clause; its
engine gave the first audio; the first audible frame of the reply was sent, and of a filler
before it; the model had written all; the last frame was sent.
"""

VERSION = 1


@dataclass(slots=True)
class ToolUse:
    """Use of a tool by the model."""

    name: str
    ok: bool = False
    ms: float | None = None
    """Duration; None = it had not ended."""


@dataclass(frozen=True, slots=True)
class OverlapRecord:
    """Speech of the caller over the agent's, which ducked it."""

    verdict: Verdict
    rule: str
    """Rule that decided, as `OverlapEnded.rule`."""
    ms: float
    """From the first voiced sample to the verdict."""

    @classmethod
    def of(cls, ended: OverlapEnded) -> OverlapRecord:
        return cls(ended.verdict, ended.rule, (ended.at - ended.began_at) * 1000)


@dataclass(slots=True, eq=False)
class TurnRecord:
    """Record of one turn; complete once ``done``."""

    number: int
    kind: TurnKind
    text: str = field(default="", repr=False)
    """Text of the caller, or ``[keys: 12]``."""
    why: str = ""
    """Reason for the end of the caller's turn, as `Turn.why`."""
    rule: str = ""
    """Rule that set the pause which ended it, as `Turn.rule`; empty = the settings' pause."""
    barge_in: bool = False
    """True if the caller's speech interrupted the reply before."""
    language: str = ""
    heard: str = field(default="", repr=False)
    """Text that the caller has heard, exact to the word; fillers and apologies included."""
    unsaid: str = field(default="", repr=False)
    """Text of the model that was not heard."""
    interrupted: bool = False
    """True if the caller interrupted the reply for good."""
    resumed: int = 0
    """Resumptions after an interruption by noise."""
    requests: int = 0
    """Requests to the model: one, one more after each round of tools, retries, and those of dropped
    guesses.
    """
    guesses: int = 0
    """Replies that were prepared before the turn had ended."""
    guess_used: bool = False
    """True if the last of these is the reply."""
    retries: int = 0
    fillers: int = 0
    tools: list[ToolUse] = field(default_factory=list)
    overlaps: list[OverlapRecord] = field(default_factory=list)
    """Overlaps with the reply, backchannels ("mhm") among them."""
    left_out: int = 0
    """Entries of the history that were too old to be sent."""
    cut_short: str = ""
    """Early end of the model's reply, as it says: ``length``, ``content_filter``."""
    error: SpeechError | None = None
    """First failure of the recogniser, the model or the voice; the call went on."""
    times: dict[str, float] = field(default_factory=dict)
    """Seconds of the call's clock, by the names of `STAGES`."""
    started_unix_s: float = field(default_factory=time.time)
    done: bool = False

    def mark(self, stage: str, at: float | None) -> None:
        if stage not in STAGES:
            raise ValueError(f"no stage is called {stage!r}")
        if at is not None:
            self.times.setdefault(stage, at)

    def failed(self, error: SpeechError) -> None:
        self.error = self.error or error

    def ms(self, stage: str) -> float | None:
        """Return ms from the caller's last voiced sample, or the turn's beginning."""
        origin = self.times.get("caller_end", self.times.get("turn_end"))
        at = self.times.get(stage)
        return None if origin is None or at is None else (at - origin) * 1000

    def to_json(self, call_id: str, *, words: bool = False) -> str:
        """Return one line of JSON; with texts only if ``words``."""
        line: JSON = {
            "v": VERSION,
            "call_id": call_id[:256],
            "turn": self.number,
            "kind": self.kind,
            "why": self.why,
            "rule": self.rule,
            "barge_in": self.barge_in,
            "started_unix_s": round(self.started_unix_s, 3),
            "ms": {
                stage: round(found, 1) for stage in STAGES if (found := self.ms(stage)) is not None
            },
            "heard_chars": len(self.heard),
            "unsaid_chars": len(self.unsaid),
            "interrupted": self.interrupted,
            "resumed": self.resumed,
            "requests": self.requests,
            "guesses": self.guesses,
            "guess_used": self.guess_used,
            "retries": self.retries,
            "fillers": self.fillers,
            "tools": [
                {"name": use.name[:64], "ok": use.ok, "ms": use.ms and round(use.ms, 1)}
                for use in self.tools
            ],
            "overlaps": [
                {"verdict": each.verdict, "rule": each.rule, "ms": round(each.ms, 1)}
                for each in self.overlaps
            ],
            "left_out": self.left_out,
            "cut_short": self.cut_short,
            "error": self.error.code if self.error is not None else "",
        }
        if words:
            line["words"] = {"caller": self.text, "heard": self.heard, "unsaid": self.unsaid}
        return json.dumps(line, separators=(",", ":"), allow_nan=False)
