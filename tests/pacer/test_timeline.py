from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_pacer.timeline import Span, Timeline
from tests.pacer.playing import PTIME, SAMPLES, frames


def play(timeline: Timeline, context: int, first: int, count: int, at: float) -> None:
    for n, frame in enumerate(frames(context, first, count)):
        timeline.sent(frame, at + n * PTIME)


def test_the_position_moves_with_time_within_a_frame() -> None:
    timeline = Timeline()
    play(timeline, 1, 0, 5, 10.0)
    assert timeline.position(1, 9.0) == 0
    assert timeline.position(1, 10.0) == 0
    assert timeline.position(1, 10.01) == SAMPLES // 2
    assert timeline.position(1, 10.05) == 2.5 * SAMPLES
    assert timeline.position(1, 99.0) == 5 * SAMPLES


def test_what_the_sink_still_holds_is_not_heard() -> None:
    timeline = Timeline()
    play(timeline, 1, 0, 5, 10.0)
    assert timeline.position(1, 10.1, queued_s=0.06) == 2 * SAMPLES


def test_the_position_stands_still_in_a_hole() -> None:
    timeline = Timeline()
    play(timeline, 1, 0, 2, 10.0)
    play(timeline, 1, 2, 2, 10.5)
    assert timeline.position(1, 10.3) == 2 * SAMPLES
    assert timeline.position(1, 10.52) == 3 * SAMPLES
    assert timeline.spans(1) == [
        Span(1, 0, 2 * SAMPLES, 10.0, 10.0 + 2 * PTIME),
        Span(1, 2 * SAMPLES, 4 * SAMPLES, 10.5, 10.5 + 2 * PTIME),
    ]


def test_a_short_last_frame_ends_at_its_last_sample() -> None:
    timeline = Timeline()
    for n, frame in enumerate(frames(1, 0, 2, last=100)):
        timeline.sent(frame, n * PTIME)
    assert timeline.position(1, 0.02) == SAMPLES
    assert timeline.position(1, 0.03) == SAMPLES + 100


def test_a_first_frame_that_brings_fewer_samples_does_not_slow_the_rest_down() -> None:
    timeline = Timeline()
    whole = frames(1, 0, 50)
    delay = SAMPLES // 6  # the resampler's
    ends = [each.end - delay for each in whole]
    for n, (frame, end) in enumerate(zip(whole, ends, strict=True)):
        timeline.sent(frame._replace(start=max(0, end - SAMPLES), end=end), 10.0 + n * PTIME)
    assert timeline.position(1, 10.01) == (SAMPLES - delay) // 2
    assert timeline.position(1, 10.0 + 40 * PTIME) == ends[39]
    assert timeline.at(10.0 + 40.5 * PTIME) == (1, ends[39] + SAMPLES // 2)


def test_each_utterance_has_its_own_position() -> None:
    timeline = Timeline()
    play(timeline, 1, 0, 2, 10.0)
    play(timeline, 2, 0, 2, 10.04)
    assert timeline.position(1, 10.05) == 2 * SAMPLES
    assert timeline.position(2, 10.05) == SAMPLES // 2
    assert timeline.at(10.05) == (2, SAMPLES // 2)
    assert timeline.at(10.03) == (1, 1.5 * SAMPLES)
    assert timeline.at(9.0) is None
    assert timeline.at(10.08) is None
    assert timeline.position(3, 10.05) == 0


def test_memory_is_bounded() -> None:
    timeline = Timeline(spans_kept=8)
    for n in range(1000):
        play(timeline, n, 0, 1, n * 1.0)
    assert [span.context for span in timeline.spans()] == list(range(992, 1000))


def test_an_utterance_can_be_forgotten() -> None:
    timeline = Timeline()
    play(timeline, 1, 0, 1, 0.0)
    play(timeline, 2, 0, 1, 1.0)
    timeline.forget(1)
    assert timeline.position(1, 5.0) == 0
    assert timeline.position(2, 5.0) == SAMPLES


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0.0, 1.0)), max_size=20))
def test_a_position_never_goes_back(spells: list[tuple[int, float]]) -> None:
    timeline = Timeline()
    at, first = 0.0, 0
    for count, pause in spells:
        play(timeline, 1, first, count, at)
        first += count
        at += count * PTIME + pause
    moments = [n * 0.007 for n in range(int(at / 0.007) + 2)]
    positions = [timeline.position(1, moment) for moment in moments]
    assert positions == sorted(positions)
    assert timeline.position(1, at + 1.0) == first * SAMPLES
