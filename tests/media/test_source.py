from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.media.source import (
    CANDIDATES_MOST,
    PAUSE_S,
    SAME_ADDRESS_PAUSE_S,
    SourceLock,
    Verdict,
)

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


def test_after_a_pause_another_source_may_take_the_place() -> None:
    lock = locked(at=10.0)
    assert lock.offer(BEHIND_NAT, 2, 1, 10.0 + PAUSE_S - 0.01) is REJECTED
    assert lock.offer(BEHIND_NAT, 2, 2, 10.0 + PAUSE_S) is PROBATION
    assert lock.offer(BEHIND_NAT, 2, 3, 10.0 + PAUSE_S + 0.02) is LOCKED


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


def test_after_a_renegotiation_a_source_that_nobody_announced_needs_only_a_short_pause() -> None:
    lock = locked(at=5.0)
    lock.update(ANNOUNCED)
    at = 5.001 + SAME_ADDRESS_PAUSE_S
    assert lock.offer(BEHIND_NAT, 9, 1, at) is PROBATION
    assert lock.offer(BEHIND_NAT, 9, 2, at + 0.02) is LOCKED


def test_a_source_that_paused_is_taken_back_from_whoever_took_its_place() -> None:
    lock = locked(BEHIND_NAT, at=0.0)
    lock.offer(STRANGER, 7, 1, PAUSE_S)
    assert lock.offer(STRANGER, 7, 2, PAUSE_S + 0.02) is LOCKED
    assert lock.offer(STRANGER, 7, 3, PAUSE_S + 0.04) is ACCEPTED
    assert lock.offer(BEHIND_NAT, 2, 12, PAUSE_S + 0.05) is REJECTED  # not the stream it was
    assert lock.offer(BEHIND_NAT, 1, 12, PAUSE_S + 0.05) is LOCKED
    assert lock.offer(STRANGER, 7, 4, PAUSE_S + 0.06) is REJECTED


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
