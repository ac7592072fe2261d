"""Replies prepared while the caller's pause lasts: comparison of words, count of a turn (pure).

A reply is asked for the words that the recogniser has guessed, and used where the turn ends with
the same words and the conversation has not changed otherwise.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from qwen3tts_agent.chat.messages import ChatMessage
from qwen3tts_agent.settings import AgentSettings

_SPOKEN: Final = "%‰&#@*/§"
"""Punctuation by Unicode that stands for words."""


def same_words(text: str) -> str:
    """Return ``text`` in the form in which equal words are equal.

    Case, blanks, and punctuation at words' ends are left out; that within a word or number is kept.
    """
    words = unicodedata.normalize("NFC", text).casefold().split()
    return " ".join(bare for word in words if (bare := _bare(word)))


def _bare(word: str) -> str:
    first, last = 0, len(word)
    while first < last and _punctuation(word[first]):
        first += 1
    while last > first and _punctuation(word[last - 1]):
        last -= 1
    return word[first:last]


def _punctuation(char: str) -> bool:
    return char not in _SPOKEN and unicodedata.category(char).startswith(("P", "C"))


def same_prompt(one: Sequence[ChatMessage], other: Sequence[ChatMessage]) -> bool:
    """Return whether two prompts differ in no more than the form of the last words."""
    if len(one) != len(other) or not one or list(one[:-1]) != list(other[:-1]):
        return False
    return _worded(one[-1]) == _worded(other[-1])


def _worded(message: ChatMessage) -> ChatMessage:
    return replace(message, content=same_words(message.content))


@dataclass(slots=True)
class TurnGuesses:
    """Guesses of the caller's open turn."""

    made: int = 0
    requests: int = 0
    """Requests of those that were dropped."""
    asked: bool = False
    """True if a reply was prepared in this pause."""

    def may_prepare(self, settings: AgentSettings, speech_s: float) -> bool:
        """Return whether a reply may be prepared: one a pause, and ``max_guesses`` a turn.

        ``speech_s``: from the first to the last voiced sample.
        """
        enough = speech_s >= settings.guess_speech_s and self.made < settings.max_guesses
        return enough and not self.asked

    def prepared(self) -> None:
        self.made += 1
        self.asked = True

    def resumed(self) -> None:
        self.asked = False
