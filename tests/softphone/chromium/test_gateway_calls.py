"""The page and telephone calls: it dials a SIP address, and listens in to a running call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np
import pytest

from qwen3tts_phone import Call, Phone
from qwen3tts_phone.phone import PhoneSettings
from qwen3tts_server.run import running_server
from tests.e2e.agent_parties import spoken
from tests.e2e.parties import Ear
from tests.peers.recording_engine import RecordingEngine
from tests.softphone.browser import Chromium, Samples
from tests.softphone.served import Person, Served, at_the_page, measuring, served
from tests.softphone.sound import Sound, Wanted, likeness

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]

FROM_THE_PAGE = "Somebody speaks into the microphone of the browser."
FROM_THE_PARTY = "This is the other party, who has answered the telephone."
TYPED = "These words were typed into the page."
ROUNDS = 2
"""Each side says its sentence so often, and one of them has to come through: a busy machine harms
some."""


@dataclass
class Line:
    """A softphone with a telephone, and another telephone."""

    here: Served
    ours: Phone
    party: Phone


@asynccontextmanager
async def line() -> AsyncIterator[Line]:
    async with (
        running_server(RecordingEngine(), host="127.0.0.1", port=0) as server,
        Phone(PhoneSettings(server_url=server.url)) as ours,
        Phone(PhoneSettings(server_url=server.url)) as party,
        served(parts={"phone": ours}) as here,
    ):
        yield Line(here, ours, party)


async def dial(person: Person, uri: str) -> None:
    await person.ready()
    await person.page.get_by_role("textbox", name="Number or SIP address").fill(uri)
    await person.button("Dial")


def of(text: Samples, seconds: float) -> Samples:
    """Silence and then the words, 8 kHz."""
    return np.concatenate([np.zeros(int(8000 * seconds), np.int16), text])


async def test_the_page_dials_and_both_hear_each_other_and_what_is_typed(
    chromium: Chromium,
) -> None:
    mine, theirs = await spoken(FROM_THE_PAGE), await spoken(FROM_THE_PARTY)
    chromium.says(np.tile(of(mine, 3.0), 4), 8000)
    takes: list[Samples] = []
    async with line() as wired, at_the_page(chromium, measuring(wired.here)) as person:
        await dial(person, wired.party.uri)
        call = await anext(aiter(wired.party))
        call.ringing()
        await person.is_("ringing")
        await call.answer()
        ear = Ear(call)
        await person.visit.listen()
        await person.is_("up")
        for count in range(1, ROUNDS + 1):
            before = len(wired.here.engine.spoken)
            await person.put(TYPED)
            told = (await person.spoken(count))[-1]
            assert (told["heard"], told["interrupted"]) == (TYPED, False)
            takes.append(wired.here.engine.pcm(before))
            await call.play(theirs, 8000)
        heard = await person.visit.heard()
        await person.button("Keypad")
        await person.page.locator("#keypad [data-digit='5']").click()
        assert await call.dtmf.collect(most=1) == "5"
        await call.hangup()
        await person.is_("ended")
        said = await person.page.locator("#status, #notice, #summary").all_inner_texts()
    wanted = Wanted()
    wanted.listen("typed, at the page", takes, 24_000, heard)
    wanted.listen("typed, at the party", takes, 24_000, so_far(ear))
    wanted.listen("the party, at the page", [theirs], 8000, heard)
    wanted.listen("the page, at the party", [mine], 8000, so_far(ear))
    assert not wanted.missing
    assert any("hung up" in each or "ended" in each.lower() for each in said), said


async def hears_on(ear: Ear, call: Call, seconds: float) -> None:
    """Wait for this much more audio."""
    until = len(ear.frames) + seconds * 50
    while len(ear.frames) < until:
        assert not call.over
        await call.clock.sleep_until(call.clock.now() + 0.1)


def so_far(ear: Ear) -> Sound:
    """What the party has heard; a telephone between the two speaks PCMU."""
    frames = list(ear.frames)
    assert {each.rate_hz for each in frames} == {8000}
    return Sound(np.concatenate([each.samples for each in frames]), 8000)


async def test_a_party_that_is_busy_is_told(chromium: Chromium) -> None:
    async with line() as wired, at_the_page(chromium, measuring(wired.here)) as person:
        await dial(person, wired.party.uri)
        call = await anext(aiter(wired.party))
        await call.reject(486)
        await person.is_("ended")
        shown = await person.page.locator("main").inner_text()
        assert "busy" in shown.lower()
        await person.call()  # no button is dead after it
        await person.hang_up()


async def test_a_caller_who_hangs_up_while_it_rings_takes_the_call_back(
    chromium: Chromium,
) -> None:
    async with line() as wired, at_the_page(chromium, measuring(wired.here)) as person:
        await dial(person, wired.party.uri)
        call = await anext(aiter(wired.party))
        call.ringing()
        await person.is_("ringing")
        await person.hang_up()
        assert await call.ended()


@asynccontextmanager
async def under_way(wired: Line) -> AsyncIterator[tuple[Call, Call]]:
    """A call from the other telephone to ours: the other's side and ours."""
    theirs = await wired.party.dial(wired.ours.uri)
    ours = await anext(aiter(wired.ours))
    await ours.answer()
    await theirs.answered()
    try:
        yield theirs, ours
    finally:
        await theirs.hangup()


async def test_the_page_listens_in_and_talks_only_when_told(chromium: Chromium) -> None:
    mine, theirs = await spoken(FROM_THE_PAGE), await spoken(FROM_THE_PARTY)
    ours_says = await spoken("And this is what the agent answers to it.")
    chromium.says(np.tile(of(mine, 0.5), 12), 8000)
    async with line() as wired, at_the_page(chromium, measuring(wired.here)) as person:
        await person.ready()
        async with under_way(wired) as (caller, ours):
            ear = Ear(caller)
            await person.page.get_by_role("button", name="Listen in").click()
            await person.visit.listen()
            await person.is_("up")
            for _ in range(ROUNDS):
                await caller.play(theirs, 8000)
                await ours.play(ours_says, 8000)
            heard = await person.visit.heard()
            before = len(so_far(ear).samples)
            await person.button("Talk")
            await hears_on(ear, caller, 4.0 * ROUNDS)
            await person.button("Leave")
            await person.is_("ended")
            assert not ours.over
    everything = so_far(ear).samples
    wanted = Wanted()
    wanted.listen("the caller", [theirs], 8000, heard)
    wanted.listen("the agent", [ours_says], 8000, heard)
    wanted.listen("the page, after Talk", [mine], 8000, Sound(everything[before:], 8000))
    assert not wanted.missing
    # Before Talk the caller heard the agent alone.
    told = likeness(mine, 8000, everything[:before], 8000)
    assert not told.known, told


async def test_the_list_of_calls_follows_them(chromium: Chromium) -> None:
    async with line() as wired, at_the_page(chromium, measuring(wired.here)) as person:
        await person.ready()
        entries = person.page.locator("#calls").get_by_role("button", name="Listen in")
        async with under_way(wired):
            await entries.wait_for()
            assert await entries.count() == 1
        async with asyncio.timeout(10):
            await entries.wait_for(state="detached")
