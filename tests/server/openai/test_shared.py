"""What the dialects share: fields of Qwen3-TTS, errors, and answers on their way."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from starlette.types import Message

from qwen3tts_server.dialects.http_bodies import PacedSender, until_gone
from qwen3tts_server.dialects.http_errors import FieldRefused, handle_errors
from qwen3tts_server.dialects.qwen_fields import (
    check_task,
    first_chunk_of,
    language_tag,
    reference_voice,
    seed_of,
)
from qwen3tts_server.voices.catalogue import VoiceCatalogue
from tests.engine.fake_engine import FakeEngine
from tests.server.openai.caller import Call


@pytest.mark.parametrize(
    ("language", "tag"),
    [
        (None, None),
        ("", None),
        ("Auto", None),
        ("auto", None),
        ("English", "en"),
        (" german ", "de"),
        ("en-GB", "en-GB"),
        ("Klingon", "Klingon"),
    ],
)
def test_languages_by_name(language: str | None, tag: str | None) -> None:
    assert language_tag(language) == tag


def test_numbers_that_engines_take_otherwise() -> None:
    assert [seed_of(seed) for seed in (None, 0, 7, -1, -(2**63))] == [None, 0, 7, 2**63 - 1, 0]
    assert [first_chunk_of(frames) for frames in (None, 0, 1)] == [None, None, 1]


async def test_no_recording_is_no_voice() -> None:
    voices = VoiceCatalogue(FakeEngine())
    assert await reference_voice(voices, None, None, x_vector_only=False) is None


def test_an_unknown_task_names_the_known() -> None:
    with pytest.raises(FieldRefused, match="CustomVoice, VoiceDesign, Base") as caught:
        check_task(VoiceCatalogue(FakeEngine()), "Sing", reference=False)
    assert caught.value.param == "task_type"


async def test_parameters_that_do_not_fit_are_400s_in_openais_shape() -> None:
    app = FastAPI()
    handle_errors(app)

    @app.get("/{number}")
    async def numbered(number: int) -> int:
        return number

    answer = await Call(app, "GET", "/secret").done()
    assert answer.status == 400
    assert answer.error["param"] == "number"
    assert "secret" not in answer.error["message"]


async def test_work_is_done_though_more_of_the_body_comes() -> None:
    sent: list[Message] = []
    messages: list[Message] = [{"type": "http.request", "body": b"x"}] * 2

    async def receive() -> Message:
        if messages:
            return messages.pop()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    sending = PacedSender(send, 1.0)

    async def work() -> None:
        await sending.start("audio/pcm", {"X-A": "b"})
        await sending.body(bytes(100_000))
        await sending.end()

    await until_gone(receive, work())
    assert sending.started
    assert sent[0]["headers"] == [(b"content-type", b"audio/pcm"), (b"x-a", b"b")]
    assert [len(each["body"]) for each in sent[1:]] == [65536, 34464, 0]
    assert [each["more_body"] for each in sent[1:]] == [True, True, False]
