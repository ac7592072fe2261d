"""Valid examples for the targets of the speech protocol and of the segmenter, and keywords."""

from __future__ import annotations

import json
from typing import Any

from qwen3tts_wire.fields import encode
from qwen3tts_wire.formats import AudioFrame
from qwen3tts_wire.messages import (
    CLIENT_MESSAGES,
    SERVER_MESSAGES,
    AlignmentInfo,
    AudioCredit,
    ContextCancel,
    ContextOpen,
    Ping,
    PlayoutReport,
    TextAppend,
    TextEnd,
    TextFlush,
    WordInfo,
)
from tests.fuzz.target import SEPARATOR, story
from tests.wire.pair import GREETING, cancelled, done, started


def say(message: Any) -> bytes:
    """The step that brings a message of either side."""
    return b"t" + encode(message).encode()


def say_json(**fields: Any) -> bytes:
    """The step that brings an object of any kind."""
    return b"t" + json.dumps(fields).encode()


OPEN = say(ContextOpen("c1", 1))
TEXT = say(TextAppend("c1", "Hello there. And so it goes on, "))
RICH_OPEN = say_json(
    type="context.open",
    context_id="c2",
    context_no=7,
    voice="tone",
    language="en-US",
    mode="clause",
    format={"encoding": "mulaw", "sample_rate": 8000},
    speed=1.5,
    sampling={"temperature": 0.5, "top_k": 5},
    window_ms=100,
    pause_flush_ms=50,
)
REPORT = say(PlayoutReport("c1", 100, "held"))
HALVES = say_json(type="text.append", context_id="c1", text="half \ud83d")
TO_SERVER = (
    story(OPEN, "s", TEXT, "a234", HALVES, say(TextFlush("c1")), say(TextEnd("c1")), "d"),
    story(RICH_OPEN, REPORT, OPEN, say(AudioCredit("c2", 10.0)), say(ContextCancel("c2", 5)), "c"),
    story(say(Ping(1.5)), say_json(type="voice.load", request_id="r", voice_id="v"), b"b\x01", "f"),
    story(OPEN, say_json(type="text.append", context_id="c1", text=5), TEXT, OPEN),
)
AUDIO = b"b" + AudioFrame(1, 0, bytes(8)).to_bytes()
WORDS = say(AlignmentInfo("c1", (WordInfo("Hello", 0, 5, 0, 5),)))
TO_CLIENT = (
    story(say(GREETING), say(started("c1", 1)), "a\x01Hi", WORDS, AUDIO, "e\x01", say(done("c1"))),
    story(say(started("c2", 2)), "c\x01", AUDIO, say(cancelled("c1")), AUDIO, "o", "g\x02"),
    story(
        say_json(type="error", code="engine_failed", message="x", ends="context", context_id="c1"),
        say_json(type="pong", client_time_ms=1, received_ms=2, sent_ms=3),
        say_json(type="server.draining", leave_within_ms=5, more="unknown"),
    ),
)
TO_SESSION = (
    story(OPEN, TEXT, "p12345678", "r", "e", "p1", say(TextEnd("c1")), "e", "r", "e", "r"),
    story(RICH_OPEN, say(TextAppend("c2", "one two")), "w", "p123", "r", "x", "r"),
    story(OPEN, TEXT, "p1234", "r", REPORT, say(ContextCancel("c1", 5)), OPEN, "r"),
    story(OPEN, HALVES, say(AudioCredit("c1", 10.0)), "q", "w\xff", "w\xff", "r"),
)
WIRE_WORDS = (
    *(f'"type":"{name}"'.encode() for name in (*CLIENT_MESSAGES, *SERVER_MESSAGES)),
    *(b'"context_id":"c1"', b'"context_no":2', b'"text":"', b'"played":', b'"window_ms":'),
    *(b'"format":{"encoding":"', b'"sample_rate":', b'"ends":"context"', b"null", b"NaN", b"1e999"),
    *(b"\\ud83d", b"\\ude00", b"\\u0000", b"true", b"[[", b'{"', b"9007199254740993"),
    *(SEPARATOR + step for step in (b"t{", b"b\x01\x00", b"p", b"e", b"x", b"w\x40", b"r")),
)
TEXTS = (
    "Dr. Smith said: **Hello!** It costs 3.14 USD, e.g. at https://example.com/a?b=1. Really?",
    "# Title\n\n- one\n- two\n\n```python\nx = 1\n```\n| a | b |\n|---|---|\n[a](b) ![c](d)",
    "Am 2. Oktober, z. B. um 9 Uhr. \U0001f469\u200d\U0001f467 e\u0301t\u00e9 &amp; <b>fett</b>",
    "你好。今天天气很好\uff0c我们去公园吧\uff01\u0e44\u0e17\u0e22 नमस्ते।",
)
TEXT_WORDS = (
    *(b"**", b"```", b"\n\n", b"\n- ", b"](", b"![", b"<!--", b"&#", b"e.g. ", b"Dr. ", b"\r\n"),
    *(
        "。".encode(),
        "\u200d".encode(),
        "\ufe0f\u20e3".encode(),
        "e\u0301".encode(),
        b"\xed\xa0\x80",
    ),
)
