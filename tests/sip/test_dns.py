"""Questions to a real name server on 127.0.0.1, and calls that follow its answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from qwen3tts_phone.errors import CalleeUnreachable
from qwen3tts_phone.sip import SipCall, SipSettings
from qwen3tts_phone.sip.endpoint import SipEndpoint
from qwen3tts_phone.sip.settings import DnsSettings
from qwen3tts_phone.sip.transport.dns import NEGATIVE_S, NaptrRecord, SrvRecord, SystemResolver
from tests.sip.name_server import NameServer
from tests.sip.phones import QUICK, answer_all, good_call, session

pytestmark = pytest.mark.network


def settings(server: NameServer, **fields: object) -> SipSettings:
    dns = DnsSettings(nameservers=(server.address,), timeout_s=1.0)
    return SipSettings(timers=QUICK, dns=dns, **fields)  # type: ignore[arg-type]


@pytest.fixture
async def callee() -> AsyncIterator[SipEndpoint]:
    async with SipEndpoint(SipSettings(timers=QUICK, user="other")) as other:
        task = asyncio.create_task(answer_all(other, []))
        yield other
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_records_are_read_with_their_time_to_live() -> None:
    zone = (
        'example.org 300 NAPTR 10 20 "s" "SIP+D2U" "" _sip._udp.example.org.',
        "_sip._udp.example.org 120 SRV 1 2 5070 pbx.example.org.",
        "_sip._udp.none.example.org 60 SRV 0 0 0 .",
        "pbx.example.org 90 A 192.0.2.7",
        "pbx.example.org 90 A 192.0.2.8",
        "pbx.example.org 30 AAAA 2001:db8::7",
    )
    async with NameServer(*zone) as server:
        records = SystemResolver(DnsSettings(nameservers=(server.address,)))
        srv = await records.srv("_sip._udp.example.org")
        assert srv.records == (SrvRecord(1, 2, 5070, "pbx.example.org"),)
        assert srv.ttl_s == 120
        assert (await records.srv("_sip._udp.none.example.org")).records == (
            SrvRecord(0, 0, 0, ""),
        )
        naptr = await records.naptr("example.org")
        assert naptr.records == (NaptrRecord(10, 20, "s", "SIP+D2U", "_sip._udp.example.org"),)
        both = await records.addresses("pbx.example.org", (6, 4))
        assert both.records[0] == "2001:db8::7"
        assert set(both.records[1:]) == {"192.0.2.7", "192.0.2.8"}
        assert both.ttl_s == 30
        nothing = await records.srv("_sip._tcp.example.org")
        assert (nothing.records, nothing.ttl_s) == ((), NEGATIVE_S)


async def test_a_silent_name_server_is_an_error_within_its_time() -> None:
    async with NameServer() as server:
        server.silent = True
        records = SystemResolver(DnsSettings(nameservers=(server.address,), timeout_s=0.2))
        with pytest.raises(OSError, match="cannot be looked up"):
            await records.srv("_sip._udp.example.org")


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\xff" * 40, bytes(12)])
async def test_a_name_server_that_answers_garbage_is_one_that_does_not_answer(
    garbage: bytes,
) -> None:
    async with NameServer() as server:
        server.garbage = garbage
        records = SystemResolver(DnsSettings(nameservers=(server.address,), timeout_s=0.2))
        with pytest.raises(OSError, match="cannot be looked up"):
            await records.srv("_sip._udp.example.org")


@pytest.mark.parametrize("name", ["a" * 300 + ".org", "..", "-", "a..b", "\udcff.org", "x" * 64])
async def test_a_name_that_no_name_server_would_take_is_an_error_or_no_answer(name: str) -> None:
    async with NameServer() as server:
        records = SystemResolver(DnsSettings(nameservers=(server.address,), timeout_s=0.2))
        with contextlib.suppress(OSError):
            assert (await records.srv(name)).records == ()


async def test_a_call_follows_naptr_and_srv_to_port_and_transport(callee: SipEndpoint) -> None:
    zone = (
        'example.org 60 NAPTR 10 20 "s" "SIP+D2T" "" _sip._tcp.example.org.',
        f"_sip._tcp.example.org 60 SRV 0 0 {callee.port} pbx.example.org.",
        "pbx.example.org 60 A 127.0.0.1",
    )
    async with NameServer(*zone) as server, SipEndpoint(settings(server)) as endpoint:
        call = await endpoint.place("sip:other@example.org", session().offer())
        await asyncio.wait_for(call.answered(), 5)
        assert call.transport == "tcp"
        await asyncio.wait_for(call.bye(), 5)


@pytest.mark.parametrize("suffix", ["", ";transport=tcp"])
async def test_a_server_where_nobody_listens_gives_way_to_the_next(
    callee: SipEndpoint, suffix: str
) -> None:
    transport = "tcp" if suffix else "udp"
    zone = (
        f"_sip._{transport}.example.org 60 SRV 1 0 9 dead.example.org.",
        f"_sip._{transport}.example.org 60 SRV 2 0 {callee.port} pbx.example.org.",
        "dead.example.org 60 A 127.0.0.1",
        "pbx.example.org 60 A 127.0.0.1",
    )
    async with NameServer(*zone) as server, SipEndpoint(settings(server)) as endpoint:
        await good_call(endpoint, f"sip:other@example.org{suffix}")
        # The dead one is remembered: the next call does not begin with it.
        call = await endpoint.place(f"sip:other@example.org{suffix}", session().offer())
        assert call.core._exchange is not None  # type: ignore[union-attr]
        assert call.core._exchange.hop.port == callee.port  # type: ignore[union-attr]
        await call.cancel()


async def test_a_server_that_is_silent_gives_way_to_the_next(callee: SipEndpoint) -> None:
    loop = asyncio.get_running_loop()
    silent, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    )
    port = silent.get_extra_info("sockname")[1]
    zone = (
        f"_sip._udp.example.org 60 SRV 1 0 {port} pbx.example.org.",
        f"_sip._udp.example.org 60 SRV 2 0 {callee.port} pbx.example.org.",
        "pbx.example.org 60 A 127.0.0.1",
    )
    async with NameServer(*zone) as server, SipEndpoint(settings(server)) as endpoint:
        await good_call(endpoint, "sip:other@example.org")
    silent.close()


async def test_a_server_without_room_gives_way_to_the_next(callee: SipEndpoint) -> None:
    async with SipEndpoint(SipSettings(timers=QUICK)) as full:
        full.agent.draining = 30
        zone = (
            f"_sip._udp.example.org 60 SRV 1 0 {full.port} pbx.example.org.",
            f"_sip._udp.example.org 60 SRV 2 0 {callee.port} pbx.example.org.",
            "pbx.example.org 60 A 127.0.0.1",
        )
        async with NameServer(*zone) as server, SipEndpoint(settings(server)) as endpoint:
            await good_call(endpoint, "sip:other@example.org")


async def test_a_domain_that_nobody_knows_is_unreachable() -> None:
    async with NameServer() as server, SipEndpoint(settings(server)) as endpoint:
        with pytest.raises(CalleeUnreachable, match=r"example\.org.*no address") as error:
            await endpoint.place("sip:other@example.org", session().offer())
        assert error.value.why == "dns"


async def test_a_silent_name_server_does_not_hold_up_the_other_calls(
    callee: SipEndpoint,
) -> None:
    async with NameServer() as server, SipEndpoint(settings(server)) as endpoint:
        server.silent = True
        waiting = asyncio.create_task(endpoint.place("sip:x@example.org", session().offer()))
        await good_call(endpoint, callee.uri)
        with pytest.raises(CalleeUnreachable):
            await asyncio.wait_for(waiting, 10)


async def test_a_request_inside_a_call_finds_the_servers_of_a_contact_that_is_a_domain(
    callee: SipEndpoint,
) -> None:
    zone = (
        f"_sip._udp.example.org 60 SRV 0 0 {callee.port} pbx.example.org.",
        "pbx.example.org 60 A 127.0.0.1",
    )
    seen: list[SipCall] = []
    task = asyncio.create_task(answer_all(callee, seen))
    async with NameServer(*zone) as server, SipEndpoint(settings(server)) as endpoint:
        callee.agent.contact = lambda hop, *, user="": "<sip:other@example.org>"  # type: ignore[method-assign]
        call = await endpoint.place(f"sip:other@127.0.0.1:{callee.port}", session().offer())
        await asyncio.wait_for(call.answered(), 5)
        await asyncio.wait_for(call.bye(), 5)
        assert ("_sip._udp.example.org", "SRV") in server.asked
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
