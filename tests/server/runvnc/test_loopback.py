"""The runvnc protocol over a real socket: the sequences of its own client, and unkind ones."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from qwen3tts_codecs.g711 import encode_ulaw
from qwen3tts_codecs.pcm import from_bytes
from qwen3tts_codecs.resample import Resampler
from qwen3tts_engine.base import LoadedVoice
from qwen3tts_server.dialects.runvnc.session import RunvncSession
from qwen3tts_server.run import RunningServer, running_server
from qwen3tts_server.settings import RunvncSettings, ServerSettings
from qwen3tts_wire.addresses import DIRECT
from qwen3tts_wire.errors import BadRequest, UnknownVoice
from tests.engine.fake_engine import CloningEngine, FakeEngine, tone
from tests.fakes import settle

pytestmark = pytest.mark.network

AUDIO = base64.b64encode(bytes(100)).decode()


class Client:
    """What a runvnc client does: one reader, JSON out."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def say(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def hear(self) -> dict[str, Any]:
        """The next message, which is no frame."""
        message = await self.socket.recv()
        assert isinstance(message, str)
        answer: dict[str, Any] = json.loads(message)
        return answer

    async def spoken(self) -> tuple[bytes, dict[str, Any]]:
        """Frames up to the next message, and that."""
        frames = b""
        while isinstance(message := await self.socket.recv(), bytes):
            assert len(message) == 160
            frames += message
        return frames, json.loads(message)


@contextlib.asynccontextmanager
async def serving(
    engine: FakeEngine | None = None, **settings: Any
) -> AsyncIterator[tuple[FakeEngine, RunningServer]]:
    engine = engine or FakeEngine()
    async with (
        asyncio.timeout(20),
        running_server(engine, settings=ServerSettings(**settings)) as server,
    ):
        yield engine, server


@contextlib.asynccontextmanager
async def client(server: RunningServer, voice: str | None = "tone") -> AsyncIterator[Client]:
    async with connect(f"ws://127.0.0.1:{server.port}", **DIRECT) as socket:
        made = Client(socket)
        assert (await made.hear())["type"] == "connected"
        if voice is not None:
            await made.say("init", voice_id=voice)
            assert (await made.hear())["voice_loaded"]
        yield made


def mulaw(text: str) -> bytes:
    """The tones of a text as a telephone gets them, in whole frames."""
    resampler = Resampler(24_000, 8000, aligned=True)
    pcm = resampler.push(from_bytes(b"".join(map(tone, text))))
    data = encode_ulaw(pcm) + encode_ulaw(resampler.flush())
    return data.ljust(-(-len(data) // 160) * 160, b"\xff")


async def idle(engine: FakeEngine) -> None:
    while engine.active:
        await settle()


async def test_a_text_comes_as_frames_of_its_sound() -> None:
    async with serving() as (_, server), client(server) as line:
        for kind in ("generate_stream", "text"):
            await line.say(kind, text="Hello there", final=True, initial_chunk_tokens=4)
            assert (await line.hear())["type"] == "audio_start"
            frames, end = await line.spoken()
            assert end["type"] == "audio_end"
            assert frames == mulaw("Hello there")


async def test_generate_speaks_too_and_text_in_pieces_is_one_utterance() -> None:
    settings = RunvncSettings(generate_frame_ms=0.1)
    async with serving(runvnc=settings) as (_, server), client(server) as line:
        await line.say("generate", text="Hello there")
        assert (await line.hear())["type"] == "audio_start"
        assert (await line.spoken())[0] == mulaw("Hello there")
        for piece in ("Hel", "lo the", "re"):
            await line.say("text", text=piece, final=piece == "re")
        assert (await line.hear())["type"] == "audio_start"
        assert (await line.spoken())[0] == mulaw("Hello there")


async def test_a_pause_in_the_text_brings_out_what_is_there() -> None:
    async with serving(pause_flush_ms=5.0) as (_, server), client(server) as line:
        await line.say("text", text="Hello there")
        assert (await line.hear())["type"] == "audio_start"
        assert isinstance(await line.socket.recv(), bytes)
        line.socket.transport.abort()


async def test_a_cancel_stops_the_engine_and_nothing_comes_after_audio_end() -> None:
    async with serving() as (engine, server), client(server, "stall") as line:
        await line.say("generate_stream", text="Hello there")
        assert (await line.hear())["type"] == "audio_start"
        assert isinstance(await line.socket.recv(), bytes)
        await line.say("cancel")
        assert (await line.spoken())[1]["type"] == "audio_end"
        await idle(engine)
        assert engine.cancelled == 1
        await line.say("ping")
        assert (await line.hear())["type"] == "pong"


async def test_a_new_text_replaces_the_old_one() -> None:
    async with serving() as (engine, server), client(server, "stall") as line:
        await line.say("generate_stream", text="Hello there")
        assert (await line.hear())["type"] == "audio_start"
        await line.say("generate_stream", text="Again", voice_id="tone")
        assert (await line.spoken())[1]["type"] == "audio_end"
        assert await line.spoken() == (b"", {"type": "audio_start"})
        assert await line.spoken() == (mulaw("Again"), {"type": "audio_end"})
        await idle(engine)
        assert engine.cancelled == 1


async def test_a_client_that_goes_frees_the_engine() -> None:
    async with serving() as (engine, server):
        async with client(server, "stall") as line:
            await line.say("generate_stream", text="Hello there")
            assert (await line.hear())["type"] == "audio_start"
            line.socket.transport.abort()
        await idle(engine)
        while server.service.connections:
            await settle()


@pytest.mark.parametrize(
    ("voice", "code"), [("fail", "engine_failed"), ("fail-late", "engine_failed")]
)
async def test_a_failure_is_an_error_and_the_next_text_is_spoken(voice: str, code: str) -> None:
    async with serving() as (_, server), client(server) as line:
        await line.say("generate_stream", text="Hello there", voice_id=voice)
        assert (await line.hear())["type"] == "audio_start"
        _, end = await line.spoken()
        assert (end["type"], end["code"], end["ends"]) == ("error", code, "speech")
        await line.say("generate_stream", text="Again")
        assert (await line.hear())["type"] == "audio_start"
        assert (await line.spoken())[1]["type"] == "audio_end"


async def test_a_recording_is_a_voice_where_the_engine_clones() -> None:
    engine = CloningEngine()
    async with serving(engine) as (_, server), client(server, None) as line:
        await line.say("init", ref_audio_base64=AUDIO, ref_text="Hi.")
        ready = await line.hear()
        assert (ready["type"], ready["ref_text"], ready["cached"]) == ("ready", "Hi.", False)
        assert engine.loads[-1][1:] == (bytes(100), "Hi.", False)
        await line.say(
            "init", ref_audio_base64=f"data:audio/wav;base64,{AUDIO}", x_vector_only=True
        )
        assert (await line.hear())["type"] == "ready"
        await line.say("init", voice_id=ready["voice_id"])
        again = await line.hear()
        assert (again["voice_id"], again["cached"]) == (ready["voice_id"], True)


async def test_where_nothing_transcribes_only_the_colour_of_the_voice_is_taken() -> None:
    class Deaf(CloningEngine):
        async def load_voice(self, **fields: Any) -> LoadedVoice:
            if fields.get("ref_text") is None and not fields.get("x_vector_only"):
                raise BadRequest("Nothing here writes down what is said.")
            return await super().load_voice(**fields)

    async with serving(Deaf()) as (_, server), client(server, None) as line:
        await line.say("init", ref_audio_base64=AUDIO, auto_transcribe=True)
        assert (await line.hear())["x_vector_only"] is True
        await line.say("init", ref_audio_base64="!", auto_transcribe=True)
        assert (await line.hear())["code"] == "bad_request"
    strict = RunvncSettings(xvector_fallback=False)
    async with serving(Deaf(), runvnc=strict) as (_, server), client(server, None) as line:
        await line.say("init", ref_audio_base64=AUDIO, auto_transcribe=True)
        assert (await line.hear())["code"] == "bad_request"


async def test_without_cloning_an_init_with_a_recording_says_so() -> None:
    async with serving() as (_, server), client(server, None) as line:
        await line.say("init", ref_audio_base64=AUDIO, ref_text="Hi.")
        refused = await line.hear()
        assert (refused["type"], refused["code"]) == ("error", "bad_request")
        await line.say("init", voice_id="unlisted")
        assert (await line.hear())["code"] == "unknown_voice"
        await line.say("init", voice_id="tone")
        assert (await line.hear())["type"] == "ready"


class NamedSpeakers(CloningEngine):
    """A checkpoint with speakers of its own; its engine has ``load_voice`` and refuses."""

    task = "custom_voice"

    async def load_voice(self, **fields: Any) -> LoadedVoice:
        raise BadRequest("This checkpoint cannot clone a voice.")


class OwnAndCloned(CloningEngine):
    """It clones, and has voices of its own, of which nothing is loaded."""

    async def load_voice(self, **fields: Any) -> LoadedVoice:
        if fields.get("voice_id") is not None:
            raise UnknownVoice("There is no cloned voice of that id.")
        return await super().load_voice(**fields)


@pytest.mark.parametrize("make", [FakeEngine, NamedSpeakers, OwnAndCloned])
async def test_a_built_in_voice_is_bound_by_any_of_its_names(make: type[FakeEngine]) -> None:
    engine = make()
    async with serving(engine) as (_, server), client(server, None) as line:
        for name in ("alloy", "tone", "TONE", "Tones", "default"):
            await line.say("init", voice_id=name)
            ready = await line.hear()
            assert (ready["type"], ready["voice_id"], ready["cached"]) == ("ready", name, True)
        for name in ("TONE", "Tones", "default"):
            await line.say("generate_stream", text="Hi", voice_id=name)
            assert (await line.hear())["type"] == "audio_start"
            assert (await line.spoken())[1]["type"] == "audio_end"


async def test_an_uploaded_voice_is_bound_by_any_of_its_names() -> None:
    engine = CloningEngine()
    async with serving(engine) as (_, server), client(server, None) as line:
        stored = await server.service.voices.add("Anna", bytes(200), ref_text="Hi.")
        for name in ("Anna", "anna", "clone:Anna", "clone:ANNA", stored.voice_id):
            await line.say("init", voice_id=name)
            ready = await line.hear()
            assert (ready["type"], ready["voice_id"]) == ("ready", stored.voice_id)


async def test_every_free_path_is_served_and_others_are_refused() -> None:
    async with serving() as (_, server):
        for path in ("", "ws", "a/b"):
            async with connect(f"ws://127.0.0.1:{server.port}/{path}", **DIRECT) as socket:
                assert json.loads(await socket.recv())["type"] == "connected"
        for path, offered in (("v1/nothing", None), ("", [websockets.Subprotocol("chat")])):
            with pytest.raises(InvalidStatus) as refused:
                await connect(
                    f"ws://127.0.0.1:{server.port}/{path}", subprotocols=offered, **DIRECT
                )
            answer = refused.value.response
            assert answer.status_code == 403
            assert answer.headers["content-type"] == "application/json"
            error = json.loads(answer.body or b"")["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert error["code"] == "not_found"
            assert "/v1/speech" in error["message"]
        assert server.service.connections == 0


async def test_a_full_server_says_try_again() -> None:
    async with (
        serving(max_connections=1) as (_, server),
        client(server),
        connect(f"ws://127.0.0.1:{server.port}", **DIRECT) as socket,
    ):
        assert json.loads(await socket.recv())["code"] == "server_busy"
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1013


async def test_a_stop_lets_speech_end_and_closes() -> None:
    async with serving() as (engine, server), client(server, "step") as line:
        await line.say("generate_stream", text="Hi")
        assert (await line.hear())["type"] == "audio_start"
        draining = asyncio.create_task(server.service.drain(10.0))
        await settle()
        engine.step(9)
        assert (await line.spoken())[1]["type"] == "audio_end"
        with pytest.raises(ConnectionClosed):
            await line.socket.recv()
        assert line.socket.close_code == 1012
        await draining


async def test_a_slow_reader_holds_up_only_itself() -> None:
    async with serving(ahead_ms=200) as (engine, server), client(server) as slow:
        transport = slow.socket.transport
        await slow.say("generate_stream", text="word " * 12_000)
        assert (await slow.hear())["type"] == "audio_start"
        transport.pause_reading()
        async with client(server) as quick:
            for _ in range(3):
                await quick.say("generate_stream", text="Hello there")
                assert (await quick.hear())["type"] == "audio_start"
                assert (await quick.spoken())[0] == mulaw("Hello there")
        assert engine.active == 1
        transport.abort()
        await idle(engine)


async def test_a_fault_of_our_own_closes_with_1011(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a fault of our own")

    async with serving() as (_, server), client(server) as line:
        monkeypatch.setattr(RunvncSession, "receive", broken)
        await line.say("ping")
        with caplog.at_level(logging.ERROR), pytest.raises(ConnectionClosed):
            await line.socket.recv()
        assert line.socket.close_code == 1011
        assert "a fault of our own" in caplog.text
