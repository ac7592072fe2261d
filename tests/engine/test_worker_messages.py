from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_engine.workers.messages import (
    MAX_BODY,
    BadMessage,
    Decoder,
    Done,
    Failed,
    Go,
    Message,
    Missing,
    Note,
    Paused,
    Ready,
    Say,
    Sound,
    Stop,
)

U32 = st.integers(0, 2**32 - 1)
TEXT = st.text(max_size=50)
FACTS = st.dictionaries(
    TEXT,
    st.one_of(TEXT, st.integers(), st.booleans(), st.none(), st.lists(TEXT, max_size=3)),
    max_size=3,
)
WORDS = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.tuples(*[U32] * width), max_size=4).map(tuple)
)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Say, U32, TEXT, FACTS),
    st.builds(Go, U32),
    st.builds(Paused, U32),
    st.builds(Stop, U32),
    st.builds(Ready, FACTS),
    st.builds(Missing, TEXT, TEXT),
    st.builds(Note, FACTS),
    st.builds(
        Sound,
        U32,
        st.binary(max_size=40).map(lambda pcm: pcm + pcm),
        WORDS,
    ),
    st.builds(Done, U32, st.booleans()),
    st.builds(Failed, U32, TEXT, TEXT, TEXT),
)


@given(st.lists(MESSAGES, max_size=5), st.lists(st.integers(0, 400), max_size=10))
def test_messages_come_back_however_their_bytes_are_cut(
    messages: list[Message], cuts: list[int]
) -> None:
    stream = b"".join(message.encode() for message in messages)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    decoder = Decoder()
    found = []
    for start, end in zip(edges, edges[1:], strict=False):  # noqa: RUF007 - reads as it is cut
        found += decoder.push(stream[start:end])
    assert found == messages


@given(st.binary(max_size=300))
def test_any_bytes_are_messages_or_a_bad_message(data: bytes) -> None:
    with contextlib.suppress(BadMessage):
        Decoder().push(data)


@given(st.integers(1, 10), st.binary(max_size=60))
def test_any_body_is_a_message_or_a_bad_message(kind: int, body: bytes) -> None:
    try:
        (message,) = Decoder().push((len(body) + 1).to_bytes(4, "little") + bytes((kind,)) + body)
    except BadMessage:
        return
    assert Decoder().push(message.encode()) == [message]


@pytest.mark.parametrize("length", [0, MAX_BODY + 1, 2**32 - 1])
def test_a_length_that_no_message_has_is_refused_at_once(length: int) -> None:
    with pytest.raises(BadMessage, match="there may be 1 to"):
        Decoder().push(length.to_bytes(4, "little") + b"\x05")
