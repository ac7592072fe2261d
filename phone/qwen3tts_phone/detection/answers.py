"""Whether what an agent is saying asks for an answer (pure)."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from qwen3tts_speech.line import Saying

REACH_CHARS: Final = 12
"""Text heard last that still counts, for people answer a moment late: about 0.8 s..."""
WIDE_CHARS: Final = 3
"""...in which a character of a script without blanks counts as so many."""
_QUESTION: Final = re.compile("[?\uff1f\u061f]")
_SENTENCE: Final = re.compile("[.!?\u2026\u3002\uff01\uff1f\u061f\uff61]+(?=\\s|$|[^\\s\\d.])|\\n")
_CLAUSE: Final = re.compile("[,;:\uff0c\u3001\uff1b\uff1a\u060c\u2014\u2013]")


def expects_answer(saying: Saying | None) -> bool:
    """Return whether a "yes" now is an answer: a question, or the last clause, is being said.

    In doubt it is: ``saying`` is None, or the rest of the text is not known.
    """
    if saying is None:
        return True
    sentence = _SENTENCE.search(saying.remaining)
    if sentence is None and not saying.complete:
        return True
    present = saying.remaining[: sentence.end()] if sentence else saying.remaining
    if _QUESTION.search(_reach(saying.heard) + present):
        return True
    clause = _CLAUSE.search(present)
    end = clause.end() if clause else len(present)
    return saying.complete and not saying.remaining[end:].strip()


def _reach(heard: str) -> str:
    left = REACH_CHARS
    for place in range(len(heard) - 1, -1, -1):
        left -= WIDE_CHARS if unicodedata.east_asian_width(heard[place]) == "W" else 1
        if left < 0:
            return heard[place + 1 :]
    return heard
