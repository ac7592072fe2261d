"""Media of a SIP call: addresses that may be sent to, and the liveness of the far end."""

from __future__ import annotations

import asyncio

import pytest

from qwen3tts_phone.call.media import (
    CONFIRM_WITHIN_S,
    LivenessProbe,
    checked_media_host,
    confirm_within_s,
)
from qwen3tts_phone.errors import BadSdp
from tests.fakes import FakeClock, settle


class FarEnd:
    """Answers, or does not; sends, or does not."""

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers
        self.packets = 0
        self.asked = 0

    async def ask(self) -> bool:
        self.asked += 1
        return self.answers

    def presence(self, clock: FakeClock, vanished_s: float = 60.0) -> LivenessProbe:
        return LivenessProbe(clock, self.ask, lambda: self.packets, vanished_s)


async def test_one_that_does_not_answer_is_lost() -> None:
    clock, far = FakeClock(), FarEnd(answers=False)
    lost = asyncio.create_task(far.presence(clock).lost(20.0))
    await clock.advance(39.0)
    assert (far.asked, lost.done()) == (0, False)
    await clock.advance(2.0)
    assert await lost
    assert far.asked == 1


async def test_one_that_answers_is_asked_again() -> None:
    clock, far = FakeClock(), FarEnd(answers=True)
    lost = asyncio.create_task(far.presence(clock).lost(20.0))
    await clock.advance(41.0)
    assert (far.asked, lost.done()) == (1, False)
    await clock.advance(60.0)
    assert (far.asked, lost.done()) == (2, False)
    far.answers = False
    await clock.advance(60.0)
    assert await lost


async def test_one_that_sends_again_is_back() -> None:
    clock, far = FakeClock(), FarEnd(answers=False)
    lost = asyncio.create_task(far.presence(clock).lost(20.0))
    await settle()
    far.packets = 1
    await clock.advance(41.0)
    assert not await lost
    assert far.asked == 0


async def test_nobody_is_asked_where_that_is_switched_off() -> None:
    far = FarEnd(answers=False)
    assert not await far.presence(FakeClock(), vanished_s=0.0).lost(20.0)
    assert far.asked == 0


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
        checked_media_host(host, "::", peer)
    assert refused.value.remedy


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_a_peer_on_this_machine_may_describe_its_loopback_address(host: str) -> None:
    assert checked_media_host(host, "::", "127.0.0.1")
    with pytest.raises(BadSdp, match="multicast"):
        checked_media_host("224.0.0.1", "::", "127.0.0.1")


@pytest.mark.parametrize("host", ["192.0.2.77", "10.1.2.3", "0.0.0.0", "169.254.1.1"])
def test_other_addresses_are_taken_and_nowhere_means_hold(host: str) -> None:
    assert checked_media_host(host, OURS, OUTSIDE) == host


def test_only_the_signallings_own_host_and_trusted_peers_need_no_confirmation() -> None:
    assert confirm_within_s(OUTSIDE, OUTSIDE, trusted=False) == 0.0
    assert confirm_within_s("2001:db8::1", "2001:0db8::0001", trusted=False) == 0.0
    assert confirm_within_s("192.0.2.77", OUTSIDE, trusted=True) == 0.0
    assert confirm_within_s("192.0.2.77", OUTSIDE, trusted=False) == CONFIRM_WITHIN_S
    assert confirm_within_s("192.0.2.77", "sip.example.com", trusted=False) == CONFIRM_WITHIN_S
