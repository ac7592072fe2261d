"""Which addresses a far end may describe for its sound, and for how long they are believed."""

from __future__ import annotations

import pytest

from qwen3tts_phone.call.media import CONFIRM_WITHIN_S, confirm_within_s, sendable
from qwen3tts_phone.errors import BadSdp

OUTSIDE = "203.0.113.9"
OURS = "192.0.2.1"


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.0.9", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("224.0.0.1", "multicast"),
        ("239.1.2.3", "multicast"),
        ("ff02::1", "multicast"),
        ("::ffff:224.0.0.1", "multicast"),
        ("255.255.255.255", "broadcast"),
        ("0.1.2.3", "reserved"),
        ("240.0.0.1", "reserved"),
    ],
)
@pytest.mark.parametrize("peer", [OUTSIDE, "10.0.0.9", "2001:db8::9", ""])
def test_no_peer_outside_has_such_an_address(host: str, kind: str, peer: str) -> None:
    with pytest.raises(BadSdp, match=kind) as refused:
        sendable(host, "::", peer)
    assert refused.value.remedy


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_a_peer_on_this_machine_may_describe_its_loopback_address(host: str) -> None:
    assert sendable(host, "::", "127.0.0.1")
    with pytest.raises(BadSdp, match="multicast"):
        sendable("224.0.0.1", "::", "127.0.0.1")


@pytest.mark.parametrize("host", ["192.0.2.77", "10.1.2.3", "0.0.0.0", "169.254.1.1"])
def test_other_addresses_are_taken_and_nowhere_means_hold(host: str) -> None:
    assert sendable(host, OURS, OUTSIDE) == host


def test_only_the_signallings_own_host_and_trusted_peers_need_no_confirmation() -> None:
    assert confirm_within_s(OUTSIDE, OUTSIDE, trusted=False) == 0.0
    assert confirm_within_s("2001:db8::1", "2001:0db8::0001", trusted=False) == 0.0
    assert confirm_within_s("192.0.2.77", OUTSIDE, trusted=True) == 0.0
    assert confirm_within_s("192.0.2.77", OUTSIDE, trusted=False) == CONFIRM_WITHIN_S
    assert confirm_within_s("192.0.2.77", "sip.example.com", trusted=False) == CONFIRM_WITHIN_S
