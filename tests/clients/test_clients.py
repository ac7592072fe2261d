"""Clients that people have, unchanged, each streaming from our server started for real."""

from __future__ import annotations

import base64

import pytest

from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.events import Audio
from tests.clients.conftest import Client

pytestmark = pytest.mark.network

TEXT = "Good morning. The train to Vienna leaves at ten past nine from platform four."
"""What the scripts have said."""
SECONDS = 3.5
"""What it takes at least."""


async def ours(server: str) -> bytes:
    """The text as our own client receives it, 24 kHz."""
    url = "ws" + server.removeprefix("http") + "/v1/speech"
    async with await SpeechClient.connect(url) as client:
        context = await client.open(voice="alloy")
        await context.append(TEXT)
        await context.end()
        return b"".join([event.pcm async for event in context if isinstance(event, Audio)])


async def test_the_openai_sdk(server: str, client: Client) -> None:
    got = await client("openai_sdk.py", server)
    types = {form: got[form]["type"].split(";")[0] for form in ("pcm", "wav", "mp3", "flac")}
    assert types == {
        "pcm": "audio/pcm",
        "wav": "audio/wav",
        "mp3": "audio/mpeg",
        "flac": "audio/flac",
    }
    heads = {form: base64.b64decode(got[form]["head"]) for form in ("wav", "mp3", "flac", "opus")}
    assert heads["wav"][:4] == b"RIFF"
    assert heads["mp3"][:3] == b"ID3" or heads["mp3"][0] == 0xFF
    assert heads["flac"][:4] == b"fLaC"
    assert heads["opus"][:4] == b"OggS"
    assert got["default"]["type"] == got["mp3"]["type"]
    # Sound comes while the rest is still being made.
    assert got["pcm"]["chunks"] > 1
    assert got["pcm"]["bytes"] > SECONDS * 48_000
    # The embedded voice is not the same to the sample twice.
    size = pytest.approx(len(await ours(server)), rel=0.01)
    assert [got[form]["bytes"] for form in ("pcm", "stream", "after")] == [size] * 3
    assert got["pcm"]["loud"] > 20
    assert got["8000"]["bytes"] == pytest.approx(got["pcm"]["bytes"] / 3, rel=0.01)
    assert got["stream"]["type"].startswith("audio/pcm")
    assert got["sse"]["type"].startswith("text/event-stream")
    delta, done = "speech.audio.delta", "speech.audio.done"
    assert got["events"][0] == [delta, delta]
    assert got["events"][-1] == [done, done]
    rate, channels, samples = got["wave"]
    assert (rate, channels) == (24_000, 1)
    # Another voice, half as fast again; the header's length is the real one.
    assert SECONDS / 3 < samples / rate < SECONDS * 1.5
    assert "tts-1" in got["models"]


async def test_what_is_refused_comes_as_the_sdks_own_errors(server: str, client: Client) -> None:
    errors = (await client("openai_sdk.py", server, "refusals"))["errors"]
    assert [each["status"] for each in errors] == [400, 400, 400, 400, 404]
    assert [each["kind"] for each in errors] == ["BadRequestError"] * 4 + ["NotFoundError"]
    assert [each["body"]["param"] for each in errors] == [
        "voice",
        "input",
        "response_format",
        "speed",
        "model",
    ]
    for each in errors:
        assert set(each["body"]) >= {"message", "type", "param", "code"}
        assert each["body"]["message"]


async def test_pipecats_service(server: str, client: Client) -> None:
    got = await client("pipecat_service.py", server)
    assert got["errors"] == []
    assert got["rates"] == [24_000]
    assert got["chunks"] > 2
    assert got["bytes"] > SECONDS * 48_000
    assert got["loud"] > 20
    assert got["started"] == got["stopped"] >= 1


async def test_livekits_plugin(server: str, client: Client) -> None:
    got = await client("livekit_plugin.py", server)
    for form in ("default", "pcm", "wav", "opus", "flac", "tts-1"):
        assert got[form]["rates"] == [24_000], form
        assert got[form]["seconds"] > SECONDS, form
        assert got[form]["loud"] > 20, form
    for form in ("pcm", "tts-1"):
        assert got[form]["seconds"] == pytest.approx(len(await ours(server)) / 48_000, rel=0.01)
    assert got["refused"] == 400
