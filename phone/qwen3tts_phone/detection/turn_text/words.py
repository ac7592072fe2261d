"""Words of a language by what they tell of the end of a turn: the tables in ``languages``."""

from __future__ import annotations

import tomllib
import unicodedata
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any, Final

LANGUAGES: Final = ("zh", "en", "fr", "de", "it", "ja", "ko", "pt", "ru", "es")
"""Codes of the languages with a table."""
_ALSO: Final = {"cmn": "zh", "yue": "zh"}
_SCRIPTS: Final = (({"HIRAGANA", "KATAKANA"}, "ja"), ({"HANGUL"}, "ko"), ({"CJK"}, "zh"))


class Expectation(Enum):
    """Answer that the agent's last words ask for."""

    NOTHING = "nothing"
    DIGITS = "digits"
    """A number that is read out digit by digit: telephone, code, account."""
    QUANTITY = "quantity"
    """One number: *how many*, *which option*."""
    SPELLING = "spelling"
    EMAIL = "email"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnWords:
    """Words of one language, in lower case.

    Of a script without spaces between words, and of particles written to the word before them,
    the endings are compared, not the words.
    """

    open_words: frozenset[str]
    """Last words after which a sentence goes on: conjunctions, articles, prepositions, possessives,
    auxiliary verbs.
    """
    open_endings: tuple[str, ...]
    closed_endings: tuple[str, ...]
    """Endings of a sentence that is complete."""
    fillers: frozenset[str]
    joiners: frozenset[str]
    """Words before the last item of a list."""
    answers: frozenset[str]
    """Complete short answers."""
    digits: dict[str, int]
    """Number words and how many digits each stands for."""
    repeaters: dict[str, int]
    """Words that repeat the next digit, and how often: *double*."""
    letters: frozenset[str]
    """Names of letters and of spelling alphabets."""
    no_letters: frozenset[str]
    """Words of one letter."""
    no_numbers: frozenset[str]
    """Number words that are pronouns, or part of other words, alone: *this one*."""
    at_words: frozenset[str]
    """Words for the sign @."""
    dot_words: frozenset[str]
    asks: tuple[tuple[Expectation, tuple[str, ...]], ...]
    """Parts of the agent's words that ask for something; the first that occurs counts."""
    items: frozenset[str]
    """Names of days and months, of which lists are made."""
    counts: tuple[str, ...]
    """Numbers from two on, as beginnings of words: *nine digits*."""
    digit_nouns: tuple[str, ...]
    """Beginnings of words for a digit, after such a number."""
    spaced: bool
    """False if the script puts no spaces between words."""
    telephone_digits: int
    """Fewest digits of most telephone numbers where it is spoken, as people say them."""
    letters_a_second: float
    """Usual speaking rate: letters, or signs, a second of speech."""

    def expectation(self, said: str) -> Expectation:
        for expectation, parts in self.asks:
            if any(part in said for part in parts):
                return expectation
        return Expectation.NOTHING


def turn_words(language: str, text: str = "") -> TurnWords | None:
    """Return the words of a language code such as ``en`` or ``pt-BR``; None = there is no table.

    Without a code, a text in kana, Hangul or Han signs tells it.
    """
    code = language_code(language) or _code_by_script(text)
    return _load(code) if code in LANGUAGES else None


def language_code(language: str) -> str:
    """Return the table's code of a language: ``pt`` of ``pt-BR``, ``zh`` of ``yue``."""
    code = language.strip().lower().replace("_", "-").partition("-")[0]
    return _ALSO.get(code, code)


def _code_by_script(text: str) -> str:
    names = {unicodedata.name(char, "").partition(" ")[0] for char in text if char.isalpha()}
    return next((code for scripts, code in _SCRIPTS if names & scripts), "")


def language_table(code: str) -> dict[str, Any]:
    """Return the table of one of `LANGUAGES` as its file has it."""
    path = files("qwen3tts_phone.detection.turn_text") / "languages" / f"{code}.toml"
    return tomllib.loads(path.read_text("utf-8"))


@cache
def _load(code: str) -> TurnWords:
    table = language_table(code)

    def words(name: str) -> list[str]:
        return str(table.get(name, "")).split()

    return TurnWords(
        open_words=frozenset(words("open_words")),
        open_endings=tuple(words("open_endings")),
        closed_endings=tuple(words("closed_endings")),
        fillers=frozenset(words("fillers")),
        joiners=frozenset(words("joiners")),
        answers=frozenset(" ".join(each.split()) for each in table["answers"].split(",")),
        digits=_digits(table["digits"]),
        repeaters=dict(table.get("repeaters", {})),
        letters=frozenset(words("letters")),
        no_letters=frozenset(words("no_letters")),
        no_numbers=frozenset(words("no_numbers")),
        at_words=frozenset(words("at_words")),
        dot_words=frozenset(words("dot_words")),
        asks=tuple((Expectation(what), tuple(parts)) for what, parts in table["asks"].items()),
        items=frozenset(words("items")),
        counts=tuple(words("counts")),
        digit_nouns=tuple(words("digit_nouns")),
        spaced=bool(table.get("spaced", True)),
        telephone_digits=int(table["telephone_digits"]),
        letters_a_second=float(table["letters_a_second"]),
    )


def _digits(by_count: dict[str, str]) -> dict[str, int]:
    return {word: int(count) for count, names in by_count.items() for word in names.split()}
