"""A row of the table of fuzz targets, and inputs that are sequences of steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

SEPARATOR = b"\xff\xff"
"""Between two steps. UTF-8 text never contains this pair."""
MAX_STEPS = 48


@dataclass(frozen=True)
class Target:
    """A property function that takes any bytes and returns; any exception is a defect."""

    run: Callable[[bytes], None]
    invariant: str
    """The property that `run` checks, in one sentence."""
    seeds: tuple[bytes, ...]
    """Valid examples to start from."""
    words: tuple[bytes, ...] = ()
    """libFuzzer's dictionary: keywords of the format."""
    max_bytes: int = 4096
    """Longest input that is tried."""
    stepwise: bool = False
    """Inputs are sequences of steps and are mutated as such."""
    hard: tuple[bytes, ...] = ()
    """Edge cases that the tests run beside the seeds."""


def steps(data: bytes) -> list[tuple[str, bytes]]:
    """Cut into steps: one byte that names the action, and its argument."""
    pieces = data.split(SEPARATOR, MAX_STEPS)[:MAX_STEPS]
    return [(chr(piece[0]), piece[1:]) for piece in pieces if piece]


def sequence(*pieces: str | bytes) -> bytes:
    """Return the input that consists of these steps."""
    return SEPARATOR.join(each.encode() if isinstance(each, str) else each for each in pieces)


def mutate_steps(data: bytes, known: list[bytes], rng: random.Random) -> bytes:
    """Drop, double, move or insert one to three steps; inserted ones are taken from ``known``."""
    pieces = data.split(SEPARATOR)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(pieces) + 1)
        action = rng.randrange(5)
        if action == 0 and len(pieces) > 1:
            del pieces[place % len(pieces)]
        elif action == 1:
            pieces.insert(place, rng.choice(pieces))
        elif action == 2:
            pieces.insert(place, pieces.pop(rng.randrange(len(pieces))))
        else:
            pieces.insert(place, rng.choice(known))
    return SEPARATOR.join(pieces[:MAX_STEPS])


def chunks(data: bytes, length: int) -> list[bytes]:
    """Cut into chunks of one length."""
    return [data[start : start + length] for start in range(0, len(data), length)]
