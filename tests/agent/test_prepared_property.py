"""Guesses in any order of events: a dropped one leaves nothing, and nothing is said twice or lost.

`PREPARED_RUNS=10000 pytest tests/agent/test_prepared_property.py` runs more; `benchmarks/turns.py`
does, too.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from qwen3tts_agent.chat.messages import (
    ChatEvent,
    ChatMessage,
    ModelRefused,
    ModelUnavailable,
    ToolCall,
    ToolSpec,
)
from qwen3tts_agent.guess import same_words
from qwen3tts_agent.reply import Reply
from qwen3tts_agent.settings import AgentSettings
from qwen3tts_agent.tools import tool
from qwen3tts_phone.audio.frames import KeyPressed
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_speech.latency import UtteranceRecord
from qwen3tts_wire.errors import ConnectionLost, EngineFailed
from tests.agent.parts import ScriptedCall, begin
from tests.fakes import FakeClock, settle

RUNS = int(os.environ.get("PREPARED_RUNS", "250"))
WRITES = (*["word"] * 4, *["clause"] * 4, *["tool"] * 3, "fails", "breaks", "end", "end")
STEPS = {
    "writes": 4,
    "writes a lot": 6,
    "plays": 2,
    "plays all": 4,
    "onset": 4,
    "pauses": 8,
    "a guessed turn": 12,
    "another guess": 2,
    "goes on": 4,
    "ends as guessed": 9,
    "ends otherwise": 4,
    "noise": 2,
    "misheard": 1,
    "key": 1,
    "typed": 1,
    "interrupt": 1,
    "time": 2,
    "hold": 1,
    "resume": 1,
    "voice fails": 1,
    "connection lost": 1,
}


class AnyModel:
    """Writes words that no other request writes, and asks for tools by its request's number."""

    guessable = True

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.tasks: list[asyncio.Task[object] | None] = []
        """The reply that each request belongs to."""
        self.written: list[tuple[int, str]] = []
        self.messages: list[list[ChatMessage]] = []
        self.permits = asyncio.Semaphore(0)
        self.open = 0
        self.most_open = 0

    async def stream(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        must_speak: bool = False,
    ) -> AsyncGenerator[ChatEvent, None]:
        number = len(self.messages)
        self.messages.append(list(messages))
        self.tasks.append(asyncio.current_task())
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            for word in range(self._chance.randrange(1, 5)):
                await self.permits.acquire()
                match self._chance.choice(WRITES):
                    case "end":
                        return
                    case "fails":
                        raise ModelUnavailable("down")
                    case "breaks":
                        raise ModelRefused("no")
                    case "tool":
                        yield ToolCall(f"c{number}", "look", f'{{"request": {number}}}')
                        return
                    case kind:
                        text = f"r{number}w{word}{'. ' if kind == 'clause' else ' '}"
                        self.written.append((number, text.strip()))
                        yield text
        finally:
            try:
                await asyncio.sleep(0)  # a connection that takes a moment to close
            finally:
                self.open -= 1

    async def close(self) -> None:
        """Nothing is open."""


@dataclass
class Outcome:
    """What many runs have seen."""

    runs: int = 0
    prepared: int = 0
    used: int = 0
    dropped: int = 0
    tools: int = 0
    """Tools that ran."""
    tools_of_dropped: int = 0
    faults: list[str] = field(default_factory=list)


class Kept:
    """Utterances in the latency log."""

    def __init__(self) -> None:
        self.records: list[UtteranceRecord] = []

    def append(self, record: UtteranceRecord) -> None:
        self.records.append(record)

    def close(self) -> None: ...


class Caller:
    """The caller, who is guessed rightly or wrongly."""

    def __init__(self, call: ScriptedCall, model: AnyModel, chance: random.Random) -> None:
        self.call, self.model, self.chance = call, model, chance
        self.turns: list[str] = []
        self._number = 0
        self._guess = ""

    def _words(self) -> str:
        self._number += 1
        return f"turn {self._number}"

    async def _open(self) -> None:
        if not self.call.listening.caller_speaking:
            self._guess = ""
            self.call.onset()
            await settle(20)

    def _end(self, text: str, **more: object) -> None:
        self.call.decided()
        if text:
            self.turns.append(text)
        self.call.words(text, **more)

    async def does(self, step: str) -> None:
        call, chance = self.call, self.chance
        match step:
            case "writes":
                self.model.permits.release()
            case "writes a lot":
                for _ in range(6):
                    self.model.permits.release()
            case "plays":
                await call.sink.play_words(1)
            case "plays all":
                await call.sink.play_all()
            case "onset":
                await self._open()
            case "pauses":
                await self._open()
                self._guess = self._words()
                call.pauses(self._guess, speech_s=chance.choice((0.3, 1.0, 1.0, 2.0)))
            case "a guessed turn":
                for part in ("onset", "pauses", "writes", "ends as guessed"):
                    await self.does(part)
                    await settle(30 if chance.random() < 0.9 else 0)
            case "another guess" if call.listening.caller_speaking:
                self._guess = self._words()
                call.guesses(self._guess)
            case "goes on" if call.listening.caller_speaking:
                call.goes_on()
            case "ends as guessed":
                await self._open()
                text = self._guess or self._words()
                self._end(chance.choice((text, f"{text.capitalize()}.")))
            case "ends otherwise":
                await self._open()
                self._end(self._words())
            case "noise":
                await self._open()
                call.decided("noise")
                if call._stopped:
                    call.words("")
            case "misheard":
                await self._open()
                self._end("", error=EngineFailed("deaf"))
            case "key":
                call._core.pressed(KeyPressed(call.time.now(), "5", 100))
                if call.listening.caller_speaking:
                    call.decided()
                call.words("", keys="5", why="keys")
            case "typed":
                text = self._words()
                self.turns.append(text)
                call.words(text, why="typed")
            case "interrupt":
                call.interrupt()
            case "time":
                await call.time.advance(chance.choice((0.2, 2.0, 31.0)))
            case "hold" | "resume":
                call.hold(step == "hold")
            case "voice fails":
                call.client.failures = [EngineFailed("no voice")]
            case "connection lost":
                call.client.failures = [ConnectionLost("gone")]


async def run(seed: int, outcome: Outcome) -> None:
    """One call of random events, judged at its end."""
    chance = random.Random(seed)
    broken: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: broken.append(what))
    model, kept, used = AnyModel(chance), Kept(), list[int]()
    dropped: list[asyncio.Task[None]] = []
    give_up = Reply.give_up

    def noted(reply: Reply) -> None:
        if reply.prepared and not reply.given_up:
            dropped.append(reply._task)
        give_up(reply)

    async def look(request: int) -> str:
        """See."""
        used.append(request)
        return "seen"

    call = ScriptedCall(FakeClock())
    call._core.voice = replace(call._core.voice, log=kept)
    call.sink.at_once = chance.random() < 0.5
    with patch.object(Reply, "give_up", noted):
        session = await begin(
            model,
            call,
            greeting=chance.choice(("", "Hello there.")),
            tools=[tool(look)],
            listen=ListenSettings(barge_in=chance.random() < 0.8),
            settings=AgentSettings(
                filler=chance.choice(((), ("One moment.",))), queue_chars=12, max_guesses=4
            ),
        )
        caller = Caller(call, model, chance)
        steps = chance.choices(list(STEPS), list(STEPS.values()), k=chance.randrange(4, 16))
        for step in steps:
            if call.over:
                break
            await caller.does(step)
            await settle(30)
        conversation = await session.end()
    await settle(30)
    outcome.runs += 1
    outcome.dropped += len(dropped)
    outcome.prepared += sum(each.guesses for each in conversation.turns)
    outcome.used += sum(each.guess_used for each in conversation.turns)
    outcome.tools += len(used)
    gone = {number for number, task in enumerate(model.tasks) if task in dropped}
    outcome.tools_of_dropped += len(gone.intersection(used))

    def check(holds: bool, what: str) -> None:
        if not holds:
            outcome.faults.append(f"seed {seed}, {' '.join(steps)!r}: {what}")

    check(not gone.intersection(used), "a tool ran for a dropped guess")
    check(all(count == 1 for count in Counter(used).values()), "a tool ran twice")
    ours = [entry for entry in conversation.history.entries if entry.ours]
    said = " ".join(
        [
            *(each.content for each in conversation.messages() if each.role == "assistant"),
            *(f"{each.heard} {each.unsaid}" for each in conversation.turns),
            conversation.unsaid,
            *(each.text or "" for each in kept.records),
            *(each.written for each in ours),
        ]
    ).split()
    for number, word in model.written:
        check(number not in gone or word not in said, f"{word} of a dropped guess is left")
        told = "".join(entry.written for entry in ours) + "".join(
            each.unsaid for each in conversation.turns
        )
        check(number in gone or word in told, f"{word} is lost")
    heard = Counter(" ".join(each.heard for each in conversation.turns).split())
    for _, word in model.written:
        check(heard[word] <= 1, f"{word} was said twice")
    asked = [same_words(messages[-1].content) for messages in model.messages]
    for each in conversation.turns:
        words = same_words(each.text)
        check(not each.guess_used or any(one.endswith(words) for one in asked), "other words")
    texts = [each.text for each in conversation.history.entries if not each.ours]
    texts = [each for each in texts if not each.startswith("[")]
    check(Counter(texts) == Counter(caller.turns), f"the caller said {caller.turns}, not {texts}")
    check(all(entry.heard is not None for entry in ours), "an entry is open")
    check(all(each.done for each in conversation.turns), "a record is open")
    check(model.open == 0, "a request is open")
    check(model.most_open <= 1, "two requests were open")
    check(sum(each.requests for each in conversation.turns) <= len(model.messages), "requests")
    check(not broken, f"the loop: {broken}")
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    check(not left, f"tasks are left: {left}")


def runs(seeds: Sequence[int]) -> Outcome:
    """Random calls by their seeds."""
    outcome = Outcome()
    for seed in seeds:
        asyncio.run(run(seed, outcome))
    gc.collect()
    return outcome


def test_whatever_happens_a_dropped_guess_leaves_nothing_and_nothing_is_said_twice() -> None:
    outcome = runs(range(RUNS))
    assert outcome.faults == []
    assert outcome.tools_of_dropped == 0
    # The runs reach what they are about.
    assert outcome.dropped > RUNS / 10
    assert outcome.used > RUNS / 10
    assert outcome.tools > RUNS / 20
