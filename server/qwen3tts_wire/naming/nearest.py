"""Names that are near one that is not known: by edit distance, and for voices within a language."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

MOST = 3
LONGEST_CHARS = 64
"""A longer name is compared by its beginning: the distance costs the product of both lengths."""
WORST_SHARE = 0.5
"""A name is near while fewer than this share of the longer one's characters must change."""
_PART = re.compile(r"[^\W_]+")


class NamedVoice(Protocol):
    """A voice as a list of voices has it."""

    @property
    def id(self) -> str:
        """Name in a request."""

    @property
    def name(self) -> str:
        """Name for people."""

    @property
    def language(self) -> str:
        """BCP 47 tag; ``mul`` for several."""


def edit_distance(first: str, second: str) -> int:
    """Return the optimal string alignment distance: characters inserted, deleted, replaced, or
    swapped with their neighbour."""
    before: list[int] = []
    last = list(range(len(second) + 1))
    for row, char in enumerate(first, 1):
        current = [row]
        for column, other in enumerate(second, 1):
            cost = min(
                last[column] + 1,
                current[column - 1] + 1,
                last[column - 1] + (char != other),
            )
            swapped = row > 1 and column > 1 and char == second[column - 2]
            if swapped and first[row - 2] == other:
                cost = min(cost, before[column - 2] + 1)
            current.append(cost)
        before, last = last, current
    return last[-1]


def nearest(wanted: str, known: Iterable[str], most: int = MOST) -> list[str]:
    """Return up to ``most`` of the known names, the nearest first; case does not count.

    A name that has ``wanted`` as one of its parts (``joe`` in ``en_US-joe-medium``) is near.
    """
    key = wanted.casefold()[:LONGEST_CHARS]
    found = []
    for order, name in enumerate(dict.fromkeys(known)):
        distance = _distance(key, name.casefold()[:LONGEST_CHARS])
        if distance is not None:
            found.append((distance, order, name))
    return [name for _, _, name in sorted(found)[:most]]


def _distance(key: str, name: str) -> int | None:
    """None where the two are not alike."""
    if not key:
        return None
    if len(key) > 2 and key in _PART.findall(name):
        return 1
    longer = max(len(key), len(name))
    if abs(len(key) - len(name)) >= longer * WORST_SHARE:
        return None
    distance = edit_distance(key, name)
    return distance if distance < longer * WORST_SHARE else None


def near_voices(
    wanted: str, voices: Sequence[NamedVoice], language: str | None = None, most: int = MOST
) -> list[str]:
    """Return up to ``most`` voices that may have been meant, the nearest first, by their ids.

    Voices of one language alone, where it is known: ``language`` (a BCP 47 tag), else the one that
    ``wanted`` begins with (``en-uk``); if no name among them is near, the first of them. An id that
    is found by its voice's name is followed by that name in brackets.
    """
    within = _primary(language or "") or _primary(wanted)
    same = [each for each in voices if _primary(each.language) == within]
    found = _near_of(wanted, same or voices, most)
    if found or not same:
        return found
    return [each.id for each in same[:most]]


def _near_of(wanted: str, voices: Sequence[NamedVoice], most: int) -> list[str]:
    by_id = nearest(wanted, [each.id for each in voices], most)
    names = {each.name: each.id for each in reversed(voices)}
    by_name = [
        # clone:NAME answers to NAME.
        name if names[name].endswith(f":{name}") else f"{names[name]} ({name})"
        for name in nearest(wanted, [each.name for each in voices], most)
        if names[name] not in by_id
    ]
    return [*by_id, *by_name][:most]


def near_hint(near: Sequence[str]) -> str:
    """Return the sentence that names near ones; empty without any."""
    return f"Near it: {', '.join(near)}." if near else ""


def _primary(tag: str) -> str:
    return re.split(r"[-_]", tag.strip().casefold(), maxsplit=1)[0]
