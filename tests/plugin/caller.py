"""A caller between a scripted host and a fake server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from mr_qwen3tts.conversation import Conversation
from mr_qwen3tts.reply import Reply
from mr_qwen3tts.settings import Settings
from qwen3tts_codecs.g711 import PCMU
from qwen3tts_pacer.slot import Frame
from qwen3tts_speech.line import Speaker, Utterance, VoiceOptions
from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.errors import ConnectionLost, SpeechError
from tests.fakes import FakeClock, settle
from tests.speech.fakes import FakeClient, FakeContext, FakeSink

SETTINGS = Settings(return_ahead_ms=300)
TEXT = "Good morning. How are you today?"


class Sink(FakeSink):
    """Takes sound again after an interruption; ``late`` counts what came in between."""

    late = 0

    def write(self, frames: Sequence[Frame]) -> int:
        self.late += len(frames) if self._silent else 0
        return super().write(frames)

    def begin(self, context: int, key: str) -> None:
        super().begin(context, key)
        self._silent = False


async def choose(client: SpeechClient) -> VoiceOptions:
    return VoiceOptions(voice="en")


class Caller:
    """A conversation between a scripted host and a fake server."""

    def __init__(self) -> None:
        self.client = FakeClient()
        self.sink = Sink()
        self.clock = FakeClock()
        self.halted = False
        self.counts: list[str] = []
        self.held: list[bool] = []
        self.waits = 0
        self.ended: list[tuple[str, str]] = []
        self.context = SimpleNamespace(log_id="call", data={})

        async def connect(url: str) -> FakeClient:
            return self.client

        speaker = Speaker(
            SpeechLink("ws://test", connect=cast(Any, connect)), self.sink, PCMU, clock=self.clock
        )

        async def halted(context: Any) -> bool:
            return self.halted

        def ended(reply: Reply, utterance: Utterance, error: SpeechError | None) -> None:
            outcome = utterance.outcome()
            how = error.code if error else "interrupted" if outcome.interrupted else "said"
            self.ended.append((utterance.text, how))

        self.conversation = Conversation(
            "call",
            clock=self.clock,
            speaker=lambda: speaker,
            halted=halted,
            ended=ended,
            count=self.counts.append,
            hold_open=self.held.append,
            waiting=self._count_wait,
        )

    def _count_wait(self) -> None:
        self.waits += 1

    async def partial(self, cmd_id: str, words: str, task: Any = None) -> None:
        await self.conversation.partial(cmd_id, words, self.context, choose, SETTINGS, task)
        await settle(20)

    def speak(self, cmd_id: str | None, words: str, task: Any = None) -> asyncio.Task[bool]:
        return asyncio.create_task(
            self.conversation.speak(cmd_id, words, self.context, choose, SETTINGS, task)
        )

    async def server(self, number: int = 1) -> FakeContext:
        await settle(20)
        return self.client.contexts[number - 1]

    @property
    def texts(self) -> list[str]:
        return [each.text for each in self.client.contexts]

    async def say(self, cmd_id: str, words: str) -> None:
        """A whole reply, from its first partial to its end."""
        await self.partial(cmd_id, words)
        speaking = self.speak(cmd_id, words)
        context = await self.server(len(self.client.contexts))
        context.sound(40)
        context.done()
        await settle(20)
        await self.sink.play_all()
        assert await speaking
        await settle(20)


async def stopped_clean(caller: Caller) -> None:
    """Nothing more is handed over, the server knows, and the next reply is as new."""
    count = len(caller.sink.frames)
    for context in caller.client.contexts:
        assert context.cancelled_at
        context.sound(500)
    await caller.clock.advance(0.1)
    assert len(caller.sink.frames) <= count
    assert not caller.sink.late
    assert [how for _, how in caller.ended] == ["interrupted"] * len(caller.client.contexts)
    caller.ended.clear()
    caller.context.data.clear()
    await caller.say("next", "It is fine now.")
    assert caller.ended == [("It is fine now.", "said")]


async def speaking_caller() -> tuple[Caller, asyncio.Task[bool]]:
    caller = Caller()
    speaking = caller.speak("a", TEXT)
    context = await caller.server()
    context.sound(2000)
    await settle(20)
    await caller.sink.play(10)
    return caller, speaking


def lost() -> ConnectionLost:
    return ConnectionLost("The speech server has not answered for 4 s.")


async def nearly_heard_caller() -> Caller:
    """One whose command has returned, with 280 ms unheard."""
    caller = Caller()
    speaking = caller.speak("a", TEXT)
    context = await caller.server()
    context.sound(280)
    context.done()
    await settle(20)
    assert await speaking
    return caller
