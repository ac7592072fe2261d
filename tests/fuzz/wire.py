"""The wire protocol, the session, server-sent events, and the segmenter."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from qwen3tts_text.segmenter import Segment, Segmenter
from qwen3tts_wire.client_end import ClientProtocol
from qwen3tts_wire.endpoint import Data
from qwen3tts_wire.errors import EngineFailed, LimitExceeded, SpeechError
from qwen3tts_wire.fields import DecodeError, decode, encode
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
from qwen3tts_wire.server_end import ServerProtocol
from qwen3tts_wire.sse import SseEvent, SseParser
from tests.fuzz.target import SEPARATOR, Target, chunks, sequence, steps
from tests.server.driver import Driver, tone
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
    sequence(OPEN, "s", TEXT, "a234", HALVES, say(TextFlush("c1")), say(TextEnd("c1")), "d"),
    sequence(
        RICH_OPEN, REPORT, OPEN, say(AudioCredit("c2", 10.0)), say(ContextCancel("c2", 5)), "c"
    ),
    sequence(
        say(Ping(1.5)), say_json(type="voice.load", request_id="r", voice_id="v"), b"b\x01", "f"
    ),
    sequence(OPEN, say_json(type="text.append", context_id="c1", text=5), TEXT, OPEN),
)

AUDIO = b"b" + AudioFrame(1, 0, bytes(8)).to_bytes()

WORDS = say(AlignmentInfo("c1", (WordInfo("Hello", 0, 5, 0, 5),)))

TO_CLIENT = (
    sequence(
        say(GREETING), say(started("c1", 1)), "a\x01Hi", WORDS, AUDIO, "e\x01", say(done("c1"))
    ),
    sequence(say(started("c2", 2)), "c\x01", AUDIO, say(cancelled("c1")), AUDIO, "o", "g\x02"),
    sequence(
        say_json(type="error", code="engine_failed", message="x", ends="context", context_id="c1"),
        say_json(type="pong", client_time_ms=1, received_ms=2, sent_ms=3),
        say_json(type="server.draining", leave_within_ms=5, more="unknown"),
    ),
)

TO_SESSION = (
    sequence(OPEN, TEXT, "p12345678", "r", "e", "p1", say(TextEnd("c1")), "e", "r", "e", "r"),
    sequence(RICH_OPEN, say(TextAppend("c2", "one two")), "w", "p123", "r", "x", "r"),
    sequence(OPEN, TEXT, "p1234", "r", REPORT, say(ContextCancel("c1", 5)), OPEN, "r"),
    sequence(OPEN, HALVES, say(AudioCredit("c1", 10.0)), "q", "w\xff", "w\xff", "r"),
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

MOST_EVENT_CHARS = 200


def _text(data: bytes) -> str:
    """Any text that a WebSocket can carry."""
    return data.decode("utf-8", "replace")


def _checked(data: Data) -> None:
    """Check that a message of the server is valid and can be encoded."""
    if isinstance(data, bytes):
        AudioFrame.from_bytes(data)
        return
    data.encode("utf-8")
    message = decode(data, SERVER_MESSAGES, strict=True)
    assert message is not None
    assert not isinstance(message, DecodeError), message


def run_wire_server(data: bytes) -> None:
    server = ServerProtocol()
    opened = [("c1", 1)]
    for kind, rest in steps(data):
        if kind in "tb":
            server.receive_data(_text(rest) if kind == "t" else rest)
            for event in server.events_received():
                if isinstance(event, ContextOpen):
                    opened.append((event.context_id, event.context_no))
        else:
            name, number = opened[rest[0] % len(opened) if rest else -1]
            with contextlib.suppress(SpeechError):
                if kind == "s":
                    server.send_started(started(name, number))
                elif kind == "a":
                    server.send_audio(name, bytes(2 * (len(rest) % 32)))
                elif kind == "d":
                    server.send_done(done(name))
                elif kind == "c":
                    server.send_cancelled(cancelled(name))
                elif kind == "f":
                    server.send_failure(name, EngineFailed("broke"))
        answers = server.data_to_send()
        assert len(answers) <= 1
        for answer in answers:
            _checked(answer)
            assert len(answer) <= 2048 + len(rest)


def run_wire_client(data: bytes) -> None:
    client = ClientProtocol()
    client.send_open("c1")
    client.send_open("c2")
    for kind, rest in steps(data):
        number = rest[0] % 4 if rest else 1
        if kind in "tb":
            client.receive_data(_text(rest) if kind == "t" else rest)
            assert len(client.events_received()) <= 1
            continue
        with contextlib.suppress(SpeechError):
            if kind == "o":
                client.send_open(window_ms=float(number))
            elif kind == "a":
                client.send_append(number, _text(rest[1:]))
            elif kind == "f":
                client.send_flush(number)
            elif kind == "e":
                client.send_end(number)
            elif kind == "c":
                client.send_cancel(number, len(rest))
            elif kind == "g":
                client.forget(number)
    for said in client.data_to_send():
        assert isinstance(said, str)
        said.encode("utf-8")


def run_session(data: bytes) -> None:
    line = Driver(ahead_ms=200)
    for kind, rest in steps(data):
        if kind in "tb":
            line.act(line.session.receive(_text(rest) if kind == "t" else rest, line.now))
        elif kind == "w":
            line.pass_time((rest[0] if rest else 30) / 100)
        elif kind == "r":
            _read(line)
        elif kind == "q":
            line.act(line.session.drain(5.0, line.now))
        elif line.speaking:
            number = sorted(line.speaking)[rest[0] % len(line.speaking) if rest else 0]
            if kind == "p" and number not in line.paused:
                line.produce(number, tone(100 * len(rest[:20])))
            elif kind == "e":
                line.finish(number)
            elif kind == "x":
                line.fail(number, EngineFailed("broke"))
        assert len(line.speaking) <= 64
    for _ in range(2000):
        if not line.speaking:
            break
        line.finish(min(line.speaking))
    assert not line.speaking
    _read(line)
    line.pass_time(15.0)
    _read(line)
    assert line.session.backlog == 0


def _read(line: Driver) -> None:
    while said := line.session.data_to_send(line.now):
        for each in said:
            _checked(each)
        line.act(line.session.sent(line.now))


def run_sse(data: bytes) -> None:
    whole, ended = _events([data])
    for length in (1, 1 + len(data) % 13):
        events, ended_too = _events(chunks(data, length))
        assert ended_too == ended
        # A push that raises keeps back the events before the error.
        assert events[: len(whole)] == whole
        assert ended or events == whole


def _events(pieces: list[bytes]) -> tuple[list[SseEvent], bool]:
    """The events, and whether one was too long."""
    parser = SseParser(MOST_EVENT_CHARS)
    events: list[SseEvent] = []
    try:
        for piece in pieces:
            events += parser.push(piece)
    except LimitExceeded:
        return events, True
    assert all(len(event.data) + len(event.event) <= MOST_EVENT_CHARS + 7 for event in events)
    return events, False


def run_segmenter(data: bytes) -> None:
    if len(data) < 2:
        return
    text = data[2:].decode("utf-8", "surrogateescape")
    language = (None, "en", "de", "fr", "zh-CN", "x")[data[0] % 6]
    whole = _segments(text, language, max(1, len(text)))
    assert _segments(text, language, 1 + data[1] % 16) == whole
    position = 0
    for segment in whole:
        assert segment.start == position
        position = segment.end
        assert len(segment.offsets) == len(segment.text) + 1
        assert list(segment.offsets) == sorted(segment.offsets)
        assert segment.start <= segment.offsets[0]
        assert segment.offsets[-1] <= segment.end
        segment.text.encode("utf-8")
    assert position == len(text)
    assert [segment.final for segment in whole] == [False] * (len(whole) - 1) + [True]


def _segments(text: str, language: str | None, length: int) -> list[Segment]:
    segmenter = Segmenter(language=language)
    found: list[Segment] = []
    for start in range(0, len(text), length):
        found += segmenter.push(text[start : start + length])
    return found + segmenter.end()


TARGETS = {
    "wire_server": Target(
        run_wire_server,
        "A client's messages are events or one short error each, and nothing the server says is"
        " anything but its own protocol.",
        TO_SERVER,
        WIRE_WORDS,
        stepwise=True,
        hard=(
            b"t" + b"[" * 4000,
            b't{"type":"ping","client_time_ms":1e999}',
            b't{"type":"ping","client_time_ms":' + b"9" * 4000 + b"}",
            b't{"type":"ping","type":"ping","client_time_ms":1}',
            b't{"type":"context.open","context_id":"\\u0000","context_no":1}',
            b't{"type":"context.open","context_id":"c","context_no":4294967296}',
            b't{"type":"\\ud83d","context_id":"\\ude00"}',
            sequence(
                b't{"type":"context.open","context_id":"c1","context_no":1}',
                "c",
                "d",
                "f",
                "f",
                "c",
            ),
        ),
    ),
    "wire_client": Target(
        run_wire_client,
        "A server's messages are one event each at most, a Violation where they are wrong.",
        TO_CLIENT,
        (*WIRE_WORDS, b"b\x01\x00\x00\x00\x01\x00\x00\x00"),
        stepwise=True,
        hard=(
            b"b\x01",
            b"b\x02" + bytes(20),
            b"b\x01\x00\x00\x00\x09\x00\x00\x00" + b"\xff" * 8,
            b't{"type":"session.created"}',
            b't{"type":"error","code":"x","message":"","ends":"context","context_id":"c9"}',
            sequence(
                b't{"type":"context.done","context_id":"c1"}', b't{"type":"pong"}', "c\x01", "c\x01"
            ),
        ),
    ),
    "server_session": Target(
        run_session,
        "Whatever client, engine and clock do, the session keeps one clause of a context at the"
        " engine, says only what the protocol has, and comes to rest.",
        TO_SESSION,
        WIRE_WORDS,
        stepwise=True,
        hard=(
            b"b\x00",
            sequence("p", "e", "x", "q", "q", "w\xff", "r"),
            sequence(
                b't{"type":"context.open","context_id":"c","context_no":1,"window_ms":60000}',
                b't{"type":"text.append","context_id":"c","text":"' + b"a. " * 300 + b'"}',
                *("p", "e", "q", b"w\xff", b"w\xff", "r", "e"),
            ),
        ),
    ),
    "sse": Target(
        run_sse,
        "A stream gives the same events, none beyond the bound, or LimitExceeded, however cut.",
        (
            b"data: one\n\nevent: x\r\ndata: two\r\ndata\r\n\r\n",
            b"\xef\xbb\xbf:hello\rdata:\xf0\x9f\x98\x80\r\rid: 5\nretry: 1\n\ndata: cut off",
        ),
        (b"data:", b"event:", b"\r\n", b"\n\n", b"\r\r", b"\xef\xbb\xbf", b"\n:"),
        max_bytes=1024,
        hard=(
            b"\r" * 50 + b"data\r\n\r\n",
            b"data: " + b"x" * 195 + b"\n\n",
            b": " + b"x" * 190 + b"\n:" + b"y" * 190 + b"\ndata:\n\n",
            b"event: a\nevent: b\n\ndata: \xf0\x9f\n\n\xff",
            b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n",
        ),
    ),
    "segmenter": Target(
        run_segmenter,
        "Any text comes back in segments that tile it, the same however it was cut.",
        tuple(bytes([n, 2 * n]) + text.encode() for n, text in enumerate(TEXTS)),
        TEXT_WORDS,
        max_bytes=1024,
        hard=(
            b"\x00\x00\xed\xa0\xbd\xed\xb8\x80" + b"\xff" * 20,
            b"\x01\x01" + b"```" * 50,
            b"\x02\x02" + b"[" * 200 + b"](" * 50,
            b"\x03\x00" + b"<" * 300,
            b"\x04\x05" + "\u200d\ufe0f".encode() * 60,
            b"\x05\x00" + b"1." * 200 + b"&#" * 40,
        ),
    ),
}
