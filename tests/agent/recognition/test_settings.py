from __future__ import annotations

import asyncio
from typing import Any

import pytest

from qwen3tts_agent.recognition.kinds import recogniser_named
from qwen3tts_agent.recognition.settings import SocketSettings, WhisperSettings
from qwen3tts_agent.recognition.websocket import SocketRecogniser
from qwen3tts_agent.recognition.whisper import WhisperRecogniser
from qwen3tts_wire.errors import BadRequest
from qwen3tts_wire.whisper.models import AUTO


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("whisper", AUTO),
        ("Whisper", AUTO),
        ("whisper:openai/whisper-tiny.en", "openai/whisper-tiny.en"),
        ("whisper:/tmp", "/tmp"),
    ],
)
async def test_whisper_by_name(name: str, model: str) -> None:
    recogniser = recogniser_named(name, languages=("en",))
    assert isinstance(recogniser, WhisperRecogniser)
    assert recogniser.settings == WhisperSettings(model, languages=("en",))
    await recogniser.close()


async def test_a_server_by_its_address() -> None:
    recogniser = recogniser_named(" wss://asr.example/listen ", rate_hz=8000)
    assert isinstance(recogniser, SocketRecogniser)
    assert recogniser.settings.url == "wss://asr.example/listen"
    assert recogniser.rate_hz == 8000
    await recogniser.close()


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("deepgram:", {}, "names no recogniser"),
        ("deepgrm", {}, "names no recogniser"),
        ("deepgram:wss://host/v1/listen?encoding=mulaw", {}, "url: encoding cannot be set"),
        ("deepgram:wss://[::1", {}, "url is not an address"),
        ("deepgram:wss://me:secret@host/", {}, "url holds a password"),
        ("deepgram", {"endpointing_ms": 0}, "endpointing_ms"),
        ("deepgram:nova\n3", {}, "model=.* must be a model's name"),
        ("openai:", {}, "names no recogniser"),
        ("openai:http://host/v1?temprature=0", {}, "no option '.temprature'"),
        ("openai:http://host/v1?response_format=srt", {}, "response_format"),
        ("openai:http://", {}, "url is not an address"),
        ("openai:http://host:0/v1", {}, "url is not an address"),
        ("openai:https://me:secret@host/v1", {}, "url holds a password"),
        ("openai", {"api_key": "a b"}, "api_key"),
        ("openai", {"timeout_s": 0}, "timeout_s"),
        ("", {}, "names no recogniser"),
        ("whisper:", {}, "names no recogniser"),
        ("http://127.0.0.1/", {}, "names no recogniser"),
        ("whisper:/no/such/folder", {}, "is not a folder"),
        ("whisper:../x", {}, "is not a folder"),
        ("whisper", {"beam": 5}, "no option 'beam'"),
        ("whisper", {"languages": "en"}, "languages"),
        ("ws://", {}, "url is not an address"),
        ("ws://[::1", {}, "url is not an address"),
        ("ws://host:0/", {}, "url is not an address"),
        ("ws://me:secret@host/", {}, "url holds a password"),
        ("ws://host/", {"api_key": "a\nb"}, "api_key"),
        ("ws://host/", {"rate_hz": "fast"}, "settings"),
    ],
)
def test_what_names_none(name: str, options: dict[str, Any], match: str) -> None:
    with pytest.raises(BadRequest, match=match) as caught:
        recogniser_named(name, **options)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": "a b"},
        {"languages": ("e n",)},
        {"device": "tpu"},
        {"device": "mps"},
        {"dtype": "int4"},
        {"threads": -1},
        {"timeout_s": 0.0},
        {"load_timeout_s": -1.0},
        {"stall_s": float("nan")},
        {"most_waiting": 0},
    ],
)
def test_whisper_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))}"):
        WhisperSettings(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate_hz": 96_000},
        {"audio": "some"},
        {"languages": ["en"]},
        {"open_timeout_s": 0.0},
        {"answer_timeout_s": 1e9},
        {"behind_s": -1.0},
        {"longest_s": float("inf")},
    ],
)
def test_socket_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))}"):
        SocketSettings(**{"url": "ws://host/", **wrong})


def test_neither_address_nor_key_is_shown_whole() -> None:
    settings = SocketSettings("wss://[::1]:9000/a?token=hidden", api_key="secret")
    assert settings.shown == "wss://[::1]:9000/a"
    assert "hidden" not in repr(settings)
    assert "secret" not in repr(settings)


def test_a_key_of_the_environment_that_cannot_be_one() -> None:
    settings = SocketSettings("ws://host/")
    assert settings.headers({}) == {}
    assert settings.headers({"QWEN3TTS_STT_KEY": " k "}) == {"Authorization": "Bearer k"}
    with pytest.raises(ValueError, match="QWEN3TTS_STT_KEY"):
        settings.headers({"QWEN3TTS_STT_KEY": "a b"})


def test_a_recogniser_can_be_made_before_there_is_an_event_loop() -> None:
    recogniser = recogniser_named("whisper")
    asyncio.run(recogniser.close())
