"""A far end that hands the desk's call on: the chat session goes on in the new call."""

from __future__ import annotations

import asyncio

import pytest

from mr_qwen3tts.calls.phone import phone_settings
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.audio.frames import KeyPressed
from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.dialling.guard import CallNotAllowed, Guard
from qwen3tts_server.run import running_server
from tests.e2e.parties import Ear
from tests.e2e.test_handed_on import hand_on
from tests.plugin.desk_parties import (
    Session,
    Wishes,
    WritingHost,
    desk,
    person,
    reached,
    rung,
    until_ended,
)

ACCEPTS = Wishes(sip_transfers="accept")


@pytest.mark.network
@pytest.mark.parametrize("leave_first", [False, True])
async def test_the_session_of_a_call_that_came_in_goes_on(leave_first: bool) -> None:
    host = WritingHost()
    async with (
        asyncio.timeout(30),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        desk(host, ACCEPTS, url=server.url) as there,
        person() as caller,
        person() as third,
    ):
        theirs = await reached(caller, await there.ready())
        log_id, message = await host.message()
        assert "INCOMING CALL" in message
        taken = await hand_on(theirs, third, leave_first=leave_first)
        again, message = await host.message()
        assert again == log_id
        assert message.strip().startswith(f"SYSTEM: -- CALL TRANSFERRED to {third.uri}")
        (shown,) = there.snapshot()["calls"]
        assert (shown["log_id"], shown["remote"]) == (log_id, third.uri)
        speaker = there.speaker_of(log_id)
        assert speaker is not None
        ear = Ear(taken)
        assert (await speaker.say("Good morning.").spoken()).heard.strip() == "Good morning."
        await ear.sound(0.3)
        await taken.send_dtmf("5")
        assert "pressed 5" in (await host.message())[1]
        await taken.hangup()
        assert "DISCONNECTED" in (await host.message())[1]
        assert there.over(log_id)
        assert len(host.sessions) == 1
        assert host.problems == []


@pytest.mark.network
async def test_a_call_that_the_agent_made_goes_on_and_ends_with_its_hangup() -> None:
    session = Session("s1")
    host = WritingHost()
    async with (
        asyncio.timeout(30),
        desk(host, ACCEPTS) as there,
        person() as callee,
        person() as third,
    ):
        calling = asyncio.create_task(there.call(callee.uri, session))
        theirs = await rung(callee)
        await theirs.answer()
        assert await calling is None
        taken = await hand_on(theirs, third)
        assert "TRANSFERRED" in (await host.message())[1]
        assert await there.send_dtmf("7", session) is None
        async for event in taken.events:
            if isinstance(event, KeyPressed):
                assert event.digit == "7"
                break
        assert await there.hangup(session) is None
        assert await until_ended(taken) == "the other side hung up"
        assert there.over("s1")


@pytest.mark.network
async def test_a_call_that_replaces_the_sessions_call_gets_the_session() -> None:
    host = WritingHost()
    async with (
        asyncio.timeout(30),
        desk(host) as there,
        person() as caller,
        person() as other,
    ):
        theirs: PhoneCall = await reached(caller, uri := await there.ready())
        log_id, _ = await host.message()
        new = await other.dial(uri, {"Replaces": theirs.sip.as_replaced().value})
        await new.answered()
        await until_ended(theirs)
        assert (await host.message())[0] == log_id
        assert len(host.sessions) == 1
        await new.hangup()
        assert "DISCONNECTED" in (await host.message())[1]


@pytest.mark.parametrize(
    ("server", "allow", "target", "may"),
    [
        (None, (), "sip:bob@192.0.2.7", True),
        (None, (), "sip:112@192.0.2.7", False),
        (None, ("+4930*",), "sip:+4930123@192.0.2.7", False),
        ("pbx.example.org", ("+4930*",), "sip:+4930123@pbx.example.org", True),
        ("pbx.example.org", ("+4930*",), "sip:+4930123@elsewhere.example", False),
        ("pbx.example.org", ("sip:*@pbx.example.org",), "sip:bob@pbx.example.org", True),
        ("pbx.example.org", (), "sip:+19005550123@pbx.example.org", False),
    ],
)
def test_a_far_end_may_hand_on_where_the_agent_may_call(
    server: str | None, allow: tuple[str, ...], target: str, may: bool
) -> None:
    wishes = Wishes(sip_transfers="accept", sip_server=server, sip_allow=allow)
    rules = phone_settings(wishes).guard
    assert rules is not None
    if may:
        Guard(rules).check(target, 0.0)
    else:
        with pytest.raises(CallNotAllowed):
            Guard(rules).check(target, 0.0)


def test_transfers_are_refused_unless_the_settings_say_otherwise() -> None:
    assert phone_settings(Wishes()).transfers == "refuse"
