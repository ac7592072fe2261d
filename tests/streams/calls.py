"""A stream call without sockets: a fake wire, a fake clock, a fake speech server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from qwen3tts_phone.call.call import CallEvent
from qwen3tts_phone.call.core import CallCore, CallVoice
from qwen3tts_phone.facts import CallFacts
from qwen3tts_phone.records.store import CallStore
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.streams.call import StreamCall
from qwen3tts_phone.streams.carriers.adapter import Message, StreamAdapter, StreamKind
from qwen3tts_phone.streams.settings import StreamSettings
from qwen3tts_speech.link import SpeechLink, VoiceOptions
from tests.fakes import FakeClock, settle
from tests.speech.fakes import FakeClient, FakeContext
from tests.streams.far_end import FakeWire, PlainAdapter

LOUD = bytes([0x00]) * 160
"""20 ms of PCMU that can be heard."""


def fake_link(client: FakeClient) -> SpeechLink:
    async def connect(url: str) -> FakeClient:
        return client

    return SpeechLink("ws://test", connect=cast(Any, connect))


class Streamed:
    """One call, its far end and what happened on it."""

    def __init__(
        self, call: StreamCall, wire: FakeWire, clock: FakeClock, client: FakeClient
    ) -> None:
        self.call, self.wire, self.clock, self.client = call, wire, clock, client
        self.events: list[CallEvent] = []
        self.running = asyncio.create_task(call.run())
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async for event in self.call.events:
            self.events.append(event)

    async def comes(self, *messages: Message) -> None:
        self.wire.comes(*messages)
        await settle(20)

    async def answered(self) -> None:
        await self.comes("start call-7")
        await self.call.answer()
        await settle()

    async def says(self, ms: int, number: int = 1) -> FakeContext:
        """Let the speech server synthesise this part of the utterance."""
        await settle(20)
        context = self.client.contexts[number - 1]
        context.start()
        context.sound(ms)
        context.done()
        await settle(20)
        return context

    async def over(self) -> str:
        """Its end, however long it takes on the fake clock."""
        ended = asyncio.ensure_future(self.call.ended())
        for _ in range(100):
            if ended.done():
                break
            await self.clock.advance(0.1)
            await asyncio.sleep(0.001)  # threads of the record's file
        await self.running
        return await ended

    @property
    def record(self) -> dict[str, Any]:
        assert self.call.detail_record is not None
        return dict(self.call.detail_record.values)

    @property
    def kinds(self) -> list[str]:
        return [type(each).__name__ for each in self.events]


@asynccontextmanager
async def streamed(
    adapter: StreamAdapter | None = None,
    *,
    kind: StreamKind | None = None,
    record_path: Path | None = None,
    **settings: Any,
) -> AsyncIterator[Streamed]:
    clock = FakeClock()
    wire = FakeWire(clock)
    client = FakeClient()
    files = CallStore(RecordSettings(), record_path, clock)
    facts = CallFacts(call_id="none yet", direction="in", transport="ws", started_at=clock.now())
    body = CallCore(facts, clock, CallVoice(fake_link(client), VoiceOptions()), files)
    call = StreamCall(body, wire, adapter or PlainAdapter(), StreamSettings(**settings), kind)
    streamed = Streamed(call, wire, clock, client)
    await settle()
    yield streamed
    if not streamed.running.done():
        wire.breaks()
        await streamed.over()
    await files.close()
