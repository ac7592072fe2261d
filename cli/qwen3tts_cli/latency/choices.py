"""Choices of the options; imports nothing heavy."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


class WorstOf(StrEnum):
    FIRST_SOUND = "first-sound"
    """First delta to first sound."""
    WAIT = "wait"
    """Caller's last sound to the first of the answer."""
    ASKED = "asked"
    """Request to first sound."""
    GAP = "gap"
    """Longest underrun."""
    SILENCE = "silence"
    """Barge-in to silence."""


class GroupBy(StrEnum):
    CALL = "call"
    ENGINE = "engine"
    VOICE = "voice"
    LINE = "line"
    CODEC = "codec"
    RULE = "rule"
    ENDED = "ended"
    LOG = "log"

    @property
    def column(self) -> str:
        return {GroupBy.ENDED: "end_reason", GroupBy.LOG: "source"}.get(self, str(self))


class LogKind(StrEnum):
    OURS = "ours"
    MR_SIP = "mr_sip"
