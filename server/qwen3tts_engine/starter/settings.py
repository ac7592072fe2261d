"""Settings of openings."""

from __future__ import annotations

import math
from dataclasses import dataclass

from qwen3tts_text.characters import weight
from qwen3tts_text.segmenter import SegmenterSettings

PHRASE_MAX = 200
"""Code points of an opening: more is no opening, and would hold a text back for long."""
_HAN = weight("\u6f22")
"""Letters that a Han character counts for (segmenter.py)."""


@dataclass(frozen=True)
class StarterSettings:
    """Settings of openings."""

    phrases: tuple[str, ...] = ()
    """Openings prepared for every voice of ``voices``. Write each as the texts do, with the mark
    that follows it: ``Sure,`` is not ``Sure!``."""
    voices: tuple[str, ...] = ()
    """Voices to prepare them for, by any of their names (``clone:Anna``); empty: the default."""
    languages: tuple[str, ...] = ()
    """Languages that requests name, besides none: an opening kept for none is not used where one
    is named."""
    max_bytes: int = 32 * 1024 * 1024
    """Bound of all that is kept; what is prepared goes before what is remembered."""
    remember: bool = False
    """Whether short first clauses are cached when spoken, the oldest dropped first."""
    remember_chars: int = 40
    """Longest clause that is remembered, in code points."""
    dual_segment: bool = False
    """Whether a text that is spoken by clauses begins with a short piece, then longer ones."""
    starter_chars: tuple[int, int] = (2, 6)
    """Shortest and longest such beginning in Han characters, 3 letters each. It ends at a mark from
    the one on, and at the latest with the other, between words where the script parts them."""
    main_chars: tuple[int, int] = (20, 60)
    """The same of the pieces after it; only a flush or the end of the text makes shorter ones."""
    prepare_timeout_s: float = 60.0
    """An opening that is not ready by then is left out."""

    def __post_init__(self) -> None:
        for phrase in self.phrases:
            if not 1 <= len(phrase) <= PHRASE_MAX:
                raise ValueError(f"phrases: {phrase[:20]!r}… needs 1 to {PHRASE_MAX} characters")
            if not any(char.isalnum() for char in phrase):
                raise ValueError(f"phrases: {phrase!r} says nothing")
        for name in ("max_bytes", "remember_chars"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative")
        if self.remember_chars > PHRASE_MAX:
            raise ValueError(f"remember_chars={self.remember_chars} must be at most {PHRASE_MAX}")
        if not (math.isfinite(self.prepare_timeout_s) and self.prepare_timeout_s > 0):
            raise ValueError(f"prepare_timeout_s={self.prepare_timeout_s} must be above 0")
        for name in ("starter_chars", "main_chars"):
            bounds: tuple[int, ...] = getattr(self, name)
            if len(bounds) != 2 or not 1 <= bounds[0] <= bounds[1] <= 100:
                raise ValueError(f"{name}={bounds} needs a least and a most, from 1 to 100")

    @property
    def wanted(self) -> bool:
        return bool(self.phrases) or self.remember or self.dual_segment

    def clauses(self, settings: SegmenterSettings) -> SegmenterSettings:
        if not self.dual_segment:
            return settings
        (least, most), (main_least, main_most) = self.starter_chars, self.main_chars
        longest = (_HAN * most, _HAN * main_most)
        return SegmenterSettings(
            sentence_min=(settings.sentence_min[0], _HAN * main_least),
            clause_min=(max(1, _HAN * least - 1), _HAN * main_least),
            whole_max=longest,
            hard_max=max(settings.hard_max, *longest),
            speak_code=settings.speak_code,
            unspaced_max=longest,
            opening_counts=True,
        )
