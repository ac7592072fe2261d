"""Certain text of the host's partial commands.

The host reparses the model's unfinished JSON: ``text`` may end wrongly in half an emoji, a ``]``
of its own, a piece of ``END_RAW``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from qwen3tts_text.characters import UNSPACED
from qwen3tts_text.surrogates import clean

TEXT_NAMES = ("text", "markdown", "output")
"""Text arguments of speech commands."""
DEEPEST = 8
"""Nesting depth."""
WINDOW = 1024
"""Characters searched for a word's end."""
ECHO_WORDS = 3
"""Equal words that are no coincidence."""
ECHO_SLACK = 200
"""Their displacement, characters."""

_SURE = re.compile(rf"(?s:.*)(?:\s(?=\S)|[{UNSPACED}])")
"""Up to the last certain place."""
_WORD_START = re.compile(rf"(?s:.*)(?:\s|[{UNSPACED}])")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MARKER = re.compile(r"(?<![A-Za-z0-9_])(?:START_RAW(?![A-Za-z0-9_])\s*|END_RAW(?![A-Za-z0-9_]))")
"""The host's marks of plain text."""
_LEAK = re.compile(r'"\s*[}\]]')
"""JSON behind a text that ends in a quotation mark: the host takes ``\\""`` for one mark and reads
on."""


def words_of(params: object, kwargs: Mapping[str, object] | None = None) -> str:
    """Return a command's text, or ""; never raises.

    Without ``kwargs``, ``params`` is a partial: text, mapping or positional list. With, it is
    ``speak``'s ``text``, a list being pieces.
    """
    if kwargs is None:
        if isinstance(params, list):
            # The host leaves empty strings out before it calls the command.
            params = next((each for each in params if each != ""), None)
        return _words(params)
    return _words(params) or _words(kwargs)


def _words(value: object, depth: int = 0) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or depth > DEEPEST:
        return ""
    if isinstance(value, (int, float)):
        try:
            return str(value)
        except ValueError:  # more digits than Python converts
            return ""
    if isinstance(value, Mapping):
        named = (_words(value.get(name), depth + 1) for name in TEXT_NAMES)
        return next((words for words in named if words), "")
    if isinstance(value, (list, tuple)):
        return " ".join(words for each in value if (words := _words(each, depth + 1)))
    return ""


class Growth:
    """Splits a growing text into new, certain words.

    >>> growth = Growth()
    >>> growth.update("Good mor"), growth.update("Good morning, all]")
    ('Good ', 'morning, ')
    >>> growth.finish("Good morning, all.")
    'all.'
    """

    def __init__(self, *, before: str = "", said: str = "") -> None:
        """Begin.

        Args:
            before: the turn's last command; the host may repeat it here (after raw line ends).
            said: text of a command never run, repeated when the host asks the model again.
        """
        self._before = _unmarked(before)
        self._said_before = self._taken = said
        """True once ``_taken`` begins the host's text and all of it was given."""
        self._shown = ""
        self._pieces: list[str] = []

    @property
    def shown(self) -> str:
        """Last shown text without the host's additions."""
        text = self._shown[: _limit(self._shown, min(len(self._taken), len(self._shown)))]
        closed_twice = text.endswith("]") and text.count("]") > text.count("[")
        return text[:-1] if closed_twice else text

    @property
    def given(self) -> str:
        return "".join(self._pieces)

    def update(self, text: str) -> str:
        """Return the new, certain part.

        A word is certain before white space and another character; a character of an unspaced
        script immediately. Changed text gives nothing.
        """
        text = _unmarked(text)
        self._check_repeat(text)
        if not text.startswith(self._taken) or (text and text == self._before):
            return ""
        self._shown = text
        taken = len(self._taken)
        sure = _SURE.match(text, max(taken, len(text) - WINDOW), _limit(text, taken))
        return "" if sure is None else self._give(text, taken, sure.end())

    def finish(self, text: str) -> str:
        """Return the rest of the final text, after the common words if it differs."""
        text = _unmarked(text)
        self._check_repeat(text)
        return self._give(text, self._said(text), len(text))

    # --- inside

    def _give(self, text: str, start: int, end: int) -> str:
        words = _whole(text[start:end])
        self._taken = text[:end]
        if words:
            self._pieces.append(words)
        return words

    def _check_repeat(self, text: str) -> None:
        if not self._said_before or text == self._before:
            return
        said, so_far = " ".join(self._said_before.split()), " ".join(text.rstrip("]").split())
        if not said.startswith(so_far):
            same = _same(self._said_before, text)
            self._taken = text[:same]
            self._said_before = ""

    def _said(self, text: str) -> int:
        taken = self._taken
        same = _same(taken, text)
        if same:
            return same
        common = _common(taken, text)
        if common == len(text):
            return common
        echo = _echo(taken, text)
        if echo > common:
            return echo
        start = _WORD_START.match(text, 0, common)
        return start.end() if start else 0


def _unmarked(text: str) -> str:
    return _MARKER.sub("", text) if "_RAW" in text else text


def _limit(text: str, start: int) -> int:
    leak = _LEAK.search(text, start)
    if leak is not None:
        return leak.start() + 1
    # An empty text is two marks that the host takes for one.
    return 0 if start == 0 and text.lstrip()[:1] in ("}", "]") else len(text)


def _whole(words: str) -> str:
    if _SURROGATE.search(words) is None:
        return words
    return clean(words).replace("\ufffd", "")


def _same(taken: str, text: str) -> int:
    if text.startswith(taken):
        return len(taken)
    words = taken.split()
    parts = text.split(None, len(words))
    if parts[: len(words)] != words:
        return 0
    return len(text) - len("".join(parts[len(words) :]))


def _common(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _echo(taken: str, text: str) -> int:
    last = re.findall(r"\w+", taken[-WINDOW:])[-ECHO_WORDS:]
    if len(last) < ECHO_WORDS:
        return 0
    near = len(taken)
    first = max(0, near - len("".join(last)) - ECHO_SLACK)
    pattern = re.compile(r"\b" + r"\W+".join(last) + r"\b\S*\s*")
    ends = [found.end() for found in pattern.finditer(text, first, near + ECHO_SLACK)]
    return min(ends, key=lambda end: abs(end - near), default=0)
