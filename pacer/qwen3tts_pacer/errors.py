"""What a caller of the pacer can do wrong."""

from __future__ import annotations


class PacerError(Exception):
    """The caller broke a rule of the pacer; what it asked for was not done."""


class IllegalMove(PacerError):
    """This cannot happen in this state."""


class ContextError(PacerError):
    """Frames or a finish of a context that was not begun, is finished, or is out of its turn."""


class PacerFull(PacerError):
    """The queue has no room for these frames; none was taken."""
