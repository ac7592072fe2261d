"""What is refused, and how: OpenAI's shape, the field, the cause and what to do."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_server.dialects.http_bodies import (
    MOST_ESCAPES,
    MOST_PARTS,
    THREAD_BYTES,
    parse_object,
)
from qwen3tts_server.dialects.openai.request import SpeechRequest, parse
from qwen3tts_server.settings import OpenAISettings, ServerSettings
from qwen3tts_wire.errors import BadRequest
from tests.engine.fake_engine import FakeEngine
from tests.server.openai.caller import JSON, SPEECH, Call, calling

LONG = "x" * 5000
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    # param, fields, code
    ("input", {"input": None}, "bad_request"),
    ("input", {"input": 5}, "bad_request"),
    ("input", {"input": ["a"]}, "bad_request"),
    ("input", {"input": {"text": "a"}}, "bad_request"),
    ("input", {"input": True}, "bad_request"),
    ("input", {"input": ""}, "bad_text"),
    ("input", {"input": " \n\t\u3000"}, "bad_text"),
    ("input", {"input": "x" * 4097}, "limit_exceeded"),
    ("input", {"input": "y" * 100_000}, "limit_exceeded"),
    ("input", {"input": "half \ud800"}, "bad_text"),
    ("model", {"model": "gpt-99"}, "model_not_found"),
    ("model", {"model": ""}, "model_not_found"),
    ("model", {"model": 1}, "bad_request"),
    ("model", {"model": LONG}, "bad_request"),
    ("voice", {"voice": "unlisted"}, "unknown_voice"),
    ("voice", {"voice": LONG}, "bad_request"),
    ("voice", {"voice": 1}, "bad_request"),
    ("voice", {"voice": ["tone"]}, "bad_request"),
    ("voice", {"voice": {}}, "bad_request"),
    ("voice", {"voice": {"id": None}}, "bad_request"),
    ("voice", {"voice": {"id": ""}}, "bad_request"),
    ("voice", {"voice": {"id": "unlisted"}}, "unknown_voice"),
    ("voice", {"speaker": "unlisted"}, "unknown_voice"),
    ("speaker", {"speaker": 1}, "bad_request"),
    ("instructions", {"instructions": 1}, "bad_request"),
    ("instructions", {"instructions": LONG}, "bad_request"),
    ("response_format", {"response_format": "ogg"}, "bad_request"),
    ("response_format", {"response_format": "MP3"}, "bad_request"),
    ("response_format", {"response_format": 3}, "bad_request"),
    ("response_format", {"response_format": ""}, "bad_request"),
    ("sample_rate", {"sample_rate": 7999}, "bad_request"),
    ("sample_rate", {"sample_rate": 0}, "bad_request"),
    ("sample_rate", {"sample_rate": -8000}, "bad_request"),
    ("sample_rate", {"sample_rate": "8000"}, "bad_request"),
    ("sample_rate", {"sample_rate": 8000.5}, "bad_request"),
    ("sample_rate", {"sample_rate": 10**30}, "bad_request"),
    ("sample_rate", {"sample_rate": 10**4000}, "bad_request"),
    ("speed", {"speed": 0}, "bad_request"),
    ("speed", {"speed": 0.24}, "bad_request"),
    ("speed", {"speed": 4.01}, "bad_request"),
    ("speed", {"speed": "1.0"}, "bad_request"),
    ("speed", {"speed": True}, "bad_request"),
    ("speed", {"speed": 1.5}, "bad_request"),
    ("stream", {"stream": "yes"}, "bad_request"),
    ("stream", {"stream": 1}, "bad_request"),
    ("stream_format", {"stream_format": "raw"}, "bad_request"),
    ("task_type", {"task_type": "Singing"}, "bad_request"),
    ("task_type", {"task_type": "Base"}, "bad_request"),
    ("task_type", {"task_type": "VoiceDesign", "instructions": "deep"}, "bad_request"),
    ("language", {"language": "Klingon"}, "unknown_voice"),
    ("language", {"language": "x" * 65}, "bad_request"),
    ("ref_audio", {"ref_audio": ""}, "bad_request"),
    ("ref_audio", {"ref_audio": 5}, "bad_request"),
    ("ref_audio", {"ref_audio": "data:audio/wav;base64,UklGRg=="}, "bad_request"),
    ("ref_audio", {"task_type": "CustomVoice", "ref_audio": "UklGRg=="}, "bad_request"),
    ("ref_text", {"ref_text": "Words."}, "bad_request"),
    ("x_vector_only_mode", {"x_vector_only_mode": "true"}, "bad_request"),
    ("seed", {"seed": 2**63}, "bad_request"),
    ("seed", {"seed": -(2**63) - 1}, "bad_request"),
    ("seed", {"seed": 1.5}, "bad_request"),
    ("initial_codec_chunk_frames", {"initial_codec_chunk_frames": -1}, "bad_request"),
    ("initial_codec_chunk_frames", {"initial_codec_chunk_frames": 101}, "bad_request"),
    ("max_new_tokens", {"max_new_tokens": 0}, "bad_request"),
    ("temperature", {"temperature": 3}, "bad_request"),
    ("top_p", {"top_p": 1.1}, "bad_request"),
    ("top_k", {"top_k": -1}, "bad_request"),
    ("repetition_penalty", {"repetition_penalty": 0.1}, "bad_request"),
    ("speaker_embedding", {"speaker_embedding": [0.5] * 1024}, "bad_request"),
    ("word_timestamps", {"word_timestamps": "yes"}, "bad_request"),
    ("extra_params", {"extra_params": []}, "bad_request"),
]


@pytest.mark.parametrize(("param", "fields", "code"), REFUSED)
async def test_a_wrong_field_is_named(param: str, fields: dict[str, Any], code: str) -> None:
    engine = FakeEngine()
    async with calling(engine) as caller:
        answer = await caller.speak(**fields)
    assert answer.status == (404 if code == "model_not_found" else 400)
    error = answer.error
    assert (error["param"], error["code"]) == (param, code)
    assert error["type"] == "invalid_request_error"
    assert LONG not in error["message"]
    assert ("GET /v1/voices" in error["message"]) is (code == "unknown_voice")
    assert not engine.requests


NULLABLE = [name for name in SpeechRequest.model_fields if name != "input"]


async def test_null_is_as_if_left_out() -> None:
    async with calling(FakeEngine()) as caller:
        for name in NULLABLE:
            assert (await caller.speak(**{name: None})).status == 200, name


async def test_without_input_the_field_is_named() -> None:
    async with calling(FakeEngine()) as caller:
        answer = await caller.send("POST", SPEECH, b"{}", JSON)
    assert answer.status == 400
    assert answer.error["param"] == "input"


async def test_speeds_that_the_engine_does_not_do_are_refused() -> None:
    class Fast(FakeEngine):
        options = frozenset({"speed"})

    async with calling(Fast()) as caller:
        for speed in (0.5, 1, 1.0, 2.5):
            assert (await caller.speak(speed=speed)).status == 200
        for speed in (0.25, 0.49, 2.6, 4.0):
            error = (await caller.speak(speed=speed)).error
            assert error["param"] == "speed"
            assert "0.5 to 2.5" in error["message"]


NOT_JSON: list[tuple[bytes, str]] = [
    (b"", "empty"),
    (b"null", "null"),
    (b"[]", "a list"),
    (b'"text"', "a string"),
    (b"7", "a number"),
    (b"{", "cut off"),
    (b'{"input": "a"} x', "something behind it"),
    (b"{'input': 'a'}", "wrong quotes"),
    (b'{"input": "\xff"}', "not UTF-8"),
    ('{"input": "a"}'.encode("utf-16"), "UTF-16"),
    (b'\xef\xbb\xbf{"input": "a"}', "a byte order mark"),
    (b'{"input": "a", "speed": NaN}', "NaN"),
    (b'{"input": "a", "speed": -Infinity}', "infinity"),
    (b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "deep objects"),
    (b"[" * 90_000, "deep lists"),
    (b'{"input": "a", "x": [' + b"1," * MOST_PARTS + b"1]}", "a long list"),
    (b'{"input": "' + b"\\n" * (MOST_ESCAPES + 1) + b'"}', "nothing but escapes"),
    (b"\x00\x01\x02", "noise"),
]


@pytest.mark.parametrize("body", [body for body, _ in NOT_JSON], ids=[name for _, name in NOT_JSON])
async def test_a_body_that_is_no_json_object(body: bytes) -> None:
    async with calling(FakeEngine()) as caller:
        answer = await caller.send("POST", SPEECH, body, JSON)
    assert answer.status == 400
    assert answer.error["code"] == "bad_request"
    assert answer.error["param"] is None


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_an_object_or_a_bad_request(body: bytes) -> None:
    with contextlib.suppress(BadRequest):
        assert isinstance(parse_object(body), dict)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(max_examples=40, deadline=None)
@given(
    fields=st.dictionaries(
        st.sampled_from([*SpeechRequest.model_fields, "other"]), ANY_JSON, max_size=4
    )
)
def test_any_fields_are_said_or_refused_by_name(fields: dict[str, Any]) -> None:
    async def check() -> None:
        async with calling(FakeEngine()) as caller:
            answer = await caller.speak(**fields)
        assert answer.status in (200, 400, 404)
        if answer.status != 200:
            assert answer.error["param"] in (*SpeechRequest.model_fields, None)

    try:
        json.dumps(fields, allow_nan=False)
    except ValueError:
        return
    asyncio.run(check())


def test_the_fault_of_a_field_does_not_repeat_what_was_sent() -> None:
    with pytest.raises(Exception, match="voice") as caught:
        parse({"input": "a", "voice": ["secret"]})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/octet-stream",
        "json",
    ],
)
async def test_a_body_that_is_not_announced_as_json(kind: str) -> None:
    async with calling(FakeEngine()) as caller:
        answer = await caller.send("POST", SPEECH, b'{"input": "a"}', {"content-type": kind})
    assert answer.status == 415
    assert "application/json" in answer.error["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "application/json; charset=utf-8"},
        {"content-type": "APPLICATION/JSON"},
        {"content-type": "application/vnd.api+json"},
        {"content-type": "application/json", "content-encoding": "identity"},
    ],
)
async def test_a_body_that_is_announced_as_json_or_not_at_all(headers: dict[str, str]) -> None:
    async with calling(FakeEngine()) as caller:
        assert (await caller.send("POST", SPEECH, b'{"input": "a"}', headers)).status == 200


async def test_a_compressed_body_is_refused() -> None:
    async with calling(FakeEngine()) as caller:
        headers = {**JSON, "content-encoding": "gzip"}
        assert (await caller.send("POST", SPEECH, b"\x1f\x8b", headers)).status == 415


SMALL = ServerSettings(openai=OpenAISettings(max_body_bytes=1000))


async def test_a_long_body_is_refused_before_it_is_read() -> None:
    async with calling(FakeEngine(), SMALL) as caller:
        headers = {**JSON, "content-length": "1001"}
        call = Call(caller.app, "POST", SPEECH, b"", headers, complete=False)
        answer = await call.done()
    assert answer.status == 413
    assert answer.error["code"] == "request_too_large"


@pytest.mark.parametrize("declared", [{}, {"content-length": "10"}, {"content-length": "-1"}])
async def test_a_long_body_is_refused_when_it_becomes_long(declared: dict[str, str]) -> None:
    async with calling(FakeEngine(), SMALL) as caller:
        call = Call(
            caller.app, "POST", SPEECH, b" " * 1200, {**JSON, **declared}, chunk=100, complete=False
        )
        assert (await call.done()).status == 413


async def test_a_big_body_is_read_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    async def to_thread(function: Any, body: bytes) -> Any:
        read.append(len(body))
        return function(body)

    monkeypatch.setattr("asyncio.to_thread", to_thread)
    async with calling(FakeEngine()) as caller:
        answer = await caller.speak(extra="x" * THREAD_BYTES)
        assert answer.status == 200
        assert (await caller.speak(ref_text="x" * THREAD_BYTES)).error["param"] == "ref_text"
    assert len(read) == 2


async def test_a_body_may_come_in_any_pieces() -> None:
    async with calling(FakeEngine(), SMALL) as caller:
        body = json.dumps({"input": "ä€𝄞", "response_format": "pcm"}, ensure_ascii=False).encode()
        for chunk in (1, 2, 7, 1000):
            call = Call(caller.app, "POST", SPEECH, body, JSON, chunk=chunk)
            assert (await call.done()).status == 200


async def test_a_client_may_leave_in_the_middle_of_its_body() -> None:
    async with calling(FakeEngine()) as caller:
        call = Call(caller.app, "POST", SPEECH, b'{"inp', JSON, complete=False)
        await call.leave()
        assert (await caller.speak()).status == 200


async def test_duplicate_fields_are_the_last_ones() -> None:
    engine = FakeEngine()
    async with calling(engine) as caller:
        body = b'{"input": "one", "input": "two"}'
        assert (await caller.send("POST", SPEECH, body, JSON)).status == 200
    assert engine.requests[0].text == "two"


async def test_refusals_are_counted_once_by_code() -> None:
    async with calling(FakeEngine()) as caller:
        await caller.speak(speed="x")
        await caller.speak(voice="unlisted")
        await caller.speak(voice="fail")
        figures, _ = caller.service.meter.exposition("", ready=True)
    counted = [
        line
        for line in figures.decode().splitlines()
        if line.startswith("qwen3tts_errors_total{") and 'dialect="openai"' in line
    ]
    assert sorted(counted) == [
        f'qwen3tts_errors_total{{code="{code}",dialect="openai"}} 1.0'
        for code in ("bad_request", "engine_failed", "unknown_voice")
    ]
