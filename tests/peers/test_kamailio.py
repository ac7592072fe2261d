"""A real Kamailio as registrar and proxy: accounts, calls along Record-Route, losses, failover."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from qwen3tts_phone.errors import CallRefused, RegistrationFailed
from qwen3tts_phone.sdp.session import SdpSession
from qwen3tts_phone.sip import (
    Account,
    CallState,
    ReinviteReceived,
    SipCall,
    SipEndpoint,
    SipSettings,
    TlsSettings,
)
from qwen3tts_phone.sip.registration import registration as registration_module
from tests.peers.kamailio_runner import (
    PASSWORDS,
    REALM,
    every_other,
    first_of_each,
    kamailio,
    kamailio_behind_relay,
    two_kamailios,
)
from tests.sip.certificates import Authority
from tests.sip.phones import QUICK

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("need_kamailio")]

ALICE, BOB = "alice", "bob"


def account(user: str, port: int, **fields: Any) -> Account:
    return Account(
        f"sip:127.0.0.1:{port}", user, fields.pop("password", PASSWORDS.get(user, "")), **fields
    )


def uri_of(user: str, port: int) -> str:
    return f"sip:{user}@127.0.0.1:{port}"


class Line:
    """One of our endpoints, registered, that answers whoever calls it."""

    def __init__(self, endpoint: SipEndpoint, account: Account, rtp_port: int) -> None:
        self.endpoint = endpoint
        self.account = account
        self.session = SdpSession("127.0.0.1", rtp_port)
        self.taken: list[SipCall] = []

    async def answer_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            async for call in self.endpoint.incoming:
                self.taken.append(call)
                group.create_task(self._answer(call))

    async def _answer(self, call: SipCall) -> None:
        ours = SdpSession("127.0.0.1", self.session.port)
        assert call.offer is not None
        call.ringing()
        await call.answer(ours.answer(call.offer)[0])
        async for event in call.events:
            if isinstance(event, ReinviteReceived) and event.offer is not None:
                event.respond(ours.answer(event.offer)[0])

    async def call(self, user: str, port: int) -> SipCall:
        """Call somebody through our server; it is up then."""
        async with asyncio.timeout(20):
            call = await self.endpoint.place(uri_of(user, port), self.session.offer(), self.account)
            answer = await call.answered()
        assert answer is not None
        self.session.accept(answer)
        return call

    async def hold_and_resume(self, call: SipCall) -> None:
        async with asyncio.timeout(20):
            held = await call.hold(self.session)
            assert not held.receive
            assert (await call.resume(self.session)).receive


@asynccontextmanager
async def line(
    user: str, port: int, *, tls: TlsSettings | None = None, **fields: Any
) -> AsyncIterator[Line]:
    """An endpoint that is registered as ``user`` while the block runs."""
    ours = account(user, port, **fields)
    async with SipEndpoint(SipSettings(timers=QUICK, tls=tls)) as endpoint:
        await endpoint.register(ours)
        one = Line(endpoint, ours, 40000 if user == ALICE else 50000)
        answering = asyncio.create_task(one.answer_all())
        try:
            yield one
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)


async def ended(call: SipCall) -> None:
    async with asyncio.timeout(20):
        async for _ in call.events:
            pass
    assert call.state is CallState.ENDED


async def test_an_account_is_registered_for_the_time_that_is_granted_and_stays_so(
    tmp_path: Path,
) -> None:
    async with kamailio_behind_relay(tmp_path, max_expires=2) as (_, relay):
        async with SipEndpoint(SipSettings(timers=QUICK)) as endpoint:
            registration = await endpoint.register(account(ALICE, relay.port, expires=600))
            assert registration.granted_s == 2
            first = relay.seen.count("200 REGISTER")
            for _ in range(2):
                async with asyncio.timeout(10):
                    await registration.refreshed()
            assert relay.seen.count("200 REGISTER") >= first + 2
        # Leaving takes the registration back.
        assert relay.seen.count("200 REGISTER") >= first + 3


async def test_a_registration_that_is_too_short_is_asked_for_again(tmp_path: Path) -> None:
    async with kamailio_behind_relay(tmp_path, min_expires=30) as (_, relay):
        async with SipEndpoint(SipSettings(timers=QUICK)) as endpoint:
            registration = await endpoint.register(account(ALICE, relay.port, expires=5))
            assert registration.granted_s == 30
        assert "423 REGISTER" in relay.seen


@pytest.mark.parametrize(("user", "password"), [(ALICE, "wrong"), ("nobody", "nothing")])
async def test_a_wrong_password_is_told_with_realm_and_user_and_not_tried_for_ever(
    tmp_path: Path, user: str, password: str
) -> None:
    async with kamailio_behind_relay(tmp_path) as (_, relay):
        async with SipEndpoint(SipSettings(timers=QUICK)) as endpoint:
            with pytest.raises(RegistrationFailed) as failed:
                await endpoint.register(account(user, relay.port, password=password))
        assert failed.value.status == 401
        assert (failed.value.realm, failed.value.user) == (REALM, user)
        assert REALM in str(failed.value)
        assert user in str(failed.value)
        assert password not in str(failed.value)
        assert relay.seen.count("REGISTER") <= 4


@pytest.mark.parametrize("inside", [False, True], ids=["trusting", "asking inside calls"])
async def test_calls_go_both_ways_through_the_proxy_and_so_does_all_inside_them(
    tmp_path: Path, inside: bool
) -> None:
    async with (
        kamailio_behind_relay(tmp_path, challenges_inside=inside) as (_, relay),
        line(ALICE, relay.port) as alice,
        line(BOB, relay.port) as bob,
    ):
        for caller, callee, name in ((alice, bob, BOB), (bob, alice, ALICE)):
            relay.seen.clear()
            call = await caller.call(name, relay.port)
            assert "407 INVITE" in relay.seen
            await caller.hold_and_resume(call)
            taken = callee.taken[-1]
            async with asyncio.timeout(20):
                await taken.bye()
            await ended(call)
            # What is inside the call went along Record-Route.
            assert relay.seen.count("ACK") >= 3
            assert "200 BYE" in relay.seen
            assert ("407 BYE" in relay.seen) is inside


async def test_what_the_proxy_refuses_is_told(tmp_path: Path) -> None:
    async with kamailio_behind_relay(tmp_path) as (_, relay), line(ALICE, relay.port) as alice:
        with pytest.raises(CallRefused) as refused:
            await alice.call("nobody", relay.port)
        assert refused.value.status == 404
        alice.account = account(ALICE, relay.port, password="wrong", name="wrong")
        with pytest.raises(CallRefused) as refused:
            await alice.call(BOB, relay.port)
        assert refused.value.status == 407
        assert (refused.value.realm, refused.value.user) == (REALM, ALICE)


async def test_the_first_request_and_the_first_answer_of_each_kind_may_be_lost(
    tmp_path: Path,
) -> None:
    async with kamailio_behind_relay(tmp_path) as (_, relay):
        lost = ("REGISTER", "401 REGISTER", "200 REGISTER", "INVITE", "407 INVITE", "200 INVITE")
        relay.loses = first_of_each(*lost, "ACK", "BYE", "200 BYE")
        async with line(ALICE, relay.port) as alice, line(BOB, relay.port) as bob:
            call = await alice.call(BOB, relay.port)
            await alice.hold_and_resume(call)
            async with asyncio.timeout(20):
                await call.bye()
            await ended(bob.taken[-1])
        assert {*lost, "BYE", "200 BYE"} <= {*relay.lost}


async def test_everything_may_be_lost_once(tmp_path: Path) -> None:
    async with kamailio_behind_relay(tmp_path) as (_, relay):
        relay.loses = every_other()
        async with line(ALICE, relay.port) as alice, line(BOB, relay.port) as bob:
            call = await alice.call(BOB, relay.port)
            async with asyncio.timeout(20):
                await call.bye()
            await ended(bob.taken[-1])
        assert len(relay.lost) > 10


async def test_the_nonces_of_the_proxy_grow_stale_and_calls_go_on(tmp_path: Path) -> None:
    async with (
        kamailio_behind_relay(tmp_path, nonce_s=1, challenges_inside=True) as (_, relay),
        line(ALICE, relay.port) as alice,
        line(BOB, relay.port) as bob,
    ):
        call = await alice.call(BOB, relay.port)
        for _ in range(3):
            await alice.hold_and_resume(call)
            await asyncio.sleep(0.7)  # the server's clock cannot be set
        async with asyncio.timeout(20):
            await call.bye()
        await ended(bob.taken[-1])


@pytest.mark.parametrize("transport", ["tcp", "udp"])
async def test_when_the_first_server_is_gone_the_second_one_has_our_calls(
    tmp_path: Path, transport: str
) -> None:
    suffix = f";transport={transport}"
    async with (
        two_kamailios(tmp_path, max_expires=5) as (first, second),
        line(
            *(ALICE, first.port),
            failover=(f"{second.registrar}{suffix}",),
            transport=transport,
        ) as alice,
        line(BOB, second.port, transport=transport) as bob,
    ):
        (registration,) = [each.registration for each in alice.endpoint.lines.values()]
        assert registration is not None
        assert str(first.port) in registration.server
        await first.kill()
        async with asyncio.timeout(30):
            await registration.refreshed()
        assert str(second.port) in registration.server
        # In, and out.
        for caller, name in ((bob, ALICE), (alice, BOB)):
            call = await caller.call(name, second.port)
            async with asyncio.timeout(20):
                await call.bye()


async def test_a_call_finds_the_second_server_by_itself(tmp_path: Path) -> None:
    async with (
        two_kamailios(tmp_path) as (first, second),
        line(ALICE, first.port, failover=(second.registrar,)) as alice,
        line(BOB, second.port),
    ):
        await first.kill()
        call = await alice.call(BOB, first.port)
        async with asyncio.timeout(20):
            await call.bye()


@pytest.mark.parametrize("transport", ["tcp", "tls"])
async def test_calls_go_through_the_proxy_by_tcp_and_tls(tmp_path: Path, transport: str) -> None:
    authority = Authority(tmp_path)
    proxy = authority.sign("proxy", "127.0.0.1")
    # Ours have no certificate: they call and are called by the connection that they have made.
    tls = TlsSettings(ca=authority.file)
    async with kamailio(tmp_path, tls=(proxy.certificate, proxy.key)) as server:
        port = server.tls_port if transport == "tls" else server.port
        async with (
            line(ALICE, port, transport=transport, tls=tls) as alice,
            line(BOB, port, transport=transport, tls=tls) as bob,
        ):
            call = await alice.call(BOB, port)
            await alice.hold_and_resume(call)
            async with asyncio.timeout(20):
                await bob.taken[-1].bye()
            await ended(call)
            assert bob.taken[-1].transport == transport


async def test_when_the_first_server_is_back_we_return_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration_module, "RETURN_S", 1.0)
    async with (
        two_kamailios(tmp_path, max_expires=5) as (first, second),
        line(ALICE, first.port, failover=(second.registrar,)) as alice,
    ):
        (registration,) = [each.registration for each in alice.endpoint.lines.values()]
        assert registration is not None
        await first.kill()
        async with asyncio.timeout(30):
            await registration.refreshed()
        assert str(second.port) in registration.server
        async with kamailio(tmp_path / "again", port=first.port, others=(second.port,)) as again:
            async with asyncio.timeout(40):
                while str(again.port) not in registration.server:
                    await registration.refreshed()
                async with line(BOB, again.port) as bob:
                    call = await bob.call(ALICE, again.port)
                    await call.bye()
