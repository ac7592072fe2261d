from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_wire.child.messages import (
    HEAD,
    MAX_DATA,
    MAX_JSON,
    BadMessage,
    Decoder,
    Message,
)

FIELDS = st.dictionaries(st.text(max_size=8).filter(lambda key: key != "kind"), st.integers())
MESSAGES = st.builds(Message, st.text(min_size=1, max_size=8), FIELDS, st.binary(max_size=40))


@given(st.lists(MESSAGES, max_size=5), st.integers(1, 50))
def test_messages_arrive_however_their_bytes_are_cut(messages: list[Message], size: int) -> None:
    data = b"".join(message.encode() for message in messages)
    decoder = Decoder()
    found = []
    for start in range(0, len(data), size):
        found += decoder.push(data[start : start + size])
    assert found == messages


@pytest.mark.parametrize(
    "data",
    [
        HEAD.pack(MAX_JSON + 1, 0),
        HEAD.pack(0, MAX_DATA + 1),
        HEAD.pack(2, 0) + b"{}",
        HEAD.pack(3, 0) + b"[1]",
        HEAD.pack(0, 0),
        HEAD.pack(4, 0) + b"\xff\xff\xff\xff",
    ],
)
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises(BadMessage):
        Decoder().push(data)


def test_neither_words_nor_sound_are_shown() -> None:
    assert "secret" not in repr(Message("text", {"text": "secret"}, b"secret"))
