"""The dialects of the speech server, and the answers of an upstream server."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from qwen3tts_engine.base import LoadedVoice
from qwen3tts_engine.upstream.backend import MOST_VOICES, read_voices
from qwen3tts_engine.upstream.http import MOST_CHARS, of_status
from qwen3tts_engine.upstream.openai_rest import body_for
from qwen3tts_engine.upstream.sound import MAX_HEADER, PcmIntake
from qwen3tts_engine.upstream.vllm_omni import UtteranceExchange
from qwen3tts_server.dialects.runvnc.messages import FRAME
from qwen3tts_server.dialects.vllm_omni.utterances import Granularity, Splitter
from qwen3tts_wire.errors import BadRequest, EngineFailed, SpeechError
from tests.fuzz.target import Target, chunks, sequence, steps
from tests.server.runvnc.client import Talk
from tests.server.vllm_omni.line import CLOSE, Line

ANSWERS = {"connected", "ready", "audio_start", "audio_end", "pong", "error"}

INIT = b't{"type":"init","voice_id":"tone"}'

SPEAK = b't{"type":"generate_stream","text":"Hello.","language":"Auto","initial_chunk_tokens":4}'


class Listener:
    """Reads what a server says and holds it to its promises."""

    def __init__(self) -> None:
        self.open = False
        """True while an utterance is spoken."""

    def hear(self, messages: list[dict[str, Any] | bytes], waiting: bool) -> None:
        for message in messages:
            if isinstance(message, bytes):
                assert len(message) == FRAME
                assert self.open, "a frame outside of speech"
                continue
            kind = message["type"]
            assert kind in ANSWERS
            if kind == "audio_start":
                assert not self.open, "the new begins before the old ended"
                self.open = True
            elif kind == "audio_end":
                # Without a beginning only where what waited for a voice was taken back.
                assert self.open or waiting
                self.open = False
            elif kind == "error":
                assert message["message"]
                assert message["code"]
                assert message["ends"] in ("speech", "connection", "none")
                if message["ends"] == "speech":
                    assert self.open
                    self.open = False


def run_runvnc(data: bytes) -> None:
    talk = Talk(idle_s=60.0, max_waiting=8, max_message_chars=2000, max_init_bytes=3000)
    listener = Listener()
    waited = False
    for kind, rest in steps(data):
        waited = waited or talk.loading is not None
        _runvnc_step(talk, kind, rest)
        if kind in "rw":
            listener.hear(talk.heard, waited)
            talk.heard.clear()
        assert talk.session.backlog < 64_000
    if talk.loading is not None:
        talk.refuse(BadRequest("No."))
    while talk.loading is not None:
        talk.load()
    if talk.speaking is not None and talk.close_code() is None:
        talk.finish()
    talk.read()
    for _ in range(3000):
        due = talk.session.next_write(talk.now)
        if due is None:
            break
        talk.now = due + 1e-6
        talk.read()
    listener.hear(talk.heard, waited)
    assert not listener.open or talk.close_code() is not None
    talk.pass_time(100.0)
    assert talk.close_code() is not None
    assert talk.speaking is None


def _runvnc_step(talk: Talk, kind: str, rest: bytes) -> None:
    if kind in "tb":
        talk.raw(rest.decode("utf-8", "replace") if kind == "t" else rest)
    elif kind == "r":
        talk.read()
    elif kind == "w":
        talk.pass_time((rest[0] if rest else 3) / 100)
        talk.read()
    elif kind == "q":
        talk.act(talk.session.drain(1.0, talk.now))
    elif kind == "l" and talk.loading is not None:
        talk.load("v" + str(len(rest)), "text")
    elif kind == "n" and talk.loading is not None:
        talk.refuse(BadRequest("No."))
    elif kind == "z":
        # Late news of something that is over.
        talk.session.sound(0, bytes(400))
        talk.act(talk.session.ended(0))
        talk.act(talk.session.failed(0, EngineFailed("broke")))
        talk.act(talk.session.refused(BadRequest("No."), talk.now)) if not talk.loading else None
        voice = LoadedVoice("v", cached=True)
        if talk.loading is None:
            talk.act(talk.session.loaded(voice, x_vector_only=False, now=talk.now))
    elif talk.speaking is not None:
        if kind == "p":
            talk.sound(bytes(7 * len(rest)))
        elif kind == "e":
            talk.finish()
        elif kind == "x":
            talk.fail(EngineFailed("broke"))


GRANULARITIES: tuple[Granularity, ...] = ("none", "sentence", "clause")

STREAM = b't{"type":"session.config","response_format":"pcm","stream_audio":true'

SAY = b't{"type":"input.text","text":"One. Two, three. Fo"}'

INPUT_DONE = b't{"type":"input.done"}'

CANCEL = b't{"type":"input.cancel"}'


def run_vllm_omni(data: bytes) -> None:
    line = Line(max_waiting_answers=60, max_message_chars=2000, max_waiting_chars=3000)
    for kind, rest in steps(data):
        if line.code() is not None:
            break
        if kind in "tb":
            line.say(rest.decode("utf-8", "replace") if kind == "t" else rest)
        elif kind == "w":
            line.wait((rest[0] if rest else 20) / 4)
        elif kind == "k":
            line.stuck = True
        elif kind == "u":
            line.unstick()
        elif kind == "q":
            line.act(line.session.drain(5.0, line.now))
        elif line.saying is not None:
            if kind == "p":
                line.audio(bytes(2 * (len(rest) + 1)))
            elif kind == "e":
                line.finish()
            elif kind == "x":
                line.fail(EngineFailed("broke"))
    line.unstick()
    if line.code() is None:
        line.say(CLOSE)
    for _ in range(4000):
        if line.saying is None:
            break
        line.finish()
    assert line.saying is None
    if line.code() is None:  # before the first configuration there is no good-bye
        line.wait(60.0)
    assert line.code() is not None
    assert not line.session.busy


def run_splitter(data: bytes) -> None:
    granularity = GRANULARITIES[data[0] % 3] if data else "sentence"
    text = data[2:].decode("utf-8", "replace")
    whole = _split_units(granularity, text, len(text) or 1)
    assert _split_units(granularity, text, 1 + (data[1] if len(data) > 1 else 0) % 16) == whole
    assert "".join("".join(whole).split()) == "".join(text.split())
    assert all(unit == unit.strip() != "" for unit in whole)


def _split_units(granularity: Granularity, text: str, length: int) -> list[str]:
    splitter = Splitter(granularity)
    found: list[str] = []
    for start in range(0, len(text), length):
        splitter.feed(text[start : start + length])
        while (unit := splitter.take()) is not None:
            found.append(unit)
    splitter.end()
    while (unit := splitter.take()) is not None:
        found.append(unit)
    assert len(splitter) == 0
    return found


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
            for piece in chunks(body, length):
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

TARGETS = {
    "runvnc": Target(
        run_runvnc,
        "Each utterance begins and ends once, with whole frames only in between.",
        (
            sequence(INIT, "l", "r", SPEAK, b"p" + bytes(60), "r", "e", "r"),
            sequence(INIT, "l", SPEAK, b"p" + bytes(60), "r", b't{"type":"cancel"}', "r"),
            sequence(
                INIT,
                "l",
                b't{"type":"text","text":"Hello ","final":false}',
                b't{"type":"text","text":"you.","final":true}',
                "e",
            ),
            sequence(
                b't{"type":"init","ref_audio_base64":"UklGRg==","ref_text":"Hi."}',
                b't{"type":"generate","text":"Hello."}',
                b't{"type":"ping"}',
                "labc",
                b"p" + bytes(90),
                "w\x05",
                "e",
            ),
        ),
        words=tuple(
            b'"init" "generate" "cancel" "text" "final":true "voice_id":"tone" '
            b'"x_vector_only":true \\ud83d'.split()
        ),
        stepwise=True,
        hard=(
            b"t" + b"[" * 3000,
            b"b" + bytes(40),
            b't{"type":"generate_stream","text":"\\ud83d","voice_id":"tone"}',
            sequence(b't{"type":"cancel"}', b't{"type":"cancel"}', "e", "x", "l", "n", "z", "r"),
            sequence(
                b't{"type":"init","voice_id":"v1"}',
                *[b't{"type":"generate","text":"Hello."}'] * 12,
                b't{"type":"cancel"}',
                *("r", "l", "r"),
            ),
            sequence(
                b't{"type":"text","text":"a","voice_id":"tone"}', "pxxx", "q", "w\xff", "w\xff", "z"
            ),
        ),
    ),
    "vllm_omni": Target(
        run_vllm_omni,
        "Whatever client, engine and clock do, units are spoken one by one in the protocol's order,"
        " every answer is its own protocol, and the connection comes to rest with a close code.",
        (
            sequence(STREAM + b"}", SAY, INPUT_DONE, "pxx", "e", b't{"type":"session.close"}'),
            sequence(
                STREAM + b',"split_granularity":"sentence","word_timestamps":true}',
                *(SAY, "p", "e", "px", "x", SAY, CANCEL, SAY, INPUT_DONE, "p", "e", "e", "e"),
            ),
            sequence(
                b't{"type":"session.config","speaker":"tone","split_granularity":"clause"}',
                *(SAY, "k", "p", "e", "u", INPUT_DONE, "q", "p", "e", b"w\xff"),
            ),
        ),
        words=(
            *(b'"type":"session.config"', b'"type":"input.text"', b'"type":"input.done"'),
            *(b'"text":"', b'"split_granularity":"', b'"clause"', b'"seed":', b'"voice":null'),
            *(b'"stream_audio":true', b'"word_timestamps":true', b'"response_format":"pcm"'),
            *(INPUT_DONE, CANCEL, b"\\ud83d", b"1e999", b'"speaker_embedding":['),
        ),
        stepwise=True,
        hard=(
            b"t" + b"[" * 1900,
            b"b" + bytes(3000),
            b"t" + b"x" * 5000,
            sequence(b't{"type":"session.config"}', *[INPUT_DONE] * 40, CANCEL, "q"),
            sequence(b't{"type":"session.config"}', "k", *[CANCEL] * 40, "u"),
            sequence(
                STREAM + b"}", SAY, INPUT_DONE, "p", "k", "p", "p", CANCEL, "u", SAY, "q", b"w\xff"
            ),
            sequence(STREAM + b"}", SAY, "q", INPUT_DONE, b"w\xff", "p"),
            sequence(
                b't{"type":"session.config","split_granularity":"clause"}',
                b't{"type":"input.text","text":"' + b"a1, " * 400 + b'"}',
                *("e", "e", "x", "e", b't{"type":"session.close"}', "e"),
            ),
            sequence(
                b't{"type":"session.config"}',
                b't{"type":"input.text","text":"\\ud83d"}',
                b't{"type":"input.text","text":"\\ude00\\udc00"}',
                INPUT_DONE,
            ),
            sequence(b't{"type":"session.config","seed":9223372036854775808}', SAY),
            json.dumps({"type": "session.config", "speaker_embedding": [0] * 700}).encode(),
        ),
    ),
    "vllm_omni_units": Target(
        run_splitter,
        "Any text comes back in units that lose nothing but white space, the same however cut.",
        tuple(
            bytes([number, 3]) + text.encode()
            for number, text in enumerate(
                (
                    "One. Two.",
                    'Dr. J. R. Smith said "3.14, i.e. pi." Yes?! 1,000 times...',
                    "Well, e.g. this; and \u4f60\u597d\uff0c\u4e16\u754c\u3002\u300d \u0964 \u061f",
                )
            )
        ),
        words=(b". ", b"Dr.", b"e.g.", b"3.14", "\u3002".encode(), "\u300d".encode(), b"?!", b'"'),
        max_bytes=1024,
        hard=(
            b"\x01\x00" + b"." * 900,
            b"\x02\x00" + b"a." * 400,
            b"\x01\x00" + "\u3002.J.\u3002Dr".encode() * 40,
            b"\x02\x05" + b"1.," * 200 + b"\xff" * 30,
            b"\x00\x00" + b" \n\t" * 200,
        ),
    ),
    "upstream_ws": Target(
        run_ws,
        "Any messages are whole samples, no more than were sent, or an error with a remedy.",
        (
            sequence(START, b"babcd", DONE, OVER),
            sequence(b"babc", b"bd", DONE, START, b"bef", DONE, "c\x00"),
            sequence(START, 't{"type":"error","message":"no","code":"server_busy"}', DONE),
            sequence(START, b"b" + WAV + b"abc"),
            sequence('t{"type":"audio.chunk","audio_b64":"AAEC","sample_rate":24000}', DONE),
        ),
        words=(b"audio.start", b"audio.done", b"session.done", b"error", b"RIFF", b"true", b"null"),
        stepwise=True,
        hard=(
            sequence("t[1]", "t5", "tnull", 't{"type":[]}'),
            sequence("t" + "[" * 3000),
            sequence('t{"type":"audio.start","sample_rate":1e999,"channels":true,"format":{}}'),
            sequence('t{"type":"audio.start","sample_rate":NaN}'),
            sequence('t{"type":"error","message":{"a":1},"code":[],"remedy":7}'),
            sequence('t{"type":"error","message":"\\ud800\\u0000' + "x" * 2000 + '"}'),
            sequence('t{"type":"audio.chunk","audio_b64":[1]}'),
            sequence('t{"type":"audio.chunk","audio_b64":"\\u00e9==="}'),
            sequence(START, b"bRI", b"bFF", b"b\0\0\0\0WA", b"bVEdata\0\0\0\0", b"bx"),
            sequence(START, b"bRIFF\0\0\0\0WAVEfmt \x02\0\0\0ab"),
            sequence("c", "c\x00", "c\x03reason"),
            sequence(START, START),
            sequence(OVER, DONE, b"babc"),
        ),
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
        hard=(
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
    ),
}
