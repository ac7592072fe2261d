"""A page bridged to a telephone call: who hears which side, and what ends what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.opus import OPUS
from qwen3tts_codecs.payload import Payload
from qwen3tts_phone.call.call import Call
from qwen3tts_phone.call.events import CallRinging
from qwen3tts_phone.errors import CallRefused
from qwen3tts_phone.facts import EndFacts
from qwen3tts_phone.softphone.bridge import CallBridge, DialledBridge, MonitorBridge
from qwen3tts_phone.softphone.messages import State
from tests.fakes import FakeClock, settle
from tests.softphone.plain_call import PTIME_S, PlainCall, Samples

MICROPHONE, FAR, AGENT = 440, 700, 1000
"""Whose tone has which frequency, Hz."""


def tone(hz: int, rate_hz: int, seconds: float, first: int = 0) -> Samples:
    at = (np.arange(round(seconds * rate_hz)) + first) / rate_hz
    return np.round(4000 * np.sin(2 * np.pi * hz * at)).astype(np.int16)


def level(samples: Samples, rate_hz: int, hz: int) -> float:
    """How strong one frequency is in it, as an amplitude."""
    if not len(samples):
        return 0.0
    turning = np.exp(-2j * np.pi * hz * np.arange(len(samples)) / rate_hz)
    return float(2 * abs(np.mean(samples * turning)))


def tones(call: PlainCall, last_s: float = 0.4) -> set[int]:
    """Whose tones the call's far end has heard of late."""
    rate_hz = call.payload.sample_hz
    heard = call.sent[-round(last_s * rate_hz) :]
    return {hz for hz in (MICROPHONE, FAR, AGENT) if level(heard, rate_hz, hz) > 1000}


class Scene:
    """A page, a call, and the tones that both far ends make."""

    def __init__(self, page: PlainCall, call: PlainCall, clock: FakeClock) -> None:
        self.page, self.call, self.clock = page, call, clock
        self._first = 0

    async def goes_on(self, seconds: float, *, microphone: bool = True, far: bool = True) -> None:
        for _ in range(round(seconds / PTIME_S)):
            for call, hz, on in ((self.page, MICROPHONE, microphone), (self.call, FAR, far)):
                rate_hz = call.payload.sample_hz
                first = self._first * rate_hz // 50
                frame = tone(hz if on else 0, rate_hz, PTIME_S, first)
                call.hears(frame)
            self._first += 1
            await self.clock.advance(PTIME_S)


@asynccontextmanager
async def scene(
    kind: Callable[[PlainCall, PlainCall], CallBridge],
    page_codec: Payload = PCMU,
    call_codec: Payload = PCMU,
) -> AsyncIterator[tuple[Scene, CallBridge]]:
    clock = FakeClock()
    page, call = PlainCall(clock, page_codec), PlainCall(clock, call_codec)
    await page.answer()
    await call.answer()
    joined = kind(page, call)
    await settle()
    try:
        yield Scene(page, call, clock), joined
    finally:
        for each in (joined.close(), page.hangup(), call.hangup()):
            closing = asyncio.create_task(each)
            while not closing.done():
                await clock.advance(0.1)
        left = [task.get_name() for task in asyncio.all_tasks()]
        assert len(left) == 1, left


async def test_a_guest_hears_both_sides_and_is_not_heard() -> None:
    async with scene(MonitorBridge) as (at, joined):
        playing = asyncio.create_task(at.call.play(tone(AGENT, 8000, 2.0), 8000))
        await at.goes_on(1.0)
        assert tones(at.page) == {FAR, AGENT}
        assert tones(at.call) == {AGENT}
        assert not joined.talking
        await at.goes_on(2.0, far=False)
        assert tones(at.page) == set()
        assert await playing


async def test_a_guest_who_talks_is_heard_and_does_not_hear_himself() -> None:
    async with scene(MonitorBridge) as (at, joined):
        await at.goes_on(0.2)
        joined.talk(True)
        await at.goes_on(1.0)
        assert tones(at.call) == {MICROPHONE}
        assert tones(at.page) == {FAR}
        joined.talk(False)
        await at.goes_on(1.0)
        assert tones(at.call) == set()
        assert tones(at.page) == {FAR}


async def test_what_the_agent_says_stops_for_a_guest_who_talks_and_waits() -> None:
    async with scene(MonitorBridge) as (at, joined):
        first = asyncio.create_task(at.call.play(tone(AGENT, 8000, 5.0), 8000))
        await at.goes_on(0.5)
        joined.talk(True)
        await settle()
        assert not await first, "it was interrupted"
        second = asyncio.create_task(at.call.play(tone(AGENT, 8000, 0.5), 8000))
        await at.goes_on(1.0)
        assert tones(at.call) == {MICROPHONE}
        joined.talk(False)
        await at.goes_on(0.6)
        assert tones(at.call) == {AGENT}
        await at.goes_on(0.4)
        assert await second


@pytest.mark.parametrize("page_codec", [PCMU, OPUS], ids=["PCMU", "opus"])
@pytest.mark.parametrize("call_codec", [PCMU, OPUS], ids=["PCMU", "opus"])
async def test_a_dialled_party_and_the_page_hear_each_other_whatever_the_codecs(
    page_codec: Payload, call_codec: Payload
) -> None:
    async with scene(DialledBridge, page_codec, call_codec) as (at, joined):
        assert joined.talking
        await at.goes_on(1.0)
        assert tones(at.call) == {MICROPHONE}
        assert tones(at.page) == {FAR}


async def test_what_is_typed_is_heard_by_both_and_the_microphone_waits_meanwhile() -> None:
    async with scene(DialledBridge) as (at, _):
        await at.goes_on(0.5)
        saying = asyncio.create_task(at.call.play(tone(AGENT, 8000, 1.0), 8000))
        await at.goes_on(1.0)
        assert tones(at.call) == {AGENT}
        assert tones(at.page) == {AGENT, FAR}
        await at.goes_on(1.0)
        assert await saying
        assert tones(at.call) == {MICROPHONE}
        assert tones(at.page) == {FAR}


async def test_muting_takes_the_microphone_out_and_the_far_end_stays() -> None:
    async with scene(DialledBridge) as (at, joined):
        await at.goes_on(0.5)
        joined.talk(False)
        await at.goes_on(1.0)
        assert tones(at.call) == set()
        assert tones(at.page) == {FAR}
        joined.talk(True)
        await at.goes_on(1.0)
        assert tones(at.call) == {MICROPHONE}


async def test_what_is_said_into_a_hold_is_not_said_after_it() -> None:
    async with scene(DialledBridge) as (at, joined):
        await at.goes_on(0.5)
        at.call.hold_comes(True)
        await at.goes_on(1.0)
        assert tones(at.call) == set()
        at.call.hold_comes(False)
        await at.goes_on(1.0, microphone=False)
        assert tones(at.call, 1.0) == set()
        await at.goes_on(0.5)
        assert tones(at.call) == {MICROPHONE}
        causes = [state.cause for state in joined._states._states]
        assert causes[-2:] == ["The other side has put the call on hold.", ""]


@pytest.mark.parametrize("ppm", [-3000, 3000])
async def test_a_microphone_whose_clock_drifts_is_never_later_than_at_first(ppm: int) -> None:
    """One that is 3000 ppm off would be 90 ms off after half a minute; real ones are 100 off."""
    clock = FakeClock()
    page, call = PlainCall(clock), PlainCall(clock)
    await page.answer()
    await call.answer()
    joined = DialledBridge(page, call)
    step_s = PTIME_S / (1 + ppm * 1e-6)
    began, clicks = clock.now(), []
    for number in range(1500):
        frame = tone(MICROPHONE, 8000, PTIME_S, number * 160)
        if number % 50 == 40:  # a second's mark: louder
            frame = (frame * 5).astype(np.int16)
            clicks.append(clock.now() - began)
        page.hears(frame)
        await clock.advance(began + (number + 1) * step_s - clock.now())
    heard = np.abs(call.sent.astype(int))
    loud = np.flatnonzero(heard > 12_000) / 8000
    starts = [loud[0], *loud[1:][np.diff(loud) > 0.5]]
    delays = [start - click for start, click in zip(starts, clicks, strict=False)]
    assert len(starts) == pytest.approx(len(clicks), abs=1)
    assert max(delays) < 0.2
    assert max(delays) - min(delays) < 0.06
    for each in (joined.close(), page.hangup(), call.hangup()):
        closing = asyncio.create_task(each)
        while not closing.done():
            await clock.advance(0.1)


async def states_of(joined: CallBridge) -> list[State]:
    return [state async for state in joined.states()]


async def test_a_party_that_is_busy_ends_the_pages_call_with_cause_and_remedy() -> None:
    clock = FakeClock()
    page, call = PlainCall(clock), PlainCall(clock, direction="out")
    await page.answer()
    joined = DialledBridge(page, call)
    telling = asyncio.create_task(states_of(joined))
    call._core.publish(CallRinging(clock.now()))
    await settle()
    refused = CallRefused(486, "Busy Here")
    await call.far_end_leaves(EndFacts(by="remote", status=486, error=refused), "the line is busy")
    await joined.over()
    told = await telling
    assert [state.state for state in told] == ["connecting", "ringing", "ended"]
    assert told[-1] == State("ended", "the line is busy", refused.remedy, "remote", "call_refused")
    assert page.over


async def test_the_page_hears_that_it_rings_until_somebody_answers_or_sends_sound() -> None:
    clock = FakeClock()
    page, call = PlainCall(clock), PlainCall(clock, direction="out")
    await page.answer()
    joined = DialledBridge(page, call)
    await clock.advance(0.5)
    assert not page.sent.any(), "it does not ring yet"
    call._core.publish(CallRinging(clock.now()))
    await clock.advance(10.0)
    heard = page.sent.astype(float)
    rings = [level(heard[at : at + 4000], 8000, 425) > 1000 for at in range(4000, 80_000, 4000)]
    assert sum(rings) == pytest.approx(4, abs=2), "two rings of a second each"
    frame = tone(FAR, 8000, PTIME_S)
    for _ in range(20):
        call.hears(frame)
        await clock.advance(PTIME_S)
    assert tones(page, 0.2) == {FAR}
    await call.far_end_leaves()
    await joined.over()


async def test_a_page_that_leaves_hangs_up_on_whom_it_dialled() -> None:
    clock = FakeClock()
    page, call = PlainCall(clock), PlainCall(clock)
    await page.answer()
    await call.answer()
    joined = DialledBridge(page, call)
    await settle()
    await page.far_end_leaves()
    async with asyncio.timeout(5):
        await joined.over()
    assert call.over
    assert [state.state for state in await states_of(joined)] == ["connecting", "up", "ended"]
    await joined.close()


async def test_a_guest_leaves_a_call_that_goes_on() -> None:
    clock = FakeClock()
    page, call = PlainCall(clock), PlainCall(clock)
    await page.answer()
    await call.answer()
    joined = MonitorBridge(page, call)
    joined.talk(True)
    await settle()
    await joined.close()
    assert not call.over
    assert not call.speaking
    assert [state.state for state in await states_of(joined)] == ["up", "ended"]
    await call.hangup()
    await page.hangup()


async def test_a_call_that_ends_takes_its_guest_with_it() -> None:
    clock = FakeClock()
    page, call = PlainCall(clock), PlainCall(clock)
    await page.answer()
    await call.answer()
    joined = MonitorBridge(page, call)
    await settle()
    await call.far_end_leaves()
    await joined.over()
    assert page.over
    assert (await states_of(joined))[-1].cause == "they left"


async def test_a_page_that_never_connects_leaves_nothing_behind() -> None:
    clock = FakeClock()
    page, call = PlainCall(clock), PlainCall(clock)
    await call.answer()
    joined = MonitorBridge(page, call)
    await settle()
    await page.far_end_leaves()
    await joined.over()
    assert not call.over
    await call.hangup()
    assert len(asyncio.all_tasks()) == 1


async def test_a_page_goes_on_with_the_call_that_takes_the_place_of_the_one_it_dialled() -> None:
    async with scene(DialledBridge) as (at, joined):
        moved: list[Call] = []
        joined.on_moved = moved.append
        await at.goes_on(0.5)
        new = PlainCall(at.clock, OPUS)
        new.facts.remote_uri = "sip:carol@192.0.2.8"
        await new.answer()
        old = at.call
        old._core.succession.begin()
        old._core.succession.goes_on(new)
        await settle()
        assert (joined.call, moved, new._core.claimed.is_set()) == (new, [new], True)
        await old.far_end_leaves()
        at.call = new
        await at.goes_on(1.0)
        assert tones(new) == {MICROPHONE}
        assert tones(at.page) == {FAR}
        assert joined._states.last == State("up", "The call goes on with sip:carol@192.0.2.8.")
        await new.far_end_leaves()
        await joined.over()
        assert at.page.over
        assert (await states_of(joined))[-1].cause == "they left"


async def test_a_page_waits_for_a_transfer_whose_far_end_left_before_it_was_answered() -> None:
    async with scene(DialledBridge) as (at, joined):
        await at.goes_on(0.2)
        at.call._core.succession.begin()
        await at.call.far_end_leaves()
        at.call._core.succession.call_over()
        await settle()
        page: PlainCall = at.page
        assert not page.over
        at.call._core.succession.failed()
        await joined.over()
        assert (await states_of(joined))[-1].cause == "they left"


async def test_a_page_that_leaves_while_its_call_moves_hangs_up_on_the_new_one() -> None:
    async with scene(DialledBridge) as (at, joined):
        await at.goes_on(0.2)
        new = PlainCall(at.clock)
        await new.answer()
        at.call._core.succession.begin()
        at.call._core.succession.goes_on(new)
        await asyncio.sleep(0)
        closing = asyncio.create_task(joined.close())
        while not closing.done():
            await at.clock.advance(0.1)
        assert new.over


async def test_a_guest_goes_on_with_the_next_call_and_does_not_take_it_over() -> None:
    clock = FakeClock()
    page, call, new = (PlainCall(clock) for _ in range(3))
    for each in (page, call, new):
        await each.answer()
    guest = MonitorBridge(page, call, {new.id: new}.get)
    await settle()
    call.facts.continued_by = new.id
    await call.far_end_leaves()
    await settle()
    assert (guest.call, page.over, new._core.claimed.is_set()) == (new, False, False)
    await new.far_end_leaves()
    await guest.over()
    assert page.over
    assert len(asyncio.all_tasks()) == 1
