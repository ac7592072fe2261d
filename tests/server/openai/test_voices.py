"""Voices that are brought: uploaded, listed, spoken with, deleted; and recordings in requests."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from qwen3tts_engine.base import Engine, LoadedVoice, WordsMissing
from qwen3tts_server.dialects.http_bodies import Form, form
from qwen3tts_server.dialects.openai.openapi import Upload
from qwen3tts_server.dialects.openai.request import SpeechRequest
from qwen3tts_server.settings import ServerSettings, VoiceSettings
from qwen3tts_wire.errors import BadRequest, UnknownVoice
from tests.engine.fake_engine import VOICES, FakeEngine, tone
from tests.server.openai.caller import Answer, Call, Caller, calling
from tests.server.voices.world import Cloner, wav

VOICES_PATH = "/v1/audio/voices"
BOUNDARY = "limit"
FORM = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
PCM = b"".join(map(tone, "Hello there."))


def written(*parts: tuple[str, bytes, bool]) -> bytes:
    """A form; each part: name, content, whether it is a file."""
    body = b""
    for name, content, is_file in parts:
        more = f'; filename="{name}.wav"\r\nContent-Type: audio/wav' if is_file else ""
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'
        body += head.encode() + content + b"\r\n"
    return body + f"--{BOUNDARY}--\r\n".encode()


def upload(*, audio: bytes | None = None, **fields: str) -> bytes:
    """The form of an upload; a field that is empty is left out."""
    fields = {"name": "Anna", "consent": "given", **fields}
    parts = [(name, text.encode(), False) for name, text in fields.items() if text]
    audio = wav(1.0) if audio is None else audio
    return written(*parts, *([("audio_sample", audio, True)] if audio else []))


async def bring(caller: Caller, **fields: Any) -> Answer:
    return await caller.send("POST", VOICES_PATH, upload(**fields), FORM)


async def test_a_voice_is_brought_listed_spoken_with_and_removed() -> None:
    engine = Cloner()
    async with calling(engine) as caller:
        answer = await bring(caller, ref_text="Some words.", speaker_description="warm")
        assert answer.status == 200
        brought = answer.json()
        assert brought["object"] == "audio.voice"
        assert (brought["id"], brought["name"], brought["type"]) == ("Anna", "Anna", "audio_sample")
        assert isinstance(brought["created_at"], int)
        assert brought["success"] is True
        told = brought["voice"]
        assert (told["name"], told["consent"]) == ("Anna", "given")
        assert (told["ref_text"], told["speaker_description"]) == ("Some words.", "warm")
        assert told["file_size"] == len(wav(1.0))

        listed = (await caller.send("GET", VOICES_PATH)).json()
        assert listed["voices"] == [*(each.id for each in VOICES), "Anna"]
        assert listed["uploaded_voices"] == [told]
        assert [each["id"] for each in listed["data"]] == listed["voices"]

        for voice in (
            "Anna",
            "anna",
            "clone:Anna",
            {"id": "Anna"},
            told["voice_id"],
            told["content"],
        ):
            said = await caller.speak(voice=voice, response_format="pcm")
            assert said.body == PCM
        assert set(engine.spoken_with) == {told["voice_id"]}

        gone = await caller.send("DELETE", f"{VOICES_PATH}/Anna")
        assert gone.status == 200
        assert gone.json()["deleted"] is True
        assert gone.json()["object"] == "audio.voice.deleted"
        again = await caller.send("DELETE", f"{VOICES_PATH}/Anna")
        assert again.status == 404
        assert again.error["code"] == "voice_not_found"
        assert (await caller.speak(voice="Anna")).status == 400


class Wordless(Cloner):
    """Nothing here writes down what a recording says."""

    async def load_voice(
        self,
        *,
        voice_id: str | None = None,
        ref_audio: bytes | None = None,
        ref_text: str | None = None,
        x_vector_only: bool = False,
    ) -> LoadedVoice:
        if ref_audio is not None and not ref_text and not x_vector_only:
            remedy = "Give the recording's words as ref_text, or ask for x_vector_only=true."
            raise WordsMissing("The reference recording comes without its words.", remedy=remedy)
        return await super().load_voice(
            voice_id=voice_id,
            ref_audio=ref_audio,
            ref_text=ref_text,
            x_vector_only=x_vector_only,
        )


@pytest.mark.parametrize("words", ["", "  "])
async def test_an_upload_without_words_is_a_voice_of_its_speaker_embedding(words: str) -> None:
    engine = Wordless()
    async with calling(engine) as caller:
        answer = await bring(caller, ref_text=words)
        assert answer.status == 200
        told = answer.json()["voice"]
        assert told["x_vector_only_mode"] is True
        assert told["ref_text"] is None
        assert engine.made == {told["voice_id"]: None}
        assert (await caller.speak(voice="Anna", response_format="pcm")).body == PCM
        assert engine.spoken_with == [told["voice_id"]]
        named = await bring(caller, name="Berta", ref_text="Some words.")
        assert named.json()["voice"]["x_vector_only_mode"] is False


async def test_an_upload_without_words_is_heard_where_the_engine_can() -> None:
    async with calling(Cloner()) as caller:
        told = (await bring(caller)).json()["voice"]
        assert (told["x_vector_only_mode"], told["ref_text"]) == (False, "heard")


async def test_words_that_are_missing_are_asked_for_by_the_fields_that_there_are() -> None:
    async with calling(Wordless()) as caller:
        for answer in (
            await bring(caller, x_vector_only_mode="false"),
            await caller.speak(ref_audio=data_url(wav(1.0))),
        ):
            assert answer.status == 400
            assert answer.error["param"] == "ref_text"
            assert "x_vector_only_mode=true" in answer.error["message"]
        assert {"ref_text", "x_vector_only_mode"} <= Upload.model_fields.keys()
        assert {"ref_text", "x_vector_only_mode"} <= SpeechRequest.model_fields.keys()
        assert (await caller.send("GET", VOICES_PATH)).json()["uploaded_voices"] == []
        x_vector: dict[str, Any] = {"ref_audio": data_url(wav(1.0)), "x_vector_only_mode": True}
        assert (await caller.speak(**x_vector)).status == 200


async def test_an_engine_without_a_speaker_encoder_refuses_an_upload_with_a_remedy() -> None:
    for engine in (FakeEngine(), Checkpoint("custom_voice")):
        async with calling(engine) as caller:
            answer = await bring(caller)
            assert answer.status == 400
            assert answer.error["code"] == "bad_request"
            assert "Base checkpoint" in answer.error["message"]


async def test_a_name_that_is_taken_is_a_conflict_unless_it_may_be_overwritten() -> None:
    async with calling(Cloner()) as caller:
        assert (await bring(caller)).status == 200
        other = wav(1.5)
        refused = await bring(caller, audio=other)
        assert refused.status == 409
        assert refused.error["code"] == "voice_exists"
        assert (await bring(caller, audio=other, overwrite="false")).status == 409
        assert (await bring(caller, audio=other, overwrite="true")).status == 200
        listed = (await caller.send("GET", VOICES_PATH)).json()["uploaded_voices"]
        assert [each["file_size"] for each in listed] == [len(other)]


REFUSED: list[tuple[dict[str, Any], int, str | None]] = [
    ({"name": ""}, 400, "name"),
    ({"name": "  "}, 400, "name"),
    ({"name": "../x"}, 400, "name"),
    ({"name": "a/b"}, 400, "name"),
    ({"name": "x" * 65}, 400, "name"),
    ({"name": "alloy"}, 400, "name"),
    ({"name": "Default"}, 400, "name"),
    ({"name": "tone"}, 400, None),
    ({"consent": ""}, 400, "consent"),
    ({"audio": b""}, 400, "audio_sample"),
    ({"audio": b"no sound"}, 400, None),
    ({"type": "prompt"}, 400, "type"),
    ({"speaker_embedding": "[0.1]", "audio": b""}, 400, "speaker_embedding"),
    ({"x_vector_only_mode": "maybe"}, 400, "x_vector_only_mode"),
    ({"overwrite": "2"}, 400, "overwrite"),
    ({"ref_text": "x" * 70_000}, 400, None),
]


@pytest.mark.parametrize(("fields", "status", "param"), REFUSED)
async def test_an_upload_that_cannot_be(
    fields: dict[str, Any], status: int, param: str | None
) -> None:
    async with calling(Cloner()) as caller:
        answer = await bring(caller, **fields)
        assert answer.status == status
        assert answer.error["param"] == param
        assert (await caller.send("GET", VOICES_PATH)).json()["uploaded_voices"] == []


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", "application/json", 415),
        (b'{"name": "x"}', "application/json", 415),
        (b"", "", 415),
        (b"", "multipart/form-data", 400),
        (b"", "multipart/form-data; boundary=", 400),
        (upload(name="Anna").replace(b"Anna", b"\xff"), FORM["content-type"], 400),
        (b"", FORM["content-type"], 400),
        (b"--limit", FORM["content-type"], 400),
        (b"no form", FORM["content-type"], 400),
        (upload()[:-4], FORM["content-type"], 400),
        (upload()[:-40], FORM["content-type"], 400),
        (upload().replace(b'name="name"', b""), FORM["content-type"], 400),
        (written(*[(f"f{i}", b"x", False) for i in range(40)]), FORM["content-type"], 400),
        (written(*[("audio_sample", b"x", True)] * 2), FORM["content-type"], 400),
    ],
)
async def test_a_body_that_is_no_such_form(body: bytes, kind: str, status: int) -> None:
    async with calling(Cloner()) as caller:
        headers = {"content-type": kind} if kind else {}
        answer = await caller.send("POST", VOICES_PATH, body, headers)
        assert answer.status == status
        assert answer.error["message"]


async def test_an_upload_that_is_too_long_is_refused_as_it_comes() -> None:
    small = ServerSettings(voices=VoiceSettings(max_bytes=1000))
    async with calling(Cloner(), small) as caller:
        endless = upload(audio=b"RIFF" + bytes(600_000))
        call = Call(caller.app, "POST", VOICES_PATH, endless, FORM, chunk=4096, complete=False)
        assert (await call.done()).status == 413
        declared = {**FORM, "content-length": "9999999"}
        call = Call(caller.app, "POST", VOICES_PATH, b"", declared, complete=False)
        assert (await call.done()).status == 413


async def test_a_client_may_leave_in_the_middle_of_an_upload() -> None:
    async with calling(Cloner()) as caller:
        call = Call(caller.app, "POST", VOICES_PATH, upload()[:500], FORM, complete=False)
        await call.leave()
        assert (await bring(caller)).status == 200


async def test_an_engine_that_cannot_clone_says_so() -> None:
    async with calling(FakeEngine()) as caller:
        answer = await bring(caller)
        assert answer.status == 400
        assert "recordings" in answer.error["message"]


def data_url(audio: bytes) -> str:
    return "data:audio/wav;base64," + base64.b64encode(audio).decode()


@pytest.mark.parametrize("task", [None, "Base"])
async def test_a_recording_in_the_request_is_whose_voice_speaks(task: str | None) -> None:
    engine = Cloner()
    async with calling(engine) as caller:
        for fields in ({"ref_text": "Words."}, {"x_vector_only_mode": True}):
            answer = await caller.speak(
                ref_audio=data_url(wav(1.0)), task_type=task, response_format="pcm", **fields
            )
            assert answer.body == PCM
    assert len(set(engine.spoken_with)) == 2
    assert set(engine.made.values()) == {"Words.", None}


@pytest.mark.parametrize(
    "ref",
    [
        "data:audio/wav;base64,####",
        "data:audio/wav;base64," + base64.b64encode(b"no sound").decode(),
        "data:,",
        "http://127.0.0.1/a.wav",
        "http://example.com/a.wav",
        "file:///etc/passwd",
        "ftp://example.com/a.wav",
        "%%%",
    ],
)
async def test_a_recording_that_cannot_be_had(ref: str) -> None:
    async with calling(Cloner()) as caller:
        answer = await caller.speak(ref_audio=ref, ref_text="Words.")
    assert answer.status == 400
    assert answer.error["param"] == "ref_audio"


async def test_a_client_may_leave_while_its_recording_is_read() -> None:
    engine = Cloner()
    async with calling(engine) as caller:
        engine.gate.clear()
        call = caller.speaking(ref_audio=data_url(wav(1.0)), ref_text="Words.")
        await call.leave()
        assert call.answer.status == 0
        engine.gate.set()


class ClonedOnly(Cloner):
    """A Base checkpoint: until a voice is made of a recording it has none."""

    def __init__(self) -> None:
        super().__init__(built_in=())

    def check(self, voice: str | None, language: str | None) -> None:
        if voice is None and not self.made:
            raise UnknownVoice("There is no voice yet.", remedy="Make one of a recording.")
        super().check(voice, language)


async def test_a_recording_speaks_where_no_voice_was_made_before() -> None:
    recording: dict[str, Any] = {"ref_audio": data_url(wav(1.0)), "ref_text": "Words."}
    async with calling(ClonedOnly()) as caller:
        answer = await caller.speak(**recording, response_format="pcm")
        assert answer.status == 200
        assert answer.body == PCM


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "voice"),
        ({"ref_text": "Words."}, "ref_text"),
        ({"ref_audio": "%%%", "ref_text": "Words."}, "ref_audio"),
        ({"ref_audio": data_url(wav(1.0)), "language": "xx"}, "language"),
    ],
)
async def test_what_is_wrong_is_said_where_no_voice_was_made_before(
    fields: dict[str, Any], param: str
) -> None:
    async with calling(ClonedOnly()) as caller:
        answer = await caller.speak(**fields)
        assert answer.status == 400
        assert answer.error["param"] == param


async def test_both_lists_have_the_voices_that_were_brought() -> None:
    async with calling(Cloner()) as caller:
        await bring(caller)
        listed = (await caller.send("GET", "/v1/voices")).json()["voices"]
        assert [each["id"] for each in listed] == [*(each.id for each in VOICES), "clone:Anna"]


class Checkpoint(Cloner):
    """A checkpoint of Qwen3-TTS that was made for one task."""

    def __init__(self, task: str) -> None:
        super().__init__()
        self.task = task


TASKS: list[tuple[Engine, dict[str, Any], str | None]] = [
    # served, asked, the field that is refused
    (Checkpoint("custom_voice"), {"task_type": "CustomVoice"}, None),
    (Checkpoint("custom_voice"), {"task_type": "VoiceDesign"}, "task_type"),
    (Checkpoint("custom_voice"), {"task_type": "Base"}, "task_type"),
    (Checkpoint("voice_design"), {"task_type": "VoiceDesign", "instructions": "Deep."}, None),
    (Checkpoint("voice_design"), {"task_type": "VoiceDesign"}, None),
    (Checkpoint("voice_design"), {"instructions": " "}, None),
    (Checkpoint("voice_design"), {"instructions": "Deep."}, None),
    (Checkpoint("base"), {"task_type": "Base"}, None),
    (Checkpoint("base"), {"task_type": "CustomVoice"}, "task_type"),
    (Checkpoint("custom_voice"), {"task_type": "CustomVoice", "ref_audio": "x"}, "ref_audio"),
    (Checkpoint("custom_voice"), {"task_type": "CustomVoice", "ref_text": "x"}, "ref_audio"),
    (Cloner(), {"task_type": "CustomVoice"}, None),
    (Cloner(), {"task_type": "Base"}, None),
    (Cloner(), {"task_type": "VoiceDesign", "instructions": "Deep."}, "task_type"),
    (FakeEngine(), {"task_type": "CustomVoice"}, None),
    (FakeEngine(), {"task_type": "Base"}, "task_type"),
]


@pytest.mark.parametrize(("engine", "fields", "param"), TASKS)
async def test_tasks_have_to_be_those_of_the_model(
    engine: Engine, fields: dict[str, Any], param: str | None
) -> None:
    async with calling(engine) as caller:
        answer = await caller.speak(**fields)
    if param is None:
        assert answer.status == 200
    else:
        assert answer.status == 400
        assert answer.error["param"] == param


PIECES = st.sampled_from(
    [
        b"--limit\r\n",
        b"--limit--\r\n",
        b"--limit",
        b'Content-Disposition: form-data; name="name"\r\n\r\n',
        b'Content-Disposition: form-data; name="a"; filename="b"\r\n\r\n',
        b"Content-Disposition: form-data\r\n\r\n",
        b"Content-Type: text/plain; charset=utf-16\r\n",
        b"\r\n",
        b"\r\n\r\n",
        b"text",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    pieces=st.lists(PIECES | st.binary(max_size=20), max_size=12),
    step=st.integers(1, 50),
    kind=st.sampled_from([FORM["content-type"], "multipart/form-data; boundary=", "multipart/x"])
    | st.text(st.characters(codec="latin-1"), max_size=40).map("multipart/form-data;".__add__),
)
async def test_any_bytes_are_a_form_or_a_named_error(
    pieces: list[bytes], step: int, kind: str
) -> None:
    body = b"".join(pieces)
    cut = [body[at : at + step] for at in range(0, len(body), step)] or [b""]
    messages: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": at < len(cut) - 1}
        for at, piece in enumerate(cut)
    ]

    async def receive() -> Message:
        return messages.pop(0)

    headers = [(b"content-type", kind.encode("latin-1"))]
    request = Request({"type": "http", "headers": headers}, receive)
    with contextlib.suppress(BadRequest):
        assert isinstance(await form(request, 10_000), Form)
