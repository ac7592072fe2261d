"""Judgement of words said over the agent's: do they only confirm that the caller listens (pure).

The lists are in turn_text/languages, table ``overlap``, in the spellings of recognisers, above all
Whisper's. A phrase counts as a whole, and several may follow each other. "Um" and its like are in
none: who says them is about to speak.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from qwen3tts_phone.detection.events import Verdict
from qwen3tts_phone.detection.turn_text.words import LANGUAGES, language_code, language_table

MAX_WORDS: Final = 6
"""Longest backchannel, in words ("yeah yeah yeah, okay, right")..."""
UNSPACED_CHARS: Final = 4
"""...each counted as so many characters where there are no blanks."""


@dataclass(frozen=True, slots=True)
class WordList:
    """Words of one language, each a phrase of one or more words."""

    backchannels: frozenset[tuple[str, ...]]
    stops: frozenset[tuple[str, ...]]
    """Those that stop the agent wherever they stand."""
    unspaced: bool = False
    """True if blanks between words do not count: there are none, or recognisers set them freely."""


_ANNOTATION: Final = re.compile(
    r"\([^)]*\)|\[[^\]]*\]|\*[^*]*\*|<[^>]*>|\uff08[^\uff09]*\uff09|\u3010[^\u3011]*\u3011"
)
"""Sounds that recognisers write down: "(coughing)", "[Music]", "*sigh*"."""
_WORD: Final = re.compile(r"[^\W_]+")
_JOINT: Final = re.compile(r"(?<=\w)[-'\u2019\u2010\u2011\u02bc](?=\w)")
_HUM: Final = re.compile("[mh\u043c\u0445]{2,}")
"""A hum in Latin or Cyrillic letters ("mmhmmm"): their number says nothing."""
_HUMS: Final = ("mhm", "\u043c\u0433\u043c")
_RUN: Final = re.compile(r"(.)\1{2,}")
_YO: Final = str.maketrans("\u0451", "\u0435")
_QUESTIONS: Final = "?\uff1f\u061f"


@lru_cache(maxsize=1)
def word_lists() -> dict[str, WordList]:
    return {code: _word_list(language_table(code)["overlap"]) for code in LANGUAGES}


def has_word_list(language: str) -> bool:
    """Return whether backchannels of a language (``en``, ``en-US``) are known."""
    return language_code(language) in word_lists()


def judge_words(text: str, languages: Sequence[str]) -> tuple[Verdict, str]:
    """Return the verdict on the text of an overlap, and its rule (pure).

    Args:
        text: a recogniser's text.
        languages: codes of the languages that it may be in; those without a list do not count.

    Returns:
        ``interruption`` by ``stop_word``, ``words`` or ``no_list``; ``backchannel`` by ``words``;
        ``noise`` by ``no_words``, or by ``sound`` where the text names one ("(coughs)").
    """
    words = words_of(text)
    if not words:
        return "noise", "sound" if _ANNOTATION.search(text) else "no_words"
    known = word_lists()
    lists = [known[code] for each in languages if (code := language_code(each)) in known]
    if not lists:
        return "interruption", "no_list"
    if any(_stops(words, listed) for listed in lists):
        return "interruption", "stop_word"
    asks = any(mark in text for mark in _QUESTIONS)  # "hm?", but not "really?"
    hums = all(word in _HUMS for word in words)
    if any(_confirms(words, each) for each in lists if not asks or not (hums or each.unspaced)):
        return "backchannel", "words"
    return "interruption", "words"


def words_of(text: str) -> list[str]:
    """Return a text's words: lower case, without punctuation, hyphens and apostrophes."""
    plain = unicodedata.normalize("NFKC", _ANNOTATION.sub(" ", text)).casefold()
    return [_plain(word) for word in _WORD.findall(_JOINT.sub("", plain.translate(_YO)))]


# --- inside


def _word_list(listed: dict[str, Any]) -> WordList:
    return WordList(
        frozenset(tuple(words_of(phrase)) for phrase in listed["backchannels"]),
        frozenset(tuple(words_of(phrase)) for phrase in listed["stops"]),
        listed.get("unspaced", False),
    )


def _plain(word: str) -> str:
    short = _RUN.sub(r"\1", word)
    if _HUM.fullmatch(short):
        return _HUMS[0] if short.isascii() else _HUMS[1]
    return short


def _stops(words: list[str], listed: WordList) -> bool:
    if listed.unspaced:
        text = "".join(words)
        # A stop may be part of a backchannel's spelling.
        covered = _reaches_end(text, _joined(listed.backchannels))
        return not covered and any(stop in text for stop in _joined(listed.stops))
    longest = max(map(len, listed.stops))
    return any(
        tuple(words[first : first + count]) in listed.stops
        for first in range(len(words))
        for count in range(1, longest + 1)
    )


def _confirms(words: list[str], listed: WordList) -> bool:
    if listed.unspaced:
        text = "".join(words)
        most = UNSPACED_CHARS * MAX_WORDS
        return len(text) <= most and _reaches_end(text, _joined(listed.backchannels))
    if any(_repeats(words, phrase) for phrase in listed.backchannels):
        return True
    if len(words) > MAX_WORDS:
        return False
    reached = {0}
    for first in range(len(words)):
        if first in reached:
            reached.update(
                first + len(phrase)
                for phrase in listed.backchannels
                if tuple(words[first : first + len(phrase)]) == phrase
            )
    return len(words) in reached


def _repeats(words: list[str], phrase: tuple[str, ...]) -> bool:
    """Whether a text is one phrase again and again, as recognisers write short sounds."""
    cycle = [phrase[place % len(phrase)] for place in range(len(words))]
    return len(words) >= len(phrase) and words == cycle


@lru_cache(maxsize=64)
def _joined(phrases: frozenset[tuple[str, ...]]) -> frozenset[str]:
    return frozenset("".join(phrase) for phrase in phrases)


def _reaches_end(text: str, phrases: frozenset[str]) -> bool:
    """Whether the text is nothing but these phrases, one after another."""
    reached = {0}
    for first in range(len(text)):
        if first in reached:
            reached.update(
                first + len(phrase) for phrase in phrases if text.startswith(phrase, first)
            )
    return len(text) in reached
