from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_wire.heard import Word, heard

TEXT = "Well, **hello** there. 42!"
WORDS = [
    Word("Well", 0, 100, 0, 4),
    Word("hello", 200, 300, 8, 13),
    Word("there", 300, 400, 16, 21),
    Word("42", 500, 600, 23, 25),
]


@pytest.mark.parametrize(
    ("position", "text_heard", "words"),
    [
        (0, "", 0),
        (49, "", 0),
        (50, "Well,", 1),
        (249, "Well,", 1),
        (250, "Well, **hello**", 2),
        (350, "Well, **hello** there.", 3),
        (499, "Well, **hello** there.", 3),
        (10_000, TEXT, 4),
    ],
)
def test_text_is_cut_after_the_last_word_of_which_half_was_played(
    position: int, text_heard: str, words: int
) -> None:
    cut = heard(TEXT, WORDS, position)
    assert (cut.text_heard, cut.words_heard) == (text_heard, words)
    assert cut.text_heard + cut.text_remaining == TEXT


def test_signs_that_close_a_word_belong_to_it_in_any_script() -> None:
    comma = "\uff0c"
    text = f"你好{comma}世界。"
    words = [Word("你好", 0, 10, 0, 2), Word("世界", 10, 20, 3, 5)]
    assert heard(text, words, 8).text_heard == f"你好{comma}"


def test_signs_that_open_the_next_word_do_not() -> None:
    words = [Word("say", 0, 10, 0, 3), Word("hi", 10, 20, 5, 7)]
    assert heard('say "hi"', words, 8).text_heard == "say"


def test_who_reached_the_end_of_a_context_that_is_done_heard_all_of_it() -> None:
    words = [Word("Hi", 0, 10, 0, 2)]
    assert heard("Hi \U0001f600 ", words, 20).text_heard == "Hi"
    assert heard("Hi \U0001f600 ", words, 20, total=20).text_heard == "Hi \U0001f600 "


def test_a_word_of_no_length_is_heard_once_its_place_is_passed() -> None:
    words = [Word("a", 0, 0, 0, 1), Word("b", 5, 5, 2, 3)]
    assert heard("a b", words, 0).words_heard == 0
    assert heard("a b", words, 5).words_heard == 1
    assert heard("a b", words, 6).words_heard == 2


def test_without_words_nothing_was_heard() -> None:
    assert heard("Hello.", [], 1000).text_remaining == "Hello."


@settings(deadline=None)
@given(
    st.text(max_size=60),
    st.lists(st.tuples(*[st.integers(0, 100)] * 4), max_size=8),
    st.integers(0, 200),
)
def test_the_two_parts_are_always_the_whole_text_and_grow_with_the_position(
    text: str, rows: list[tuple[int, int, int, int]], position: int
) -> None:
    words = [Word("w", a, a + b, c, c + d) for a, b, c, d in rows]
    cut = heard(text, words, position)
    assert cut.text_heard + cut.text_remaining == text
    assert len(heard(text, words, position + 1).text_heard) >= len(cut.text_heard)
