"""Who is let in: the carriers' own examples, and every way in which a request may be another."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import json
import sys
from collections.abc import Mapping
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from qwen3tts_phone.streams.carriers.adapter import Handshake
from qwen3tts_phone.streams.carriers.authentication import BasicPassword, HeaderToken, RequestCheck
from qwen3tts_phone.streams.carriers.http import (
    BadSignature,
    CarrierRequest,
    equivalent_urls,
    requested_url,
)
from qwen3tts_phone.streams.carriers.jambonz import JambonzSignature
from qwen3tts_phone.streams.carriers.plivo import PlivoSignature
from qwen3tts_phone.streams.carriers.telnyx import TelnyxSignature
from qwen3tts_phone.streams.carriers.twilio import TwilioSignature
from qwen3tts_phone.streams.carriers.vonage import VonageToken
from qwen3tts_wire.errors import BadRequest

NOW = 1_800_000_000.0
FORM = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
# The example of twilio.com/docs/usage/security.
EXAMPLE = "https://mycompany.com/myapp.php?foo=1&bar=2"
EXAMPLE_FORM = {
    "To": "+18005551212",
    "CallSid": "CA1234567890ABCDE",
    "Digits": "1234",
    "From": "+12349013030",
    "Caller": "+12349013030",
}
EXAMPLE_SIGNATURE = "0/KCTR6DLpKmkAf8muzZqo1nDgQ="


def lets_in(check: RequestCheck, request: CarrierRequest, now: float = NOW) -> bool:
    try:
        check.check(request, now)
    except BadSignature:
        return False
    return True


def twilio_request(url: str, token: str = "12345") -> CarrierRequest:
    signature = base64.b64encode(hmac.digest(token.encode(), url.encode(), "sha1")).decode()
    return CarrierRequest(url, {"x-twilio-signature": signature})


# --- Twilio


def test_twilios_own_example_is_let_in() -> None:
    request = CarrierRequest(
        EXAMPLE,
        {**FORM, "x-twilio-signature": EXAMPLE_SIGNATURE},
        "POST",
        urlencode(EXAMPLE_FORM).encode(),
    )
    assert lets_in(TwilioSignature("12345"), request)
    assert not lets_in(TwilioSignature("12346"), request)
    changed = urlencode({**EXAMPLE_FORM, "From": "+1"}).encode()
    assert not lets_in(TwilioSignature("12345"), dataclasses.replace(request, body=changed))
    other = dataclasses.replace(request, url=EXAMPLE.replace("bar=2", "bar=3"))
    assert not lets_in(TwilioSignature("12345"), other)


@pytest.mark.parametrize(
    "signed",
    [
        "wss://voice.example.com/twilio",
        "wss://voice.example.com/twilio/",
        "wss://voice.example.com:443/twilio",
        "https://voice.example.com/twilio",
        "https://voice.example.com:443/twilio/",
    ],
)
def test_a_stream_is_let_in_however_its_address_was_written(signed: str) -> None:
    given = twilio_request(signed).headers
    for arrived in ("wss://voice.example.com/twilio", "wss://voice.example.com:443/twilio/"):
        assert lets_in(TwilioSignature("12345"), CarrierRequest(arrived, given))


@pytest.mark.parametrize(
    "signed",
    [
        "wss://voice.example.com/other",
        "wss://voice.example.com:8443/twilio",
        "ws://voice.example.com/twilio",
        "wss://evil.example.com/twilio",
        "wss://voice.example.com/twilio?a=1",
    ],
)
def test_a_signature_for_another_address_is_not_taken(signed: str) -> None:
    given = twilio_request(signed).headers
    request = CarrierRequest("wss://voice.example.com/twilio", given)
    assert not lets_in(TwilioSignature("12345"), request)


def test_values_of_a_name_that_comes_twice_are_signed_once_each() -> None:
    text = "https://h.example/xa1a2"
    signature = base64.b64encode(hmac.digest(b"k", text.encode(), "sha1")).decode()
    request = CarrierRequest(
        "https://h.example/x", {**FORM, "x-twilio-signature": signature}, "POST", b"a=2&a=1&a=2"
    )
    assert lets_in(TwilioSignature("k"), request)


def test_a_body_that_is_no_form_is_compared_with_its_hash() -> None:
    body = b'{"a":1}'
    url = f"https://h.example/x?bodySHA256={hashlib.sha256(body).hexdigest()}"
    request = dataclasses.replace(twilio_request(url), method="POST", body=body)
    assert lets_in(TwilioSignature("12345"), request)
    assert not lets_in(TwilioSignature("12345"), dataclasses.replace(request, body=b"{}"))


def test_a_host_that_is_none_is_refused_and_breaks_nothing() -> None:
    handshake = Handshake(path="/twilio", headers={"host": "[::1", "x-twilio-signature": "AAAA"})
    request = CarrierRequest(requested_url(handshake), handshake.headers)
    assert not lets_in(TwilioSignature("12345"), request)


# --- Plivo


def plivo_request(
    text: str, url: str, *, nonce: str = "12345", version: str = "v3", **more: object
) -> CarrierRequest:
    """``text``: what is signed, spelled out as plivo-python builds it."""
    signature = base64.b64encode(hmac.digest(b"secret", text.encode(), "sha256")).decode()
    headers = {
        f"x-plivo-signature-{version}": signature,
        f"x-plivo-signature-{version}-nonce": nonce,
    }
    made = CarrierRequest(url, headers)
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def test_plivos_third_version_covers_query_and_nonce() -> None:
    url = "https://h.example/answer?b=2&a=1"
    request = plivo_request("https://h.example/answer?a=1&b=2.12345", url)
    assert lets_in(PlivoSignature("secret"), request)
    assert not lets_in(PlivoSignature("other"), request)
    changed = dataclasses.replace(request, url=url + "&c=3")
    assert not lets_in(PlivoSignature("secret"), changed)
    headers = {**request.headers, "x-plivo-signature-v3-nonce": "12346"}
    assert not lets_in(PlivoSignature("secret"), dataclasses.replace(request, headers=headers))


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://h.example/answer", "https://h.example/answer?From1To2.12345"),
        ("https://h.example/answer?x=1", "https://h.example/answer?x=1.From1To2.12345"),
    ],
)
def test_plivos_third_version_covers_what_is_posted(url: str, text: str) -> None:
    request = plivo_request(text, url, method="POST", body=b"To=2&From=1")
    request = dataclasses.replace(request, headers={**request.headers, **FORM})
    assert lets_in(PlivoSignature("secret"), request)
    assert not lets_in(PlivoSignature("secret"), dataclasses.replace(request, body=b"To=3&From=1"))


def test_one_of_several_plivo_signatures_is_enough() -> None:
    good = plivo_request("https://h.example/answer.12345", "https://h.example/answer")
    signature = good.headers["x-plivo-signature-v3"]
    headers = {
        "x-plivo-signature-v3": "AAAA",
        "x-plivo-signature-ma-v3": f"BBBB, {signature}",
        "x-plivo-signature-v3-nonce": "12345",
    }
    assert lets_in(PlivoSignature("secret"), dataclasses.replace(good, headers=headers))


def test_plivos_second_version_is_taken_only_where_it_covers_everything() -> None:
    signed = "https://h.example/plivo12345"
    for url, good in (("https://h.example/plivo", True), ("https://h.example/plivo?From=1", False)):
        assert lets_in(PlivoSignature("secret"), plivo_request(signed, url, version="v2")) is good


# --- Telnyx


def test_telnyx_signature_covers_time_and_body() -> None:
    private = ed25519.Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    check = TelnyxSignature(base64.b64encode(public).decode())
    signature = base64.b64encode(private.sign(b"1800000000|{}")).decode()
    headers = {"telnyx-signature-ed25519": signature, "telnyx-timestamp": "1800000000"}
    request = CarrierRequest("https://h.example/x", headers, "POST", b"{}")
    assert lets_in(check, request)
    assert not lets_in(check, dataclasses.replace(request, body=b"[]"))
    assert not lets_in(check, request, NOW + 301)
    assert not lets_in(check, request, NOW - 301)
    for wrong in ("", "!", "AAAA", signature[:-4]):
        bad = {**headers, "telnyx-signature-ed25519": wrong}
        assert not lets_in(check, dataclasses.replace(request, headers=bad))


@pytest.mark.parametrize("key", ["", "AAAA", "not base64!"])
def test_a_telnyx_key_that_is_none_is_refused_at_the_start(key: str) -> None:
    with pytest.raises(BadRequest) as caught:
        TelnyxSignature(key)
    assert caught.value.remedy


def test_without_the_library_a_key_that_needs_it_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(BadRequest, match=r"cryptography"):
        TelnyxSignature(base64.b64encode(bytes(32)).decode())
    with pytest.raises(BadRequest, match=r"cryptography"):
        VonageToken(public_key_pem="x")
    assert lets_in(VonageToken("secret"), vonage_request({"iat": NOW}))


def test_a_stream_of_telnyx_shows_its_token() -> None:
    check = HeaderToken("t0p")
    for given, good in (("t0p", True), ("Bearer t0p", True), ("t0q", False), ("t\u00f6p", False)):
        headers = {"x-telnyx-streaming-auth-token": given}
        assert lets_in(check, CarrierRequest("wss://h.example/telnyx", headers)) is good


# --- Vonage


def vonage_request(
    claims: Mapping[str, object], *, alg: str = "HS256", key: bytes = b"secret", body: bytes = b""
) -> CarrierRequest:
    head = _part({"alg": alg, "typ": "JWT"})
    signed = f"{head}.{_part(claims)}"
    signature = _plain(hmac.digest(key, signed.encode(), "sha256"))
    headers = {"authorization": f"Bearer {signed}.{signature}"}
    return CarrierRequest("wss://h.example/vonage", headers, "POST" if body else "GET", body)


def _part(value: object) -> str:
    return _plain(json.dumps(value).encode())


def _plain(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def test_vonages_token_is_let_in_while_it_is_fresh() -> None:
    check = VonageToken("secret")
    request = vonage_request({"iat": NOW, "iss": "Vonage"})
    assert lets_in(check, request)
    assert not lets_in(check, request, NOW + 301)
    assert not lets_in(check, request, NOW - 301)
    assert not lets_in(VonageToken("other"), request)


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"iat": "soon"},
        {"iat": True},
        {"exp": NOW - 301},
        {"exp": float("inf")},
        {"exp": NOW, "nbf": NOW + 301},
        {"iat": float("nan")},
        {"iat": NOW, "application_id": "another"},
    ],
)
def test_a_token_that_does_not_say_what_it_must_is_refused(claims: dict[str, object]) -> None:
    assert not lets_in(VonageToken("secret", application_id="ours"), vonage_request(claims))


@pytest.mark.parametrize("alg", ["none", "RS256", "HS512", 7])
def test_the_token_does_not_choose_how_it_is_checked(alg: str) -> None:
    assert not lets_in(VonageToken("secret"), vonage_request({"iat": NOW}, alg=alg))


def test_a_public_key_is_never_used_as_a_password() -> None:
    private = rsa.generate_private_key(65537, 2048)
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    check = VonageToken(public_key_pem=pem.decode())
    assert not lets_in(check, vonage_request({"iat": NOW}, key=pem))
    signed = f"{_part({'alg': 'RS256'})}.{_part({'iat': NOW})}"
    signature = _plain(private.sign(signed.encode(), padding.PKCS1v15(), SHA256()))
    headers = {"authorization": f"Bearer {signed}.{signature}"}
    assert lets_in(check, CarrierRequest("wss://h.example/vonage", headers))
    assert not lets_in(
        check, CarrierRequest("x", {"authorization": f"Bearer {signed}.{signature[:-8]}"})
    )


def test_vonages_body_is_the_one_that_was_signed() -> None:
    claims = {"iat": NOW, "payload_hash": hashlib.sha256(b"{}").hexdigest()}
    assert lets_in(VonageToken("secret"), vonage_request(claims, body=b"{}"))
    assert not lets_in(VonageToken("secret"), vonage_request(claims, body=b"[]"))


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer a.b", "Bearer a.b.c", "Basic a.b.c"])
def test_what_is_no_token_is_refused(given: str) -> None:
    assert not lets_in(VonageToken("secret"), CarrierRequest("x", {"authorization": given}))


@pytest.mark.parametrize("given", [{}, {"signature_secret": "a", "public_key_pem": "b"}])
def test_vonages_token_needs_exactly_one_key(given: dict[str, str]) -> None:
    with pytest.raises(BadRequest, match=r"signature secret"):
        VonageToken(**given)


# --- jambonz, and passwords


def test_jambonz_signature_covers_time_and_body() -> None:
    signature = hmac.new(b"secret", b"1800000000.{}", "sha256").hexdigest()
    headers = {"jambonz-signature": f"t=1800000000,v1=00ff,v1={signature}"}
    request = CarrierRequest("https://h.example/x", headers, "POST", b"{}")
    assert lets_in(JambonzSignature("secret"), request)
    assert not lets_in(JambonzSignature("secret"), request, NOW + 301)
    assert not lets_in(JambonzSignature("secret"), dataclasses.replace(request, body=b"[]"))
    for wrong in ("", "t=1800000000", f"v1={signature}", f"t=1,t=2,v1={signature}", "t=x,v1=y"):
        bad = dataclasses.replace(request, headers={"jambonz-signature": wrong})
        assert not lets_in(JambonzSignature("secret"), bad)


def test_a_password_must_be_the_right_one() -> None:
    check = BasicPassword("ann", "p:w")
    for given, good in (("ann:p:w", True), ("ann:p", False), ("bob:p:w", False)):
        headers = {"authorization": "Basic " + base64.b64encode(given.encode()).decode()}
        assert lets_in(check, CarrierRequest("x", headers)) is good
    assert not lets_in(check, CarrierRequest("x", {"authorization": "Basic \u00e9"}))


# --- all


@pytest.mark.parametrize(
    "check",
    [
        TwilioSignature("k"),
        PlivoSignature("k"),
        JambonzSignature("k"),
        BasicPassword("u", "k"),
        HeaderToken("k"),
        VonageToken("k"),
    ],
    ids=lambda check: type(check).__name__,
)
def test_a_request_without_anything_is_refused_and_the_key_is_never_shown(
    check: RequestCheck,
) -> None:
    with pytest.raises(BadSignature, match=r"has no .* header\.") as caught:
        check.check(CarrierRequest("wss://h.example/x"), NOW)
    assert caught.value.remedy
    assert "'k'" not in repr(check)


@pytest.mark.parametrize(
    ("host", "public", "websocket", "url"),
    [
        ("h.example", "", True, "wss://h.example/twilio?a=1"),
        ("h.example:8443", "", False, "https://h.example:8443/twilio?a=1"),
        ("10.0.0.7:80", "https://voice.example.com", True, "wss://voice.example.com/twilio?a=1"),
        ("x", "https://v.example.com/calls/", False, "https://v.example.com/calls/twilio?a=1"),
        ("x", "http://127.0.0.1:9000", True, "ws://127.0.0.1:9000/twilio?a=1"),
    ],
)
def test_the_url_is_the_one_that_the_carrier_knows(
    host: str, public: str, websocket: bool, url: str
) -> None:
    handshake = Handshake(path="/twilio", query="a=1", headers={"host": host})
    assert requested_url(handshake, public, websocket=websocket) == url


def test_an_address_that_is_none_has_no_other_ways_of_writing() -> None:
    assert equivalent_urls("wss://h:port/x") == []
    assert equivalent_urls("wss://[::1/x") == []
    assert "wss://[::1]/x" in equivalent_urls("https://[::1]:443/x")
