"""What a caller hears of the chunks that came."""

from __future__ import annotations

import base64
from typing import Any

from tests.mindroot_host.playout import FRAME, played

Event = tuple[float, str, Any]


def frame(number: int) -> bytes:
    return bytes([number]) * FRAME


def chunk(at: float, *numbers: int) -> Event:
    return (at, "chunk", base64.b64encode(b"".join(map(frame, numbers))).decode())


def heard(events: list[Event]) -> list[tuple[float, int]]:
    return [(round(at, 3), each[0]) for at, each in played(events).frames]


def test_a_frame_sounds_every_20_ms_however_they_came() -> None:
    events = [(1.0, "start", None), chunk(1.0, 1, 2), chunk(1.03, 3)]
    assert heard(events) == [(1.0, 1), (1.02, 2), (1.04, 3)]
    assert played(events).silent_ticks == 0


def test_a_frame_that_is_late_leaves_silent_ticks_and_nothing_is_caught_up() -> None:
    events = [(1.0, "start", None), chunk(1.0, 1), chunk(1.05, 2, 3)]
    assert heard(events) == [(1.0, 1), (1.06, 2), (1.08, 3)]
    assert played(events).silent_ticks == 2


def test_silent_ticks_are_counted_where_they_are() -> None:
    events = [(1.0, "start", None), chunk(1.0, 1, 2, 3), chunk(1.1, 4, 5), chunk(1.16, 6)]
    playout = played(events)
    assert playout.silent_before() == [0, 0, 0, 2, 0, 1]
    assert [playout.silent_near(place * FRAME, 1) for place in range(6)] == [0, 0, 2, 2, 3, 1]
    assert playout.silent_ticks == 3


def test_a_new_response_throws_away_what_was_not_sent() -> None:
    events = [
        (1.0, "start", None),
        chunk(1.0, 1, 2, 3),
        (1.03, "end", None),
        (1.03, "start", None),
        chunk(1.03, 4),
    ]
    assert heard(events) == [(1.0, 1), (1.02, 2), (1.03, 4)]
    assert played(events).thrown_away == 1


def test_a_halt_is_heard_at_the_next_frame_and_what_follows_is_refused() -> None:
    events = [
        (1.0, "start", None),
        chunk(1.0, 1, 2, 3, 4),
        (1.05, "halt", None),
        (1.06, "refused", 160),
    ]
    assert heard(events) == [(1.0, 1), (1.02, 2), (1.04, 3)]
    result = played(events)
    assert (result.thrown_away, result.refused) == (1, 1)


def test_chunks_of_any_size_are_cut_into_frames_and_the_last_is_padded() -> None:
    events: list[Event] = [
        (1.0, "start", None),
        (1.0, "chunk", base64.b64encode(b"\x01" * 200).decode()),
    ]
    result = played(events)
    assert [len(each) for _, each in result.frames] == [160, 160]
    assert result.responses[0].ulaw == b"\x01" * 200 + b"\xff" * 120


def test_a_call_without_sound_has_no_responses() -> None:
    assert played([]).responses == []
    assert played([(1.0, "start", None)]).frames == []
