"""Who gets an answer to a challenge: far ends that steer a dialog, and what must work."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from qwen3tts_phone.errors import CallRefused
from qwen3tts_phone.sip.call.call import Call
from qwen3tts_phone.sip.core.account import MAX_SERVERS, Account, AccountCredentials
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.registration.registration import RegistrationCore
from qwen3tts_phone.sip.transaction.digest import Digest
from tests.sip.transaction.test_digest import DOES
from tests.sip.wire import ANSWER, Phone, Stranger, Wire, ended, pair

SERVER = Hop("udp", "10.0.0.5", 5060)
EVIL = Hop("udp", "10.0.0.9", 5060)
ACCOUNT = Account("sip:10.0.0.5", "us", "secret", name="main")
PREMIUM = "sip:+19005550100@10.0.0.5"
CHOSEN = 'Digest realm="pbx", nonce="chosen", qop="auth", algorithm=SHA-256'


def credentials(account: Account = ACCOUNT, *, realm: str = "pbx") -> AccountCredentials:
    """Of an account that has registered and was asked with that realm."""
    made = AccountCredentials(account, lambda hop: hop)
    made.servers = (SERVER,)
    if realm:
        learn(made, f'Digest realm="{realm}", nonce="n", qop="auth"', method="REGISTER")
    return made


def a_request(
    method: str = "INVITE",
    *,
    inside: bool = False,
    uri: str = PREMIUM,
    routes: tuple[str, ...] = (),
) -> Request:
    made = Request(method, uri)
    made.add("To", "<sip:bob@10.0.0.5>" + (";tag=theirs" if inside else ""))
    for route in routes:
        made.add("Route", route)
    return made


def a_challenge(text: str, status: int = 407) -> Response:
    response = Response(status, "")
    response.add("Proxy-Authenticate" if status == 407 else "WWW-Authenticate", text)
    return response


def learn(made: AccountCredentials, text: str, *, method: str = "INVITE") -> Response:
    digest = made.digest()
    assert digest is not None
    response = a_challenge(text)
    digest.answerable(response, a_request(method), SERVER)
    return response


def why(
    made: AccountCredentials,
    request: Request,
    hop: Hop = SERVER,
    text: str = CHOSEN,
    *,
    status: int = 407,
    reached: bool = False,
) -> str:
    """Why a challenge gets no answer; empty where the retry carries one."""
    digest = made.digest()
    assert digest is not None
    response = a_challenge(text, status)
    asked = digest.answerable(response, request, hop, reached=reached)
    assert bool(asked) is not bool(response.unanswered)
    again = Request(request.method, request.uri)
    again.copy_headers(request)
    digest.authorize(again, hop)
    name = "Proxy-Authorization" if status == 407 else "Authorization"
    assert (again.get(name) is not None) is bool(asked)
    return response.unanswered


class Proxy(Stranger):
    """The account's server: it hands calls on to a far end, which answers as it likes."""

    def __init__(self, wire: Wire, contact: str, routes: tuple[str, ...]) -> None:
        super().__init__(wire, "10.0.0.5")
        self.challenges = ""
        """What requests inside the call are challenged with, always; empty = not."""
        self.relays = False
        """Whether it had taken those requests: the far end behind it challenges."""

        def answer(request: Request) -> list[Response]:
            return answer_as_far_end(self, request, contact, routes)

        self.respond = answer


def answer_as_far_end(
    stranger: Proxy, request: Request, contact: str, routes: tuple[str, ...]
) -> list[Response]:
    if request.method == "ACK":
        return []
    inside = request.to.tag is not None
    if (inside and stranger.challenges) or (not inside and not request.get("Proxy-Authorization")):
        response = reply(request, 407)
        response.add("Proxy-Authenticate", (inside and stranger.challenges) or CHOSEN)
        taken = inside and stranger.relays and request.method == "INVITE"
        return [reply(request, 100), response] if taken else [response]
    response = reply(request, 202 if request.method == "REFER" else 200, to_tag="far")
    response.add("Contact", f"<{contact}>")
    for route in routes:
        response.add("Record-Route", route)
    response.set_body(ANSWER if request.method in ("INVITE", "UPDATE") else None)
    return [response]


def steered(contact: str, *routes: str, relays: bool = False) -> tuple[Wire, Phone, Stranger, Call]:
    """A call by the account whose far end has set Contact and Record-Route; it challenges."""
    wire = Wire()
    caller = Phone(wire, "10.0.0.1")
    server = Proxy(wire, contact, routes)
    evil = Stranger(wire)

    def challenge(request: Request) -> list[Response]:
        if request.method == "ACK":
            return []
        response = reply(request, 407)
        response.add("Proxy-Authenticate", CHOSEN)
        return [response]

    evil.respond = challenge
    server.challenges, server.relays = CHOSEN, relays
    call = caller.call("sip:bob@10.0.0.5", digest=credentials().digest())
    wire.run(0.5)
    assert call.state.name == "UP"
    return wire, caller, evil, call


def has_digest(request: Request) -> bool:
    return request.get("Proxy-Authorization") is not None or (
        request.get("Authorization") is not None
    )


@pytest.mark.parametrize("method", DOES)
@pytest.mark.parametrize(
    ("contact", "routes"),
    [
        (PREMIUM, ("<sip:10.0.0.9;lr>",)),
        (PREMIUM, ("<sip:10.0.0.9;lr>", "<sip:10.0.0.5;lr>")),
        (PREMIUM, ("<sip:us@10.0.0.9:5060>",)),
        ("sip:+19005550100@10.0.0.9", ()),
    ],
)
def test_a_far_end_that_steers_the_dialog_to_itself_gets_no_digest(
    method: str, contact: str, routes: tuple[str, ...]
) -> None:
    wire, _caller, evil, call = steered(contact, *reversed(routes))
    assert not any(isinstance(got, Request) and has_digest(got) for got in evil.got)
    DOES[method](call, wire.now)
    wire.run(2.0)
    asked = [got for got in evil.got if isinstance(got, Request) and got.method == method]
    assert asked
    assert not any(has_digest(request) for request in asked)


@pytest.mark.parametrize("method", ["INVITE", "REFER"])
@pytest.mark.parametrize(
    "routes",
    [
        ("<sip:10.0.0.5;lr>", "<sip:10.0.0.9;lr>"),
        # A strict router of RFC 2543: the route is the Request-URI, and the Contact comes last.
        (f"<{PREMIUM}>", "<sip:10.0.0.9;lr>"),
    ],
)
def test_no_request_that_begins_a_call_takes_a_digest_past_the_accounts_server(
    method: str, routes: tuple[str, ...]
) -> None:
    wire, _caller, _evil, call = steered(PREMIUM, *reversed(routes))
    before = len(wire.requests(method))
    DOES[method](call, wire.now)
    wire.run(2.0)
    sent = wire.requests(method)[before:]
    assert sent
    assert not any(has_digest(request) for request in sent)


@pytest.mark.parametrize("method", DOES)
@pytest.mark.parametrize(
    ("contact", "unasked"), [("sip:bob@10.0.0.7", False), ("sip:bob@10.0.0.5", True)]
)
def test_the_accounts_own_server_may_challenge_inside_the_call(
    method: str, contact: str, unasked: bool
) -> None:
    wire, _caller, _evil, call = steered(contact, "<sip:10.0.0.5;lr>")
    before = len(wire.requests(method))
    DOES[method](call, wire.now)
    wire.run(2.0)
    sent = wire.requests(method)[before:]
    # What a far end receives has no digest that it could keep, unless the server asks for one.
    assert has_digest(sent[0]) is unasked
    assert has_digest(sent[-1])


@pytest.mark.parametrize(
    ("contact", "answered"),
    [
        ("sip:bob@10.0.0.9", False),
        (PREMIUM + ";maddr=10.0.0.9", False),
        (PREMIUM + ";MAddr=10.0.0.9", False),
        ("sip:bob@10.0.0.5", True),
    ],
)
def test_a_re_invite_that_the_server_has_handed_on_is_challenged_by_the_far_end(
    contact: str, answered: bool
) -> None:
    wire, _caller, _evil, call = steered(contact, "<sip:10.0.0.5;lr>", relays=True)
    before = len(wire.requests("INVITE"))
    DOES["INVITE"](call, wire.now)
    wire.run(2.0)
    assert any(map(has_digest, wire.requests("INVITE")[before:])) is answered


def test_the_ack_has_the_credentials_of_its_invite_only_where_the_server_is_the_far_end() -> None:
    for contact, route, expected in (
        ("sip:bob@10.0.0.5", "<sip:10.0.0.5;lr>", True),
        ("sip:bob@10.0.0.7", "<sip:10.0.0.5;lr>", False),
        (PREMIUM, "<sip:10.0.0.9;lr>", False),
    ):
        wire, *_ = steered(contact, route)
        assert has_digest(wire.requests("ACK")[-1]) is expected, contact


def test_a_cancel_has_no_credentials() -> None:
    wire, caller, _ = pair()
    server = Stranger(wire, "10.0.0.5")

    def answer(request: Request) -> list[Response]:
        if request.method != "INVITE":
            return [reply(request, 407)] if request.method == "CANCEL" else []
        if not has_digest(request):
            return [*_challenged(request)]
        return [reply(request, 180, to_tag="x")]

    server.respond = answer
    call = caller.call("sip:bob@10.0.0.5", digest=credentials().digest())
    wire.run(0.5)
    call.hang_up(wire.now)
    wire.run(2.0)
    assert len(wire.requests("INVITE")) == 2
    assert len(wire.requests("CANCEL")) == 1
    assert not any(map(has_digest, wire.requests("CANCEL")))


def _challenged(request: Request, text: str = CHOSEN, tag: str = "") -> list[Response]:
    response = reply(request, 407, to_tag=tag)
    response.add("Proxy-Authenticate", text)
    return [response]


def test_a_leg_of_a_fork_that_has_rung_gets_no_answer_to_its_challenge() -> None:
    wire, caller, _ = pair()
    server = Stranger(wire, "10.0.0.5")
    server.respond = lambda request: (
        [reply(request, 180, to_tag="leg"), *_challenged(request, tag="leg")]
        if request.method == "INVITE"
        else []
    )
    caller.call("sip:bob@10.0.0.5", digest=credentials().digest())
    wire.run(2.0)
    assert len(wire.requests("INVITE")) == 1
    error = ended(caller).error
    assert isinstance(error, CallRefused)
    assert "had answered" in (error.remedy or "")


@pytest.mark.parametrize(("realm", "answered"), [("pbx", False), ("10.0.0.5", True)])
def test_a_401_behind_a_proxy_that_has_its_answer_is_the_far_ends(
    realm: str, answered: bool
) -> None:
    """The proxy takes its own credentials out of what it hands on, and no others."""
    wire, caller, _ = pair()
    server = Stranger(wire, "10.0.0.5")

    def answer(request: Request) -> list[Response]:
        if request.method != "INVITE":
            return []
        if not request.get("Proxy-Authorization"):
            return _challenged(request)
        response = reply(request, 401, to_tag="far")
        response.add(
            "WWW-Authenticate", f'Digest realm="{realm}", nonce="x", qop="auth", algorithm=SHA-256'
        )
        return [response]

    server.respond = answer
    caller.call("sip:bob@10.0.0.5", digest=credentials().digest())
    wire.run(2.0)
    assert any(request.get("Authorization") for request in wire.requests("INVITE")) is answered
    error = ended(caller).error
    assert isinstance(error, CallRefused)
    assert ("behind the proxy" in (error.remedy or "")) is not answered


def test_another_realm_is_refused_with_its_name_and_the_reason_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wire, caller, _ = pair()
    server = Stranger(wire, "10.0.0.5")
    server.respond = lambda request: (
        _challenged(request, 'Digest realm="casino", nonce="x"')
        if request.method == "INVITE"
        else []
    )
    caller.call("sip:bob@10.0.0.5", digest=credentials().digest())
    wire.run(2.0)
    error = ended(caller).error
    assert isinstance(error, CallRefused)
    assert (error.status, error.realm) == (407, "casino")
    assert "'casino' is not the registrar's ('pbx')" in (error.remedy or "")
    assert "'casino' is not the registrar's" in caplog.text
    assert len(wire.requests("INVITE")) == 1


def test_a_realm_is_the_registrars_or_a_name_of_the_accounts_hosts_or_the_settings() -> None:
    unknown = 'Digest realm="other", nonce="n", qop="auth"'
    hosts = 'Digest realm="10.0.0.5", nonce="n", qop="auth"'
    known = credentials()
    assert "is not the registrar's" in why(known, a_request(), text=unknown)
    assert not why(known, a_request(), text=hosts)
    set_by_hand = credentials(replace(ACCOUNT, realm="pbx"))
    assert "is not the account's" in why(set_by_hand, a_request(), text=hosts)
    assert "is not the account's" in why(set_by_hand, a_request("REGISTER"), text=unknown)
    assert not why(credentials(replace(ACCOUNT, realm=("a", "other"))), a_request(), text=unknown)


def test_without_a_registrar_the_servers_name_the_realm_before_a_call_is_up() -> None:
    trunk = credentials(replace(ACCOUNT, register=False), realm="")
    inside = a_request("BYE", inside=True, routes=("<sip:10.0.0.5;lr>",))
    assert "no server of the account has named" in why(trunk, inside)
    assert not why(trunk, a_request())
    assert not why(trunk, inside)
    for number in range(3):
        assert not why(trunk, a_request(), text=f'Digest realm="r{number}", nonce="n"')
    assert "too many" in why(trunk, a_request(), text='Digest realm="r9", nonce="n"')


def test_a_401_inside_a_call_is_answered_only_where_the_server_is_the_far_end() -> None:
    made = credentials()
    routed = ("<sip:10.0.0.5;lr>",)
    far = a_request("BYE", inside=True, uri="sip:bob@10.0.0.9", routes=routed)
    assert "from its far end" in why(made, far, status=401)
    assert not why(made, far, status=407)
    assert not why(made, a_request("INVITE", inside=True), status=401)


MD5_PLAIN = 'Digest realm="pbx", nonce="x"'
MD5_QOP = 'Digest realm="pbx", nonce="x", qop="auth"'
SHA = 'Digest realm="pbx", nonce="x", qop="auth", algorithm=SHA-256'
SHA_512 = 'Digest realm="pbx", nonce="x", qop="auth", algorithm=SHA-512-256'


@pytest.mark.parametrize(
    ("before", "then", "answered"),
    [
        (MD5_PLAIN, MD5_PLAIN, True),
        (MD5_PLAIN, SHA, True),
        (MD5_QOP, MD5_PLAIN, False),
        (SHA, MD5_QOP, False),
        (SHA, MD5_PLAIN, False),
        (SHA, SHA_512, True),
        (SHA_512, SHA, True),
    ],
)
def test_what_a_realm_asked_for_once_is_the_least_it_gets(
    before: str, then: str, answered: bool
) -> None:
    made = credentials(realm="")
    learn(made, before, method="REGISTER")
    assert bool(why(made, a_request(), text=then)) is not answered


def test_digest_sha256_answers_no_md5() -> None:
    made = credentials(replace(ACCOUNT, digest="sha256"), realm="")
    assert "digest: sha256" in why(made, a_request("REGISTER"), text=MD5_QOP)
    assert not why(made, a_request("REGISTER"), text=SHA)
    assert not why(made, a_request("REGISTER"), text=SHA_512)


@pytest.mark.parametrize("status", [401, 407])
def test_a_nonce_is_used_unasked_only_in_its_own_protection_domain(status: int) -> None:
    digest = credentials().digest()
    assert digest is not None
    asked = a_request(uri="sip:bob@10.0.0.5")
    assert digest.answerable(a_challenge(CHOSEN, status), asked, SERVER)
    other = replace(SERVER, host="10.0.0.6")
    digest.policy.servers = (SERVER, other)  # type: ignore[attr-defined]
    for uri, hop, sent in (
        ("sip:bob@10.0.0.5", SERVER, True),
        ("sip:bob@10.0.0.5", other, False),
        ("sip:bob@10.0.0.5", EVIL, False),
        # RFC 3261 section 22.3: a proxy's nonce holds for all that goes through it.
        ("sip:bob@10.0.0.7", SERVER, status == 407),
    ):
        request = a_request("OPTIONS", uri=uri)
        digest.authorize(request, hop)
        assert has_digest(request) is sent, (uri, hop)


def test_the_digest_is_of_the_requests_own_uri() -> None:
    digest = Digest("us", "secret")
    request = a_request(uri="sip:bob@10.0.0.5;user=phone")
    assert digest.answerable(a_challenge(MD5_PLAIN), request, SERVER)
    digest.authorize(request, SERVER)
    assert 'uri="sip:bob@10.0.0.5;user=phone"' in (request.get("Proxy-Authorization") or "")

    def md5(text: str) -> str:
        return hashlib.md5(text.encode()).hexdigest()

    expected = md5(f"{md5('us:pbx:secret')}:x:{md5('INVITE:sip:bob@10.0.0.5;user=phone')}")
    assert f'response="{expected}"' in (request.get("Proxy-Authorization") or "")


# Where a request really goes


def resolving(real: dict[str, Hop], **fields: object) -> AccountCredentials:
    made = AccountCredentials(
        replace(ACCOUNT, **fields),  # type: ignore[arg-type]
        lambda hop: real.get(hop.host, hop),
    )
    made.servers = (SERVER,)
    return made


def test_a_name_counts_by_the_address_that_it_leads_to_and_the_answer_goes_there() -> None:
    named = Hop("udp", "rr.example", 5060, name="rr.example", lookup="naptr")
    made = resolving({"rr.example": SERVER})
    asked = a_request("BYE", inside=True)
    where = made.address(asked, named)
    assert isinstance(where, Hop)
    # A later look-up of the name could lead elsewhere.
    assert (where.host, where.port, where.name) == ("10.0.0.5", 5060, "rr.example")
    assert isinstance(resolving({"rr.example": EVIL}).address(asked, named), str)


def test_another_port_of_the_servers_host_is_another_program() -> None:
    assert isinstance(credentials().address(a_request(), replace(SERVER, port=5062)), str)
    networks = credentials(replace(ACCOUNT, allowed_sources=("10.0.0.4/31",)))
    assert isinstance(networks.address(a_request(), replace(SERVER, port=5062)), Hop)


def test_the_name_beside_an_address_proves_nothing() -> None:
    """A Contact with the registrar's private address leads to where its owner was seen."""
    made = credentials()
    assert isinstance(made.address(a_request(), replace(EVIL, name="10.0.0.5")), str)


def test_an_open_connection_counts_by_its_far_end() -> None:
    """TCP: a Contact of a private address goes out by the connection that it came by."""
    there = Hop("tcp", "10.0.0.5", 5060, 7)
    stranger = resolving({"10.0.0.5": Hop("tcp", "198.51.100.9", 41000, 7, by_flow=True)})
    assert isinstance(stranger.address(a_request(), there), str)
    ours = resolving({"10.0.0.5": Hop("tcp", "10.0.0.5", 5060, 7, by_flow=True)})
    where = ours.address(a_request(), there)
    assert isinstance(where, Hop)
    assert (where.flow, where.by_flow) == (7, True)


def test_an_account_over_tls_gives_no_answer_in_the_clear() -> None:
    made = credentials()
    secure = replace(SERVER, transport="tls", port=5061)
    made.servers = (secure,)
    assert isinstance(made.address(a_request(), secure), Hop)
    assert isinstance(made.address(a_request(), SERVER), str)


def test_a_register_is_refused_in_plain_words_where_the_realm_is_another() -> None:
    wire = Wire()
    phone = Phone(wire, "10.0.0.1")
    account = replace(ACCOUNT, realm="pbx")
    phone.agent.digest_for = lambda each: credentials(each).digest()
    registrar = Stranger(wire, "10.0.0.5")

    def challenge(request: Request) -> list[Response]:
        response = reply(request, 401, to_tag="x")
        response.add("WWW-Authenticate", 'Digest realm="other", nonce="n"')
        return [response]

    registrar.respond = challenge
    core = RegistrationCore(phone.agent, account, SERVER)
    core.start(wire.now)
    wire.run(2.0)
    assert len(wire.requests("REGISTER")) == 1
    assert core.error is not None
    assert "'other' is not the account's" in (core.error.remedy or "")


def test_a_server_that_the_dns_does_not_give_this_time_is_still_one() -> None:
    made = credentials()
    other = replace(SERVER, host="10.0.0.6")
    made.found([other])
    assert made.servers == (other, SERVER)
    made.found(replace(SERVER, host=f"10.1.0.{number}") for number in range(100))
    assert len(made.servers) == MAX_SERVERS
