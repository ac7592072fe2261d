"""Addresses and networks as settings and packets write them."""

from __future__ import annotations

import pytest

from qwen3tts_phone.sip.message.network import address_of, in_networks, networks, site_of


@pytest.mark.parametrize(
    ("host", "network", "inside"),
    [
        ("192.0.2.7", "192.0.2.0/24", True),
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.3.7", "192.0.2.0/24", False),
        ("::ffff:192.0.2.7", "192.0.2.0/24", True),
        ("[2001:db8::7]", "2001:db8::/32", True),
        ("fe80::1%eth0", "fe80::/10", True),
        ("2001:db8::7", "192.0.2.0/24", False),
        ("pbx.example.org", "0.0.0.0/0", False),
    ],
)
def test_an_address_is_in_a_network_or_not(host: str, network: str, inside: bool) -> None:
    assert in_networks(address_of(host), networks((network,))) is inside


def test_one_customer_of_ipv6_is_one_source() -> None:
    assert site_of("2001:db8:0:1::7") == site_of("2001:db8:0:1:ffff::8") != site_of("2001:db8::7")
    assert site_of("::ffff:192.0.2.7") == site_of("192.0.2.7") != site_of("192.0.2.8")


@pytest.mark.parametrize("text", ["", "pbx.example.org", "192.0.2.0/33", "192.0.2"])
def test_what_is_no_network_is_refused_with_the_settings_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"^allow: "):
        networks((text,), "allow")
