"""The lines that calls come by keep the garbage collector away from what is loaded."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast

import pytest

from qwen3tts_phone.phone import Phone
from qwen3tts_phone.softphone.services import SoftphoneServices
from qwen3tts_phone.softphone.settings import SoftphoneSettings
from qwen3tts_phone.softphone.webrtc.call import WebCall
from qwen3tts_phone.streams.server import Streams
from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.process import DUE, heap
from tests.fakes import FakeClock, settle
from tests.softphone.served import served
from tests.wire.test_process import Ring

pytestmark = pytest.mark.network

NO_SERVER = "ws://127.0.0.1:1/v1/speech"


@asynccontextmanager
async def phone(freeze: bool) -> AsyncIterator[None]:
    async with Phone(link=SpeechLink(NO_SERVER), freeze_heap=freeze):
        yield


@asynccontextmanager
async def streams(freeze: bool) -> AsyncIterator[None]:
    link = SpeechLink(NO_SERVER)
    async with Streams(link=link, kinds=("audiosocket",), port=0, freeze_heap=freeze):
        yield


@asynccontextmanager
async def softphone(freeze: bool) -> AsyncIterator[None]:
    async with served(freeze_heap=freeze):
        yield


@pytest.fixture(autouse=True)
def collections(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    counts = {"collections": 0}
    monkeypatch.setattr(gc, "get_stats", lambda: [{}, {}, counts])
    return counts


@pytest.mark.parametrize("line", [phone, streams, softphone])
async def test_a_line_holds_the_heap_while_it_is_open_unless_its_settings_forbid_it(
    line: Callable[[bool], AbstractAsyncContextManager[None]],
) -> None:
    holders = []
    for freeze in (True, False):
        before = heap.holders
        async with line(freeze):
            holders.append(heap.holders - before)
        assert heap.holders == before
    # The softphone's test has a speech server in this process, which holds it, too.
    assert holders[0] - holders[1] == 1


async def test_a_phone_sweeps_the_heap_when_its_last_call_has_ended(
    collections: dict[str, int],
) -> None:
    link, ring = SpeechLink(NO_SERVER), Ring()
    gone = weakref.ref(ring)
    async with (
        asyncio.timeout(20),
        Phone(link=link) as agent,
        Phone(link=link) as caller,
    ):
        del ring
        collections["collections"] += DUE
        first, second = [await caller.dial(agent.uri) for _ in range(2)]
        for _ in range(2):
            await (await anext(agent.incoming())).answer()
        await first.answered()
        await second.answered()
        await first.hangup()
        await first.ended()
        assert gone() is not None
        await second.hangup()
        while agent.calls or caller.calls:
            await settle()
        assert gone() is None


async def test_streams_sweep_the_heap_when_their_last_connection_has_ended(
    collections: dict[str, int],
) -> None:
    ring = Ring()
    gone = weakref.ref(ring)
    link = SpeechLink(NO_SERVER)
    async with (
        asyncio.timeout(20),
        Streams(link=link, kinds=("audiosocket",), port=0) as streams,
    ):
        del ring
        collections["collections"] += DUE
        _, writer = await asyncio.open_connection("127.0.0.1", streams.audiosocket_port)
        while not streams.calls:
            await settle()
        assert gone() is not None
        writer.close()
        await streams.drained()
        assert gone() is None


async def test_a_softphone_sweeps_the_heap_when_its_last_page_has_hung_up(
    collections: dict[str, int],
) -> None:
    desk = SoftphoneServices(SoftphoneSettings(), FakeClock(), None, None, None)
    calls = [cast(WebCall, object()) for _ in range(2)]
    desk.calls.update(calls)
    ring = Ring()
    gone = weakref.ref(ring)
    swept = []
    with heap.held_by(lambda: bool(desk.calls)):
        del ring
        collections["collections"] += DUE
        for call in calls:
            desk.forget(call)
            swept.append(gone() is None)
    assert swept == [False, True]
