"""Fuzz targets: the speech protocol's two ends, the server's session, and texts that are read."""

from __future__ import annotations

import contextlib

from qwen3tts_text.segmenter import Segment, Segmenter
from qwen3tts_wire.client_end import ClientProtocol
from qwen3tts_wire.endpoint import Data
from qwen3tts_wire.errors import EngineFailed, LimitExceeded, SpeechError
from qwen3tts_wire.fields import DecodeError, decode
from qwen3tts_wire.formats import AudioFrame
from qwen3tts_wire.messages import SERVER_MESSAGES, ContextOpen
from qwen3tts_wire.server_end import ServerProtocol
from qwen3tts_wire.sse import SseEvent, SseParser
from tests.fuzz import speech_examples as examples
from tests.fuzz.target import Target, cuts, steps
from tests.server.driver import Driver, tone
from tests.wire.pair import cancelled, done, started

MOST_EVENT_CHARS = 200


def _text(data: bytes) -> str:
    """Any text that a WebSocket can carry."""
    return data.decode("utf-8", "replace")


def _checked(data: Data) -> None:
    """What a server says is what a server may say, and is text that can be sent."""
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
        events, ended_too = _events(cuts(data, length))
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
        examples.TO_SERVER,
        examples.WIRE_WORDS,
        stepwise=True,
    ),
    "wire_client": Target(
        run_wire_client,
        "A server's messages are one event each at most, a Violation where they are wrong.",
        examples.TO_CLIENT,
        (*examples.WIRE_WORDS, b"b\x01\x00\x00\x00\x01\x00\x00\x00"),
        stepwise=True,
    ),
    "session": Target(
        run_session,
        "Whatever client, engine and clock do, the session keeps one clause of a context at the"
        " engine, says only what the protocol has, and comes to rest.",
        examples.TO_SESSION,
        examples.WIRE_WORDS,
        stepwise=True,
    ),
    "sse": Target(
        run_sse,
        "A stream gives the same events, none beyond the bound, or LimitExceeded, however cut.",
        (
            b"data: one\n\nevent: x\r\ndata: two\r\ndata\r\n\r\n",
            b"\xef\xbb\xbf:hello\rdata:\xf0\x9f\x98\x80\r\rid: 5\nretry: 1\n\ndata: cut off",
        ),
        (b"data:", b"event:", b"\r\n", b"\n\n", b"\r\r", b"\xef\xbb\xbf", b"\n:"),
        most_bytes=1024,
    ),
    "segmenter": Target(
        run_segmenter,
        "Any text comes back in segments that tile it, the same however it was cut.",
        tuple(bytes([n, 2 * n]) + text.encode() for n, text in enumerate(examples.TEXTS)),
        examples.TEXT_WORDS,
        most_bytes=1024,
    ),
}
