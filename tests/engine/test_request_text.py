from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_engine.request_text import PIECE_COST, check_text, cost, pieces, plain
from qwen3tts_text.characters import joins_previous
from qwen3tts_text.word_units import WordSpans
from qwen3tts_wire.errors import BadText, LimitExceeded

ANY_TEXT = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("aé1 .,!?\n日ชिก्👍🏽\u200d\u200c🇩🇪'"),
    ),
    max_size=900,
)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("ab\x00c", r"U\+0000.*position 2"),
        ("\x01140P", r"U\+0001.*position 0"),
        ("\x1b[0m", r"U\+001B.*position 0"),
        ("x\ud83d", r"Half a surrogate pair \(U\+D83D\) at position 1"),
        ("\udc00y", r"Half a surrogate pair \(U\+DC00\) at position 0"),
    ],
)
def test_what_is_not_text_is_refused_by_its_place(text: str, what: str) -> None:
    with pytest.raises(BadText, match=what) as caught:
        check_text(text, 100)
    assert caught.value.remedy


def test_a_text_beyond_the_limit_is_refused() -> None:
    check_text("x" * 100, 100)
    with pytest.raises(LimitExceeded, match=r"101 characters.*may have 100"):
        check_text("x" * 101, 100)


@given(ANY_TEXT)
def test_plain_text_keeps_every_position(text: str) -> None:
    made = plain(text)
    assert len(made) == len(text)
    assert all(one in (other, " ") for one, other in zip(made, text, strict=True))
    assert not any(char in made for char in "\x00\x01\x1b")


@given(ANY_TEXT, st.booleans())
def test_pieces_are_the_whole_text_and_each_is_bounded(text: str, final: bool) -> None:
    made = list(pieces(text, final=final))
    assert "".join(piece.text for piece in made) == text
    at = 0
    for piece in made:
        assert piece.start == at
        assert piece.text
        assert sum(map(cost, piece.text)) <= PIECE_COST
        at += len(piece.text)


def test_a_text_of_usual_length_stays_whole() -> None:
    text = "Dr. Smith sees you at 9.30 a.m.; please bring your papers. Is that all right?"
    assert [piece.text for piece in pieces(text, final=False)] == [text]


def test_a_long_text_is_cut_after_a_sentence_then_a_clause_then_a_word() -> None:
    sentence = "This is a sentence of nine words, it says. "
    assert next(pieces(sentence * 9, final=False)).text.endswith("says.")
    clause = "and then they went on, "
    assert next(pieces(clause * 20, final=False)).text.endswith("went on,")
    assert next(pieces("words " * 80, final=False)).text.endswith("words ")
    assert len(next(pieces("x" * 400, final=False)).text) == PIECE_COST


def test_a_cut_leaves_no_mark_without_its_letter() -> None:
    for text in ("क्षि" * 150, "e\u0301" * 300, "ก้" * 200, "xe\u0301" + "e\u0301" * 300):
        for piece in pieces(text, final=False):
            assert not joins_previous(piece.text[0])


@pytest.mark.parametrize(
    ("text", "final", "pause"),
    [
        ("It works.", False, True),
        ("It works.", True, False),
        ('"It works," ', False, True),
        ("It wo", False, False),
        ("很好。", False, True),
    ],
)
def test_a_pause_follows_only_where_punctuation_asks_for_it(
    text: str, final: bool, pause: bool
) -> None:
    assert [piece.pause for piece in pieces(text, final=final)] == [pause]


def test_only_the_last_pause_is_left_out_at_the_end() -> None:
    made = [piece.pause for piece in pieces("This is a sentence of words. " * 20, final=True)]
    assert made[:-1] == [True] * (len(made) - 1)
    assert made[-1] is False


def words(text: str) -> list[str]:
    return [text[span.start : span.end] for span in WordSpans(text).spans if span.is_word]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It's 3.14, or 1,000,000!", ["It's", "3.14", "or", "1,000,000"]),
        ("don\u2019t 'quote'", ["don\u2019t", "quote"]),
        ("well-known e.g.", ["well", "known", "e", "g"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("日本語 ok", ["日", "本", "語", "ok"]),
        ("cafe\u0301", ["cafe\u0301"]),
        ("مَرحَبًا بك", ["مَرحَبًا", "بك"]),
    ],
)
def test_words_and_numbers_stay_whole(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize("emoji", ["👍🏽", "👩\u200d💻", "🇩🇪", "❤️"])
def test_an_emoji_is_one_symbol(emoji: str) -> None:
    spans = WordSpans(f"a {emoji} b").spans
    assert [(span.start, span.end, span.is_word) for span in spans] == [
        (0, 1, True),
        (2, 2 + len(emoji), False),
        (3 + len(emoji), 4 + len(emoji), True),
    ]


@given(ANY_TEXT)
def test_spans_hold_all_but_white_space_and_do_not_overlap(text: str) -> None:
    spans = WordSpans(text)
    assert all(one.end <= two.start for one, two in itertools.pairwise(spans.spans))
    for position, char in enumerate(text):
        number = spans.at(position)
        if number is None:
            assert char.isspace()
        else:
            assert spans.spans[number].start <= position < spans.spans[number].end


def test_words_without_an_event_of_their_own_belong_to_the_one_before() -> None:
    spans = WordSpans("well-known, e.g. this")
    assert spans.words(0, 4) == [(0, 10)]
    assert spans.words(4, len(spans)) == [(12, 15), (17, 21)]
