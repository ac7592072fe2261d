from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_wire.whisper.guards import (
    BY_NAME,
    CODES,
    Decoding,
    UnknownLanguage,
    code_of,
    codes_of,
    is_plausible,
    repeated_tail,
    silent,
    token_limit,
    usual_tokens,
    without_repeated_words,
    without_repetition,
)
from tests.agent.recognition.sounds import RATE, quiet, tone
from tests.conftest import require_package


def test_a_line_without_speech_is_silent() -> None:
    noise = np.random.default_rng(1).normal(0.0, 8.0, RATE).astype(np.int16)  # -72 dBFS
    for samples in (quiet(1.0), quiet(0.0), noise, tone(1.0, peak=10)):
        assert silent(samples, RATE)


def test_one_soft_syllable_is_not_silent() -> None:
    samples = quiet(2.0)
    samples[RATE : RATE + RATE // 10] = tone(0.1, peak=60)  # -58 dBFS
    assert not silent(samples, RATE)


def test_a_sure_answer_is_believed() -> None:
    answer = Decoding(" Yes, please. ", "en", -0.2, 0.1)
    assert is_plausible(answer, 1.0)
    assert answer.confidence == math.exp(-0.2)


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (Decoding("Thanks for watching!", "en", -1.2, 0.9), 1.0),
        (Decoding("you", "en", -0.62, 0.78), 1.0),
        (Decoding("you", "en", -0.37, 0.95), 1.0),
        (Decoding("Thank you. " * 20, "en", -0.1, 0.0), 1.0),  # 220 letters in a second
        (Decoding(" ... ", "en", -0.1, 0.0), 1.0),
        (Decoding("♪♪", "en", -0.1, 0.0), 1.0),
        (Decoding("", "", 0.0, 0.0), 1.0),
    ],
)
def test_what_nobody_said_is_thrown_away(answer: Decoding, seconds: float) -> None:
    assert not is_plausible(answer, seconds)


@pytest.mark.parametrize(
    "answer",
    [
        Decoding("No.", "en", -0.3, 0.9),  # short, sure words in noise
        Decoding("Grüezi mitenand.", "de", -1.5, 0.2),  # a dialect
        Decoding("好的", "zh", -0.5, 0.1),
        Decoding("4", "en", -0.5, 0.1),
    ],
)
def test_one_doubt_alone_is_no_reason(answer: Decoding) -> None:
    assert is_plausible(answer, 0.5)


def test_figures_said_several_times_go_on() -> None:
    assert repeated_tail([1, 2, 3, 0, 0, 0, 0]) == 0
    assert repeated_tail([5, 6] * 7) == 0
    assert repeated_tail([1, 2, 3] * 3) == 0


@pytest.mark.parametrize(
    ("phrase", "times"), [([7], 8), ([5, 6], 8), ([1, 2, 3], 4), (list(range(32)), 4)]
)
def test_a_phrase_again_and_again_is_said_once(phrase: list[int], times: int) -> None:
    tokens = [100, 101, *phrase * times]
    again = repeated_tail(tokens)
    assert tokens[: len(tokens) - again] == [100, 101, *phrase]
    assert without_repetition([*tokens, 300, 301]) == [100, 101, *phrase]


@pytest.mark.parametrize(
    ("phrase", "seconds"),
    [
        ("После сигнала произнесите свое имя и нажмите решетку.", 4.0),
        ("Please hold the line, I am on my way.", 2.5),
        ("请您稍后再打电话过来。", 2.0),
        ("Bitte grüßen Sie Frau Groß von mir.", 2.0),
    ],
)
def test_a_sentence_twice_in_the_time_of_one_was_said_once(phrase: str, seconds: float) -> None:
    assert without_repeated_words(f"{phrase} {phrase.lower()}", seconds) == phrase
    assert without_repeated_words(f"{phrase} {phrase}", 2.2 * seconds) == f"{phrase} {phrase}"
    assert without_repeated_words(f"{phrase} And {phrase}", seconds) == f"{phrase} And {phrase}"


@pytest.mark.parametrize(
    "more", ["", " Good morning. How", " Good morning. How can I help you today?"]
)
def test_a_sentence_up_to_the_last_token_was_said_once(more: str) -> None:
    """As whisper-tiny.en wrote it of 2.1 s."""
    phrase = "Good morning. How can I help you today?"
    text = f"{phrase} {phrase} {phrase}{more}"
    assert without_repeated_words(text, 2.1) == phrase
    assert is_plausible(Decoding(without_repeated_words(text, 2.1), logprob=-0.1), 2.1)
    assert without_repeated_words(text, 10.0) == text


@pytest.mark.parametrize("text", ["", "...", "No, no.", "7 7", "Yes. Yes.", "Hello, hello."])
def test_a_short_word_twice_stays(text: str) -> None:
    assert without_repeated_words(text, 0.3) == text


@given(text=st.text(max_size=60), twice=st.booleans(), seconds=st.floats(0, 3))
def test_any_text_stays_or_loses_what_only_repeats(text: str, twice: bool, seconds: float) -> None:
    said = text + text if twice else text
    kept = without_repeated_words(said, seconds)
    assert said.startswith(kept)
    letters, left = (
        "".join(char.lower() for char in each if char.isalnum()) for each in (said, kept)
    )
    assert kept == said or (left * (len(letters) // max(1, len(left)) + 1)).startswith(letters)


def test_a_long_turn_may_have_more_tokens() -> None:
    assert token_limit(0.0) >= 8
    assert token_limit(30.0) > token_limit(1.0) > token_limit(0.0)
    assert all(8 <= usual_tokens(s) < token_limit(s) for s in (0.0, 0.1, 3.0, 12.0, 30.0))


def test_what_was_heard_is_in_no_repr() -> None:
    assert "secret" not in repr(Decoding("secret"))


@pytest.mark.parametrize(
    ("language", "code"), [("German", "de"), ("de-AT", "de"), ("FR", "fr"), ("Valencian", "ca")]
)
def test_a_language_by_name_code_or_tag(language: str, code: str) -> None:
    assert code_of(language) == code


@pytest.mark.parametrize("language", ["klingon", "", "xx", "e n"])
def test_a_language_that_whisper_does_not_know(language: str) -> None:
    with pytest.raises(UnknownLanguage):
        code_of(language)


def test_each_once() -> None:
    assert codes_of(("en", "English", "de")) == ("en", "de")


def test_they_are_those_of_the_library() -> None:
    library = require_package("faster_whisper.tokenizer", "pip install faster-whisper")
    assert set(library._LANGUAGE_CODES) == CODES
    assert all(name == name.lower() for name in BY_NAME)
