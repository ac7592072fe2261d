from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_agent.chat.messages import ChatEvent, Finished, ToolCall
from qwen3tts_agent.chat.stream import MAX_CALLS, ChatStream, whole_answer
from qwen3tts_wire.errors import LimitExceeded, ProtocolError


def chunk(delta: dict[str, Any], **more: object) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": delta, **more}]}).encode() + b"\n\n"


def calls(*pieces: dict[str, Any]) -> bytes:
    return chunk({"tool_calls": list(pieces)})


def piece(index: int | None = None, **more: Any) -> dict[str, Any]:
    function = {key: more.pop(key) for key in ("name", "arguments") if key in more}
    found = {**more, "function": function} if function else dict(more)
    return found if index is None else {"index": index, **found}


def events_of(*data: bytes) -> list[ChatEvent]:
    stream = ChatStream()
    found = [event for each in data for event in stream.push(each)]
    assert stream.failure is None
    return found if stream.ended else [*found, *stream.finish()]


DONE = b"data: [DONE]\n\n"
HOURS = ToolCall("a", "hours", '{"day": "Mo"}')


def test_the_pieces_of_tool_calls_are_joined_by_their_index() -> None:
    found = events_of(
        chunk({"content": "One moment."}),
        calls(piece(0, id="a", name="hours", arguments="")),
        calls(piece(1, id="b", name="days", arguments='{"w')),
        calls(piece(0, arguments='{"day":'), piece(1, arguments='eek": 3}')),
        calls(piece(0, arguments=' "Mo"}')),
        chunk({}, finish_reason="tool_calls"),
        DONE,
    )
    assert found == [
        "One moment.",
        HOURS,
        ToolCall("b", "days", '{"week": 3}'),
        Finished("tool_calls"),
    ]


@pytest.mark.parametrize(
    "data",
    [
        # Some servers number nothing, everything 0, or repeat name and id in each piece.
        [calls(piece(id="a", name="hours", arguments='{"day": "Mo"}'))],
        [calls(piece(id="a", name="hours")), calls(piece(arguments='{"day": "Mo"}'))],
        [
            calls(piece(0, id="a", name="hours", arguments='{"day":')),
            calls(piece(0, id="a", name="hours", arguments=' "Mo"}')),
        ],
        [calls(piece(0, id="a", name="hours", arguments={"day": "Mo"}))],
    ],
)
def test_servers_that_number_otherwise_are_understood(data: list[bytes]) -> None:
    assert events_of(*data, DONE)[:-1] == [HOURS]


def test_two_calls_that_share_a_number_are_told_by_their_ids() -> None:
    found = events_of(
        calls(piece(0, id="a", name="hours", arguments="{}")),
        calls(piece(0, id="b", name="days", arguments="{}")),
        DONE,
    )
    assert found[:-1] == [ToolCall("a", "hours", "{}"), ToolCall("b", "days", "{}")]


def test_calls_without_an_id_get_one_each() -> None:
    found = events_of(
        calls(piece(0, name="hours", arguments="{}"), piece(1, name="days", arguments="{}")), DONE
    )
    ids = [event.id for event in found if isinstance(event, ToolCall)]
    assert len(set(ids)) == 2
    assert all(ids)


def test_a_stream_that_breaks_off_gives_no_half_calls() -> None:
    stream = ChatStream()
    assert stream.push(calls(piece(0, id="a", name="hours", arguments='{"da'))) == []


def test_too_many_calls_and_too_long_ones_are_refused() -> None:
    stream = ChatStream()
    stream.push(calls(*(piece(n, id=str(n), name="t") for n in range(MAX_CALLS + 1))))
    assert isinstance(stream.failure, LimitExceeded)
    stream = ChatStream()
    for _ in range(3):
        stream.push(calls(piece(0, id="a", name="t", arguments="x" * 50_000)))
    assert isinstance(stream.failure, LimitExceeded)


def test_thoughts_before_the_answer_are_not_said() -> None:
    deltas = ["<th", "ink>What", " is it? </th", "ink>", "\n\n", "Good ", "morning."]
    found = events_of(*(chunk({"content": delta}) for delta in deltas), DONE)
    assert "".join(event for event in found if isinstance(event, str)).strip() == "Good morning."


def test_words_that_only_look_like_thoughts_are_said() -> None:
    found = events_of(chunk({"content": "<th"}), chunk({"content": "ree> and <think>"}), DONE)
    assert found[:-1] == ["<three> and <think>"]
    assert events_of(chunk({"content": "<"}), DONE)[:-1] == ["<"]


def test_content_in_parts_and_refusals_are_words() -> None:
    parts = [{"type": "text", "text": "Good "}, {"type": "text", "text": "day."}]
    assert events_of(chunk({"content": parts}), DONE)[:-1] == ["Good day."]
    assert events_of(chunk({"refusal": "I cannot."}), DONE)[:-1] == ["I cannot."]


def test_an_answer_that_is_not_streamed_may_use_tools() -> None:
    function = {"name": "hours", "arguments": '{"day": "Mo"}'}
    message = {"content": None, "tool_calls": [{"id": "a", "function": function}]}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    assert whole_answer(body.encode()) == [HOURS, Finished("tool_calls")]
    with pytest.raises(ProtocolError):
        whole_answer(b'{"choices": [{"message": {}}]}')


def test_why_the_model_ended_is_told() -> None:
    assert events_of(chunk({"content": "Half"}, finish_reason="length"))[-1] == Finished("length")


@given(st.text(max_size=40), st.lists(st.integers(0, 60), max_size=6))
def test_thoughts_are_left_out_however_the_text_was_cut(text: str, cuts: list[int]) -> None:
    whole = f"<think>{text}</think>The answer."
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    deltas = [whole[a:b] for a, b in pairwise(edges)]
    found = events_of(*(chunk({"content": delta}) for delta in deltas), DONE)
    said = "".join(event for event in found if isinstance(event, str))
    assert said == (text.partition("</think>")[2] + "</think>" if "</think>" in text else "") + (
        "The answer."
    )
