"""Challenges inside a dialog: each kind of request answers them, of calls in both directions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_phone.errors import CallError, CallRefused
from qwen3tts_phone.sip.call.call import Call
from qwen3tts_phone.sip.call.state import CallState
from qwen3tts_phone.sip.call.transfer import OutgoingRefer
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transaction.client_request import OutcomeListener
from qwen3tts_phone.sip.transaction.dialog import ReferTo
from qwen3tts_phone.sip.transaction.digest import (
    MAX_CHALLENGES,
    Challenge,
    Digest,
    challenges,
    parse_challenge,
    parse_parameters,
    response_digest,
)
from tests.sip.call.test_transfer import Heard
from tests.sip.wire import ANSWER, OFFER, Phone, Stranger, Wire, ended, pair, stranger_up


def challenge(algorithm: str = "MD5", qop: str = "auth", **fields: object) -> Challenge:
    values: dict[str, object] = {
        "realm": "testrealm@host.com",
        "nonce": "dcd98b7102dd2f0e8b11d0f600bfb0c093",
        "algorithm": algorithm,
        "qop": qop,
        "opaque": None,
        "stale": False,
        "proxy": False,
        "cnonce": "0a4f113b",
        **fields,
    }
    return Challenge(**values)  # type: ignore[arg-type]


def test_the_example_of_rfc_2617_section_3_5() -> None:
    digest = response_digest(
        challenge(),
        "Mufasa",
        "Circle Of Life",
        method="GET",
        uri="/dir/index.html",
        body=b"",
        count="00000001",
    )
    assert digest == "6629fae49393a05397450978507c4ef1"


RFC_7616 = {
    "realm": "http-auth@example.org",
    "nonce": "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
    "cnonce": "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
}


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ],
)
def test_the_examples_of_rfc_7616_section_3_9_1(algorithm: str, expected: str) -> None:
    digest = response_digest(
        challenge(algorithm, **RFC_7616),
        "Mufasa",
        "Circle of Life",
        method="GET",
        uri="/dir/index.html",
        body=b"",
        count="00000001",
    )
    assert digest == expected


def test_sha_512_256_with_the_values_of_rfc_7616_section_3_9_2_spelt_out_by_hand() -> None:
    import hashlib

    def sha(text: str) -> str:
        return hashlib.new("sha512_256", text.encode()).hexdigest()

    user, uri = "J\u00e4s\u00f8n Doe", "/doe.json"
    values = {
        "realm": "api@example.org",
        "nonce": "5TsQWLVdgBdmrQ0XsxbDODV+57QdFR34I9HAbC/RVvkK",
        "cnonce": "NTg6RKcb9boFIAS3KrFK9BGeh+niz/sm",
    }
    found = response_digest(
        challenge("SHA-512-256", **values),
        user,
        "Secret, or not?",
        method="GET",
        uri=uri,
        body=b"",
        count="00000001",
    )
    secret = sha(f"{user}:{values['realm']}:Secret, or not?")
    middle = f"{values['nonce']}:00000001:{values['cnonce']}:auth"
    assert found == sha(f"{secret}:{middle}:{sha(f'GET:{uri}')}")
    assert len(found) == 64


def test_the_session_variants_hash_the_secret_once_more() -> None:
    """MD5-sess as RFC 7616 section 3.4.2 writes it, spelt out by hand."""
    import hashlib

    def md5(text: str) -> str:
        return hashlib.md5(text.encode()).hexdigest()

    one = md5(f"{md5('u:r:p')}:n:c")
    expected = md5(f"{one}:n:00000001:c:auth:{md5('INVITE:sip:x')}")
    found = response_digest(
        challenge("MD5-SESS", realm="r", nonce="n", cnonce="c"),
        "u",
        "p",
        method="INVITE",
        uri="sip:x",
        body=b"",
        count="00000001",
    )
    assert found == expected


def unauthorized(*values: str, status: int = 401) -> Response:
    response = Response(status, "")
    name = "WWW-Authenticate" if status == 401 else "Proxy-Authenticate"
    for value in values:
        response.headers.add(name, value)
    return response


def test_a_comma_inside_quotes_does_not_end_a_parameter() -> None:
    found = parse_challenge('Digest realm="a, b", nonce="n", qop="auth,auth-int", opaque="x=\\"y"')
    assert found is not None
    assert (found.realm, found.qop, found.opaque) == ("a, b", "auth", 'x="y')


def test_the_strongest_known_algorithm_of_a_realm_is_answered() -> None:
    response = unauthorized(
        'Digest realm="r", nonce="1", algorithm=MD5',
        'Digest realm="r", nonce="2", algorithm=SHA-256',
        'Digest realm="r", nonce="3", algorithm=SHA-512-256',
        'Basic realm="r"',
    )
    assert [found.algorithm for found in challenges(response)] == ["SHA-512-256"]
    response = unauthorized(
        'Digest realm="r", nonce="1", algorithm=SHA-256, qop="auth"',
        'Digest realm="r", nonce="2", algorithm=SHA-256, qop="auth"',
        'Digest realm="r", nonce="3", algorithm=MD5, qop="auth"',
    )
    assert [found.nonce for found in challenges(response)] == ["1"]


@pytest.mark.parametrize("proxy_is_stronger", [True, False])
def test_md5_without_qop_is_not_answered_beside_a_better_challenge_of_the_realm(
    proxy_is_stronger: bool,
) -> None:
    weak, strong = 'Digest realm="r", nonce="1"', 'Digest realm="r", nonce="2", algorithm=SHA-256'
    response = unauthorized(weak if proxy_is_stronger else strong)
    response.headers.add("Proxy-Authenticate", strong if proxy_is_stronger else weak)
    hop = Hop("udp", "10.0.0.1", 5060)
    asked = Digest("alice", "secret").answerable(response, Request("INVITE", "sip:b@r"), hop)
    assert [each.algorithm for each in asked] == ["SHA-256"]
    assert "stronger" in response.unanswered


def test_each_realm_and_the_proxy_get_credentials_of_their_own() -> None:
    digest = Digest("alice", "secret")
    digest.learn(unauthorized('Digest realm="one", nonce="1"'))
    digest.learn(unauthorized('Digest realm="two", nonce="2"', status=407))
    names = [name for name, _ in digest.headers("INVITE", "sip:x", b"")]
    assert names == ["Authorization", "Proxy-Authorization"]


def test_the_count_rises_with_each_use_of_a_nonce_and_starts_anew_with_the_next() -> None:
    digest = Digest("alice", "secret")
    digest.learn(unauthorized('Digest realm="r", nonce="1", qop="auth"'))
    counts = [digest.headers("INVITE", "sip:x", b"")[0][1].partition("nc=")[2] for _ in range(3)]
    assert counts == ["00000001", "00000002", "00000003"]
    digest.learn(unauthorized('Digest realm="r", nonce="1", qop="auth"'))
    assert "nc=00000004" in digest.headers("BYE", "sip:x", b"")[0][1]
    digest.learn(unauthorized('Digest realm="r", nonce="2", qop="auth", stale=true'))
    assert "nc=00000001" in digest.headers("BYE", "sip:x", b"")[0][1]


def test_without_qop_neither_count_nor_cnonce_is_sent() -> None:
    digest = Digest("alice", "secret")
    digest.learn(unauthorized('Digest realm="r", nonce="1"'))
    value = digest.headers("INVITE", "sip:x", b"")[0][1]
    assert "nc=" not in value
    assert "cnonce" not in value
    assert "algorithm" not in value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Digest",
        "Digest realm",
        'Digest realm="r"',
        'Digest realm="r", nonce=""',
        'Digest realm="r", nonce="n", qop="auth-conf"',
        'Digest realm="r", nonce="n", algorithm=MD4',
        'Digest realm="r", nonce="n',
        "Digest " + "a=b," * 5000,
        'NTLM realm="r", nonce="n"',
    ],
)
def test_a_challenge_that_cannot_be_answered_is_none(value: str) -> None:
    assert parse_challenge(value) is None


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_parameters_or_none(text: str) -> None:
    found = parse_parameters(text)
    assert found is None or all(isinstance(value, str) for value in found.values())
    parse_challenge("Digest " + text)


def test_the_password_is_in_no_representation() -> None:
    from qwen3tts_phone.sip import Account

    assert "secret" not in repr(Account("sip:x", "alice", "secret"))


def test_a_server_with_ever_new_realms_fills_no_memory() -> None:
    digest = Digest("alice", "secret")
    for number in range(100):
        response = Response(401, "No")
        response.add("WWW-Authenticate", f'Digest realm="{number}", nonce="n"')
        assert digest.learn(response)
    answers = digest.headers("INVITE", "sip:bob@10.0.0.2", b"")
    assert len(answers) == MAX_CHALLENGES
    assert 'realm="99"' in answers[-1][1]


Does = Callable[[Call, float], object]


def _info(call: Call, now: float) -> None:
    assert call.dialog is not None
    call.send_in_dialog(call.dialog.request("INFO"), OutcomeListener(lambda outcome, at: None), now)


def _refer(call: Call, now: float) -> None:
    OutgoingRefer(call, ReferTo("sip:carol@10.0.0.3"), Heard(), [], now)


DOES: dict[str, Does] = {
    "BYE": lambda call, now: call.hang_up(now),
    "INVITE": lambda call, now: call.modification.start(OFFER, lambda result: None, now),
    "UPDATE": lambda call, now: call.modification.start(OFFER, lambda result: None, now, "UPDATE"),
    "INFO": _info,
    "REFER": _refer,
}


def guarded(stranger: Stranger, *, always: bool = False) -> None:
    """Take a call, then challenge each request inside it once, or always."""
    nonces = iter(range(1000))

    def answer(request: Request) -> list[Response]:
        if request.method == "ACK":
            return []
        known = request.get("Proxy-Authorization")
        inside = request.to.tag is not None
        if inside and (always or known is None):
            response = reply(request, 407)
            response.add("Proxy-Authenticate", f'Digest realm="in", nonce="n{next(nonces)}"')
            return [response]
        response = reply(request, 202 if request.method == "REFER" else 200, to_tag="x")
        response.add("Contact", "<sip:bob@10.0.0.9:5060>")
        response.set_body(ANSWER if request.method in ("INVITE", "UPDATE") else None)
        return [response]

    stranger.respond = answer


def call_out(*, password: bool = True) -> tuple[Wire, Phone, Stranger, Call]:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    guarded(stranger)
    call = caller.call(stranger, digest=Digest("us", "secret") if password else None)
    wire.run(0.5)
    return wire, caller, stranger, call


def call_in() -> tuple[Wire, Phone, Stranger, Call]:
    wire, _, callee = pair()
    callee.agent.digest_of = lambda call: Digest("us", "secret")
    stranger = Stranger(wire)
    stranger_up(wire, stranger, callee)
    guarded(stranger)
    return wire, callee, stranger, callee.calls[0]


@pytest.mark.parametrize("direction", ["out", "in"])
@pytest.mark.parametrize("method", DOES)
def test_a_request_inside_the_dialog_is_sent_again_with_the_password(
    method: str, direction: str
) -> None:
    wire, _phone, _stranger, call = call_out() if direction == "out" else call_in()
    before = len(wire.requests(method))
    DOES[method](call, wire.now)
    wire.run(1.0)
    one, two = wire.requests(method)[before:]
    assert two.cseq == one.cseq + 1
    assert two.branch != one.branch
    assert one.get("Proxy-Authorization") is None
    assert 'realm="in"' in (two.get("Proxy-Authorization") or "")
    assert two.body == one.body
    final = wire.sent(f"202 {method}" if method == "REFER" else f"200 {method}")
    assert final[-1].message.cseq == two.cseq
    assert call.state is (CallState.ENDED if method == "BYE" else CallState.UP)


@pytest.mark.parametrize("method", DOES)
def test_a_far_end_that_challenges_for_ever_is_asked_a_few_times_only(method: str) -> None:
    wire, phone, stranger, call = call_out()
    guarded(stranger, always=True)
    before = len(wire.requests(method))
    DOES[method](call, wire.now)
    wire.run(40.0)
    assert len(wire.requests(method)) - before == 2
    if method == "BYE":
        assert ended(phone).by == "local"
        assert not phone.agent.calls
    else:
        assert call.state is CallState.UP


def test_without_a_password_the_change_is_refused_in_plain_words() -> None:
    wire, _phone, _stranger, call = call_out(password=False)
    got: list[str | CallError] = []
    call.modification.start(OFFER, got.append, wire.now)
    wire.run(1.0)
    (error,) = got
    assert isinstance(error, CallRefused)
    assert (error.status, error.realm, error.user) == (407, "in", "")
    assert "asks for a password" in (error.remedy or "")
    assert call.state is CallState.UP
