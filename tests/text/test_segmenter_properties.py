"""What holds for every text, however it comes."""

# Look-alike characters are meant.
# ruff: noqa: RUF001

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qwen3tts_text.segmenter import Live, Segment, Segmenter, SegmenterSettings
from qwen3tts_text.speakable import LINK_MAX

PIECES = (
    *"abcIQ é.,;:!?…-—–*_`~#>|<&\\[](){}+=\"'«»„“”/@0123456789 \t\r\n\0\x07",
    *"。！？，、「」你好はアで한국।॥نम؟،؛กไำ",
    "\r\n",
    "\n\n",
    "**",
    "```\n",
    "\n- ",
    "\n1. ",
    "\n| a | b |\n|---|",
    "[a](b c)",
    "[a](http://x.y/z)",
    "[^1]",
    "![",
    "](",
    "<b>",
    "<br/>",
    "<!--",
    "<https://a.b>",
    "&amp;",
    "&#",
    "Dr. ",
    "e.g. ",
    "U.S. ",
    "z. B. ",
    "9 a.m. ",
    "3.14",
    "No. 5",
    "the ",
    "The ",
    "and ",
    " :-",
    " :)",
    "\U0001f44d\U0001f3fd",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "1\ufe0f\u20e3",
    "e\u0301",
    "क्\u200dष",
    "\U0001d5db",
    "\U00020000",
    "\ud83d",
    "\ude00",
    "\u200b",
    "\u00ad",
    "\ufeff",
    "\uffff",
    "word" * 20,
    "你" * 70,
)
texts = st.lists(st.sampled_from(PIECES) | st.characters(codec=None), max_size=60).map("".join)
bounds = st.sampled_from(
    [
        SegmenterSettings(),
        SegmenterSettings(speak_code=True),
        SegmenterSettings((1,), (1,), (16,), 16),
        SegmenterSettings((5,), (8,), (20,), 30),
    ]
)


def run(text: str, cuts: list[int], flushes: set[int], chosen: SegmenterSettings) -> list[Segment]:
    """Push ``text`` in the pieces between ``cuts`` and flush at ``flushes``."""
    segmenter = Segmenter(chosen)
    found: list[Segment] = []
    begin = 0
    for end in sorted({*cuts, *flushes, len(text)}):
        found += segmenter.push(text[begin:end])
        begin = end
        if end in flushes:
            found += segmenter.flush()
    return found + segmenter.end()


@given(texts, st.data(), bounds)
@settings(max_examples=400, deadline=None)
def test_the_same_text_with_the_same_flushes_gives_the_same_segments(
    text: str, data: st.DataObject, chosen: SegmenterSettings
) -> None:
    place = st.integers(0, len(text))
    flushes = data.draw(st.sets(place, max_size=3))
    whole = run(text, [], flushes, chosen)
    assert run(text, list(range(len(text))), flushes, chosen) == whole
    assert run(text, data.draw(st.lists(place, max_size=8)), flushes, chosen) == whole


@given(texts, st.data(), bounds)
@example("\ud83d", None, SegmenterSettings())
@settings(max_examples=400, deadline=None)
def test_spans_tile_the_text_and_offsets_lie_within_them(
    text: str, data: st.DataObject | None, chosen: SegmenterSettings
) -> None:
    flushes = data.draw(st.sets(st.integers(0, len(text)))) if data else set()
    segments = run(text, [], flushes, chosen)
    assert "".join(text[segment.start : segment.end] for segment in segments) == text
    assert [segment.final for segment in segments] == [False] * (len(segments) - 1) + [True]
    position = 0
    for segment in segments:
        assert segment.start == position
        position = segment.end
        assert len(segment.offsets) == len(segment.text) + 1
        assert list(segment.offsets) == sorted(segment.offsets)
        assert segment.start <= segment.offsets[0]
        assert segment.offsets[-1] <= segment.end
    assert position == len(text)


@given(texts, bounds)
@settings(max_examples=300, deadline=None)
def test_what_is_spoken_is_clean_and_stands_in_the_text_where_its_offsets_say(
    text: str, chosen: SegmenterSettings
) -> None:
    for segment in run(text, [], set(), chosen):
        assert segment.text == segment.text.strip()
        assert "  " not in segment.text
        kinds = {unicodedata.category(char) for char in segment.text}
        assert not kinds & {"Cc", "Cs", "Co"}
        assert not segment.text or any(char.isalnum() for char in segment.text)
        for char, offset in zip(segment.text, segment.offsets, strict=False):
            if char.isascii() and char.isalpha() and "&" not in text:
                there = text[offset]
                assert there == char or not there.isascii()


@given(texts, bounds)
@settings(max_examples=200, deadline=None)
def test_no_letter_of_a_plain_text_is_lost(text: str, chosen: SegmenterSettings) -> None:
    plain = "".join(char if char.isascii() and char.isalnum() else " " for char in text)
    spoken = "".join(segment.text for segment in run(plain, [], set(), chosen))
    assert spoken.replace(" ", "") == plain.replace(" ", "")


WHOLE = (
    "https://example.com/a.b/c?d=1.5&e=f,g",
    "www.example.org/x_y",
    "jane.doe-smith@mail.example.co.uk",
    "+49 (0) 30 1234-567",
    "555-0100",
    "192.168.1.1",
    "3.14",
    "1,000.50",
    "1.000,50",
    "10:30",
    "12.05.2024",
    "2.0.1",
    "Dr. Smith",
    "J. R. Miller",
    "9 a.m.",
    "No. 5",
    "e.g. this",
    "e\u0301te\u0301",
)
FILLERS = ("and", "so", "the", "house", "remember", "Tuesday,", "well.", "Why?", "it")


@given(st.lists(st.tuples(st.sampled_from(FILLERS), st.sampled_from(WHOLE)), max_size=40))
@settings(max_examples=300, deadline=None)
def test_numbers_addresses_and_names_stay_whole(words: list[tuple[str, str]]) -> None:
    text = " ".join(f"{filler} {whole}" for filler, whole in words)
    pieces = [segment.text for segment in run(text, [], set(), SegmenterSettings())]
    for whole in {whole for _, whole in words}:
        assert sum(piece.count(whole) for piece in pieces) == text.count(whole)


@contextmanager
def counting_lines(counts: list[int]) -> Iterator[None]:
    """Count the lines that the segmenter runs."""

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if "qwen3tts_engine" not in frame.f_code.co_filename:
            return None
        if event == "line":
            counts[0] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def work(text: str, live: Live = "none") -> tuple[int, int]:
    """Lines run, and the most characters held, while ``text`` comes one by one."""
    counts, held = [0], 0
    segmenter = Segmenter(live=live)
    with counting_lines(counts):
        for char in text:
            segmenter.push(char)
            segmenter.take_live()
            held = max(held, len(segmenter._text) + segmenter._speakable.held)
        segmenter.end()
    return counts[0], held


UNITS = (
    *"a.,!* _`~#>|<&\\[](-—\"'1\n\0你。กि\u0301\u200d\ud83d\ude00",
    "\U0001f44d",
    "a ",
    "1 ",
    ". ",
    "a.",
    "a. ",
    "1. ",
    "U.S. ",
    "?!",
    "])",
    '."',
    "](",
    "[a](",
    "[^",
    "a[1",
    "<a",
    "<a b=",
    "<!--",
    "&a",
    "`\n",
    "```\n",
    "|-",
    "\n|",
    "\n- ",
    "\r\n",
    "- ",
    "— ",
    "a\u200d",
    "e\u0301",
    "ก ",
    "word ",
    "9 a.m. ",
)


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_work_grows_with_the_text_and_memory_does_not(unit: str) -> None:
    short, _ = work(unit * (1500 // len(unit)))
    long, held = work(unit * (4500 // len(unit)))
    assert long <= 3.3 * short + 4500 * 60
    assert long <= 4500 * 160
    assert held <= LINK_MAX + SegmenterSettings().hard_max


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_so_it_does_where_every_piece_is_live(unit: str) -> None:
    short, _ = work(unit * (1500 // len(unit)), "all")
    long, held = work(unit * (4500 // len(unit)), "all")
    assert long <= 3.3 * short + 4500 * 60
    assert long <= 4500 * 450
    assert held <= LINK_MAX + SegmenterSettings().hard_max + 64
