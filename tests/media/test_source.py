from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.process import MediaProcess
from qwen3tts_phone.media.source import (
    CANDIDATES_MOST,
    HOSTS_MOST,
    LEG_S,
    PAUSE_S,
    SAME_ADDRESS_PAUSE_S,
    SendPermission,
    SourceLock,
    Verdict,
)
from qwen3tts_phone.media.types import LegSpec, SendingPaused, SendingResumed
from tests.media.peer import HEAD, TAIL, Peer, event_of, numbers, speech

ANNOUNCED = ("192.0.2.1", 4000)
BEHIND_NAT = ("198.51.100.7", 61000)
STRANGER = ("203.0.113.9", 5555)
ACCEPTED, LOCKED, PROBATION, REJECTED = (
    Verdict.ACCEPTED,
    Verdict.LOCKED,
    Verdict.PROBATION,
    Verdict.REJECTED,
)


def locked(address: tuple[str, int] = ANNOUNCED, at: float = 0.0) -> SourceLock:
    lock = SourceLock()
    lock.update(ANNOUNCED)
    lock.offer(address, 1, 10, at)
    lock.offer(address, 1, 11, at)
    return lock


def test_the_announced_address_is_believed_at_its_first_packet() -> None:
    lock = SourceLock(ANNOUNCED)
    assert lock.offer(ANNOUNCED, 1, 10, 0.0) is LOCKED
    assert lock.offer(ANNOUNCED, 1, 11, 0.02) is ACCEPTED


def test_another_address_must_show_two_packets_in_sequence() -> None:
    lock = SourceLock(ANNOUNCED)
    assert lock.offer(BEHIND_NAT, 1, 65535, 0.0) is PROBATION
    assert lock.offer(BEHIND_NAT, 1, 0, 0.02) is LOCKED
    assert lock.address == BEHIND_NAT


def test_stray_packets_do_not_latch() -> None:
    lock = SourceLock(ANNOUNCED)
    assert lock.offer(STRANGER, 1, 10, 0.0) is PROBATION
    assert lock.offer(STRANGER, 1, 500, 0.0) is PROBATION
    assert lock.offer(BEHIND_NAT, 1, 501, 0.0) is PROBATION


def test_a_flood_of_stray_packets_does_not_hide_the_one_that_comes_twice() -> None:
    lock = SourceLock(ANNOUNCED)
    assert lock.offer(BEHIND_NAT, 1, 10, 0.0) is PROBATION
    for number in range(50):
        stray = ("203.0.113.9", 5000 + number)
        assert lock.offer(stray, number, 7 * number, 0.01) is PROBATION
    assert lock.offer(BEHIND_NAT, 1, 11, 0.02) is LOCKED


def test_however_many_stray_packets_come_little_is_remembered() -> None:
    lock = SourceLock(ANNOUNCED)
    for number in range(10_000):
        lock.offer(("203.0.113.9", number), number, 7, 0.0)
    assert len(lock._candidates) <= CANDIDATES_MOST


def test_strangers_are_rejected_and_counted_once_a_source_is_locked() -> None:
    lock = locked()
    for sequence in range(12, 22):
        assert lock.offer(STRANGER, 1, sequence, 0.1) is REJECTED
        assert lock.offer(ANNOUNCED, 2, sequence, 0.05) is REJECTED
    assert lock.rejected == 20
    assert lock.offer(ANNOUNCED, 1, 12, 0.1) is ACCEPTED


def test_the_announced_address_takes_over_from_one_that_was_latched_before_it() -> None:
    lock = locked(BEHIND_NAT)
    assert lock.offer(ANNOUNCED, 3, 1, 0.02) is LOCKED
    assert lock.offer(BEHIND_NAT, 1, 12, 0.04) is REJECTED


def test_after_an_update_the_next_valid_source_is_taken() -> None:
    lock = locked()
    lock.update(BEHIND_NAT)
    assert lock.offer(BEHIND_NAT, 9, 1, 0.02) is LOCKED
    assert lock.offer(ANNOUNCED, 1, 12, 0.04) is REJECTED


def test_after_an_update_the_old_source_closes_the_door_again() -> None:
    lock = locked()
    lock.update(ANNOUNCED)
    assert lock.offer(ANNOUNCED, 1, 12, 0.02) is ACCEPTED
    assert lock.offer(STRANGER, 9, 1, 0.04) is REJECTED


def test_after_a_pause_another_port_of_the_same_host_may_take_the_place() -> None:
    for first in (ANNOUNCED, BEHIND_NAT):
        lock = locked(first, at=10.0)
        port = (first[0], 4242)
        assert lock.offer(port, 2, 1, 10.0 + PAUSE_S - 0.01) is REJECTED
        assert lock.offer(port, 2, 2, 10.0 + PAUSE_S) is PROBATION
        assert lock.offer(port, 2, 3, 10.0 + PAUSE_S + 0.02) is LOCKED


def test_another_host_never_takes_over_once_the_announced_one_was_heard() -> None:
    lock = locked(at=10.0)
    for sequence in range(500):
        assert lock.offer(STRANGER, 2, sequence, 10.0 + sequence) is REJECTED
    lock.update(ANNOUNCED)  # a session refresh changes nothing of that
    for sequence in range(500):
        assert lock.offer(STRANGER, 2, sequence, 600.0 + sequence) is REJECTED
    assert lock.address == ANNOUNCED


def test_the_announced_host_may_take_over_from_any_of_its_ports_after_a_pause() -> None:
    lock = locked(BEHIND_NAT)
    elsewhere = (ANNOUNCED[0], 4444)
    assert lock.offer(elsewhere, 5, 1, PAUSE_S) is PROBATION
    assert lock.offer(elsewhere, 5, 2, PAUSE_S + 0.02) is LOCKED
    assert lock.offer(BEHIND_NAT, 9, 1, 100.0) is REJECTED


def test_behind_a_nat_one_host_is_latched_and_a_second_one_is_not() -> None:
    lock = locked(BEHIND_NAT)
    for sequence in range(500):
        assert lock.offer(STRANGER, 7, sequence, PAUSE_S + sequence) is REJECTED
    other_port = (BEHIND_NAT[0], 62000)  # the NAT has bound it to another port
    assert lock.offer(other_port, 1, 12, 600.0) is PROBATION
    assert lock.offer(other_port, 1, 13, 600.02) is LOCKED


def test_behind_a_nat_a_renegotiation_lets_no_second_host_in_after_a_pause() -> None:
    lock = locked(BEHIND_NAT)
    lock.update(ANNOUNCED)
    assert lock.offer(BEHIND_NAT, 1, 12, 1.0) is Verdict.ACCEPTED
    for sequence in range(500):
        assert lock.offer(STRANGER, 7, sequence, 1.0 + PAUSE_S + sequence) is REJECTED


def test_the_host_of_the_signalling_outranks_a_host_that_was_quicker() -> None:
    lock = SourceLock()
    lock.update(ANNOUNCED, signalling=BEHIND_NAT[0])
    lock.offer(STRANGER, 7, 1, 0.0)
    assert lock.offer(STRANGER, 7, 2, 0.001) is LOCKED
    assert lock.offer(BEHIND_NAT, 1, 10, 0.01) is PROBATION
    assert lock.offer(BEHIND_NAT, 1, 11, 0.03) is LOCKED
    for sequence in range(3, 200):
        assert lock.offer(STRANGER, 7, sequence, 0.02 * sequence) is REJECTED
    assert lock.offer(ANNOUNCED, 3, 1, 5.0) is LOCKED
    assert lock.offer(BEHIND_NAT, 1, 12, 50.0) is REJECTED


def test_a_hold_by_an_address_that_is_none_lets_no_other_host_in() -> None:
    """RFC 2543's hold: ``c=0.0.0.0``."""
    lock = SourceLock(("10.0.0.5", 4000))
    assert lock.offer(("10.0.0.5", 4000), 7, 1, 0.0) is Verdict.LOCKED
    for nowhere in ("0.0.0.0", "::", ""):
        lock.update((nowhere, 4000))
        for number in range(4):
            assert lock.offer(("10.0.0.9", 5000), 1, number, 5.0 + number) is Verdict.REJECTED
    lock.update(("10.0.0.5", 4000))
    assert lock.announced_heard
    assert lock.offer(("10.0.0.5", 4000), 7, 2, 9.0) is Verdict.ACCEPTED


def test_another_announced_host_may_be_behind_a_nat_as_well() -> None:
    lock = locked()
    lock.update(("192.0.2.200", 4000))
    assert lock.offer(BEHIND_NAT, 9, 1, 0.02 + SAME_ADDRESS_PAUSE_S) is PROBATION
    assert lock.offer(BEHIND_NAT, 9, 2, 0.04 + SAME_ADDRESS_PAUSE_S) is LOCKED
    assert lock.offer(STRANGER, 9, 3, 60.0) is REJECTED


def test_a_source_that_proves_who_it_is_may_move_to_another_host() -> None:
    lock = SourceLock()
    lock.update(ANNOUNCED, authenticated=True)
    assert lock.offer(ANNOUNCED, 1, 10, 0.0) is LOCKED
    assert lock.offer(BEHIND_NAT, 1, 11, PAUSE_S) is PROBATION
    assert lock.offer(BEHIND_NAT, 1, 12, PAUSE_S + 0.02) is LOCKED


def test_a_new_stream_of_the_same_address_needs_only_a_short_pause() -> None:
    lock = locked(at=0.0)
    assert lock.offer(ANNOUNCED, 2, 1, 0.02) is REJECTED
    assert lock.offer(ANNOUNCED, 2, 2, SAME_ADDRESS_PAUSE_S) is LOCKED


def test_after_a_renegotiation_the_locked_address_may_begin_one_new_stream_at_once() -> None:
    lock = locked(at=5.0)
    lock.update(ANNOUNCED)
    assert lock.offer(ANNOUNCED, 1, 12, 5.02) is ACCEPTED  # it was on its way
    assert lock.offer(ANNOUNCED, 2, 500, 5.04) is LOCKED
    assert lock.offer(ANNOUNCED, 2, 501, 5.06) is ACCEPTED
    assert lock.offer(ANNOUNCED, 1, 13, 5.06) is REJECTED
    assert lock.offer(ANNOUNCED, 3, 1, 5.07) is REJECTED


def test_a_renegotiation_does_not_let_in_whoever_sends_faster_than_the_locked_source() -> None:
    lock = locked(at=5.0)
    lock.update(ANNOUNCED)
    for index in range(20):  # before the next packet of the old source is due
        assert lock.offer(STRANGER, 9, index, 5.001 + index / 10_000) is REJECTED
    assert lock.offer(ANNOUNCED, 1, 12, 5.02) is ACCEPTED


def test_after_a_renegotiation_a_source_behind_a_nat_needs_only_a_short_pause() -> None:
    lock = locked(BEHIND_NAT, at=5.0)
    lock.update(ANNOUNCED)
    at = 5.001 + SAME_ADDRESS_PAUSE_S
    assert lock.offer(STRANGER, 9, 1, at) is PROBATION
    assert lock.offer(STRANGER, 9, 2, at + 0.02) is LOCKED
    assert lock.offer(BEHIND_NAT, 9, 3, at + 60.0) is REJECTED


def test_a_source_that_paused_is_taken_back_from_whoever_took_its_place() -> None:
    lock = locked(BEHIND_NAT, at=0.0)
    neighbour = (BEHIND_NAT[0], 5555)
    lock.offer(neighbour, 7, 1, PAUSE_S)
    assert lock.offer(neighbour, 7, 2, PAUSE_S + 0.02) is LOCKED
    assert lock.offer(neighbour, 7, 3, PAUSE_S + 0.04) is ACCEPTED
    assert lock.offer(BEHIND_NAT, 2, 12, PAUSE_S + 0.05) is REJECTED  # not the stream it was
    assert lock.offer(BEHIND_NAT, 1, 12, PAUSE_S + 0.05) is LOCKED
    assert lock.offer(neighbour, 7, 4, PAUSE_S + 0.06) is REJECTED


def test_a_strict_lock_listens_to_the_announced_host_alone_on_any_of_its_ports() -> None:
    lock = SourceLock(ANNOUNCED, strict=True)
    for sequence in range(5):
        assert lock.offer(STRANGER, 9, sequence, 100.0 * sequence) is REJECTED
    elsewhere = (ANNOUNCED[0], 4444)  # what a peer sends from is not where it receives
    assert lock.offer(elsewhere, 1, 1, 600.0) is PROBATION
    assert lock.offer(elsewhere, 1, 2, 600.02) is LOCKED
    lock.update(BEHIND_NAT)
    assert lock.offer(elsewhere, 2, 3, 700.0) is REJECTED
    assert lock.offer(BEHIND_NAT, 2, 3, 700.0) is LOCKED


@given(
    st.lists(
        st.tuples(
            st.sampled_from([ANNOUNCED, BEHIND_NAT, STRANGER]),
            st.integers(0, 3),
            st.integers(0, 65535),
        ),
        max_size=60,
    )
)
def test_while_the_locked_source_speaks_nothing_else_is_accepted(
    offers: list[tuple[tuple[str, int], int, int]],
) -> None:
    lock = locked()
    for index, (address, ssrc, sequence) in enumerate(offers):
        now = index * 0.02
        lock.offer(ANNOUNCED, 1, index, now)
        verdict = lock.offer(address, ssrc, sequence, now)
        assert verdict is (ACCEPTED if (address, ssrc) == (ANNOUNCED, 1) else REJECTED)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([BEHIND_NAT, STRANGER, ("198.51.100.200", 7), (ANNOUNCED[0], 99)]),
            st.integers(0, 2),
            st.floats(0.0, 5.0),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_of_unannounced_hosts_no_sound_is_taken_once_the_announced_one_was_heard(
    offers: list[tuple[tuple[str, int], int, float, bool]],
) -> None:
    lock = locked()
    now = 0.0
    for sequence, (address, ssrc, wait, refreshed) in enumerate(offers):
        now += wait
        if refreshed:
            lock.update(ANNOUNCED, signalling=BEHIND_NAT[0])
        verdict = lock.offer(address, ssrc, sequence, now)
        assert address[0] == ANNOUNCED[0] or verdict is REJECTED


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
