"""The engine in front of a server that speaks OpenAI's REST, well and badly."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from typing import Any

import pytest

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.wrapped import healthy
from qwen3tts_server.service import Service
from qwen3tts_server.settings import ServerSettings
from qwen3tts_wire.errors import (
    BadRequest,
    EngineFailed,
    EngineUnavailable,
    LimitExceeded,
    ServerBusy,
    SpeechError,
    UnknownVoice,
)
from tests.engine.upstream.peers import Call, RestPeer, RestScript, pieces, sound_of, upstream
from tests.engine.upstream.speaking import TEXT, heard, is_said
from tests.engine.waiting import until

pytestmark = pytest.mark.network


def event(**fields: Any) -> bytes:
    return f"data: {json.dumps(fields)}\n\n".encode()


def delta(data: bytes) -> bytes:
    return event(type="speech.audio.delta", audio=base64.b64encode(data).decode())


DONE = event(type="speech.audio.done", usage={"input_tokens": 3})


def wav(data: bytes, rate: int = 24_000, channels: int = 1, size: int = 0xFFFF_FFFF) -> bytes:
    form = struct.pack("<HHIIHH", 1, channels, rate, rate * 2 * channels, 2 * channels, 16)
    return (
        b"RIFF\xff\xff\xff\xffWAVE"
        + b"LIST\x03\0\0\0abc\0"
        + struct.pack("<4sI", b"fmt ", 16)
        + form
        + struct.pack("<4sI", b"data", size)
        + data
    )


async def test_a_request_is_one_post_in_openais_fields() -> None:
    peer = RestPeer()
    async with upstream(peer, model="tts-1", api_key="s3cret") as engine:
        assert is_said(await heard(engine, voice="Ryan", language="en", instructions="calm"))
    (call,) = peer.calls
    assert (call.method, call.path) == ("POST", "/v1/audio/speech")
    assert call.headers["authorization"] == "Bearer s3cret"
    assert call.headers["accept-encoding"] == "identity"
    assert call.fields == {
        "model": "tts-1",
        "input": TEXT,
        "voice": "ryan",
        "language": "English",
        "instructions": "calm",
        "response_format": "pcm",
        "stream": True,
    }


async def test_another_speed_is_asked_for_as_a_whole() -> None:
    peer = RestPeer()
    async with upstream(peer) as engine:
        assert engine.options == {"instructions", "speed"}
        assert is_said(await heard(engine, speed=1.5))
        await heard(engine)
    assert peer.calls[0].fields["speed"] == 1.5
    assert "stream" not in peer.calls[0].fields
    assert "speed" not in peer.calls[1].fields
    assert peer.calls[1].fields["voice"] == "default"


async def test_fields_may_be_added_and_left_out() -> None:
    peer = RestPeer()
    extra = '{"stream": null, "stream_format": "audio"}'
    options = ("seed", "initial_codec_chunk_frames")
    async with upstream(peer, extra=extra, options=options) as engine:
        await heard(engine, seed=3, initial_codec_chunk_frames=1, instructions="not sent")
    fields = peer.calls[0].fields
    assert "stream" not in fields
    assert "instructions" not in fields
    assert (fields["stream_format"], fields["seed"]) == ("audio", 3)
    assert fields["initial_codec_chunk_frames"] == 1


async def test_a_connection_is_used_again() -> None:
    peer = RestPeer()
    async with upstream(peer) as engine:
        for _ in range(3):
            await heard(engine)
        assert peer.open == 1


async def events(call: Call) -> None:
    """vLLM-Omni, since ``stream`` means events there."""
    await call.begin("text/event-stream; charset=utf-8")
    await call.chunk(b": hello\n\n")
    body = b"".join(map(delta, pieces(sound_of(call.fields["input"])))) + DONE
    for piece in pieces(body, 999):
        await call.chunk(piece)
    await call.end()


async def events_until_done(call: Call) -> None:
    await call.begin("text/event-stream")
    await call.chunk(delta(sound_of(call.fields["input"])) + b"data: [DONE]\r\n\r\n")
    await call.end()


async def a_wav_file(call: Call) -> None:
    data = sound_of(call.fields["input"])
    await call.raw(wav(data, size=len(data)) + b"LIST\x04\0\0\0trail", "audio/wav")


async def a_wav_stream(call: Call) -> None:
    await call.raw(wav(sound_of(call.fields["input"])), "audio/pcm;rate=24000")


async def bytes_of_no_kind(call: Call) -> None:
    await call.answer(200, sound_of(call.fields["input"]) + b"\x01", "", X_Sample_Rate="24000")


@pytest.mark.parametrize(
    "script", [events, events_until_done, a_wav_file, a_wav_stream, bytes_of_no_kind]
)
async def test_every_form_is_understood(script: RestScript) -> None:
    async with upstream(RestPeer(script)) as engine:
        assert is_said(await heard(engine))
        assert is_said(await heard(engine))


def answering(
    status: int, body: bytes | str, kind: str = "application/json", **headers: str
) -> RestScript:
    async def script(call: Call) -> None:
        await call.answer(
            status, body if isinstance(body, bytes) else body.encode(), kind, **headers
        )

    return script


def openai_error(message: str, **fields: Any) -> str:
    return json.dumps({"error": {"message": message, **fields}})


async def breaking_off(call: Call) -> None:
    await call.begin("audio/pcm")
    await call.chunk(sound_of("Good"))
    await call.vanish()


async def breaking_off_at_once(call: Call) -> None:
    await call.vanish()


async def events_that_break_off(call: Call) -> None:
    await call.begin("text/event-stream")
    await call.chunk(delta(sound_of("Good")))
    await call.end()


def sending(*data: bytes) -> RestScript:
    async def script(call: Call) -> None:
        await call.begin("text/event-stream")
        await call.chunk(b"".join(data))
        await call.end()

    return script


async def no_http(call: Call) -> None:
    await call.write(b"SSH-2.0-OpenSSH\r\n\r\n")
    await call.hang_up()


async def compressed(call: Call) -> None:
    await call.answer(200, b"\x1f\x8b" + bytes(100), "audio/pcm", Content_Encoding="gzip")


async def wrong_wav(call: Call) -> None:
    await call.raw(wav(sound_of("Good"), rate=44_100), "audio/wav")


async def stereo_wav(call: Call) -> None:
    await call.raw(wav(sound_of("Good"), channels=2), "audio/wav")


FAULTS: dict[RestScript, tuple[type[SpeechError], str]] = {
    answering(400, openai_error("bad voice", param="voice")): (UnknownVoice, "bad voice"),
    answering(400, openai_error("no", code="voice_not_found")): (UnknownVoice, "no"),
    answering(400, openai_error("speed is bad")): (BadRequest, "speed is bad"),
    answering(401, openai_error("Incorrect API key")): (EngineUnavailable, "Incorrect API key"),
    answering(403, "no", "text/plain"): (EngineUnavailable, "refused the key"),
    answering(404, openai_error("m", code="model_not_found")): (EngineUnavailable, "says: m"),
    answering(404, '{"detail": "Not Found"}'): (EngineUnavailable, "Not Found"),
    answering(413, ""): (LimitExceeded, "HTTP 413"),
    answering(418, "teapot", "text/plain"): (EngineUnavailable, "418"),
    answering(422, '{"detail": [{"loc": ["body", "input"], "msg": "too long"}]}'): (
        BadRequest,
        "body.input: too long",
    ),
    answering(429, openai_error("slow down"), Retry_After="7"): (ServerBusy, "after 7 s"),
    answering(500, openai_error("it broke", type="server_error")): (EngineFailed, "it broke"),
    answering(500, "<html><h1>nginx", "text/html"): (EngineFailed, "an HTML page"),
    answering(502, b"\x00\xff" * 99_999, "text/plain"): (EngineFailed, "says"),
    answering(503, ""): (ServerBusy, "HTTP 503"),
    answering(307, "", Location="http://127.0.0.1:1/"): (EngineUnavailable, "307"),
    answering(200, "<html>login</html>", "text/html"): (EngineFailed, "an HTML page"),
    answering(200, '{"error": {"message": "odd"}}'): (EngineFailed, "odd"),
    answering(200, "ID3", "audio/mpeg"): (EngineFailed, "audio/mpeg, not pcm"),
    answering(200, sound_of("a"), "audio/pcm", X_Sample_Rate="16000"): (EngineFailed, "16000"),
    answering(200, sound_of("a"), "audio/pcm;rate=8000"): (EngineFailed, "8000 hertz"),
    answering(200, "", "audio/pcm"): (EngineFailed, "no sound"),
    answering(200, bytes(48_000), "audio/pcm"): (EngineFailed, "only silence"),
    answering(200, b"RIFF\xff\xff\xff\xffWAVEfmt ", "audio/wav"): (EngineFailed, "without samples"),
    breaking_off: (EngineFailed, "hung up in the middle|broke"),
    breaking_off_at_once: (EngineFailed, "broke"),
    events_that_break_off: (EngineFailed, "ended before the speech"),
    sending(event(type="speech.audio.error", error={"message": "OOM"})): (EngineFailed, "OOM"),
    sending(delta(b"ab"), event(error="token cap")): (EngineFailed, "token cap"),
    sending(b"data: <html>\n\n"): (EngineFailed, "no JSON"),
    sending(b"data: 5\n\n"): (EngineFailed, "no JSON object"),
    sending(event(type="speech.audio.delta", audio="%%%")): (EngineFailed, "base64"),
    sending(event(type="speech.audio.delta", audio=5)): (EngineFailed, "base64"),
    sending(DONE, delta(b"ab")): (EngineFailed, "after its end"),
    sending(b"data: " + b"x" * 70_000): (EngineFailed, "an event of more than 65536"),
    no_http: (EngineFailed, "does not speak HTTP"),
    compressed: (EngineFailed, "compressed"),
    wrong_wav: (EngineFailed, "44100 hertz"),
    stereo_wav: (EngineFailed, "2 channels"),
}


@pytest.mark.parametrize("script", FAULTS, ids=lambda script: script.__qualname__.split(".")[0])
async def test_a_fault_is_our_error_and_the_next_utterance_goes_well(script: RestScript) -> None:
    kind, said = FAULTS[script]
    peer = RestPeer(script)
    async with upstream(peer, retries=0, max_message_bytes=65_536) as engine:
        with pytest.raises(SpeechError, match=said) as caught:
            await heard(engine)
        assert caught.value.code == kind.code
        assert caught.value.remedy
        assert caught.value.message.isprintable()
        assert len(caught.value.message) < 400
        assert is_said(await heard(engine))


@pytest.mark.parametrize(
    "script",
    [breaking_off_at_once, answering(500, ""), answering(502, ""), answering(200, "", "audio/pcm")],
)
async def test_what_failed_before_any_sound_is_asked_for_once_more(script: RestScript) -> None:
    peer = RestPeer(script)
    async with upstream(peer) as engine:
        assert is_said(await heard(engine))
        assert len(peer.calls) == 2


@pytest.mark.parametrize(
    "script", [breaking_off, answering(400, ""), answering(429, ""), answering(401, "")]
)
async def test_the_rest_is_not_asked_for_again(script: RestScript) -> None:
    peer = RestPeer(script)
    async with upstream(peer) as engine:
        with pytest.raises(SpeechError):
            await heard(engine)
        assert len(peer.calls) == 1


async def test_a_cancel_ends_the_work_at_once() -> None:
    async def endless(call: Call) -> None:
        await call.begin("audio/pcm")
        while True:
            await call.chunk(sound_of("a"))

    peer = RestPeer(endless)
    async with upstream(peer) as engine:
        chunks = engine.synthesize(SynthesisRequest(TEXT, final=True))
        await anext(chunks)
        await chunks.aclose()
        assert engine.load().busy == 0
        await until(lambda: peer.speaking == 0)
        assert is_said(await heard(engine))


async def thinking(call: Call) -> None:
    await call.gone()


async def thinking_after_the_head(call: Call) -> None:
    await call.begin("audio/pcm")
    await call.gone()


@pytest.mark.parametrize("script", [thinking, thinking_after_the_head])
async def test_a_cancel_before_the_first_sound_ends_the_work_at_once(script: RestScript) -> None:
    peer = RestPeer(script)
    async with upstream(peer) as engine:
        task = asyncio.create_task(heard(engine))
        await until(lambda: peer.speaking == 1)
        task.cancel()
        await asyncio.wait({task})
        assert engine.load().busy == 0
        await until(lambda: peer.speaking == 0)


@pytest.mark.parametrize("script", [thinking, thinking_after_the_head])
async def test_a_server_that_makes_no_sound_is_given_up(script: RestScript) -> None:
    peer = RestPeer(script)
    async with upstream(peer, first_audio_s=0.05) as engine:
        with pytest.raises(EngineFailed, match=r"made no sound in 0\.05 s"):
            await heard(engine)
        assert len(peer.calls) == 1
        await until(lambda: peer.speaking == 0)


async def test_a_server_that_keeps_talking_without_sound_is_given_up() -> None:
    async def comments(call: Call) -> None:
        await call.begin("text/event-stream")
        while True:
            await call.chunk(b": ping\n\n")
            await asyncio.sleep(0)

    peer = RestPeer(comments)
    async with upstream(peer, first_audio_s=0.05) as engine:
        with pytest.raises(EngineFailed, match="made no sound"):
            await heard(engine)
        await until(lambda: peer.speaking == 0)


async def test_a_server_that_stops_in_the_middle_is_given_up() -> None:
    async def stopping(call: Call) -> None:
        await call.begin("audio/pcm")
        await call.chunk(sound_of("Good"))
        await call.gone()

    peer = RestPeer(stopping)
    async with upstream(peer, stall_s=0.05) as engine:
        with pytest.raises(EngineFailed, match=r"no sound for 0\.05 s in the middle"):
            await heard(engine)
        await until(lambda: peer.speaking == 0)


async def test_a_server_that_comes_back_is_spoken_with_again() -> None:
    peer = RestPeer()
    async with upstream(peer) as engine:
        await peer.stop()
        with pytest.raises(EngineFailed, match="does not answer") as caught:
            await heard(engine)
        assert caught.value.retryable
        await peer.start()
        assert is_said(await heard(engine))


async def test_a_server_that_is_away_is_looked_for_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qwen3tts_engine.upstream.server.PROBE_S", 0.0)
    peer = RestPeer()
    async with upstream(peer) as engine:
        service = Service(engine, ServerSettings())
        await service.start()
        assert healthy(service.engine)
        await peer.stop()
        with pytest.raises(EngineFailed):
            await heard(engine)
        assert not healthy(service.engine)
        await until(lambda: not healthy(service.engine))
        await peer.start()
        # There are no requests meanwhile: the question itself probes it.
        await until(lambda: healthy(service.engine))
        assert is_said(await heard(engine))
    assert not engine.healthy()


async def test_a_server_without_voices_still_speaks() -> None:
    peer = RestPeer()
    peer.voices_status = 404
    async with upstream(peer) as engine:
        assert is_said(await heard(engine, voice="alloy"))
    assert peer.calls[0].fields["voice"] == "alloy"


@pytest.mark.parametrize("status", [401, 403])
async def test_a_server_that_refuses_the_key_is_no_start(status: int) -> None:
    peer = RestPeer()
    peer.voices_status = status
    with pytest.raises(EngineUnavailable, match="refused the key") as caught:
        async with upstream(peer):
            pass
    assert "api_key" in caught.value.remedy
