"""The codec changes while frames wait in the ring: what was not played is encoded in the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from qwen3tts_codecs.g711 import PCMA, PCMU
from qwen3tts_codecs.g722 import G722
from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.memory import ContextSent
from qwen3tts_pacer.slot import Frame
from qwen3tts_phone.audio.rtp_sink import RtpSink
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.types import Dropped, DroppedContext, RemoteMedia
from qwen3tts_speech.line import Speaker
from qwen3tts_speech.link import SpeechLink
from tests.fakes import FakeClock, settle

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
        self.finished.clear()  # the leg tells no end of what it has flushed
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


def voice(ms: int) -> NDArray[np.int16]:
    """A tone that rises, so that no two pieces of it are alike."""
    time = np.arange(24 * ms) / 24_000
    return np.round(8000 * np.sin(2 * np.pi * (300 + 200 * time) * time)).astype(np.int16)


@dataclass
class Line:
    """A speaker whose sink writes to a ring that the test plays."""

    ring: Ring = field(default_factory=Ring)

    def __post_init__(self) -> None:
        self.sink = RtpSink(cast(MediaLeg, self.ring), 20, payload=PCMU)
        link = SpeechLink("ws://nowhere")
        self.speaker = Speaker(link, self.sink, PCMU, clock=FakeClock())
        self.ring.gate.set()

    async def change(
        self, remote: RemoteMedia = NEW, payload: Payload = G722, steps: int = 30
    ) -> None:
        await self.sink.change(remote, payload, lambda: self.speaker.change(payload, 20))
        await settle(steps)

    def play_all(self) -> list[Frame]:
        """All frames go out; which they were."""
        frames = list(self.ring.frames)
        self.ring.play(len(frames))
        for part in list(self.ring.finished):
            self.sink.context_played(part)
        return frames


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    line = Line()
    yield line
    line.speaker.interrupt()
    await settle(20)


def places(frames: list[Frame]) -> list[tuple[int, int]]:
    return [(frame.start, frame.end) for frame in frames]


def heard(frames: list[Frame], payload: Payload) -> NDArray[np.int16]:
    decoder = payload.decoder()
    return np.concatenate([decoder.decode(frame.payload) for frame in frames])


async def test_what_was_not_played_goes_out_in_the_new_codec_at_its_place(line: Line) -> None:
    first = line.speaker.play(voice(600), 24_000)
    second = line.speaker.play(voice(100), 24_000)
    await settle(30)
    old = list(line.ring.frames)
    line.ring.play(10)
    await line.change()
    assert line.ring.begun == [1, 2, 3, 4], "each goes on as another context of the leg"
    frames = line.play_all()
    one = [frame for frame in frames if frame.context == 3]
    two = [frame for frame in frames if frame.context == 4]
    assert frames == one + two
    # Frame by frame from the last sample that was played, to the end.
    assert one[0].start == old[9].end
    assert all(before.end == after.start for before, after in pairwise(one))
    assert (one[-1].end, two[0].start, two[-1].end) == (24 * 600, 0, 24 * 100)
    await settle(20)
    assert await first.played()
    assert await second.played()
    for context, end in ((1, 600), (2, 100)):
        played = await line.sink.drained(context)
        assert (played.position, played.dropped, played.first_at) == (24 * end, 0, 1.0)


async def test_the_new_frames_have_the_sound_of_the_engine_and_not_of_the_old_codec(
    line: Line,
) -> None:
    """It is encoded from PCM: 5 kHz, which the old one did not have, are in the new one."""
    both = voice(600) // 2 + np.round(4000 * np.sin(np.arange(14_400) * 5 / 24 * 2 * np.pi))
    line.speaker.play(both.astype(np.int16), 24_000)
    await settle(30)
    line.ring.play(10)
    await line.change()
    spectrum = np.abs(np.fft.rfft(heard(line.ring.frames, G722)[-3200:-800] * np.hanning(2400)))
    assert spectrum[750] > spectrum[350:740].max() * 20  # 5000 Hz, steps of 6.7 Hz


async def test_nothing_is_written_while_the_codec_changes(line: Line) -> None:
    line.ring.gate.clear()
    changing = asyncio.create_task(line.change())
    await settle()
    sound = line.speaker.play(voice(100), 24_000)
    await settle(20)
    assert line.ring.frames == []
    line.ring.gate.set()
    await changing
    await settle(20)
    assert places(line.ring.frames)[0][0] == 0
    assert {len(frame.payload) for frame in line.ring.frames} == {160}
    assert heard(line.ring.frames, G722).max() > 4000
    line.play_all()
    assert await sound.played()


async def test_the_two_laws_are_left_to_the_ring() -> None:
    line = Line(Ring(translates=True))
    line.speaker.play(voice(600), 24_000)
    await settle(30)
    tapped: list[bytes] = []
    line.sink.tap(lambda payload, at: tapped.append(payload))
    first = line.ring.frames[0]
    count = len(line.ring.frames)
    await line.change(OLD, PCMA)
    assert line.ring.begun == [1]
    assert len(line.ring.frames) == count
    line.ring.play(1)
    line.sink.follow()
    assert tapped == [PCMA.encode(PCMU.decode(first.payload))]
    line.speaker.interrupt()
    await settle(20)


@pytest.mark.parametrize("translates", [True, False])
async def test_a_ring_that_is_too_small_takes_the_rest_later(translates: bool) -> None:
    line = Line(Ring(translates=translates, space=12))
    sound = line.speaker.play(voice(1000), 24_000)
    await settle(30)
    assert len(line.ring.frames) == 12
    line.ring.play(5)
    out = [(index * 480, None) for index in range(5)]
    at = line.ring.known[1].end
    await line.change(OLD if translates else NEW, PCMA if translates else G722)
    line.ring.space = 5
    found: list[Frame] = []
    async with asyncio.timeout(5):
        while not found or found[-1].end < 24_000:
            found += line.ring.frames
            line.ring.play(len(line.ring.frames))
            await settle()
    assert len(out) == 5
    assert found[0].start == at
    assert all(before.end == after.start for before, after in pairwise(found))
    await settle(20)
    line.play_all()
    await settle(20)
    assert await sound.played()


async def test_an_interruption_in_the_middle_of_a_change_takes_everything(line: Line) -> None:
    sound = line.speaker.play(voice(600), 24_000)
    await settle(30)
    line.ring.play(5)
    at = line.ring.known[1].end
    line.ring.gate.clear()
    changing = asyncio.create_task(line.change())
    await settle()
    line.speaker.interrupt()
    line.ring.gate.set()
    await changing
    interruption = await line.sink.interrupted()
    assert interruption.played[1].position == at
    assert not await sound.played()
    assert line.ring.frames == []
    line.speaker.play(voice(100), 24_000)
    await settle(30)
    assert {frame.context for frame in line.ring.frames} == {2}


async def test_a_second_change_before_the_first_is_written_loses_nothing(line: Line) -> None:
    line.ring.space = 30
    sound = line.speaker.play(voice(1000), 24_000)
    await settle(30)
    line.ring.play(10)
    at = line.ring.known[1].end
    line.ring.space = 3
    await line.change()
    line.ring.play(2)
    line.ring.space = 1000
    await line.change(OLD, PCMU)
    again = list(line.ring.frames)
    assert {len(frame.payload) for frame in again} == {160}
    last = max(line.ring.known)
    assert again[0].start == line.ring.known[last].end > at
    assert all(before.end == after.start for before, after in pairwise(again))
    assert again[-1].end == 24_000
    line.play_all()
    await settle(20)
    assert await sound.played()


async def test_an_utterance_of_which_all_has_gone_out_is_over(line: Line) -> None:
    sound = line.speaker.play(voice(80), 24_000)
    await settle(30)
    line.ring.play(len(line.ring.frames))  # the leg has not told yet
    await line.change()
    async with asyncio.timeout(5):
        assert await sound.played()
    assert line.ring.begun == [1]


async def test_live_sound_goes_on_after_a_change(line: Line) -> None:
    live = line.speaker.live()
    for start in range(0, 2400, 480):
        await live.push(voice(100)[start : start + 480], 24_000)
    await line.change()
    for start in range(0, 2400, 480):
        await live.push(voice(100)[start : start + 480], 24_000)
    assert {len(frame.payload) for frame in line.ring.frames} == {160}
    assert heard(line.ring.frames, G722).max() > 4000
    live.close()
    await settle(20)
    await line.change(OLD, PCMU)
    await settle(20)
    assert line.sink.waiting_s(1) == 0.0


async def test_a_change_that_fails_lets_the_old_codec_go_on(line: Line) -> None:
    sound = line.speaker.play(voice(200), 24_000)
    await settle(30)
    before = list(line.ring.frames)

    async def refuse(remote: RemoteMedia) -> int | None:
        raise CallError("No.")

    line.ring.update = refuse  # type: ignore[method-assign]
    with pytest.raises(CallError):
        await line.change()
    assert line.ring.frames == before
    line.play_all()
    await settle(20)
    assert await sound.played()


async def test_a_call_that_ends_during_a_change_is_over(line: Line) -> None:
    sound = line.speaker.play(voice(200), 24_000)
    await settle(30)

    async def close(remote: RemoteMedia) -> int | None:
        line.ring.over = True
        raise CallError("The leg was closed.")

    line.ring.update = close  # type: ignore[method-assign]
    with pytest.raises(CallError):
        await line.change()
    line.sink.gone()
    with pytest.raises(CallError):
        await sound.played()


async def _course(course: list[tuple[str, int]], lengths: list[int]) -> list[tuple[int, int]]:
    """Sounds in a row, and what happens meanwhile; places of the frames that went out."""
    line = Line(Ring(space=20))
    sounds = [line.speaker.play(voice(ms), 24_000) for ms in lengths]
    out: list[Frame] = []

    async def play(count: int) -> None:
        frames = line.ring.frames[:count]
        out.extend(frames)
        line.ring.play(len(frames))
        waiting = {frame.context for frame in line.ring.frames}
        for part in [part for part in line.ring.finished if part not in waiting]:
            line.sink.context_played(part)
        await settle(1)

    codecs = [(OLD, PCMU), (NEW, G722)]
    for what, count in course:
        if what == "change":
            remote, payload = codecs[count % 2]
            line.ring.translates = payload == line.speaker.payload
            await line.change(remote, payload, 0)
        elif what == "play":
            await play(count)
        else:
            await settle(count)
    for _ in range(3000):
        if all(sound.stopped or sound.written.is_set() for sound in sounds) and (
            not line.ring.frames
        ):
            break
        await play(20)
        await settle(2)
    await play(20)
    async with asyncio.timeout(5):
        assert all([await sound.played() for sound in sounds])
    return places(out)


@given(
    st.lists(
        st.tuples(st.sampled_from(["change", "play", "wait"]), st.integers(0, 12)), max_size=25
    ),
    st.lists(st.integers(1, 700), min_size=1, max_size=4),
)
@settings(deadline=None, max_examples=150)
def test_whenever_it_changes_every_sample_goes_out_once_and_in_order(
    course: list[tuple[str, int]], lengths: list[int]
) -> None:
    found = asyncio.run(_course(course, lengths))
    expected = 0
    ends = []
    for start, end in found:
        if start == 0 and expected:
            ends.append(expected)
            expected = 0
        assert start == expected
        expected = end
    assert [*ends, expected] == [24 * ms for ms in lengths]
