"""Several accounts and trunks in one endpoint, with sockets on 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from qwen3tts_phone.errors import (
    BadSip,
    CalleeUnreachable,
    CallRefused,
    RegistrationFailed,
    WrongState,
)
from qwen3tts_phone.sip import Account, AccountEvent, RegistrationState, SipEndpoint, SipSettings
from qwen3tts_phone.sip.core.settings import GateSettings
from qwen3tts_phone.sip.gate import SourceGate
from qwen3tts_phone.sip.message.message import Response, reply
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transport import listeners
from qwen3tts_phone.sip.transport.locator import Locator
from tests.fakes import FakeClock, settle
from tests.sip.name_server import Domains
from tests.sip.phones import QUICK, answer_all, session
from tests.sip.registrar import RegistrarServer
from tests.sip.wire import ANSWER, OFFER, Stranger, pair, request

pytestmark = pytest.mark.network


@pytest.fixture
async def one() -> AsyncIterator[RegistrarServer]:
    async with RegistrarServer() as server:
        yield server


@pytest.fixture
async def two() -> AsyncIterator[RegistrarServer]:
    async with RegistrarServer() as server:
        yield server


class Told(list[AccountEvent]):
    """What an endpoint told of its accounts."""

    def __init__(self) -> None:
        super().__init__()
        self._more = asyncio.Event()

    def tell(self, event: AccountEvent) -> None:
        self.append(event)
        self._more.set()

    def kinds(self, name: str = "") -> list[str]:
        return [event.kind for event in self if name in ("", event.name)]

    async def until(self, *kinds: str) -> None:
        async with asyncio.timeout(10):
            while self.kinds() != list(kinds):
                self._more.clear()
                await self._more.wait()


@pytest.fixture
async def events() -> Told:
    return Told()


@pytest.fixture
async def endpoint(events: Told) -> AsyncIterator[SipEndpoint]:
    settings = SipSettings(timers=QUICK, user="line")
    async with SipEndpoint(settings, on_account=events.tell) as endpoint:
        yield endpoint


async def test_two_accounts_are_registered_by_one_endpoint(
    endpoint: SipEndpoint, one: RegistrarServer, two: RegistrarServer, events: Told
) -> None:
    two.challenge = True
    first = await endpoint.add(Account(one.uri, "alice", name="first"))
    second = await endpoint.add(Account(two.uri, "bob", "secret", name="second"))
    assert list(endpoint.lines) == ["first", "second"]
    assert {first.state, second.state} == {"registered"}
    assert first.ready
    assert first.registration is not None
    assert first.registration.server == f"127.0.0.1:{one.port} over UDP"
    assert first.registration.expires_at == pytest.approx(endpoint.now() + 300, abs=10)
    assert one.requests[0].contact_uri == f"sip:alice@127.0.0.1:{endpoint.port}"
    assert two.requests[0].contact_uri == f"sip:bob@127.0.0.1:{endpoint.port}"
    await events.until("registered", "registered")
    assert events[1].name == "second"


async def test_each_account_has_a_name_of_its_own(
    endpoint: SipEndpoint, one: RegistrarServer
) -> None:
    account = Account(one.uri, "alice")
    assert account.name == "alice@127.0.0.1"
    await endpoint.add(account)
    with pytest.raises(WrongState, match=r"alice@127\.0\.0\.1"):
        await endpoint.add(account)


async def test_an_account_that_could_not_be_used_can_be_added_again(
    endpoint: SipEndpoint, one: RegistrarServer
) -> None:
    one.status = 403
    with pytest.raises(RegistrationFailed, match="403"):
        await endpoint.add(Account(one.uri, "alice"))
    assert not endpoint.lines
    one.status = 200
    assert (await endpoint.add(Account(one.uri, "alice"))).state == "registered"


async def test_what_can_never_work_is_said_though_nobody_waits(endpoint: SipEndpoint) -> None:
    with pytest.raises(BadSip, match="not enabled"):
        await endpoint.add(Account("sip:127.0.0.1;transport=tls", "alice"), wait=False)


async def test_without_waiting_a_registrar_may_come_later(
    endpoint: SipEndpoint, one: RegistrarServer
) -> None:
    one.status = 500
    line = await endpoint.add(Account(one.uri, "alice"), wait=False)
    assert not line.ready
    await one.until(lambda: bool(one.requests))
    registration = line.registration
    assert registration is not None
    await asyncio.wait_for(registration._until(RegistrationState.RETRYING), 5)
    assert line.state == "not registered"
    assert "500" in line.words
    one.status = 200
    assert line.core is not None
    # Not the wait is shown here, but that it goes on.
    line.core._due_at = endpoint.now()
    endpoint.flush()
    await asyncio.wait_for(registration.registered(), 5)
    assert line.ready


async def test_without_waiting_a_name_that_nobody_knows_is_no_error(endpoint: SipEndpoint) -> None:
    line = await endpoint.add(Account("sip:absent.invalid:5060", "alice"), wait=False)
    assert line.registration is not None
    await asyncio.wait_for(line.registration._until(RegistrationState.RETRYING), 5)
    assert "no address" in str(line.error)
    with pytest.raises(CalleeUnreachable):
        await endpoint.add(Account("sip:absent.invalid:5061", "bob"))


async def test_the_further_server_has_us_where_the_first_one_is_dead(
    endpoint: SipEndpoint, one: RegistrarServer
) -> None:
    account = Account("sip:127.0.0.1:9", "alice", failover=(one.uri,))
    line = await asyncio.wait_for(endpoint.add(account), 5)
    assert line.server == f"127.0.0.1:{one.port} over UDP"
    assert one.requests[0].uri == one.uri
    assert one.requests[0].to.uri == "sip:alice@127.0.0.1:9"


async def test_calls_go_to_the_server_that_has_us(
    endpoint: SipEndpoint, one: RegistrarServer
) -> None:
    account = Account("sip:127.0.0.1:9", "alice", failover=(one.uri,), display_name="Alice A")
    await asyncio.wait_for(endpoint.add(account), 5)
    call = await endpoint.place("4711", session().offer(), account)
    await one.until(lambda: bool(one.of("INVITE")))
    (invite,) = one.of("INVITE")
    assert invite.uri == f"sip:4711@127.0.0.1:{one.port}"
    assert invite.from_.uri == "sip:alice@127.0.0.1:9"
    assert invite.from_.name == "Alice A"
    assert invite.contact_uri == f"sip:alice@127.0.0.1:{endpoint.port}"
    await asyncio.wait_for(call.wait_ended(), 5)


async def test_behind_a_proxy_the_further_one_takes_its_place_in_the_route(
    endpoint: SipEndpoint, one: RegistrarServer
) -> None:
    account = Account("sip:example.invalid", "alice", proxy="sip:127.0.0.1:9", failover=(one.uri,))
    await asyncio.wait_for(endpoint.add(account), 5)
    (request,) = one.requests
    assert request.uri == "sip:example.invalid"
    assert request.headers.getlist("Route") == [f"<{one.uri};lr>"]


async def test_headers_of_an_account_go_with_its_calls(
    endpoint: SipEndpoint, one: RegistrarServer
) -> None:
    account = Account(one.uri, "", register=False, headers={"X-Tenant": "7", "X-Other": "a"})
    call = await endpoint.place("4711", session().offer(), account, headers={"X-Other": "b"})
    await one.until(lambda: bool(one.requests))
    assert one.requests[0].get("X-Tenant") == "7"
    assert one.requests[0].headers.getlist("X-Other") == ["b"]
    assert one.requests[0].from_.uri.startswith("sip:line@")
    await asyncio.wait_for(call.wait_ended(), 5)


@pytest.mark.parametrize("suffix", [";transport=tcp"])
async def test_a_lost_connection_is_followed_by_a_registration(
    endpoint: SipEndpoint, one: RegistrarServer, suffix: str
) -> None:
    line = await endpoint.add(Account(one.uri + suffix, "alice"))
    assert line.registration is not None
    one.drop_connections()
    await asyncio.wait_for(line.registration.refreshed(), 5)
    assert len(one.of("REGISTER")) == 2
    assert line.state == "registered"


async def test_the_address_that_the_server_sees_becomes_our_contact_where_that_is_wanted(
    one: RegistrarServer,
) -> None:
    """As behind a NAT: the server sees another host than we know of."""
    settings = SipSettings(host="0.0.0.0", timers=QUICK, nat="learn")
    async with SipEndpoint(settings) as endpoint:
        endpoint._listeners._addresses["127.0.0.1"] = "10.1.2.3"
        line = await endpoint.add(Account(one.uri, "alice"))
        assert line.registration is not None
        await asyncio.wait_for(line.registration.refreshed(), 10)
        first, second = one.of("REGISTER")
        assert first.contact_uri == f"sip:alice@10.1.2.3:{endpoint.port}"
        assert second.values("Contact") == [
            f"<sip:alice@127.0.0.1:{endpoint.port}>",
            f"<sip:alice@10.1.2.3:{endpoint.port}>;expires=0",
        ]
        assert endpoint.address_for(one.uri) == "127.0.0.1"


async def test_an_advertised_address_goes_before_the_one_that_is_learnt(
    one: RegistrarServer,
) -> None:
    settings = SipSettings(
        timers=QUICK, nat="learn", advertised_host="203.0.113.9", advertised_port=5099
    )
    async with SipEndpoint(settings) as endpoint:
        await endpoint.add(Account(one.uri, "alice"))
        assert one.requests[0].contact_uri == "sip:alice@203.0.113.9:5099"
        assert len(one.of("REGISTER")) == 1
        assert endpoint.uri == "sip:agent@203.0.113.9:5099"


async def test_whose_call_it_is_follows_from_what_was_called(
    endpoint: SipEndpoint, one: RegistrarServer, two: RegistrarServer
) -> None:
    await endpoint.add(Account(one.uri, "alice", name="first"))
    await endpoint.add(Account(two.uri, "bob", name="second"))
    async with SipEndpoint(SipSettings(timers=QUICK)) as caller:
        for user, wanted in (("alice", "first"), ("bob", "second")):
            await caller.place(f"sip:{user}@127.0.0.1:{endpoint.port}", session().offer())
            call = await asyncio.wait_for(anext(endpoint.incoming), 5)
            account = endpoint.account_of(call)
            assert account is not None
            assert account.name == wanted
            await call.reject(486)


async def test_a_trunks_calls_are_known_by_where_they_come_from(endpoint: SipEndpoint) -> None:
    trunk = Account(
        "sip:192.0.2.1", "", register=False, name="trunk", allowed_sources=("127.0.0.0/8",)
    )
    other = Account("sip:192.0.2.2", "", register=False, name="other")
    for account in (other, trunk):
        line = await endpoint.add(account)
        assert "not watched" in line.words
    async with SipEndpoint(SipSettings(timers=QUICK)) as caller:
        await caller.place(f"sip:+4930123@127.0.0.1:{endpoint.port}", session().offer())
        call = await asyncio.wait_for(anext(endpoint.incoming), 5)
        assert endpoint.account_of(call) is trunk
        await call.reject(486)


async def test_a_strangers_call_is_nobodys(endpoint: SipEndpoint, one: RegistrarServer) -> None:
    elsewhere = Account("sip:192.0.2.1", "alice", register=False, allowed_sources=("192.0.2.0/24",))
    await endpoint.add(elsewhere)
    async with SipEndpoint(SipSettings(timers=QUICK)) as caller:
        await caller.place(f"sip:alice@127.0.0.1:{endpoint.port}", session().offer())
        call = await asyncio.wait_for(anext(endpoint.incoming), 5)
        assert endpoint.account_of(call) is None
        await call.reject(486)


async def test_the_servers_of_an_account_are_trusted(
    endpoint: SipEndpoint, one: RegistrarServer
) -> None:
    await endpoint.add(
        Account(one.uri, "alice", register=False, allowed_sources=("198.51.100.0/24",))
    )
    await endpoint._lines.servers(endpoint.lines["alice@127.0.0.1"].account)
    assert isinstance(endpoint.gate, SourceGate)
    assert endpoint.gate.trusts("198.51.100.7")
    assert not endpoint.gate.trusts("198.51.101.7")


async def test_options_ask_anybody_and_time_the_answer(
    endpoint: SipEndpoint, one: RegistrarServer
) -> None:
    reply = await endpoint.options(one.uri)
    assert (reply.status, reply.user_agent) == (200, "test registrar")
    assert reply.server == f"127.0.0.1:{one.port} over UDP"
    assert 0 <= reply.round_trip_s < 5
    one.status = 404
    assert (await endpoint.options("4711", Account(one.uri, "alice"))).status == 404
    with pytest.raises(CalleeUnreachable, match="Nothing listens"):
        await endpoint.options("sip:127.0.0.1:9")


def trunk(server: RegistrarServer, name: str, **fields: object) -> Account:
    return Account(server.uri, "", register=False, name=name, keepalive_s=30, **fields)  # type: ignore[arg-type]


async def test_a_trunk_that_does_not_answer_is_told_skipped_and_taken_back(
    one: RegistrarServer, two: RegistrarServer
) -> None:
    clock = FakeClock()
    events = Told()
    async with SipEndpoint(SipSettings(), clock, on_account=events.tell) as endpoint:
        first = await endpoint.add(trunk(one, "first"))
        second = await endpoint.add(trunk(two, "second"))
        assert "not asked yet" in first.words
        await clock.advance(0.1)
        await settle(50)
        assert "reachable" in first.words
        assert first.round_trip_s is not None
        assert endpoint.best_account() == first.account
        one.silent = True
        await clock.advance(70.0)
        assert "unreachable" in first.words
        assert "does not answer" in first.words
        assert endpoint.best_account() == second.account
        assert endpoint.best_account("first") == first.account
        one.silent = False
        await clock.advance(20.0)
        await settle(50)
        assert endpoint.best_account("first", "second") == first.account
        assert events.kinds("first") == ["reachable", "unreachable", "reachable"]


async def test_a_trunk_that_says_503_is_not_called_while_there_is_another(
    one: RegistrarServer, two: RegistrarServer
) -> None:
    clock = FakeClock()
    async with SipEndpoint(SipSettings(), clock) as endpoint:
        one.status = 503
        await endpoint.add(trunk(one, "first"))
        second = await endpoint.add(trunk(two, "second"))
        await clock.advance(0.1)
        await settle(50)
        assert "503" in endpoint.lines["first"].words
        assert endpoint.best_account() == second.account
        assert endpoint.best_account("absent") is None


async def test_blank_lines_over_udp_keep_the_way_open(one: RegistrarServer) -> None:
    clock = FakeClock()
    async with SipEndpoint(SipSettings(), clock) as endpoint:
        line = await endpoint.add(trunk(one, "first", keepalive="crlf"))
        await clock.advance(100.0)
        await settle(50)
        assert one.pings in (4, 5)
        assert line.reachable is None
        assert line.ready


async def test_a_connection_that_answers_no_ping_is_broken_and_made_anew(
    one: RegistrarServer,
) -> None:
    clock = FakeClock()
    account = Account(
        f"{one.uri};transport=tcp", "alice", expires=3600, keepalive_s=30, keepalive="crlf"
    )
    async with SipEndpoint(SipSettings(), clock) as endpoint:
        line = await endpoint.add(account)
        await clock.advance(11.0)
        await settle(50)
        assert line.ready
        assert one.pings == 1
        one.deaf = True
        await clock.advance(31.0)
        await settle(50)
        await clock.advance(11.0)
        await settle(50)
        assert line.reachable is False
        one.deaf = False
        await clock.advance(3.0)
        await settle(50)
        await one.until(lambda: len(one.of("REGISTER")) >= 2)


async def test_an_endpoint_that_drains_unregisters_and_finishes_its_calls(
    one: RegistrarServer,
) -> None:
    settings = SipSettings(timers=QUICK, drain_retry_after_s=77)
    async with SipEndpoint(settings) as endpoint, SipEndpoint(SipSettings(timers=QUICK)) as caller:
        await endpoint.add(Account(one.uri, "alice"))
        task = asyncio.create_task(answer_all(endpoint, []))
        under_way = await caller.place(endpoint.uri, session().offer())
        await asyncio.wait_for(under_way.answered(), 5)
        await endpoint.drain()
        assert endpoint.draining
        assert one.of("REGISTER")[-1].get("Expires") == "0"
        refused = await caller.place(endpoint.uri, session().offer())
        ended = await asyncio.wait_for(refused.wait_ended(), 5)
        assert ended.status == 503
        assert (await caller.options(endpoint.uri)).status == 503
        with pytest.raises(WrongState, match="draining"):
            await endpoint.place(caller.uri, session().offer())
        drained = asyncio.create_task(endpoint.drained())
        await settle()
        assert not drained.done()
        await under_way.bye()
        await asyncio.wait_for(drained, 5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_draining_says_when_to_come_again() -> None:
    wire, _, callee = pair()
    callee.agent.draining = 77
    stranger = Stranger(wire)
    stranger.send(request("INVITE", callee, sdp=OFFER), callee)
    stranger.send(request("OPTIONS", callee, branch="z9hG4bKo", call_id="o"), callee)
    wire.run(1.0)
    answers = [m for m in stranger.got if getattr(m, "status", 0) >= 200]
    assert {m.status for m in answers} == {503}  # type: ignore[union-attr]
    assert {m.get("Retry-After") for m in answers} == {"77"}


async def test_a_route_that_changes_brings_a_registration_with_the_new_address(
    one: RegistrarServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    ours = ["10.0.0.7"]
    monkeypatch.setattr(listeners, "local_address_towards", lambda host: ours[0])
    account = Account(one.uri, "alice", expires=3600)
    async with SipEndpoint(SipSettings(host="0.0.0.0"), clock) as endpoint:
        await endpoint.add(account)
        await clock.advance(60.0)
        assert len(one.of("REGISTER")) == 1
        ours[0] = "10.0.0.8"
        await clock.advance(11.0)
        await one.until(lambda: len(one.of("REGISTER")) == 2)
        assert one.of("REGISTER")[1].values("Contact") == [
            f"<sip:alice@10.0.0.8:{endpoint.port}>",
            f"<sip:alice@10.0.0.7:{endpoint.port}>;expires=0",
        ]


async def test_an_account_that_is_removed_is_unregistered_and_forgotten(
    endpoint: SipEndpoint, one: RegistrarServer
) -> None:
    await endpoint.add(Account(one.uri, "alice", name="mine", keepalive_s=30))
    await endpoint.remove("mine")
    assert one.of("REGISTER")[-1].get("Expires") == "0"
    assert not endpoint.lines
    assert endpoint.agent.timed == []
    with pytest.raises(WrongState, match="mine"):
        await endpoint.remove("mine")


async def test_closing_leaves_no_task_behind_whatever_the_accounts_do(
    one: RegistrarServer, two: RegistrarServer
) -> None:
    before = asyncio.all_tasks()
    two.silent = True
    settings = SipSettings(host="0.0.0.0", timers=QUICK)
    async with SipEndpoint(settings) as endpoint:
        await endpoint.add(Account(one.uri, "alice", keepalive_s=30))
        await endpoint.add(Account(two.uri, "bob", keepalive_s=30), wait=False)
        await endpoint.add(Account("sip:127.0.0.1:9", "carol", name="c"), wait=False)
    await settle()
    assert asyncio.all_tasks() - before <= set(_serving(one, two))


def _serving(*servers: RegistrarServer) -> list[asyncio.Task[object]]:
    return [t for t in asyncio.all_tasks() if "RegistrarServer" in repr(t.get_coro())]


async def test_the_gate_says_which_connections_are_taken() -> None:
    gate = SourceGate(GateSettings(deny=("127.0.0.1/32",), trusted=()))
    async with SipEndpoint(SipSettings(timers=QUICK), gate=gate) as endpoint:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        assert gate.counts["network"] == 1


async def test_challenges_inside_a_call_that_came_in_get_the_accounts_password(
    endpoint: SipEndpoint, one: RegistrarServer
) -> None:
    await endpoint.add(Account(one.uri, "alice", "secret"))
    async with SipEndpoint(SipSettings(timers=QUICK)) as caller:
        await caller.place(f"sip:alice@127.0.0.1:{endpoint.port}", session().offer())
        call = await asyncio.wait_for(anext(endpoint.incoming), 5)
        assert call.core.digest is not None
        assert call.core.digest.user == "alice"
        await call.reject(486)


async def test_a_stranger_gets_no_answer_to_a_challenge_from_us(endpoint: SipEndpoint) -> None:
    """He would hand our answer on to the registrar, and call in our name."""
    await endpoint.add(Account("sip:192.0.2.1", "alice", "secret", register=False))
    async with SipEndpoint(SipSettings(timers=QUICK)) as caller:
        await caller.place(f"sip:alice@127.0.0.1:{endpoint.port}", session().offer())
        call = await asyncio.wait_for(anext(endpoint.incoming), 5)
        assert endpoint.account_of(call) is endpoint.lines["alice@192.0.2.1"].account
        assert call.core.digest is None
        await call.reject(486)


async def test_only_the_accounts_servers_may_ask_for_its_password(
    endpoint: SipEndpoint, two: RegistrarServer
) -> None:
    """Any other callee would have something to guess it by."""
    two.challenge = True
    here = Account(two.uri, "bob", "secret", register=False)
    elsewhere = Account("sip:192.0.2.1", "bob", "secret", register=False)
    beside = replace(elsewhere, allowed_sources=("127.0.0.0/8",))
    for account, sent in ((here, True), (elsewhere, False), (beside, True)):
        two.requests.clear()
        target = f"sip:carol@127.0.0.1:{two.port}"
        call = await endpoint.place(target, session().offer(), account=account)
        with pytest.raises(CallRefused):
            await call.answered()
        assert any(request.get("Authorization") for request in two.requests) is sent


async def test_a_trunks_servers_are_known_by_their_names_also_after_they_have_moved() -> None:
    clock = FakeClock()
    domains = Domains(hosts={"trunk.example": ("192.0.2.1",)}, ttl_s=30.0)
    account = Account(
        "sip:trunk.example:5060", "", register=False, allowed_sources=("198.51.100.0/24",)
    )
    locator = Locator(clock.now, records=domains)
    async with SipEndpoint(SipSettings(), clock, locator=locator) as endpoint:
        line = await endpoint.add(account, wait=False)
        gate = endpoint.gate
        assert isinstance(gate, SourceGate)
        assert gate.trusts("198.51.100.7")
        await settle()
        assert [hop.host for hop in line.hops] == ["192.0.2.1"]
        domains.hosts = {"trunk.example": ("192.0.2.2",)}
        await clock.advance(75.0)
        assert [hop.host for hop in line.hops] == ["192.0.2.2"]
        assert gate.trusts("192.0.2.2")
        assert not gate.trusts("192.0.2.1")


async def test_a_registrar_that_restarts_and_has_forgotten_us_gets_a_new_registration(
    one: RegistrarServer,
) -> None:
    clock = FakeClock()
    account = Account(one.uri, "alice", expires=3600, keepalive_s=30)
    async with SipEndpoint(SipSettings(), clock) as endpoint:
        line = await endpoint.add(account)
        await clock.advance(0.1)
        await settle(50)
        assert "registered" in line.words
        one.silent = True
        await clock.advance(70.0)
        assert "unreachable" in line.words
        one.silent = False
        one.requests.clear()  # it has restarted, and knows nothing of us
        await clock.advance(16.0)
        await settle(50)
        await clock.advance(4.0)
        await one.until(lambda: bool(one.of("REGISTER")))
        assert "unreachable" not in line.words
        assert one.of("REGISTER")[0].require("Expires") == "3600"


async def test_where_another_server_answers_the_keepalive_we_register_there(
    one: RegistrarServer, two: RegistrarServer
) -> None:
    clock = FakeClock()
    account = Account(one.uri, "alice", expires=3600, keepalive_s=30, failover=(two.uri,))
    async with SipEndpoint(SipSettings(), clock) as endpoint:
        line = await endpoint.add(account)
        await clock.advance(0.1)
        await settle(50)
        one.silent = True
        await clock.advance(70.0)
        await settle(50)
        await clock.advance(4.0)
        await two.until(lambda: bool(two.of("REGISTER")))
        assert line.registration is not None


@pytest.mark.parametrize(
    ("gate", "networks", "believed"),
    [
        (GateSettings(trusted=()), (), False),
        (GateSettings(trusted=("127.0.0.0/8",)), (), True),
        (GateSettings(trusted=()), ("127.0.0.0/8",), True),
        (None, (), False),
        (None, ("127.0.0.0/8",), True),
    ],
)
async def test_who_a_caller_is_may_be_said_by_an_accounts_server_or_a_trusted_network_alone(
    gate: GateSettings | None, networks: tuple[str, ...], believed: bool
) -> None:
    """RFC 3325 section 5: P-Asserted-Identity of others is as good as none."""
    said = {"P-Asserted-Identity": "<sip:+4930110@police.example>"}
    account = Account("sip:192.0.2.1", "alice", register=False, allowed_sources=networks)
    settings = SipSettings(timers=QUICK, gate=gate)
    async with SipEndpoint(settings) as callee, SipEndpoint(settings) as caller:
        await callee.add(account)
        await caller.add(account)
        ours = await caller.place(
            f"sip:alice@127.0.0.1:{callee.port}", session().offer(), headers=said
        )
        theirs = await asyncio.wait_for(anext(callee.incoming), 5)
        expected = "sip:+4930110@police.example" if believed else None
        assert theirs.asserted_identity == expected
        assert theirs.headers["P-Asserted-Identity"] == said["P-Asserted-Identity"]
        await theirs.answer(session(50000).answer(theirs.offer or "")[0], headers=said)
        await asyncio.wait_for(ours.answered(), 5)
        assert ours.asserted_identity == expected
        await ours.bye()


async def test_the_server_of_the_account_that_a_call_is_placed_with_may_say_who_answers() -> None:
    said = {"P-Asserted-Identity": "<sip:bob@example.com>"}
    settings = SipSettings(timers=QUICK, gate=GateSettings(trusted=()))
    async with SipEndpoint(settings) as callee, SipEndpoint(settings) as caller:
        account = Account(f"sip:127.0.0.1:{callee.port}", "alice", register=False)
        ours = await caller.place("bob", session().offer(), account)
        theirs = await asyncio.wait_for(anext(callee.incoming), 5)
        await theirs.answer(session(50000).answer(theirs.offer or "")[0], headers=said)
        await asyncio.wait_for(ours.answered(), 5)
        assert ours.asserted_identity == "sip:bob@example.com"
        await ours.bye()


class Steering(RegistrarServer):
    """Takes a call for a far end that steers what follows to another place."""

    def __init__(self, to: RegistrarServer, transport: str) -> None:
        super().__init__()
        self.to = to
        self.transport = transport

    def _answer(self, data: bytes, source: Hop) -> Response | None:
        answer = super()._answer(data, source)
        if answer is None or answer.status != 404:
            return answer
        request = self.requests[-1]
        answer = reply(request, 200, to_tag="far")
        route = f"<{self.to.uri};transport={self.transport};lr>"
        answer.add("Record-Route", route)
        answer.add("Contact", f"<sip:+19005550100@127.0.0.1:{self.port}>")
        answer.set_body(ANSWER)
        return answer


@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_a_far_end_that_steers_a_call_to_itself_gets_no_digest(
    endpoint: SipEndpoint, two: RegistrarServer, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    two.challenge = True
    async with Steering(two, transport) as server:
        server.challenge = True
        account = Account(f"{server.uri};transport={transport}", "alice", "secret")
        await endpoint.add(account)
        call = await endpoint.place("bob", session().offer(), account)
        await asyncio.wait_for(call.answered(), 5)
        assert any(each.get("Authorization") for each in server.of("INVITE"))
        await asyncio.wait_for(call.bye(), 5)
        await two.until(lambda: bool(two.of("BYE")))
        assert two.of("ACK")
        assert not any(each.get("Authorization") for each in two.requests)
        assert "is no server of the account" in caplog.text
        await endpoint.remove(account.name)


async def test_the_accounts_server_may_challenge_what_it_gets_inside_a_call(
    endpoint: SipEndpoint, two: RegistrarServer
) -> None:
    server = Steering(two, "udp")
    server.to = server
    async with server:
        server.challenge = True
        account = Account(server.uri, "alice", "secret")
        await endpoint.add(account)
        call = await endpoint.place("bob", session().offer(), account)
        await asyncio.wait_for(call.answered(), 5)
        await asyncio.wait_for(call.bye(), 5)
        assert server.of("BYE")[-1].get("Authorization")
        await endpoint.remove(account.name)


class Redirecting(RegistrarServer):
    """Sends each call on to another address."""

    to = ""

    def _answer(self, data: bytes, source: Hop) -> Response | None:
        answer = super()._answer(data, source)
        if answer is None or answer.status != 404:
            return answer
        answer = reply(self.requests[-1], 302, to_tag="far")
        answer.add("Contact", f"<{self.to}>")
        return answer


async def test_a_stranger_who_redirects_a_call_to_the_accounts_server_gets_it_no_digest(
    endpoint: SipEndpoint, one: RegistrarServer
) -> None:
    one.challenge = True
    account = Account(one.uri, "alice", "secret", follow_redirects=True)
    await endpoint.add(account)
    stranger = Redirecting()
    stranger.to = one.uri.replace("sip:", "sip:+19005550100@")
    async with stranger:
        call = await endpoint.place(
            stranger.uri.replace("sip:", "sip:eve@"), session().offer(), account
        )
        with pytest.raises(CallRefused):
            await asyncio.wait_for(call.answered(), 5)
    assert one.of("INVITE")
    assert not any(each.get("Authorization") for each in one.of("INVITE"))
    await endpoint.remove(account.name)
