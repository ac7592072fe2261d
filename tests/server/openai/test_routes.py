"""The other routes, and the errors of all of them."""

from __future__ import annotations

import pytest

from qwen3tts_server.dialects.http_errors import (
    BodyTooLarge,
    FieldRefused,
    about,
    code_of,
    error_response,
    speech_error_response,
    status_of,
)
from qwen3tts_server.settings import OpenAISettings, ServerSettings
from qwen3tts_wire.errors import (
    BadRequest,
    BadText,
    ConnectionLost,
    EngineFailed,
    EngineUnavailable,
    LimitExceeded,
    ProtocolError,
    ServerBusy,
    SpeechError,
    UnknownVoice,
)
from tests.engine.fake_engine import VOICES, FakeEngine
from tests.server.openai.caller import SPEECH, calling

PATHS = {
    SPEECH: "POST",
    "/v1/audio/voices": "GET, HEAD, POST",
    "/v1/audio/voices/x": "DELETE",
    "/v1/models": "GET, HEAD",
    "/v1/models/x": "GET, HEAD",
    "/v1/voices": "GET, HEAD",
    "/health": "GET, HEAD",
    "/ready": "GET, HEAD",
    "/openapi.json": "GET, HEAD",
    "/docs": "GET, HEAD",
}


@pytest.mark.parametrize(
    "path",
    ["/", "/nothing", "/v1", "/v1/audio", "/v1/audio/voices/a/b", "/health/", "/v1/audio/voices/"],
)
async def test_an_unknown_address_is_a_404_in_openais_shape(path: str) -> None:
    async with calling(FakeEngine()) as caller:
        for method in ("GET", "POST", "DELETE"):
            answer = await caller.send(method, path)
            assert answer.status == 404
            assert answer.error["code"] == "not_found"
            assert "/openapi.json" in answer.error["message"]
            assert answer.headers["x-request-id"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_method_that_is_not_served_is_told_which_are(path: str) -> None:
    async with calling(FakeEngine()) as caller:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
            answer = await caller.send(method, path)
            if method in PATHS[path].split(", "):
                assert answer.status != 405
                continue
            assert answer.status == 405
            assert answer.headers["allow"] == PATHS[path]
            assert answer.error["code"] == "method_not_allowed"


@pytest.mark.parametrize("path", PATHS)
async def test_head_is_get_without_a_body(path: str) -> None:
    async with calling(FakeEngine()) as caller:
        head, get = await caller.send("HEAD", path), await caller.send("GET", path)
    assert head.status == get.status
    assert head.body == b""
    assert head.headers["content-length"] == get.headers["content-length"]


async def test_models() -> None:
    async with calling(FakeEngine()) as caller:
        answer = await caller.send("GET", "/v1/models")
        listed = answer.json()
        assert listed["object"] == "list"
        assert [each["id"] for each in listed["data"]] == [
            "tones",
            "tts-1",
            "tts-1-hd",
            "gpt-4o-mini-tts",
        ]
        for each in listed["data"]:
            assert set(each) == {"id", "object", "created", "owned_by"}
            assert each["object"] == "model"
            assert isinstance(each["created"], int)
            assert (await caller.send("GET", f"/v1/models/{each['id']}")).json() == each
            assert (await caller.speak(model=each["id"])).status == 200
        assert (await caller.speak(model="gpt-4o-mini-tts-2025-12-15")).status == 200
        assert (await caller.speak(model=None)).status == 200
        for wrong in ("TTS-1", "tts-1-", "tts-1-2025", "tones-x", "../tts-1", "a/b"):
            answer = await caller.send("GET", f"/v1/models/{wrong}")
            assert answer.status == 404
            assert answer.error["code"] == "model_not_found"


async def test_a_models_name_may_have_slashes() -> None:
    class Published(FakeEngine):
        model = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"

    settings = ServerSettings(openai=OpenAISettings(model_aliases=("qwen3-tts",)))
    async with calling(Published(), settings) as caller:
        answer = await caller.send("GET", f"/v1/models/{Published.model}")
        assert answer.json()["id"] == Published.model
        assert (await caller.speak(model=Published.model)).status == 200
        assert (await caller.speak(model="qwen3-tts")).status == 200
        assert (await caller.speak(model="tts-1")).status == 404


HUB = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"


class OfTheHub(FakeEngine):
    """A checkpoint, as clients of Qwen3-TTS name it."""

    model = "Qwen3-TTS 1.7B CustomVoice"
    model_ids = (HUB, HUB.removeprefix("Qwen/"))


async def test_a_checkpoint_is_asked_for_by_its_hub_id_and_its_last_part() -> None:
    async with calling(OfTheHub()) as caller:
        listed = (await caller.send("GET", "/v1/models")).json()["data"]
        assert [each["id"] for each in listed][:3] == [OfTheHub.model, *OfTheHub.model_ids]
        for name in OfTheHub.model_ids:
            assert (await caller.speak(model=name)).status == 200
            assert (await caller.send("GET", f"/v1/models/{name}")).json()["id"] == name
        for other in ("Qwen/Qwen3-TTS-12Hz-0.6B-Base", "Other/Qwen3-TTS-12Hz-1.7B-CustomVoice"):
            assert (await caller.speak(model=other)).status == 404


async def test_the_embedded_voice_stands_in_for_the_checkpoints_with_speakers() -> None:
    from qwen3tts_engine.embedded.engine import EmbeddedEngine

    class Embedded(FakeEngine):
        model_ids = EmbeddedEngine.model_ids

    async with calling(Embedded()) as caller:
        for name in (HUB, "Qwen3-TTS-12Hz-0.6B-CustomVoice"):
            assert (await caller.speak(model=name)).status == 200
        assert (await caller.speak(model="Qwen/Qwen3-TTS-12Hz-1.7B-Base")).status == 404


async def test_a_request_keeps_its_name() -> None:
    async with calling(FakeEngine()) as caller:
        for path in ("/v1/models", "/nothing"):
            assert (await caller.send("GET", path)).headers["x-request-id"]
        named = {"x-request-id": "mine-1"}
        assert (await caller.send("GET", "/x", b"", named)).headers["x-request-id"] == "mine-1"
        assert (await caller.speak(named)).headers["x-request-id"] == "mine-1"
        assert (await caller.speak()).headers["x-request-id"]


async def test_voices_are_listed_in_the_shapes_of_both() -> None:
    async with calling(FakeEngine()) as caller:
        body = (await caller.send("GET", "/v1/audio/voices")).json()
    names = [each.id for each in VOICES]
    assert body["voices"] == names
    assert body["uploaded_voices"] == []
    assert body["object"] == "list"
    assert [each["id"] for each in body["data"]] == names


async def test_a_server_that_stops_answers_and_takes_no_more_voices() -> None:
    async with calling(FakeEngine()) as caller:
        caller.service.draining = True
        assert (await caller.send("POST", "/v1/audio/voices")).status == 503
        assert (await caller.send("DELETE", "/v1/audio/voices/x")).status == 503
        assert (await caller.send("GET", "/v1/models")).status == 200


async def test_what_breaks_is_a_500_without_its_reason() -> None:
    class Broken(FakeEngine):
        def check(self, voice: str | None, language: str | None) -> None:
            if voice == "tone-de":
                raise RuntimeError("a secret")

    async with calling(Broken()) as caller:
        call = caller.speaking(voice="tone-de")
        with pytest.raises(RuntimeError, match="a secret"):
            await call.done()
    assert call.answer.status == 500
    assert call.answer.error["code"] == "internal_error"
    assert b"secret" not in call.answer.body
    assert call.answer.headers["x-request-id"]


STATUSES: list[tuple[SpeechError, int, str]] = [
    (BadRequest("x"), 400, "invalid_request_error"),
    (BadText("x"), 400, "invalid_request_error"),
    (UnknownVoice("x"), 400, "invalid_request_error"),
    (LimitExceeded("x"), 400, "invalid_request_error"),
    (BodyTooLarge("x"), 413, "invalid_request_error"),
    (ServerBusy("x"), 503, "server_error"),
    (EngineUnavailable("x"), 503, "server_error"),
    (EngineFailed("x"), 500, "server_error"),
    (ConnectionLost("x"), 500, "server_error"),
    (ProtocolError("x"), 500, "server_error"),
    (SpeechError("x"), 500, "server_error"),
]


@pytest.mark.parametrize(("error", "status", "kind"), STATUSES)
def test_every_error_has_a_status(error: SpeechError, status: int, kind: str) -> None:
    answer = speech_error_response(error)
    assert answer.status_code == status == status_of(error)
    assert f'"type":"{kind}"'.encode() in bytes(answer.body)
    assert ("retry-after" in answer.headers) == (status == 503)


def test_an_error_about_a_field_keeps_its_code() -> None:
    with pytest.raises(FieldRefused) as caught, about("outer"), about("voice"):
        raise UnknownVoice("No.", remedy="Other.")
    assert caught.value.param == "voice"
    assert code_of(caught.value) == caught.value.code == "unknown_voice"
    assert status_of(caught.value) == 400
    assert str(caught.value) == "No. Other."


def test_errors_before_any_route_have_the_shape_too() -> None:
    answer = error_response(
        429, "rate_limit_exceeded", "Too many.", remedy="Wait.", headers={"Retry-After": "7"}
    )
    assert answer.headers["retry-after"] == "7"
    assert bytes(answer.body) == (
        b'{"error":{"message":"Too many. Wait.","type":"rate_limit_error","param":null,'
        b'"code":"rate_limit_exceeded"}}'
    )
