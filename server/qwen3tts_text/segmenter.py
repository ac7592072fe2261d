"""Growing text cut into speakable segments, independent of its deltas.

``speakable`` drops what is not spoken, ``boundaries`` finds ends. A boundary is taken only when no
later character can change it. Look-ahead and look-back are bounded.

Of a *live* segment, what no later text can change is handed out while it grows (``take_live``); one
that is too long is cut at the next place instead of one behind, which may be spoken already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

from qwen3tts_text.boundaries import RUN_MAX, TRIGGERS, BoundaryRules, Strength
from qwen3tts_text.boundary_words import CLINGING, PAUSE_BEFORE
from qwen3tts_text.characters import (
    PAUSES,
    STRAY_AT_START,
    can_part,
    is_cjk,
    spaces_part_phrases,
    weight,
)
from qwen3tts_text.openings import OpeningGate, Phrases, SpokenChar
from qwen3tts_text.speakable import Speakable

Spelled = tuple[str, tuple[int, ...]]
"""A text, and the position in the original of each of its code points and one past the last."""


def after_strays(chars: Sequence[str], first: int, last: int) -> int:
    """Return the first of ``chars[first:last]`` to speak in a new text."""
    while first < last and (
        chars[first] in " \n"
        or (_is_stray(chars, first, last) and (chars[first] != "." or first + 1 < last))
    ):
        first += 1
    return first


def spell(
    chars: Sequence[str], starts: Sequence[int], ends: Sequence[int], first: int, last: int
) -> Spelled:
    """Join ``chars[first:last]``; an inner line end without a mark becomes a comma.

    Spelling two adjacent parts gives what spelling both does. Each part ends with a character that
    is not white space; neither is ``chars[0]``.
    """
    text: list[str] = []
    offsets: list[int] = []
    for index in range(first, last):
        char = chars[index]
        if char == "\n":
            if chars[index - 1] not in PAUSES:
                text.append(",")
                offsets.append(starts[index])
            char = " "
        text.append(char)
        offsets.append(starts[index])
    return "".join(text), (*offsets, ends[last - 1])


def spoken(chars: Sequence[str], starts: Sequence[int], ends: Sequence[int]) -> Spelled | None:
    first, last = 0, len(chars)
    while first < last and (chars[first] in " \n" or _is_stray(chars, first, last)):
        first += 1
    if not says(chars, first, last):
        return None
    return spell(chars, starts, ends, first, last)


def says(chars: Sequence[str], first: int, last: int) -> bool:
    return any(chars[index].isalnum() for index in range(first, last))


def trimmed(text: str, offsets: tuple[int, ...]) -> Spelled | None:
    first, last = 0, len(text)
    while first < last and (text[first] == " " or _is_stray(text, first, last)):
        first += 1
    return (text[first:], offsets[first:]) if says(text, first, last) else None


def _is_stray(chars: Sequence[str], index: int, last: int) -> bool:
    if chars[index] == "." and index + 1 < last and chars[index + 1].isdigit():
        return False
    return chars[index] in STRAY_AT_START


Live = Literal["none", "first", "all"]
"""Live segments: none, the first since the start or a flush, or all."""

_JOINTS = frozenset("/?&=_-")
"""In a long address, where to cut if it must be."""
_UNDECIDED = 6 * RUN_MAX
"""Weight that two runs of marks may still add to what ends at them."""
_WITHIN_MAX = 40
"""Weight after which a live piece that is far too long is cut even within a number."""


class _Rank(IntEnum):
    NO_SPACE = 0
    WITHIN = 1
    """After a number, which may go on or have a unit, or after the dot of an abbreviation."""
    CLINGING = 2
    """After a word that belongs to the next."""
    PLAIN = 3
    BEFORE_PAUSE = 4
    """Before a word at which a voice may breathe."""
    AFTER_MARK = 5


@dataclass(frozen=True, slots=True)
class Segment:
    """Piece to speak, and its span of the original text.

    Successive spans tile the original text.
    """

    text: str
    """Spoken text; empty when nothing in the span is spoken."""
    offsets: tuple[int, ...]
    """Position in the original (code points) of each character of ``text``, and one past the last;
    never decreasing, within the span."""
    start: int
    """First code point of the original text that this segment covers."""
    end: int
    """One past the last code point that it covers."""
    final: bool = False
    """True if the text has ended with this segment."""
    live: bool = False
    """True if its text, or its beginning, was there for ``take_live`` while it grew."""


@dataclass(frozen=True, slots=True)
class SegmenterSettings:
    """Lengths of segments, in letters; a Han character counts 3, a kana 2.

    Several values hold for the first, second, … segment since the start or a flush, the last for
    all later ones.
    """

    sentence_min: tuple[int, ...] = (2, 12, 24)
    """Shorter sentences join the next one, except the first (*Yes.* is an answer): pieces of a few
    words break up the intonation."""
    clause_min: tuple[int, ...] = (11, 32, 80)
    """From here a clause mark may end a piece: *Good morning,* is worth a first piece, *Well,* is
    over before the next is there. With sound ahead, whole sentences sound better than clauses."""
    whole_max: tuple[int, ...] = (60, 120, 240)
    """From here the best white space ends a piece, so that the first sound waits for some 15
    tokens at most."""
    hard_max: int = 300
    """No piece is much heavier: without white space it is cut between graphemes (in scripts without
    spaces at twice ``whole_max``)."""
    speak_code: bool = False
    """True if blocks of code are spoken; else their span is covered without sound."""
    unspaced_max: tuple[int, ...] = ()
    """Latest cut of text in scripts without spaces; empty: see ``hard_max``."""
    opening_counts: bool = False
    """True if an opening counts as the first segment; else the next is a first one again."""

    def __post_init__(self) -> None:
        for name in ("sentence_min", "clause_min", "whole_max", "unspaced_max"):
            values: tuple[int, ...] = getattr(self, name)
            needed = name != "unspaced_max"
            if (needed and not values) or any(value < 1 for value in values):
                raise ValueError(f"{name}={values} needs one or more numbers from 1")
        if self.hard_max < max(*self.whole_max, 16):
            raise ValueError(
                f"hard_max={self.hard_max} must be at least 16 and whole_max={self.whole_max}"
            )


class Segmenter:
    def __init__(
        self,
        settings: SegmenterSettings | None = None,
        *,
        language: str | None = None,
        live: Live = "none",
        openings: Phrases | None = None,
    ) -> None:
        """Without ``language`` (BCP 47), all languages' rules hold.

        One of ``openings`` at the beginning is a segment of its own, never live.
        """
        self._settings = settings or SegmenterSettings()
        self._live_scope = live
        self._rules = BoundaryRules(language)
        self._gate = OpeningGate(openings, self) if openings else None
        take = self._gate.feed if self._gate else self.take
        self._speakable = Speakable(take, speak_code=self._settings.speak_code)
        # The spoken characters that no segment holds yet, with their spans in the original.
        self._text: list[str] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._opening = 0
        """Characters that a live segment leaves out at its beginning, as far as known."""
        self._silent = 0
        """Characters at their beginning without anything to speak."""
        self._given = 0
        """Characters that ``take_live`` has handed out or left out; 0: nothing handed out."""
        self._scan = self._weight = 0
        self._overdue = False
        self._start = 0
        self._number = 0
        self._ready: list[Segment] = []
        self._ended = False
        self._set_bounds()

    def push(self, delta: str) -> list[Segment]:
        """Add any ``str``; return the segments that no later text can change."""
        if self._ended:
            raise ValueError("the text has ended; a Segmenter reads one text, begin another")
        self._speakable.feed(delta)
        return self._collect()

    def flush(self) -> list[Segment]:
        """Commit everything pending, as at a pause in the input.

        The last segment's text is empty if nothing of it is spoken. The next one is a first one.
        """
        self._commit()
        return self._collect()

    def end(self) -> list[Segment]:
        if self._ended:
            raise ValueError("the text has ended already")
        self._commit()
        self._ended = True
        segments = self._collect()
        if not segments:
            segments = [Segment("", (self._start,), self._start, self._start)]
        segments[-1] = replace(segments[-1], final=True)
        return segments

    def take_live(self) -> Spelled | None:
        """Return more of the unfinished live segment, with offsets, or None.

        All that was returned of it is the beginning of its ``text``, whatever follows.
        """
        if not self._live:
            return None
        text, last = self._text, self._certain()
        while last > self._given and text[last - 1] in " \n":
            last -= 1
        first = self._given
        if not first:
            first = self._opening = after_strays(text, self._opening, last)
            while self._silent < last and not text[self._silent].isalnum():
                self._silent += 1
            if self._silent >= last:
                return None
        if first >= last:
            return None
        self._given = last
        return spell(text, self._starts, self._ends, first, last)

    def _certain(self) -> int:
        coming = self._weight + sum(map(weight, self._text[self._scan :])) + _UNDECIDED
        if coming < min(self._sentence_min, self._clause_min):
            return len(self._text)  # nothing that is still to be judged can end it
        return self._scan

    def _collect(self) -> list[Segment]:
        ready, self._ready = self._ready, []
        return ready

    def take(self, char: str, start: int, end: int) -> None:
        self._text.append(char)
        self._starts.append(start)
        self._ends.append(end)
        self._advance(closing=False)

    def take_opening(self, chars: Sequence[SpokenChar], end: int) -> None:
        for char, start, last in chars:
            self._text.append(char)
            self._starts.append(start)
            self._ends.append(last)
        self._live = False
        self._emit(len(self._text), end)
        self._number += self._settings.opening_counts
        self._set_bounds()

    def _commit(self) -> None:
        self._speakable.flush()
        if self._gate is not None:
            self._gate.flush(self._speakable.position)
        self._advance(closing=True)
        position = self._speakable.position
        if position > self._start:
            self._emit(len(self._text), position)
        self._number = 0
        self._set_bounds()

    def _advance(self, *, closing: bool) -> None:
        text = self._text
        while self._scan < len(text):
            char = text[self._scan]
            if char not in TRIGGERS:
                self._weight += weight(char)
                self._scan += 1
            else:
                boundary = self._rules.judge(text, self._scan, closing)
                if boundary is None:
                    return
                for index in range(self._scan, boundary.resume):
                    self._weight += weight(text[index])
                self._scan = boundary.resume
                if self._is_enough(boundary.strength) and 0 < boundary.cut < len(text):
                    self._cut(boundary.cut)
                    continue
            if self._live:
                if self._weight >= min(2 * self._whole_max, self._settings.hard_max):
                    self._shorten_live()
            elif self._weight >= self._whole_max:
                self._shorten()

    def _is_enough(self, strength: Strength) -> bool:
        if strength is Strength.SENTENCE:
            return self._weight >= self._sentence_min
        return strength is Strength.CLAUSE and self._weight >= self._clause_min

    def _shorten(self) -> None:
        if self._overdue:
            # There was no good white space before: take the first that comes.
            cut = self._space_passed()
        else:
            cut = self._best_space()
            self._overdue = not cut
        hard_max = self._settings.hard_max
        if not self._text[self._scan - 1].isascii():
            hard_max = min(hard_max, self._unspaced_max)  # Han or Thai without marks, no address
        if not cut and self._weight >= hard_max:
            cut = self._best_joint()
        if cut:
            self._cut(cut)

    def _shorten_live(self) -> None:
        place = self._scan - 1
        before, char = self._text[place - 1], self._text[place]
        over = self._weight - self._settings.hard_max
        cut = self._space_passed()
        if not cut and (over >= 0 or is_cjk(char) or spaces_part_phrases(char)):
            if before in " \n":
                cut = place - 1
            elif over > _WITHIN_MAX or (
                can_part(before, char) and not (before.isdigit() and char.isdigit())
            ):
                cut = place
        if cut > 0:
            self._cut(cut)

    def _space_passed(self) -> int:
        place = self._scan - 2
        return place if place > 0 and self._rank(place) > _Rank.WITHIN else 0

    def _best_space(self) -> int:
        best, cut = _Rank.WITHIN, 0
        for place in range(self._scan - 2, self._scan // 3, -1):
            rank = self._rank(place)
            if rank > best:
                best, cut = rank, place
        return cut

    def _rank(self, place: int) -> _Rank:
        text = self._text
        if text[place] not in " \n" or place + 1 >= len(text):
            return _Rank.NO_SPACE
        before, after = text[place - 1], text[place + 1]
        if before in PAUSES:
            return _Rank.WITHIN if before == "." else _Rank.AFTER_MARK
        if before.isdigit() or (before == ")" and (after.isdigit() or after in "(+")):
            return _Rank.WITHIN  # within a number, or between it and its unit
        if _word_before(text, place) in CLINGING:
            return _Rank.CLINGING
        return _Rank.BEFORE_PAUSE if _word_after(text, place) in PAUSE_BEFORE else _Rank.PLAIN

    def _best_joint(self) -> int:
        text = self._text
        last = min(self._scan, len(text) - 1)
        mark = word = 0
        for place in range(last, self._scan // 2, -1):
            before, after = text[place - 1], text[place]
            if after == " ":
                return place
            if not can_part(before, after):
                continue
            if before in _JOINTS or not before.isascii():
                mark = mark or place
            elif before != " " and not (before.isdigit() and after.isdigit()):
                word = word or place
        return mark or word or last

    def _cut(self, cut: int) -> None:
        if self._emit(cut, self._starts[cut]):
            self._number += 1
            self._set_bounds()

    def _emit(self, cut: int, end: int) -> bool:
        said = spoken(self._text[:cut], self._starts, self._ends)
        if said is not None or cut == len(self._text):
            text, offsets = said or ("", (self._start,))
            self._ready.append(Segment(text, offsets, self._start, end, live=self._live))
            self._start = end
        del self._text[:cut], self._starts[:cut], self._ends[:cut]
        self._opening = self._silent = self._given = 0
        self._scan = max(self._scan - cut, 0)
        self._weight = sum(map(weight, self._text[: self._scan]))
        self._overdue = False
        return said is not None

    def _set_bounds(self) -> None:
        settings, number = self._settings, self._number
        self._sentence_min = _at(settings.sentence_min, number)
        self._clause_min = _at(settings.clause_min, number)
        self._whole_max = _at(settings.whole_max, number)
        unspaced = settings.unspaced_max
        self._unspaced_max = _at(unspaced, number) if unspaced else 2 * self._whole_max
        scope = self._live_scope
        self._live = scope == "all" or (scope == "first" and number == 0)


def _at(values: tuple[int, ...], index: int) -> int:
    return values[min(index, len(values) - 1)]


def _word_before(text: Sequence[str], place: int) -> str:
    begin = place
    while begin > 0 and place - begin < 16 and text[begin - 1].isalpha():
        begin -= 1
    if begin and text[begin - 1] not in " \n":
        return ""  # the end of something longer
    return "".join(text[begin:place]).lower()


def _word_after(text: Sequence[str], place: int) -> str:
    end = place + 1
    while end < len(text) and end - place < 16 and text[end].isalpha():
        end += 1
    return "".join(text[place + 1 : end]).lower()
