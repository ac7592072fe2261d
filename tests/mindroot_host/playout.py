"""What a caller hears of the chunks that a telephony plugin was given: PySIP's playout, as a sum.

PySIP's sender waits until 20 ms of a response lie ready, then sends a frame every 20 ms; where
nothing lies ready it sends silence and does not catch up; a new response throws away what of the
last one was not sent, and so does a halt. All of this follows from the times at which the chunks
came, so no clock runs here, and a busy machine that runs the tests adds nothing.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.g711 import decode_ulaw

FRAME = 160
TICK_S = 0.02
Event = tuple[float, str, Any]


@dataclass
class Response:
    """One stream of frames, from its start to its end."""

    started: float
    """Seconds, on the clock of the host's process, as all times here."""
    frames: list[tuple[float, bytes]] = field(default_factory=list)
    """Those that were played, with the time at which each began to sound."""
    silent_ticks: int = 0
    """Ticks between the first and the last frame for which nothing lay ready."""
    thrown_away: int = 0
    """Frames that were taken and never played."""
    first_chunk: float | None = None
    last_chunk: float | None = None

    @property
    def ulaw(self) -> bytes:
        return b"".join(frame for _, frame in self.frames)


@dataclass
class Playout:
    """A whole call."""

    responses: list[Response]
    refused: int
    """Chunks that were answered with False."""

    @property
    def silent_ticks(self) -> int:
        return sum(each.silent_ticks for each in self.responses)

    def silent_near(self, sample: int, within: int) -> int:
        """Silent ticks at a place, counted in heard samples of 8 kHz, ± ``within`` frames."""
        place = sample // FRAME
        return sum(self.silent_before()[max(0, place - within) : place + within + 1])

    def silent_before(self) -> list[int]:
        """Of each frame: the silent ticks between it and the one before, within its response."""
        return [
            0 if last is None else round((at - last) / TICK_S) - 1
            for each in self.responses
            for last, at in itertools.pairwise([None, *(at for at, _ in each.frames)])
            if at is not None
        ]

    @property
    def thrown_away(self) -> int:
        return sum(each.thrown_away for each in self.responses)

    @property
    def frames(self) -> list[tuple[float, bytes]]:
        return [frame for each in self.responses for frame in each.frames]

    def samples(self) -> NDArray[np.int16]:
        """All that was heard, without the silence between, shape [n]."""
        return decode_ulaw(b"".join(frame for _, frame in self.frames))


def played(events: Sequence[Event]) -> Playout:
    """What was heard, from the events of `recording_sip`."""
    responses: list[Response] = []
    refused = 0
    bytes_of: list[tuple[Response, list[tuple[float, bytes]]]] = []
    over: dict[int, float] = {}
    """When a response was cut, by its place."""
    for at, what, value in events:
        match what:
            case "start":
                if bytes_of:
                    over.setdefault(len(bytes_of) - 1, at)
                response = Response(at)
                responses.append(response)
                bytes_of.append((response, []))
            case "chunk":
                if not responses:  # what is looked at begins within one
                    responses.append(Response(at))
                    bytes_of.append((responses[-1], []))
                bytes_of[-1][1].append((at, base64.b64decode(value)))
            case "refused":
                refused += 1
            case "halt" | "gone" | "hangup":
                if bytes_of:
                    over.setdefault(len(bytes_of) - 1, at)
            case _:
                pass
    for place, (response, chunks) in enumerate(bytes_of):
        _play(response, chunks, over.get(place, float("inf")))
    return Playout(responses, refused)


def _play(response: Response, chunks: list[tuple[float, bytes]], over: float) -> None:
    if not chunks:
        return
    response.first_chunk, response.last_chunk = chunks[0][0], chunks[-1][0]
    ready: list[tuple[float, bytes]] = []
    """Each frame with the time from which it can be sent."""
    rest = b""
    for at, chunk in chunks:
        rest += chunk
        while len(rest) >= FRAME:
            ready.append((at, rest[:FRAME]))
            rest = rest[FRAME:]
    if rest:  # padded at the response's end
        ready.append((chunks[-1][0], rest.ljust(FRAME, b"\xff")))
    tick = ready[0][0]
    silent = 0
    for number, (at, frame) in enumerate(ready):
        while at > tick:  # it is not there yet: the tick passes in silence
            tick += TICK_S
            silent += 1
        if tick >= over:
            response.thrown_away = len(ready) - number
            break
        response.silent_ticks = silent
        response.frames.append((tick, frame))
        tick += TICK_S
