from __future__ import annotations

from qwen3tts_phone.softphone.messages import Heard, Line, ServerMessage, State, Utterance
from qwen3tts_phone.softphone.session import MAX_WAITING, Outbox


def taken(outbox: Outbox) -> list[ServerMessage]:
    found = []
    while (message := outbox.take()) is not None:
        found.append(message)
    return found


def test_messages_keep_their_order() -> None:
    outbox = Outbox()
    told: list[ServerMessage] = [State("connecting"), Utterance(1, "typed", "a"), State("up")]
    for each in told:
        assert outbox.put(each)
    assert taken(outbox) == told


def test_what_is_out_of_date_is_left_out() -> None:
    outbox = Outbox()
    for position in range(5):
        outbox.put(Heard(1, position, 0.0))
        outbox.put(Heard(2, position, 0.0))
        outbox.put(State("up"))
    assert taken(outbox) == [State("up")] * 4 + [Heard(1, 4, 0.0), Heard(2, 4, 0.0), State("up")]


def test_a_slow_page_costs_no_memory_for_figures() -> None:
    outbox = Outbox()
    for number in range(10 * MAX_WAITING):
        assert outbox.put(Line(float(number), "idle"))
    assert len(outbox) <= MAX_WAITING
    assert taken(outbox) == [Line(10.0 * MAX_WAITING - 1, "idle")]
    outbox.put(Line(0.0, "idle"))
    assert taken(outbox) == [Line(0.0, "idle")]


def test_a_page_that_takes_nothing_at_all_is_given_up() -> None:
    outbox = Outbox()
    assert all(outbox.put(State("up")) for _ in range(MAX_WAITING))
    assert not outbox.put(State("up"))
