"""One thing that was wrong with a call, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, for a person who runs phones and has not read the RFCs."""

    code: str
    """Its name, stable; one of `diagnosis.CODES`."""
    words: str
    """What is the matter, in one or two plain sentences."""
    remedy: str
    """What to do, in one or two plain sentences; empty = there is nothing to be done here."""
    severe: bool = True
    """Whether it keeps people from hearing each other, or the call from coming about."""

    def __str__(self) -> str:
        return f"{self.words} {self.remedy}".rstrip()
