from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from qwen3tts_engine.guards import (
    BLOCK,
    SAMPLE_RATE,
    FrameCap,
    LeadingTrim,
    RepetitionGuard,
    SilenceCut,
    SoundGuard,
    check_finite,
    repeats_in,
)
from qwen3tts_wire.errors import EngineFailed

Sound = NDArray[Any]


def silence(seconds: float) -> Sound:
    return np.zeros(round(seconds * SAMPLE_RATE), np.float32)


def voice(seconds: float, level: float = 0.2) -> Sound:
    at = np.arange(round(seconds * SAMPLE_RATE))
    return (level * np.cos(at / 20)).astype(np.float32)


def joined(*parts: Sound) -> Sound:
    return np.concatenate(parts)


def cut(sound: Sound, borders: Iterable[int]) -> list[Sound]:
    places = sorted(border % (len(sound) + 1) for border in borders)
    return np.split(sound, places)


def through(guard: LeadingTrim | SilenceCut, parts: Iterable[Sound]) -> Sound:
    out: Sound = np.concatenate([guard.push(part) for part in parts])
    return out


def as_int16(sound: Sound) -> Sound:
    out: Sound = np.rint(sound * 32767).astype(np.int16)
    return out


borders = st.lists(st.integers(0, 100_000), max_size=12)
spans = st.lists(st.tuples(st.booleans(), st.floats(0.001, 0.4)), max_size=6)


def sound_of(pieces: list[tuple[bool, float]]) -> Sound:
    return joined(silence(0), *(voice(s) if loud else silence(s) for loud, s in pieces))


# --- frame cap ---


def test_a_short_text_may_last_as_long_as_the_checkpoint_allows() -> None:
    assert FrameCap().frames(0.0) == FrameCap().frames(2.0) == 8192
    assert FrameCap(most=60).frames(1.2, tokens=3) == 60


def test_the_cap_of_a_longer_text_grows_with_it_up_to_the_checkpoints() -> None:
    cap = FrameCap(most=400)
    assert cap.frames(4.0) == 163  # 2.5 times its length and 3 s
    assert cap.frames(4.0, tokens=30) == 265  # never less than tokens need
    assert cap.frames(100.0) == 400


# --- finite ---


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_sound_that_is_not_numbers_fails_its_row(bad: float) -> None:
    sound = voice(0.1)
    check_finite(sound)
    sound[7] = bad
    with pytest.raises(EngineFailed) as caught:
        SoundGuard().push(sound)
    assert caught.value.remedy
    check_finite(np.array([-32768], np.int16))


# --- leading trim ---


def test_silence_before_the_first_sound_is_left_out_but_for_the_pre_roll() -> None:
    trim = LeadingTrim()
    out = trim.push(joined(silence(0.3), voice(0.1), silence(0.2), voice(0.1)))
    np.testing.assert_array_equal(out, joined(silence(0.02), voice(0.1), silence(0.2), voice(0.1)))
    assert trim.dropped == round(0.28 * SAMPLE_RATE)
    assert trim.heard


def test_a_start_without_silence_is_left_as_it_is() -> None:
    trim = LeadingTrim()
    sound = voice(0.1)
    np.testing.assert_array_equal(trim.push(sound), sound)
    assert trim.dropped == 0
    later = silence(1.0)
    assert trim.push(later) is later


def test_a_pre_roll_that_is_not_there_is_not_made_up() -> None:
    trim = LeadingTrim(pre_roll_s=0.02)
    out = trim.push(joined(silence(0.005), voice(0.01)))
    assert len(out) == round(0.015 * SAMPLE_RATE)
    assert trim.dropped == 0


def test_nothing_but_silence_gives_nothing_and_says_so() -> None:
    trim = LeadingTrim()
    assert len(through(trim, [silence(0.5), silence(0.001), silence(0)])) == 0
    assert not trim.heard
    assert trim.dropped + trim.held == round(0.501 * SAMPLE_RATE)


@given(spans, borders, st.booleans())
@settings(deadline=None, derandomize=True)
def test_the_trim_does_not_depend_on_the_chunks(
    pieces: list[tuple[bool, float]], places: list[int], whole_numbers: bool
) -> None:
    sound = sound_of(pieces)
    if whole_numbers:
        sound = as_int16(sound)
    once, often = LeadingTrim(), LeadingTrim()
    expected = once.push(sound)
    out = through(often, cut(sound, places))
    np.testing.assert_array_equal(out, expected)
    assert out.dtype == sound.dtype
    assert often.dropped == once.dropped
    if once.heard:
        np.testing.assert_array_equal(out, sound[once.dropped :])
        assert not np.any(sound[: once.dropped])
        assert len(out) + once.dropped == len(sound)


def test_the_lowest_sample_is_loud() -> None:
    trim = LeadingTrim(pre_roll_s=0)
    assert list(trim.push(np.array([0, -32768], np.int16))) == [-32768]


# --- silence cut ---


def test_silence_after_the_text_ends_the_utterance() -> None:
    guard = SilenceCut(after_s=1.0, text_end=0)
    out = guard.push(joined(voice(0.5), silence(3.0), voice(0.5)))
    assert guard.cut
    assert len(out) == round(1.5 * SAMPLE_RATE)
    assert len(guard.push(voice(1.0))) == 0
    assert guard.position == len(out)


def test_a_pause_while_text_is_left_is_not_touched() -> None:
    guard = SilenceCut(after_s=1.0)
    sound = joined(voice(0.5), silence(5.0), voice(0.5))
    assert len(guard.push(sound)) == len(sound)
    guard.text_end = guard.position
    assert len(guard.push(silence(0.5))) == SAMPLE_RATE // 2
    assert not guard.cut
    assert len(guard.push(silence(2.0))) == SAMPLE_RATE // 2
    assert guard.cut


def test_silence_counts_from_where_the_text_ended() -> None:
    guard = SilenceCut(after_s=1.0, text_end=2 * SAMPLE_RATE)
    out = guard.push(joined(voice(0.5), silence(9.0)))
    assert len(out) == 3 * SAMPLE_RATE


def test_pauses_between_the_last_sentences_do_not_add_up() -> None:
    guard = SilenceCut(after_s=1.0, text_end=0)
    sound = joined(*(part for _ in range(5) for part in (voice(0.3), silence(0.8))))
    assert len(guard.push(sound)) == len(sound)
    assert not guard.cut


def test_a_voice_that_begins_late_has_more_time() -> None:
    guard = SilenceCut(after_s=1.0, onset_s=3.0, text_end=0)
    sound = joined(silence(2.5), voice(0.5))
    assert len(guard.push(sound)) == len(sound)
    guard = SilenceCut(after_s=1.0, onset_s=3.0, text_end=0)
    assert len(guard.push(silence(9.0))) == 3 * SAMPLE_RATE
    assert guard.cut


def test_noise_below_the_threshold_is_silence_and_a_quiet_voice_is_not() -> None:
    noise = np.random.default_rng(1).normal(0, 0.001, 3 * SAMPLE_RATE).astype(np.float32)
    guard = SilenceCut(after_s=1.0, text_end=0)
    guard.push(joined(voice(0.1), noise))
    assert guard.cut
    guard = SilenceCut(after_s=1.0, text_end=0)
    guard.push(voice(5.0, level=0.01))
    assert not guard.cut


@given(spans, borders, st.one_of(st.none(), st.integers(0, 30_000)), st.booleans())
@settings(deadline=None, derandomize=True)
def test_the_cut_does_not_depend_on_the_chunks(
    pieces: list[tuple[bool, float]],
    places: list[int],
    text_end: int | None,
    whole_numbers: bool,
) -> None:
    sound = sound_of(pieces)
    if whole_numbers:
        sound = as_int16(sound)
    once = SilenceCut(after_s=0.3, onset_s=0.5, text_end=text_end)
    often = SilenceCut(after_s=0.3, onset_s=0.5, text_end=text_end)
    expected = once.push(sound)
    out = through(often, cut(sound, places))
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(out, sound[: len(out)])
    assert often.cut == once.cut
    assert once.cut == (len(out) < len(sound)) or len(out) % BLOCK == 0


# --- together ---


def test_the_guards_in_a_row_say_where_what_goes_out_was() -> None:
    guard = SoundGuard()
    guard.text_ended(5)
    guard.text_ended(900)
    first = guard.push(silence(0.08))
    assert len(first) == 0
    out = guard.push(joined(silence(0.02), voice(0.06)))
    assert guard.dropped == round(0.08 * SAMPLE_RATE)
    assert guard.given == len(out)
    assert not guard.ended
    rest = guard.push(silence(5.0))
    assert [guard.ended] == [True]
    # Silence counts from frame 5, at 0.4 s.
    assert guard.given + guard.dropped == round(1.6 * SAMPLE_RATE)
    assert len(out) + len(rest) == guard.given


# --- repetition ---


def found_at(codes: Iterable[int], text: str = "Good morning.") -> tuple[int, int] | None:
    """The frame at which a repetition is found, and the one from which it repeats."""
    guard = RepetitionGuard()
    for frame, code in enumerate(codes):
        if (begin := guard.push(code, text)) is not None:
            return frame, begin
    return None


SPEECH = [(frame * 7919) % 2048 for frame in range(600)]


def test_codes_that_do_not_repeat_are_speech() -> None:
    assert found_at(SPEECH) is None


@pytest.mark.parametrize("period", range(4, 17))
def test_a_word_that_is_said_over_and_over_is_found_in_its_sixth_repeat(period: int) -> None:
    codes = [*SPEECH[:100], *(3000 + frame % period for frame in range(200))]
    found = found_at(codes)
    assert found is not None
    frame, begin = found
    assert begin == 100 + period
    assert frame < 100 + 6 * period


@pytest.mark.parametrize("period", [2, 3])
def test_a_stutter_of_few_codes_is_found(period: int) -> None:
    found = found_at([*SPEECH[:100], *(3000 + frame % period for frame in range(200))])
    assert found is not None
    assert 100 < found[1] <= found[0] < 100 + 40


def test_a_repetition_with_other_sounds_between_is_found() -> None:
    codes = [
        code for n in range(20) for code in (3000, 3001, 3002, 3003, *SPEECH[6 * n : 6 * n + 6])
    ]
    assert found_at(codes) is not None


def test_what_is_said_again_after_a_while_is_no_repetition() -> None:
    codes = [
        code for n in range(8) for code in (3000, 3001, 3002, 3003, *SPEECH[40 * n : 40 * n + 40])
    ]
    assert found_at(codes) is None


def test_a_pause_is_no_repetition_and_a_sound_without_end_is_one() -> None:
    assert found_at([*SPEECH[:50], *[7] * 60, *SPEECH[50:90], *[7] * 60]) is None
    found = found_at([*SPEECH[:50], *[7] * 100])
    assert found is not None
    assert found[0] == 50 + 74


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("Good morning.", 1),
        ("", 1),
        ("ha ha ha ha", 4),
        ("Hahahahaha!", 5),
        ("No, no, no. No!", 4),
        ("One one 1 1 1 1 1 1", 6),
        ("哈哈哈哈哈", 5),
    ],
)
def test_what_the_text_repeats_is_counted(text: str, times: int) -> None:
    assert repeats_in(text) == times


def test_a_text_that_repeats_itself_may_be_said() -> None:
    laugh = [3000 + frame % 5 for frame in range(5 * 9)]
    assert (
        found_at([*SPEECH[:20], *laugh, *SPEECH[20:90]], "Ha ha ha ha ha ha ha ha ha, good.")
        is None
    )
    assert found_at([*SPEECH[:20], *laugh, *SPEECH[20:90]], "Ha, good.") is not None
