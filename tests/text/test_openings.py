"""Openings of a text: recognised while it grows, the rest as always, nothing lost."""

# Look-alike characters are meant.
# ruff: noqa: RUF001

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qwen3tts_engine.starter.engine import spoken_form
from qwen3tts_engine.text_plan import PlanMode, TextPlan
from qwen3tts_text.openings import Phrases, folded
from qwen3tts_text.segmenter import Live, Segment, Segmenter, SegmenterSettings
from tests.engine.test_text_plan import Speaker, cut
from tests.text.test_segmenter_properties import texts

PHRASES = (
    "Sure,",
    "Sure, I can help.",
    "Good morning",
    "Yes.",
    "No.",
    "Okay",
    "Very well.",
    "It's fine.",
    "Bonjour !",
    "好的，",
    "好的",
    "Room 5",
)


def segments(
    text: str,
    phrases: Sequence[str] = PHRASES,
    *,
    step: int = 10**9,
    flushes: Sequence[int] = (),
    cuts: Sequence[int] = (),
    live: Live = "none",
    chosen: SegmenterSettings | None = None,
) -> list[Segment]:
    segmenter = Segmenter(chosen, live=live, openings=Phrases(phrases) if phrases else None)
    found: list[Segment] = []
    begin = 0
    for end in sorted({*range(step, len(text), step), *cuts, *flushes, len(text)}):
        found += segmenter.push(text[begin:end])
        begin = end
        if end in flushes:
            found += segmenter.flush()
    return found + segmenter.end()


def pieces(text: str, phrases: Sequence[str] = PHRASES, step: int = 10**9) -> list[str]:
    return [each.text for each in segments(text, phrases, step=step) if each.text]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Sure, I can do that", "Sure,"),
        ("sure, I can do that", "sure,"),
        ("  Sure,\tI can do that", "Sure,"),
        ("\n\nSure,\nI can do that", "Sure,"),
        ("**Sure,** I can do that", "Sure,"),
        ("# Sure, I can do that", "Sure,"),
        ("\U0001f44d Sure, I can do that", "Sure,"),
        ("Sure, I can help. With what?", "Sure, I can help."),
        ("Sure, I can help you.", "Sure,"),
        ("Good\u00a0morning to all", "Good morning"),
        ("Very well. Go on", "Very well."),
        ("It\u2019s fine. Go on", "It\u2019s fine."),
        ("Bonjour\u202f! Comment ?", "Bonjour !"),
        ("好的，我来看看你的问题", "好的，"),
        ("好的， 我来看看你的问题", "好的，"),
        ("No. I will not", "No."),
        ("Room 5 is free", "Room 5"),
        ("Sure,", "Sure,"),
        ("Sure, ", "Sure,"),
        ("好的", "好的"),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 10**9])
def test_a_text_that_begins_with_an_opening_begins_with_a_piece_of_it(
    text: str, first: str, step: int
) -> None:
    assert pieces(text, step=step)[0] == first


@pytest.mark.parametrize(
    "text",
    [
        "Surely, I can do that",
        "SURE, I can do that",
        "Sure,I can do that",
        "Sure! I can do that now",
        "Sure,) I can do that",
        "Sure, ) I can do that",
        'Sure," he said to her',
        '"Sure, I can do that"',
        "Good Morning to all",
        "Good mornings to all",
        "Good morning, all of you there",
        "Good\nMorning",
        "Not sure, I can do that",
        "No. 5 is alive today",
        "Yes... I think so",
        "Room 5 000 of them",
        "Okay2 go on then",
        "好的确是这样的",
        "好的，」他说",
    ],
)
@pytest.mark.parametrize("step", [1, 10**9])
def test_what_only_looks_like_an_opening_is_cut_as_always(text: str, step: int) -> None:
    assert segments(text, step=step) == segments(text, ())


def test_an_opening_is_given_out_as_soon_as_nothing_can_change_it() -> None:
    segmenter = Segmenter(openings=Phrases(PHRASES))
    assert segmenter.push("Very we") == []
    assert segmenter.push("ll.") == []
    (opening,) = segmenter.push(" S")
    assert (opening.text, opening.start, opening.end) == ("Very well.", 0, 10)
    assert not opening.final


def test_an_opening_waits_only_while_a_longer_one_is_possible() -> None:
    segmenter = Segmenter(openings=Phrases(PHRASES))
    assert segmenter.push("Sure, I c") == []
    (opening,) = segmenter.push("o")
    assert opening.text == "Sure,"
    assert [each.text for each in segmenter.end()] == ["I co"]


def test_a_text_that_may_still_become_an_opening_is_out_with_a_flush() -> None:
    segmenter = Segmenter(openings=Phrases(PHRASES))
    segmenter.push("Sure, I")
    assert [each.text for each in segmenter.flush()] == ["Sure,", "I"]
    assert [each.text for each in segmenter.push("Sure, I can do it. Yes")] == [
        "Sure, I can do it."
    ]


def test_openings_are_of_the_text_not_of_what_follows_a_flush() -> None:
    found = segments("Hello. Sure, I can", flushes=[6])
    assert [each.text for each in found] == ["Hello.", "Sure, I can"]


def test_an_opening_that_ends_the_text_is_final() -> None:
    (only,) = segments("Sure, ")
    assert (only.text, only.end, only.final) == ("Sure,", 6, True)


def test_what_follows_an_opening_is_short_as_at_the_beginning() -> None:
    text = "Sure, in that case, I would be glad to do it"
    assert pieces(text)[:2] == ["Sure,", "in that case,"]
    counting = SegmenterSettings(opening_counts=True)
    rest = [each.text for each in segments(text, chosen=counting)]
    assert rest == ["Sure,", "in that case, I would be glad to do it"]


def test_letters_count_as_they_are_but_for_the_first() -> None:
    assert folded("Éa") == "éa"
    assert folded("İs") == "İs"
    assert folded("«Aha") == "«aha"
    assert folded("42") == "42"
    assert "sure," in Phrases(["Sure,"])
    assert not Phrases([""])


def spelled(found: Sequence[Segment]) -> list[tuple[str, int]]:
    """What is said, letter by letter, and where it stands; commas for line ends apart."""
    return [
        (char, offset)
        for each in found
        for char, offset in zip(each.text, each.offsets, strict=False)
        if char.isalnum()
    ]


@st.composite
def phrases_of(draw: st.DrawFn, text: str) -> tuple[str, ...]:
    """Phrases of which a few begin the text; each has something to say."""
    spoken = spoken_form(text[:60])
    own = [spoken[: draw(st.integers(1, 20))].strip() for _ in range(draw(st.integers(0, 4)))]
    return (*PHRASES, *(each for each in own if any(map(str.isalnum, each))))


@given(texts | st.sampled_from(PHRASES).flatmap(lambda p: texts.map(lambda t: p + t)), st.data())
@settings(max_examples=300)
def test_with_and_without_openings_the_same_is_said_however_the_text_comes(
    text: str, data: st.DataObject
) -> None:
    phrases = data.draw(phrases_of(text))
    place = st.integers(0, len(text))
    flushes = data.draw(st.lists(place, max_size=2))
    whole = segments(text, phrases, flushes=flushes)
    assert segments(text, phrases, flushes=flushes, step=1) == whole
    some = data.draw(st.lists(place, max_size=8))
    assert segments(text, phrases, flushes=flushes, cuts=some) == whole
    plain = segments(text, (), flushes=flushes)
    assert spelled(whole) == spelled(plain)
    assert "".join(text[each.start : each.end] for each in whole) == text
    if whole[0].text not in Phrases(phrases):
        assert whole == plain


@given(
    st.sampled_from(PHRASES).flatmap(lambda p: texts.map(lambda t: p + t)),
    st.data(),
    st.sampled_from(["auto", "clause", "live"]),
)
@example("Sure, Yes. **No**", None, "auto")
@settings(max_examples=200)
def test_a_plan_says_the_same_in_every_mode(
    text: str, data: st.DataObject | None, mode: PlanMode
) -> None:
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=8)) if data else []

    def letters(phrases: Phrases | None, parts: list[str]) -> list[tuple[str, int]]:
        speaker = Speaker(TextPlan(mode, openings=phrases))
        for part in parts:
            speaker.plan.append(part)
            speaker.finish()
        speaker.plan.end()
        speaker.finish()
        assert speaker.plan.finished()
        return [
            (char, offset)
            for (said_text, _), offsets in zip(speaker.said, speaker.offsets, strict=True)
            for char, offset in zip(said_text, offsets, strict=False)
            if char.isalnum()
        ]

    known = Phrases(PHRASES)
    without = letters(None, [text])
    assert letters(known, [text]) == without
    assert letters(known, list(text)) == without
    assert letters(known, cut(text, places)) == without


@pytest.mark.parametrize("mode", ["auto", "live"])
def test_the_opening_is_whole_and_what_follows_is_live(mode: PlanMode) -> None:
    plan = TextPlan(mode, openings=Phrases(PHRASES))
    plan.append("Sure, I c")
    assert not plan.waiting
    plan.append("ould do")
    opening = plan.next()
    assert opening is not None
    assert (opening.text, opening.more, opening.final) == ("Sure,", None, False)
    rest = plan.next()
    assert rest is not None
    assert rest.more is not None
    plan.append(" that.")
    plan.end()
    assert rest.text + "".join(text for text, _ in rest.more.take()) == "I could do that."


@pytest.mark.parametrize("mode", ["auto", "clause", "live"])
def test_an_opening_alone_is_final_in_every_mode(mode: PlanMode) -> None:
    plan = TextPlan(mode, openings=Phrases(PHRASES))
    plan.append("Sure,")
    plan.end()
    piece = plan.next()
    assert piece is not None
    assert (piece.text, piece.more, piece.final) == ("Sure,", None, True)
    assert plan.next() is None
    assert plan.finished()
