"""Which utterances are wanted (pure)."""

from __future__ import annotations

import fnmatch
import math
from dataclasses import dataclass, field
from typing import Final

from qwen3tts_speech.latency import UtteranceRecord

FILTERS: Final = {
    "call": "call_id",
    "engine": "engine",
    "voice": "voice",
    "ended": "end_reason",
    "line": "line",
    "codec": "codec",
}
"""The filters by name, and the fields of a record that they look at."""


@dataclass(frozen=True)
class Selection:
    """What an utterance must have to be taken; an empty one takes all.

    ``patterns`` has for names of `FILTERS` what the field may be: names, in which ``*``, ``?`` and
    ``[abc]`` stand for any characters. Case counts. An empty pattern fits an empty field.
    """

    patterns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    since: float = -math.inf
    """Unix time (s) of the first moment that is taken."""
    until: float = math.inf
    """Unix time (s) of the first moment that is not taken any more."""
    _known: dict[tuple[str, str], bool] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a filter that there is not."""
        for name in self.patterns:
            if name not in FILTERS:
                raise ValueError(f"there is no filter {name!r}")

    @property
    def all(self) -> bool:
        """Whether nothing is left out."""
        return not any(self.patterns.values()) and math.isinf(self.since) and math.isinf(self.until)

    def takes(self, record: UtteranceRecord) -> bool:
        """Whether this one is wanted."""
        if not self.since <= record.started_unix_s < self.until:
            return False
        return all(
            self._fits(name, getattr(record, FILTERS[name]))
            for name, patterns in self.patterns.items()
            if patterns
        )

    def _fits(self, name: str, value: str) -> bool:
        # A log has few different names; a damaged one may have any number.
        known = self._known.get((name, value))
        if known is None:
            known = any(fnmatch.fnmatchcase(value, each) for each in self.patterns[name])
            if len(self._known) < 4096:
                self._known[name, value] = known
        return known
