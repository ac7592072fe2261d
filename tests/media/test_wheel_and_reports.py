"""Who is served when, with a machine that is on time, late, or far too late."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.media.reports import EVENTS_MOST, LEG_EVENTS_MOST, Outbox
from qwen3tts_phone.media.wheel import Wheel


class Member:
    """Writes down when it was served, and counts its slots as a sender does."""

    def __init__(self, ptime_ms: int = 20, first: int = 0) -> None:
        self.ptime_ms = ptime_ms
        self.first = first
        self.number = 0
        self.served: list[tuple[int, int]] = []
        """When (ms), and which slot."""
        self.skip = self._skip

    def _skip(self, slots: int) -> None:
        self.number += slots

    def serve(self, now: int) -> None:
        self.served.append((now, self.number))
        self.number += 1

    def ideal(self, number: int) -> int:
        return self.first + number * self.ptime_ms


def run(members: Sequence[Member], until: int, stalls: Sequence[tuple[int, int]] = ()) -> None:
    """Serve up to ``until`` ms; at (at, ms) the machine stalls that long."""
    wheel: Wheel[Member] = Wheel()
    for member in members:
        wheel.add(member, member.first)
    now, waiting = 0, sorted(stalls)
    while (tick := wheel.next_tick()) <= until:
        now = max(now, tick)
        while waiting and waiting[0][0] <= now:
            now += waiting.pop(0)[1]
        for member in wheel.take(now - tick):
            member.serve(now)


def test_on_time_everybody_comes_round_once_a_packet() -> None:
    slow, quick = Member(20, 3), Member(10, 4)
    run([slow, quick], 100)
    assert slow.served == [(3, 0), (23, 1), (43, 2), (63, 3), (83, 4)]
    assert [at for at, _ in quick.served] == list(range(4, 101, 10))


def test_a_slot_that_is_less_than_a_packet_late_is_served_and_the_grid_is_kept() -> None:
    member = Member()
    run([member], 100, [(20, 15)])
    # The one after it is at least half a packet later, the next is on the grid again.
    assert member.served == [(0, 0), (35, 1), (45, 2), (60, 3), (80, 4), (100, 5)]


def test_whole_packets_are_skipped_and_never_made_up_for() -> None:
    member = Member()
    run([member], 140, [(20, 47)])
    assert member.served == [(0, 0), (67, 3), (80, 4), (100, 5), (120, 6), (140, 7)]


def test_one_who_joins_before_the_next_slot_of_the_others_is_not_forgotten() -> None:
    wheel: Wheel[Member] = Wheel()
    early, joining = Member(), Member()
    wheel.add(early, 0)
    assert wheel.take(0) == [early]
    assert wheel.next_tick() == 20
    wheel.add(joining, 5)
    assert wheel.next_tick() == 5
    assert wheel.take(0) == [joining]
    assert wheel.next_tick() == 20


def test_one_who_was_removed_is_not_served() -> None:
    wheel: Wheel[Member] = Wheel()
    gone, stays = Member(), Member()
    wheel.add(gone, 0)
    wheel.add(stays, 0)
    wheel.take(15)
    wheel.remove(gone)
    assert wheel.count == 1
    assert wheel.next_tick() == 25
    assert wheel.take(0) == [stays]


@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(1, 400)), max_size=6),
    st.lists(
        st.tuples(st.sampled_from([10, 20, 30, 40, 60]), st.integers(0, 19)),
        min_size=1,
        max_size=5,
    ),
)
def test_whatever_stalls_no_one_bursts_and_everyone_returns_to_the_grid(
    stalls: list[tuple[int, int]], calls: list[tuple[int, int]]
) -> None:
    members = [Member(ptime, first) for ptime, first in calls]
    run(members, 4000, stalls)
    for member in members:
        times = [at for at, _ in member.served]
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert all(gap >= member.ptime_ms // 2 for gap in gaps)
        numbers = [number for _, number in member.served]
        assert numbers == sorted(set(numbers))
        # Nothing is served before its time, or later than a packet after it.
        for at, number in member.served:
            assert 0 <= at - member.ideal(number) < member.ptime_ms
        at, number = member.served[-1]
        assert at == member.ideal(number)


def drained(outbox: Outbox) -> list[bytes]:
    found = []
    while (data := outbox.first()) is not None:
        found.append(data)
        outbox.sent()
    return found


def test_replies_go_before_everything_else_and_the_load_goes_last() -> None:
    outbox = Outbox()
    outbox.load(b"load 1")
    outbox.event(1, b"key")
    outbox.fact(1, b"played")
    outbox.reply(b"reply 1")
    outbox.reply(b"reply 2")
    outbox.load(b"load 2")
    assert drained(outbox) == [b"reply 1", b"reply 2", b"key", b"played", b"load 2"]
    assert not outbox


def test_one_calls_events_are_bounded_and_leave_room_for_those_of_others() -> None:
    outbox = Outbox()
    accepted = [outbox.event(1, b"%d" % number) for number in range(LEG_EVENTS_MOST + 5)]
    assert accepted == [True] * LEG_EVENTS_MOST + [False] * 5
    assert outbox.event(2, b"of another")
    assert drained(outbox) == [b"%d" % number for number in range(LEG_EVENTS_MOST)] + [
        b"of another"
    ]
    assert outbox.event(1, b"room again")


def test_all_calls_events_together_are_bounded_and_replies_and_facts_are_not() -> None:
    outbox = Outbox()
    for number in range(EVENTS_MOST):
        assert outbox.event(number, b"event")
    assert not outbox.event(EVENTS_MOST, b"one more")
    for _ in range(EVENTS_MOST):
        outbox.reply(b"reply")
        outbox.fact(1, b"fact")
    assert outbox.replies == EVENTS_MOST
    sent = drained(outbox)
    assert [sent.count(each) for each in (b"reply", b"fact", b"event")] == [EVENTS_MOST] * 3


def test_what_waits_of_a_closed_call_is_removed_and_its_room_is_free() -> None:
    outbox = Outbox()
    for number in range(EVENTS_MOST):
        outbox.event(number % 200, b"event")
    outbox.fact(7, b"fact of 7")
    outbox.fact(8, b"fact of 8")
    outbox.reply(b"closed")
    outbox.forget(7)
    assert outbox.event(200, b"of a new call")
    sent = drained(outbox)
    assert sent[0] == b"closed"
    assert b"fact of 7" not in sent
    assert b"fact of 8" in sent
    assert sent.count(b"event") == EVENTS_MOST - EVENTS_MOST // 200
