# Look-alike characters are meant.
# ruff: noqa: RUF001

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_text.word_units import SpokenWords, units_of, usual_unit_s


def words(text: str, language: str | None = None) -> list[str]:
    return [text[word.start : word.end] for word in SpokenWords(text, ended=True).words]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Good morning, this is it.", ["Good", "morning", "this", "is", "it"]),
        ("Don't worry: it's a well-known 3.5 km!", ["Don't", "worry", "it's", "a", "well-known"]),
        ("你好，今天。", ["你", "好", "今", "天"]),
        ("「今日は」", ["今", "日", "は"]),
        ("안녕하세요, 오늘", ["안녕하세요", "오늘"]),
        (" … ?! ", []),
        ("", []),
    ],
)
def test_a_text_has_its_words(text: str, expected: list[str]) -> None:
    assert words(text)[: len(expected)] == expected
    assert bool(words(text)) == bool(expected)


def test_what_parts_two_words_says_how_much_of_a_stop_it_is() -> None:
    found = SpokenWords("one two, three. four – five; (six) seven", ended=True).words
    assert [word.stop for word in found] == [0, 1, 2, 1, 2, 1, 0]


def test_longer_words_have_more_units() -> None:
    lengths = [units_of(word, "en") for word in ("I", "line", "morning", "international")]
    assert lengths == sorted(lengths)
    assert len(set(lengths)) == 4


@pytest.mark.parametrize(
    ("word", "language", "units"),
    [
        ("好", "zh", 1.0),
        ("안녕", "ko", 2.0),
        ("きょう", "ja", 2.0),
        ("12", "en", 4.0),
        ("GPS", "en", 3.6),
        ("tall", "en", 0.35 + 0.43 + 0.35),
        ("école", "fr", 0.43 + 0.35 + 0.43 + 0.35 + 0.43),
        ("like", "en", 0.35 + 0.43 + 0.35),
        ("called", "en", 0.35 + 0.43 + 0.35 + 0.35),
        ("night", "en", 0.35 + 0.43 + 0.35),
        ("schön", "de", 0.35 + 0.43 + 0.35),
        ("тень", "ru", 0.35 + 0.43 + 0.35),
        ("αέρα", "el", 0.43 + 0.24 + 0.35 + 0.43),
        ("مرحبا", "ar", 5 * 0.5),
    ],
)
def test_a_word_is_counted_by_its_sounds(word: str, language: str, units: float) -> None:
    assert units_of(word, language) == pytest.approx(units)


def test_signs_that_are_read_make_their_word_longer() -> None:
    plain, sign, first = (
        SpokenWords(text, ended=True).words[0].units for text in ("5 of", "5 % of", "$ 5 of")
    )
    assert sign == first == plain + 2


def test_languages_have_their_usual_rates() -> None:
    assert usual_unit_s("zh-CN") > usual_unit_s("en-US") == usual_unit_s(None) > usual_unit_s("es")


@given(
    st.text(alphabet="ab é,.-'5 好 ok\u0301%", max_size=40),
    st.lists(st.integers(0, 40), max_size=6),
)
@settings(derandomize=True, deadline=None)
def test_a_growing_text_has_the_words_of_the_whole(text: str, places: list[int]) -> None:
    whole = SpokenWords(text, ended=True).words
    growing = SpokenWords()
    borders = sorted({min(place, len(text)) for place in places} | {0, len(text)})
    seen = 0
    for begin, end in itertools.pairwise(borders):
        growing.append(text[begin:end])
        assert len(growing.words) >= seen, "what was certain stays"
        seen = len(growing.words)
    growing.end()
    growing.end()
    growing.append("more")
    assert [(word.start, word.end) for word in growing.words] == [
        (word.start, word.end) for word in whole
    ]
