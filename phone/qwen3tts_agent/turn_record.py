"""One turn of a conversation: what was said and heard, and when each stage of it happened."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any, Literal

from qwen3tts_wire.errors import SpeechError

TurnKind = Literal["greeting", "caller", "quiet", "not_understood", "goodbye", "continued"]
"""What we speak on: the call began; the caller said something, or pressed keys; they said nothing;
they were not understood; the call is to end; ``continue_`` was called."""

STAGES = (
    "caller_end",
    "turn_end",
    "transcript",
    "asked",
    "first_token",
    "first_clause",
    "first_pcm",
    "first_audible",
    "filler_audible",
    "answered",
    "heard_end",
)
"""In the order of the line. The caller's last voiced sample; the turn was taken to be over; its
words were there; the model was asked; its first word came; the server had a whole clause; its
engine gave the first sound; the first audible frame of the reply was sent, and of a filler before
it; the model had written all; the last frame was sent."""

VERSION = 1


@dataclass(slots=True)
class ToolUse:
    """A tool that the model used."""

    name: str
    ok: bool = False
    ms: float | None = None
    """How long it took; None = it had not ended."""


@dataclass(slots=True, eq=False)
class TurnRecord:
    """All that is known of one turn; complete once ``done``."""

    number: int
    kind: TurnKind
    text: str = field(default="", repr=False)
    """What the caller said, or ``[keys: 12]``."""
    why: str = ""
    """Why the caller's turn was taken to be over, as `Turn.why`."""
    barge_in: bool = False
    """Whether the caller's words stopped the reply before."""
    language: str = ""
    heard: str = field(default="", repr=False)
    """What the caller has heard of the reply, right to the word; fillers and apologies included."""
    unsaid: str = field(default="", repr=False)
    """What the model wrote beside it."""
    interrupted: bool = False
    """Whether the caller stopped the reply for good."""
    resumed: int = 0
    """How often it went on after a noise had stopped it."""
    requests: int = 0
    """How often the model was asked: once, once more after each round of tools, and retries."""
    retries: int = 0
    fillers: int = 0
    tools: list[ToolUse] = field(default_factory=list)
    left_out: int = 0
    """Entries of the history that were too old to be sent."""
    cut_short: str = ""
    """Why the model ended early, where it says so: ``length``, ``content_filter``."""
    error: SpeechError | None = None
    """What went wrong first: the recogniser, the model or the voice; the call went on."""
    times: dict[str, float] = field(default_factory=dict)
    """Seconds of the call's clock, by the names of `STAGES`."""
    started_unix_s: float = field(default_factory=time.time)
    done: bool = False

    def mark(self, stage: str, at: float | None) -> None:
        """Note when a stage was reached; the first time wins.

        Raises:
            ValueError: there is no such stage.
        """
        if stage not in STAGES:
            raise ValueError(f"no stage is called {stage!r}")
        if at is not None:
            self.times.setdefault(stage, at)

    def failed(self, error: SpeechError) -> None:
        """Note what went wrong; the first error wins."""
        self.error = self.error or error

    def ms(self, stage: str) -> float | None:
        """Milliseconds from the caller's last word to a stage; None where one is not known.

        Where the caller said nothing before, from when the turn began.
        """
        origin = self.times.get("caller_end", self.times.get("turn_end"))
        at = self.times.get(stage)
        return None if origin is None or at is None else (at - origin) * 1000

    def to_json(self, call_id: str, *, words: bool = False) -> str:
        """One line of JSON without its newline; with the words only where they are asked for."""
        line: dict[str, Any] = {
            "v": VERSION,
            "call_id": call_id[:256],
            "turn": self.number,
            "kind": self.kind,
            "why": self.why,
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
            "retries": self.retries,
            "fillers": self.fillers,
            "tools": [
                {"name": use.name[:64], "ok": use.ok, "ms": use.ms and round(use.ms, 1)}
                for use in self.tools
            ],
            "left_out": self.left_out,
            "cut_short": self.cut_short,
            "error": self.error.code if self.error is not None else "",
        }
        if words:
            line["words"] = {"caller": self.text, "heard": self.heard, "unsaid": self.unsaid}
        return json.dumps(line, separators=(",", ":"), allow_nan=False)
