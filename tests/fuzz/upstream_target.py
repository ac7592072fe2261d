"""Fuzz targets: what an upstream server may send, over its WebSocket and over HTTP."""

from __future__ import annotations

import contextlib

from qwen3tts_engine.upstream.backend import MOST_VOICES, read_voices
from qwen3tts_engine.upstream.http import MOST_CHARS, of_status
from qwen3tts_engine.upstream.openai_rest import body_for
from qwen3tts_engine.upstream.sound import MAX_HEADER, PcmIntake
from qwen3tts_engine.upstream.vllm_omni import UtteranceExchange
from qwen3tts_wire.errors import SpeechError
from tests.fuzz.target import Target, cuts, steps, story

MOST_EVENT = 500


def _checked(error: SpeechError) -> None:
    assert error.remedy
    assert error.message.isprintable()
    assert len(error.message) <= 2 * MOST_CHARS


def run_ws(data: bytes) -> None:
    exchange = UtteranceExchange()
    intake = PcmIntake()
    out = 0
    try:
        for kind, rest in steps(data):
            if kind == "c":
                exchange.closed(
                    1000 + rest[0] % 16 if rest else None, rest.decode("utf-8", "replace")
                )
            sound = exchange.receive(rest if kind == "b" else rest.decode("utf-8", "replace"))
            whole = intake.push(sound)
            assert len(whole) % 2 == 0
            out += len(whole)
        out += len(intake.end())
    except SpeechError as error:
        _checked(error)
    assert out <= exchange.received <= len(data)


def run_http(data: bytes) -> None:
    status, _, rest = data.partition(b"\n")
    kind, _, body = rest.partition(b"\n")
    shown = kind.decode("latin-1")
    number = 100 + sum(status) % 500
    _checked(of_status(number, body, shown, shown))
    with contextlib.suppress(ValueError):
        assert len(read_voices(body)) <= MOST_VOICES
    for length in (1, 7, len(body) or 1):
        intake = PcmIntake()
        out = 0
        try:
            reader = body_for(shown, None, MOST_EVENT)
            for piece in cuts(body, length):
                whole = intake.push(reader.push(piece))
                assert len(whole) % 2 == 0
                out += len(whole)
            reader.end()
            intake.end()
        except SpeechError as error:
            _checked(error)
        assert out <= len(body)


START = 't{"type":"audio.start","format":"pcm","sample_rate":24000}'
DONE = 't{"type":"audio.done","error":false}'
OVER = 't{"type":"session.done","total_sentences":1}'
WAV = (
    b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0\xc0\x5d\0\0\x80\xbb\0\0\x02\0\x10\0"
    b"data\xff\xff\xff\xff"
)
DELTA = b'data: {"type":"speech.audio.delta","audio":"AAEC"}\n\n'

TARGETS: dict[str, Target] = {
    "upstream_ws": Target(
        run_ws,
        "Any messages are whole samples, no more than were sent, or an error with a remedy.",
        (
            story(START, b"babcd", DONE, OVER),
            story(b"babc", b"bd", DONE, START, b"bef", DONE, "c\x00"),
            story(START, 't{"type":"error","message":"no","code":"server_busy"}', DONE),
            story(START, b"b" + WAV + b"abc"),
            story('t{"type":"audio.chunk","audio_b64":"AAEC","sample_rate":24000}', DONE),
        ),
        words=(b"audio.start", b"audio.done", b"session.done", b"error", b"RIFF", b"true", b"null"),
        stepwise=True,
    ),
    "upstream_http": Target(
        run_http,
        "Any answer is whole samples in any cut, or an error with a remedy.",
        (
            b"\n\n" + WAV + b"abcd",
            b"\naudio/pcm;rate=24000\nabcd",
            b"\ntext/event-stream\n" + DELTA + b'data: {"type":"speech.audio.done"}\n\n',
            b'\ntext/event-stream\nevent: error\ndata: {"error":{"message":"no"}}\n\n',
            b'd\napplication/json\n{"error":{"message":"no","code":"x","param":"voice"}}',
            b'd\napplication/json\n{"detail":[{"loc":["body","input"],"msg":"no"}]}',
            b'\napplication/json\n{"voices":["a",{"name":"b"}],"uploaded_voices":[]}',
        ),
        words=(b"data: ", b"speech.audio.delta", b"[DONE]", b"fmt ", b"data", b"detail", b"voices"),
    ),
}

HARD: dict[str, tuple[bytes, ...]] = {
    "upstream_ws": (
        story("t[1]", "t5", "tnull", 't{"type":[]}'),
        story("t" + "[" * 3000),
        story('t{"type":"audio.start","sample_rate":1e999,"channels":true,"format":{}}'),
        story('t{"type":"audio.start","sample_rate":NaN}'),
        story('t{"type":"error","message":{"a":1},"code":[],"remedy":7}'),
        story('t{"type":"error","message":"\\ud800\\u0000' + "x" * 2000 + '"}'),
        story('t{"type":"audio.chunk","audio_b64":[1]}'),
        story('t{"type":"audio.chunk","audio_b64":"\\u00e9==="}'),
        story(START, b"bRI", b"bFF", b"b\0\0\0\0WA", b"bVEdata\0\0\0\0", b"bx"),
        story(START, b"bRIFF\0\0\0\0WAVEfmt \x02\0\0\0ab"),
        story("c", "c\x00", "c\x03reason"),
        story(START, START),
        story(OVER, DONE, b"babc"),
    ),
    "upstream_http": (
        b"\n\nRIFF\0\0\0\0WAVELIST" + (MAX_HEADER + 1).to_bytes(4, "little"),
        b"\n\nRIFF\0\0\0\0WAVEfmt \0\0\0\0",
        b"\n\nRIFF\0\0\0\0WAVEfmt \xff\xff\0\0" + bytes(400),
        b"\naudio/pcm; rate=\xb2\nabc",
        b"\naudio/pcm; rate=" + b"9" * 500 + b"\nabc",
        b"\naudio/pcm; rate*=utf-8''%FF\nabc",
        b"\ntext/event-stream\ndata: " + b"[" * 490 + b"\n\n",
        b"\ntext/event-stream\ndata: " + b"x" * 600,
        b'\ntext/event-stream\ndata: {"type":"speech.audio.delta","audio":7}\n\n',
        b'\ntext/event-stream\nevent: speech.audio.delta\ndata: {"delta":"\xff"}\n\n',
        b'\ntext/event-stream\ndata: {"error":[1]}\n\ndata: [DONE]\n\n' + DELTA,
        b'd\napplication/json\n{"detail":[{"loc":7,"msg":"x"},{"loc":[{}],"msg":"y"}]}',
        b'd\napplication/json\n{"error":"\xed\xa0\x80"}',
        b"d\n\xff\xfe\n" + b"[" * 4000,
        b"d\ntext/html\n" + b"<" * 4000,
        b'\n\n{"voices":[{"id":""},{"id":7},{"id":"a","name":{"x":1},"language":[]}]}',
    ),
}
