"""``speaker_embedding``: the numbers of a speaker encoder in place of a recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from qwen3tts_engine.base import LoadedVoice
from tests.engine.fake_engine import CloningEngine, FakeEngine
from tests.server.openai.caller import calling

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
