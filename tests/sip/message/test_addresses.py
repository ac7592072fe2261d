"""Several addresses to listen at, both families, and what we are called at each."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qwen3tts_phone.errors import CalleeUnreachable, PortBusy
from qwen3tts_phone.sdp.session import SdpSession
from qwen3tts_phone.sip import Account, Listener, SipCall, SipEndpoint, SipSettings, TlsSettings
from qwen3tts_phone.sip.message import via as nat
from qwen3tts_phone.sip.message.network import Hop, behind_nat
from qwen3tts_phone.sip.transport import stream
from qwen3tts_phone.sip.transport.locator import Locator
from tests.sip.certificates import Authority
from tests.sip.name_server import Domains
from tests.sip.phones import QUICK, answer_all, good_call, session
from tests.sip.registrar import RegistrarServer

pytestmark = pytest.mark.network


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@pytest.fixture
async def dual() -> AsyncIterator[SipEndpoint]:
    settings = SipSettings(host=("127.0.0.1", "::1"), timers=QUICK, user="other")
    async with SipEndpoint(settings) as endpoint:
        task = asyncio.create_task(answer_all(endpoint, []))
        yield endpoint
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@ipv6
async def test_both_families_are_listened_at_by_one_port(dual: SipEndpoint) -> None:
    for host, target in (("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")):
        async with SipEndpoint(SipSettings(host=host, timers=QUICK)) as endpoint:
            for suffix in ("", ";transport=tcp"):
                await good_call(endpoint, f"sip:other@{target}:{dual.port}{suffix}")


@ipv6
async def test_of_both_families_the_one_that_the_callee_has_is_spoken(dual: SipEndpoint) -> None:
    for host in ("127.0.0.1", "::1"):
        async with SipEndpoint(SipSettings(host=host, timers=QUICK)) as callee:
            bracketed = f"[{host}]" if ":" in host else host
            for suffix in ("", ";transport=tcp"):
                call = await dual.place(
                    f"sip:x@{bracketed}:{callee.port}{suffix}", session().offer()
                )
                theirs = await asyncio.wait_for(anext(callee.incoming), 5)
                request = theirs.core.request  # type: ignore[union-attr]
                assert request.via.host.strip("[]") == host
                assert f"@{bracketed}:{dual.port}" in request.require("Contact")
                assert call.local_host == host
                await theirs.reject(486)


@ipv6
async def test_a_call_and_its_changes_over_ipv6_and_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ours = authority.sign("ipv6", "::1")
    tls = TlsSettings(ours.certificate, ours.key, ca=authority.file, port=0)
    settings = SipSettings(host="::1", timers=QUICK, tls=tls)
    async with SipEndpoint(settings) as one, SipEndpoint(settings) as two:
        call = await one.place(
            f"sip:x@[::1]:{two.tls_port};transport=tls", SdpSession("::1", 40000).offer()
        )
        theirs = await asyncio.wait_for(anext(two.incoming), 5)
        answer, agreed = SdpSession("::1", 50000).answer(theirs.offer or "")
        assert agreed.host == "::1"
        await theirs.answer(answer)
        await asyncio.wait_for(call.answered(), 5)
        assert theirs.core.request.via.host == "[::1]"  # type: ignore[union-attr]
        await asyncio.wait_for(theirs.bye(), 5)
        assert (await asyncio.wait_for(call.wait_ended(), 5)).by == "remote"


@ipv6
async def test_a_registration_over_ipv6_has_brackets_where_they_belong() -> None:
    settings = SipSettings(host="::1", timers=QUICK)
    async with RegistrarServer("::1") as registrar, SipEndpoint(settings) as endpoint:
        line = await endpoint.add(Account(registrar.uri, "alice"))
        (request,) = registrar.of("REGISTER")
        assert request.contact_uri == f"sip:alice@[::1]:{endpoint.port}"
        assert request.to.uri == f"sip:alice@[::1]:{registrar.port}"
        assert line.server == f"[::1]:{registrar.port} over UDP"
        assert endpoint.address_for("sip:x@[::1]") == "::1"


@ipv6
async def test_a_name_with_both_families_falls_over_to_the_one_that_answers(
    dual: SipEndpoint,
) -> None:
    domains = Domains(hosts={"pbx.example": ("127.0.0.1", "::1")})
    async with SipEndpoint(SipSettings(host="::1", timers=QUICK, user="six")) as callee:
        task = asyncio.create_task(answer_all(callee, []))
        locator = Locator(lambda: 0.0, families=(4, 6), records=domains)
        settings = SipSettings(host=("127.0.0.1", "::1"), timers=QUICK)
        async with SipEndpoint(settings, locator=locator) as endpoint:
            await good_call(endpoint, f"sip:six@pbx.example:{callee.port}")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@ipv6
async def test_all_addresses_of_both_families_can_be_bound() -> None:
    settings = SipSettings(host=("0.0.0.0", "::"), timers=QUICK)
    async with SipEndpoint(settings) as endpoint:
        hosts = {
            endpoint.address_for("sip:x@127.0.0.1"): "127.0.0.1",
            endpoint.address_for("sip:x@[::1]"): "::1",
        }
        assert all(ours == wanted for ours, wanted in hosts.items())
        ports = {port for bound in endpoint._listeners.bound for port in bound.ports.values()}
        assert ports == {endpoint.port}


async def test_a_listener_each_has_its_own_port_and_transports() -> None:
    settings = SipSettings(
        timers=QUICK,
        listeners=(
            Listener("127.0.0.1", transports=("udp",)),
            Listener("127.0.0.2", transports=("tcp",), advertised_host="pbx.example"),
        ),
    )
    seen: list[SipCall] = []
    locator = Locator(lambda: 0.0, records=Domains(hosts={"pbx.example": ("127.0.0.2",)}))
    async with (
        SipEndpoint(settings) as endpoint,
        SipEndpoint(SipSettings(host="127.0.0.2", timers=QUICK), locator=locator) as caller,
    ):
        task = asyncio.create_task(answer_all(endpoint, seen))
        bound = endpoint._listeners.bound
        assert [list(one.ports) for one in bound] == [["udp"], ["tcp"]]
        await good_call(caller, f"sip:x@127.0.0.1:{bound[0].ports['udp']}")
        tcp = bound[1].ports["tcp"]
        call = await caller.place(f"sip:x@127.0.0.2:{tcp};transport=tcp", session().offer())
        await asyncio.wait_for(call.answered(), 5)
        assert seen[1].local_host == "pbx.example"
        await asyncio.wait_for(seen[1].bye(), 5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_of_two_udp_listeners_the_one_that_was_called_answers_and_hangs_up() -> None:
    settings = SipSettings(timers=QUICK, listeners=(Listener("127.0.0.1"), Listener("127.0.0.1")))
    seen: list[SipCall] = []
    async with (
        SipEndpoint(settings) as endpoint,
        SipEndpoint(SipSettings(timers=QUICK)) as caller,
    ):
        task = asyncio.create_task(answer_all(endpoint, seen))
        second = endpoint._listeners.bound[1].ports["udp"]
        call = await caller.place(f"sip:x@127.0.0.1:{second}", session().offer())
        await asyncio.wait_for(call.answered(), 5)
        assert call.core.dialog is not None
        assert f":{second}" in call.core.dialog.target
        received: list[Hop] = []
        receive = caller.agent.receive

        def heard(data: bytes, source: Hop, now: float) -> None:
            received.append(source)
            receive(data, source, now)

        caller.agent.receive = heard  # type: ignore[method-assign]
        await asyncio.wait_for(seen[0].bye(), 5)
        assert {hop.port for hop in received} == {second}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_where_one_listener_cannot_be_bound_none_stays() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.2", 0))
        port = taken.getsockname()[1]
        settings = SipSettings(
            listeners=(Listener("127.0.0.1"), Listener("127.0.0.2", port, ("udp",)))
        )
        endpoint = SipEndpoint(settings)
        with pytest.raises(PortBusy, match=rf"127\.0\.0\.2:{port}"):
            await endpoint.start()
        assert endpoint._listeners.bound == []


async def test_the_advertised_port_stands_in_via_and_contact() -> None:
    settings = SipSettings(timers=QUICK, advertised_host="192.0.2.9", advertised_port=5999)
    async with RegistrarServer() as registrar, SipEndpoint(settings) as endpoint:
        await endpoint.add(Account(registrar.uri, "alice"))
        (request,) = registrar.of("REGISTER")
        assert (request.via.host, request.via.port) == ("192.0.2.9", 5999)
        assert request.contact_uri == "sip:alice@192.0.2.9:5999"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"host": "pbx.example"}, "^host="),
        ({"transports": ("sctp",)}, "^transports="),
        ({"transports": ()}, "^transports="),
        ({"tls_port": -1}, "^tls_port="),
        ({"advertised_port": 70000}, "^advertised_port="),
    ],
)
def test_a_listener_is_checked_when_it_is_made(fields: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Listener(**fields)  # type: ignore[arg-type]


async def test_before_the_start_and_after_the_end_we_are_called_what_was_asked_for() -> None:
    endpoint = SipEndpoint(SipSettings(port=5070))
    assert endpoint.uri == "sip:agent@127.0.0.1:5070"
    assert endpoint.port == 0
    async with SipEndpoint() as other:
        pass
    assert other.uri == "sip:agent@127.0.0.1:0"


@ipv6
async def test_media_goes_by_the_family_that_the_callee_has(dual: SipEndpoint) -> None:
    domains = Domains(hosts={"six.example": ("::1",), "four.example": ("127.0.0.1",)})
    locator = Locator(lambda: 0.0, families=(4, 6), records=domains)
    settings = SipSettings(host=("127.0.0.1", "::1"), timers=QUICK)
    async with SipEndpoint(settings, locator=locator) as endpoint:
        assert await endpoint.media_host("sip:x@six.example:5060") == "::1"
        assert await endpoint.media_host("sip:x@four.example:5060") == "127.0.0.1"
        with pytest.raises(CalleeUnreachable):
            await endpoint.media_host("sip:x@none.example:5060")


@pytest.mark.parametrize(
    ("contact", "peer", "hidden"),
    [
        ("192.168.1.7", "8.8.8.8", True),
        ("fd00::1", "2606:4700::1", True),
        ("10.0.0.9", "10.0.0.5", False),
        ("8.8.4.4", "8.8.8.8", False),
        ("pbx.example", "8.8.8.8", False),
    ],
)
def test_a_private_contact_of_a_public_peer_is_behind_a_nat(
    contact: str, peer: str, hidden: bool
) -> None:
    assert behind_nat(contact, peer) is hidden


async def test_a_peer_behind_a_nat_is_hung_up_on_by_the_connection_it_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its Contact is an address of its own network, which never answers."""
    monkeypatch.setattr(stream, "behind_nat", lambda host, peer: host == "10.255.255.1")
    settings = SipSettings(timers=QUICK, advertised_host="10.255.255.1")
    async with SipEndpoint(settings) as hidden, SipEndpoint(SipSettings(timers=QUICK)) as endpoint:
        call = await hidden.place(f"{endpoint.uri};transport=tcp", session().offer())
        theirs = await asyncio.wait_for(anext(endpoint.incoming), 5)
        await theirs.answer(session(50000).answer(theirs.offer or "")[0])
        await asyncio.wait_for(theirs.answered(), 5)
        await asyncio.wait_for(theirs.bye(), 2)
        assert (await asyncio.wait_for(call.wait_ended(), 2)).by == "remote"


async def test_a_peer_behind_a_nat_is_hung_up_on_by_udp_where_its_call_came_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nat, "behind_nat", lambda host, peer: host == "10.255.255.1")
    settings = SipSettings(timers=QUICK, advertised_host="10.255.255.1")
    async with SipEndpoint(settings) as hidden, SipEndpoint(SipSettings(timers=QUICK)) as endpoint:
        call = await hidden.place(endpoint.uri, session().offer())
        theirs = await asyncio.wait_for(anext(endpoint.incoming), 5)
        await theirs.answer(session(50000).answer(theirs.offer or "")[0])
        await asyncio.wait_for(theirs.answered(), 5)
        await asyncio.wait_for(theirs.bye(), 2)
        assert (await asyncio.wait_for(call.wait_ended(), 2)).by == "remote"
