"""Downloads of long texts beside a live call: real sockets, the embedded voice."""

from __future__ import annotations

import asyncio
import threading

import pytest

from qwen3tts_server.dialects.encoding import SoundEncoder
from qwen3tts_server.run import running_server
from qwen3tts_wire.client import Audio, Done, SpeechClient
from tests.server.openai.test_openai_loopback import until_real, wire

pytestmark = pytest.mark.network
pytest.importorskip("espeakng_loader", reason="the extra 'embedded' is not installed")
pytest.importorskip("av", reason="the extra 'server' is not installed")

LONG = "We are happy that you called, and we will be with you in a moment. " * 8


async def test_a_call_is_spoken_to_its_end_while_every_encoder_of_bulk_clients_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from qwen3tts_engine.embedded.engine import EmbeddedEngine, EmbeddedSettings

    go_on = threading.Event()
    encoding: list[SoundEncoder] = []
    push = SoundEncoder.push

    def held(encoder: SoundEncoder, pcm: bytes) -> bytes:
        assert threading.current_thread() is not threading.main_thread()
        encoding.append(encoder)
        go_on.wait()
        return push(encoder, pcm)

    monkeypatch.setattr(SoundEncoder, "push", held)
    engine = EmbeddedEngine(EmbeddedSettings(workers=1))
    try:
        async with (
            asyncio.timeout(60),
            running_server(engine) as server,
            wire(server) as first,
            wire(server) as second,
            wire(server) as third,
            await SpeechClient.connect(server.url) as call,
        ):
            bulk = (first, second, third)
            for client in bulk:
                await client.speak(input=LONG, response_format="mp3")
            await until_real(lambda: bool(encoding))
            context = await call.open()
            await context.append("Good morning.")
            await context.end()
            events = [event async for event in context]
            assert any(isinstance(event, Audio) for event in events)
            assert isinstance(events[-1], Done)
            assert not go_on.is_set()
            go_on.set()
            for client in bulk:
                assert (await client.head())[0] == 200
                assert len(await client.chunked()) > 10_000
    finally:
        go_on.set()
