"""What happens seldom: servers that answer nothing or nonsense, lists that cannot be had again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable

import pytest

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.upstream.engine import RequestSlots, UpstreamEngine
from qwen3tts_engine.upstream.http import Stalled, api_key, of_status, tls
from qwen3tts_engine.upstream.settings import UpstreamSettings
from qwen3tts_engine.upstream.vllm_omni import OmniConnectionPool
from qwen3tts_wire.errors import (
    BadRequest,
    BadText,
    EngineFailed,
    EngineUnavailable,
    LimitExceeded,
    ServerBusy,
    UnknownVoice,
)
from tests.engine.upstream.peers import OmniPeer, RestPeer, upstream
from tests.engine.upstream.speaking import TEXT, change, heard, is_said
from tests.engine.upstream.test_openai_rest import delta, event, sending
from tests.engine.waiting import until

pytestmark = pytest.mark.network


def test_without_an_address_there_is_no_engine() -> None:
    with pytest.raises(ValueError, match=r"upstream\.url"):
        UpstreamEngine(UpstreamSettings())


async def test_before_its_start_it_says_what_it_knows() -> None:
    engine = UpstreamEngine(UpstreamSettings(url="ws://127.0.0.1:1", model="m"))
    assert (engine.name, engine.model, engine.notes) == ("upstream", "m", ())
    with pytest.raises(EngineUnavailable, match="not been started"):
        engine.check(None, None)


@contextlib.asynccontextmanager
async def in_its_place(peer: OmniPeer, answer: bytes) -> AsyncIterator[None]:
    """Something else listens where a peer did; it says ``answer``, or nothing."""
    await peer.stop()
    writers: list[asyncio.StreamWriter] = []

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if answer:
            writer.write(answer)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", peer.port)
    try:
        yield
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()


async def test_a_server_that_accepts_and_says_nothing_does_not_answer() -> None:
    peer = OmniPeer()
    async with upstream(peer, max_idle=0, reconnect_s=0.0) as engine:
        async with in_its_place(peer, b""):
            change(engine, connect_timeout_s=0.05)
            with pytest.raises(EngineFailed, match="does not answer"):
                await heard(engine)
        change(engine, connect_timeout_s=5.0)
        await peer.start()
        assert is_said(await heard(engine))


@pytest.mark.parametrize("answer", [b"SSH-2.0\r\n\r\n", b"\0" * 100, b"HTTP/1.1 101 X\r\n\r\n"])
async def test_a_server_of_another_kind_opens_no_websocket(answer: bytes) -> None:
    peer = OmniPeer()
    async with upstream(peer, max_idle=0, retries=0) as engine, in_its_place(peer, answer):
        with pytest.raises(EngineFailed, match="opens no WebSocket"):
            await heard(engine)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0\r\n\r\n"])
async def test_a_server_of_another_kind_is_no_start(answer: bytes) -> None:
    peer = OmniPeer()
    await peer.start()
    async with in_its_place(peer, answer):
        settings = UpstreamSettings(url=peer.url, start_s=0.1, connect_timeout_s=0.05, stall_s=0.05)
        with pytest.raises(EngineUnavailable, match="cannot be used"):
            await UpstreamEngine(settings).start()


async def test_a_list_that_does_not_end_is_no_start() -> None:
    peer = OmniPeer(voices=b" " * 100_000)
    with pytest.raises(EngineUnavailable, match="more than 65536 bytes"):
        async with upstream(peer, max_message_bytes=65_536):
            pass


async def test_a_connection_that_died_this_moment_is_not_used() -> None:
    peer = OmniPeer()
    await peer.start()
    settings = UpstreamSettings(url=peer.url)
    links = OmniConnectionPool(f"{peer.url}/v1/audio/speech/stream", settings, "", tls(settings))
    link = await links.make()
    await links.keep(link)
    link._socket.transport.abort()
    await link._socket.wait_closed()
    other = await links.take()
    assert other is not link
    assert other.open
    await other.leave()
    await links.close()
    await peer.stop()


async def test_voices_that_cannot_be_listed_again_stay_as_they_were(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peer = OmniPeer()
    async with upstream(peer, voices_refresh_s=0.001) as engine:
        peer.voices_status = 503
        with caplog.at_level(logging.WARNING), contextlib.suppress(TimeoutError):

            def tried() -> bool:
                with pytest.raises(UnknownVoice):
                    engine.check("latest", None)
                return "could not be listed again: server_busy" in caplog.text

            await until(tried)
        engine.check("ryan", None)


@pytest.mark.parametrize("models", [b"", b"{}", b'{"data": []}', b'{"data": [5]}', b"[" * 50_000])
async def test_a_server_that_names_no_model_still_speaks(models: bytes) -> None:
    peer = OmniPeer()
    peer.models = models
    async with upstream(peer) as engine:
        assert engine.model == "unknown model"
        assert is_said(await heard(engine))


async def test_nobody_waits_for_a_slot_for_ever() -> None:
    slots = RequestSlots(1, 5, 0.01)
    async with slots.one():
        with pytest.raises(ServerBusy, match="stayed busy"):
            async with slots.one():
                pass
        assert (slots.load.busy, slots.load.waiting) == (1, 0)
    async with slots.one():
        pass


async def test_a_refusal_after_sound_is_a_failure() -> None:
    refusal = event(error={"message": "too long", "type": "invalid_request_error"})
    peer = RestPeer(sending(delta(b"abcd"), refusal), sending(refusal))
    async with upstream(peer, retries=0) as engine:
        with pytest.raises(EngineFailed, match="too long"):
            await heard(engine)
        with pytest.raises(BadRequest, match="too long"):
            await heard(engine)


def test_a_detail_may_be_an_object() -> None:
    error = of_status(400, b'{"detail": {"message": "so", "code": "bad_text"}}', "application/json")
    assert isinstance(error, BadText)


async def test_what_is_no_text_is_not_sent() -> None:
    peer = OmniPeer()
    async with upstream(peer, max_chars=10) as engine:
        with pytest.raises(BadText):
            await heard(engine, "a\x00b")
        with pytest.raises(LimitExceeded):
            await heard(engine, "a" * 11)
        assert await heard(engine, "...") == b""
        assert not peer.texts


def test_a_key_file_that_is_not_there_is_named() -> None:
    with pytest.raises(EngineUnavailable, match="no-such-key"):
        api_key(UpstreamSettings(url="ws://h", api_key_file="no-such-key"))


def test_to_take_too_long_is_to_have_failed() -> None:
    assert Stalled.code == "engine_failed"
    assert Stalled.retryable


async def test_what_people_say_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for name in ("qwen3tts_engine", "websockets", "httpx", "httpcore"):
            caplog.set_level(logging.DEBUG, name)
        for peer in (OmniPeer(), RestPeer()):
            async with upstream(peer, api_key="s3cret") as engine:
                await heard(engine, "Confidential matters.")
    said = [each for each in caplog.records if each.name.startswith(("qwen3tts", "http"))]
    assert said
    assert not any("Confidential" in each.getMessage() for each in said)
    assert not any("s3cret" in each.getMessage() for each in said)


@pytest.mark.parametrize("make", [OmniPeer, RestPeer])
async def test_nothing_is_left_of_what_was_cancelled(
    make: Callable[[], OmniPeer | RestPeer],
) -> None:
    peer = make()
    async with upstream(peer, max_idle=2) as engine:
        await heard(engine)
        before = len(asyncio.all_tasks())
        chance = random.Random(7)

        async def one() -> None:
            async with contextlib.aclosing(
                engine.synthesize(SynthesisRequest(TEXT, final=True))
            ) as chunks:
                for _ in range(chance.randrange(12)):
                    if await anext(chunks, None) is None:
                        break

        for _ in range(8):
            tasks = [asyncio.create_task(one()) for _ in range(6)]
            for each in chance.sample(tasks, 2):
                each.cancel()
            await asyncio.wait(tasks)
        assert (engine.load().busy, engine.load().waiting) == (0, 0)
        assert not engine._under_way
        await until(lambda: peer.speaking == 0 and peer.open <= 2)
        await until(lambda: len(asyncio.all_tasks()) <= before + 8)
        assert is_said(await heard(engine))
