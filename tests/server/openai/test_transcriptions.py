"""Recordings written down, in OpenAI's form."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from qwen3tts_engine.recogniser import LanguageUnknown
from qwen3tts_server import recognition
from qwen3tts_server.dialects.openai.routes import ROUTES
from qwen3tts_server.keys import Role
from qwen3tts_server.recognition import MOST_WAITING, Recognition
from qwen3tts_server.settings import OpenAISettings, ServerSettings
from qwen3tts_wire.errors import BadRequest, EngineUnavailable, SpeechError
from tests.conftest import require_package
from tests.engine.fake_engine import FakeEngine
from tests.server.openai.caller import Answer, Call, Caller, Hearing, calling

PATH = "/v1/audio/transcriptions"
FORM = {"content-type": "multipart/form-data; boundary=limit"}
SOUND = b"RIFF of a call"
TEXT = "Guten Tag. Auf Wiedersehen."


def body(file: bytes | None = SOUND, /, **fields: str) -> bytes:
    parts = [(f'name="{name}"', value.encode()) for name, value in fields.items()]
    if file is not None:
        parts.append(('name="file"; filename="call.wav"', file))
    heads = (f"--limit\r\nContent-Disposition: form-data; {head}\r\n\r\n" for head, _ in parts)
    pieces = [head.encode() + data for head, (_, data) in zip(heads, parts, strict=True)]
    return b"\r\n".join([*pieces, b"--limit--\r\n"])


async def transcribe(caller: Caller, file: bytes | None = SOUND, /, **fields: str) -> Answer:
    return await caller.send("POST", PATH, body(file, **fields), FORM)


async def test_the_words_come_in_each_form(caplog: pytest.LogCaptureFixture) -> None:
    engine = Hearing()
    with caplog.at_level(logging.DEBUG):
        async with calling(engine) as caller:
            plain = await transcribe(caller, model="whisper-1")
            text = await transcribe(caller, response_format="text", language="German")
            verbose = await transcribe(caller, response_format="verbose_json", language="de")
    assert plain.status == 200
    assert plain.headers["content-type"] == "application/json"
    assert plain.json() == {"text": TEXT, "usage": {"type": "duration", "seconds": 32}}
    assert text.headers["content-type"].startswith("text/plain")
    assert text.body.decode() == TEXT + "\n"
    told = verbose.json()
    assert (told["task"], told["language"], told["duration"]) == ("transcribe", "de", 31.25)
    assert [each["start"] for each in told["segments"]] == [0.0, 25.5]
    assert [each[1] for each in engine.whisper.asked] == [None, "de", "de"]
    assert {each[0] for each in engine.whisper.asked} == {SOUND}
    assert "Guten" not in caplog.text


@pytest.mark.parametrize("model", ["whisper-1", "openai/whisper-fake", "whisper-fake", ""])
async def test_the_model_has_its_own_name_and_openais(model: str) -> None:
    async with calling(Hearing()) as caller:
        assert (await transcribe(caller, model=model)).status == 200


@pytest.mark.parametrize(
    ("fields", "param", "status"),
    [
        ({"model": "tts-1"}, "model", 404),
        ({"response_format": "srt"}, "response_format", 400),
        ({"language": "x" * 65}, "language", 400),
        ({"stream": "true"}, "stream", 400),
        ({"timestamp_granularities[]": "word"}, "timestamp_granularities[]", 400),
        ({"temperature": "nan"}, "temperature", 400),
        ({"temperature": "2"}, "temperature", 400),
        ({"temperature": "warm"}, "temperature", 400),
    ],
)
async def test_what_cannot_be_is_refused_by_name(
    fields: dict[str, str], param: str, status: int
) -> None:
    engine = Hearing()
    async with calling(engine) as caller:
        answer = await transcribe(caller, **fields)
    assert answer.status == status
    assert answer.error["param"] == param
    assert not engine.whisper.asked


@pytest.mark.parametrize(("file", "status"), [(None, 400), (b"", 400), (b"x" * 101, 413)])
async def test_a_recording_is_needed_and_bounded(file: bytes | None, status: int) -> None:
    settings = ServerSettings(openai=OpenAISettings(max_recording_bytes=100))
    async with calling(Hearing(), settings) as caller:
        answer = await transcribe(caller, file)
        assert answer.status == status
        assert answer.error["param"] == "file"
        assert (await transcribe(caller, b"x" * 100)).status == 200
        assert (await transcribe(caller, b"x" * 300_000)).status == 413


@pytest.mark.parametrize(
    ("error", "status", "param"),
    [
        (BadRequest("no sound"), 400, "file"),
        (LanguageUnknown("no such language"), 400, "language"),
        (EngineUnavailable("no model"), 503, None),
    ],
)
async def test_what_the_recogniser_refuses_is_told(
    error: SpeechError, status: int, param: str | None
) -> None:
    engine = Hearing()
    engine.whisper.error = error
    async with calling(engine) as caller:
        answer = await transcribe(caller, language="Klingon")
    assert answer.status == status
    assert answer.error["param"] == param


async def test_a_server_without_a_recogniser_says_what_to_configure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recognition, "installed_model", lambda: None)
    async with calling(FakeEngine()) as caller:
        answer = await transcribe(caller)
    assert answer.status == 501
    assert answer.error["code"] == "not_configured"
    assert "openai.whisper" in answer.error["message"]


async def test_fields_that_change_nothing_are_named() -> None:
    async with calling(Hearing()) as caller:
        answer = await transcribe(caller, prompt="names", temperature="0.5")
    assert answer.headers["x-ignored-fields"] == "prompt, temperature"


async def test_others_are_served_while_a_recording_is_heard_and_a_client_may_go() -> None:
    engine = Hearing()
    engine.whisper.go.clear()
    async with calling(engine) as caller:
        call = Call(caller.app, "POST", PATH, body(), FORM)
        await asyncio.to_thread(engine.whisper.began.wait, 20)
        assert (await caller.speak(response_format="wav")).status == 200
        assert not engine.whisper.stopped()
        await call.leave()
        assert engine.whisper.stopped()
        engine.whisper.go.set()
        assert (await transcribe(caller)).status == 200


async def test_so_many_may_wait() -> None:
    engine = Hearing()
    engine.whisper.go.clear()
    async with calling(engine) as caller:
        calls = [Call(caller.app, "POST", PATH, body(), FORM) for _ in range(MOST_WAITING + 1)]
        await asyncio.to_thread(engine.whisper.began.wait, 20)
        answer = await transcribe(caller)
        assert answer.status == 503
        assert answer.headers["retry-after"]
        engine.whisper.go.set()
        for each in calls:
            assert json.loads((await each.done()).body)["text"] == TEXT


def test_a_key_that_may_speak_may_have_recordings_written_down() -> None:
    assert ROUTES["POST", PATH] is Role.SPEAK


async def test_a_model_of_the_settings_serves_any_engine() -> None:
    require_package("faster_whisper", "pip install 'mr_qwen3tts[stt]'")
    settings = ServerSettings(openai=OpenAISettings(whisper="tiny.en"))
    async with calling(FakeEngine(), settings) as caller:
        recogniser = caller.service.recognition.recogniser()
        answer = await transcribe(caller, model="whisper-9")
    assert recogniser is not None
    assert recogniser.model == "tiny.en"
    assert answer.status == 404


@pytest.mark.parametrize(
    ("whisper", "engine", "model"),
    [
        ("auto", FakeEngine, "tiny.en"),
        ("auto", Hearing, "openai/whisper-fake"),
        ("small", Hearing, "small"),
        (None, FakeEngine, None),
        (None, Hearing, "openai/whisper-fake"),
    ],
)
async def test_the_model_is_the_named_one_else_the_engines_else_one_that_is_installed(
    monkeypatch: pytest.MonkeyPatch, whisper: str | None, engine: type[FakeEngine], model: str
) -> None:
    require_package("faster_whisper", "pip install 'mr_qwen3tts[stt]'")
    monkeypatch.setattr(recognition, "installed_model", lambda: "tiny.en")
    settings = ServerSettings(openai=OpenAISettings(whisper=whisper))
    async with calling(engine(), settings) as caller:
        found = caller.service.recognition.recogniser()
    assert (None if found is None else found.model) == model


async def test_a_model_of_the_settings_that_is_missing_is_told_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_package("faster_whisper", "pip install 'mr_qwen3tts[stt]'")
    missing = Recognition(FakeEngine(), str(tmp_path / "no folder"))
    with pytest.raises(EngineUnavailable, match="Whisper model"):
        missing.start()
    monkeypatch.setattr(recognition, "find_spec", lambda name: None)
    with pytest.raises(EngineUnavailable, match="needs the package"):
        missing.start()
    missing.close()
