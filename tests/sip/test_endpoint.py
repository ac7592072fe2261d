"""The endpoint with its sockets, on 127.0.0.1."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from qwen3tts_phone.errors import (
    BadSip,
    CalleeUnreachable,
    CallRefused,
    PortBusy,
    RegistrationFailed,
    WrongState,
)
from qwen3tts_phone.sip import (
    Account,
    Answered,
    CallState,
    Ended,
    ReinviteReceived,
    SipCall,
    SipEndpoint,
    SipSettings,
)
from tests.fakes import FakeClock, settle
from tests.sip.phones import QUICK, answer_all, good_call, session

pytestmark = pytest.mark.network


@pytest.fixture
async def endpoint() -> AsyncIterator[SipEndpoint]:
    async with SipEndpoint(SipSettings(timers=QUICK)) as endpoint:
        yield endpoint


@pytest.fixture
async def other() -> AsyncIterator[SipEndpoint]:
    async with SipEndpoint(SipSettings(timers=QUICK, user="other")) as other:
        yield other


@pytest.fixture
async def answering(other: SipEndpoint) -> AsyncIterator[list[SipCall]]:
    seen: list[SipCall] = []
    task = asyncio.create_task(answer_all(other, seen))
    yield seen
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("suffix", ["", ";transport=tcp"])
async def test_two_endpoints_call_hold_resume_and_hang_up(
    endpoint: SipEndpoint, other: SipEndpoint, answering: list[SipCall], suffix: str
) -> None:
    await good_call(endpoint, other.uri + suffix)
    (theirs,) = answering
    ended = await asyncio.wait_for(theirs.wait_ended(), 5)
    assert ended.by == "remote"


async def test_an_endpoint_can_call_itself(endpoint: SipEndpoint) -> None:
    ours = session()
    call = await endpoint.place(endpoint.uri, ours.offer())
    theirs = await asyncio.wait_for(anext(endpoint.incoming), 5)
    await theirs.answer(session(50000).answer(theirs.offer or "")[0])
    await asyncio.wait_for(call.answered(), 5)
    await call.bye()


async def test_a_host_name_is_looked_up(
    endpoint: SipEndpoint, other: SipEndpoint, answering: list[SipCall]
) -> None:
    await good_call(endpoint, f"sip:other@localhost:{other.port}")


@pytest.fixture
async def two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """``pbx.example`` is at 127.0.0.2, where nothing listens, and at 127.0.0.1."""

    def look_up(*args: object, **kwargs: object) -> list[object]:
        return [(0, 0, 0, "", (address, 0)) for address in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.mark.usefixtures("two_addresses")
@pytest.mark.parametrize("suffix", ["", ";transport=tcp"])
async def test_where_a_name_has_several_addresses_the_next_one_is_tried(
    endpoint: SipEndpoint, other: SipEndpoint, answering: list[SipCall], suffix: str
) -> None:
    await good_call(endpoint, f"sip:other@pbx.example:{other.port}{suffix}")


@pytest.mark.usefixtures("two_addresses")
@pytest.mark.parametrize("suffix", ["", ";transport=tcp"])
async def test_a_name_all_of_whose_addresses_are_deaf_is_unreachable(
    endpoint: SipEndpoint, suffix: str
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        port = gone.getsockname()[1]
    call = await endpoint.place(f"sip:bob@pbx.example:{port}{suffix}", session().offer())
    with pytest.raises(CalleeUnreachable, match="at pbx"):
        await asyncio.wait_for(call.answered(), 1.5)


async def test_a_host_without_an_address_is_unreachable(endpoint: SipEndpoint) -> None:
    with pytest.raises(CalleeUnreachable, match="no address"):
        await endpoint.place("sip:bob@absent.invalid", session().offer())


@pytest.mark.parametrize("suffix", ["", ";transport=tcp"])
async def test_nobody_listening_is_unreachable_at_once(endpoint: SipEndpoint, suffix: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        port = gone.getsockname()[1]
    call = await endpoint.place(f"sip:bob@127.0.0.1:{port}{suffix}", session().offer())
    with pytest.raises(CalleeUnreachable, match="Nothing listens") as error:
        await asyncio.wait_for(call.answered(), 1.5)
    assert error.value.retryable
    assert isinstance((await call.wait_ended()).error, CalleeUnreachable)


async def test_a_refused_datagram_does_not_disturb_the_others(
    endpoint: SipEndpoint, other: SipEndpoint, answering: list[SipCall]
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        port = gone.getsockname()[1]
    lost = [await endpoint.place(f"sip:bob@127.0.0.1:{port}", session().offer()) for _ in range(5)]
    await good_call(endpoint, other.uri)
    for call in lost:
        assert isinstance((await call.wait_ended()).error, CalleeUnreachable)


async def test_a_silent_callee_times_out(endpoint: SipEndpoint) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        call = await endpoint.place(f"sip:bob@127.0.0.1:{port}", session().offer())
        with pytest.raises(CalleeUnreachable, match="No answer"):
            await asyncio.wait_for(call.answered(), 10)


async def test_timers_follow_the_clock_that_is_given() -> None:
    clock = FakeClock()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        async with SipEndpoint(SipSettings(), clock) as endpoint:
            call = await endpoint.place(f"sip:bob@127.0.0.1:{port}", session().offer())
            await clock.advance(31.0)
            assert call.state is CallState.CALLING
            await clock.advance(1.5)
            await settle()
            assert call.ended is not None
            assert isinstance(call.ended.error, CalleeUnreachable)


async def test_a_busy_port_is_named_with_a_remedy(endpoint: SipEndpoint) -> None:
    second = SipEndpoint(SipSettings(port=endpoint.port))
    with pytest.raises(PortBusy, match=f"127.0.0.1:{endpoint.port}.*choose another"):
        await second.start()


async def test_an_address_of_another_machine_is_named_too() -> None:
    with pytest.raises(PortBusy, match="belongs to this machine"):
        await SipEndpoint(SipSettings(host="192.0.2.1")).start()


async def test_udp_and_tcp_share_the_port(endpoint: SipEndpoint) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
    writer.write(b"\r\n\r\n")
    assert await asyncio.wait_for(reader.readexactly(2), 5) == b"\r\n"
    writer.close()
    await writer.wait_closed()


async def test_a_tcp_stream_of_garbage_is_closed_and_the_rest_goes_on(
    endpoint: SipEndpoint, other: SipEndpoint, answering: list[SipCall]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", other.port)
    writer.write(b"garbage" * 5000)
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
    await good_call(endpoint, other.uri + ";transport=tcp")


async def test_the_port_of_via_is_no_matter_on_tcp(endpoint: SipEndpoint) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
    options = (
        "\r\nOPTIONS sip:agent@127.0.0.1 SIP/2.0\r\n"
        "Via: SIP/2.0/TCP 127.0.0.1:5060;branch=z9hG4bKtcp\r\n"
        "From: <sip:x@127.0.0.1>;tag=1\r\nTo: <sip:agent@127.0.0.1>\r\n"
        "Call-ID: over-tcp\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
    )
    writer.write(options.encode())
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    assert answer.startswith(b"SIP/2.0 200 OK")
    writer.close()
    await writer.wait_closed()


async def test_a_connection_that_breaks_during_a_call_is_made_anew(
    endpoint: SipEndpoint, other: SipEndpoint, answering: list[SipCall]
) -> None:
    call = await endpoint.place(other.uri + ";transport=tcp", session().offer())
    await asyncio.wait_for(call.answered(), 5)
    for connection in list(endpoint._listeners.bound[0].streams["tcp"]._connections.values()):
        connection.writer.transport.abort()
    await asyncio.sleep(0)
    await asyncio.wait_for(call.bye(), 5)
    ended = await asyncio.wait_for(answering[0].wait_ended(), 5)
    assert ended.by == "remote"


async def test_closing_hangs_up_what_is_up(other: SipEndpoint, answering: list[SipCall]) -> None:
    async with SipEndpoint(SipSettings(timers=QUICK)) as endpoint:
        calls = [await endpoint.place(other.uri, session().offer()) for _ in range(3)]
        await asyncio.gather(*(call.answered() for call in calls))
    for theirs in answering:
        assert (await asyncio.wait_for(theirs.wait_ended(), 5)).by == "remote"


async def test_closing_ends_the_stream_of_incoming_calls() -> None:
    endpoint = SipEndpoint()
    await endpoint.start()
    await endpoint.close()
    assert [call async for call in endpoint.incoming] == []
    with pytest.raises(WrongState):
        await endpoint.place("sip:x@127.0.0.1", "v=0")
    await endpoint.close()


async def test_operations_that_do_not_fit_the_call_say_so(
    endpoint: SipEndpoint, other: SipEndpoint
) -> None:
    call = await endpoint.place(other.uri, session().offer())
    theirs = await asyncio.wait_for(anext(other.incoming), 5)
    with pytest.raises(WrongState):
        await call.answer("v=0")
    with pytest.raises(WrongState):
        await theirs.cancel()
    with pytest.raises(WrongState):
        await theirs.reinvite("v=0")
    await theirs.reject(603, "No, thank you")
    with pytest.raises(CallRefused, match="603 No, thank you"):
        await asyncio.wait_for(call.answered(), 5)
    with pytest.raises(WrongState):
        await theirs.answer("v=0")
    await call.bye()
    await theirs.bye()
    seen = [event async for event in call.events]
    assert isinstance(seen[-1], Ended)


async def test_a_refused_hold_leaves_the_session_as_it_was(
    endpoint: SipEndpoint, other: SipEndpoint
) -> None:
    ours = session()
    call = await endpoint.place(other.uri, ours.offer())
    theirs = await asyncio.wait_for(anext(other.incoming), 5)
    await theirs.answer(session(50000).answer(theirs.offer or "")[0])
    ours.accept(await call.answered() or "")

    async def refuse() -> None:
        async for event in theirs.events:
            if isinstance(event, ReinviteReceived):
                event.respond(None)

    task = asyncio.create_task(refuse())
    with pytest.raises(CallRefused, match="488"):
        await asyncio.wait_for(call.hold(ours), 5)
    assert ours.direction_wanted == "sendrecv"
    assert call.state is CallState.UP
    await call.bye()
    await asyncio.wait_for(task, 5)


async def test_answered_is_told_to_a_callee_with_the_ack(
    endpoint: SipEndpoint, other: SipEndpoint
) -> None:
    call = await endpoint.place(other.uri, session().offer())
    theirs = await asyncio.wait_for(anext(other.incoming), 5)
    await theirs.answer(session(50000).answer(theirs.offer or "")[0])
    assert await asyncio.wait_for(theirs.answered(), 5) is None
    assert await asyncio.wait_for(anext(theirs.events), 5) == Answered(None)
    await call.bye()


async def test_a_registrar_that_is_not_there_fails_the_registration(
    endpoint: SipEndpoint,
) -> None:
    account = Account("sip:127.0.0.1:9;transport=tcp", "alice", "x")
    with pytest.raises(RegistrationFailed, match="refused the connection"):
        await asyncio.wait_for(endpoint.register(account), 5)


async def test_a_wildcard_address_is_not_what_the_far_end_is_told(
    other: SipEndpoint, answering: list[SipCall]
) -> None:
    async with SipEndpoint(SipSettings(host="0.0.0.0", timers=QUICK)) as endpoint:
        await good_call(endpoint, other.uri)
        assert "127.0.0.1" in endpoint.uri


async def test_settings_and_addresses_are_checked_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="transports"):
        SipSettings(transports=("tls",))
    with pytest.raises(ValueError, match="control character"):
        SipSettings(user="a\r\nb")
    async with SipEndpoint(SipSettings(transports=("udp",))) as endpoint:
        with pytest.raises(BadSip, match="not enabled"):
            await endpoint.place("sip:x@127.0.0.1;transport=tcp", "v=0")


async def test_a_peer_that_floods_a_call_nobody_reads_is_refused(
    endpoint: SipEndpoint, other: SipEndpoint
) -> None:
    call = await endpoint.place(other.uri, session().offer())
    theirs = await asyncio.wait_for(anext(other.incoming), 5)
    for number in range(200):
        theirs.ringing(session(50000 + 2 * (number % 50)).answer(theirs.offer or "")[0])
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    assert call._queue.qsize() <= 64
    await asyncio.wait_for(call.bye(), 5)
    assert isinstance([event async for event in call.events][-1], Ended)


async def test_calls_that_were_given_up_before_anybody_looked_are_passed_by(
    endpoint: SipEndpoint, other: SipEndpoint
) -> None:
    for _ in range(5):
        call = await endpoint.place(other.uri, session().offer())
        await asyncio.wait_for(call.bye(), 5)
    live = await endpoint.place(other.uri, session().offer())
    theirs = await asyncio.wait_for(anext(other.incoming), 5)
    assert theirs.call_id == live.call_id


async def test_while_many_calls_wait_to_be_taken_the_next_gets_503_and_a_caller_who_gives_up_none(
    endpoint: SipEndpoint,
) -> None:
    async with asyncio.timeout(10), SipEndpoint(SipSettings(timers=QUICK, max_calls=4)) as busy:
        busy._incoming._most = 2  # below what max_calls refuses
        first = await endpoint.place(busy.uri, session().offer())
        second = await endpoint.place(busy.uri, session().offer())
        late = await (await endpoint.place(busy.uri, session().offer())).wait_ended()
        assert (late.status, late.headers["Retry-After"]) == (503, "10")
        await first.bye()
        await endpoint.place(busy.uri, session().offer())
        taken = [(await anext(busy.incoming)).call_id for _ in range(2)]
        assert taken[0] == second.call_id


async def test_over_tcp_a_bye_finds_its_way_though_the_contact_is_deaf(
    endpoint: SipEndpoint,
) -> None:
    """Phones behind NAT name an address that cannot be reached; their connection can."""
    reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
    head = (
        "Via: SIP/2.0/TCP 127.0.0.1:1;branch=z9hG4bK{n}\r\n"
        "From: <sip:x@127.0.0.1>;tag=1\r\nTo: <sip:agent@127.0.0.1>{tag}\r\n"
        "Call-ID: nat\r\nCSeq: 1 {method}\r\nContact: <sip:x@127.0.0.1:1;transport=tcp>\r\n"
    )
    body = session(50000).offer()
    writer.write(
        (
            "INVITE sip:agent@127.0.0.1 SIP/2.0\r\n"
            + head.format(n=1, tag="", method="INVITE")
            + f"Content-Type: application/sdp\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        ).encode()
    )
    call = await asyncio.wait_for(anext(endpoint.incoming), 5)
    await call.answer(session().answer(call.offer or "")[0])
    text = b""
    while b"SIP/2.0 200" not in text:
        text = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    tag = text.partition(b"To: ")[2].partition(b"\r\n")[0].partition(b";")[2].decode()
    writer.write(
        (
            "ACK sip:agent@127.0.0.1 SIP/2.0\r\n"
            + head.format(n=2, tag=f";{tag}", method="ACK")
            + "Content-Length: 0\r\n\r\n"
        ).encode()
    )
    await asyncio.wait_for(call.answered(), 5)
    bye = asyncio.create_task(call.bye())
    while not text.startswith(b"BYE"):
        text = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)).split(b"a=")[-1]
        text = text[text.find(b"BYE ") :] if b"BYE " in text else text
    bye.cancel()
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("suffix", ["", ";transport=tcp"])
async def test_a_contact_that_is_a_name_is_looked_up_for_the_ack(
    endpoint: SipEndpoint, suffix: str
) -> None:
    named = SipSettings(timers=QUICK, advertised_host="localhost")
    async with SipEndpoint(named) as other:
        call = await endpoint.place(f"sip:x@127.0.0.1:{other.port}{suffix}", session().offer())
        theirs = await asyncio.wait_for(anext(other.incoming), 5)
        await theirs.answer(session(50000).answer(theirs.offer or "")[0])
        await asyncio.wait_for(theirs.answered(), 5)
        assert theirs.local_host == "localhost"
        await asyncio.wait_for(call.bye(), 5)
        assert (await asyncio.wait_for(theirs.wait_ended(), 5)).by == "remote"


async def test_a_contact_whose_name_has_no_address_ends_the_call(endpoint: SipEndpoint) -> None:
    named = SipSettings(timers=QUICK, advertised_host="absent.invalid")
    async with SipEndpoint(named) as other:
        call = await endpoint.place(f"sip:x@127.0.0.1:{other.port}", session().offer())
        theirs = await asyncio.wait_for(anext(other.incoming), 5)
        await theirs.answer(session(50000).answer(theirs.offer or "")[0])
        ended = await asyncio.wait_for(theirs.wait_ended(), 10)
        assert "advertised_host" in str(ended.error)
        await asyncio.wait_for(call.bye(), 5)


async def test_an_endpoint_is_no_registrar(endpoint: SipEndpoint, other: SipEndpoint) -> None:
    with pytest.raises(RegistrationFailed, match="405") as error:
        await endpoint.register(Account(other.uri.replace("other@", ""), "alice", "x"))
    assert error.value.status == 405


async def test_a_bare_name_is_called_at_the_accounts_registrar(
    endpoint: SipEndpoint, other: SipEndpoint
) -> None:
    account = Account(other.uri.replace("other@", ""), "alice", "x")
    call = await endpoint.place("bob", session().offer(), account)
    theirs = await asyncio.wait_for(anext(other.incoming), 5)
    assert theirs.dialled_uri == f"sip:bob@127.0.0.1:{other.port}"
    assert theirs.remote_uri == f"sip:alice@127.0.0.1:{other.port}"
    await call.bye()
