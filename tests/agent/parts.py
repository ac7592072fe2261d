"""A call that does what a test says: its voice says each word in 100 ms, its caller is scripted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from qwen3tts_agent.agent import Agent
from qwen3tts_agent.conversation import Conversation
from qwen3tts_agent.turn_record import TurnRecord
from qwen3tts_codecs.g711 import PCMU
from qwen3tts_pacer.slot import Frame
from qwen3tts_phone.call.call import Call
from qwen3tts_phone.call.core import CallCore, CallVoice
from qwen3tts_phone.detection.events import (
    ListenEvent,
    OnsetHeard,
    SpeechPaused,
    SpeechResumed,
    Turn,
    TurnEnded,
    WordsGuessed,
)
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.facts import CallFacts, EndFacts
from qwen3tts_phone.records.store import CallStore
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_speech.link import SpeechLink, VoiceOptions
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.heard import Word
from tests.fakes import FakeClock, settle
from tests.speech.fakes import FakeClient, FakeContext, FakeSink

WORD_MS = 100
FRAMES_A_WORD = 5


class WordContext(FakeContext):
    """Says each word as soon as it is whole."""

    def __init__(self) -> None:
        super().__init__()
        self._said = 0

    async def append(self, text: str) -> None:
        await super().append(text)
        self._say()

    async def end(self) -> None:
        await super().end()
        self._say()
        self.done()

    def _say(self) -> None:
        for match in re.finditer(r"\S+", self.text):
            whole = match.end() < len(self.text) or self.ended
            if match.start() < self._said or not whole:
                continue
            at = len(self.words) * WORD_MS * 24
            self.words.append(
                Word(match.group(), at, at + WORD_MS * 24, match.start(), match.end())
            )
            self._said = match.end()
            self.sound(WORD_MS)


class WordClient(FakeClient):
    """A speech server; it fails as often as ``failures`` says."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[SpeechError] = []

    async def open(self, **options: Any) -> FakeContext:
        if self.failures:
            raise self.failures.pop(0)
        self.options.append(options)
        context = WordContext()
        context.start()
        self.contexts.append(context)
        return context


class WordSink(FakeSink):
    """Plays immediately, or as many words as the test says; speaks on after an interruption."""

    at_once = True
    last_at: float | None = None

    def begin(self, context: int, key: str) -> None:
        super().begin(context, key)
        self._silent = False

    def write(self, frames: Any) -> int:
        count = super().write(frames)
        if self.at_once and count:
            task = asyncio.get_running_loop().create_task(self.play_all())
            self._playing = task
        return count

    async def play_words(self, words: int) -> None:
        """So many more words are heard."""
        await self.play(words * FRAMES_A_WORD)
        await settle(30)

    def tap(self, tap: object) -> None: ...
    def untap(self, tap: object) -> None: ...
    def follow(self) -> None: ...
    def gone(self) -> None: ...

    frames: list[Frame]


class ScriptedListening:
    """The caller's turns, as a test gives them."""

    def __init__(self, settings: ListenSettings | None) -> None:
        self.settings = settings or ListenSettings()
        self.on_event: Any = None
        self.caller_speaking = False
        self.overlaps = SimpleNamespace(more_follows=lambda: False)
        self.error: SpeechError | None = None
        self.expected: list[str] = []
        self._turns: asyncio.Queue[Turn | None] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[Turn]:
        while (turn := await self._turns.get()) is not None:
            yield turn
        if self.error is not None:
            raise self.error

    async def aclose(self) -> None: ...

    def end(self) -> None:
        self._turns.put_nowait(None)

    def put(self, turn: Turn) -> None:
        self._turns.put_nowait(turn)

    def expect(self, said: str) -> None:
        self.expected.append(said)

    def tell(self, event: ListenEvent) -> None:
        if self.on_event is not None:
            self.on_event(event)


class ScriptedCall(Call):
    """One whose line is a sink of the test's."""

    def __init__(self, clock: FakeClock, direction: str = "in") -> None:
        self.time = clock
        self.client = WordClient()
        self.sink = WordSink()

        async def connect(url: str) -> WordClient:
            return self.client

        link = SpeechLink("ws://test", connect=cast(Any, connect))
        facts = CallFacts(call_id="call-1", direction=cast(Any, direction))
        files = CallStore(RecordSettings(), None, clock)
        super().__init__(CallCore(facts, clock, CallVoice(link, VoiceOptions()), files))
        self.listening = ScriptedListening(None)
        self.transferred: list[str] = []
        self.transfer_error: SpeechError | None = None
        self.hung_up = 0

    async def answer(self, headers: Mapping[str, str] | None = None) -> None:
        self._core.begin(PCMU, cast(Any, self.sink))
        self._core.answered()

    async def hangup(self, headers: Mapping[str, str] | None = None) -> None:
        self.hung_up += 1
        await self.over_now("local", "we hung up")

    async def over_now(self, by: str = "remote", cause: str = "the caller hung up") -> None:
        if not self.over:
            await self._core.finish(EndFacts(by=cast(Any, by)), cause)
        self.listening.end()

    async def transfer(self, target: str, *, headers: dict[str, str] | None = None) -> None:
        if self.transfer_error is not None:
            raise self.transfer_error
        self.transferred.append(target)
        await self.over_now("local", "handed on")

    def hear(self, settings: Any = None, recogniser: Any = None, **_: Any) -> Any:
        self.listening.settings = settings or ListenSettings()
        return self.listening

    def hold(self, held: bool = True) -> Any:
        from qwen3tts_phone.call.events import CallHeld, CallResumed

        kind = CallHeld if held else CallResumed
        self._core.publish(kind(self.time.now()))

    # --- the caller

    def onset(self) -> None:
        """The caller begins to speak, and where we speak, we fall silent."""
        now = self.time.now()
        self.listening.caller_speaking = True
        if self.speaking and self.listening.settings.barge_in:
            self._stopped = tuple(self.interrupt())
        self._onset_at = now
        self.listening.tell(OnsetHeard(now, now))

    _onset_at = 0.0
    _stopped: tuple[Any, ...] = ()

    def decided(self, why: str = "pause") -> None:
        """The caller's turn is over, and its words are not there yet."""
        now = self.time.now()
        self.listening.caller_speaking = False
        cut_in = bool(self._stopped)
        self.listening.tell(TurnEnded(now, now - 0.9, now - 0.6, cast(Any, why), cut_in, 0.3))

    def pauses(self, guess: str, speech_s: float = 1.0) -> None:
        """The caller pauses in the turn, and what they have said so far is understood."""
        now = self.time.now()
        self.listening.tell(SpeechPaused(now, self._onset_at + speech_s))
        self.guesses(guess, speech_s)

    def guesses(self, guess: str, speech_s: float = 1.0) -> None:
        """This is understood in the pause."""
        self.listening.tell(WordsGuessed(self.time.now(), guess, speech_s))

    def goes_on(self) -> None:
        """The caller says more in the same turn."""
        self.listening.tell(SpeechResumed(self.time.now()))

    def words(self, text: str = "", **more: Any) -> None:
        """They are there now."""
        now = self.time.now()
        stopped, self._stopped = self._stopped, ()
        self.listening.put(
            Turn(
                text=text,
                **{
                    "began_at": now - 0.9,
                    "ended_at": now - 0.6,
                    "decided_at": now,
                    "transcribed_at": now,
                    "why": "pause",
                    "barge_in": bool(stopped),
                    "interrupted": stopped,
                    **more,
                },
            )
        )

    async def says(self, text: str = "", **more: Any) -> None:
        """The caller says something from beginning to end."""
        self.onset()
        await settle(20)
        self.decided(more.get("why", "pause"))
        self.words(text, **more)
        await settle(60)


async def until(condition: Callable[[], object]) -> None:
    """Poll until a condition holds, for what comes over a socket."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


class Turns:
    """Turns that an agent reports, for tests that wait for one."""

    def __init__(self) -> None:
        self.records: list[TurnRecord] = []
        self._came = asyncio.Event()

    def __call__(self, conversation: Conversation, record: TurnRecord) -> None:
        assert record.done
        self.records.append(record)
        self._came.set()

    async def of(self, number: int) -> TurnRecord:
        """The turn with that number, from 1, when all is known of it."""
        async with asyncio.timeout(20):
            while True:
                for record in self.records:
                    if record.number == number:
                        return record
                self._came.clear()
                await self._came.wait()


def agent_of(llm: Any, **more: Any) -> tuple[Agent, Turns]:
    """An agent without a recogniser, and its turns."""
    turns = Turns()
    return Agent(llm, **{"stt": None, "on_turn": turns, **more}), turns


@dataclass
class Session:
    """An agent on a scripted call."""

    call: ScriptedCall
    clock: FakeClock
    turns: Turns
    task: asyncio.Task[Conversation]
    conversation: Conversation

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(each.role, each.content) for each in self.conversation.messages()]

    async def end(self) -> Conversation:
        await self.call.over_now()
        async with asyncio.timeout(20):
            return await self.task


async def begin(llm: Any, call: ScriptedCall | None = None, **more: Any) -> Session:
    """Let an agent answer a call."""
    call = call or ScriptedCall(FakeClock())
    agent, turns = agent_of(llm, **more)
    task = asyncio.create_task(agent.answer(call))
    while not (task.done() or call.id in agent.conversations):
        await settle(1)
    if task.done():
        task.result()
    conversation = agent.conversations[call.id]
    await settle(60)
    return Session(call, call.time, turns, task, conversation)
