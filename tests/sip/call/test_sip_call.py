"""Calls as a program sees them, on 127.0.0.1: transfers, INFO, headers, early media, changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import pytest

from qwen3tts_phone.errors import BadSip, CallRefused, TransferFailed, WrongState
from qwen3tts_phone.sip import (
    Answered,
    CallEvent,
    CallState,
    DtmfInfo,
    EarlyMedia,
    Ended,
    InfoReceived,
    ReferReceived,
    ReinviteReceived,
    SipCall,
    SipEndpoint,
    SipSettings,
    Transfer,
)
from tests.sip.phones import QUICK
from tests.sip.wire import ANSWER, OFFER

pytestmark = pytest.mark.network

EARLY = ANSWER.replace("50000", "52000")
E = TypeVar("E", bound=CallEvent)


class Line:
    """An endpoint and what happens to its calls."""

    def __init__(self, endpoint: SipEndpoint) -> None:
        self.endpoint = endpoint
        self._incoming = endpoint.incoming
        self._events: dict[SipCall, AsyncIterator[Any]] = {}

    async def called(self) -> SipCall:
        return await asyncio.wait_for(anext(self._incoming), 5)

    async def until(self, call: SipCall, kind: type[E]) -> E:
        """The next event of one kind."""
        events = self._events.setdefault(call, call.events)
        async with asyncio.timeout(5):
            async for event in events:
                if isinstance(event, kind):
                    return event
        raise AssertionError(f"no {kind.__name__}")


@pytest.fixture
async def lines() -> AsyncIterator[list[Line]]:
    async with (
        SipEndpoint(SipSettings(timers=QUICK, user="alice")) as one,
        SipEndpoint(SipSettings(timers=QUICK, user="bob")) as two,
        SipEndpoint(SipSettings(timers=QUICK, user="carol")) as three,
    ):
        yield [Line(one), Line(two), Line(three)]


async def connected(
    caller: Line, callee: Line, headers: dict[str, str] | None = None
) -> tuple[SipCall, SipCall]:
    """A call that is up at both ends."""
    ours = await caller.endpoint.place(callee.endpoint.uri, OFFER, headers=headers)
    theirs = await callee.called()
    await theirs.answer(ANSWER)
    await asyncio.wait_for(ours.answered(), 5)
    await callee.until(theirs, Answered)
    return ours, theirs


async def notices(transfer: Transfer) -> list[tuple[int, bool]]:
    async with asyncio.timeout(5):
        return [(notice.status, notice.final) async for notice in transfer.events]


async def test_a_blind_transfer_is_made_and_told(lines: list[Line]) -> None:
    alice, bob, carol = lines
    ours, theirs = await connected(alice, bob)
    referring = asyncio.create_task(ours.refer(carol.endpoint.uri))
    asked = await bob.until(theirs, ReferReceived)
    assert (asked.target, asked.replaces) == (carol.endpoint.uri, None)
    assert "alice" in (asked.referred_by or "")
    asked.accept()
    transfer = await asyncio.wait_for(referring, 5)
    assert not transfer.quiet
    new = await bob.endpoint.place(asked.target, OFFER)
    third = await carol.called()
    third.ringing()
    asked.notify(180, "Ringing")
    await third.answer(ANSWER)
    await asyncio.wait_for(new.answered(), 5)
    asked.notify(200, "OK")
    assert await asyncio.wait_for(transfer.done(), 5) == 200
    assert await notices(transfer) == [(100, False), (180, False), (200, True)]
    await ours.bye()
    assert new.state is CallState.UP


async def test_an_attended_transfer_replaces_the_call_with_the_target(lines: list[Line]) -> None:
    alice, bob, carol = lines
    ours, theirs = await connected(alice, bob)
    consulting, at_carol = await connected(alice, carol)
    referring = asyncio.create_task(ours.refer(carol.endpoint.uri, replaces=consulting))
    asked = await bob.until(theirs, ReferReceived)
    assert asked.replaces is not None
    asked.accept()
    transfer = await asyncio.wait_for(referring, 5)
    headers = {"Replaces": asked.replaces.value}
    new = await bob.endpoint.place(asked.target, OFFER, headers=headers)
    taking = await carol.called()
    assert taking.replaces is at_carol
    await taking.answer(ANSWER)
    await asyncio.wait_for(new.answered(), 5)
    # The answer to the new call has ended the old one.
    ended = await asyncio.wait_for(consulting.wait_ended(), 5)
    assert ended.by == "remote"
    assert at_carol.replaced_by is taking
    asked.notify(200, "OK")
    assert await asyncio.wait_for(transfer.done(), 5) == 200


async def test_a_refused_transfer_is_an_error_of_the_request(lines: list[Line]) -> None:
    alice, bob, _ = lines
    ours, theirs = await connected(alice, bob)
    referring = asyncio.create_task(ours.refer("sip:absent@127.0.0.1:9"))
    (await bob.until(theirs, ReferReceived)).refuse(603)
    with pytest.raises(CallRefused, match="transfer was refused: 603"):
        await asyncio.wait_for(referring, 5)
    assert ours.state is CallState.UP


async def test_a_transfer_of_which_nothing_is_told_ends_in_an_error(lines: list[Line]) -> None:
    alice, bob, _ = lines
    ours, theirs = await connected(alice, bob)
    referring = asyncio.create_task(ours.refer("sip:absent@127.0.0.1:9"))
    asked = await bob.until(theirs, ReferReceived)
    asked.accept()
    transfer = await asyncio.wait_for(referring, 5)
    # The call ends and no final notice comes: 64*T1 later it is given up.
    await ours.bye()
    with pytest.raises(TransferFailed, match="did not say"):
        await asyncio.wait_for(transfer.done(), 10)


async def test_a_closed_endpoint_leaves_nobody_waiting_for_notices() -> None:
    async with SipEndpoint(SipSettings(timers=QUICK)) as other:
        async with SipEndpoint(SipSettings(timers=QUICK)) as endpoint:
            alice, bob = Line(endpoint), Line(other)
            ours, theirs = await connected(alice, bob)
            referring = asyncio.create_task(ours.refer("sip:absent@127.0.0.1:9"))
            (await bob.until(theirs, ReferReceived)).accept()
            transfer = await asyncio.wait_for(referring, 5)
        with pytest.raises(TransferFailed):
            await asyncio.wait_for(transfer.done(), 5)


@pytest.mark.parametrize("target", ["carol", "", "http://x", "sip:a@b>,<sip:c@d"])
async def test_a_target_that_cannot_be_called_is_refused(lines: list[Line], target: str) -> None:
    ours, _ = await connected(lines[0], lines[1])
    with pytest.raises(BadSip):
        await ours.refer(target)


async def test_what_needs_a_call_that_is_up_is_wrong_state_without_one(lines: list[Line]) -> None:
    alice, bob, carol = lines
    ours = await alice.endpoint.place(bob.endpoint.uri, OFFER)
    theirs = await bob.called()
    with pytest.raises(WrongState):
        await ours.refer(carol.endpoint.uri)
    with pytest.raises(WrongState):
        await ours.update(OFFER)
    with pytest.raises(WrongState):
        ours.as_replaced()
    await theirs.reject(486)
    with pytest.raises(CallRefused):
        await asyncio.wait_for(ours.answered(), 5)
    for asking in (ours.info("text/plain", b"x"), ours.probe()):
        with pytest.raises(WrongState):
            await asking


async def test_keys_and_other_news_come_by_info(lines: list[Line]) -> None:
    alice, bob, _ = lines
    ours, theirs = await connected(alice, bob)
    await asyncio.wait_for(ours.send_dtmf_info("5", 120), 5)
    assert await bob.until(theirs, DtmfInfo) == DtmfInfo("5", 120)
    await asyncio.wait_for(theirs.info("text/plain", b"hello"), 5)
    assert await alice.until(ours, InfoReceived) == InfoReceived("text/plain", b"hello")
    with pytest.raises(CallRefused, match="INFO was refused: 400"):
        await ours.info("application/dtmf", b"nothing")
    with pytest.raises(ValueError, match="digit="):
        await ours.send_dtmf_info("x")
    with pytest.raises(BadSip):
        await ours.info("text/plain\r\nEvil: x", b"hello")


async def test_a_far_end_that_is_there_answers_and_one_that_has_no_such_call_does_not(
    lines: list[Line],
) -> None:
    alice, bob, _ = lines
    ours, theirs = await connected(alice, bob)
    assert await asyncio.wait_for(ours.probe(), 5)
    assert await asyncio.wait_for(theirs.probe(), 5)
    bob.endpoint.agent.registry.forget_dialogs(theirs.core)
    assert not await asyncio.wait_for(ours.probe(), 5)


async def test_headers_and_names_are_read_at_both_ends(lines: list[Line]) -> None:
    alice, bob, _ = lines
    headers = {
        "X-Order": "17",
        "P-Asserted-Identity": '"Us" <sip:us@example.com>',
        "Diversion": "<sip:desk@example.com>;reason=busy",
    }
    ours = await alice.endpoint.place(bob.endpoint.uri, OFFER, headers=headers)
    theirs = await bob.called()
    assert theirs.headers["x-order"] == "17"
    assert theirs.asserted_identity == "sip:us@example.com"
    assert theirs.diversion == "sip:desk@example.com"
    assert theirs.user_agent == "mr-qwen3tts"
    assert theirs.local_uri == bob.endpoint.uri
    assert theirs.transport == "udp"
    assert theirs.remote_address == ("127.0.0.1", alice.endpoint.port)
    assert theirs.allows("REFER")
    assert not theirs.allows("PUBLISH")
    answer = {"X-Desk": "4", "P-Asserted-Identity": "<sip:bob@example.com>"}
    await theirs.answer(ANSWER, headers=answer)
    await asyncio.wait_for(ours.answered(), 5)
    assert ours.answer_headers["x-desk"] == "4"
    assert ours.asserted_identity == "sip:bob@example.com"
    assert (ours.diversion, ours.display_name, dict(ours.headers)) == (None, "", {})
    assert ours.remote_address == ("127.0.0.1", bob.endpoint.port)
    await ours.bye(headers={"Reason": 'SIP;cause=200;text="Done"'})
    assert (await asyncio.wait_for(theirs.wait_ended(), 5)).reason == "Done"


async def test_early_media_and_its_change_come_before_the_answer(lines: list[Line]) -> None:
    alice, bob, _ = lines
    ours = await alice.endpoint.place(bob.endpoint.uri, OFFER)
    theirs = await bob.called()
    assert theirs.can_send_early_media
    theirs.ringing(EARLY)
    assert await alice.until(ours, EarlyMedia) == EarlyMedia(EARLY)
    changing = asyncio.create_task(ours.update(OFFER))
    asked = await bob.until(theirs, ReinviteReceived)
    assert (asked.method, asked.early) == ("UPDATE", True)
    asked.respond(ANSWER)
    assert await asyncio.wait_for(changing, 5) == ANSWER
    await theirs.answer(ANSWER)
    await asyncio.wait_for(ours.answered(), 5)
    assert theirs.local_sdp == ANSWER
    await ours.bye()


async def test_an_update_changes_a_call_that_is_up(lines: list[Line]) -> None:
    alice, bob, _ = lines
    ours, theirs = await connected(alice, bob)
    changing = asyncio.create_task(ours.update(OFFER))
    asked = await bob.until(theirs, ReinviteReceived)
    assert (asked.method, asked.early) == ("UPDATE", False)
    asked.respond(None)
    with pytest.raises(CallRefused, match="488"):
        await asyncio.wait_for(changing, 5)
    assert ours.state is CallState.UP


async def test_who_does_not_read_his_events_refuses_transfers(lines: list[Line]) -> None:
    alice, bob, _ = lines
    ours, theirs = await connected(alice, bob)
    for _ in range(70):
        await asyncio.wait_for(ours.send_dtmf_info("1"), 5)
    with pytest.raises(CallRefused, match="603"):
        await asyncio.wait_for(ours.refer("sip:x@127.0.0.1:9"), 5)
    await ours.bye()
    assert isinstance(await asyncio.wait_for(theirs.wait_ended(), 5), Ended)
