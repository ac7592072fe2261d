"""The parts of a resumption: what was written, where there is sound, and servers that lie."""

from __future__ import annotations

import itertools
import math
import re
import struct
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_wire.attempt import ContextAttempt
from qwen3tts_wire.errors import BadRequest, ConnectionLost, LimitExceeded, ProtocolError
from qwen3tts_wire.events import Audio, Done, Event
from qwen3tts_wire.formats import FORMATS, AudioFormat, audible, levels, quietest
from qwen3tts_wire.heard import Word
from qwen3tts_wire.messages import ContextOpen
from qwen3tts_wire.resume import TAIL_S, ReplayBuffer, ResumeJoin, UnalignedTail, resume_point
from tests.wire.resumption import LOUDEST, RATE, Manner, Server, StubLine, move, opened, runs, take

PCM, *_, MULAW, ALAW = FORMATS


def pcm(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}h", *values)


# --- what was written ---


@given(st.lists(st.one_of(st.text(max_size=5), st.none()), max_size=12), st.data())
def test_the_rest_of_a_manuscript_is_the_rest_of_its_text_with_its_flushes(
    steps: list[str | None], data: st.DataObject
) -> None:
    written = ReplayBuffer()
    for step in steps:
        if step is None:
            written.flush()
        else:
            written.add(step, 1000)
    start = data.draw(st.integers(0, len(written)))
    pieces = list(written.rest(start))
    assert "".join(piece for piece, _ in pieces) == str(written)[start:]
    assert all(piece for piece, _ in pieces)
    assert all(flushed for _, flushed in pieces[:-1])


def test_halves_of_a_character_are_joined_and_one_that_stays_alone_is_replaced() -> None:
    written = ReplayBuffer()
    assert [written.add(each, 10) for each in ("a\ud83d", "\ude00", "\ud83d")] == [
        "a",
        "\U0001f600",
        "",
    ]
    assert written.end() == "\ufffd"
    assert str(written) == "a\U0001f600\ufffd"
    for late in (lambda: written.add("x", 10), written.flush, written.end):
        with pytest.raises(ProtocolError, match="ENDING"):
            late()


def test_what_is_too_long_or_no_text_changes_nothing() -> None:
    written = ReplayBuffer()
    written.add("ab\ud83d", 3)
    with pytest.raises(LimitExceeded, match="at most 3"):
        written.add("cd", 3)
    with pytest.raises(BadRequest, match="must be a str"):
        written.add(b"c", 3)  # type: ignore[arg-type]
    assert written.add("\ude00", 3) == "\U0001f600"


# --- sound ---


@pytest.mark.parametrize(
    ("form", "quiet", "loud"),
    [(PCM, pcm(300), pcm(-400)), (MULAW, b"\xff", b"\x00"), (ALAW, b"\xd5", b"\x2a")],
    ids=["pcm", "mulaw", "alaw"],
)
def test_sound_is_told_from_a_pause_in_every_format(
    form: AudioFormat, quiet: bytes, loud: bytes
) -> None:
    assert audible(3 * quiet + 2 * loud + quiet, form) == (3, 5)
    assert audible(4 * quiet, form) == (0, 0)
    assert audible(b"", form) == (0, 0)
    assert audible(loud, form) == (0, 1)


def test_levels_are_those_of_the_codec() -> None:
    # ITU-T G.711: the largest values of either law, and the smallest, in 16 bits.
    assert list(levels(b"\x00\x80\xff\x7f", MULAW)) == [32124, 32124, 0, 0]
    assert list(levels(b"\x2a\xaa\xd5\x55", ALAW)) == [32256, 32256, 8, 8]
    assert list(levels(pcm(-32768, 32767, 0) + b"\1", PCM)) == [32768, 32767, 0]


def test_the_quietest_place_is_where_it_is_cut() -> None:
    step = 60  # 2.5 ms at 24 kHz
    sound = pcm(*[3000] * step, *[10] * step, *[2000] * step)
    assert quietest(sound, PCM) == 2 * step
    assert quietest(pcm(*[500] * 200), PCM) == 200
    assert quietest(b"", PCM) == 0


@given(st.binary(max_size=4000), st.sampled_from(FORMATS))
def test_any_bytes_are_sound(data: bytes, form: AudioFormat) -> None:
    begin, end = audible(data, form)
    count = len(data) // form.bytes_per_sample
    assert 0 <= begin <= end <= count
    assert 0 <= quietest(data, form) <= count
    assert len(levels(data, form)) == count


def test_a_tail_keeps_what_is_not_known_and_no_more_than_it_needs() -> None:
    tail = UnalignedTail(PCM)
    for second in range(20):
        tail.push(24_000 * second, bytes(48_000 - 2) + pcm(900))
    start, end = tail.after(0)
    assert end == 20 * 24_000
    assert start >= (20 - TAIL_S - 1) * 24_000
    tail.aligned_to(19 * 24_000)
    assert tail.after(19 * 24_000) == (20 * 24_000 - 1, 20 * 24_000)
    tail.clear()
    assert tail.after(5) == (5, 5)


# --- servers that lie ---

some_words = st.lists(
    st.builds(
        Word,
        st.text(max_size=3),
        st.integers(0, 60_000),
        st.integers(0, 60_000),
        st.integers(0, 40),
        st.integers(0, 40),
        st.just("estimated"),
        st.one_of(st.none(), st.floats(0, 1e6)),
    ),
    max_size=6,
)


class Sound(bytes):
    """Bytes that are short to write down."""

    def __repr__(self) -> str:
        return f"Sound({len(self)})"


sounds = st.lists(
    st.sampled_from([Sound(9600), Sound(pcm(*[800] * 4800)), Sound(pcm(1)), Sound()]), max_size=20
)


@given(st.text(max_size=30), some_words, st.integers(0, 60_000), sounds, sounds, some_words)
@settings(max_examples=300)
def test_whatever_a_server_tells_the_join_is_found_and_lies_within_its_sound(
    text: str,
    words: list[Word],
    received: int,
    old: list[bytes],
    new: list[bytes],
    told: list[Word],
) -> None:
    tail = UnalignedTail(PCM)
    position = 0
    for data in old:
        tail.push(position, data)
        position += len(data) // 2
    made = resume_point(text, words, received, tail, len(text))
    assert 0 <= made.char <= len(text)
    assert 0 <= made.words <= len(words)
    splice = ResumeJoin(made, PCM)
    position = 0
    for data in new:
        if splice.joined:
            break
        splice.audio(position, data, 1)
        position += len(data) // 2
        splice.add_words(told[:1])
        del told[:1]
    splice.finish()
    assert splice.joined
    assert 0 <= splice.skip <= position
    assert splice.fragment >= 0
    pieces = splice.pieces
    assert sum(len(data) // 2 for _, data, _ in pieces) == position - splice.skip
    if pieces:
        assert pieces[0][0] >= splice.skip
    last = 0
    for word in splice.passed:
        assert last <= word.start <= word.end or word.start == last
        last = word.end


def test_sound_without_words_is_joined_by_its_length() -> None:
    tail = UnalignedTail(PCM)
    tail.push(0, pcm(*[900] * 24_000))
    made = resume_point("Hello there.", (), 24_000, tail, 12)
    splice = ResumeJoin(made, PCM)
    for second in range(4):
        assert not splice.joined or second == 3
        splice.audio(24_000 * second, pcm(*[900] * 24_000), 0)
    assert splice.joined
    assert splice.skip == 24_000


# --- positions and times ---


def test_times_of_the_next_server_are_told_on_the_clock_of_the_first() -> None:
    leg = ContextAttempt(ContextOpen("a", 1))
    tail = UnalignedTail(PCM)
    assert leg.marks({"done": 5.0}) == {"done": 5.0}
    for offset_s in (100.0, 250.0):
        leg.lose("lost", offset_s, "", (), 0, tail)
    leg.begin(ContextOpen("a", 2), 700.0, "", (), 0, tail)
    # 710 s there is 10 s here, which was 110 s at the first.
    assert leg.marks({"done": 710_000.0}) == {"done": 110_000.0}


def test_attempts_count_until_sound_comes() -> None:
    leg = ContextAttempt(ContextOpen("a", 1))
    for _ in range(3):
        leg.count_attempt(3)
    leg.fruitful(1.0)
    for _ in range(3):
        leg.count_attempt(3)
    with pytest.raises(ConnectionLost, match="3 servers"):
        leg.count_attempt(3)


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 3000))
def test_positions_there_and_here_are_the_same_places(base: int, skip: int, there: int) -> None:
    leg = ContextAttempt(ContextOpen("a", 1))
    leg.base, leg._skip = base, skip
    here = leg.position(there)
    assert here == base + max(0, there - skip)
    if there >= skip:
        assert leg.there(here) == there
    assert leg.there(0) == max(0, skip - base)
    assert not math.isnan(leg.there(here))


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
