from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qwen3tts_phone.softphone.settings import EngineSettings, SoftphoneSettings, is_loopback
from qwen3tts_phone.softphone.webrtc.settings import IceServer


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"port": 65536}, "port"),
        ({"engines": ()}, "engines"),
        ({"token": "short"}, "token"),
        ({"token": "with blank or #"}, "token"),
        ({"max_calls": 0}, "max_calls"),
        ({"max_sessions": 0}, "max_sessions"),
        ({"max_call_s": 0}, "max_call_s"),
        ({"text_chars": 0}, "text_chars"),
        ({"message_bytes": 10}, "message_bytes"),
        ({"upload_bytes": 0}, "upload_bytes"),
        ({"upload_s": float("nan")}, "upload_s"),
        ({"hello_s": 0}, "hello_s"),
        ({"resume_s": -1}, "resume_s"),
        ({"codecs": ("G729",)}, "codecs"),
        ({"codecs": ()}, "codecs"),
        ({"public_url": "https://phone.example.org/softphone"}, "public_url"),
        ({"public_url": "phone.example.org"}, "public_url"),
        ({"trusted_proxies": ("proxy.example.org",)}, "trusted_proxies"),
        ({"ice_servers": (IceServer("stun:stun.example.org"),) * 9}, "ice_servers"),
        ({"key": Path("key.pem")}, "key"),
        ({"certificate": Path("a.pem"), "https": False}, "certificate"),
        ({"host": "0.0.0.0", "https": False}, "https"),
    ],
)
def test_what_cannot_be_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}"):
        SoftphoneSettings(**changes)


@pytest.mark.parametrize(
    ("changes", "tls"),
    [
        ({}, False),
        ({"host": "localhost"}, False),
        ({"host": "0.0.0.0"}, True),
        ({"host": "192.0.2.7"}, True),
        ({"https": True}, True),
        ({"host": "0.0.0.0", "https": False, "insecure": True}, False),
        ({"certificate": Path("site.pem")}, True),
    ],
)
def test_beyond_this_machine_it_is_https(changes: dict[str, Any], tls: bool) -> None:
    assert SoftphoneSettings(**changes).tls is tls


@pytest.mark.parametrize(
    ("url", "user", "password", "cause"),
    [
        ("http://stun.example.org", "", "", "no STUN or TURN server"),
        ("stun:", "", "", "no STUN or TURN server"),
        ("stun:stun.example.org?transport=udp", "", "", "only a TURN server"),
        ("turn:turn.example.org", "", "", "needs username and credential"),
        ("turn:turn.example.org?transport=sctp", "u", "p", "no STUN or TURN server"),
        ("stun:stun.example.org", "u", "p", "has no username"),
    ],
)
def test_an_ice_server_that_is_none_says_why(
    url: str, user: str, password: str, cause: str
) -> None:
    with pytest.raises(ValueError, match=cause):
        IceServer(url, user, password)


def test_the_password_of_a_turn_server_is_in_no_representation() -> None:
    server = IceServer("turns:[2001:db8::1]:5349?transport=tcp", "user", "secret-password")
    assert "secret-password" not in repr(SoftphoneSettings(ice_servers=(server,)))


def test_the_token_is_in_no_representation() -> None:
    assert "secret-token" not in repr(SoftphoneSettings(token="secret-token"))


def test_only_this_machines_addresses_are_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST.")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.0.2.7", "example.org", "")))


def test_an_engine_is_its_address_and_a_name() -> None:
    assert EngineSettings("ws://127.0.0.1:1/v1/speech").name == ""
