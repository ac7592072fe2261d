from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_pacer.audio_pacer import PacerClosed
from qwen3tts_phone.softphone.webrtc.media import (
    LATE_MS,
    MAX_PLAYOUT_DELAY_S,
    PLAYOUT_DELAY_S,
    WebSink,
)
from tests.fakes import FakeClock, settle
from tests.pacer.playing import At, frames

START = 100.0
SILENCE = PCMU.silent_frame(20)


class Sent:
    """A sink, and the packets that came out of it."""

    def __init__(self) -> None:
        self.clock = FakeClock(START)
        self.packets: list[tuple[float, bytes, int]] = []
        self.sink = WebSink(self.put, PCMU, clock=self.clock, policy=At())

    def put(self, payload: bytes, ticks: int) -> None:
        self.packets.append((self.clock.now(), payload, ticks))

    async def runs(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.02)):
            await self.clock.advance(0.02)

    def says(self, context: int, count: int) -> None:
        self.sink.begin(context, "voice")
        self.sink.write(frames(context, 0, count))
        self.sink.finish(context)

    @property
    def names(self) -> list[str]:
        return [
            "" if payload == SILENCE else payload.decode("latin-1")
            for _, payload, _ in self.packets
        ]


@asynccontextmanager
async def line() -> AsyncIterator[Sent]:
    sent = Sent()
    sent.sink.start()
    await settle()
    yield sent
    await sent.sink.close()


async def test_one_packet_for_each_place_silence_where_nothing_is_said() -> None:
    async with line() as sent:
        await sent.runs(0.1)
        sent.says(1, 3)
        await sent.runs(0.2)
        places = [round((at - START) * 1000) for at, _, _ in sent.packets]
        assert places == [20 * n for n in range(len(places))]
        assert [ticks for _, _, ticks in sent.packets] == [0] + [1] * (len(places) - 1)
        speech = [name for name in sent.names if "speech" in name]
        assert speech == ["1/0 speech", "1/1 speech", "1/2 speech"]
        assert sent.sink.sent_frames == 3
        assert sent.sink.sent_packets == len(places)


async def test_nothing_of_an_utterance_follows_an_interruption_but_its_fade() -> None:
    async with line() as sent:
        sent.says(1, 100)
        await sent.runs(0.2)
        sent.sink.interrupt()
        before = len(sent.packets)
        await sent.runs(0.2)
        assert not [name for name in sent.names[before:] if "speech" in name]
        assert sent.names[before + 1 :] == [""] * (len(sent.names) - before - 1)
        stopped = await sent.sink.interrupted()
        assert stopped.silent_at == pytest.approx(stopped.at, abs=0.021)
        assert stopped.played[1].dropped > 0


async def test_taps_are_given_speech_as_it_goes_out_and_no_silence() -> None:
    async with line() as sent:
        heard: list[tuple[bytes, float]] = []
        tap = lambda payload, at: heard.append((payload, at))  # noqa: E731
        sent.sink.tap(tap)
        sent.says(1, 3)
        await sent.runs(0.2)
        assert [payload.decode() for payload, _ in heard] == [f"1/{n} speech" for n in range(3)]
        sent.sink.untap(tap)
        sent.says(2, 3)
        await sent.runs(0.2)
        assert len(heard) == 3


async def test_a_frame_that_goes_out_late_keeps_its_place_in_a_recording() -> None:
    async with line() as sent:
        places: list[float] = []
        sent.sink.tap(lambda payload, at: places.append(at))
        sent.says(1, 10)
        await sent.runs(0.1)
        sent.clock.jump(0.07)  # the process was busy
        await sent.runs(0.2)
        assert len(places) == 10
        steps = [round((after - before) * 1000) for before, after in pairwise(places)]
        assert steps == [20] * 9


async def test_the_position_set_playout_delay_by_what_the_browser_says() -> None:
    async with line() as sent:
        sent.says(1, 100)
        await sent.runs(0.5)
        usual = sent.sink.position(1)
        assert sent.sink.queued_s == PLAYOUT_DELAY_S
        sent.sink.set_playout_delay(0.3)
        # It never goes back: who has heard a word has heard it.
        assert sent.sink.position(1) == usual
        sent.sink.set_playout_delay(0.0)
        assert sent.sink.position(1) > usual
        sent.sink.set_playout_delay(1e9)
        assert sent.sink.queued_s == MAX_PLAYOUT_DELAY_S


async def test_a_packet_that_is_late_is_sent_and_a_very_late_one_leaves_its_place() -> None:
    async with line() as sent:
        sent.says(1, 100)
        await sent.runs(0.1)
        sent.clock.jump(LATE_MS / 1000 - 0.021)  # the process was busy
        before = len(sent.packets)
        await sent.runs(0.2)
        assert sent.sink.skipped_slots == 0
        assert [ticks for _, _, ticks in sent.packets[before:]] == [1] * (
            len(sent.packets) - before
        )
        # Caught up with: as many packets as places.
        assert len(sent.packets) == int((sent.clock.now() - START) / 0.02) + 1
        sent.clock.jump(0.5)
        before = len(sent.packets)
        await sent.runs(0.1)
        assert sent.sink.skipped_slots > 0
        assert sent.packets[before][2] == sent.sink.skipped_slots + 1
        assert sent.sink.latest_s < LATE_MS / 1000
        # Nothing was left out; what follows the hole is faded in.
        names = [name.split()[0] for name in sent.names if name and "tail" not in name]
        assert names == [f"1/{n}" for n in range(len(names))]


async def test_drained_returns_when_the_last_frame_is_out() -> None:
    async with line() as sent:
        sent.says(1, 5)
        drained = asyncio.ensure_future(sent.sink.drained(1))
        await sent.runs(0.3)
        played = await drained
        assert (played.dropped, played.starvations) == (0, 0)
        assert sent.sink.last_at is not None
        assert sent.sink.first_audible_at(1) is not None
        assert sent.sink.unsent_s == 0.0


async def test_a_gap_in_an_utterance_is_kept() -> None:
    async with line() as sent:
        sent.sink.begin(1, "voice")
        sent.sink.write(frames(1, 0, 5))
        await sent.runs(0.2)
        sent.sink.write(frames(1, 5, 5))
        await sent.runs(0.06)
        sent.sink.finish(1)
        await sent.runs(0.3)
        assert sent.sink.longest_gap_s == pytest.approx(0.1, abs=0.021)
        assert sent.sink.starvations == 1


async def test_nothing_is_sent_before_the_start_and_after_the_end() -> None:
    sent = Sent()
    await sent.runs(0.1)
    assert sent.packets == []
    sent.sink.start()
    await sent.runs(0.1)
    await sent.sink.close()
    count = len(sent.packets)
    await sent.runs(0.1)
    assert len(sent.packets) == count
    sent.says(1, 5)
    assert (await sent.sink.drained(1)).position == 0
    with pytest.raises(PacerClosed):
        sent.sink._pacer._check()
