"""Defects of logs: damaged lines, clock steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from qwen3tts_wire.errors import SpeechError

MAX_EXAMPLES: Final = 20
"""Damaged lines listed; all are counted."""


@dataclass(frozen=True, slots=True)
class DamagedLine:
    source: str
    line: int
    """Counted from 1."""
    why: str


@dataclass(slots=True)
class Findings:
    """Counts over all sources, with examples."""

    lines: int = 0
    damaged: int = 0
    """Skipped lines."""
    examples: list[DamagedLine] = field(default_factory=list)
    """At most `MAX_EXAMPLES`."""
    newer: int = 0
    """Utterances of a newer format version."""
    repeated: int = 0
    """Duplicate lines in other logs; counted once."""
    out_of_order: int = 0
    """Utterances with a negative stage beyond clock uncertainty."""
    clock_steps: int = 0
    """Backward steps of the wall clock within a call."""
    remarks: list[str] = field(default_factory=list)
    """Sentences about whole sources."""

    def sentences(self) -> list[str]:
        sentences = list(self.remarks)
        if self.damaged:
            sentences.append(f"{self.damaged} of {self.lines} lines are no utterances; left out.")
        if self.newer:
            sentences.append(
                f"{self.newer} utterances were written by a newer version;"
                " read as far as this version knows them."
            )
        if self.repeated:
            sentences.append(f"{self.repeated} lines stand in more than one log; counted once.")
        if self.out_of_order:
            sentences.append(
                f"{self.out_of_order} utterances have marks out of order by more than the clocks'"
                " uncertainty."
            )
        if self.clock_steps:
            sentences.append(
                f"The wall clock was set back {self.clock_steps} times in the middle of a call:"
                " times of day are unreliable around it."
            )
        return sentences


class LogChanged(SpeechError):
    code = "log_changed"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} was changed while it was being read.",
            remedy="Run the command again; --follow watches logs that are being written.",
        )
