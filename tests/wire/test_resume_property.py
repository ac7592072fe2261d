"""Wherever a context loses its servers: no word is lost, none is said twice, positions go on."""

from __future__ import annotations

import itertools
import re
from array import array

from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_wire.events import Audio, Done, Event
from tests.wire.resumption import LOUDEST, RATE, Manner, Server, StubLine, move, opened, runs, take

WORDS = 12
TEXT = "One two, three four five. Six seven: eight nine ten! Eleven twelve."
MS = RATE // 1000


@st.composite
def manners(draw: st.DrawFn, most_lag_ms: int = 900) -> Manner:
    lengths = draw(st.lists(st.integers(60, 700), min_size=WORDS, max_size=WORDS))
    pauses = draw(st.lists(st.sampled_from([0, 0, 40, 250]), min_size=WORDS, max_size=WORDS))
    lag = draw(st.sampled_from([-400, -100, 0, 0, 80, 300, most_lag_ms]))
    return Manner(
        tuple(each * MS for each in lengths),
        tuple(each * MS for each in pauses),
        lag * MS,
        draw(st.sampled_from([0, 30, 100])) * MS,
    )


def first_word(text: str, rest: str) -> int:
    return len(re.findall(r"\w+", text[: len(text) - len(rest)]))


def spoken(
    manner: Manner, cuts: list[tuple[int, int | None]], later: Manner | None = None
) -> tuple[list[Event], object]:
    """Say TEXT to servers of which each is lost at its cut: milliseconds, and the events read."""
    line = StubLine()
    context = opened(line)
    _ = [context._replay.add(TEXT, 10_000), line.protocol.send_append(1, TEXT)]
    context._replay.end()
    line.protocol.send_end(1)
    server = Server(TEXT, 0, manner)
    got: list[Event] = []
    for cut_ms, read in cuts:
        server.speak(context, cut_ms * MS)
        got += take(context, read)
        rest = move(context, StubLine(context.context_no))
        if rest is None:
            break
        server = Server(rest, first_word(TEXT, rest), later or manner)
    else:
        server.speak(context, None)
    return got + take(context), context


cuts = st.lists(
    st.tuples(st.integers(0, 5000), st.one_of(st.none(), st.integers(0, 30))), max_size=4
)


@given(manners(), cuts)
def test_every_word_is_heard_once_and_stands_where_it_sounds(
    manner: Manner, cuts: list[tuple[int, int | None]]
) -> None:
    events, context = spoken(manner, cuts)
    assert isinstance(events[-1], Done)
    sound = b"".join(each.pcm for each in events if isinstance(each, Audio))
    assert events[-1].samples == len(sound) // 2
    assert events[-1].chars == len(TEXT)
    stretches = runs(events)
    # In order, and each again only where less than half of it had come.
    assert [word for word, _ in stretches] == sorted(word for word, _ in stretches)
    for word, length in enumerate(manner.lengths):
        parts = [samples for known, samples in stretches if known == word]
        assert sum(parts) * 2 >= length
        assert sum(parts[:-1]) * 2 <= length * len(cuts)
    # What is known of the words is what the sound says.
    words = context.words  # type: ignore[attr-defined]
    assert [each.text for each in words] == re.findall(r"\w+", TEXT)
    assert [TEXT[each.char_start : each.char_end] for each in words] == [e.text for e in words]
    samples = array("h", sound)
    for number, word in enumerate(words):
        assert samples[(word.start + word.end) // 2] == LOUDEST + number
        assert number == 0 or word.start >= words[number - 1].end


@given(manners(0), cuts)
def test_what_nobody_has_taken_yet_is_not_said_twice(
    manner: Manner, cuts: list[tuple[int, int | None]]
) -> None:
    events, _ = spoken(manner, [(cut, 0) for cut, _ in cuts])
    said = [word for word, _ in runs(events)]
    assert len(said) == len(set(said))


@given(manners(), manners(), cuts)
def test_with_servers_of_another_pace_the_text_is_whole_and_positions_go_on(
    manner: Manner, later: Manner, cuts: list[tuple[int, int | None]]
) -> None:
    events, context = spoken(manner, cuts, later)
    assert isinstance(events[-1], Done)
    words = context.words  # type: ignore[attr-defined]
    assert [each.text for each in words] == re.findall(r"\w+", TEXT)
    assert all(one.end <= two.start for one, two in itertools.pairwise(words))
    runs(events)
