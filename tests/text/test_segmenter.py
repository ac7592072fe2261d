"""Sentences, clauses and lengths; what every text must keep is in the properties' tests."""

# Look-alike characters are meant.
# ruff: noqa: RUF001

from __future__ import annotations

from pathlib import Path

import pytest

from qwen3tts_text.segmenter import Segment, Segmenter, SegmenterSettings

SENTENCES = SegmenterSettings((1,), (10**6,), (10**6,), 10**6)


def segment(
    text: str, chosen: SegmenterSettings | None = None, language: str | None = None
) -> list[Segment]:
    segmenter = Segmenter(chosen, language=language)
    return segmenter.push(text) + segmenter.end()


def spoken(text: str, chosen: SegmenterSettings | None = None) -> list[str]:
    return [piece.text for piece in segment(text, chosen)]


def hard_cases() -> list[tuple[str, str]]:
    cases, language = [], ""
    table = Path(__file__).with_name("hard_cases.txt").read_text(encoding="utf-8")
    for line in table.splitlines():
        if line.startswith("["):
            language = line.strip("[]")
        elif line and not line.startswith("#"):
            cases.append((language, line.strip()))
    return cases


@pytest.mark.parametrize(("language", "line"), hard_cases())
def test_sentences_end_where_a_reader_ends_them(language: str, line: str) -> None:
    text = line.replace(" | ", " ").replace("|", "")
    wanted = [part.strip() for part in line.split("|")]
    for hint in (language, None):
        found = segment(text, SENTENCES, hint)
        assert [text[piece.start : piece.end].strip() for piece in found] == wanted


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (
            "Good morning, this is the clinic. How can I help you today?",
            ["Good morning,", "this is the clinic.", "How can I help you today?"],
        ),
        ("Yes. I can do that for you now.", ["Yes.", "I can do that for you now."]),
        ("Hello! How are you?", ["Hello!", "How are you?"]),
        ("Well, I think so.", ["Well, I think so."]),
        ("Hello", ["Hello"]),
        ("Sure! Ok. Fine. Let me look that up.", ["Sure!", "Ok. Fine. Let me look that up."]),
        ("We open on July 4, 2025, at noon.", ["We open on July 4, 2025,", "at noon."]),
        ("您好，这里是诊所。请问有什么可以帮您？", ["您好，这里是诊所。", "请问有什么可以帮您？"]),
        ("早上好，这里是诊所。", ["早上好，", "这里是诊所。"]),
        ("مرحبا بكم جميعا، كيف حالكم؟", ["مرحبا بكم جميعا،", "كيف حالكم؟"]),
        ("สวัสดี ยินดีต้อนรับ", ["สวัสดี ยินดีต้อนรับ"]),
        ("สวัสดีครับผม ยินดีต้อนรับ", ["สวัสดีครับผม", "ยินดีต้อนรับ"]),
        ("The cheap one — this one — is out.", ["The cheap one —", "this one — is out."]),
        ("It takes 5 – 10 minutes - or less.", ["It takes 5 – 10 minutes -", "or less."]),
        ("« Oui, Paul ? » dit-il.", ["« Oui, Paul ? »", "dit-il."]),
        ("首先：1、打开应用；2、点击设置。", ["首先：1、打开应用；", "2、点击设置。"]),
        ("Steps: 1. Milk, 2. Bread.", ["Steps: 1. Milk,", "2. Bread."]),
        ("Hello there. (", ["Hello there.", ""]),
        (f"The U.S. A{'a' * 40} is long.", [f"The U.S. A{'a' * 40} is long."]),
        ("I was thinking… maybe not.", ["I was thinking…", "maybe not."]),
        ("I was thinking...maybe not.", ["I was thinking...", "maybe not."]),
        ("我们今天下午三点见,好吗?好的!", ["我们今天下午三点见,", "好吗?好的!"]),
    ],
)
def test_the_first_piece_is_short_and_later_ones_are_longer(text: str, pieces: list[str]) -> None:
    assert spoken(text) == pieces


def test_a_first_piece_without_marks_ends_where_a_voice_may_breathe() -> None:
    text = "I would be happy to help you schedule an appointment with Dr. Smith on Tuesday"
    assert spoken(text) == [
        "I would be happy to help you schedule an appointment",
        "with Dr. Smith on Tuesday",
    ]


def test_nothing_waits_longer_than_it_must() -> None:
    segmenter = Segmenter()
    assert segmenter.push("Good morning,") == []
    assert [piece.text for piece in segmenter.push(" t")] == ["Good morning,"]
    assert segmenter.push("his is the U.S.") == []
    assert segmenter.push(" desk") == []
    assert [piece.text for piece in segmenter.push(" today. H")] == ["this is the U.S. desk today."]


def test_a_dot_waits_for_what_follows() -> None:
    segmenter = Segmenter()
    assert segmenter.push("It costs 3.") == []
    assert segmenter.push("14. ") == []
    assert [piece.text for piece in segmenter.push("T")] == ["It costs 3.14."]


def test_a_flush_commits_what_is_pending_and_the_next_piece_is_a_first_one() -> None:
    segmenter = Segmenter()
    segmenter.push("Good morning, this is the clinic, where we ")
    assert [piece.text for piece in segmenter.flush()] == ["this is the clinic, where we"]
    assert segmenter.flush() == []
    pieces = segmenter.push("care. Good evening, and ") + segmenter.end()
    assert [piece.text for piece in pieces] == ["care.", "Good evening, and"]


def test_a_flush_covers_what_says_nothing() -> None:
    segmenter = Segmenter()
    segmenter.push(" \U0001f44d\n")
    assert segmenter.flush() == [Segment("", (0,), 0, 3)]
    assert segmenter.end() == [Segment("", (3,), 3, 3, final=True)]


@pytest.mark.parametrize(
    "text",
    ["", " ", "\n\n", "...", "?!", "**", "\U0001f44d\U0001f3fd\U0001f469\u200d\U0001f467", "\0"],
)
def test_a_text_that_says_nothing_is_covered_by_one_silent_segment(text: str) -> None:
    assert segment(text) == [Segment("", (0,), 0, len(text), final=True)]


def test_the_last_segment_is_final_even_if_nothing_is_pending() -> None:
    segmenter = Segmenter()
    pieces = segmenter.push("Hi. T")
    assert [piece.final for piece in pieces] == [False]
    assert [(piece.text, piece.final) for piece in segmenter.end()] == [("T", True)]


def test_an_ended_text_takes_no_more() -> None:
    segmenter = Segmenter()
    segmenter.end()
    with pytest.raises(ValueError, match="begin another"):
        segmenter.push("a")
    with pytest.raises(ValueError, match="ended already"):
        segmenter.end()


def test_offsets_point_into_the_original() -> None:
    text = "**Hi** [you](http://x.y)! \U0001f44d A&amp;B"
    first, second = segment(text)
    assert first.text == "Hi you!"
    assert [text[offset] for offset in first.offsets[:-1]] == list("Hi you!")
    assert (first.start, first.offsets[-1]) == (0, text.index("!") + 1)
    assert second.text == "A&B"
    assert [text[offset] for offset in second.offsets[:-1]] == list("A&B")
    assert second.end == second.offsets[-1] == len(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a\ud83db", "a b"),
        ("\ude00 x", "x"),
        ("\ud835\udddb" + "i", "Hi"),
        ("\ud842\udfb7\u91ce\u5bb6", "\U00020bb7\u91ce\u5bb6"),
        ("a\0\x01b\x7f", "a b"),
        ("\x89PNG\x1a\x00data", "PNG data"),
        ("one\ufefftwo\u00adthree", "onetwothree"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("e\u0301" + "t" + "e\u0301", "e\u0301te\u0301"),
    ],
)
def test_what_is_no_text_is_left_out_and_halves_that_meet_are_joined(
    text: str, wanted: str
) -> None:
    assert spoken(text) == [wanted]
    segmenter = Segmenter()
    assert [piece.text for char in text for piece in segmenter.push(char)] == []
    assert [piece.text for piece in segmenter.end()] == [wanted]


def test_no_piece_is_longer_than_the_bound() -> None:
    for text in ("x" * 2000, "12" * 1000, "你" * 1000, "ก" * 2000, "e\u0301" * 1000, "(" * 500):
        assert all(len(piece.text) <= 301 for piece in segment(text))


def test_after_a_word_that_is_too_long_the_first_white_space_ends_the_piece() -> None:
    word = "x" * 70
    first, second = segment(f"{word} and so on, for a while")[:2]
    assert first.text == word
    assert second.text.startswith("and")


def test_a_cut_spares_graphemes() -> None:
    for unit in ("e\u0301", "க்", "กำ", "เก", "क्ष", "\u1100\u1161\u11a8"):
        for piece in segment(unit * 400):
            assert len(piece.text) % len(unit) == 0


def test_what_has_no_end_is_cut_all_the_same() -> None:
    accents = "a" + "".join(chr(0x300 + index % 2) for index in range(3000))
    for text in (accents, "\u1100" * 1000, "क्" * 1000):
        assert all(len(piece.text) <= 301 for piece in segment(text))


def test_a_long_run_of_marks_stays_with_its_sentence() -> None:
    marks = "?!" * 20
    assert spoken(f"What{marks} You know.") == [f"What{marks}", "You know."]


@pytest.mark.parametrize(
    "chosen",
    [{"sentence_min": ()}, {"clause_min": (0,)}, {"whole_max": (400,)}, {"hard_max": 10}],
)
def test_settings_that_cannot_be_are_refused_with_their_names(chosen: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(chosen))):
        SegmenterSettings(**chosen)  # type: ignore[arg-type]
