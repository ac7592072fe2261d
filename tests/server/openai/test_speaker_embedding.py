"""``speaker_embedding``: the numbers of a speaker encoder in place of a recording."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from qwen3tts_engine.base import LoadedVoice
from qwen3tts_server.settings import ServerSettings, VoiceSettings
from qwen3tts_wire.errors import UnknownVoice
from tests.engine.fake_engine import CloningEngine, FakeEngine
from tests.server.openai.caller import Answer, Caller, calling
from tests.server.openai.test_voices import FORM, VOICES_PATH, written
from tests.server.voices.world import wav

SIZE = 8
GOOD = [0.25 * number for number in range(SIZE)]


class Embedding(CloningEngine):
    """One that makes a voice of SIZE numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings: list[tuple[float, ...]] = []

    def check(self, voice: str | None, language: str | None) -> None:
        made = voice == "made" and self.embeddings
        super().check(None if made else voice, language)

    def embedding_size(self) -> int | None:
        return SIZE

    async def load_embedding(self, embedding: Sequence[float]) -> LoadedVoice:
        self.embeddings.append(tuple(embedding))
        return LoadedVoice("made", cached=False, ref_text=None)


async def test_an_embedding_speaks() -> None:
    engine = Embedding()
    async with calling(engine) as caller:
        answer = await caller.speak(speaker_embedding=GOOD, voice="tone", response_format="wav")
    assert answer.status == 200
    assert engine.embeddings == [tuple(GOOD)]
    assert [each.voice for each in engine.requests] == ["made"]


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("too short", {"speaker_embedding": GOOD[:-1]}, "8"),
    ("too long", {"speaker_embedding": [*GOOD, 1.0]}, "8"),
    ("empty", {"speaker_embedding": []}, "0 numbers"),
    ("beyond vLLM-Omni's bound", {"speaker_embedding": [0.5] * 8193}, "8192"),
    ("a text", {"speaker_embedding": "0.5"}, "list"),
    ("texts", {"speaker_embedding": ["0.5"] * SIZE}, "number"),
    ("lists", {"speaker_embedding": [GOOD]}, "number"),
    ("huge", {"speaker_embedding": [*GOOD[:-1], 1e30]}, "1000"),
    ("with a recording", {"speaker_embedding": GOOD, "ref_audio": "UklGRg=="}, "Both"),
    ("with its words", {"speaker_embedding": GOOD, "ref_text": "words"}, "Both"),
]


@pytest.mark.parametrize(("fields", "says"), [each[1:] for each in BAD], ids=[e[0] for e in BAD])
async def test_what_is_none_is_refused_by_name(fields: dict[str, Any], says: str) -> None:
    engine = Embedding()
    async with calling(engine) as caller:
        answer = await caller.speak(**fields)
    assert answer.status == 400
    assert answer.error["param"] == "speaker_embedding"
    assert says in answer.error["message"]
    assert not engine.embeddings


async def test_infinity_is_refused() -> None:
    body = b'{"input":"Hi.","speaker_embedding":[' + b"1e999," * (SIZE - 1) + b"0]}"
    async with calling(Embedding()) as caller:
        answer = await caller.send(
            "POST", "/v1/audio/speech", body, {"content-type": "application/json"}
        )
    assert answer.status == 400
    assert answer.error["param"] == "speaker_embedding"


@pytest.mark.parametrize("engine", [FakeEngine, CloningEngine])
async def test_an_engine_that_takes_none_says_what_does(engine: type[FakeEngine]) -> None:
    async with calling(engine()) as caller:
        answer = await caller.speak(speaker_embedding=GOOD)
    assert answer.status == 400
    assert answer.error["param"] == "speaker_embedding"
    assert "Base checkpoint" in answer.error["message"]


class Uploaded(Embedding):
    """One that gives each embedding an id of its own and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.made: set[str] = set()

    def check(self, voice: str | None, language: str | None) -> None:
        super().check(None if voice in self.made else voice, language)

    async def load_voice(self, *, voice_id: str | None = None, **options: Any) -> LoadedVoice:
        if voice_id is not None and voice_id not in self.made:
            raise UnknownVoice("No such voice.", remedy="Make it.")
        return await super().load_voice(voice_id=voice_id, **options)

    async def load_embedding(self, embedding: Sequence[float]) -> LoadedVoice:
        await super().load_embedding(embedding)
        made = f"made-{sum(embedding)}"
        self.made.add(made)
        return LoadedVoice(made, cached=False, ref_text=None)


async def upload(caller: Caller, embedding: object, **fields: str) -> Answer:
    sent = {"name": "Anna", "consent": "given", "speaker_embedding": embedding, **fields}
    parts = [(name, str(value).encode(), False) for name, value in sent.items()]
    return await caller.send("POST", VOICES_PATH, written(*parts), FORM)


async def test_an_uploaded_embedding_is_a_voice_for_every_replica_of_the_store(
    tmp_path: Path,
) -> None:
    stored = ServerSettings(voices=VoiceSettings(store=str(tmp_path)))
    async with calling(Uploaded(), stored) as caller:
        answer = await upload(caller, json.dumps(GOOD), speaker_description="warm")
        assert answer.status == 200
        told = answer.json()
        assert (told["id"], told["type"], told["success"]) == ("Anna", "speaker_embedding", True)
        voice = told["voice"]
        assert (voice["x_vector_only_mode"], voice["ref_text"]) == (True, None)
        assert (voice["seconds"], voice["file_size"]) == (None, 4 * SIZE)
        assert (await caller.speak(voice="Anna")).status == 200
        conflict = await upload(caller, json.dumps(GOOD[::-1]))
        assert conflict.status == 409
    other = Uploaded()
    async with calling(other, stored) as caller:
        listed = (await caller.send("GET", VOICES_PATH)).json()
        assert listed["uploaded_voices"] == [voice]
        for name in ("Anna", "clone:anna", voice["content"]):
            assert (await caller.speak(voice=name)).status == 200
        assert other.embeddings == [tuple(GOOD)]
        assert {each.voice for each in other.requests} == {voice["voice_id"]}
        assert (await caller.send("DELETE", f"{VOICES_PATH}/Anna")).status == 200
    async with calling(CloningEngine(), stored) as caller:
        assert (await caller.send("GET", VOICES_PATH)).json()["uploaded_voices"] == []


async def test_a_stored_embedding_is_refused_by_name_where_the_engine_takes_none(
    tmp_path: Path,
) -> None:
    stored = ServerSettings(voices=VoiceSettings(store=str(tmp_path)))
    async with calling(Uploaded(), stored) as caller:
        assert (await upload(caller, json.dumps(GOOD))).status == 200
    async with calling(CloningEngine(), stored) as caller:
        answer = await caller.speak(voice="Anna")
    assert answer.status == 400
    assert "takes no speaker embedding" in answer.error["message"]


BAD_UPLOADS: list[tuple[str, object, dict[str, str]]] = [
    ("no JSON", "0.5, 0.5", {}),
    ("no list", json.dumps({"0": 0.5}), {}),
    ("texts", json.dumps(["0.5"] * SIZE), {}),
    ("booleans", json.dumps([True] * SIZE), {}),
    ("nested without end", "[" * 30_000, {}),
    ("not finite", "[NaN" + ", 0" * (SIZE - 1) + "]", {}),
    ("a whole number of 5000 digits", "[" + "9" * 5000 + "]", {}),
    ("too short", json.dumps(GOOD[:-1]), {}),
    ("empty", "[]", {}),
    ("with words", json.dumps(GOOD), {"ref_text": "words"}),
]


@pytest.mark.parametrize(
    ("embedding", "fields"), [each[1:] for each in BAD_UPLOADS], ids=[e[0] for e in BAD_UPLOADS]
)
async def test_an_upload_that_is_no_embedding_is_refused_by_name(
    embedding: object, fields: dict[str, str]
) -> None:
    engine = Uploaded()
    async with calling(engine) as caller:
        answer = await upload(caller, embedding, **fields)
        assert (await caller.send("GET", VOICES_PATH)).json()["uploaded_voices"] == []
    assert answer.status == 400
    assert answer.error["param"] == "speaker_embedding"
    assert not engine.embeddings


async def test_an_upload_has_a_recording_or_an_embedding_and_not_both() -> None:
    async with calling(Uploaded()) as caller:
        both = [("speaker_embedding", json.dumps(GOOD).encode(), False)]
        both += [("name", b"Anna", False), ("consent", b"given", False)]
        both += [("audio_sample", wav(1.0), True)]
        answer = await caller.send("POST", VOICES_PATH, written(*both), FORM)
    assert answer.status == 400
    assert answer.error["param"] == "speaker_embedding"
    assert "Both" in answer.error["message"]


@pytest.mark.parametrize("engine", [FakeEngine, CloningEngine])
async def test_an_engine_without_embeddings_refuses_the_upload_of_one(
    engine: type[FakeEngine],
) -> None:
    async with calling(engine()) as caller:
        answer = await upload(caller, json.dumps(GOOD))
    assert answer.status == 400
    assert answer.error["param"] == "speaker_embedding"
    assert "Base checkpoint" in answer.error["message"]
