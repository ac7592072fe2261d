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
from tests.softphone.sound import likeness

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]

FROM_THE_PAGE = "Somebody speaks into the microphone of the browser."
FROM_THE_PARTY = "This is the other party, who has answered the telephone."
TYPED = "These words were typed into the page."


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
    chromium.says(of(mine, 3.0), 8000)
    async with line() as wired, at_the_page(chromium, measuring(wired.here)) as person:
        await dial(person, wired.party.uri)
        call = await anext(aiter(wired.party))
        call.ringing()
        await person.is_("ringing")
        await call.answer()
        ear = Ear(call)
        await person.visit.listen()
        await person.is_("up")
        await person.type(TYPED)
        [told] = await person.spoken()
        await ear.sound(2.5)
        await call.play(theirs, 8000)
        await person.button("Keypad")
        await person.page.locator("#keypad [data-digit='5']").click()
        assert await call.dtmf.collect(most=1) == "5"
        heard = await person.visit.heard()
        await call.hangup()
        await person.is_("ended")
        said = await person.page.locator("#status, #notice, #summary").all_inner_texts()
        party_heard = await ear.heard()
    assert told["heard"] == TYPED
    typed = wired.here.engine.pcm()
    for name, sound, hz, by, by_hz, share in (
        ("typed, party", typed, 24_000, party_heard, 8000, 0.8),
        ("typed, page", typed, 24_000, heard.samples, heard.rate_hz, 0.8),
        ("party, page", theirs, 8000, heard.samples, heard.rate_hz, 0.8),
        ("page, party", mine, 8000, party_heard, 8000, 0.4),
    ):
        like = likeness(sound, hz, by, by_hz)
        assert like.found >= share * like.segments, (name, like)
    assert any("hung up" in each or "ended" in each.lower() for each in said), said


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
    chromium.says(np.concatenate([of(mine, 0.5)] * 8), 8000)
    async with line() as wired, at_the_page(chromium, measuring(wired.here)) as person:
        await person.ready()
        async with under_way(wired) as (caller, ours):
            ear = Ear(caller)
            await person.page.get_by_role("button", name="Listen in").click()
            await person.visit.listen()
            await person.is_("up")
            await caller.play(theirs, 8000)
            await ours.play(ours_says, 8000)
            heard = await person.visit.heard()
            quiet_until = len(ear.frames)
            await person.button("Talk")
            await ear.sound(4.0)
            await person.button("Leave")
            await person.is_("ended")
            assert not ours.over
            await caller.hangup()
            frames = ear.frames
            await ear.heard()
        before = np.concatenate([each.samples for each in frames[:quiet_until]])
        after = np.concatenate([each.samples for each in frames[quiet_until:]])
    for sound in (theirs, ours_says):
        like = likeness(sound, 8000, heard.samples, heard.rate_hz)
        assert like.found >= 0.8 * like.segments, like
    # Before Talk the caller heard the agent alone.
    told = likeness(mine, 8000, before, 8000)
    assert told.found < 0.3 * told.segments, told
    told = likeness(mine, 8000, after, 8000)
    assert told.found >= 0.3 * told.segments, told


async def test_the_list_of_calls_follows_them(chromium: Chromium) -> None:
    async with line() as wired, at_the_page(chromium, measuring(wired.here)) as person:
        await person.ready()
        entries = person.page.locator("#calls").get_by_role("button", name="Listen in")
        async with under_way(wired):
            await entries.wait_for()
            assert await entries.count() == 1
        async with asyncio.timeout(10):
            await entries.wait_for(state="detached")
