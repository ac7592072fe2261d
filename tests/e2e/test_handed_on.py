"""A far end that hands us on: the agent, the words and the record go on with the new call."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from qwen3tts_agent.agent import Agent
from qwen3tts_agent.settings import AgentSettings
from qwen3tts_cli.call import Attempts
from qwen3tts_cli.calls.answering import converse
from qwen3tts_cli.calls.call_run import CallPlan
from qwen3tts_cli.calls.phone import Telephone
from qwen3tts_cli.calls.text import TextSource
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.call import core, transfers
from qwen3tts_phone.call.call import CallTransferred
from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.diagnosis.outcome import Outcome
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.phone import Account, Phone, PhoneSettings
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_server.run import running_server
from tests.agent.endpoint import ChatEndpoint, says
from tests.e2e.agent_parties import Script
from tests.e2e.parties import Ear, connected
from tests.e2e.test_call_features import answer_next, event_of, next_call, silent
from tests.fakes import settle

pytestmark = pytest.mark.network

LONG = "One, two, three, four, five, six, seven, eight, nine, ten."
WITHIN_S = 40.0


@asynccontextmanager
async def speaking(**settings: Any) -> AsyncIterator[Phone]:
    """A phone that follows transfers and has a voice."""
    async with (
        asyncio.timeout(WITHIN_S),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        Phone(PhoneSettings(server_url=server.url, transfers="accept", **settings)) as phone,
    ):
        yield phone


def kept(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "calls.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


async def hand_on(theirs: PhoneCall, third: Phone, *, leave_first: bool = False) -> PhoneCall:
    """The far end sends REFER and hangs up; the third party's call."""
    answering = asyncio.create_task(answer_next(third))
    transfer = await theirs.sip.refer(third.uri)
    if leave_first:
        await theirs.hangup()
        return await answering
    taken = await answering
    assert await transfer.done() == 200
    await theirs.hangup()
    return taken


@pytest.mark.parametrize("leave_first", [False, True])
async def test_the_words_of_the_command_go_on_with_the_new_call(
    tmp_path: Path, leave_first: bool
) -> None:
    records = RecordSettings(log=tmp_path / "calls.jsonl")
    async with speaking(records=records) as phone, silent() as caller, silent() as third:
        theirs = await caller.dial(phone.uri)
        ours = await next_call(phone)
        talking = asyncio.create_task(converse(ours, TextSource(text=LONG), CallPlan()))
        await theirs.answered()
        await Ear(theirs).sound(1.0)
        taken = await hand_on(theirs, third, leave_first=leave_first)
        ear = Ear(taken)
        await ear.sound(0.5)
        await talking  # all was said, and the new call was hung up
        assert await taken.ended() == "the other side hung up"
        assert not phone.calls
    first, second = sorted(kept(tmp_path), key=lambda each: each["started"])
    assert first["continued_by"] == second["id"]
    assert second["continues"] == first["id"]
    assert second["utterances"] == 1
    assert second["end"]["by"] == "local"


async def test_a_call_of_the_command_goes_on_where_its_far_end_hands_it_on() -> None:
    async with speaking() as phone, silent() as callee, silent() as third:
        telephone = cast(Telephone, SimpleNamespace(headers=(), account=None))
        attempts = Attempts(phone, callee.uri, telephone, TextSource(text=LONG), CallPlan())
        calling = asyncio.create_task(attempts.attempt(1))
        theirs = await answer_next(callee)
        await Ear(theirs).sound(0.5)
        taken = await hand_on(theirs, third)
        await Ear(taken).sound(0.5)
        assert await calling is Outcome.ANSWERED
        assert attempts.error is None
        assert not phone.calls


async def test_the_agent_goes_on_with_what_was_said_before() -> None:
    script = Script(["I want rye bread."])
    greeted = asyncio.Event()
    async with (
        speaking() as phone,
        silent() as caller,
        silent() as third,
        ChatEndpoint(says("Hello, third party.")) as endpoint,
        Agent(
            endpoint.url,
            stt=script.recogniser,
            greeting="Bakery.",
            settings=AgentSettings(quiet_s=0),
            on_turn=lambda conversation, turn: greeted.set(),
        ) as agent,
    ):
        theirs = await caller.dial(phone.uri)
        ours = await next_call(phone)
        conversing = asyncio.create_task(agent.answer(ours))
        await theirs.answered()
        await greeted.wait()
        taken = await hand_on(theirs, third)
        ear = Ear(taken)
        await ear.sound(0.5)
        (new,) = phone.calls
        assert agent.conversations.keys() == {new.id}
        await taken.hangup()
        conversation = await conversing
        assert conversation.heard.startswith("Bakery. Hello")
        assert conversation.call_id == new.id
        assert conversation.ended == "the other side hung up"
        assert "transferred" in endpoint.requests[0].said[-1][1]


async def test_a_call_that_replaces_the_agents_call_gets_the_agent() -> None:
    async with (
        speaking() as phone,
        silent() as caller,
        silent() as other,
        ChatEndpoint(says("Hello once more.")) as endpoint,
        Agent(endpoint.url, stt=None, greeting=LONG, settings=AgentSettings(quiet_s=0)) as agent,
    ):
        theirs = await caller.dial(phone.uri)
        ours = await next_call(phone)
        conversing = asyncio.create_task(agent.answer(ours))
        await theirs.answered()
        await Ear(theirs).sound(1.0)
        value = theirs.sip.as_replaced().value
        new = await other.dial(phone.uri, {"Replaces": value})
        await new.answered()
        await theirs.ended()
        await Ear(new).sound(0.5)
        await new.hangup()
        conversation = await conversing
        assert [turn.kind for turn in conversation.turns] == ["greeting", "continued"]


async def test_a_call_that_nothing_takes_over_ends_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "CLAIM_WITHIN_S", 0.2)
    records = RecordSettings(log=tmp_path / "calls.jsonl")
    async with (
        silent(transfers="accept", records=records) as phone,
        silent() as caller,
        silent() as third,
        connected(phone, caller) as (_, theirs),
    ):
        taken = await hand_on(theirs, third)
        async with asyncio.timeout(10):
            assert await taken.ended() == "the other side hung up"
            await asyncio.gather(*(call.ended() for call in phone.calls))
    found = next(each for each in kept(tmp_path) if each["continues"])
    assert found["end"]["by"] == "local"
    assert "took over" in found["end"]["words"] or found["end"]["error"]


async def test_the_old_call_ends_where_the_far_end_leaves_it_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transfers, "HANDED_ON_S", 0.2)
    async with (
        silent(transfers="accept") as phone,
        silent() as caller,
        silent() as third,
        connected(phone, caller) as (ours, theirs),
    ):
        answering = asyncio.create_task(answer_next(third))
        await theirs.sip.refer(third.uri)
        new = (await event_of(ours, CallTransferred)).call
        async with asyncio.timeout(10):
            assert await theirs.ended() == "the other side hung up"
        assert new in phone.calls
        await new.hangup()
        await (await answering).ended()


async def test_hanging_up_stops_a_transfer_that_still_rings() -> None:
    async with (
        silent(transfers="accept") as phone,
        silent() as caller,
        silent() as third,
        connected(phone, caller) as (ours, theirs),
    ):
        await theirs.sip.refer(third.uri)
        ringing = await next_call(third)
        ringing.ringing()
        await ours.hangup()
        assert await ours.successor() is None
        async with asyncio.timeout(10):
            await ringing.ended()
        with pytest.raises(CallError):
            await ringing.answer()


async def test_a_transfer_is_dialled_with_the_account_of_its_call_and_never_with_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trunk = Account("sip:127.0.0.9:5099", "", name="trunk", register=False)
    async with (
        silent(transfers="accept", accounts=(trunk,)) as phone,
        silent() as caller,
        silent() as third,
        connected(phone, caller) as (ours, theirs),
    ):
        assert ours.account == ""
        taken = await hand_on(theirs, third)
        new = await ours.successor()
        assert new is not None
        assert new.account == ""
        await taken.hangup()


async def test_a_transfer_is_dialled_with_the_account_that_its_call_came_for() -> None:
    first = Account("sip:192.0.2.1", "", name="first", register=False, headers={"X-Line": "first"})
    trunk = Account(
        "sip:192.0.2.2",
        "",
        name="trunk",
        register=False,
        headers={"X-Line": "trunk"},
        allowed_sources=("127.0.0.0/8",),
    )
    async with (
        silent(transfers="accept", accounts=(first, trunk)) as phone,
        silent() as caller,
        silent() as third,
        connected(phone, caller) as (ours, theirs),
    ):
        taken = await hand_on(theirs, third)
        new = await ours.successor()
        assert new is not None
        assert (ours.account, new.account) == ("trunk", "trunk")
        assert taken.sip.headers["X-Line"] == "trunk"
        await taken.hangup()


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "Too many open files"), ValueError("a header that is none")]
)
async def test_a_transfer_whose_call_cannot_be_made_is_reported_to_the_far_end_and_logged(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        silent(transfers="accept") as phone,
        silent() as caller,
        connected(phone, caller) as (_, theirs),
    ):

        async def fail(*arguments: object, **options: object) -> None:
            raise error

        monkeypatch.setattr(phone._media, "open", fail)
        transfer = await theirs.sip.refer("sip:third@127.0.0.1:9")
        async with asyncio.timeout(10):
            assert await transfer.done() == 503
        await settle()
    assert [each for each in caplog.messages if "a transfer by the far end failed" in each]
    assert not [each for each in caplog.messages if "never retrieved" in each]
