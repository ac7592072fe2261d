"""An account, and what is said of fields that cannot be used."""

from __future__ import annotations

import itertools

import pytest

from qwen3tts_phone.errors import BadSip, RegistrationFailed
from qwen3tts_phone.sip.core.account import Account, address_of_record
from qwen3tts_phone.sip.core.settings import SipSettings, TlsSettings
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.registration.lines import target_uri
from qwen3tts_phone.sip.registration.registration import (
    REGISTRATION_TRANSITIONS,
    RegistrationCore,
    RegistrationEvent,
    RegistrationState,
)
from tests.sip.registrar import Registrar
from tests.sip.wire import CHALLENGE, Phone, Wire, pair


def registering(
    wire: Wire, client: Phone, registrar: Registrar, expires: int = 300
) -> RegistrationCore:
    account = Account(registrar.uri, "alice", "secret", expires)
    core = RegistrationCore(client.agent, account, client.agent.hop(account.registrar))
    core.start(wire.now)
    return core


def state(core: RegistrationCore) -> RegistrationState:
    return core.state


def setup(expires: int = 300) -> tuple[Wire, Phone, Registrar, RegistrationCore]:
    wire, client, _ = pair()
    registrar = Registrar(wire)
    return wire, client, registrar, registering(wire, client, registrar, expires)


@pytest.mark.parametrize(
    ("state", "event"),
    [
        p
        for p in itertools.product(RegistrationState, RegistrationEvent)
        if p not in REGISTRATION_TRANSITIONS
    ],
    ids=lambda value: value.name,
)
def test_what_the_table_lacks_is_refused(
    state: RegistrationState, event: RegistrationEvent
) -> None:
    _, _, _, core = setup()
    core.state = state
    with pytest.raises(RegistrationFailed, match=state.name):
        core._move(event)


def test_a_registration_is_granted_and_refreshed_at_80_to_90_percent() -> None:
    wire, _client, registrar, core = setup(expires=100)
    wire.run(1000.0)
    assert state(core) is RegistrationState.REGISTERED
    gaps = [b - a for a, b in itertools.pairwise(registrar.times)]
    assert len(gaps) >= 10
    assert all(80.0 <= gap <= 90.1 for gap in gaps)
    assert len(set(gaps)) > 3
    requests = wire.requests("REGISTER")
    assert len({request.call_id for request in requests}) == 1
    assert [request.cseq for request in requests] == list(range(1, len(requests) + 1))


def test_the_granted_time_is_that_of_our_own_contact() -> None:
    wire, _, registrar, core = setup(expires=3600)
    registrar.grants = 50
    wire.run(200.0)
    assert core.granted_s == 50
    gaps = [b - a for a, b in itertools.pairwise(registrar.times)]
    assert all(40.0 <= gap <= 45.1 for gap in gaps)


def test_423_raises_the_interval() -> None:
    wire, _, registrar, core = setup(expires=60)
    registrar.least = 600
    wire.run(5.0)
    assert registrar.asked == [60, 600]
    assert state(core) is RegistrationState.REGISTERED
    assert core.granted_s == 600


def test_a_registrar_that_raises_for_ever_is_given_up() -> None:
    wire, client, _ = pair()
    registrar = Registrar(wire)

    def more(request: Request) -> list[Response]:
        response = reply(request, 423, to_tag="x")
        response.add("Min-Expires", str(int(request.require("Expires")) + 1))
        return [response]

    registrar.respond = more
    core = registering(wire, client, registrar)
    wire.run(60.0)
    assert state(core) is RegistrationState.ENDED
    assert len(wire.requests("REGISTER")) == 4


def test_a_challenge_is_answered_and_the_nonce_kept_for_the_refresh() -> None:
    wire, _, registrar, core = setup(expires=100)
    registrar.challenges = 1
    wire.run(95.0)
    assert state(core) is RegistrationState.REGISTERED
    authorizations = [r.get("Authorization") for r in wire.requests("REGISTER")]
    assert authorizations[0] is None
    assert "nc=00000001" in (authorizations[1] or "")
    assert "nc=00000002" in (authorizations[2] or "")


@pytest.mark.parametrize("status", [403, 404, 503])
def test_a_refusal_of_the_first_attempt_ends_it_with_the_status(status: int) -> None:
    wire, client, registrar, core = setup()
    registrar.status = status
    wire.run(1.0)
    assert state(core) is RegistrationState.ENDED
    assert isinstance(core.error, RegistrationFailed)
    assert core.error.status == status
    assert not client.agent.timed


def test_a_wrong_password_names_itself() -> None:
    wire, _, registrar, core = setup()
    registrar.respond = lambda r: [unauthorized(r)]
    wire.run(1.0)
    assert isinstance(core.error, RegistrationFailed)
    assert "password" in core.error.remedy
    assert len(wire.requests("REGISTER")) == 2


def unauthorized(request: Request) -> Response:
    response = reply(request, 401, "Unauthorized", to_tag="x")
    response.add("WWW-Authenticate", CHALLENGE)
    return response


def test_a_registrar_that_does_not_answer_ends_the_first_attempt() -> None:
    wire, client, _ = pair(loss=1.0)
    registrar = Registrar(wire)
    core = registering(wire, client, registrar)
    wire.run(33.0)
    assert state(core) is RegistrationState.ENDED
    assert "does not answer" in str(core.error)


def test_a_failed_refresh_is_tried_again_and_heals() -> None:
    wire, _, registrar, core = setup(expires=100)
    wire.run(10.0)
    registrar.status = 503
    wire.run(85.0)
    assert state(core) is RegistrationState.RETRYING
    assert isinstance(core.error, RegistrationFailed)
    registrar.status = 200
    wire.run(20.0)
    assert state(core) is RegistrationState.REGISTERED
    assert core.error is None


def test_retry_after_is_honoured() -> None:
    wire, _, registrar, _ = setup(expires=100)
    wire.run(10.0)
    registrar.status = 503
    wire.run(120.0)
    gaps = [b - a for a, b in itertools.pairwise(registrar.times[1:])]
    assert gaps[0] >= 7.0


def test_unregistering_asks_for_zero_and_ends() -> None:
    wire, client, registrar, core = setup()
    wire.run(1.0)
    core.stop(wire.now)
    assert state(core) is RegistrationState.UNREGISTERING
    wire.run(1.0)
    assert registrar.asked[-1] == 0
    assert state(core) is RegistrationState.ENDED
    wire.run(1000.0)
    assert len(registrar.asked) == 2
    assert client.agent.next_deadline() is None


def test_unregistering_while_a_refresh_is_under_way_is_not_undone_by_it() -> None:
    wire, _, registrar, core = setup(expires=100)
    wire.run(1.0)
    wire.until(lambda: state(core) is RegistrationState.REFRESHING)
    registrar.challenges = 1
    core.stop(wire.now)
    wire.run(5.0)
    assert state(core) is RegistrationState.ENDED
    assert registrar.asked[-1] == 0


def test_unregistering_while_the_registrar_is_silent_waits_for_its_own_attempt() -> None:
    wire, client, registrar, core = setup(expires=100)
    wire.run(1.0)
    registrar.respond = lambda request: []
    wire.until(lambda: state(core) is RegistrationState.REFRESHING)
    wire.run(20.0)
    core.stop(wire.now)
    wire.run(20.0)
    assert state(core) is RegistrationState.UNREGISTERING
    wire.run(20.0)
    assert state(core) is RegistrationState.ENDED
    assert isinstance(core.error, RegistrationFailed)
    assert len(client.agent.layer) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"registrar": "nonsense"},
        {"registrar": "tel:123"},
        {"user": ""},
        {"expires": 0},
        {"proxy": "nonsense"},
    ],
)
def test_an_account_is_checked_when_it_is_made(fields: dict[str, object]) -> None:
    values: dict[str, object] = {
        "registrar": "sip:10.0.0.5",
        "user": "alice",
        "password": "x",
        **fields,
    }
    with pytest.raises(BadSip):
        Account(**values)  # type: ignore[arg-type]


def test_an_outbound_proxy_gets_the_register_by_a_route() -> None:
    wire, client, _ = pair()
    registrar = Registrar(wire)
    account = Account("sip:example.org", "alice", "x", proxy=registrar.uri)
    core = RegistrationCore(client.agent, account, client.agent.hop(account.proxy))
    core.start(wire.now)
    wire.run(1.0)
    assert state(core) is RegistrationState.REGISTERED
    (request,) = wire.requests("REGISTER")
    assert request.uri == "sip:example.org"
    assert request.headers.getlist("Route") == [f"<{registrar.uri};lr>"]


# --- a registrar that was away, and may have forgotten us


def test_a_registrar_that_answers_again_is_registered_with_soon() -> None:
    wire, _, registrar, core = setup(expires=3600)
    wire.run(10.0)
    core.server_returned(wire.now)
    wire.run(3.1)
    assert len(registrar.asked) == 2
    assert state(core) is RegistrationState.REGISTERED


def test_clients_do_not_come_back_at_the_same_moment() -> None:
    delays = set()
    for seed in range(8):
        wire, client, _ = pair(seed=seed)
        registrar = Registrar(wire)
        core = registering(wire, client, registrar, 3600)
        wire.run(10.0)
        at = wire.now
        core.server_returned(at)
        wire.run(4.0)
        delays.add(round(registrar.times[-1] - at, 2))
    assert len(delays) > 4
    assert max(delays) <= 3.1


def test_a_registrar_that_comes_and_goes_is_asked_at_most_every_30_seconds() -> None:
    wire, _, registrar, core = setup(expires=3600)
    wire.run(10.0)
    for _ in range(300):
        core.server_returned(wire.now)
        wire.run(1.0)
    gaps = [b - a for a, b in itertools.pairwise(registrar.times[1:])]
    assert 9 <= len(registrar.times) <= 12
    assert min(gaps) >= 29.9


def test_an_attempt_that_found_no_answer_is_repeated_when_the_server_is_back() -> None:
    wire, client, _ = pair()
    registrar = Registrar(wire)
    registrar.silent = True
    account = Account(registrar.uri, "alice", "secret", 300)
    core = RegistrationCore(
        client.agent, account, client.agent.hop(account.registrar), keep_trying=True
    )
    core.start(wire.now)
    while state(core) is not RegistrationState.RETRYING:
        wire.run(1.0)
    registrar.silent = False
    core.server_returned(wire.now)
    wire.run(3.1)
    assert state(core) is RegistrationState.REGISTERED


def test_a_registrar_that_refuses_us_is_not_asked_sooner_for_it() -> None:
    wire, client, _ = pair()
    registrar = Registrar(wire)
    registrar.status = 403
    account = Account(registrar.uri, "alice", "secret", 300)
    core = RegistrationCore(
        client.agent, account, client.agent.hop(account.registrar), keep_trying=True
    )
    core.start(wire.now)
    wire.run(1.0)
    asked = len(registrar.asked)
    core.server_returned(wire.now)
    wire.run(5.0)
    assert len(registrar.asked) == asked


def test_an_account_has_a_name_and_keeps_its_password_to_itself() -> None:
    account = Account("sip:pbx.example:5070", "alice", "hush")
    assert account.name == "alice@pbx.example"
    assert "hush" not in repr(account)
    assert Account("sip:pbx.example", "", register=False).name == "pbx.example"
    assert Account("sip:pbx.example", "alice", name="main").name == "main"


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"user": ""}, "user"),
        ({"user": "a\r\nb"}, "user"),
        ({"registrar": "tel:110"}, "registrar"),
        ({"expires": 0}, "expires"),
        ({"proxy": "tel:110"}, "proxy"),
        ({"failover": ("tel:110",)}, "failover"),
        ({"keepalive_s": 1.0}, "keepalive_s"),
        ({"keepalive_s": -1.0}, "keepalive_s"),
        ({"keepalive": "ping"}, "keepalive"),
        ({"transport": "sctp"}, "transport"),
        ({"srtp": "maybe"}, "srtp"),
        ({"nat": "yes"}, "nat"),
        ({"digest": "md5"}, "digest"),
        ({"registrar": "sips:pbx.example;transport=udp"}, "registrar"),
        ({"registrar": "sips:pbx.example", "transport": "udp"}, "registrar"),
        ({"proxy": "sips:proxy.example;transport=udp"}, "proxy"),
        ({"failover": ("sips:pbx.example;transport=udp",)}, "failover"),
        ({"realm": "a\nb"}, "realm"),
        ({"realm": ("a", "")}, "realm"),
        ({"realm": "x" * 300}, "realm"),
        ({"allowed_sources": ("pbx.example",)}, "allowed_sources"),
        ({"display_name": "a\nb"}, "display_name"),
    ],
)
def test_a_field_that_cannot_be_used_is_named_first(fields: dict[str, object], name: str) -> None:
    values: dict[str, object] = {"registrar": "sip:pbx.example", "user": "alice", **fields}
    with pytest.raises(BadSip, match=f"^{name}"):
        Account(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("4711", "sip:4711@pbx.example:5070"),
        (" bob ", "sip:bob@pbx.example:5070"),
        ("tel:+49-30-(123).45;phone-context=x", "sip:+493012345@pbx.example:5070"),
        ("sip:bob@elsewhere.example", "sip:bob@elsewhere.example"),
    ],
)
def test_what_is_no_address_is_the_registrars(target: str, wanted: str) -> None:
    assert target_uri(target, Account("sip:pbx.example:5070", "alice")) == wanted


def test_a_proxy_takes_a_telephone_number_as_it_is() -> None:
    account = Account("sip:pbx.example", "alice", proxy="sip:proxy.example")
    assert target_uri("tel:+4930123", account) == "tel:+4930123"
    assert target_uri("tel:+4930123", None) == "tel:+4930123"


def test_an_account_of_a_sips_registrar_has_a_sips_address() -> None:
    assert address_of_record(Account("sips:pbx.example", "alice")) == "sips:alice@pbx.example"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"nat": "maybe"}, "^nat="),
        ({"host": ()}, "^host"),
        ({"transports": ("tls",)}, "^transports"),
        ({"host": ("127.0.0.1",), "advertised_port": 70000}, "^advertised_port="),
    ],
)
def test_settings_of_the_endpoint_are_checked_by_name(fields: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        SipSettings(**fields)  # type: ignore[arg-type]


def test_tls_comes_after_the_transports_that_are_named() -> None:
    assert SipSettings(tls=TlsSettings()).enabled == ("udp", "tcp", "tls")
    assert SipSettings(transports=("tls",), tls=TlsSettings()).enabled == ("tls",)
