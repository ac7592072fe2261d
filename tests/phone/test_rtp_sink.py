from __future__ import annotations

import asyncio
from typing import cast

from qwen3tts_pacer.frame import Frame
from qwen3tts_pacer.memory import ContextSent
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.types import Dropped, DroppedContext
from qwen3tts_phone.rtp_sink import RtpSink
from tests.fakes import settle


class FakeLeg:
    """A leg that has sent ten frames of each context when it is interrupted."""

    over = False
    remote = object()

    def __init__(self) -> None:
        self._open: list[int] = []
        self._dropped: list[Dropped] = []
        self._known: dict[int, ContextSent] = {}
        self.applied = asyncio.Event()

    def begin(self, context: int, *, key: str) -> None:
        self._open.append(context)

    def write(self, frames: list[Frame]) -> int:
        return len(frames)

    def interrupt(self) -> int:
        contexts = tuple(DroppedContext(each, 5, 2400, 4800) for each in self._open)
        for each in self._open:
            self._known[each] = ContextSent(each, 10, 4320, 4800, 1_000_000_000, 1_200_000_000)
        self._dropped.append(Dropped(len(self._dropped), 1.22, contexts))
        self._open = []
        return len(self._dropped) - 1

    async def dropped(self, epoch: int) -> Dropped:
        await self.applied.wait()
        if epoch < len(self._dropped) - 64:
            raise ValueError("long ago")
        return self._dropped[epoch]

    def sent(self, context: int) -> ContextSent | None:
        return self._known.get(context)


async def test_an_interruption_of_an_interruption_forgets_nothing_that_was_heard() -> None:
    leg = FakeLeg()
    sink = RtpSink(cast(MediaLeg, leg), 20)
    sink.begin(1, "")
    sink.interrupt()
    first = asyncio.create_task(sink.interrupted())
    sink.begin(2, "")
    sink.interrupt()
    sink.interrupt()
    await settle()
    second = asyncio.create_task(sink.interrupted())
    leg.applied.set()
    for interruption in (await first, await second):
        assert {context: each.position for context, each in interruption.played.items()} == {
            1: 4800,
            2: 4800,
        }
    assert (await sink.interrupted()).played[1].dropped == 5


async def test_many_interruptions_of_nothing_leave_nothing_behind() -> None:
    leg = FakeLeg()
    leg.applied.set()
    sink = RtpSink(cast(MediaLeg, leg), 20)
    for _ in range(1000):
        sink.interrupt()
    interruption = await sink.interrupted()
    assert interruption.silent_at == 1.22
    assert not interruption.played
