from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.sdp.addresses import AddressScope, address_scope, same_address


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("10.1.2.3", AddressScope.PRIVATE),
        ("172.16.0.1", AddressScope.PRIVATE),
        ("172.32.0.1", AddressScope.PUBLIC),
        ("192.168.1.1", AddressScope.PRIVATE),
        ("100.64.0.1", AddressScope.PRIVATE),
        ("100.128.0.1", AddressScope.PUBLIC),
        ("169.254.1.1", AddressScope.LINK),
        ("127.0.0.1", AddressScope.MACHINE),
        ("0.0.0.0", AddressScope.NOWHERE),
        ("192.0.2.1", AddressScope.PUBLIC),
        ("::", AddressScope.NOWHERE),
        ("::1", AddressScope.MACHINE),
        ("fe80::1%eth0", AddressScope.LINK),
        ("fd00::1", AddressScope.PRIVATE),
        ("2001:db8::1", AddressScope.PUBLIC),
        ("[2001:db8::1]", AddressScope.PUBLIC),
        ("::ffff:192.168.1.1", AddressScope.PRIVATE),
        ("pbx.example", None),
        ("", None),
    ],
)
def test_an_address_reaches_as_far_as_its_network(host: str, expected: AddressScope | None) -> None:
    assert address_scope(host) is expected


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_none(text: str) -> None:
    assert address_scope(text) is None or isinstance(address_scope(text), AddressScope)
    assert same_address(text, text)


def test_addresses_are_compared_as_addresses() -> None:
    assert same_address("2001:db8::1", "2001:0DB8:0:0::1")
    assert not same_address("192.0.2.1", "192.0.2.2")
    assert same_address("PBX.example", "pbx.example")
