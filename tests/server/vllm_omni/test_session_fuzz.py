"""Any messages, any engine, any pace: the order of the answers holds, nothing is kept, all ends."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_wire.errors import EngineFailed
from qwen3tts_wire.heard import Word
from tests.server.vllm_omni.line import (
    CANCEL,
    CLOSE,
    COMMIT,
    COMMITS,
    DONE,
    STREAM,
    TOKENS,
    Line,
    config,
    text,
)

WORD = Word(text="w", start=0, end=240, char_start=0, char_end=1)
words = st.text("ab .,!\u3002\uff0c\n\ud83d\ude00", max_size=12).map(text)
bad = st.sampled_from(
    [
        "{",
        "[]",
        b"\x00",
        json.dumps({"type": "input.text"}),
        json.dumps({"type": "nothing"}),
        json.dumps(config(speed=7)),
        "x" * 300,
    ]
)
configs = st.sampled_from(
    [
        config(),
        STREAM,
        TOKENS,
        COMMITS,
        *(config(split_granularity=each) for each in ("sentence", "clause")),
        {**STREAM, "split_granularity": "clause", "word_timestamps": True},
    ]
)
said = words | st.sampled_from([DONE, DONE, CANCEL, COMMIT, COMMIT]) | configs | bad
happens = st.one_of(
    said.map(lambda each: ("say", each)),
    st.sampled_from(
        [("audio", 480), ("audio", 2), ("finish", 0), ("fail", 0), ("stick", 0), ("unstick", 0)]
    ),
)


def happen(line: Line, what: str, value: object) -> None:
    if what == "say":
        assert isinstance(value, (dict, str, bytes))
        line.say(value)
    elif what == "stick":
        line.stuck = True
    elif what == "unstick":
        line.unstick()
    elif line.saying is not None:
        if what == "audio":
            assert isinstance(value, int)
            line.audio(bytes(value))
        elif what == "finish":
            line.finish(WORD)
        elif what == "fail":
            line.fail(EngineFailed("broke"))


@settings(max_examples=150)
@given(st.lists(happens, max_size=40), st.booleans())
def test_the_order_holds_and_good_bye_ends_everything(
    story: list[tuple[str, object]], first: bool
) -> None:
    line = Line(max_message_chars=256, max_waiting_chars=300, max_waiting_answers=50)
    if first:
        line.say(config())
    for what, value in story:
        happen(line, what, value)
    line.unstick()
    if line.code() is None:
        line.say(CLOSE)
    for _ in range(2000):
        if line.saying is None:
            break
        line.speak()
    assert line.saying is None
    assert line.code() is not None
    assert line.order.unit is None
    assert line.session.next_deadline(line.now) is None
    assert not line.session.busy


@settings(max_examples=150)
@given(st.lists(happens, max_size=30), st.lists(happens, max_size=10))
def test_after_the_answer_to_a_cancel_nothing_said_before_is_heard(
    before: list[tuple[str, object]], after: list[tuple[str, object]]
) -> None:
    line = Line(max_waiting_answers=200)
    line.say(STREAM)
    for what, value in before:
        happen(line, what, value)
    line.unstick()
    if line.code() is not None:
        return
    line.say(CANCEL)
    assert line.last == {"type": "input.cancelled"}
    assert line.saying is None
    place, index = len(line.read), line.order.utterance
    for what, value in after:
        happen(line, what, value)
    line.unstick()
    heard = [json.loads(each) for each in line.read[place:] if isinstance(each, str)]
    assert all(each.get("utterance_index", index) >= index for each in heard)
    starts = [each for each in heard if each["type"] == "audio.start"]
    if not starts:
        assert not any(isinstance(each, bytes) for each in line.read[place:])


@settings(max_examples=100)
@given(st.lists(st.text("ab. !\u3002", min_size=1, max_size=9), min_size=1, max_size=12))
def test_all_text_is_said_once_in_order_whenever_the_engine_is_ready(pieces: list[str]) -> None:
    line = Line()
    line.say(config(split_granularity="sentence"))
    spoken = []
    for number, piece in enumerate(pieces):
        line.say(text(piece))
        if number % 3 == 0 and line.saying is not None:
            spoken.append(line.speak())
    line.say(DONE)
    while line.saying is not None:
        spoken.append(line.speak())
    assert "".join("".join(spoken).split()) == "".join("".join(pieces).split())
    assert line.last["total_sentences"] == len(spoken)


@settings(max_examples=100)
@given(
    st.lists(happens, max_size=30),
    st.floats(0, 60),
    st.lists(st.floats(0.1, 40), min_size=1, max_size=6),
)
def test_a_server_that_stops_is_rid_of_every_client_in_time(
    story: list[tuple[str, object]], within: float, waits: list[float]
) -> None:
    line = Line()
    line.say(config())
    for what, value in story:
        happen(line, what, value)
    line.unstick()
    line.act(line.session.drain(within, line.now))
    for seconds in waits:
        line.wait(seconds)
    line.wait(within)
    assert line.code() is not None
    assert line.saying is None
