from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.streams.marks import (
    LOST_S,
    MAX_LOST_IN_A_ROW,
    MAX_PENDING_MARKS,
    SLACK_S,
    STALL_S,
    PlayoutMarks,
)


def test_a_mark_is_wanted_at_the_beginning_and_then_each_so_many_milliseconds() -> None:
    marks = PlayoutMarks(0.1)
    wanted = []
    for frame in range(12):
        due_at = 10.0 + frame * 0.02
        if marks.wanted(1, due_at):
            wanted.append(frame)
            marks.sent(1, frame * 160, due_at)
    assert wanted == [0, 5, 10]


def test_no_two_marks_have_the_same_name() -> None:
    marks = PlayoutMarks()
    assert len({marks.sent(1, 0, 0.0) for _ in range(50)}) == 50


def test_the_lag_is_how_much_later_than_reckoned_a_mark_comes_back() -> None:
    marks = PlayoutMarks()
    name = marks.sent(1, 480, 10.0)
    assert marks.returned(name, 10.15)
    assert round(marks.lag_s or 0.0, 6) == 0.15


def test_one_late_mark_moves_the_lag_by_a_quarter() -> None:
    marks = PlayoutMarks()
    marks.returned(marks.sent(1, 1, 10.0), 10.1)
    marks.returned(marks.sent(1, 2, 11.0), 11.5)
    assert marks.lag_s is not None
    assert round(marks.lag_s, 6) == 0.2


def test_a_returned_mark_is_proof_and_the_next_one_a_bound() -> None:
    marks = PlayoutMarks()
    first, _ = marks.sent(1, 480, 10.0), marks.sent(1, 2880, 10.1)
    marks.returned(first, 10.05)
    assert marks.position(1, 100) == 480
    assert marks.position(1, 1000) == 1000
    assert marks.position(1, 9000) == 2880


def test_a_mark_proves_nothing_of_another_context() -> None:
    marks = PlayoutMarks()
    marks.returned(marks.sent(1, 480, 10.0), 10.0)
    assert marks.position(2, 100) == 100


def test_marks_that_come_back_after_a_clear_prove_nothing() -> None:
    marks = PlayoutMarks()
    name = marks.sent(1, 4800, 10.0)
    marks.cut(10.0)
    assert not marks.returned(name, 10.0)
    assert marks.position(1, 0) == 0
    assert marks.returned_marks == 0


def test_marks_that_were_passed_over_are_not_waited_for() -> None:
    marks = PlayoutMarks()
    marks.sent(1, 480, 10.0)
    second = marks.sent(1, 960, 10.1)
    assert marks.returned(second, 10.2)
    assert marks.out == 0


def spoken(marks: PlayoutMarks, frames: int) -> None:
    for _ in range(frames):
        marks.sound()


def test_no_more_is_sent_than_the_lead_beyond_what_a_mark_has_proved() -> None:
    marks = PlayoutMarks()
    marks.returned(marks.sent(1, 1, 10.0), 10.2)  # the way takes 0.2 s
    spoken(marks, 22)
    assert marks.full_until(10.2, 0.1) is not None, "lead and way are 0.3 s, the slack is 60 ms"
    until = marks.full_until(10.2, 0.1)
    assert round(until or 0.0, 6) == round(10.2 + 22 * 0.02 - 0.3 - SLACK_S, 6)
    assert marks.full_until(until or 0.0, 0.1) is None


def test_what_lies_on_a_long_way_counts_as_queued_but_200_ms_are_always_sent_ahead() -> None:
    marks = PlayoutMarks()
    marks.returned(marks.sent(1, 1, 10.0), 10.1)
    spoken(marks, 20)
    assert marks.full_until(10.1, 0.38) is not None, "0.4 s are out"
    longer = PlayoutMarks()
    longer.returned(longer.sent(1, 1, 10.0), 10.5)
    spoken(longer, 35)
    assert longer.full_until(10.5, 0.38) is None, "0.5 s of them are on the way"


def test_where_the_next_mark_does_not_come_nothing_is_reckoned_as_played() -> None:
    marks = PlayoutMarks()
    marks.returned(marks.sent(1, 1, 10.0), 10.0)
    marks.sent(1, 2, 10.1)
    spoken(marks, 30)
    until = marks.full_until(10.9, 0.2)
    assert round(until or 0.0, 6) == 10.1 + LOST_S


def test_more_than_400_ms_are_never_let_out_whatever_the_lead_is() -> None:
    marks = PlayoutMarks()
    marks.returned(marks.sent(1, 1, 10.0), 10.0)
    spoken(marks, 19)
    assert marks.full_until(10.0, 1.0) is None
    spoken(marks, 1)
    assert marks.full_until(10.0, 1.0) is not None


def test_what_a_clear_has_dropped_is_not_queued_any_more() -> None:
    marks = PlayoutMarks()
    marks.returned(marks.sent(1, 1, 10.0), 10.0)
    spoken(marks, 100)
    marks.cut(10.1)
    assert marks.full_until(10.1, 0.2) is None


def test_of_a_far_end_that_never_sent_a_mark_nothing_is_known() -> None:
    marks = PlayoutMarks()
    marks.sent(1, 1, 10.0)
    spoken(marks, 100)
    assert marks.full_until(20.0, 0.2) is None


def test_a_mark_that_is_long_overdue_is_given_up() -> None:
    marks = PlayoutMarks()
    marks.returned(marks.sent(1, 1, 10.0), 10.0)
    marks.sent(1, 2, 11.0)
    marks.give_up(11.0 + LOST_S + 0.01)
    assert (marks.out, marks.lost_marks) == (0, 1)


def test_while_nothing_comes_at_all_a_mark_is_waited_for_longer() -> None:
    marks = PlayoutMarks()
    marks.returned(marks.sent(1, 1, 10.0), 10.0)
    marks.sent(1, 2, 11.0)
    marks.alive(10.9)
    marks.give_up(11.0 + STALL_S - 0.01)
    assert marks.out == 1
    marks.alive(14.5)
    marks.give_up(14.5)
    assert marks.out == 0


def test_after_some_lost_marks_no_more_are_sent() -> None:
    marks = PlayoutMarks()
    for number in range(MAX_LOST_IN_A_ROW):
        assert marks.wanted(1, 10.0 * number + 10)
        marks.sent(1, number, 10.0 * number + 10)
        marks.give_up(10.0 * number + 19)
    assert not marks.usable
    assert not marks.wanted(2, 100.0)


def test_a_mark_that_comes_after_it_was_given_up_says_that_there_are_marks() -> None:
    marks = PlayoutMarks()
    names = [marks.sent(1, number, 10.0) for number in range(MAX_LOST_IN_A_ROW)]
    marks.give_up(20.0)
    assert not marks.usable
    assert not marks.returned(names[0], 21.0)
    assert marks.usable


def test_marks_under_way_are_bounded() -> None:
    marks = PlayoutMarks(0.02)
    for number in range(1000):
        if marks.wanted(1, float(number)):
            marks.sent(1, number, float(number))
    assert marks.out == MAX_PENDING_MARKS


@given(st.lists(st.tuples(st.sampled_from("srcg"), st.integers(0, 20), st.floats(0, 100))))
def test_whatever_comes_back_the_position_lies_within_what_was_sent(
    steps: list[tuple[str, int, float]],
) -> None:
    marks, sent, end = PlayoutMarks(), list[str](), 0
    for step, number, now in sorted(steps, key=lambda each: each[2]):
        if step == "s":
            end += number
            sent.append(marks.sent(1, end, now))
        elif step == "r" and sent:
            marks.returned(sent[number % len(sent)], now)
        elif step == "c":
            marks.cut(now)
        else:
            marks.give_up(now)
        assert 0 <= marks.position(1, min(end, 10)) <= end
