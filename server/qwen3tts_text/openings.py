"""Openings: phrases that may begin a growing text.

A text begins with a phrase if its spoken characters do and no later text can change that: white
space follows, or for a script without spaces anything but a further mark; or the text is flushed or
ends there. Only the case of the first letter is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from qwen3tts_text.characters import (
    CLOSERS,
    PAUSES,
    SCRIPT_CLAUSE_MARKS,
    SCRIPT_TERMINALS,
    STRAY_AT_START,
)

SpokenChar = tuple[str, int, int]
"""A spoken character and the span of the original that it stands for."""

_SCRIPT_MARKS = SCRIPT_TERMINALS | SCRIPT_CLAUSE_MARKS
_WHITE = frozenset(" \n")
_ALIKE = str.maketrans({"\u2019": "'", "\u2018": "'"})


class _Node:
    __slots__ = ("ends", "next")

    def __init__(self) -> None:
        self.next: dict[str, _Node] = {}
        self.ends = False
        """True if a phrase ends here."""


class Phrases:
    """Immutable trie of phrases' spoken characters."""

    def __init__(self, phrases: Iterable[str]) -> None:
        self.texts = frozenset(map(folded, phrases)) - {""}
        """The phrases, folded."""
        self._root = _Node()
        for phrase in self.texts:
            node = self._root
            for char in phrase:
                node = node.next.setdefault(char, _Node())
            node.ends = True

    def __bool__(self) -> bool:
        return bool(self.texts)

    def __contains__(self, text: str) -> bool:
        return folded(text) in self.texts


def folded(text: str) -> str:
    for index, char in enumerate(text):
        if char.isalpha():
            return (text[:index] + _small(char) + text[index + 1 :]).translate(_ALIKE)
    return text.translate(_ALIKE)


def _small(char: str) -> str:
    small = char.lower()
    return small if len(small) == 1 else char


class TakesText(Protocol):
    """Receiver of spoken characters: the segmenter."""

    def take(self, char: str, start: int, end: int) -> None: ...

    def take_opening(self, chars: Sequence[SpokenChar], end: int) -> None:
        """Take an opening; what follows begins at original ``end``."""
        ...


class OpeningGate:
    """Gate that holds a text's beginning while it may become a phrase.

    It holds at most the longest phrase and two characters.
    """

    def __init__(self, phrases: Phrases, to: TakesText) -> None:
        self._to = to
        self._node: _Node | None = phrases._root
        """Node of the phrase's beginning; None: it is not one."""
        self._held: list[SpokenChar] = []
        self._ends: list[int] = []
        """Ends of phrases in what is held, the longest last."""
        self._lettered = False
        self.open = not phrases
        """True if it is decided: characters go through from now on."""

    def feed(self, char: str, start: int, end: int) -> None:
        if self.open:
            self._to.take(char, start, end)
            return
        held = self._held
        held.append((char, start, end))
        if self._node is not None and not (char in _WHITE and not self._begun):
            self._node = self._node.next.get(self._folded(char))
            if self._node is not None and self._node.ends:
                self._ends.append(len(held))
        if self._node is None:
            self._decide(closing=False)

    def flush(self, position: int) -> None:
        if not self.open:
            self._decide(closing=True, position=position)

    @property
    def _begun(self) -> bool:
        return any(char not in _WHITE for char, _, _ in self._held)

    def _folded(self, char: str) -> str:
        if not self._lettered and char.isalpha():
            self._lettered = True
            char = _small(char)
        return char.translate(_ALIKE)

    def _decide(self, *, closing: bool, position: int = 0) -> None:
        while self._ends:
            certain = self._is_phrase(self._ends[-1], closing)
            if certain is None:
                return  # one more character tells
            if certain:
                break
            self._ends.pop()
        self.open = True
        held, self._held = self._held, []
        cut = self._ends[-1] if self._ends else 0
        if cut:
            self._to.take_opening(held[:cut], held[cut][1] if cut < len(held) else position)
        for each in held[cut:]:
            self._to.take(*each)

    def _is_phrase(self, end: int, closing: bool) -> bool | None:
        held = self._held
        if end == len(held):
            return True if closing else None
        before, after = held[end - 1][0], held[end][0]
        if after not in _WHITE:
            # Nothing but white space parts words, and marks that come in a row belong together.
            return before in _SCRIPT_MARKS and after not in PAUSES and after not in CLOSERS
        if end + 1 == len(held):
            return True if closing else None
        following = held[end + 1][0]
        if following in STRAY_AT_START:
            return False  # it belongs to the phrase, and would be lost at the next one's beginning
        return not (following.isdigit() and (before == "." or before.isdigit()))  # "No. 5", "1 000"
