from __future__ import annotations

import asyncio
from typing import cast

import pytest

from qwen3tts_pacer.memory import ContextSent
from qwen3tts_pacer.slot import Frame
from qwen3tts_phone.audio.rtp_sink import RtpSink
from qwen3tts_phone.media.control import LegClosed
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.types import Dropped, DroppedContext
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


class EndingLeg(FakeLeg):
    """A leg that may be over at any time, and of which the test says what it has sent."""

    error = LegClosed("The leg was closed.")

    def goes_out(self, context: int, frames: int) -> None:
        end = 480 * frames
        self._known[context] = ContextSent(context, frames, end - 480, end, 10**9, 2 * 10**9)

    def interrupt(self) -> int:
        self._dropped.append(Dropped(0, 1.22, ()))
        return 0

    def finish(self, context: int) -> None: ...

    def position(self, context: int) -> int:
        sent = self.sent(context)
        return sent.end if sent is not None else 0

    def check(self) -> None:
        if self.over:
            raise self.error

    async def dropped(self, epoch: int) -> Dropped:
        """The facts come, or the leg is over before."""
        await self.applied.wait()
        self.check()
        return self._dropped[epoch]


def written(leg: FakeLeg, *contexts: int) -> RtpSink:
    """A sink with fifty frames of each context in the ring."""
    sink = RtpSink(cast(MediaLeg, leg), 20)
    for number in contexts:
        sink.begin(number, "")
        sink.write([Frame(b"x", None, None, number, 480 * n, 480 * (n + 1)) for n in range(50)])
    return sink


async def test_what_had_gone_out_is_known_when_the_leg_was_over_before_the_interruption() -> None:
    leg = EndingLeg()
    sink = written(leg, 1, 2)
    leg.goes_out(1, 10)
    leg.over = True
    sink.interrupt()
    played = (await sink.interrupted()).played
    assert {context: each.position for context, each in played.items()} == {1: 4800, 2: 0}
    sink.gone()
    played = (await sink.interrupted()).played
    assert {context: each.position for context, each in played.items()} == {1: 4800, 2: 0}


async def test_what_had_gone_out_is_known_when_the_leg_ends_before_the_facts_come() -> None:
    leg = EndingLeg()
    sink = written(leg, 1)
    leg.goes_out(1, 10)
    sink.interrupt()
    asking = asyncio.create_task(sink.interrupted())
    await settle()
    leg.goes_out(1, 11)  # the slot that was under way
    leg.over = True
    leg.applied.set()
    sink.gone()
    with pytest.raises(LegClosed):
        await asking
    assert sink.position(1) == 5280
    assert (await sink.interrupted()).played[1].position == 5280


async def test_what_had_ended_before_the_interruption_is_among_the_facts() -> None:
    leg = EndingLeg()
    leg.applied.set()
    sink = written(leg, 1)
    sink.finish(1)
    leg.goes_out(1, 50)
    sink.context_played(1)
    sink.interrupt()
    assert (await sink.interrupted()).played[1].position == 24000
    assert (await sink.drained(1)).position == 24000


async def test_nothing_is_drained_that_the_end_of_the_leg_has_cut_off() -> None:
    leg = EndingLeg()
    sink = written(leg, 1)
    sink.finish(1)
    leg.goes_out(1, 10)
    waiting = asyncio.create_task(sink.drained(1))
    await settle()
    leg.over = True
    sink.gone()
    with pytest.raises(LegClosed):
        await waiting
    with pytest.raises(LegClosed):
        await sink.drained(1)  # whoever asks after it, too
    assert sink.position(1) == 4800
