"""Packets to a host that was only announced end soon, until something comes from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.process import MediaProcess
from qwen3tts_phone.media.source import HOSTS_MOST, LEG_S, SendPermission
from qwen3tts_phone.media.types import LegSpec, SendingPaused, SendingResumed
from tests.media.peer import HEAD, TAIL, Peer, event_of, numbers, speech

VICTIM, OTHER = "192.0.2.1", "198.51.100.7"


def test_nothing_is_limited_where_no_confirmation_is_asked_for() -> None:
    permission = SendPermission()
    permission.update(VICTIM, 0.0, 10.0)
    assert permission.is_given(1e9)


def test_it_ends_after_the_time_and_comes_back_when_something_comes_from_that_host() -> None:
    permission = SendPermission()
    permission.update(VICTIM, 5.0, 10.0)
    assert permission.is_given(14.9)
    assert not permission.is_given(15.0)
    permission.heard(OTHER, 16.0)
    assert not permission.is_given(16.0)
    permission.heard(VICTIM, 17.0)
    assert permission.is_given(1e9)
    permission.update(OTHER, 5.0, 1e9)  # something has come from there as well
    assert permission.is_given(2e9)


def test_sound_from_behind_a_nat_gives_it_for_where_it_is_then_sent_to() -> None:
    permission = SendPermission()
    permission.update("10.0.0.7", 5.0, 0.0)
    permission.aimed(OTHER, 1.0)
    assert permission.is_given(1e9)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0.0, 30.0)), max_size=60))
def test_however_often_a_call_names_hosts_it_sends_to_silent_ones_for_a_bounded_time(
    changes: list[tuple[str, float]],
) -> None:
    permission = SendPermission()
    now = sent_s = 0.0
    for host, lasts in changes:
        permission.update(host, 5.0, now)
        step = lasts / 50
        for index in range(50):
            if permission.is_given(now + index * step):
                sent_s += step
        now += lasts
    assert sent_s <= LEG_S + 0.6 * len(changes) + 1e-6


def test_of_hosts_that_were_heard_a_bounded_number_is_remembered() -> None:
    permission = SendPermission()
    permission.update(VICTIM, 5.0, 0.0)
    for number in range(10_000):
        permission.heard(f"198.51.100.{number}", 1.0)
    assert len(permission._confirmed) == HOSTS_MOST
    permission.heard(VICTIM, 2.0)
    assert permission.is_given(100.0)


async def third_party(process: MediaProcess) -> tuple[MediaLeg, Peer]:
    peer = Peer("127.0.0.2")
    leg = await process.open(LegSpec(local_host="0.0.0.0", pinned_s=0.0))
    peer.dial(leg)
    await leg.start(peer.media(signalling_host="127.0.0.1", confirm_within_s=0.3))
    return leg, peer


@pytest.mark.network
async def test_a_third_host_that_sends_nothing_is_sent_nothing_more_until_it_does(
    process: MediaProcess, metronome: Peer
) -> None:
    leg, peer = await third_party(process)
    leg.begin(1)
    leg.write(speech(200))
    heard = [await peer.hear_speech()]
    assert (await event_of(leg, SendingPaused)).host == "127.0.0.2"
    sent = (await leg.measure()).sent
    await metronome.ticks(8)
    assert (await leg.measure()).sent - sent <= 1  # at most the fade
    sent = (await leg.measure()).sent
    heard += await peer.hear_many(sent - 1)
    assert heard[-1].payload[:1] == TAIL
    await metronome.ticks(4)
    assert (await leg.measure()).sent == sent
    peer.say()
    await event_of(leg, SendingResumed)
    resumed = await peer.hear()
    assert resumed.marker
    assert resumed.payload[:1] == HEAD
    assert resumed.sequence == (heard[-1].sequence + 1) % 65536
    # No frame was lost meanwhile.
    assert numbers([resumed])[0] == numbers(heard)[-1] + 1
    peer.hang_up()
