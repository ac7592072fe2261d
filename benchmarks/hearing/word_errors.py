"""Word error rate, with numbers brought to one form.

Texts are compared as words in lower case without punctuation. Numbers are compared digit by digit,
each digit a word: *25*, *twenty five*, *twenty-fifth* and *25th* are ``2 5``; *3:30* and *three
thirty* are ``3 3 0``; *555-0142* and *five five five, zero one four two* are seven digits. Titles,
contractions and *a.m.* are written out. So a wrong digit of a telephone number is one error of
seven, and the way in which a recogniser writes a number is none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

UNITS = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"),
    *("eighteen", "nineteen"),
]
TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ORDINALS = {
    **{f"{name}th": at for at, name in enumerate(UNITS)},
    **{"first": 1, "third": 3, "fifth": 5, "eighth": 8, "ninth": 9, "twelfth": 12},
    **{f"{name[:-1]}ieth": 10 * at for at, name in enumerate(TENS) if at > 1},
}
# "second" is a time as often as a number.
SMALL = {name: at for at, name in enumerate(UNITS)} | ORDINALS
LARGE = {name: 10 * at for at, name in enumerate(TENS) if at > 1}
SPELLED = {
    **{"dr": "doctor", "mr": "mister", "mrs": "missus", "ms": "miss", "st": "street"},
    **{"ok": "okay", "ave": "avenue", "canceled": "cancelled"},
    **{"i'm": "i am", "it's": "it is", "that's": "that is", "we're": "we are", "you're": "you are"},
    **{"i'll": "i will", "we'll": "we will", "you'll": "you will", "i've": "i have"},
    **{"we've": "we have", "you've": "you have", "i'd": "i would", "let's": "let us"},
    **{"can't": "cannot", "don't": "do not", "doesn't": "does not", "isn't": "is not"},
}
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+")


def words(text: str) -> list[str]:
    """Return the words of a text in the form in which they are compared."""
    text = unicodedata.normalize("NFKC", text).lower().replace("\u2019", "'")
    text = re.sub(r"\b([ap])\.\s?m\b\.?", r"\1m", text)
    text = re.sub(r"\b2nd\b", "second", text)
    text = re.sub(r"(\d)(?:st|nd|rd|th)\b", r"\1", text)
    text = re.sub(r"(\d),(\d{3})\b", r"\1\2", text)
    text = re.sub(r"[$£€](\d+)(?:\.(\d\d))?", r"\1 dollars \2", text)
    text = re.sub(r"(?<=\d):00\b", "", text).replace("%", " percent ").replace("&", " and ")
    found = _WORD.findall(text)
    spelled = " ".join(SPELLED.get(word, word) for word in found).split()
    return list(_digits(spelled))


def _digits(found: Sequence[str]) -> Iterator[str]:
    at = 0
    while at < len(found):
        value, used = _number(found, at)
        if used:
            yield from str(value)
            at += used
        elif found[at].isdecimal():
            yield from found[at]
            at += 1
        else:
            yield (
                "0" if found[at] in ("o", "oh") and at and _is_number(found[at - 1]) else found[at]
            )
            at += 1


def _is_number(word: str) -> bool:
    return word.isdecimal() or word in SMALL or word in LARGE or word in ("o", "oh")


def _number(found: Sequence[str], at: int) -> tuple[int, int]:
    """A number in words that begins here, and how many words it has; 0 words: no number."""
    below, used = _below_hundred(found, at)
    if not used:
        return 0, 0
    total = below
    if found[at + used : at + used + 1] == ["hundred"]:
        total, used = 100 * below, used + 1
        more = at + used + (found[at + used : at + used + 1] == ["and"])
        rest, length = _below_hundred(found, more)
        if length:
            total, used = total + rest, more + length - at
    if found[at + used : at + used + 1] == ["thousand"]:
        used += 1
        rest, length = _number(found, at + used)
        total = 1000 * total + (rest if rest < 1000 else 0)
        used += length if rest < 1000 else 0
    return total, used


def _below_hundred(found: Sequence[str], at: int) -> tuple[int, int]:
    word = found[at] if at < len(found) else ""
    if word in SMALL:
        return SMALL[word], 1
    if word in LARGE:
        unit = SMALL.get(found[at + 1], 0) if at + 1 < len(found) else 0
        return LARGE[word] + (unit if 0 < unit < 10 else 0), 2 if 0 < unit < 10 else 1
    return 0, 0


def errors(said: Sequence[str], heard: Sequence[str]) -> int:
    """Return the words inserted, left out or exchanged: the Levenshtein distance."""
    row = list(range(len(heard) + 1))
    for place, word in enumerate(said, 1):
        above, row[0] = row[0], place
        for at, other in enumerate(heard, 1):
            above, row[at] = row[at], min(above + (word != other), row[at] + 1, row[at - 1] + 1)
    return row[-1]
