"""Words of the agent compared with what is expected of them (pure)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher

DIGITS: dict[str, dict[str, str]] = {
    language: {
        word: str(digit) for digit, words in enumerate(listed.split()) for word in words.split("/")
    }
    for language, listed in {
        "en": "zero one two three four five six seven eight nine",
        "de": "null eins/ein/eine zwei/zwo drei vier fünf sechs sieben acht neun",
        "fr": "zéro un/une deux trois quatre cinq six sept huit neuf",
        "es": "cero uno/una dos tres cuatro cinco seis siete ocho nueve",
        "it": "zero uno/una due tre quattro cinque sei sette otto nove",
        "pt": "zero um/uma dois/duas três quatro cinco seis sete oito nove",
        "nl": "nul een/één twee drie vier vijf zes zeven acht negen",
        "ru": "ноль/нуль один/одна два/две три четыре пять шесть семь восемь девять",
    }.items()
}
"""Number words by language; the others write digits."""
TEENS: dict[str, str] = {
    **{"ten": "10", "eleven": "11", "twelve": "12", "thirteen": "13", "fourteen": "14"},
    **{"fifteen": "15", "sixteen": "16", "seventeen": "17", "eighteen": "18", "nineteen": "19"},
}
TENS: dict[str, str] = {
    **{"twenty": "2", "thirty": "3", "forty": "4", "fifty": "5", "sixty": "6", "seventy": "7"},
    **{"eighty": "8", "ninety": "9"},
}
REPEATED_WORDS = 4
"""Shortest sentence that counts as a repetition."""
SAME_WORDS = 0.75
_SENTENCE = re.compile("[.!?\u2026\u3002\uff01\uff1f]+\\s*")


def plain(text: str) -> str:
    """Return it in lower case, without punctuation, with single spaces."""
    text = unicodedata.normalize("NFKC", text).lower().replace("\u2019", "'")
    return " ".join(re.sub(r"[^\w']+|_", " ", text).split())


def canonical(text: str, language: str = "en") -> list[str]:
    """Return the words with every number as single digits: "twenty-two", "22" → 2 2."""
    digits = DIGITS.get(language[:2], {})
    made: list[str] = []
    tens = ""
    words = plain(text).split()
    for number, word in enumerate(words):
        digit = digits.get(word, "")
        if tens:
            units = digit if digit != "0" else ""
            made += [tens, units or "0"]
            tens = ""
            if units:
                continue
        if word in TENS and language.startswith("en"):
            tens = TENS[word]
        elif word in TEENS and language.startswith("en"):
            made += list(TEENS[word])
        elif digit:
            made.append(digit)
        elif word in ("oh", "o") and made and made[-1].isdigit() and _is_digit(words, number + 1):
            made.append("0")
        elif any(char.isdigit() for char in word):
            made += re.findall(r"\d|\D+", word)
        else:
            made.append(word)
    return [*made, tens, "0"] if tens else made


def _is_digit(words: Sequence[str], number: int) -> bool:
    word = words[number] if number < len(words) else "0"
    return word.isdigit() or word in ("oh", "o") or word in DIGITS["en"]


def contains(text: str, wanted: str, language: str = "en") -> bool:
    """Return whether the words occur in this order, next to each other."""
    words, part = canonical(text, language), canonical(wanted, language)
    count = len(part)
    return any(words[at : at + count] == part for at in range(len(words) - count + 1))


def digits_of(text: str, language: str = "en") -> str:
    return "".join(word for word in canonical(text, language) if word.isdigit())


def sentences(texts: Sequence[str]) -> list[str]:
    return [spoken for text in texts for each in _SENTENCE.split(text) if (spoken := plain(each))]


def repeated(texts: Sequence[str]) -> list[str]:
    """Return the sentences that were said before, `REPEATED_WORDS` or longer, each time.

    Two are the same where `SAME_WORDS` of their words are: a recogniser does not write the same
    sound in the same words each time.
    """
    seen: list[list[str]] = []
    again = []
    for sentence in sentences(texts):
        words = canonical(sentence)
        if len(words) < REPEATED_WORDS:
            continue
        if any(SequenceMatcher(None, words, each).ratio() >= SAME_WORDS for each in seen):
            again.append(sentence)
        seen.append(words)
    return again
