"""Servers whose sound says which word it is, and a line that leads to them, without a network."""

from __future__ import annotations

import asyncio
import re
from array import array
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from qwen3tts_wire.client_end import ClientProtocol
from qwen3tts_wire.context import Context
from qwen3tts_wire.events import Audio, Event
from qwen3tts_wire.formats import AudioFrame
from qwen3tts_wire.messages import (
    AlignmentInfo,
    ContextDone,
    ContextOpen,
    ContextStarted,
    WordInfo,
)
from tests.wire.pair import GREETING

RATE = 24_000
FRAME = 2400
"""Samples in one message."""
LOUDEST = 1000
"""Word ``n`` of the text sounds as samples of LOUDEST + n; a pause as zeros."""


class StubLine:
    """What a context needs of a connection; nothing is written."""

    def __init__(self, last_no: int = 0) -> None:
        self.protocol = ClientProtocol(last_no)
        self.protocol.session = replace(GREETING, features=("alignment",))
        self.offset_s = 0.0

    def reopen(self, context: Context, opened: ContextOpen, window_ms: float) -> ContextOpen:
        options: dict[str, Any] = {each.name: getattr(opened, each.name) for each in fields(opened)}
        del options["context_no"]
        return self.protocol.send_open(**{**options, "window_ms": max(20.0, window_ms)})

    def wake(self) -> None:
        self.protocol.data_to_send()

    async def flush_out(self) -> None:
        self.wake()

    def forget(self, context: Context) -> None:
        self.protocol.forget(context.context_no)

    def keep_done(self, context: Context) -> None:
        pass


@dataclass(frozen=True)
class Manner:
    """How a server speaks: samples of word ``n`` of the whole text, and of the pause after it."""

    lengths: tuple[int, ...]
    pauses: tuple[int, ...]
    lag: int
    """A word arrives this many samples after its end, or before it where negative."""
    lead_in: int = 0
    """Samples of silence before the first word."""


class Server:
    """Speaks ``text``, whose first word is number ``first`` of the whole text."""

    def __init__(self, text: str, first: int, manner: Manner) -> None:
        self.words: list[WordInfo] = []
        self.sound = array("h", bytes(2 * manner.lead_in))
        self.text = text
        self._lag = manner.lag
        self._told = 0
        self._sent = 0
        for number, match in enumerate(re.finditer(r"\w+", text), first):
            start = len(self.sound)
            self.sound.extend([LOUDEST + number] * manner.lengths[number])
            self.words.append(
                WordInfo(match[0], start, len(self.sound), match.start(), match.end())
            )
            self.sound.extend([0] * manner.pauses[number])

    def speak(self, context: Context, until: int | None, now: float = 0.0) -> None:
        """Send messages of the sound up to sample ``until``, whole to the end with None."""
        end = len(self.sound) if until is None else min(until, len(self.sound))
        while self._sent < end:
            after = min(self._sent + FRAME, end)
            self._tell(context, after, now)
            data = self.sound[self._sent : after].tobytes()
            frame = AudioFrame(context.context_no, self._sent, data, int(self._sent == 0))
            context.take(frame, now)
            self._sent = after
        if until is None:
            self._tell(context, 1 << 40, now)
            done = ContextDone(context.context_id, len(self.sound), len(self.text), 1)
            context.take(done, now)

    def _tell(self, context: Context, sent: int, now: float) -> None:
        due = [each for each in self.words[self._told :] if each.end + self._lag <= sent]
        if due:
            self._told += len(due)
            context.take(AlignmentInfo(context.context_id, tuple(due)), now)


def opened(line: StubLine, **options: Any) -> Context:
    order = line.protocol.send_open(window_ms=60_000.0, **options)
    context = Context(line, order, resumable=True)
    context.take(ContextStarted(order.context_id, order.context_no, "clause", order.format), 0.0)
    return context


def move(context: Context, line: StubLine) -> str | None:
    """Lose the context's server and give it that one; returns the text that this is given."""
    if not context.detach("lost", 0.0):
        return None
    context.attach(line, 1_000_000)
    return context.text[context._attempt.char :]


def take(context: Context, most: int | None = None) -> list[Event]:
    """What a reader gets that takes so many events, or all."""

    async def read() -> list[Event]:
        got: list[Event] = []
        while context._events and (most is None or len(got) < most):
            got.append(await anext(context))
        return got

    return asyncio.run(read())


def runs(events: list[Event]) -> list[tuple[int, int]]:
    """The words that sound in what was read, with the samples of each stretch; no pauses."""
    position = 0
    pieces = [b""]
    for event in events:
        if isinstance(event, Audio):
            assert event.offset == position
            position += len(event.pcm) // 2
            pieces.append(event.pcm)
    sound = np.frombuffer(b"".join(pieces), np.int16)
    if not len(sound):
        return []
    begins = np.concatenate(([0], np.flatnonzero(np.diff(sound)) + 1))
    lengths = np.diff(np.append(begins, len(sound)))
    stretches = zip(sound[begins].tolist(), lengths.tolist(), strict=True)
    return [(value - LOUDEST, samples) for value, samples in stretches if value]
