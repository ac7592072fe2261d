"""Words of the agent compared with what is expected."""

from __future__ import annotations

import pytest

from qwen3tts_rehearsal.words import canonical, contains, digits_of, plain, repeated


@pytest.mark.parametrize(
    ("text", "language", "words"),
    [
        ("At seven o'clock!", "en", "at 7 o'clock"),
        ("twenty-two", "en", "2 2"),
        ("22", "en", "2 2"),
        ("twenty people, thirty", "en", "2 0 people 3 0"),
        ("Fifteen.", "en", "1 5"),
        ("555-1212", "en", "5 5 5 1 2 1 2"),
        ("5, oh, 5. Oh dear", "en", "5 0 5 oh dear"),
        ("drei fünf", "de", "3 5"),
        ("your bill is due", "en", "your bill is due"),
        ("due", "it", "2"),
        ("room 12b", "en", "room 1 2 b"),
        ("три семь", "ru", "3 7"),
        ("七", "ja", "七"),
    ],
)
def test_numbers_are_single_digits_however_they_are_written(
    text: str, language: str, words: str
) -> None:
    assert " ".join(canonical(text, language)) == words


def test_words_stand_next_to_each_other_in_order() -> None:
    assert contains("We open at seven, every day.", "at 7 every")
    assert not contains("We open at seven, every day.", "open seven")
    assert contains("anything", "")


def test_digits_are_joined_however_they_are_grouped() -> None:
    assert digits_of("It is 74 1, nine nine... three!") == "741993"
    assert digits_of("no number") == ""


def test_plain_text_has_no_punctuation_and_one_kind_of_apostrophe() -> None:
    assert plain("It\u2019s  HERE — really?!") == "it's here really"


def test_long_sentences_said_again_are_found_each_time() -> None:
    said = ["I did not get that.", "Sorry? I did not get that!", "I did not get that"]
    assert len(repeated(said)) == 2
    assert repeated(["Yes, please.", "Yes, please."]) == []
    bread = "We have rye bread, spelt bread, and bread with walnuts."
    assert len(repeated([bread, bread.replace("spelt", "smoked")])) == 1
    assert repeated([bread, "We have a table for two, and a room for four."]) == []
