"""An account, and what is said of fields that cannot be used."""

from __future__ import annotations

import pytest

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.account import Account, address_of_record
from qwen3tts_phone.sip.registration.lines import target_uri
from qwen3tts_phone.sip.settings import SipSettings, TlsSettings


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
