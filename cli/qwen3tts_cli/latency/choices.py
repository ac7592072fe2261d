"""Choices on the command line of `latency`; importing it loads nothing."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


class WorstOf(StrEnum):
    """What the worst utterances are worst in."""

    FIRST_SOUND = "first-sound"
    """From the first delta to the first sound."""
    WAIT = "wait"
    """From the caller's last sound to the first sound of the answer."""
    ASKED = "asked"
    """From the asking to the first sound."""
    GAP = "gap"
    """The longest gap in the speech."""
    SILENCE = "silence"
    """From the interruption to silence."""


class GroupBy(StrEnum):
    """By what utterances are told apart."""

    CALL = "call"
    ENGINE = "engine"
    VOICE = "voice"
    LINE = "line"
    CODEC = "codec"
    ENDED = "ended"
    LOG = "log"

    @property
    def column(self) -> str:
        """The column of `Columns` that holds it."""
        return {GroupBy.ENDED: "end_reason", GroupBy.LOG: "source"}.get(self, str(self))


class Kind(StrEnum):
    """Whose lines a log holds."""

    OURS = "ours"
    MR_SIP = "mr_sip"
