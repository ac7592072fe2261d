"""The server's access gate, settings file, and HTTP bodies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Message

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_server.configuration import configuration_from, load_configuration
from qwen3tts_server.dialects.http_bodies import (
    FIELD_BYTES,
    MOST_FIELDS,
    MOST_FILES,
    form,
    parse_object,
)
from qwen3tts_server.dialects.http_errors import speech_error_response
from qwen3tts_server.dialects.openai.batch import Batch, merged, read_batch
from qwen3tts_server.dialects.openai.request import SpeechOrder, order, parse
from qwen3tts_server.dialects.openai.transcription import wanted
from qwen3tts_server.gate import Gate
from qwen3tts_server.keys import ApiKeys
from qwen3tts_server.settings import AccessSettings, OpenAISettings
from qwen3tts_server.voices.catalogue import VoiceCatalogue
from qwen3tts_settings.entries import BadConfiguration, from_yaml
from qwen3tts_wire.errors import SpeechError
from tests.engine.fake_engine import CloningEngine
from tests.fuzz.target import Target, sequence, steps
from tests.server.openai.caller import FakeRecogniser
from tests.server.ops.asgi import Reached, scope_of, sent_by

KEY = "the-one-key-that-is-taken"
KEY_64 = "dGhlLW9uZS1rZXktdGhhdC1pcy10YWtlbg"


def run_gate(data: bytes) -> None:
    """Steps: a header of some kind each; a WebSocket where a subprotocol is offered."""
    headers: list[tuple[bytes, bytes]] = []
    subprotocols: list[str] = []
    path = "/v1/models"
    for kind, rest in steps(data):
        if kind in "aoh":
            names = {"a": b"authorization", "o": b"origin", "h": b"host"}
            headers.append((names[kind], rest))
        elif kind == "s":
            subprotocols.append(rest.decode("latin-1"))
        elif kind == "p":
            path = rest.decode("utf-8", "replace")
    reached = Reached()
    app = Gate(reached, AccessSettings(api_keys=(KEY,)), ApiKeys((KEY,)))
    scope = scope_of("websocket" if subprotocols else "http", path, subprotocols=subprotocols)
    scope["headers"] = headers
    sent = asyncio.run(sent_by(app, scope))
    if reached.scopes:
        held = any(KEY.encode() in value for _, value in headers)
        held = held or any(each.startswith("bearer.") for each in subprotocols)
        assert held or path in ("/health", "/ready"), "let in without a key"
        assert not any(
            each.startswith("bearer.") for each in reached.scopes[0].get("subprotocols", ())
        )
    else:
        assert sent[0]["status"] in (401, 403)
    assert not app._under_way


def run_configuration(data: bytes) -> None:
    """The first step is a file, the others are variables of the environment and overrides."""
    env: dict[str, str] = {}
    overrides: list[str] = []
    for kind, rest in steps(data):
        text = rest.decode("utf-8", "replace")
        if kind == "f":
            with contextlib.suppress(BadConfiguration):
                configuration_from(from_yaml(text, "f"))
        elif kind == "e":
            name, _, value = text.partition("=")
            env[f"QWEN3TTS__{name}"] = value
        elif kind == "s":
            overrides.append(text)
    refused: list[BadConfiguration] = []
    try:
        load_configuration(None, env, overrides).hash()
    except BadConfiguration as error:
        refused.append(error)
    assert all(error.message and error.remedy for error in refused)


SETTINGS = OpenAISettings()

VOICES = VoiceCatalogue(CloningEngine())

MOST_BYTES = 3000
BOUNDARY = b"limit"
RECOGNISER = FakeRecogniser()

logging.getLogger("python_multipart").setLevel(logging.CRITICAL)

T = TypeVar("T")


def run_speech(data: bytes) -> None:
    meant = outcome(lambda: done(order(parse(parse_object(data)), VOICES, SETTINGS, "")))
    if isinstance(meant, SpeechError):
        assert 400 <= speech_error_response(meant).status_code < 500
        return
    context = meant.context
    assert 0 < len(meant.text) <= SETTINGS.max_input_chars
    assert context.format.producible
    # What passes is what engines take.
    SynthesisRequest(
        meant.text,
        speed=context.speed,
        initial_codec_chunk_frames=context.initial_codec_chunk_frames,
    )


def run_batch(data: bytes) -> None:
    read = outcome(lambda: read_batch(parse_object(data), SETTINGS))
    if isinstance(read, SpeechError):
        assert 400 <= speech_error_response(read).status_code < 500
        return
    assert 0 < len(read.items) <= SETTINGS.max_batch_items
    for item in read.items:
        meant = outcome(partial(_understood, read, item))
        if isinstance(meant, SpeechError):
            assert 400 <= speech_error_response(meant).status_code < 500
        else:
            assert meant.delivery == "whole"
            assert meant.context.format.producible


def _understood(read: Batch, item: object) -> SpeechOrder:
    return done(item_order(read, item))


async def item_order(read: Batch, item: object) -> SpeechOrder:
    return await order(parse(merged(read.defaults, item)), VOICES, SETTINGS, "")


def run_form(data: bytes) -> None:
    messages: list[Message] = [
        {"type": "http.request", "body": data[at : at + 97], "more_body": at + 97 < len(data)}
        for at in range(0, max(1, len(data)), 97)
    ]

    async def receive() -> Message:
        return messages.pop(0)

    kind = b"multipart/form-data; boundary=" + BOUNDARY
    request = Request({"type": "http", "headers": [(b"content-type", kind)]}, receive)
    sent = outcome(lambda: done(form(request, MOST_BYTES)))
    if isinstance(sent, SpeechError):
        assert speech_error_response(sent).status_code in (400, 413)
        return
    asked = outcome(lambda: wanted(sent, RECOGNISER, 100))
    if isinstance(asked, SpeechError):
        assert speech_error_response(asked).status_code in (400, 404, 413)
    else:
        assert 0 < len(asked.audio) <= 100
    assert len(sent.files) <= MOST_FILES
    assert len(sent.fields) <= MOST_FIELDS
    assert all(len(each) <= FIELD_BYTES for each in sent.fields.values())
    assert sum(map(len, sent.files.values())) <= len(data)


def outcome(work: Callable[[], T]) -> T | SpeechError:
    """Return its result or the error that it raised."""
    try:
        return work()
    except SpeechError as error:
        return error


def done(work: Coroutine[Any, Any, T]) -> T:
    """The value of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    work.close()
    raise AssertionError("it waits for something")


def _part(head: bytes, content: bytes) -> bytes:
    return b"--limit\r\nContent-Disposition: form-data; " + head + b"\r\n\r\n" + content + b"\r\n"


SPEECH_WORDS = (
    *(b'"input"', b'"voice"', b'"id"', b'"response_format"', b'"stream_format"', b'"sse"'),
    *(b'"sample_rate"', b'"speed"', b'"seed"', b'"ref_audio"', b'"task_type"', b'"Base"'),
    *(b"null", b"true", b"1e999", b"\\ud800", b"-0", b"9223372036854775808", b"NaN"),
)

TARGETS = {
    "gate": Target(
        run_gate,
        "Whatever the headers hold, a request without a key is refused.",
        (
            sequence("aBearer " + KEY, "hlocalhost"),
            sequence("s" + "bearer." + KEY_64, "sqwen3tts.speech.v1"),
            sequence("ohttp://127.0.0.1:1", "h127.0.0.1:1", "aBearer x"),
            sequence("p/health"),
        ),
        (b"Bearer ", b"bearer.", KEY.encode(), KEY_64.encode(), b"http://", b"localhost", b"[::1]"),
        hard=(
            sequence("aBearer", "aBearer "),
            sequence(b"aBearer \xff\xfe"),
            sequence("aBasic " + KEY),
            sequence("s" + "bearer." + KEY_64, "s" + "bearer." + KEY_64 + "="),
            sequence(b"sbearer.\xff", "sbearer.%%%%", "sbearer."),
            sequence("ohttp://[::1", "h[::1"),
            sequence("ohttp://a:99999999999", "ha:99999999999"),
            sequence("onull", "o", "h", "h"),
            sequence("p/health/../v1/models"),
            sequence("p/health?", "p//health"),
        ),
    ),
    "configuration": Target(
        run_configuration,
        "Settings are read, or refused by a named error with a remedy.",
        (
            sequence("fserver:\n  port: 1\n  access: {origins: [a]}\n"),
            sequence("eSERVER__PORT=1", "sserver.port=2", "sengine.qwen3.model=m"),
            sequence('sstarters.phrases=["a", b]', "slogging.form=json"),
        ),
        (b"server", b"access", b"engine", b"qwen3", b"&a", b"*a", b"!!", b": ", b"- ", b"null"),
        # PyYAML takes a time in proportion to the square of how deep brackets are nested.
        max_bytes=1024,
        hard=(
            sequence("fa: &a {b: *a}"),
            sequence("f" + "{a: " * 60 + "}" * 60),
            sequence("f" + "[" * 900),
            sequence("f!!python/object/apply:os.system [ls]"),
            sequence("f? [a]\n: b"),
            sequence("fserver: {port: 0x1F}", "fserver: {port: 1_000}", "fserver: {port: 1:30}"),
            sequence(b"fserver: \x00", b"f\xef\xbb\xbf"),
            sequence(
                "fserver: {frame_ms: .nan}", "fserver: {frame_ms: .inf}", "fserver: {port: 1e400}"
            ),
            sequence("fserver: {port: " + "9" * 5000 + "}"),
            sequence("e=", "e__=", "eSERVER=", "eSERVER__=1", "eSERVER__PORT__X=1"),
            sequence(
                "s=", "s.=1", "sserver=5", "sserver={port: 1}", "sserver.port=", "sserver.port=[["
            ),
            sequence("sserver.access.api_keys=k", "eSERVER__ACCESS__API_KEYS=a b"),
            sequence("sengine.qwen3=null", "sengine.qwen3.graphs=auto", "sengine.qwen3={}"),
        ),
    ),
    "rest_speech": Target(
        run_speech,
        "A request to speak is understood within the engine's bounds, or refused with a 4xx.",
        (
            b'{"input":"Hello.","voice":"alloy","model":"tts-1","response_format":"pcm"}',
            b'{"input":"Hi","voice":{"id":"tone"},"speed":1,"stream":true,"sample_rate":8000}',
            b'{"input":"a","language":"German","seed":-1,"initial_codec_chunk_frames":0}',
            b'{"input":"a","task_type":"Base","ref_audio":"UklGRg==","ref_text":"b"}',
            b'{"input":"a","word_timestamps":true,"stream_format":"sse","extra_params":{"b":[]}}',
        ),
        SPEECH_WORDS,
        hard=(
            b"",
            b"\xef\xbb\xbf{}",
            b'{"input":"\\ud83d"}',
            b'{"input":"a","speed":1e999}',
            b'{"input":"a","speed":-0.0}',
            b'{"input":"a","sample_rate":8e3}',
            b'{"input":"a","seed":' + b"9" * 4000 + b"}",
            b'{"input":"a","seed":-9223372036854775808}',
            b'{"input":"a","x":' + b'{"y":' * 500 + b"1" + b"}" * 500 + b"}",
            b"[" * 4000,
            b'{"input":"a","voice":{"id":"a","id":{"id":1}}}',
            b'{"input":"\xc0\xaf"}',
            b'{"input":"a","voice":"\\u0000"}',
            b'{"input":"a","language":"\\ud800"}',
            b'{"input":"a","voice":"\\ud800"}',
            b'{"input":"a","model":"\\ud800"}',
        ),
    ),
    "rest_batch": Target(
        run_batch,
        "A batch is read within its bounds, each item as a request of its own, or refused.",
        (
            b'{"items":[{"input":"Hello."},{"input":"Hi","voice":"tone","speed":1}],"voice":"alloy"}',
            b'{"items":[{"input":"a","speaker_embedding":[0.5,1e3]},7,null],"sample_rate":44100}',
            b'{"items":[{"input":"a"}],"ref_audio":"UklGRg==","ref_text":"b","stream":true}',
        ),
        (b'"items"', b'"speaker_embedding"', b'"stream"', *SPEECH_WORDS),
        hard=(
            b"",
            b"{}",
            b'{"items":[]}',
            b'{"items":[[],{},"",0,null,true]}',
            b'{"items":[{"input":1e999}],"speed":1e999}',
            b'{"items":[{"input":"a","items":[{}],"stream":true}],"input":5}',
            b'{"items":[{"input":"\\ud800"}]}',
            b'{"items":[' + b"{}," * 40 + b"{}]}",
            b'{"items":[{"input":"a","speaker_embedding":[1e999,-1e999]}]}',
        ),
    ),
    "rest_form": Target(
        run_form,
        "A form is read within its own bytes, or refused.",
        (
            _part(b'name="name"', b"Anna")
            + _part(b'name="audio_sample"; filename="a.wav"', b"RIFF\x00\xff")
            + b"--limit--\r\n",
            _part(b'name="file"; filename="a.wav"', b"RIFF")
            + _part(b'name="response_format"', b"text")
            + _part(b'name="temperature"', b"nan")
            + b"--limit--\r\n",
            _part(b'name="a"', b"") + b"--limit--",
            b"--limit--\r\n",
        ),
        (b"--limit", b"--limit--", b"\r\n", b"\r\n\r\n", b'name="', b'filename="', b"; "),
        hard=(
            b"",
            b"\r\n--limit\r\n",
            b"--limit\r\n\r\nno header\r\n--limit--",
            b"--limit\r\nContent-Disposition: form-data\r\n\r\n\r\n--limit--",
            _part(b'name="a"; name="b"', b"\xff"),
            _part(b'name="\xff"', b"a") + b"--limit--",
            _part(b"name*=utf-8''x", b"a") + b"--limit--",
            _part(b'name="a"', b"1") * 40 + b"--limit--",
            _part(b'name="a"; filename="b"', b"1") * 2 + b"--limit--",
            _part(b'name="a', b"1") + b"--limit--",
            b"--limit\r\n" + b"x: y\r\n" * 400,
            b"--limit\r\n" + b"x" * 3000,
            b"--limit--\r\n--limit\r\n",
        ),
    ),
}
