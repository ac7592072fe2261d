"""Fuzz targets: what a chat endpoint sends, from its bytes to words and calls of tools."""

from __future__ import annotations

import asyncio
import contextlib
import json

from qwen3tts_agent.chat.messages import (
    ChatMessage,
    Finished,
    ModelUnavailable,
    ToolCall,
    request_body,
)
from qwen3tts_agent.chat.stream import (
    MAX_ARGUMENT_CHARS,
    MAX_CALLS,
    ChatStream,
    refusal_words,
    whole_answer,
)
from qwen3tts_agent.tools import Toolbox, tool, tools_of
from qwen3tts_wire.errors import SpeechError
from tests.fuzz.target import Target, cuts


def run_stream(data: bytes) -> None:
    """The bytes of a stream; cut otherwise they give the same."""
    whole = _events([data])
    assert _events(cuts(data, 1 + len(data) % 7)) == whole
    calls = [event for event in whole if isinstance(event, ToolCall)]
    assert len(calls) <= 4 * MAX_CALLS
    assert all(call.id and len(call.arguments) <= MAX_ARGUMENT_CHARS for call in calls)
    ends = [place for place, event in enumerate(whole) if isinstance(event, Finished)]
    assert ends in ([], [len(whole) - 1]), "nothing follows the end"
    json.dumps(request_body("m", [ChatMessage("assistant", "", tuple(calls))])).encode()


def _events(pieces: list[bytes]) -> list[object]:
    stream = ChatStream()
    found: list[object] = []
    for piece in pieces:
        found += stream.push(piece)
        if stream.failure is not None:
            assert isinstance(stream.failure, SpeechError)
            break
    if stream.failure is None and not stream.ended:
        with contextlib.suppress(ModelUnavailable):
            found += stream.finish()
    texts = "".join(event for event in found if isinstance(event, str))
    return [texts, *(event for event in found if not isinstance(event, str))]


def run_answer(data: bytes) -> None:
    """The body of an answer that is not streamed, or of a refusal."""
    words = refusal_words(data)
    assert words.isprintable()
    assert len(words) <= 300
    try:
        events = whole_answer(data)
    except SpeechError:
        return
    assert isinstance(events[-1], Finished)


async def look(day: str, names: list[str] | None = None, count: int = 1) -> str:
    """Look something up."""
    return f"{day} {names} {count}"


def run_arguments(data: bytes) -> None:
    """What a model gives a tool: text for it to read, whatever it is."""
    box = Toolbox(
        tools_of([tool(look)]), {"call": None, "conversation": None}, timeout_s=5, most_chars=500
    )
    arguments = data.decode("utf-8", "surrogateescape")
    text, ok = asyncio.run(box.use(ToolCall("a", "look", arguments)))
    assert isinstance(text, str)
    assert len(text) <= 1200
    assert ok == (not text.startswith("Error: "))


def _delta(**delta: object) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"


_CALL = {"index": 0, "id": "a", "function": {"name": "look", "arguments": '{"day":"Mo"}'}}

TARGETS = {
    "chat_stream": Target(
        run_stream,
        "Any bytes are words and calls, the same however they are cut, or a typed error.",
        (
            _delta(content="Good ") + _delta(content="morning.") + b"data: [DONE]\n\n",
            _delta(tool_calls=[_CALL]) + _delta(tool_calls=[{"index": 0, "function": {}}]),
            _delta(content="<think>x</think>y")
            + b'data: {"choices":[{"finish_reason":"stop"}]}\n\n',
        ),
        (
            b"data: ",
            b'"tool_calls":[',
            b'"function":{',
            b'"index":',
            b"\n\n",
            b"[DONE]",
            b"<think>",
        ),
        most_bytes=2048,
    ),
    "chat_answer": Target(
        run_answer,
        "Any body is words and calls or a typed error, and a refusal is one printable line.",
        (
            b'{"choices":[{"message":{"content":"Yes."}}]}',
            b'{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"x"}}]}}]}',
            b'{"error":{"message":"no"}}',
        ),
        (b'"choices":[', b'"message":{', b'"content":', b'"error":', b'"tool_calls":['),
        most_bytes=1024,
    ),
    "tool_arguments": Target(
        run_arguments,
        "Any arguments are used or told to be wrong, in bounded words.",
        (b'{"day":"Mo"}', b'{"day":"Mo","names":["a"],"count":2}', b"{}", b"null"),
        (b'"day":', b'"names":[', b'"count":', b"null", b"NaN", b"1e999"),
        most_bytes=1024,
    ),
}

HARD: dict[str, tuple[bytes, ...]] = {
    "chat_stream": (
        b"",
        b"data: [DONE]\n\n" + _delta(content="after the end"),
        _delta(tool_calls=[{"index": "x", "id": 3, "function": 4}, None]),
        _delta(
            tool_calls=[
                {"index": n % 3, "id": str(n), "function": {"name": "n"}} for n in range(40)
            ]
        ),
        _delta(tool_calls=[{"function": {"name": "a"}}, {"function": {"arguments": [1]}}]),
        _delta(content=["x", {"text": "y"}, {"text": 3}]),
        _delta(content="<think>" * 3) + _delta(content="</think>"),
        b'data: {"choices":[{"delta":[],"finish_reason":{"a":1}}]}\n\n',
        b"data: " + b"[" * 2000 + b"\n\n",
        b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n',
    ),
    "chat_answer": (
        b"[]",
        b'{"error":[{"message":"a\\u001b[2J"}]}',
        b'{"choices":[{"message":{"content":3}}]}',
        b'{"choices":[{"message":{"content":null}}]}',
        b"{" * 1000,
        b'{"detail":"' + b"x" * 900 + b'"}',
    ),
    "tool_arguments": (
        b"[]",
        b'{"day":1e999}',
        b'{"day":"\\ud800"}',
        b"[" * 900,
        b'{"day":null}',
        b'{"day":"Mo","count":true}',
        b'{"day":"Mo","call":1}',
        b"\xff\xfe",
    ),
}
