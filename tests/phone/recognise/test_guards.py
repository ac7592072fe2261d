from __future__ import annotations

import math

import numpy as np
import pytest

from qwen3tts_phone.recognise.base import Transcript
from qwen3tts_phone.recognise.guards import Answer, believed, circling, most_tokens, silent
from tests.phone.recognise.sounds import RATE, quiet, tone


def test_a_line_without_speech_is_silent() -> None:
    noise = np.random.default_rng(1).normal(0.0, 8.0, RATE).astype(np.int16)  # -72 dBFS
    for samples in (quiet(1.0), quiet(0.0), noise, tone(1.0, peak=10)):
        assert silent(samples, RATE)


def test_one_soft_syllable_is_not_silent() -> None:
    samples = quiet(2.0)
    samples[RATE : RATE + RATE // 10] = tone(0.1, peak=60)  # -58 dBFS
    assert not silent(samples, RATE)


def test_a_sure_answer_is_believed() -> None:
    heard = believed(Answer(" Yes, please. ", "en", -0.2, 0.1), 1.0)
    assert heard == Transcript("Yes, please.", "en", math.exp(-0.2))


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (Answer("Thanks for watching!", "en", -1.2, 0.9), 1.0),
        (Answer("you", "en", -0.62, 0.78), 1.0),
        (Answer("you", "en", -0.37, 0.95), 1.0),
        (Answer("Thank you. " * 20, "en", -0.1, 0.0), 1.0),  # 220 letters in a second
        (Answer(" ... ", "en", -0.1, 0.0), 1.0),
        (Answer("♪♪", "en", -0.1, 0.0), 1.0),
        (Answer("", "", 0.0, 0.0), 1.0),
    ],
)
def test_what_nobody_said_is_thrown_away(answer: Answer, seconds: float) -> None:
    assert believed(answer, seconds) == Transcript("")


@pytest.mark.parametrize(
    "answer",
    [
        Answer("No.", "en", -0.3, 0.9),  # short, sure words in noise
        Answer("Grüezi mitenand.", "de", -1.5, 0.2),  # a dialect
        Answer("好的", "zh", -0.5, 0.1),
        Answer("4", "en", -0.5, 0.1),
    ],
)
def test_one_doubt_alone_is_no_reason(answer: Answer) -> None:
    assert believed(answer, 0.5).text


def test_figures_said_several_times_go_on() -> None:
    assert circling([1, 2, 3, 0, 0, 0, 0]) == 0
    assert circling([5, 6] * 7) == 0
    assert circling([1, 2, 3] * 3) == 0


@pytest.mark.parametrize(
    ("phrase", "times"), [([7], 8), ([5, 6], 8), ([1, 2, 3], 4), (list(range(32)), 4)]
)
def test_a_phrase_again_and_again_is_said_once(phrase: list[int], times: int) -> None:
    tokens = [100, 101, *phrase * times]
    again = circling(tokens)
    assert tokens[: len(tokens) - again] == [100, 101, *phrase]


def test_a_long_turn_may_have_more_tokens() -> None:
    assert most_tokens(0.0) >= 8
    assert most_tokens(30.0) > most_tokens(1.0) > most_tokens(0.0)


def test_what_was_heard_is_in_no_repr() -> None:
    assert "secret" not in repr(Answer("secret")) + repr(Transcript("secret"))
