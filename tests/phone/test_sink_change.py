"""The codec changes while frames wait in the ring: all go out in the other one, in order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from qwen3tts_codecs.g711 import PCMA, PCMU
from qwen3tts_codecs.g722 import G722
from qwen3tts_pacer.memory import ContextSent
from qwen3tts_pacer.slot import Frame
from qwen3tts_phone.audio.rtp_sink import RtpSink
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.types import Dropped, DroppedContext, RemoteMedia
from tests.fakes import settle

NEW = RemoteMedia("127.0.0.1", 4000, 9, "G722", silence="ff" * 160)
OLD = RemoteMedia("127.0.0.1", 4000)


@dataclass
class Ring:
    """A leg whose ring holds what it is given until the test plays it."""

    translates: bool = False
    space: int = 1000
    over: bool = False
    remote: RemoteMedia = OLD
    begun: list[int] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    known: dict[int, ContextSent] = field(default_factory=dict)
    facts: list[Dropped] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self, context: int, *, key: str) -> None:
        assert not self.begun or context > self.begun[-1]
        self.begun.append(context)

    def write(self, frames: list[Frame]) -> int:
        accepted = frames[: self.space - len(self.frames)]
        assert {frame.context for frame in accepted} <= {self.begun[-1]}
        self.frames += accepted
        return len(accepted)

    async def room(self) -> None:
        await asyncio.sleep(0)

    def finish(self, context: int) -> None:
        self.finished.append(context)

    def play(self, count: int) -> None:
        """So many frames go out."""
        for frame in self.frames[:count]:
            before = self.known.get(frame.context)
            sent = (before.frames if before else 0) + 1
            self.known[frame.context] = ContextSent(
                frame.context, sent, frame.start, frame.end, 10**9, 10**9 + sent * 20_000_000
            )
        del self.frames[:count]

    def interrupt(self) -> int:
        counts: dict[int, int] = dict.fromkeys(self.begun, 0)
        for frame in self.frames:
            counts[frame.context] += 1
        dropped = tuple(DroppedContext(number, count, 0, 0) for number, count in counts.items())
        self.facts.append(Dropped(len(self.facts), 1.0, dropped))
        self.frames.clear()
        return len(self.facts) - 1

    async def dropped(self, epoch: int) -> Dropped:
        return self.facts[epoch]

    async def update(self, remote: RemoteMedia) -> int | None:
        await self.gate.wait()
        self.remote = remote
        return None if self.translates else self.interrupt()

    def sent(self, context: int) -> ContextSent | None:
        return self.known.get(context)

    def position(self, context: int) -> int:
        return self.known[context].end if context in self.known else 0

    def check(self) -> None:
        if self.over:
            raise CallError("The leg was closed.")


def frames(context: int, count: int, first: int = 0) -> list[Frame]:
    code = bytes([0x80 + context]) * 160
    return [
        Frame(code, code, code, context, 480 * index, 480 * (index + 1))
        for index in range(first, first + count)
    ]


def sink_on(ring: Ring) -> RtpSink:
    return RtpSink(cast(MediaLeg, ring), 20, payload=PCMU)


async def change(sink: RtpSink, ring: Ring, told: list[str] | None = None) -> None:
    ring.gate.set()
    resumed = asyncio.Event()
    seen = [] if told is None else told
    await sink.change(NEW, G722, lambda: seen.append("switched"), resumed.set)
    async with asyncio.timeout(5):
        await resumed.wait()
    seen.append("resumed")


async def test_what_waits_goes_out_in_the_new_codec_at_its_place() -> None:
    ring = Ring()
    sink = sink_on(ring)
    sink.begin(1, "")
    sink.write(frames(1, 30))
    sink.finish(1)
    sink.begin(2, "")
    sink.write(frames(2, 5))
    ring.play(10)
    told: list[str] = []
    await change(sink, ring, told)
    assert told == ["switched", "resumed"]
    assert ring.begun == [1, 2, 3, 4], "each goes on as another context of the leg"
    assert [(each.start, each.end) for each in ring.frames if each.context == 3] == [
        (480 * index, 480 * (index + 1)) for index in range(10, 30)
    ]
    assert [each.start // 480 for each in ring.frames if each.context == 4] == [*range(5)]
    assert ring.finished == [1, 3], "the second one goes on being written"
    assert sink.write(frames(2, 3, first=5)) == 3
    sink.finish(2)
    ring.play(28)
    sink.context_played(3)
    sink.context_played(4)
    for context, end in ((1, 30), (2, 8)):
        played = await sink.drained(context)
        assert played.position == 480 * end
        assert played.first_at == 1.0
        assert played.dropped == 0


async def test_nothing_is_written_while_the_codec_changes() -> None:
    ring = Ring()
    sink = sink_on(ring)
    sink.begin(1, "")
    sink.write(frames(1, 10))
    changing = asyncio.create_task(sink.change(NEW, G722, lambda: None, lambda: None))
    await settle()
    waiting = asyncio.create_task(sink.room())
    await settle()
    assert sink.write(frames(1, 1, first=10)) == 0
    assert not waiting.done()
    ring.gate.set()
    await changing
    async with asyncio.timeout(5):
        await waiting
    assert sink.write(frames(1, 1, first=10)) == 1
    assert [each.start // 480 for each in ring.frames] == [*range(11)]


async def test_the_two_laws_are_left_to_the_ring() -> None:
    ring = Ring(translates=True)
    sink = sink_on(ring)
    sink.begin(1, "")
    sink.write(frames(1, 10))
    tapped: list[bytes] = []
    sink.tap(lambda payload, at: tapped.append(payload))
    ring.gate.set()
    resumed = asyncio.Event()
    await sink.change(OLD, PCMA, lambda: None, resumed.set)
    await resumed.wait()
    assert ring.begun == [1]
    ring.play(1)
    sink.follow()
    assert tapped == [PCMA.encode(PCMU.decode(frames(1, 1)[0].payload))]


async def test_a_ring_that_is_too_small_takes_the_rest_later() -> None:
    ring = Ring(space=12)
    sink = sink_on(ring)
    sink.begin(1, "")
    assert sink.write(frames(1, 12)) == 12
    sink.finish(1)
    ring.gate.set()
    ring.space = 5
    resumed = asyncio.Event()
    await sink.change(NEW, G722, lambda: None, resumed.set)
    out = []
    async with asyncio.timeout(5):
        while not resumed.is_set():
            out += [each.start // 480 for each in ring.frames]
            ring.play(len(ring.frames))
            await asyncio.sleep(0)
    assert out + [each.start // 480 for each in ring.frames] == [*range(12)]
    assert ring.finished == [1, 2]


async def test_an_interruption_in_the_middle_of_a_change_takes_everything() -> None:
    ring = Ring()
    sink = sink_on(ring)
    sink.begin(1, "")
    sink.write(frames(1, 20))
    ring.play(5)
    changing = asyncio.create_task(sink.change(NEW, G722, lambda: None, lambda: None))
    await settle()
    sink.interrupt()
    ring.gate.set()
    await changing
    await settle()
    interruption = await sink.interrupted()
    assert interruption.played[1].position == 480 * 5
    assert ring.frames == []
    assert sink.write(frames(1, 3, first=20)) == 3, "what comes late goes the same way"
    assert ring.frames == []
    sink.begin(2, "")
    assert sink.write(frames(2, 2)) == 2
    assert [each.context for each in ring.frames] == [2, 2]


async def test_an_utterance_of_which_all_has_gone_out_is_over() -> None:
    ring = Ring()
    sink = sink_on(ring)
    sink.begin(1, "")
    sink.write(frames(1, 4))
    sink.finish(1)
    ring.play(4)
    await change(sink, ring)
    async with asyncio.timeout(5):
        assert (await sink.drained(1)).position == 480 * 4
    assert ring.begun == [1]


async def test_a_change_that_fails_lets_the_old_codec_go_on() -> None:
    ring = Ring()
    sink = sink_on(ring)
    sink.begin(1, "")
    sink.write(frames(1, 4))

    async def refuse(remote: RemoteMedia) -> int | None:
        raise CallError("No.")

    ring.update = refuse  # type: ignore[method-assign]
    with pytest.raises(CallError):
        await sink.change(NEW, G722, lambda: None, lambda: None)
    assert sink.write(frames(1, 1, first=4)) == 1
    assert len(ring.frames) == 5
