"""One `speak` command: growing text and its utterances."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from qwen3tts_speech.line import ChooseVoice, Utterance
from qwen3tts_text.plain_text import PlainText

from .partials import Growth

MAX_CHARS = 20_000
"""Utterance length; the next continues without a gap."""
AT_ONCE_CHARS = 4_096
"""Characters between yields; a few ms."""
CUT_CHARS = 1_000
"""Range of a sentence end's search."""


class Deltas:
    """Growing text as an asynchronous iterator."""

    def __init__(self) -> None:
        self.chars = 0
        self.ended = False
        self._all: list[str] = []
        self._pieces: deque[str] = deque()
        self._changed = asyncio.Event()

    def push(self, piece: str) -> None:
        if piece and not self.ended:
            self.chars += len(piece)
            self._all.append(piece)
            self._pieces.append(piece)
            self._changed.set()

    def end(self) -> None:
        self.ended = True
        self._changed.set()

    def again(self) -> Deltas:
        """Return the text from its beginning; more goes there."""
        new = Deltas()
        new.push("".join(self._all))
        if self.ended:
            new.end()
        self.end()
        return new

    @property
    def text(self) -> str:
        return "".join(self._all)

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while not self._pieces:
            if self.ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        piece = "".join(self._pieces)
        self._pieces.clear()
        return piece


@dataclass(eq=False)
class Reply:
    """Text of one command."""

    cmd_id: str | None
    context: Any
    """Its flags report a cancel."""
    begin: Callable[[Deltas], Utterance]
    """Begins an utterance."""
    choose: ChooseVoice
    """Chooses the voice."""
    also: Any = None
    """Another context of the call."""
    stall_s: float = 10.0
    """Timeout of partials."""
    task: asyncio.Task[Any] | None = None
    """The turn's task."""
    plain: PlainText | None = None
    growth: Growth = field(default_factory=Growth)
    utterances: list[Utterance] = field(default_factory=list)
    pending: set[Utterance] = field(default_factory=set)
    """Open utterances."""
    changed_at: float = 0.0
    """Time of the last partial."""
    complete: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when stopped or ended."""
    wait_s: float = 1.2
    """Silence that fails the turn at the SIP side."""
    consoled: bool = False
    """True after a silent frame."""
    deaf: bool = False
    """True if the host's flags were set before and mean something else."""
    retried: bool = False
    continued: list[Utterance] = field(default_factory=list)
    """Stopped utterances said elsewhere."""
    _given: list[Deltas] = field(default_factory=list)
    """Deltas an utterance."""
    _deltas: Deltas | None = None
    """Growing deltas."""
    _last: Deltas | None = None
    """Last deltas."""

    def update(self, text: str) -> None:
        """Take a partial: all text so far."""
        self._give(self.growth.update(text), last=False)

    def finish(self, text: str) -> None:
        self.complete = True
        self._give(self.growth.finish(text), last=True)

    async def finish_gently(self, text: str) -> None:
        """Take the whole text, yielding; ends when stopped."""
        words = self.growth.finish(text)
        while len(words) > AT_ONCE_CHARS:
            self._give(words[:AT_ONCE_CHARS], last=False)
            words = words[AT_ONCE_CHARS:]
            await asyncio.sleep(0)
            if self.over.is_set():
                return
        self.complete = True
        self._give(words, last=True)

    def pause(self) -> None:
        """Finish the given text; more may follow."""
        if self._deltas is not None:
            self._deltas.end()
            self._deltas = None

    def go_on(self) -> None:
        """Say stopped utterances' unheard rest, once."""
        for stopped, deltas in list(zip(self.utterances, self._given, strict=True)):
            outcome = stopped.outcome()
            if stopped not in self.pending or not outcome.interrupted:
                continue
            given = deltas.text
            whole = given.startswith(outcome.heard)
            rest = given[len(outcome.heard) :] if whole else outcome.remaining
            self.continued.append(stopped)
            self.pending.discard(stopped)
            if rest.strip():
                again = Deltas()
                again.push(rest)
                again.end()
                self._begin(again)

    def again(self, failed: Utterance) -> bool:
        """Repeat an utterance without audio; False: impossible."""
        if self.retried or self._last is None or failed is not self.utterances[-1]:
            return False
        self.retried = True
        old, self._last = self._last, self._last.again()
        if self._deltas is old:
            self._deltas = self._last
        self.utterances[-1] = self.begin(self._last)
        self._given[-1] = self._last
        return True

    @property
    def silent(self) -> bool:
        return not self.utterances

    def _begin(self, deltas: Deltas) -> None:
        self._last = deltas
        self.utterances.append(self.begin(deltas))
        self._given.append(deltas)

    def _give(self, words: str, *, last: bool) -> None:
        if self.plain is not None:
            words = self.plain.push(words) + (self.plain.finish() if last else "")
        while words:
            room = MAX_CHARS - (self._deltas.chars if self._deltas is not None else 0)
            piece, words = cut(words, room)
            if self._deltas is None:
                if not piece.strip():
                    continue  # white space alone is nothing to say
                self._deltas = Deltas()
                self._deltas.push(piece)
                self._begin(self._deltas)
            else:
                self._deltas.push(piece)
            if words:
                self.pause()
        if last:
            self.pause()


def cut(words: str, room: int) -> tuple[str, str]:
    """Split off ``room`` characters, at a sentence end if possible."""
    if len(words) <= room:
        return words, ""
    window = words[max(0, room - CUT_CHARS) : room]
    for mark in (". ", "! ", "? ", "\n", "。", " "):
        at = window.rfind(mark)
        if at >= 0:
            place = max(0, room - CUT_CHARS) + at + len(mark)
            return words[:place], words[place:]
    return words[:room], words[room:]


def left_s(utterance: Utterance, rate_hz: int = 24_000) -> float:
    """Return unplayed audio at the sink, seconds."""
    queued = utterance.record.generated_samples or 0
    return max(0, queued - utterance.position) / rate_hz


def unheard_s(reply: Reply) -> float:
    return sum(left_s(each) for each in reply.utterances if each not in reply.continued)


def heard_chars(reply: Reply) -> int:
    """Return the heard characters, by letters and digits (removed markup has few)."""
    outcomes = [each.outcome() for each in reply.utterances]
    heard = sum(map(str.isalnum, "".join(each.heard for each in outcomes)))
    if not heard:
        return 0
    if not any(map(str.isalnum, "".join(each.remaining for each in outcomes))):
        return len(reply.growth.given)  # an address that was taken out has many letters
    for place, character in enumerate(reply.growth.given):
        heard -= character.isalnum()
        if not heard:
            return place + 1
    return len(reply.growth.given)


class SpeechGate:
    """Gate, closed while the caller speaks."""

    def __init__(self) -> None:
        self.held = False
        """True if begun speech is held too."""
        self._hushed = False
        self._open = asyncio.Event()
        self._open.set()

    def hush(self) -> None:
        self._hushed = True
        self._open.clear()

    def hold(self) -> None:
        self.held = True
        self._open.clear()

    def open(self) -> bool:
        """Release; False: nothing was held."""
        held, self.held, self._hushed = self.held, False, False
        self._open.set()
        return held

    def blocks(self, *, begun: bool) -> bool:
        """Return whether text waits; ``begun``: of begun speech."""
        return self.held or (self._hushed and not begun)

    async def wait(self) -> None:
        await self._open.wait()
