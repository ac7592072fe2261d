"""Token buckets, and what is remembered of the sources seen last."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.limits import RecentSources, TokenBucket


def test_a_bucket_lets_its_burst_through_and_then_so_many_a_second() -> None:
    bucket = TokenBucket(per_s=2.0, burst=3, now=100.0)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.wait_s(100.0) == 0.5
    assert bucket.take(100.5)
    assert not bucket.take(100.5)
    assert [bucket.take(1000.0) for _ in range(4)] == [True, True, True, False]


def test_a_clock_that_steps_back_takes_nothing_away_and_gives_nothing() -> None:
    bucket = TokenBucket(per_s=1.0, burst=2, now=100.0)
    assert bucket.take(50.0)
    assert bucket.take(50.0)
    assert not bucket.take(100.0)
    assert bucket.take(101.0)


@given(st.lists(st.floats(0.0, 2.0), max_size=60), st.integers(1, 5))
def test_no_more_than_burst_and_rate_pass_in_any_time(steps: list[float], burst: int) -> None:
    bucket, now, taken = TokenBucket(3.0, burst, 0.0), 0.0, 0
    for step in steps:
        now += step
        taken += bucket.take(now)
    assert taken <= burst + 3.0 * now + 1e-6


def test_the_source_that_was_not_seen_for_longest_is_forgotten_first() -> None:
    made: list[str] = []

    def make(key: str, now: float) -> list[float]:
        made.append(key)
        return [now]

    recent = RecentSources(make, most=2)
    first = recent.of("a", 1.0)
    recent.of("b", 2.0)
    assert recent.of("a", 3.0) is first
    recent.of("c", 4.0)
    assert len(recent) == 2
    assert recent.of("a", 5.0) is first
    recent.of("b", 6.0)
    assert made == ["a", "b", "c", "b"]
