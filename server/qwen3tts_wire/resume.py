"""When and how often a client that has lost its server looks for it, or for another one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from qwen3tts_wire.dialling import check_address


@dataclass(frozen=True)
class Resume:
    """What a client does about a lost connection. ValueError for what cannot be."""

    within_s: float = 10.0
    """So long it tries to connect again; then its contexts end with ConnectionLost."""
    first_wait_s: float = 0.05
    """Between the first attempt, which is made at once, and the second."""
    max_wait_s: float = 1.0
    """Between two attempts at most; each wait is twice the one before."""
    fruitless: int = 3
    """So often a context is opened again without a sample of it having come; then it ends: its
    text may be what breaks the servers."""
    elsewhere: tuple[str, ...] = ()
    """Further addresses that are tried after the client's own: other servers, which go on too."""

    def __post_init__(self) -> None:
        for url in self.elsewhere:
            check_address(url)
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name != "elsewhere" and (not math.isfinite(value) or value <= 0):
                raise ValueError(f"{each.name}={value} must be above 0")

    def waits(self, random: Callable[[], float]) -> Iterator[float]:
        """The waits between attempts, seconds, without end.

        ``random`` gives numbers from 0 to 1; each wait is shortened by up to a half, so that the
        clients of a server that has died do not all come at the same moment.
        """
        wait = self.first_wait_s
        while True:
            yield min(wait, self.max_wait_s) * (1 - 0.5 * random())
            wait = min(2 * wait, self.max_wait_s)
