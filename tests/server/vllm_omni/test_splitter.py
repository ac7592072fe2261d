"""The units that vLLM-Omni's clients count."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_server.dialects.vllm_omni.text import Granularity, Splitter

PIECES = (
    *("Dr", "e.g", "J", "3", "14", "\u096b", "no", "U.S", "hello", "\u4f60\u597d", "etc"),
    *(".", ",", "!", "?", ";", "\u3002", "\uff0c", "\u2026", "\u0964", "\u061f", "\u061b"),
    *('"', ")", "\u300d", " ", "  ", "\n"),
)
texts = st.lists(st.sampled_from(PIECES), max_size=16).map("".join)
granularities = st.sampled_from(["none", "sentence", "clause"])


def units(granularity: Granularity, *pieces: str, end: bool = True) -> list[str]:
    splitter = Splitter(granularity)
    found = []
    for piece in pieces:
        splitter.feed(piece)
        while (unit := splitter.take()) is not None:
            found.append(unit)
    if end:
        splitter.end()
        while (unit := splitter.take()) is not None:
            found.append(unit)
        assert len(splitter) == 0
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello world. More", ["Hello world."]),
        ("Hello world.", []),
        ("It costs 3.14 dollars. ", ["It costs 3.14 dollars."]),
        ("Wait... Really?! Yes", ["Wait...", "Really?!"]),
        ('He said "Hello." Bye', ['He said "Hello."']),
        ("Dr. Smith, e.g. J. R. Tolkien. Next", ["Dr. Smith, e.g. J. R. Tolkien."]),
        ("At 5 p.m. we met. So", ["At 5 p.m. we met."]),
        ("\u4f60\u597d\u3002\u4e16\u754c\u3002", ["\u4f60\u597d\u3002"]),
        ("\u4f60\u597d\uff01\u300d\u4e16", ["\u4f60\u597d\uff01\u300d"]),
        (
            "\u0928\u092e\u0938\u094d\u0924\u0947\u0964 \u0915\u0948\u0938\u0947",
            ["\u0928\u092e\u0938\u094d\u0924\u0947\u0964"],
        ),
        ("\u0645\u0631\u062d\u0628\u0627\u061f \u0646", ["\u0645\u0631\u062d\u0628\u0627\u061f"]),
        ("a.b!c? d", ["a.b!c?"]),
        ("no mark at all and no end", []),
    ],
)
def test_sentences_end_where_no_later_character_can_change_it(
    text: str, expected: list[str]
) -> None:
    assert units("sentence", text, end=False) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, world; it is 1,000 rupees, sir. ", 4),
        ("\u4f60\u597d\uff0c\u4e16\u754c\uff1b\u597d\u3002", 3),
        ("\u0646\u0639\u0645\u060c \u0644\u0627\u061b \u0644", 3),
    ],
)
def test_clauses_end_at_commas_and_semicolons_as_well(text: str, expected: int) -> None:
    assert len(units("clause", text)) == expected
    assert len(units("sentence", text)) == 1


def test_without_splitting_all_text_is_one_unit_at_its_end() -> None:
    assert units("none", " One. Two. ", " Three ", end=False) == []
    assert units("none", " One. Two. ", " Three ") == ["One. Two.  Three"]


def test_what_was_held_comes_at_the_end_and_white_space_alone_never() -> None:
    assert units("sentence", "Hello wor", "ld. How are you?") == ["Hello world.", "How are you?"]
    for granularity in ("none", "sentence", "clause"):
        assert units(granularity, " \n ") == []
        assert units(granularity) == []


def test_text_without_marks_is_one_unit_however_long() -> None:
    thai = "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35" * 2000
    assert units("clause", thai) == [thai]


def test_letter_by_letter_costs_no_more_than_the_text() -> None:
    # A run of marks that grows is not read again from its start.
    many = "." * 40_000
    assert units("sentence", *many) == [many]
    assert len(units("sentence", "a. " * 10_000)) == 1  # initials
    assert len(units("sentence", "ab. " * 10_000)) == 10_000


@given(text=texts, granularity=granularities, cuts=st.lists(st.integers(0, 40), max_size=8))
def test_the_units_do_not_depend_on_how_the_text_was_cut(
    text: str, granularity: Granularity, cuts: list[int]
) -> None:
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    whole = units(granularity, text)
    assert units(granularity, *pieces) == whole
    assert units(granularity, *text) == whole


@given(text=texts, granularity=granularities)
def test_nothing_but_white_space_is_lost(text: str, granularity: Granularity) -> None:
    found = units(granularity, text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(unit == unit.strip() != "" for unit in found)


@given(text=texts, more=texts, granularity=granularities)
def test_a_unit_given_out_stays_whatever_follows(
    text: str, more: str, granularity: Granularity
) -> None:
    early = units(granularity, text, end=False)
    assert units(granularity, text + more)[: len(early)] == early
