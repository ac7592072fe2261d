"""What a fuzz target is, and how one row of bytes becomes a story of several steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

SEPARATOR = b"\xff\xff"
"""Between two steps; the pair stands in no UTF-8 text."""
MOST_STEPS = 48


@dataclass(frozen=True)
class Target:
    """A function that takes any bytes and returns; whatever it raises is a defect."""

    run: Callable[[bytes], None]
    claim: str
    """The property, in one sentence."""
    seeds: tuple[bytes, ...]
    """Valid examples to start from."""
    words: tuple[bytes, ...] = ()
    """What a mutation may put in: the keywords of the format."""
    most_bytes: int = 4096
    """Longest input that is tried."""
    stepwise: bool = False
    """Whether an input is a story of steps, to be mutated as such."""


def steps(data: bytes) -> list[tuple[str, bytes]]:
    """Cut into steps: one byte that says what is done, and what it is done with."""
    pieces = data.split(SEPARATOR, MOST_STEPS)[:MOST_STEPS]
    return [(chr(piece[0]), piece[1:]) for piece in pieces if piece]


def story(*pieces: str | bytes) -> bytes:
    """The input that has these steps."""
    return SEPARATOR.join(each.encode() if isinstance(each, str) else each for each in pieces)


def retold(data: bytes, known: list[bytes], chance: random.Random) -> bytes:
    """The story with one or a few steps dropped, doubled, moved, or put in from those known."""
    pieces = data.split(SEPARATOR)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(pieces) + 1)
        what = chance.randrange(5)
        if what == 0 and len(pieces) > 1:
            del pieces[place % len(pieces)]
        elif what == 1:
            pieces.insert(place, chance.choice(pieces))
        elif what == 2:
            pieces.insert(place, pieces.pop(chance.randrange(len(pieces))))
        else:
            pieces.insert(place, chance.choice(known))
    return SEPARATOR.join(pieces[:MOST_STEPS])


def cuts(data: bytes, length: int) -> list[bytes]:
    """The same bytes as they would come in pieces of one length."""
    return [data[start : start + length] for start in range(0, len(data), length)]
