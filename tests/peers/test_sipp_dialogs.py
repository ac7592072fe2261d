"""Dialogs with SIPp on 127.0.0.1: forks, glare, PRACK, UPDATE, transfers, timers, lost messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qwen3tts_pacer.clock import LoopClock
from qwen3tts_phone.errors import CallRefused
from qwen3tts_phone.sip import (
    Account,
    CallState,
    DtmfInfo,
    EarlyMedia,
    Ended,
    InfoReceived,
    ReferReceived,
    ReinviteConfirmed,
    ReinviteReceived,
    SipCall,
    SipEndpoint,
    SipSettings,
    Timers,
)
from tests.peers.sipp_runner import sipp
from tests.peers.test_sipp_signalling import next_call, session, take_call, uri

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("need_sipp")]

both_transports = pytest.mark.parametrize("transport", ["udp", "tcp"])
FAST = 30


class FastClock(LoopClock):
    """Time that goes thirty times as fast; the base timers are as much longer."""

    def now(self) -> float:
        return super().now() * FAST

    async def sleep_until(self, deadline: float) -> None:
        await super().sleep_until(deadline / FAST)


@pytest.fixture
async def endpoint() -> AsyncIterator[SipEndpoint]:
    async with SipEndpoint(SipSettings()) as endpoint:
        yield endpoint


async def accept_changes(call: SipCall) -> list[object]:
    """Answer each change of the session; gives all events."""
    ours = session()
    seen: list[object] = []
    async for event in call.events:
        seen.append(event)
        if isinstance(event, ReinviteReceived):
            event.respond(ours.answer(event.offer)[0] if event.offer else ours.offer())
    return seen


async def test_of_two_phones_that_answer_one_is_the_call(
    endpoint: SipEndpoint, tmp_path: Path
) -> None:
    async with sipp("uas_forks", tmp_path) as peer:
        call = await endpoint.place(uri(peer.port), session().offer())
        answer = await asyncio.wait_for(call.answered(), 10)
        assert "m=audio 6004" in (answer or "")
        early = []
        async for event in call.events:
            if isinstance(event, EarlyMedia):
                early.append((event.tag, event.sdp))
            elif isinstance(event, InfoReceived):
                # By now the other one has been hung up.
                assert call.state is CallState.UP
                await call.bye()
        await peer.succeeded()
    assert [tag for tag, _ in early] == ["a", "b"]
    for (_, sdp), port in zip(early, (6000, 6002), strict=True):
        assert f"m=audio {port}" in sdp


@both_transports
async def test_reliable_early_media_is_acknowledged_and_changed(
    endpoint: SipEndpoint, tmp_path: Path, transport: str
) -> None:
    async with sipp("uas_is_reliable", tmp_path, transport=transport) as peer:
        ours = session()
        call = await endpoint.place(uri(peer.port, transport), ours.offer())
        events = call.events
        async for event in events:
            if isinstance(event, EarlyMedia):
                break
        await asyncio.wait_for(call.update(ours.offer()), 10)
        answer = await asyncio.wait_for(call.answered(), 10)
        assert "m=audio 6002" in (answer or "")
        await call.bye()
        await peer.succeeded()


@both_transports
async def test_our_early_media_is_sent_until_it_is_acknowledged(
    endpoint: SipEndpoint, tmp_path: Path, transport: str
) -> None:
    async with sipp("uac_is_reliable", tmp_path, call=endpoint.port, transport=transport) as peer:
        call = await next_call(endpoint)
        ours = session()
        assert call.offer is not None
        sdp, _ = ours.answer(call.offer)
        call.ringing(sdp)
        async for event in call.events:
            if isinstance(event, ReinviteReceived):
                assert (event.method, event.early) == ("UPDATE", True)
                event.respond(ours.answer(event.offer or "")[0])
            elif isinstance(event, ReinviteConfirmed):
                await call.answer(sdp)
        await peer.succeeded()
    assert call.ended is not None
    assert call.ended.by == "remote"


async def test_two_changes_that_meet_are_both_made(endpoint: SipEndpoint, tmp_path: Path) -> None:
    async with sipp("uas_glares", tmp_path) as peer:
        ours = session()
        call = await endpoint.place(uri(peer.port), ours.offer())
        answering = asyncio.create_task(accept_changes(call))
        answer = await asyncio.wait_for(call.answered(), 10)
        ours.accept(answer or "")
        # The wait after 491 is 2.1 to 4 s for whoever made the call (RFC 3261 section 14.1).
        await asyncio.wait_for(call.reinvite(ours.offer), 10)
        await call.bye()
        await peer.succeeded()
        assert any(isinstance(event, ReinviteReceived) for event in await answering)


async def test_a_server_that_asks_for_ever_is_told_by_its_realm(
    endpoint: SipEndpoint, tmp_path: Path
) -> None:
    async with sipp("uas_challenges_for_ever", tmp_path) as peer:
        account = Account(uri(peer.port).replace("bob@", ""), "alice", "secret")
        call = await endpoint.place(uri(peer.port), session().offer(), account)
        with pytest.raises(CallRefused, match="401") as refused:
            await asyncio.wait_for(call.answered(), 10)
        await peer.succeeded()
    assert (refused.value.realm, refused.value.user) == ("sipp.test", "alice")
    assert "goes on asking" in (refused.value.remedy or "")


@pytest.mark.parametrize("method", ["invite", "update"])
async def test_a_session_is_refreshed_as_the_far_end_can(tmp_path: Path, method: str) -> None:
    timers = Timers(t1=0.5 * FAST, t2=4.0 * FAST, t4=5.0 * FAST)
    settings = SipSettings(session_expires_s=90, timers=timers)
    async with (
        SipEndpoint(settings, FastClock()) as endpoint,
        sipp(f"uas_is_refreshed_by_{method}", tmp_path) as peer,
    ):
        call = await endpoint.place(uri(peer.port), session().offer())
        await asyncio.wait_for(call.answered(), 10)
        ended = await asyncio.wait_for(call.wait_ended(), 15)
        assert ended.by == "remote"
        await peer.succeeded()


async def test_we_hand_a_call_on_and_are_told_how_it_goes(
    endpoint: SipEndpoint, tmp_path: Path
) -> None:
    async with sipp("uas_takes_a_transfer", tmp_path) as peer:
        call = await endpoint.place(uri(peer.port), session().offer())
        await asyncio.wait_for(call.answered(), 10)
        transfer = await asyncio.wait_for(call.refer("sip:carol@example.com"), 10)
        assert await asyncio.wait_for(transfer.done(), 10) == 200
        assert [notice.status async for notice in transfer.events] == [180, 200]
        await call.bye()
        await peer.succeeded()


async def test_we_are_handed_on_and_tell_how_it_goes(endpoint: SipEndpoint, tmp_path: Path) -> None:
    async with sipp("uac_transfers", tmp_path, call=endpoint.port) as peer:
        call = await next_call(endpoint)
        assert call.offer is not None
        await call.answer(session().answer(call.offer)[0])
        async for event in call.events:
            if isinstance(event, ReferReceived):
                assert event.target == "sip:carol@example.com"
                assert event.referred_by == "sip:sipp@example.com"
                event.accept()
                event.notify(200, "OK")
        await peer.succeeded()


async def test_a_key_comes_by_info(endpoint: SipEndpoint, tmp_path: Path) -> None:
    async with sipp("uac_presses_a_key", tmp_path, call=endpoint.port) as peer:
        seen = await take_call(await next_call(endpoint))
        await peer.succeeded()
    assert DtmfInfo("5", 160) in seen


async def test_calls_are_complete_where_one_message_of_ten_is_lost(
    endpoint: SipEndpoint, tmp_path: Path
) -> None:
    async with (
        sipp(
            "uac_hangs_up",
            tmp_path,
            call=endpoint.port,
            calls=20,
            rate=50,
            options=("-d", "100", "-lost", "10"),
            timeout_s=60,
        ) as peer,
        asyncio.TaskGroup() as group,
    ):
        handled = [group.create_task(take_call(await next_call(endpoint))) for _ in range(20)]
        await peer.succeeded(60)
    assert all(isinstance(task.result()[-1], Ended) for task in handled)


async def test_a_hundred_calls_at_once_both_ways(endpoint: SipEndpoint, tmp_path: Path) -> None:
    async with (
        sipp(
            "uac_hangs_up",
            tmp_path / "in",
            call=endpoint.port,
            calls=100,
            rate=100,
            options=("-d", "4000"),
            timeout_s=60,
        ) as callers,
        sipp("uas_answers", tmp_path / "out", calls=100, timeout_s=60) as callees,
        asyncio.TaskGroup() as group,
    ):
        placed = [await endpoint.place(uri(callees.port), session().offer()) for _ in range(100)]
        handled = [group.create_task(take_call(await next_call(endpoint))) for _ in range(100)]
        async with asyncio.timeout(30):
            await asyncio.gather(*(call.answered() for call in placed))
            assert len(endpoint.agent.calls) == 200
            await asyncio.gather(*(call.bye() for call in placed))
        await callees.succeeded(30)
        await callers.succeeded(30)
    assert all(isinstance(task.result()[-1], Ended) for task in handled)
    assert not endpoint.agent.calls
    assert not endpoint.agent.registry
