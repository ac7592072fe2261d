from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.sdp.addresses import Reach, reach, same_address


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("10.1.2.3", Reach.PRIVATE),
        ("172.16.0.1", Reach.PRIVATE),
        ("172.32.0.1", Reach.PUBLIC),
        ("192.168.1.1", Reach.PRIVATE),
        ("100.64.0.1", Reach.PRIVATE),
        ("100.128.0.1", Reach.PUBLIC),
        ("169.254.1.1", Reach.LINK),
        ("127.0.0.1", Reach.MACHINE),
        ("0.0.0.0", Reach.NOWHERE),
        ("192.0.2.1", Reach.PUBLIC),
        ("::", Reach.NOWHERE),
        ("::1", Reach.MACHINE),
        ("fe80::1%eth0", Reach.LINK),
        ("fd00::1", Reach.PRIVATE),
        ("2001:db8::1", Reach.PUBLIC),
        ("[2001:db8::1]", Reach.PUBLIC),
        ("::ffff:192.168.1.1", Reach.PRIVATE),
        ("pbx.example", None),
        ("", None),
    ],
)
def test_an_address_reaches_as_far_as_its_network(host: str, expected: Reach | None) -> None:
    assert reach(host) is expected


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_none(text: str) -> None:
    assert reach(text) is None or isinstance(reach(text), Reach)
    assert same_address(text, text)


def test_addresses_are_compared_as_addresses() -> None:
    assert same_address("2001:db8::1", "2001:0DB8:0:0::1")
    assert not same_address("192.0.2.1", "192.0.2.2")
    assert same_address("PBX.example", "pbx.example")
