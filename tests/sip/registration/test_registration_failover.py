"""Several registrars: which of them has us, and when."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from qwen3tts_phone.errors import RegistrationFailed
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.registration.keepalive import PONG_S, Keepalive, Located
from qwen3tts_phone.sip.registration.registration import (
    JITTER,
    MAX_MOVES,
    REFUSED_S,
    RETRY_S,
    RETURN_S,
    RegistrationCore,
    RegistrationState,
)
from tests.sip.registrar import Registrar
from tests.sip.wire import CHALLENGE, Phone, Wire

FAILOVER_S = 8.0
"""16*T1: after this a silent registrar is given up for the next one."""


class Scene:
    """A client and two registrars, the second one for when the first does not answer."""

    def __init__(self, *, wait: bool = True, **account: object) -> None:
        self.wire = Wire()
        self.client = Phone(self.wire, "10.0.0.1")
        self.first = Registrar(self.wire, "10.0.0.5")
        self.second = Registrar(self.wire, "10.0.0.6")
        fields: dict[str, object] = {"expires": 300, **account}
        self.account = Account("sip:10.0.0.5", "alice", "secret", **fields)  # type: ignore[arg-type]
        self.hops: list[Hop] | OSError = [
            Hop("udp", "10.0.0.5", 5060, rank=0),
            Hop("udp", "10.0.0.6", 5060, rank=1, server="sip:10.0.0.6"),
        ]
        self.core = RegistrationCore(
            self.client.agent, self.account, locate=self._locate, keep_trying=not wait
        )
        self.core.start(self.wire.now)

    def _locate(self, located: Located) -> None:
        if isinstance(self.hops, OSError):
            located((), self.hops, self.wire.now)
        else:
            located(self.hops, None, self.wire.now)

    @property
    def state(self) -> RegistrationState:
        return self.core.state

    def at(self) -> str:
        assert self.core.hop is not None
        return self.core.hop.host

    def until(self, condition: Callable[[], bool], within_s: float = 600.0) -> None:
        self.wire.until(condition, within_s)


def test_the_first_one_has_us_where_it_answers() -> None:
    scene = Scene()
    scene.wire.run(1.0)
    assert scene.state is RegistrationState.REGISTERED
    assert scene.at() == "10.0.0.5"
    assert scene.second.got == []


def test_a_silent_first_one_gives_way_to_the_second_before_the_transaction_would_end() -> None:
    scene = Scene()
    scene.first.silent = True
    scene.wire.run(FAILOVER_S + 1.0)
    assert scene.state is RegistrationState.REGISTERED
    assert scene.at() == "10.0.0.6"
    assert scene.core.is_bound(scene.wire.now)


@pytest.mark.parametrize("status", [500, 503, 504, 408])
def test_a_first_one_that_cannot_gives_way_at_once(status: int) -> None:
    scene = Scene()
    scene.first.status = status
    scene.wire.run(1.0)
    assert scene.state is RegistrationState.REGISTERED
    assert scene.at() == "10.0.0.6"


def test_a_first_one_where_nobody_listens_gives_way_at_once() -> None:
    scene = Scene()
    scene.first.silent = True
    scene.wire.run(0.1)
    scene.client.agent.transport_failed(Hop("udp", "10.0.0.5", 5060), scene.wire.now)
    scene.wire.run(1.0)
    assert scene.at() == "10.0.0.6"


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_is_the_accounts_matter_and_no_other_server_is_asked(status: int) -> None:
    scene = Scene()
    scene.first.status = status
    scene.wire.run(1.0)
    assert scene.state is RegistrationState.ENDED
    assert scene.second.got == []


def test_the_second_one_is_asked_in_its_own_name_with_our_address_of_record() -> None:
    scene = Scene()
    scene.first.status = 503
    scene.second.challenges = 1
    scene.wire.run(1.0)
    requests = scene.wire.requests("REGISTER")
    assert [request.uri for request in requests] == ["sip:10.0.0.5", *["sip:10.0.0.6"] * 2]
    assert {request.to.uri for request in requests} == {"sip:alice@10.0.0.5"}
    assert 'uri="sip:10.0.0.6"' in (requests[2].get("Authorization") or "")
    assert len({request.branch for request in requests}) == 3


def test_the_same_realm_at_the_second_one_gets_the_password_again() -> None:
    scene = Scene()
    scene.first.challenges = scene.second.challenges = 1
    scene.wire.run(1.0)
    scene.first.silent = True
    scene.until(lambda: scene.at() == "10.0.0.6" and scene.state is RegistrationState.REGISTERED)


def test_a_challenge_of_the_next_one_is_answered_though_the_realm_is_known() -> None:
    scene = Scene()
    first, second = scene.first.respond, scene.second.respond
    scene.first.challenges = 1

    def then_503(request: Request) -> list[Response]:
        if request.get("Authorization") is not None:
            return [reply(request, 503, to_tag="x")]
        return first(request)

    def own_nonce(request: Request) -> list[Response]:
        if 'nonce="n2"' in (request.get("Authorization") or ""):
            return second(request)
        response = reply(request, 401, to_tag="x")
        response.add("WWW-Authenticate", CHALLENGE.replace("n1", "n2"))
        return [response]

    scene.first.respond, scene.second.respond = then_503, own_nonce
    scene.wire.run(2.0)
    assert scene.state is RegistrationState.REGISTERED
    assert scene.at() == "10.0.0.6"


def test_unregistering_where_nobody_has_us_asks_nobody() -> None:
    scene = Scene(wait=False)
    scene.first.status = scene.second.status = 500
    scene.wire.run(1.0)
    asked = len(scene.wire.carried)
    scene.core.stop(scene.wire.now)
    scene.wire.run(1.0)
    assert scene.state is RegistrationState.ENDED
    assert len(scene.wire.carried) == asked


def test_while_the_first_one_is_away_the_refreshes_stay_with_the_second() -> None:
    scene = Scene(expires=100)
    scene.first.silent = True
    scene.wire.run(1000.0)
    assert scene.state is RegistrationState.REGISTERED
    gaps = [b - a for a, b in itertools.pairwise(scene.second.times)]
    assert all(80.0 <= gap <= 90.1 for gap in gaps)


def test_a_first_one_that_is_back_has_us_again_soon() -> None:
    scene = Scene(expires=3600)
    scene.first.silent = True
    scene.wire.run(FAILOVER_S + 1.0)
    assert scene.at() == "10.0.0.6"
    scene.first.silent = False
    scene.wire.run(RETURN_S + 1.0)
    assert scene.state is RegistrationState.REGISTERED
    assert scene.at() == "10.0.0.5"
    assert scene.second.asked == [3600]
    scene.wire.run(200.0)
    assert scene.first.options == 1


def test_refreshes_that_come_often_do_not_keep_the_best_one_from_being_asked() -> None:
    scene = Scene(expires=20)
    scene.first.silent = True
    scene.wire.run(FAILOVER_S + 1.0)
    scene.first.silent = False
    scene.wire.run(RETURN_S + 1.0)
    assert scene.at() == "10.0.0.5"


def test_one_that_answers_503_is_not_back() -> None:
    scene = Scene(expires=3600)
    scene.first.status = 503
    scene.wire.run(3 * RETURN_S)
    assert scene.at() == "10.0.0.6"
    assert scene.first.options >= 2


def test_servers_of_one_rank_are_as_good_as_each_other() -> None:
    scene = Scene(expires=3600)
    scene.hops = [Hop("udp", "10.0.0.5", 5060), Hop("udp", "10.0.0.6", 5060)]
    scene.core.stop(scene.wire.now)
    core = RegistrationCore(scene.client.agent, scene.account, locate=scene._locate)
    scene.first.silent = True
    core.start(scene.wire.now)
    scene.wire.run(20.0)
    scene.first.silent = False
    scene.wire.run(300.0)
    assert core.hop is not None
    assert core.hop.host == "10.0.0.6"
    assert scene.first.options == 0


def test_a_refresh_that_the_second_one_alone_can_take_moves_there() -> None:
    scene = Scene(expires=100)
    scene.wire.run(1.0)
    scene.first.silent = True
    scene.until(lambda: scene.at() == "10.0.0.6")
    scene.wire.run(2.0)
    assert scene.state is RegistrationState.REGISTERED
    assert scene.core.error is None


def test_where_none_answers_it_is_tried_again_with_growing_waits_of_some_chance() -> None:
    scene = Scene(wait=False)
    scene.first.status = scene.second.status = 500
    for registrar in (scene.first, scene.second):
        registrar.respond = _without_retry_after(registrar)
    scene.wire.run(200.0)
    assert scene.state is RegistrationState.RETRYING
    waits = [b - a for a, b in itertools.pairwise(scene.first.times)]
    for wait, wanted in zip(waits, RETRY_S, strict=False):
        assert wanted * (1 - JITTER) <= wait <= wanted * (1 + JITTER) + 1.0
    assert len({round(wait / wanted, 3) for wait, wanted in zip(waits, RETRY_S, strict=False)}) > 1


def _without_retry_after(registrar: Registrar) -> Callable[[Request], list[Response]]:
    answer = registrar.respond

    def bare(request: Request) -> list[Response]:
        responses = answer(request)
        for response in responses:
            response.headers.remove("Retry-After")
        return responses

    return bare


def test_a_wrong_password_is_not_tried_often() -> None:
    scene = Scene(wait=False)
    scene.first.status = 403
    scene.wire.run(sum(REFUSED_S))
    assert 2 <= len(scene.first.times) <= 4
    assert isinstance(scene.core.error, RegistrationFailed)
    assert scene.core.error.status == 403


def test_with_patience_a_registrar_that_comes_late_has_us_in_the_end() -> None:
    scene = Scene(wait=False)
    scene.first.silent = scene.second.silent = True
    scene.wire.run(300.0)
    assert scene.state in (RegistrationState.RETRYING, RegistrationState.REFRESHING)
    scene.first.silent = False
    scene.until(lambda: scene.state is RegistrationState.REGISTERED)
    assert scene.core.error is None


def test_servers_that_cannot_be_looked_up_are_told_and_tried_again() -> None:
    scene = Scene(wait=False)
    scene.first.silent = scene.second.silent = True
    scene.hops = OSError("no such name")
    scene.until(lambda: isinstance(scene.core.error, RegistrationFailed))
    scene.until(lambda: getattr(scene.core.error, "why", "") == "dns")
    assert "has no address" in str(scene.core.error)
    scene.first.silent = False
    scene.hops = [Hop("udp", "10.0.0.5", 5060)]
    scene.until(lambda: scene.state is RegistrationState.REGISTERED)


def test_unregistering_goes_to_whoever_has_us() -> None:
    scene = Scene()
    scene.first.silent = True
    scene.wire.run(FAILOVER_S + 1.0)
    scene.core.stop(scene.wire.now)
    scene.wire.run(1.0)
    assert scene.state is RegistrationState.ENDED
    assert scene.second.asked[-1] == 0
    assert not scene.core.is_bound(scene.wire.now)


def test_stopping_before_any_server_was_found_ends_it() -> None:
    wire = Wire()
    client = Phone(wire, "10.0.0.1")
    waiting: list[Located] = []
    core = RegistrationCore(
        client.agent, Account("sip:10.0.0.5", "alice"), locate=waiting.append, keep_trying=True
    )
    core.start(wire.now)
    core.stop(wire.now)
    assert core.state is RegistrationState.ENDED
    # An answer of the name server that comes now changes nothing.
    waiting[0]((Hop("udp", "10.0.0.5", 5060),), None, wire.now)
    wire.run(10.0)
    assert wire.carried == []


def test_a_lost_connection_is_made_anew_by_registering_at_once() -> None:
    scene = Scene(expires=3600)
    scene.wire.run(1.0)
    scene.core._flow = 7
    scene.core.connection_lost(Hop("tcp", "10.0.0.5", 5060, flow=6), scene.wire.now)
    scene.wire.run(5.0)
    assert len(scene.first.asked) == 1
    scene.core.connection_lost(Hop("tcp", "10.0.0.5", 5060, flow=7), scene.wire.now)
    scene.wire.run(2.0)
    assert len(scene.first.asked) == 2


def test_a_changed_address_is_registered_and_the_old_one_removed() -> None:
    scene = Scene(expires=3600)
    scene.wire.run(10.0)
    scene.client.agent._local = lambda hop: ("10.0.9.9", 5080)
    scene.core.address_changed(scene.wire.now)
    scene.wire.run(2.0)
    assert scene.first.contacts[1] == [
        "<sip:alice@10.0.9.9:5080>",
        "<sip:alice@10.0.0.1:5060>;expires=0",
    ]
    scene.core.stop(scene.wire.now)
    scene.wire.run(2.0)
    assert scene.first.contacts[2] == ["<sip:alice@10.0.9.9:5080>"]


def test_an_address_that_is_the_same_changes_nothing() -> None:
    scene = Scene(expires=3600)
    scene.wire.run(10.0)
    scene.core.address_changed(scene.wire.now)
    scene.wire.run(60.0)
    assert len(scene.first.asked) == 1


def test_a_nat_with_a_new_address_each_time_is_given_up_on() -> None:
    scene = Scene(expires=3600)
    ports = itertools.count(6000)

    def learn(hop: Hop, response: Response) -> None:
        port = next(ports)
        scene.client.agent._local = lambda hop: ("192.0.2.1", port)

    scene.core._learn = learn
    scene.wire.run(600.0)
    assert len(scene.first.asked) == 1 + MAX_MOVES


def test_the_words_name_user_and_realm() -> None:
    scene = Scene(auth_user="alice-auth")

    def challenged(request: Request) -> list[Response]:
        response = reply(request, 401, "Unauthorized", to_tag="x")
        response.add("WWW-Authenticate", CHALLENGE)
        return [response]

    scene.first.respond = challenged
    scene.wire.run(1.0)
    error = scene.core.error
    assert isinstance(error, RegistrationFailed)
    assert error.status == 401
    assert (error.realm, error.user) == ("test", "alice-auth")
    assert "user 'alice-auth' of the realm 'test'" in error.message
    assert "secret" not in str(error)


def test_an_interval_that_is_too_brief_for_good_says_which_one_would_do() -> None:
    scene = Scene(expires=60)
    least = itertools.count(100, 100)

    def more(request: Request) -> list[Response]:
        response = reply(request, 423, to_tag="x")
        response.add("Min-Expires", str(next(least)))
        return [response]

    scene.first.respond = more
    scene.wire.run(5.0)
    assert isinstance(scene.core.error, RegistrationFailed)
    assert "expires=400" in scene.core.error.remedy


PERIOD_S = 30.0


class Pinged:
    """A keepalive over connections that answer as a test says."""

    def __init__(self, transport: str) -> None:
        self.now = 1000.0
        self.answers = True
        self.broken: list[Hop] = []
        self.pings = 0
        self.hop = Hop(transport, "10.0.0.5", 5060)
        account = Account(
            "sip:10.0.0.5", "alice", keepalive_s=PERIOD_S, keepalive="crlf", name="line"
        )
        self.keepalive = Keepalive(
            Phone(Wire(), "10.0.0.1").agent,
            account,
            lambda found: found([self.hop], None, self.now),
            self,
        )
        self.returned: list[float] = []
        self.keepalive.returned = self.returned.append
        self.keepalive.start(self.now)

    @property
    def reachable(self) -> bool | None:
        return self.keepalive.reachable

    def ping(self, hop: Hop) -> bool:
        self.pings += 1
        return True

    def heard_at(self, hop: Hop) -> float | None:
        return self.now if self.answers else None

    def abort(self, hop: Hop) -> None:
        self.broken.append(hop)

    def rounds(self, count: int) -> None:
        """Let so many pings and their answers, or want of answers, pass."""
        for _ in range(count):
            self.keepalive.tick(self.now)
            self.now += PONG_S
            self.keepalive.tick(self.now)
            self.now += PERIOD_S


@pytest.mark.parametrize("transport", ["tcp", "tls"])
def test_a_server_that_answers_pings_again_over_a_connection_is_told_as_returned(
    transport: str,
) -> None:
    line = Pinged(transport)
    line.rounds(2)
    assert (line.reachable, line.returned) == (True, [])
    line.answers = False
    line.rounds(2)
    away = line.reachable
    line.answers = True
    line.rounds(2)
    assert (away, line.reachable, len(line.returned)) == (False, True, 1)


def test_over_udp_blank_lines_tell_neither_that_a_server_is_away_nor_that_it_is_back() -> None:
    line = Pinged("udp")
    line.answers = False
    line.rounds(3)
    line.answers = True
    line.rounds(3)
    assert line.pings == 6
    assert line.reachable is None
    assert not line.returned
