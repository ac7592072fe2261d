from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.streams.carriers.messages import MAX_HELD, MissingChunks, ReorderBuffer


def heard(
    order: ReorderBuffer[int], numbers: list[int], now: float = 0.0
) -> list[int | MissingChunks]:
    return [each for number in numbers for each in order.push(number, number, now)]


def test_in_order_nothing_waits() -> None:
    order: ReorderBuffer[int] = ReorderBuffer()
    for number in range(1, 50):
        assert order.push(number, number, 0.0) == [number]


def test_two_that_changed_places_are_put_right() -> None:
    assert heard(ReorderBuffer(), [1, 3, 2, 5, 4, 6]) == [1, 2, 3, 4, 5, 6]


def test_the_very_first_ones_are_put_right_as_well() -> None:
    assert heard(ReorderBuffer(), [2, 1, 3]) == [1, 2, 3]


def test_a_stream_that_begins_in_its_middle_begins_there() -> None:
    assert heard(ReorderBuffer(), [41, 42]) == [41, 42]


def test_what_never_comes_is_given_up_after_some_later_ones() -> None:
    assert heard(ReorderBuffer(), [1, 3, 4, 5]) == [1]
    assert heard(ReorderBuffer(), [1, 3, 4, 5, 6]) == [1, MissingChunks(1), 3, 4, 5, 6]


def test_what_never_comes_is_given_up_after_a_while() -> None:
    order: ReorderBuffer[int] = ReorderBuffer()
    assert heard(order, [1, 4], 1.0) == [1]
    assert order.tick(1.07) == []
    assert order.tick(1.09) == [MissingChunks(2), 4]
    assert order.tick(9.0) == []


def test_what_comes_after_its_place_was_given_up_or_twice_is_dropped() -> None:
    order: ReorderBuffer[int] = ReorderBuffer()
    assert heard(order, [1, 3, 4, 5, 6, 2, 6, 7]) == [1, MissingChunks(1), 3, 4, 5, 6, 7]
    assert order.dropped == 2


def test_a_counting_that_begins_anew_is_followed() -> None:
    order: ReorderBuffer[int] = ReorderBuffer()
    heard(order, list(range(1, 100)))
    assert heard(order, [1, 2, 3, 4, 5, 6, 7]) == [5, 6, 7]


def test_a_counter_that_stands_still_does_not_silence_the_caller_for_ever() -> None:
    order: ReorderBuffer[str] = ReorderBuffer()
    came = [each for n in range(100) for each in order.push(1, f"c{n}", 0.0)]
    assert len(came) >= 20


def test_chunks_without_a_number_are_heard_behind_what_waited() -> None:
    order: ReorderBuffer[int] = ReorderBuffer()
    assert heard(order, [1, 3]) == [1]
    assert order.push(None, 99, 0.0) == [MissingChunks(1), 3, 99]


def test_a_gap_is_never_told_as_longer_than_a_second() -> None:
    assert heard(ReorderBuffer(), [1, 10**6, 10**6 + 1, 10**6 + 2, 10**6 + 3])[1] == MissingChunks(
        50
    )


@given(st.permutations(list(range(1, 9))))
def test_every_chunk_is_heard_once_in_order_or_told_as_missing_or_dropped(
    numbers: list[int],
) -> None:
    order: ReorderBuffer[int] = ReorderBuffer()
    out = heard(order, numbers) + order.drain()
    plain = [each for each in out if isinstance(each, int)]
    if order._behind == 0 and order.dropped < 4:
        assert plain == sorted(plain)
    assert len(set(plain)) == len(plain)
    assert len(plain) + order.dropped == len(numbers)


@given(st.lists(st.integers(0, 12), max_size=60))
def test_no_more_is_held_than_the_bound(numbers: list[int]) -> None:
    order: ReorderBuffer[int] = ReorderBuffer()
    for number in numbers:
        order.push(number, number, 0.0)
        assert len(order._held) <= MAX_HELD
