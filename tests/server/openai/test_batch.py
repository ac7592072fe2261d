"""Several texts in one request: each has a result of its own, in order."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from typing import Any

import pytest

from qwen3tts_server.dialects.http_bodies import PIECE_BYTES
from qwen3tts_server.settings import OpenAISettings, ServerSettings
from tests.engine.fake_engine import CHAR_SAMPLES, CloningEngine, FakeEngine
from tests.server.openai.caller import JSON, Answer, Call, Caller, calling, until

BATCH = "/v1/audio/speech/batch"


async def batch(caller: Caller, *items: Any, **fields: Any) -> Answer:
    body = json.dumps({"items": items, **fields}).encode()
    return await caller.send("POST", BATCH, body, JSON)


def frames(result: dict[str, Any]) -> int:
    with wave.open(io.BytesIO(base64.b64decode(result["audio_data"]))) as file:
        return int(file.getnframes())


async def test_each_item_has_its_result_in_order_and_one_failure_loses_no_other() -> None:
    async with calling(FakeEngine()) as caller:
        answer = await batch(
            caller,
            {"input": "Hello."},
            {"input": ""},
            {"input": "Hi there.", "voice": "unlisted"},
            {"input": "A.", "speed": "fast"},
            {"input": "Broken.", "voice": "fail-late"},
            "text",
            {},
            {"input": "Last one."},
            voice="tone",
        )
    told = answer.json()
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert told["id"].startswith("speech-batch-")
    results = told["results"]
    assert [each["index"] for each in results] == list(range(8))
    good = {0: "Hello.", 7: "Last one."}
    assert {each["index"] for each in results if each["status"] == "success"} == set(good)
    for index, text in good.items():
        assert results[index]["media_type"] == "audio/wav"
        assert frames(results[index]) == CHAR_SAMPLES * len(text)
        assert results[index]["usage"]["input_token_details"]["text_tokens"] == len(text)
    params = [each["error_details"]["param"] for each in results if each["status"] == "error"]
    assert params == [
        "items[1].input",
        "items[2].voice",
        "items[3].speed",
        "items[4]",
        "items[5]",
        "items[6].input",
    ]
    assert results[4]["error_details"]["code"] == "engine_failed"
    assert results[4]["error_details"]["type"] == "server_error"
    for each in results:
        if each["status"] == "error":
            assert each["error"] == each["error_details"]["message"]
            assert "usage" not in each
    assert (told["total"], told["succeeded"], told["failed"]) == (8, 2, 6)
    assert told["usage"]["input_tokens"] == sum(map(len, good.values()))


async def test_items_take_from_the_batch_what_they_leave_out() -> None:
    engine = FakeEngine()
    async with calling(engine) as caller:
        told = (
            await batch(
                caller,
                {"input": "One.", "voice": None},
                {"input": "Two.", "speaker": "tone-de", "response_format": "flac"},
                {"input": "Three.", "sample_rate": 8000},
                voice="tone",
                sample_rate=16000,
            )
        ).json()
    assert [each.voice for each in engine.requests] == ["tone", "tone-de", "tone"]
    assert [each["sample_rate"] for each in told["results"]] == [16000, 16000, 8000]
    kinds = [each["media_type"] for each in told["results"]]
    assert kinds == ["audio/wav", "audio/flac", "audio/wav"]
    # Calls come first: a batch has no listener who waits for its next second.
    assert all(each.lead is not None and each.lead.unpaced for each in engine.requests)


@pytest.mark.parametrize(
    ("fields", "param", "status"),
    [
        ({}, "items", 400),
        ({"items": []}, "items", 400),
        ({"items": {"input": "a"}}, "items", 400),
        ({"items": None}, "items", 400),
        ({"items": [{"input": "a"}] * 33}, "items", 400),
        ({"items": [{"input": "a" * 4000}] * 9}, "items", 400),
        ({"items": [{"input": "a"}], "speed": 9}, "speed", 400),
        ({"items": [{"input": "a"}], "response_format": "tape"}, "response_format", 400),
        ({"items": [{"input": "a"}], "model": 5}, "model", 400),
        ({"items": [{"input": "a"}], "model": "whisper-9"}, "model", 404),
        ({"items": [{"input": "a"}], "sample_rate": 7999}, "sample_rate", 400),
    ],
)
async def test_what_is_wrong_with_the_batch_itself_is_refused_by_name(
    fields: dict[str, Any], param: str, status: int
) -> None:
    engine = FakeEngine()
    async with calling(engine) as caller:
        answer = await caller.send("POST", BATCH, json.dumps(fields).encode(), JSON)
    assert answer.status == status
    assert answer.error["param"] == param
    assert not engine.requests


async def test_batches_share_so_many_places_and_calls_have_the_rest() -> None:
    engine = FakeEngine()
    settings = ServerSettings(openai=OpenAISettings(batch_slots=2))
    items = [{"input": "Stay.", "voice": "stall"}] * 5
    body = json.dumps({"items": items}).encode()
    async with calling(engine, settings) as caller:
        calls = [Call(caller.app, "POST", BATCH, body, JSON) for _ in range(2)]
        await until(lambda: engine.active == 2)
        for _ in range(50):
            await asyncio.sleep(0)
        assert engine.active == 2
        assert (await caller.speak(response_format="wav")).status == 200
        for each in calls:
            await each.leave()
        assert engine.active == 0
        assert engine.most_active == 3


async def test_a_recording_of_the_batch_is_made_a_voice_once_and_a_named_voice_leaves_it() -> None:
    engine = CloningEngine()
    audio = base64.b64encode(b"sound").decode()
    async with calling(engine) as caller:
        told = (
            await batch(
                caller,
                {"input": "One."},
                {"input": "Two."},
                {"input": "Three.", "voice": "tone"},
                ref_audio=audio,
                ref_text="what it says",
            )
        ).json()
    assert [each["status"] for each in told["results"]] == ["error", "error", "success"]
    # The tone engine cannot speak with voices that it makes; it was given the recording once.
    assert [each[1] for each in engine.loads if each[1] is not None] == [b"sound"]
    assert [each.voice for each in engine.requests] == ["tone"]


async def test_times_of_words_stand_in_each_result() -> None:
    async with calling(FakeEngine()) as caller:
        told = (await batch(caller, {"input": "Hello there."}, word_timestamps=True)).json()
    words = [each["word"] for each in told["results"][0]["word_timestamps"]]
    assert words == ["Hello", "there."]


async def test_a_long_file_is_written_in_pieces_with_turns_of_the_loop_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "Hello there, this is a long text. " * 100
    dumps, longest = json.dumps, 0

    def watched(*args: Any, **kwargs: Any) -> str:
        nonlocal longest
        made = dumps(*args, **kwargs)
        longest = max(longest, len(made))
        return made

    body = json.dumps({"items": [{"input": text}]}).encode()
    async with calling(FakeEngine()) as caller:
        monkeypatch.setattr(json, "dumps", watched)
        call = Call(caller.app, "POST", BATCH, body, JSON)
        most = before = 0
        while not call.task.done():
            sent = sum(map(len, call.answer.pieces))
            most, before = max(most, sent - before), sent
            await asyncio.sleep(0)
        answer = await call.done()
        alone = await caller.speak(input=text, response_format="wav", stream=False)
    [result] = answer.json()["results"]
    assert base64.b64decode(result["audio_data"], validate=True) == alone.body
    assert longest < PIECE_BYTES < len(answer.body) / 50
    assert most <= 2 * PIECE_BYTES
