"""Every message of every WebSocket protocol, with every field as it should not be: a named error or
the answer to a good message, and the connection serves the next one."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from qwen3tts_server.dialects.runvnc.messages import KINDS
from qwen3tts_server.dialects.vllm_omni.messages import SessionConfig
from qwen3tts_server.settings import VllmOmniSettings
from qwen3tts_wire.fields import kinds
from qwen3tts_wire.messages import CLIENT_MESSAGES
from tests.engine.fake_engine import tone
from tests.server.hostile.world import (
    BINARY,
    NATIVE,
    PROTOCOLS,
    RUNVNC,
    TEXT,
    VLLM,
    Attacker,
    attacked,
    frame,
    messages,
    text,
)

pytestmark = pytest.mark.network

CODES = {"bad_request", "bad_text", "unknown_voice", "limit_exceeded", "server_busy"}
"""What a client's own faults are called."""
VLLM_CODES = CODES | {"protocol_error", "model_not_found"}
GOOD: dict[str, dict[str, object]] = {
    "context.open": {"context_no": 1, "voice": "tone"},
    "text.append": {"text": "Hi."},
    "playout.report": {"played": 1},
    "audio.credit": {"window_ms": 100},
    "voice.load": {"request_id": "r", "voice_id": "tone"},
    "ping": {"client_time_ms": 1},
}
RUNVNC_GOOD: dict[str, dict[str, object]] = {
    "init": {"voice_id": "tone"},
    "generate_stream": {"text": "Hi.", "voice_id": "tone"},
    "generate": {"text": "Hi.", "voice_id": "tone"},
    "text": {"text": "Hi.", "final": True, "voice_id": "tone"},
}
NOT_MESSAGES = [
    "",
    " ",
    "null",
    "1",
    '"ping"',
    "[]",
    "[{}]",
    "{}",
    '{"type":"ping"',
    '{"type":"ping"}{"type":"ping"}',
    "{'type':'ping'}",
    '\ufeff{"type":"ping"}',
    '{"type":"ping",}',
    "\x00",
    '{"type":"ping\x00"}',
    '{"a":' * 100_000,
    "[" * 200_000,
    "9" * 200_000,
    '{"":' + "0" * 100_000 + "}",
    "\U0010ffff" * 1000,
]


async def faults(one: Attacker, probe: dict[str, object], answer: str) -> list[dict[str, Any]]:
    """What is answered until the answer to ``probe``; its errors."""
    await one.send(text(probe))
    found = []
    while (message := await one.json())["type"] != answer:
        if message["type"] == "error":
            found.append(message)
    return found


def named(found: list[dict[str, Any]], what: str, codes: set[str]) -> None:
    """Errors that a client can do something about; they repeat nothing that could do harm."""
    for error in found:
        assert error["code"] in codes, (what, error)
        assert error["message"], what
        assert len(error["message"]) < 1000, what
        assert error["message"].isprintable(), what


@pytest.mark.parametrize("kind", CLIENT_MESSAGES)
async def test_our_own_messages(kind: str) -> None:
    numbers = itertools.count(1)
    names = list(kinds(CLIENT_MESSAGES[kind]))
    async with attacked() as world:
        one = await world.websocket(NATIVE)
        good: dict[str, object] = dict(GOOD.get(kind, {}))
        for what, message in messages(kind, good | {"context_id": "@"}, names):
            no = next(numbers)
            context = f"c{no}"
            if kind != "context.open":
                opening = {"type": "context.open", "context_id": context, "context_no": no}
                await one.send(text({**opening, "voice": "tone"}))
            raw = message.replace('"@"', json.dumps(context))
            if kind == "context.open" and "context_no" not in what:
                raw = raw.replace('"context_no": 1', f'"context_no": {no}')
                raw = raw.replace('"context_no":1', f'"context_no":{no}')
            await one.send(text(raw))
            found = await faults(one, {"type": "ping", "client_time_ms": 1e6 + no}, "pong")
            if kind == "ping" and not found:  # it was answered itself
                await one.until("pong")
            named(found, what, CODES)
            if " twice" in what or ": no type" in what or "is deeper" in what or "NaN" in what:
                assert found, what
            await one.send(text({"type": "context.cancel", "context_id": context}))
            if kind == "ping":
                await faults(one, {"type": "ping", "client_time_ms": 1}, "pong")


@pytest.mark.parametrize("kind", ["session.config", "input.text", "input.done", "input.cancel"])
async def test_vllm_omnis_messages(kind: str) -> None:
    names = {"session.config": list(kinds(SessionConfig)), "input.text": ["text"]}.get(kind, [])
    config: dict[str, object] = {"stream_audio": True, "response_format": "pcm"}
    goods: dict[str, dict[str, object]] = {
        "session.config": config,
        "input.text": {"text": "Hi."},
    }
    good = goods.get(kind, {})
    settings = VllmOmniSettings(idle_timeout_s=60, max_file_s=5)
    async with attacked(vllm_omni=settings) as world:
        one = await world.websocket(VLLM, {"type": "session.config", **config})
        for what, message in messages(kind, good, names):
            await one.send(text(message))
            probe, answer = ("input.cancel", "input.cancelled")
            if kind == probe:
                probe, answer = ("input.done", "session.done")
            found = await faults(one, {"type": probe}, answer)
            named(found, what, VLLM_CODES)
            if ": no type" in what or "deeper" in what or "NaN" in what:
                assert found, what
        await one.send(text({"type": "session.config", **config}))
        await one.send(text({"type": "input.text", "text": "Hello"}) + text({"type": "input.done"}))
        while (await one.message())[0] != BINARY:
            pass
        assert (await one.until("session.done"))["total_sentences"] == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_runvncs_messages(kind: str) -> None:
    async with attacked() as world:
        one = await world.websocket(RUNVNC)
        for what, message in messages(kind, RUNVNC_GOOD.get(kind, {}), list(kinds(KINDS[kind]))):
            await one.send(text(message))
            if kind == "ping" and what in ("good", "ping: unknown field"):
                assert (await one.json())["type"] == "pong"
            found = await faults(one, {"type": "ping"}, "pong")
            named(found, what, CODES)
            assert all(each["ends"] == "none" for each in found), what
            if ": no type" in what or "deeper" in what or "NaN" in what:
                assert found or kind == "ping", what
        await one.send(text({"type": "cancel"}))
        await faults(one, {"type": "ping"}, "pong")
        await one.send(text({"type": "generate_stream", "text": "Hello", "voice_id": "tone"}))
        await one.until("audio_start")
        frames = 0
        while (await one.message())[0] == BINARY:
            frames += 1
        assert frames == -(-len(b"".join(map(tone, "Hello"))) // 6 // 160)


@pytest.mark.parametrize("path", PROTOCOLS)
async def test_what_is_no_message_at_all(path: str) -> None:
    probes: dict[str, tuple[dict[str, object], str]] = {
        NATIVE: ({"type": "ping", "client_time_ms": 1}, "pong"),
        VLLM: ({"type": "input.cancel"}, "input.cancelled"),
        RUNVNC: ({"type": "ping"}, "pong"),
    }
    probe, answer = probes[path]
    async with attacked() as world:
        one = await world.websocket(path)
        if path == VLLM:
            await one.send(text({"type": "session.config"}))
        for each in NOT_MESSAGES:
            await one.send(frame(TEXT, each.encode()))
            found = await faults(one, probe, answer)
            assert len(found) == 1, each[:40]
            named(found, each[:40], VLLM_CODES)
        for data in (b"", b"{}", b"\0" * 1000, json.dumps(probe).encode()):
            await one.send(frame(BINARY, data))
            found = await faults(one, probe, answer)
            assert len(found) == 1
            assert found[0]["code"] in ("bad_request", "protocol_error")


ORDERS: dict[str, list[list[dict[str, object]]]] = {
    NATIVE: [
        [{"type": each, "context_id": "z", **GOOD.get(each, {})}]
        for each in CLIENT_MESSAGES
        if each not in ("ping", "voice.load", "context.open")
    ]
    + [
        [{"type": "context.open", "context_id": "a", "context_no": 9, "voice": "tone"}] * 2,
        [{"type": "context.open", "context_id": "b", "context_no": 8, "voice": "tone"}],
        [{"type": "text.end", "context_id": "a"}] * 2,
        [{"type": "text.append", "context_id": "a", "text": "late"}],
        [{"type": "context.cancel", "context_id": "a"}] * 2,
    ],
    VLLM: [
        [{"type": "input.text", "text": "Hi"}, {"type": "session.config"}],
        [
            {"type": "session.config", "voice": "no such voice"},
            {"type": "input.text", "text": "Hi"},
        ],
    ],
    RUNVNC: [
        [{"type": "generate_stream", "text": "no voice yet"}],
        [{"type": "init"}] * 2,
        [{"type": "init", "voice_id": "no such voice"}],
    ],
}


@pytest.mark.parametrize("path", PROTOCOLS)
async def test_messages_out_of_order_and_twice(path: str) -> None:
    probe: dict[str, object] = {"type": "ping"}
    answer = "pong"
    if path == NATIVE:
        probe |= {"client_time_ms": 1}
    elif path == VLLM:
        probe, answer = {"type": "input.done"}, "session.done"
    async with attacked() as world:
        one = await world.websocket(path)
        if path == VLLM:
            await one.send(text({"type": "session.config"}))
        for script in ORDERS[path]:
            for each in script:
                await one.send(text(each))
            found = await faults(one, probe, answer)
            assert found, script
            named(found, str(script), VLLM_CODES)
