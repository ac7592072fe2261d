"""Clients that ask for much and take little."""

from __future__ import annotations

import json

import pytest

from qwen3tts_server.settings import OpenAISettings
from tests.engine.fake_engine import FakeEngine
from tests.server.hostile.world import (
    NATIVE,
    RUNVNC,
    SPEECH,
    TEXT,
    VLLM,
    Attacker,
    World,
    attacked,
    frame,
    request,
    text,
)

pytestmark = pytest.mark.network

LONG = "word and word. " * 1000


async def deaf(world: World, path: str, *messages: object) -> Attacker:
    """One that says this and reads nothing of the answers."""
    one = await world.websocket(path)
    one.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for each in messages:
        one.writer.write(text(each))
    return one


async def test_contexts_without_number_from_one_who_reads_nothing() -> None:
    engine = FakeEngine()
    async with attacked(engine) as world:
        for voice in ("tone", "stall", "unlisted"):
            await deaf(
                world,
                NATIVE,
                *(
                    message
                    for no in range(1, 200)
                    for message in (
                        {
                            "type": "context.open",
                            "context_id": f"c{no}",
                            "context_no": no,
                            "voice": voice,
                            "window_ms": 60_000,
                        },
                        {"type": "text.append", "context_id": f"c{no}", "text": LONG},
                        {"type": "text.end", "context_id": f"c{no}"},
                    )
                ),
            )
        await world.heard_more(5)
        assert engine.most_active <= 2 * 64 + 2


async def test_the_bound_of_open_contexts_is_told_and_kept() -> None:
    engine = FakeEngine()
    async with attacked(engine) as world:
        one = await world.websocket(NATIVE)
        codes = []
        for no in range(1, 80):
            opening = {"type": "context.open", "context_id": f"c{no}", "context_no": no}
            await one.send(text({**opening, "voice": "stall"}))
            told = await one.until("context.started", "error")
            codes.append(told.get("code"))
        assert codes == [None] * 64 + ["limit_exceeded"] * 15


@pytest.mark.parametrize("whole", [True, False])
async def test_utterances_without_number_from_one_who_reads_nothing(whole: bool) -> None:
    engine = FakeEngine()
    config: dict[str, object] = {"type": "session.config", "voice": "tone"}
    if not whole:
        config |= {"stream_audio": True, "response_format": "pcm", "split_granularity": "clause"}
    async with attacked(engine) as world:
        one = await deaf(
            world,
            VLLM,
            config,
            *({"type": "input.text", "text": LONG}, {"type": "input.done"}) * 100,
            *({"type": "input.text", "text": "a"}, {"type": "input.done"}) * 1500,
        )
        await world.heard_more(5)
        one.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert (await one.until("error"))["code"] == "limit_exceeded"
        one.reset()
        await world.until(lambda: world.server.service.connections == 1)


async def test_texts_that_replace_each_other_leave_one_speaking() -> None:
    engine = FakeEngine()
    speech = {"type": "generate_stream", "text": LONG, "voice_id": "tone"}
    piece = {"type": "text", "text": LONG, "voice_id": "tone"}
    async with attacked(engine) as world:
        await deaf(world, RUNVNC, *[speech] * 100)
        await deaf(world, RUNVNC, *[piece] * 100)
        await deaf(world, RUNVNC, *[speech, {"type": "cancel"}] * 100)
        await world.heard_more(5)
        assert engine.most_active <= 8


async def test_answers_that_nobody_takes() -> None:
    engine = FakeEngine()
    async with attacked(engine, openai=OpenAISettings(send_timeout_s=0.5)) as world:
        for more in ({}, {"stream": True}, {"stream_format": "sse"}, {"response_format": "flac"}):
            fields = {"input": LONG[:4000], "voice": "tone", "response_format": "pcm", **more}
            body = json.dumps(fields).encode()
            for _ in range(3):
                one = await world.attacker()
                one.writer.transport.pause_reading()  # type: ignore[attr-defined]
                one.writer.write(request("POST", SPEECH, body, Content_Type="application/json"))
        await world.heard_more(3)
        # They are cut off though they hold their connections open.
        await world.until(lambda: world.server.service.connections == 1)


@pytest.mark.parametrize("path", [NATIVE, VLLM, RUNVNC])
async def test_a_message_of_millions_of_parts_is_refused_unread(path: str) -> None:
    kind = {NATIVE: "voice.load", VLLM: "session.config", RUNVNC: "init"}[path]
    size = {NATIVE: 600_000, VLLM: 1_300_000, RUNVNC: 3_900_000}[path]
    async with attacked() as world:
        for part in (b"[],", b'"":0,', b"1,1"):
            head, end = b'{"type":"%s","a":[' % kind.encode(), b"0]}"
            if part.startswith(b'"'):
                head, end = head[:-1] + b"{", b'"b":0}}'
            one = await world.websocket(path)
            if path == VLLM:
                await one.send(text({"type": "session.config"}))
            await one.send(frame(TEXT, head + part * (size * 3 // len(part)) + end))
            assert (await one.until("error"))["code"] == "limit_exceeded"
