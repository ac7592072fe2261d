from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_engine.workers.messages import (
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
    encoded,
)
from qwen3tts_wire.child import messages as child
from qwen3tts_wire.child.messages import HEAD, BadMessage

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
    stream = b"".join(encoded(message) for message in messages)
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


VALUES = st.recursive(
    st.one_of(U32, st.integers(-3, -1), TEXT, st.booleans(), st.none(), st.floats(0, 1)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)
KINDS = st.sampled_from(
    ["say", "go", "stop", "ready", "missing", "note", "sound", "done", "failed", "unknown"]
)
NAMES = st.sampled_from(["job", "text", "options", "facts", "reason", "remedy", "code", "words"])


@given(
    KINDS,
    st.dictionaries(NAMES | st.just("to_the_end"), VALUES, max_size=4),
    st.binary(max_size=10),
)
def test_any_fields_are_a_message_or_a_bad_message(
    kind: str, fields: dict[str, Any], data: bytes
) -> None:
    try:
        (message,) = Decoder().push(child.Message(kind, fields, data).encode())
    except BadMessage:
        return
    assert Decoder().push(encoded(message)) == [message]


@pytest.mark.parametrize(
    ("head", "data"),
    [
        (b'{"kind":"go","job":Infinity}', b""),
        (b'{"kind":"go","job":-1}', b""),
        (b'{"kind":"go"}', b""),
        (b'{"kind":"go","job":1}', b"x"),
        (b'{"kind":"sound","job":1,"words":[]}', b"x"),
        (b'{"kind":"sound","job":1,"words":[[1],[1,2]]}', b""),
        (b'{"kind":"sound","job":1,"words":[[]]}', b""),
        (b'{"kind":"done","job":1,"to_the_end":1}', b""),
    ],
)
def test_fields_that_no_message_has_are_refused(head: bytes, data: bytes) -> None:
    with pytest.raises(BadMessage):
        Decoder().push(HEAD.pack(len(head), len(data)) + head + data)
