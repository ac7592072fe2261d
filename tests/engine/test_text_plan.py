"""Text to generations: which pieces there are, and what happens to a piece without a reader."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_engine.text_plan import LIVE_MAX, GenerationText, PlanMode, TextPlan
from qwen3tts_text.segmenter import Live, Segmenter, SegmenterSettings
from tests.text.test_segmenter_properties import texts

MODES: tuple[PlanMode, ...] = ("auto", "clause", "live")
SCOPES: tuple[Live, ...] = ("first", "all")
UNSHORTENED = SegmenterSettings(whole_max=(50_000,), hard_max=50_000)
"""Segments end by a sentence or clause only."""


class Speaker:
    """Speaks a plan's pieces one after the other, and reads as much of a live one as asked."""

    def __init__(self, plan: TextPlan) -> None:
        self.plan = plan
        self.piece: GenerationText | None = None
        self.said: list[tuple[str, bool]] = []
        """Text of each generation, and whether it was live."""
        self.offsets: list[list[int]] = []

    def read(self) -> None:
        """Begin the next piece if none is under way; take what there is of a live one."""
        if self.piece is None:
            self.piece = self.plan.next()
            if self.piece is None:
                return
            self.said.append((self.piece.text, self.piece.more is not None))
            self.offsets.append(list(self.piece.offsets))
        if self.piece.more is not None:
            for text, offsets in self.piece.more.take():
                self.said[-1] = (self.said[-1][0] + text, True)
                self.offsets[-1][-1:] = offsets

    def finish(self) -> None:
        """Generate all that can be generated now."""
        self.read()
        while self.piece is not None and (self.piece.more is None or self.piece.more.ended):
            self.plan.generated()
            self.piece = None
            self.read()

    def dry(self) -> None:
        """No text came for too long."""
        if self.piece is not None and self.piece.more is not None:
            self.piece.more.close()
            self.finish()

    def give_up(self) -> None:
        """End the generation with text untaken, as at a cap of its length."""
        if self.piece is not None:
            self.plan.generated()
            self.piece = None


def spoken(
    mode: PlanMode,
    parts: Iterable[str],
    chosen: SegmenterSettings | None = None,
    *,
    flushes: Iterable[int] = (),
    late: bool = False,
) -> list[tuple[str, bool]]:
    """Speak a text that comes in these parts; ``flushes`` are positions where a part ends."""
    speaker = Speaker(TextPlan(mode, chosen))
    position = 0
    for part in parts:
        speaker.plan.append(part)
        if not late:
            speaker.finish()
        position += len(part)
        if position in flushes:
            speaker.plan.flush()
            if not late:
                speaker.finish()
    speaker.plan.end()
    speaker.finish()
    assert speaker.plan.finished()
    assert speaker.plan.next() is None
    for (text, _), offsets in zip(speaker.said, speaker.offsets, strict=True):
        assert len(offsets) == len(text) + 1
        assert offsets == sorted(offsets)
    return speaker.said


def cut(text: str, places: Iterable[int]) -> list[str]:
    ends = sorted({*places, len(text)})
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


# --- what the modes are ---

TEXT = "Good morning to you, Dr. Smith. This is **the** line, and it works. Goodbye."


def test_clauses_are_the_segmenters() -> None:
    segmenter = Segmenter()
    segments = segmenter.push(TEXT) + segmenter.end()
    assert spoken("clause", TEXT) == [(each.text, False) for each in segments]


def test_the_first_clause_is_live_and_the_rest_comes_by_clauses() -> None:
    clauses = [text for text, _ in spoken("clause", TEXT)]
    assert spoken("auto", TEXT) == [(text, number == 0) for number, text in enumerate(clauses)]


def test_live_is_one_generation() -> None:
    assert spoken("live", TEXT) == [(TEXT.replace("*", ""), True)]


@pytest.mark.parametrize("mode", ["auto", "live"])
def test_a_live_piece_begins_with_its_first_whole_word(mode: PlanMode) -> None:
    plan = TextPlan(mode)
    begun = {}
    for char in "**It's** ready":
        plan.append(char)
        if (piece := plan.next()) is not None:
            begun[char] = piece.text
    assert begun == {"r": "It's r"}


@pytest.mark.parametrize("mode", ["auto", "live"])
def test_chinese_begins_with_its_first_mark(mode: PlanMode) -> None:
    plan = TextPlan(mode)
    plan.append("你好")
    assert plan.next() is None
    plan.append("\uff0c我")
    piece = plan.next()
    assert piece is not None
    assert piece.text.startswith("你好\uff0c")


def test_what_is_still_undecided_is_not_said() -> None:
    plan = TextPlan("live")
    plan.append("We are open, see [our page](https://exam")
    piece = plan.next()
    assert piece is not None
    assert piece.text == "We are open, see our page"
    assert piece.more is not None
    plan.append("ple.org) for *")
    assert [text for text, _ in piece.more.take()] == [" for"]
    plan.append("more*.")
    plan.end()
    assert [text for text, _ in piece.more.take()] == [" more."]
    assert piece.more.ended


@pytest.mark.parametrize("mode", ["auto", "live"])
def test_a_flush_ends_a_live_generation_and_later_text_begins_another(mode: PlanMode) -> None:
    plan = TextPlan(mode)
    speaker = Speaker(plan)
    plan.append("One moment plea")
    speaker.finish()
    grew = plan.growing
    plan.append("se")
    plan.flush()
    assert (grew, plan.growing) == (True, False)
    speaker.finish()
    assert speaker.said == [("One moment please", True)]
    plan.append(" and now")
    plan.append(" it")
    speaker.finish()
    assert speaker.said[1:] == [("and now it", True)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("text", ["", " ", "\n\n", "...", "**", "\U0001f600", "- \n- "])
def test_text_with_nothing_to_say_has_no_piece(mode: PlanMode, text: str) -> None:
    assert spoken(mode, text) == []
    assert spoken(mode, [text]) == []


def test_a_piece_is_final_when_its_text_is_known_to_be_the_last() -> None:
    for mode in MODES:
        plan = TextPlan(mode)
        plan.append("Yes")
        plan.end()
        piece = plan.next()
        assert piece is not None
        assert (piece.text, piece.final) == ("Yes", True)
        assert (piece.more is None) == (mode == "clause")


@pytest.mark.parametrize("mode", ["whole", "whole_streaming"])
def test_a_whole_text_is_one_piece_up_to_its_end_or_a_flush(mode: PlanMode) -> None:
    plan = TextPlan(mode)
    text = "One. Two, three!\n\n" + "Four is a sentence. " * 500
    for delta in re.findall("(?s).{1,40}", text):
        plan.append(delta)
    assert not plan.waiting
    plan.flush()
    first = plan.next()
    assert first is not None
    assert first.text.split() == text.split()
    plan.append("Five. Six.")
    plan.end()
    second = plan.next()
    assert second is not None
    assert (second.text, second.final) == ("Five. Six.", True)
    assert plan.next() is None
    assert plan.finished()


def test_what_an_engine_has_no_room_for_of_a_whole_text_comes_again() -> None:
    plan = TextPlan("whole")
    plan.append("One. Two. Three.")
    plan.end()
    piece = plan.next()
    assert piece is not None
    assert piece.more is not None
    piece.more.put_first(piece.text[5:], piece.offsets[5:])
    again = plan.next()
    assert again is not None
    assert (again.text, again.offsets[0], again.final) == ("Two. Three.", 5, True)


def test_a_long_text_is_live_in_generations_that_an_engine_can_hold() -> None:
    said = spoken("live", "This is a sentence, which has a clause. " * 200)
    assert len(said) > 1
    assert all(live for _, live in said)
    assert all(len(text) <= LIVE_MAX * 1.1 for text, _ in said)
    assert all(text.endswith(".") for text, _ in said)


@pytest.mark.parametrize(
    ("unit", "most"),
    [
        ("word, ", 1.25),
        ("word ", 1.35),
        ("x", 1.75),
        ("1", 1.75),
        ("1 ", 1.75),
        ("你", 0.5),
        ("ก", 1.75),
    ],
)
def test_a_live_text_without_sentences_ends_somewhere(unit: str, most: float) -> None:
    said = spoken("live", [unit] * (3000 // len(unit)))
    assert max(len(text) for text, _ in said) <= most * LIVE_MAX
    assert "".join(text for text, _ in said).replace(" ", "") == unit.strip() * (3000 // len(unit))


def test_a_long_first_clause_goes_on_to_its_next_space_and_not_back_to_a_better_one() -> None:
    words = "really quite " * 40
    first, *later = spoken("auto", words)
    assert first[1]
    assert 120 <= len(first[0]) <= 135
    assert " ".join(text for text, _ in (first, *later)) == words.strip()


# --- without a reader ---


def test_text_refused_by_a_dry_reader_is_said_by_the_next_generation() -> None:
    plan = TextPlan("live")
    speaker = Speaker(plan)
    plan.append("The first words are")
    speaker.finish()
    assert speaker.piece is not None
    assert speaker.piece.more is not None
    speaker.piece.more.close()
    plan.append(", after a while, these.")
    assert not plan.growing
    assert plan.waiting
    plan.end()
    speaker.finish()
    assert speaker.said == [("The first words are", True), ("after a while, these.", True)]
    assert plan.finished()


def test_text_that_a_generation_left_untaken_is_said_by_the_next() -> None:
    plan = TextPlan("live")
    speaker = Speaker(plan)
    plan.append("The first words are")
    speaker.read()
    plan.append(" followed by some")
    speaker.give_up()
    plan.append(" more.")
    plan.end()
    speaker.finish()
    assert speaker.said == [("The first words are", True), ("followed by some more.", True)]


def test_text_that_the_last_clause_left_untaken_comes_before_the_next_clause() -> None:
    plan = TextPlan("auto")
    speaker = Speaker(plan)
    plan.append("The first words ar")
    speaker.read()
    plan.append("e here now. The second sentence is longer. ")
    speaker.give_up()
    plan.end()
    speaker.finish()
    assert [text for text, _ in speaker.said] == [
        "The first words ar",
        "e here now.",
        "The second sentence is longer.",
    ]


def test_after_a_close_nothing_is_to_be_spoken() -> None:
    plan = TextPlan("auto")
    plan.append("One is said. Two is said. Three is")
    assert plan.next() is not None
    plan.close()
    assert plan.finished()
    assert not plan.waiting
    assert not plan.growing


# --- whatever the text ---

modes = st.sampled_from((*MODES, "whole"))
bounds = st.sampled_from(
    [None, SegmenterSettings((5,), (8,), (20,), 30), SegmenterSettings((1,), (1,), (16,), 16)]
)


@given(texts, st.data(), modes, bounds)
@settings(max_examples=300, deadline=None)
def test_the_same_text_gives_the_same_generations_however_and_whenever_it_comes(
    text: str, data: st.DataObject, mode: PlanMode, chosen: SegmenterSettings | None
) -> None:
    place = st.integers(0, len(text))
    flushes = data.draw(st.sets(place, max_size=3))
    whole = spoken(mode, cut(text, flushes), chosen, flushes=flushes, late=True)
    assert spoken(mode, cut(text, flushes), chosen, flushes=flushes) == whole
    by_one = cut(text, range(len(text)))
    assert spoken(mode, by_one, chosen, flushes=flushes) == whole
    assert spoken(mode, by_one, chosen, flushes=flushes, late=True) == whole
    some = cut(text, [*flushes, *data.draw(st.lists(place, max_size=8))])
    assert spoken(mode, some, chosen, flushes=flushes) == whole


@given(texts, st.data())
@settings(max_examples=300, deadline=None)
def test_live_or_not_pieces_end_at_the_same_sentences_and_clauses(
    text: str, data: st.DataObject
) -> None:
    flushes = data.draw(st.sets(st.integers(0, len(text)), max_size=3))
    parts = cut(text, flushes)
    by_clause = [each for each, _ in spoken("clause", parts, UNSHORTENED, flushes=flushes)]
    auto = [each for each, _ in spoken("auto", parts, UNSHORTENED, flushes=flushes)]
    assert auto == by_clause


@given(texts, st.data(), st.sampled_from(["auto", "live"]), bounds)
@settings(max_examples=300, deadline=None)
def test_nothing_is_lost_or_said_twice_when_readers_run_dry_or_give_up(
    text: str, data: st.DataObject, mode: PlanMode, chosen: SegmenterSettings | None
) -> None:
    undisturbed = "".join(each for each, _ in spoken(mode, text, chosen))
    speaker = Speaker(TextPlan(mode, chosen))
    steps = st.sampled_from(["", "", "read", "finish", "dry", "give_up"])
    for part in cut(text, data.draw(st.lists(st.integers(0, len(text)), max_size=12))):
        speaker.plan.append(part)
        step = data.draw(steps)
        if step:
            getattr(speaker, step)()
    speaker.plan.end()
    speaker.finish()
    assert speaker.plan.finished()
    said = "".join(each for each, _ in speaker.said)
    letters = [char for char in undisturbed if char.isalnum()]
    assert [char for char in said if char.isalnum()] == letters
    positions = [each for offsets in speaker.offsets for each in offsets[:-1]]
    assert positions == sorted(positions)


@given(texts, st.data(), bounds)
@settings(max_examples=300, deadline=None)
def test_what_was_handed_out_is_the_beginning_of_the_segment_and_spans_still_tile(
    text: str, data: st.DataObject, chosen: SegmenterSettings | None
) -> None:
    scope: Live = data.draw(st.sampled_from(SCOPES))
    segmenter = Segmenter(chosen, live=scope)
    handed, segments = "", []
    offsets: tuple[int, ...] = (0,)
    for part in [*cut(text, data.draw(st.lists(st.integers(0, len(text))))), None]:
        for segment in segmenter.end() if part is None else segmenter.push(part):
            assert segment.live or not handed
            if segment.live:
                assert segment.text.startswith(handed)
                assert segment.offsets[: len(handed)] == offsets[: len(handed)]
                handed, offsets = "", (0,)
            segments.append(segment)
        while (more := segmenter.take_live()) is not None:
            handed += more[0]
            offsets = (*offsets[:-1], *more[1])
            assert len(offsets) == len(handed) + 1
    assert not handed
    assert "".join(text[each.start : each.end] for each in segments) == text
    for segment in segments:
        assert segment.start <= segment.offsets[0] <= segment.offsets[-1] <= segment.end
