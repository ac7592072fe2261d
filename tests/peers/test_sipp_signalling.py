"""Real calls with SIPp on 127.0.0.1: what it says is judged by SIPp's own scenarios."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qwen3tts_phone.errors import CalleeUnreachable, CallRefused, PortBusy
from qwen3tts_phone.sdp.session import SdpSession
from qwen3tts_phone.sip import (
    Account,
    Answered,
    CallState,
    Ended,
    ReinviteReceived,
    Ringing,
    SipCall,
    SipEndpoint,
    SipSettings,
)
from tests.peers.sipp_runner import sipp

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("need_sipp")]

both_transports = pytest.mark.parametrize("transport", ["udp", "tcp"])
RTP_PORT = 40000


@pytest.fixture
async def endpoint() -> AsyncIterator[SipEndpoint]:
    async with SipEndpoint(SipSettings(display_name="The agent")) as endpoint:
        yield endpoint


def uri(port: int, transport: str = "udp") -> str:
    return f"sip:bob@127.0.0.1:{port}" + (";transport=tcp" if transport == "tcp" else "")


def session() -> SdpSession:
    return SdpSession("127.0.0.1", RTP_PORT)


async def take_call(call: SipCall, *, hang_up_after_s: float | None = None) -> list[object]:
    """Ring, answer, accept every change of the session; gives all events."""
    ours = session()
    assert call.offer is not None
    sdp, _ = ours.answer(call.offer)
    call.ringing()
    await call.answer(sdp)
    seen: list[object] = []
    async for event in call.events:
        seen.append(event)
        if isinstance(event, Answered) and hang_up_after_s is not None:
            await asyncio.sleep(hang_up_after_s)
            await call.bye()
        elif isinstance(event, ReinviteReceived) and event.offer is not None:
            event.respond(ours.answer(event.offer)[0])
    return seen


async def next_call(endpoint: SipEndpoint) -> SipCall:
    async with asyncio.timeout(15):
        return await anext(endpoint.incoming)


@both_transports
async def test_we_call_and_hang_up(endpoint: SipEndpoint, tmp_path: Path, transport: str) -> None:
    async with sipp("uas_answers", tmp_path, transport=transport) as peer:
        ours = session()
        call = await endpoint.place(uri(peer.port, transport), ours.offer())
        answer = await call.answered()
        assert answer is not None
        assert ours.accept(answer).payload_name == "PCMU"
        await call.bye()
        seen = [event async for event in call.events]
        await peer.succeeded()
    assert [type(event) for event in seen] == [Ringing, Answered, Ended]
    assert call.ended is not None
    assert call.ended.by == "local"


@both_transports
async def test_the_callee_hangs_up(endpoint: SipEndpoint, tmp_path: Path, transport: str) -> None:
    async with sipp("uas_hangs_up", tmp_path, transport=transport) as peer:
        call = await endpoint.place(uri(peer.port, transport), session().offer())
        ended = await call.wait_ended()
        await peer.succeeded()
    assert ended.by == "remote"
    assert ended.error is None


@pytest.mark.parametrize("status", ["401", "407"])
@both_transports
async def test_a_digest_challenge_is_answered(
    endpoint: SipEndpoint, tmp_path: Path, status: str, transport: str
) -> None:
    async with sipp(f"uas_challenges_{status}", tmp_path, transport=transport) as peer:
        account = Account(uri(peer.port, transport), "alice", "secret")
        call = await endpoint.place(
            uri(peer.port, transport), session().offer(), account, headers={"X-Extra": "kept"}
        )
        await call.answered()
        await call.bye()
        await peer.succeeded()


@pytest.mark.parametrize("leaving", ["unregister", "close"])
async def test_a_registrar_is_given_the_password_refreshed_and_left(
    endpoint: SipEndpoint, tmp_path: Path, leaving: str
) -> None:
    async with sipp("uas_registers", tmp_path) as peer:
        account = Account(uri(peer.port).replace("bob@", ""), "alice", "secret", expires=60)
        async with asyncio.timeout(10):
            registration = await endpoint.register(account)
            assert registration.granted_s == 2
            assert registration.state.name == "REGISTERED"
            await registration.refreshed()
            await (registration.unregister() if leaving == "unregister" else endpoint.close())
        assert registration.state.name == "ENDED"
        await peer.succeeded()


async def test_a_challenge_without_an_account_is_a_refusal_that_says_so(
    endpoint: SipEndpoint, tmp_path: Path
) -> None:
    async with sipp("uas_challenges_401", tmp_path) as peer:
        call = await endpoint.place(uri(peer.port), session().offer(), headers={"X-Extra": "kept"})
        with pytest.raises(CallRefused, match="password") as refused:
            await call.answered()
    assert refused.value.status == 401


async def test_a_busy_callee_is_a_refusal(endpoint: SipEndpoint, tmp_path: Path) -> None:
    async with sipp("uas_busy", tmp_path) as peer:
        call = await endpoint.place(uri(peer.port), session().offer())
        with pytest.raises(CallRefused, match="486 Busy Here"):
            await call.answered()
        await peer.succeeded()
    assert call.ended is not None
    assert (call.ended.by, call.ended.status) == ("remote", 486)


@both_transports
async def test_a_ringing_call_is_cancelled(
    endpoint: SipEndpoint, tmp_path: Path, transport: str
) -> None:
    async with sipp("uas_cancelled", tmp_path, transport=transport) as peer:
        call = await endpoint.place(uri(peer.port, transport), session().offer())
        async for event in call.events:
            if isinstance(event, Ringing):
                break
        await call.cancel()
        await peer.succeeded()
    assert call.ended is not None
    assert (call.ended.by, call.ended.status, call.ended.error) == ("local", 487, None)


async def test_ack_and_bye_follow_the_recorded_route(endpoint: SipEndpoint, tmp_path: Path) -> None:
    async with sipp("uas_record_route", tmp_path) as peer:
        call = await endpoint.place(uri(peer.port), session().offer())
        await call.answered()
        await call.bye()
        await peer.succeeded()


@both_transports
async def test_we_hold_and_resume(endpoint: SipEndpoint, tmp_path: Path, transport: str) -> None:
    async with sipp("uas_is_held", tmp_path, transport=transport) as peer:
        ours = session()
        call = await endpoint.place(uri(peer.port, transport), ours.offer())
        answer = await call.answered()
        assert answer is not None
        ours.accept(answer)
        held = await call.hold(ours)
        assert (held.send, held.receive) == (True, False)
        resumed = await call.resume(ours)
        assert (resumed.send, resumed.receive) == (True, True)
        await call.bye()
        await peer.succeeded()


@both_transports
async def test_they_call_and_hang_up(endpoint: SipEndpoint, tmp_path: Path, transport: str) -> None:
    async with sipp(
        "uac_hangs_up", tmp_path, call=endpoint.port, transport=transport, options=("-d", "100")
    ) as peer:
        seen = await take_call(await next_call(endpoint))
        await peer.succeeded()
    assert [type(event) for event in seen] == [Answered, Ended]


@both_transports
async def test_they_call_and_we_hang_up(
    endpoint: SipEndpoint, tmp_path: Path, transport: str
) -> None:
    async with sipp("uac_is_hung_up_on", tmp_path, call=endpoint.port, transport=transport) as peer:
        seen = await take_call(await next_call(endpoint), hang_up_after_s=0.1)
        await peer.succeeded()
    assert [type(event) for event in seen] == [Answered, Ended]


@both_transports
async def test_they_hold_and_resume(endpoint: SipEndpoint, tmp_path: Path, transport: str) -> None:
    async with sipp("uac_holds", tmp_path, call=endpoint.port, transport=transport) as peer:
        seen = await take_call(await next_call(endpoint))
        await peer.succeeded()
    assert sum(isinstance(event, ReinviteReceived) for event in seen) == 3


@both_transports
async def test_they_cancel_while_it_rings(
    endpoint: SipEndpoint, tmp_path: Path, transport: str
) -> None:
    async with sipp("uac_cancels", tmp_path, call=endpoint.port, transport=transport) as peer:
        call = await next_call(endpoint)
        call.ringing()
        ended = await call.wait_ended()
        await peer.succeeded()
    assert (ended.by, ended.status) == ("remote", 487)
    assert call.state is CallState.ENDED


async def test_compact_headers_without_a_length_are_understood(
    endpoint: SipEndpoint, tmp_path: Path
) -> None:
    async with sipp("uac_is_compact", tmp_path, call=endpoint.port) as peer:
        call = await next_call(endpoint)
        assert call.remote_uri.startswith("sip:sipp@127.0.0.1")
        await take_call(call)
        await peer.succeeded()


@both_transports
async def test_options_are_answered(endpoint: SipEndpoint, tmp_path: Path, transport: str) -> None:
    async with sipp("uac_asks_options", tmp_path, call=endpoint.port, transport=transport) as peer:
        await peer.succeeded()


@both_transports
async def test_fifty_calls_at_once(endpoint: SipEndpoint, tmp_path: Path, transport: str) -> None:
    most = 0
    async with (
        sipp(
            "uac_hangs_up",
            tmp_path,
            call=endpoint.port,
            calls=50,
            rate=50,
            transport=transport,
            options=("-d", "2000"),
        ) as peer,
        asyncio.TaskGroup() as group,
    ):
        handled = []
        for _ in range(50):
            handled.append(group.create_task(take_call(await next_call(endpoint))))
            most = max(most, len(endpoint.agent.calls))
        await peer.succeeded()
    assert all(isinstance(task.result()[-1], Ended) for task in handled)
    assert most == 50
    assert not endpoint.agent.calls


async def test_fifty_calls_of_ours(endpoint: SipEndpoint, tmp_path: Path) -> None:
    async with sipp("uas_answers", tmp_path, calls=50) as peer:
        calls = [await endpoint.place(uri(peer.port), session().offer()) for _ in range(50)]
        async with asyncio.timeout(15):
            await asyncio.gather(*(call.answered() for call in calls))
            assert len(endpoint.agent.calls) == 50
            await asyncio.gather(*(call.bye() for call in calls))
        await peer.succeeded()
    assert not endpoint.agent.calls


@both_transports
async def test_nobody_listening_is_unreachable_at_once(
    endpoint: SipEndpoint, tmp_path: Path, transport: str
) -> None:
    async with sipp("uas_answers", tmp_path) as gone:
        port = gone.port
    async with asyncio.timeout(5):
        call = await endpoint.place(uri(port, transport), session().offer())
        with pytest.raises(CalleeUnreachable, match="Check address and port"):
            await call.answered()


async def test_a_port_that_sipp_has_is_busy(tmp_path: Path) -> None:
    async with sipp("uas_answers", tmp_path) as peer:
        other = SipEndpoint(SipSettings(port=peer.port))
        with pytest.raises(PortBusy, match="choose another"):
            await other.start()
