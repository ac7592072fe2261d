"""Streams while this process cannot pace another one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import httpx
import pytest

from qwen3tts_phone.media.admission import BAD_REPORTS, GOOD_REPORTS, LONG_REPORTS
from qwen3tts_phone.streams.admission import MIN_CALLS, REPORT_S, StreamAdmission, watch_event_loop
from qwen3tts_phone.streams.carriers.adapter import Handshake, Refused
from qwen3tts_phone.streams.server import Streams
from qwen3tts_phone.streams.settings import StreamSettings
from qwen3tts_speech.link import SpeechLink
from tests.fakes import FakeClock, settle

CALLER = Handshake(peer="192.0.2.1")


class Loop:
    """A watched event loop, and a gate that has let calls in."""

    def __init__(self, calls: int) -> None:
        self.clock = FakeClock()
        self.gate = StreamAdmission(StreamSettings())
        for _ in range(calls):
            self.gate.enter(CALLER.peer)
        self.watching = asyncio.create_task(watch_event_loop(self.gate, self.clock))

    async def reports(self, count: int, *, stall_s: float = 0.0) -> None:
        """Let so many pass, with a stall in every tenth of a second."""
        until = self.clock.now() + count * REPORT_S
        while self.clock.now() < until:
            await self.clock.advance(0.1)
            self.clock.jump(stall_s)
            await self.clock.advance(0.0)


@pytest.fixture
async def made() -> AsyncIterator[list[Loop]]:
    loops: list[Loop] = []
    yield loops
    for each in loops:
        each.watching.cancel()
    await asyncio.gather(*(each.watching for each in loops), return_exceptions=True)


async def test_a_loop_that_stalls_lets_no_further_stream_in_until_it_is_calm(
    made: list[Loop], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    loop = Loop(MIN_CALLS)
    made.append(loop)
    await loop.reports(1)
    loop.gate.check(CALLER)
    await loop.reports(2 * BAD_REPORTS, stall_s=0.15)
    with pytest.raises(Refused, match="cannot pace") as refused:
        loop.gate.check(CALLER)
    assert refused.value.status == 503
    await loop.reports(GOOD_REPORTS + LONG_REPORTS)
    loop.gate.check(CALLER)
    said = [each.getMessage() for each in caplog.records if each.name.endswith("streams.admission")]
    assert [each.partition(":")[0] for each in said] == [
        "no further stream is taken",
        "streams are taken again",
    ]


async def test_one_short_stall_a_second_closes_nothing(made: list[Loop]) -> None:
    loop = Loop(MIN_CALLS)
    made.append(loop)
    for _ in range(10 * BAD_REPORTS):
        loop.clock.jump(0.06)
        await loop.clock.advance(0.0)
        for _ in range(10):
            await loop.clock.advance(0.094)
    loop.gate.check(CALLER)


@pytest.mark.parametrize("stall_s", [0.0, 0.015])
async def test_a_loop_that_is_late_by_less_than_a_frame_lets_streams_in(
    made: list[Loop], stall_s: float
) -> None:
    loop = Loop(MIN_CALLS)
    made.append(loop)
    await loop.reports(2 * BAD_REPORTS, stall_s=stall_s)
    loop.gate.check(CALLER)


async def test_few_streams_are_let_in_whatever_else_this_process_does(made: list[Loop]) -> None:
    loop = Loop(MIN_CALLS - 1)
    made.append(loop)
    await loop.reports(2 * BAD_REPORTS, stall_s=0.15)
    loop.gate.check(CALLER)


@pytest.mark.network
async def test_a_carriers_webhook_gets_503_and_retry_after_meanwhile() -> None:
    clock = FakeClock()
    settings = StreamSettings(kinds=("twilio",), insecure=True)
    async with (
        Streams(settings, link=SpeechLink("ws://127.0.0.1:1/v1/speech"), clock=clock) as streams,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{streams.port}") as http,
    ):
        for _ in range(MIN_CALLS):
            streams._admission.enter(CALLER.peer)
        for _ in range(40 * BAD_REPORTS):
            clock.jump(0.15)
            await clock.advance(0.0)
        await settle()
        answer = await http.get("/twilio/answer")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")
