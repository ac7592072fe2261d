"""Reading of a turn's text so far: does it go on (pure).

Recognisers put a full stop behind every text, so punctuation at the end tells nothing.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from qwen3tts_phone.detection.turn_text.words import Expectation, TurnWords

MAX_READ_CHARS: Final = 4000
"""Longest text that is read; of a longer one the end is."""
ITEM_WORDS: Final = 3
"""Most words of an item of a list."""
ASKING_SENTENCES: Final = 2
"""Sentences at the end of the agent's words that may ask."""
_SENTENCE: Final = re.compile(r"[^.!?\u3002]+[.!?\u3002]*")
_TOKEN: Final = re.compile(r"[^\W_]+(?:['-][^\W_]+)*|@")
_ADDRESS: Final = re.compile(r"@\s*[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}\W*$")
_COMMAS: Final = re.compile("[,;\u3001\u060c]")


class TextEnd(StrEnum):
    """Kind of the text's end; the value is the rule's name in the record."""

    ANSWER = "answer"
    """A complete short answer, or the one number asked for."""
    CLOSED = "closed"
    """An ending that only complete sentences have."""
    PLAIN = "sentence"
    QUESTION = "question"
    """A sentence that a recogniser ends by a question mark: its melody may rise."""
    NUMBER = "number"
    """One or two digits that were not asked for."""
    OPEN_WORD = "open_word"
    FILLER = "filler"
    ITEM = "item"
    """One day or month alone: an answer, or the first of a list."""
    LIST = "list"
    LIST_COMPLETE = "list_complete"
    """A list whose last item was joined."""
    DIGITS = "digits"
    DIGITS_LONG = "digits_long"
    """As many digits as a telephone number has; nothing says how many there are."""
    DIGITS_COMPLETE = "digits_complete"
    SPELLING = "spelling"
    EMAIL = "email"
    EMAIL_COMPLETE = "email_complete"
    CONSENT = "consent"
    """A short answer where a number, an address or a spelling was asked for: it follows."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Answer that the agent's last words ask for."""

    what: Expectation = Expectation.NOTHING
    digits: int | None = None
    """How many digits; None = not said."""


def asked_for(said: str, language: TurnWords) -> Asked:
    """Return what the agent's words ask for; their last sentences count."""
    plain = "".join(_SENTENCE.findall(_plain(said))[-ASKING_SENTENCES:])
    what = language.expectation(plain)
    return Asked(what, _digit_count(plain, language) if what is Expectation.DIGITS else None)


def read_end(text: str, language: TurnWords, asked: Asked | None = None) -> TextEnd | None:
    """Return the kind of the text's end; None = it has no words."""
    asked = asked or Asked()
    plain = _plain(text)
    tokens = _tokens(plain, language)
    if not tokens:
        return None
    if _is_answer(tokens, language):
        return TextEnd.ANSWER if asked.what in _SINGLE else TextEnd.CONSENT
    return (
        _email(plain, tokens, language, asked)
        or _digits(tokens, language, asked)
        or _spelling(tokens, language, asked)
        or _words(plain, tokens, language)
    )


_SINGLE: Final = (Expectation.NOTHING, Expectation.QUANTITY)


def _plain(text: str) -> str:
    text = unicodedata.normalize("NFKC", text[-MAX_READ_CHARS:]).lower()
    return text.replace("\u2019", "'").strip()


def _tokens(plain: str, language: TurnWords) -> list[str]:
    tokens: list[str] = []
    for token in _TOKEN.findall(plain):
        parts = token.split("-")
        if len(parts) > 1 and all(len(part) == 1 or part.isdecimal() for part in parts):
            tokens += parts  # j-o-h-n, 555-0199
        else:
            tokens.append(token)
    if language.spaced:
        return tokens
    names = sorted({*language.digits, *language.at_words, *language.dot_words}, key=len)[::-1]
    pattern = re.compile("|".join([r"\d+", "[a-z]+", *map(re.escape, names), "."]))
    return [part for token in tokens for part in pattern.findall(token)]


def _is_answer(tokens: list[str], language: TurnWords) -> bool:
    return (" " if language.spaced else "").join(tokens) in language.answers


# --- e-mail addresses


def _email(plain: str, tokens: list[str], language: TurnWords, asked: Asked) -> TextEnd | None:
    if _ADDRESS.search(plain):
        return TextEnd.EMAIL_COMPLETE
    at = [place for place, token in enumerate(tokens) if token in language.at_words | {"@"}]
    dots = [place for place, token in enumerate(tokens) if token in language.dot_words]
    mentioned = asked.what is Expectation.EMAIL or (
        language.expectation(plain) is Expectation.EMAIL
    )
    if not mentioned and "@" not in plain and not (at and dots):
        return None
    if at and dots and dots[-1] > at[0] and dots[-1] < len(tokens) - 1:
        ending = tokens[-1]
        if dots[-1] == len(tokens) - 2 and ending.isalpha() and 2 <= len(ending) <= 6:
            return TextEnd.EMAIL_COMPLETE
        spelled = tokens[dots[-1] + 1 :]
        if len(spelled) in {2, 3} and all(len(each) == 1 for each in spelled):
            return TextEnd.EMAIL_COMPLETE
    if at or dots or _letters(tokens, language) or "@" in plain:
        return TextEnd.EMAIL
    if asked.what is not Expectation.EMAIL:
        return None
    # Recognisers write "add" for "at": what has a spelled letter is an address all the same.
    letters = sum(len(token) == 1 for token in tokens if token not in language.no_letters)
    return TextEnd.EMAIL if letters or len(tokens) <= ITEM_WORDS else None


# --- digits and letters


def _digits(tokens: list[str], language: TurnWords, asked: Asked) -> TextEnd | None:
    last, total = _digit_run(tokens, language)
    wanted = asked.what is Expectation.DIGITS
    if tokens[-1] in language.repeaters and (total or wanted):
        return TextEnd.DIGITS
    if not last:
        return None
    if wanted:
        if asked.digits is not None:
            return TextEnd.DIGITS_COMPLETE if total >= asked.digits else TextEnd.DIGITS
        return TextEnd.DIGITS_LONG if total >= language.telephone_digits else TextEnd.DIGITS
    if asked.what is Expectation.QUANTITY:
        return TextEnd.ANSWER
    no_number = language.open_words | language.no_numbers
    if last == 1 and (tokens[-1] in no_number or not language.spaced):
        return None  # an article, a pronoun, or a sign within a word
    if last >= language.telephone_digits:
        return TextEnd.DIGITS_LONG
    return TextEnd.DIGITS if last >= 3 else TextEnd.NUMBER


def _digit_run(tokens: list[str], language: TurnWords) -> tuple[int, int]:
    """Return the digits at the end without another word between them, and those of all."""
    run = total = 0
    repeat = 1
    for token in tokens:
        if token in language.repeaters:
            repeat = language.repeaters[token]
            continue
        count = len(token) if token.isdecimal() else language.digits.get(token, 0)
        count, repeat = count * repeat, 1
        total += count
        run = run + count if count else 0
    return run, total


def _spelling(tokens: list[str], language: TurnWords, asked: Asked) -> TextEnd | None:
    letters = _letters(tokens, language)
    if letters >= 2:
        return TextEnd.SPELLING
    if asked.what is not Expectation.SPELLING:
        return None
    # Recognisers write "you" for "u", and what was spelled as a word.
    spelled = letters or len(tokens) == 1 or any(len(token) == 1 for token in tokens)
    return TextEnd.SPELLING if spelled else None


def _letters(tokens: list[str], language: TurnWords) -> int:
    """Return the spelled letters at the end; digits between them count."""
    count = letters = 0
    for token in reversed(tokens):
        single = len(token) == 1 and token.isalpha() and language.spaced
        single = single or (len(token) == 1 and token.isascii() and token.isalpha())
        is_letter = single or token in language.letters
        if is_letter or token.isdecimal() or token in language.digits:
            count += 1
            letters += is_letter
        else:
            break
    if letters == 1 and tokens[-1] in language.no_letters:
        return 0
    return count if letters else 0


# --- words


def _words(plain: str, tokens: list[str], language: TurnWords) -> TextEnd:
    last = tokens[-1]
    bare = re.sub(r"[\W_]+$", "", plain)
    if last in language.fillers or (not language.spaced and bare.endswith(tuple(language.fillers))):
        return TextEnd.FILLER
    if language.closed_endings and bare.endswith(language.closed_endings):
        return TextEnd.CLOSED
    if last in language.open_words or (
        language.open_endings and bare.endswith(language.open_endings)
    ):
        return TextEnd.OPEN_WORD
    if last in language.items:
        return _items(tokens, language)
    if _list_goes_on(plain, language):
        return TextEnd.LIST
    return TextEnd.QUESTION if plain.endswith("?") else TextEnd.PLAIN


def _items(tokens: list[str], language: TurnWords) -> TextEnd:
    if len(tokens) == 1:
        return TextEnd.ITEM
    before = tokens[-2]
    if before in language.items:
        return TextEnd.LIST
    return TextEnd.LIST_COMPLETE if before in language.joiners else TextEnd.PLAIN


def _list_goes_on(plain: str, language: TurnWords) -> bool:
    parts = [part.strip() for part in _COMMAS.split(plain) if part.strip()]
    if len(parts) < 2:
        return False
    lengths = [len(_tokens(part, language)) for part in parts]
    most = ITEM_WORDS if language.spaced else 3 * ITEM_WORDS
    if any(length > most for length in lengths[1:]):
        return False
    joined = set(_tokens(parts[-1], language)) & language.joiners or (
        not language.spaced and any(joiner in parts[-1] for joiner in language.joiners)
    )
    return not joined and len(parts) >= 3


def _digit_count(asked: str, language: TurnWords) -> int | None:
    """Return the number before a word for digits: *your nine-digit number*, *4 digits*."""
    nouns = "|".join(map(re.escape, language.digit_nouns))
    if not nouns:
        return None
    gap = r"[\s-]*" if language.spaced else ""
    figures = re.search(rf"(\d{{1,2}}){gap}(?:{nouns})", asked)
    if figures is not None:
        return int(figures[1])
    names = sorted(enumerate(language.counts, 2), key=lambda each: -len(each[1]))
    for count, name in names:
        if re.search(rf"(?<!\w){re.escape(name)}\w{{0,3}}{gap}(?:{nouns})", asked) or (
            not language.spaced and re.search(rf"{re.escape(name)}(?:{nouns})", asked)
        ):
            return count
    return None
