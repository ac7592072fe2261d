"""Findings about the logs that were read: damaged lines, clocks that ran backwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from qwen3tts_wire.errors import SpeechError

MAX_EXAMPLES: Final = 20
"""So many damaged lines are named; all of them are counted."""


@dataclass(frozen=True, slots=True)
class DamagedLine:
    """One line that is no utterance."""

    source: str
    line: int
    """Counted from 1."""
    why: str


@dataclass(slots=True)
class Findings:
    """Counts over all sources, and the first examples."""

    lines: int = 0
    """Lines read."""
    damaged: int = 0
    """Lines of these that are no utterances; they were left out."""
    examples: list[DamagedLine] = field(default_factory=list)
    """The first of them, at most `MAX_EXAMPLES`."""
    newer: int = 0
    """Utterances of a newer version of the format; read as far as it is known here."""
    repeated: int = 0
    """Lines that stand in another of the logs as well; counted once."""
    out_of_order: int = 0
    """Utterances with a stage that took less than no time, beyond the clocks' uncertainty."""
    clock_steps: int = 0
    """Times that the wall clock was set back in the middle of a call."""
    remarks: list[str] = field(default_factory=list)
    """About whole sources: given twice, cut short, without an utterance, …; whole sentences."""

    def sentences(self) -> list[str]:
        """All of it, in plain words; empty where nothing is wrong."""
        told = list(self.remarks)
        if self.damaged:
            told.append(f"{self.damaged} of {self.lines} lines are no utterances; left out.")
        if self.newer:
            told.append(
                f"{self.newer} utterances were written by a newer version;"
                " read as far as this version knows them."
            )
        if self.repeated:
            told.append(f"{self.repeated} lines stand in more than one log; counted once.")
        if self.out_of_order:
            told.append(
                f"{self.out_of_order} utterances have marks out of order by more than the clocks'"
                " uncertainty."
            )
        if self.clock_steps:
            told.append(
                f"The wall clock was set back {self.clock_steps} times in the middle of a call:"
                " times of day are not to be trusted around it."
            )
        return told


class LogChanged(SpeechError):
    """A log is no longer what it was when it was read."""

    code = "log_changed"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} was changed while it was being read.",
            remedy="Run the command again; --follow watches logs that are being written.",
        )
