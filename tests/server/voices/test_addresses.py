"""Which addresses may be asked for a recording."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_server.settings import VoiceSettings
from qwen3tts_server.voices.fetch import redirected, target_of
from qwen3tts_wire.addresses import is_public
from qwen3tts_wire.errors import BadRequest
from tests.server.voices.world import told

PRIVATE = [
    "127.0.0.1", "127.8.9.1", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255",
    "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.192", "192.0.2.1",
    "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1",
    "255.255.255.255", "168.63.129.16", "192.88.99.1", "::", "::1", "::127.0.0.1", "::8.8.8.8",
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "fe80::1", "fe80::1%eth0",
    "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1", "100::1",
    "2001:0:7f00:1::", "2001:0:808:808:0:0:80ff:fffe", "", "localhost", "1.2.3", "2130706433",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_these_are_never_asked(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "1.1.1.1",
        "93.184.215.14",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
    ],
)
def test_these_may_be(address: str) -> None:
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_hidden_in_ipv6_is_no_more_public(ip: ipaddress.IPv4Address) -> None:
    number = int(ip)
    for hidden in (
        ipaddress.IPv6Address((0xFFFF << 32) | number),
        ipaddress.IPv6Address((0x64FF9B << 96) | number),
        ipaddress.IPv6Address((0x2002 << 112) | (number << 80)),
        ipaddress.IPv6Address(number),
    ):
        assert is_public(str(ip)) or not is_public(str(hidden))


def settings(**values: Any) -> VoiceSettings:
    return VoiceSettings(fetch=True, **values)


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("https://Example.com", "example.com", "/"),
        ("https://example.com./a.wav?b=c#d", "example.com", "/a.wav?b=c"),
        ("http://example.com:80/a%20b/%2F", "example.com", "/a%20b/%2F"),
        ("http://example.com:443/", "example.com:443", "/"),
        ("https://[2606:4700::1111]/x", "[2606:4700::1111]", "/x"),
        ("https://8.8.8.8/x", "8.8.8.8", "/x"),
    ],
)
def test_an_address_is_taken_apart(url: str, authority: str, path: str) -> None:
    target = target_of(url, settings())
    assert (target.authority, target.path) == (authority, path)


@pytest.mark.parametrize(
    "url",
    ["https://", "https:///x", "https://user@example.com/", "https://a:b@example.com/",
     "ftp://e.com/", "https://example.com:x/", "https://example.com:99999/", "https://[::1/",
     "https://ex ample.com/",
     "https://exa\u0007mple.com/", "https://b\u00fccher.de/", "https://-a.com/", "https://a..b/",
     "https://" + "a" * 300 + ".com/", "//example.com/", "https://[fe80::1%25eth0]:x/", "https://a_/\\",
     "https://example.com\\@127.0.0.1/"],
)  # fmt: skip
def test_what_is_no_address_is_refused(url: str) -> None:
    try:
        target = target_of(url, settings())
    except BadRequest as error:
        told(error)
    else:
        # A lone backslash is part of the path, and asked for as %5C.
        assert target.host == "a_"
        assert target.path == "/%5C"


def test_ports_and_hosts_are_those_of_the_settings() -> None:
    for port in (22, 8080, 6379):
        with pytest.raises(BadRequest, match="port"):
            target_of(f"http://example.com:{port}/", settings())
    assert target_of("http://example.com:8080/", settings(fetch_ports=(8080,))).port == 8080
    ours = settings(fetch_hosts=("*.example.com", "Media.org"))
    for host in ("a.example.com", "a.b.EXAMPLE.com", "media.org", "media.org."):
        assert target_of(f"https://{host}/", ours).secure
    for host in ("example.com", "badexample.com", "a.example.com.evil.org", "x.media.org"):
        with pytest.raises(BadRequest, match="host"):
            target_of(f"https://{host}/", ours)


def test_a_redirect_leads_on_but_not_from_secure_to_plain() -> None:
    assert redirected("https://a.com/x/y", "../z") == "https://a.com/z"
    assert redirected("http://a.com/x", "https://b.com/") == "https://b.com/"
    assert redirected("http://a.com/x", "//b.com/q") == "http://b.com/q"
    for location in ("http://a.com/", "file:///etc/passwd", "data:,x", "//["):
        with pytest.raises(BadRequest):
            redirected("https://a.com/", location)


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_text_is_an_address_or_an_error(text: str, location: str) -> None:
    for url in (text, f"https://{text}", f"http://example.com/{text}"):
        try:
            target = target_of(url, settings())
        except BadRequest as error:
            told(error)
            continue
        assert target.path.startswith("/")
        assert target.path.isascii()
        assert target.path.isprintable()
        assert " " not in target.path
        assert target.host.isascii()
        try:
            target_of(redirected(url, location), settings())
        except BadRequest as error:
            told(error)
