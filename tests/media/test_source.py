from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.media.source import PAUSE_S, SAME_ADDRESS_PAUSE_S, SourceLock, Verdict

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
