"""One `speak` command: its text as it grows, and the utterances that say it."""

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
"""Of one utterance; a longer text goes on in the next one, which follows without a gap."""
AT_ONCE_CHARS = 4_096
"""So many are looked through for markup before others have their turn; a few ms at the most."""
CUT_CHARS = 1_000
"""So far back a place between two sentences is looked for."""


class Deltas:
    """Words that come by and by, as the asynchronous iterator that an utterance takes."""

    def __init__(self) -> None:
        self.chars = 0
        self.ended = False
        self._all: list[str] = []
        self._pieces: deque[str] = deque()
        self._changed = asyncio.Event()

    def push(self, piece: str) -> None:
        """Some more words."""
        if piece and not self.ended:
            self.chars += len(piece)
            self._all.append(piece)
            self._pieces.append(piece)
            self._changed.set()

    def end(self) -> None:
        """No more words come."""
        self.ended = True
        self._changed.set()

    def again(self) -> Deltas:
        """The same words from their beginning; those that are still to come go there."""
        new = Deltas()
        new.push("".join(self._all))
        if self.ended:
            new.end()
        self.end()
        return new

    @property
    def text(self) -> str:
        """All words so far."""
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
    """What one command says."""

    cmd_id: str | None
    context: Any
    """The host's context; its flags tell of a cancel."""
    begin: Callable[[Deltas], Utterance]
    """Begins an utterance that says what the deltas give."""
    choose: ChooseVoice
    """How it is spoken."""
    also: Any = None
    """Another context object of the same call, where the command was given another one."""
    stall_s: float = 10.0
    """Partials that stop coming for so long are not waited for."""
    task: asyncio.Task[Any] | None = None
    """The host's task of the turn."""
    plain: PlainText | None = None
    growth: Growth = field(default_factory=Growth)
    utterances: list[Utterance] = field(default_factory=list)
    pending: set[Utterance] = field(default_factory=set)
    """Those that have not ended."""
    changed_at: float = 0.0
    """When its last partial came, seconds of the conversation's clock."""
    complete: bool = False
    """Whether all of its text is known."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it was stopped, or has ended: nothing more of it is said."""
    wait_s: float = 1.2
    """Without sound for so long the turn might be taken for a failure."""
    consoled: bool = False
    """Whether that has been seen to."""
    deaf: bool = False
    """Whether the host's flags were up when it began: they are about something else."""
    retried: bool = False
    continued: list[Utterance] = field(default_factory=list)
    """Those that were stopped, and whose rest another one says."""
    _given: list[Deltas] = field(default_factory=list)
    """What each utterance takes or took its words from."""
    _deltas: Deltas | None = None
    """What the last utterance takes its words from, while more may come."""
    _last: Deltas | None = None
    """What the last utterance takes or took its words from."""

    def update(self, text: str) -> None:
        """A partial: all of the text so far."""
        self._give(self.growth.update(text), last=False)

    def finish(self, text: str) -> None:
        """The whole text."""
        self.complete = True
        self._give(self.growth.finish(text), last=True)

    async def finish_gently(self, text: str) -> None:
        """The whole text; a long one does not hold other calls up. Ends where it is stopped."""
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
        """What was given is said to its end; should more come, it follows."""
        if self._deltas is not None:
            self._deltas.end()
            self._deltas = None

    def go_on(self) -> None:
        """Say what the caller has not heard of those that were stopped, each once."""
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
        """Say once more what brought no sound at all; whether that can be done."""
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
        """Whether nothing was there to say."""
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
    """At most ``room`` characters from the front, and the rest; between sentences if there are."""
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
    """What is with the sink and not yet at the caller's ear, seconds."""
    queued = utterance.record.generated_samples or 0
    return max(0, queued - utterance.position) / rate_hz


def unheard_s(reply: Reply) -> float:
    """The same of a whole reply; the rest of what was stopped is with the utterance after it."""
    return sum(left_s(each) for each in reply.utterances if each not in reply.continued)


def heard_chars(reply: Reply) -> int:
    """How many characters of the command's own text were heard.

    What is heard is counted in letters and digits, which markup that was taken out has hardly any.
    """
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
    """One conversation's. It is open until a caller is heard to speak."""

    def __init__(self) -> None:
        self.held = False
        """Whether the caller has cut in: even what was begun waits."""
        self._hushed = False
        self._open = asyncio.Event()
        self._open.set()

    def hush(self) -> None:
        """The caller speaks: nothing is begun."""
        self._hushed = True
        self._open.clear()

    def hold(self) -> None:
        """The caller cuts in: what was begun waits as well."""
        self.held = True
        self._open.clear()

    def open(self) -> bool:
        """All may be said again; returns whether something was held."""
        held, self.held, self._hushed = self.held, False, False
        self._open.set()
        return held

    def blocks(self, *, begun: bool) -> bool:
        """Whether words wait; ``begun``: they go on with what is being said."""
        return self.held or (self._hushed and not begun)

    async def wait(self) -> None:
        """Return when it is open."""
        await self._open.wait()
