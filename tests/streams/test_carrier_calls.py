"""Whole calls over each carrier's format, against a carrier that plays in (fake) real time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from qwen3tts_phone.audio.frames import HeardFrame, KeyPressed
from qwen3tts_phone.errors import NotPossible
from qwen3tts_phone.streams.carriers.adapter import Handshake, StreamKind
from tests.streams.calls import Streamed, streamed
from tests.streams.carrier_fixtures import LINES, adapter_of, script
from tests.streams.carrier_side import CarrierSide

TICK_S = 0.01
MOST_QUEUED_S = 0.4
TAIL_S = 0.061
"""The filter's tail fills a frame at the end, and a fade another."""


class Line:
    """A call, and the carrier at its other end."""

    def __init__(self, call: Streamed, carrier: CarrierSide, delay_s: float) -> None:
        self.streamed, self.carrier = call, carrier
        self._delay_s = delay_s
        self._seen = 0

    async def runs(self, seconds: float) -> None:
        """Let time pass."""
        clock, wire = self.streamed.clock, self.streamed.wire
        for _ in range(round(seconds / TICK_S)):
            await clock.advance(TICK_S)
            arrived = clock.now() - self._delay_s
            while self._seen < len(wire.sent) and wire.sent[self._seen][0] <= arrived + 1e-9:
                self.carrier.take(wire.sent[self._seen][1], clock.now())
                self._seen += 1
            wire.comes(*self.carrier.answers(clock.now()))


@asynccontextmanager
async def line_of(
    name: str, *, delay_s: float = 0.05, kind: StreamKind | None = None, lead_ms: int = 240
) -> AsyncIterator[Line]:
    async with streamed(adapter_of(name), kind=kind, lead_ms=lead_ms) as call:
        carrier = CarrierSide(name)
        await call.comes(*carrier.begin())
        await call.call.answer()
        yield Line(call, carrier, delay_s)


def heard_s(line: Line, position: int) -> float:
    """A position of the embedded voice's 24 kHz, in seconds."""
    return position / 24_000


@pytest.mark.parametrize("name", LINES)
async def test_all_that_is_said_is_played_and_little_of_it_waits_there(name: str) -> None:
    async with line_of(name) as line:
        saying = asyncio.ensure_future(line.streamed.call.say("A story."))
        await line.streamed.says(3000)
        await line.runs(5)
        spoken = await saying
        assert spoken.position == 24 * 3000
        assert not spoken.interrupted
        assert line.carrier.played_s(line.streamed.clock.now()) == pytest.approx(3.0, abs=TAIL_S)
        assert line.carrier.most_queued_s <= MOST_QUEUED_S
        # No hole: each piece begins where the one before it ends.
        gaps = [
            after.begins - before.ends
            for before, after in zip(line.carrier.pieces, line.carrier.pieces[1:], strict=False)
        ]
        assert max(gaps) <= TICK_S


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("lead_ms", [40, 380])
async def test_no_lead_that_may_be_set_leaves_holes_or_queues_more(name: str, lead_ms: int) -> None:
    async with line_of(name, lead_ms=lead_ms, delay_s=0.0) as line:
        line.streamed.call.speak("A story.")
        await line.streamed.says(2000)
        await line.runs(3)
        assert line.carrier.most_queued_s <= MOST_QUEUED_S + TICK_S
        played = [each.ends - each.begins for each in line.carrier.pieces]
        assert sum(played) == pytest.approx(2.0, abs=TAIL_S)


@pytest.mark.parametrize("name", LINES)
async def test_an_interruption_clears_first_and_nothing_old_follows(name: str) -> None:
    async with line_of(name, delay_s=0.0) as line:
        utterance = line.streamed.call.speak("A long story.")
        context = await line.streamed.says(8000)
        await line.runs(1.5)
        sent = len(line.streamed.wire.sent)
        line.streamed.call.interrupt()
        after = line.streamed.wire.sent[sent:]
        assert len(after) == 1, "exactly the clear, before interrupt() returns"
        now = line.streamed.clock.now()
        was_played_s = line.carrier.played_s(now)
        context.sound(500)  # the server has not heard of it yet
        await line.runs(1.0)
        spoken = await utterance.spoken()
        assert spoken.interrupted
        assert [kind for _, kind, _ in line.carrier.came].count("clear") == 1
        assert line.carrier.came[-1][1] == "clear"
        assert heard_s(line, spoken.position) == pytest.approx(was_played_s, abs=0.045)


@pytest.mark.parametrize("name", LINES)
async def test_what_is_said_after_an_interruption_is_heard_from_its_beginning(name: str) -> None:
    async with line_of(name, delay_s=0.0) as line:
        line.streamed.call.speak("A long story.")
        await line.streamed.says(8000)
        await line.runs(1.0)
        line.streamed.call.interrupt()
        interrupted_at = line.streamed.clock.now()
        saying = asyncio.ensure_future(line.streamed.call.say("Yes?"))
        await line.streamed.says(600, 2)
        await line.runs(2.5)
        assert (await saying).position == 24 * 600
        cleared_at = line.carrier.cleared_at[-1]
        second = [each for each in line.carrier.pieces if each.begins >= cleared_at]
        assert sum(each.ends - each.begins for each in second) == pytest.approx(0.6, abs=TAIL_S)
        rest_s = adapter_of(name).rest_after_clear_ms / 1000
        assert second[0].begins - interrupted_at >= rest_s


@pytest.mark.parametrize("name", LINES)
async def test_the_caller_is_heard_and_his_keys_and_his_end(name: str) -> None:
    async with line_of(name) as line:
        call, side = line.streamed.call, line.carrier
        heard: list[HeardFrame] = []

        async def listen() -> None:
            async for frame in call.audio:
                heard.append(frame)

        listening = asyncio.ensure_future(listen())
        for number in range(1, 51):
            data = bytes([0x20, 0x10] * (side.bytes_s // 100))
            await line.streamed.comes(side.says(data, number))
            await line.runs(0.02)
        key = next(
            step["from"]
            for step in script(name)["steps"]
            if any("key" in each for each in step.get("events", ()))
        )
        await line.streamed.comes(key)
        stop = side.stops()
        if stop is None:
            line.streamed.wire.breaks()
        else:
            await line.streamed.comes(stop)
        await line.streamed.over()
        await listening
        assert sum(frame.duration_s for frame in heard) == pytest.approx(1.0, abs=0.021)
        assert any(isinstance(event, KeyPressed) for event in line.streamed.events)
        assert line.streamed.record["line"] == name
        assert line.streamed.record["end"]["by"] == "remote"


@pytest.mark.parametrize("name", LINES)
async def test_a_carrier_that_sends_nonsense_is_borne_and_the_record_says_so(name: str) -> None:
    async with streamed(adapter_of(name), lead_ms=240) as call:
        side = CarrierSide(name)
        await call.comes(side.says(bytes(160)))  # before the start
        await call.comes(*side.begin())
        await call.call.answer()
        line = Line(call, side, 0.05)
        saying = asyncio.ensure_future(call.call.say("A story."))
        await call.says(1000)
        await call.comes(
            '{"event":"a new one"}',
            "no JSON",
            *side.begin(),  # twice
            '{"event":"media","media":{"payload":"%%%"}}',
            '{"event":"dtmf","dtmf":{"digit":"Q"}}',
        )
        await line.runs(3)
        assert (await saying).position == 24 * 1000
        call.wire.breaks()  # and no stop
        await call.over()
        odd = call.record["odd"]
        assert {"media before start", "no JSON object", "a second start"} <= set(odd)
        assert "unknown event" in odd
        no_stop = adapter_of(name).ends_by_closing
        assert call.record["end"]["by"] == ("remote" if no_stop else "error")
        assert "odd_messages" in call.record["findings"]


async def test_exotel_gets_whole_320_bytes_and_mostly_100_ms_of_them() -> None:
    async with line_of("exotel") as line:
        line.streamed.call.speak("A story.")
        await line.streamed.says(3000)
        await line.runs(4)
        sizes = [size for _, kind, size in line.carrier.came if kind == "sound"]
        assert all(size % 320 == 0 for size in sizes)
        assert sizes.count(1600) / len(sizes) > 0.8


class Rest:
    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    async def hang_up(self, call_id: str) -> None:
        self.asked.append(("hang up", call_id))

    async def transfer(self, call_id: str, target: str) -> None:
        self.asked.append(("transfer", call_id, target))

    async def press(self, call_id: str, digits: str) -> None:
        self.asked.append(("press", call_id, digits))

    @property
    def kind(self) -> StreamKind:
        def make(handshake: Handshake) -> object:
            raise AssertionError("the adapter is there")

        return StreamKind(
            "twilio",
            make,  # type: ignore[arg-type]
            hang_up=self.hang_up,
            transfer=self.transfer,
            press=self.press,
        )


CALL_ID = "CAXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX"


async def test_our_hang_up_ends_the_call_at_the_carrier() -> None:
    rest = Rest()
    async with line_of("twilio", kind=rest.kind) as line:
        hanging_up = asyncio.ensure_future(line.streamed.call.hangup())
        await line.streamed.over()
        await hanging_up
        assert rest.asked == [("hang up", CALL_ID)]
        assert line.streamed.wire.closed_with == 1000


async def test_a_call_that_was_handed_on_is_not_ended_at_the_carrier() -> None:
    rest = Rest()
    async with line_of("twilio", kind=rest.kind) as line:
        moving = asyncio.ensure_future(line.streamed.call.transfer("+15550100"))
        await line.streamed.over()
        await moving
        assert rest.asked == [("transfer", CALL_ID, "+15550100")]


async def test_keys_are_pressed_by_the_carriers_interface_where_there_is_one() -> None:
    rest = Rest()
    async with line_of("twilio", kind=rest.kind) as line:
        await line.streamed.call.send_dtmf("12#")
        assert rest.asked == [("press", CALL_ID, "12#")]


async def test_without_keys_a_transfer_says_that_it_cannot_be_done() -> None:
    async with line_of("twilio") as line:
        with pytest.raises(NotPossible):
            await line.streamed.call.transfer("+15550100")
        assert not line.streamed.call.over
