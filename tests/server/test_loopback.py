"""Client and server over a real socket on 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import ClientConnection, connect

from qwen3tts_server.run import RunningServer, running_server
from qwen3tts_server.settings import ServerSettings
from qwen3tts_wire.addresses import DIRECT
from qwen3tts_wire.client import Alignment, Audio, Context, Done, SpeechClient, Started
from qwen3tts_wire.errors import ConnectionLost, EngineFailed, SpeechError, UnknownVoice
from qwen3tts_wire.formats import FORMATS, AudioFormat
from qwen3tts_wire.messages import PROTOCOL, Limits
from tests.engine.fake_engine import CHAR_SAMPLES, FakeEngine, tone
from tests.fakes import settle

pytestmark = pytest.mark.network


@contextlib.asynccontextmanager
async def talking(
    engine: FakeEngine | None = None, **settings: Any
) -> AsyncIterator[tuple[FakeEngine, RunningServer, SpeechClient]]:
    engine = engine or FakeEngine()
    async with (
        asyncio.timeout(20),
        running_server(engine, settings=ServerSettings(**settings)) as server,
        await SpeechClient.connect(server.url) as client,
    ):
        yield engine, server, client


@contextlib.asynccontextmanager
async def raw(server: RunningServer, **options: Any) -> AsyncIterator[ClientConnection]:
    names = [websockets.Subprotocol(PROTOCOL)]
    async with connect(server.url, subprotocols=names, **DIRECT, **options) as connection:
        await connection.recv()
        yield connection


async def idle(engine: FakeEngine) -> None:
    """Wait until the engine speaks nothing."""
    while engine.active:
        await settle()


async def all_of(context: Context) -> list[object]:
    return [event async for event in context]


def sound(events: list[object]) -> bytes:
    return b"".join(event.pcm for event in events if isinstance(event, Audio))


async def test_a_sentence_comes_back_as_the_sound_of_its_text() -> None:
    async with talking() as (_, _, client):
        context = await client.open(voice="tone")
        await context.append("Hello ")
        await context.append("there.")
        await context.end()
        events = await all_of(context)
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Done)
    assert sound(events) == b"".join(map(tone, "Hello there."))
    assert events[-1].samples == 12 * CHAR_SAMPLES == context.received
    words = [w for e in events if isinstance(e, Alignment) for w in e.words]
    assert [context.text[w.char_start : w.char_end] for w in words] == ["Hello", "there."]


@pytest.mark.parametrize("form", FORMATS, ids=lambda f: f"{f.encoding}-{f.sample_rate}")
async def test_every_format_arrives_whole(form: AudioFormat) -> None:
    async with talking() as (_, _, client):
        context = await client.open(format=form)
        await context.append("Hello there.")
        await context.end()
        events = await all_of(context)
    samples = 12 * CHAR_SAMPLES * form.sample_rate // 24_000
    assert len(sound(events)) == samples * form.bytes_per_sample


async def test_contexts_of_one_connection_are_spoken_side_by_side() -> None:
    async with talking() as (engine, _, client):
        contexts = [await client.open(voice="stall") for _ in range(8)]
        for context in contexts:
            await context.append("Hello there.")
            await context.end()
        while engine.active < 8:
            await settle()
        engine.release()
        spoken = await asyncio.gather(*map(all_of, contexts))
    assert {sound(events) for events in spoken} == {b"".join(map(tone, "Hello there."))}


async def test_a_cancel_frees_the_engine_and_is_answered() -> None:
    async with talking() as (engine, _, client):
        context = await client.open(voice="stall")
        await context.append("Hello there. ")
        await context.flush()
        async for event in context:
            if isinstance(event, Audio):
                break
        answer = await context.cancel(0)
        assert answer.confirmed
        assert (answer.text_heard, answer.text_remaining) == ("", "Hello there. ")
        await idle(engine)
        assert engine.cancelled == 1


async def test_a_context_that_is_done_tells_what_was_heard_when_it_is_cancelled() -> None:
    async with talking() as (_, _, client):
        context = await client.open()
        await context.append("Hello there.")
        await context.end()
        await all_of(context)
        answer = await context.cancel(5 * CHAR_SAMPLES)
        assert answer.confirmed
        assert (answer.text_heard, answer.text_remaining) == ("Hello", " there.")


async def test_a_client_that_vanishes_frees_the_engine() -> None:
    async with talking() as (engine, server, client):
        context = await client.open(voice="stall")
        await context.append("Hello there. ")
        await context.flush()
        while not engine.active:
            await settle()
        client._connection.socket.transport.abort()
        await idle(engine)
        assert engine.cancelled == 1
        while server.service.connections:
            await settle()


async def test_an_engine_that_breaks_ends_only_its_context(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with talking() as (_, _, client):
        contexts = {voice: await client.open(voice=voice) for voice in ("fail", "crash", "tone")}
        for context in contexts.values():
            await context.append("Hello there.")
            await context.end()
        for voice in ("fail", "crash"):
            with pytest.raises(EngineFailed):
                await all_of(contexts[voice])
        assert isinstance((await all_of(contexts["tone"]))[-1], Done)
    assert "it was told to crash" in caplog.text
    assert "Hello" not in "".join(record.getMessage() for record in caplog.records)


async def test_an_unknown_voice_is_an_error_of_the_context() -> None:
    async with talking() as (_, _, client):
        context = await client.open(voice="unlisted")
        with pytest.raises(UnknownVoice, match="unlisted"):
            await all_of(context)
        assert not client.closed


async def test_a_context_that_nobody_reads_stalls_alone_and_its_engine_waits() -> None:
    async with talking(ahead_ms=200) as (engine, _, client):
        stalled = await client.open(window_ms=100.0)
        await stalled.append(
            "This is a long sentence that no one is going to listen to, ever. " * 20
        )
        lively = await client.open()
        await lively.append("Hello there.")
        await lively.end()
        assert isinstance((await all_of(lively))[-1], Done)
        await settle(100)
        assert stalled.received <= 2400
        assert engine.active == 1
        await stalled.cancel(0)
        await idle(engine)


async def test_a_pause_in_the_text_is_spoken() -> None:
    async with talking(pause_flush_ms=20) as (_, _, client):
        context = await client.open()
        await context.append("And so it")
        async for event in context:
            if isinstance(event, Alignment):
                assert event.words[0].text == "And"
                break
        await context.cancel(0)


async def test_a_server_that_stops_in_the_middle_says_so_to_every_context() -> None:
    engine = FakeEngine()
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(running_server(engine))
        client = await SpeechClient.connect(server.url)
        context = await client.open(voice="stall")
        await context.append("Hello there. And more of it.")
        await context.flush()
        while not context.received:
            await settle()
        await stack.aclose()
        with pytest.raises(SpeechError) as caught:
            await all_of(context)
        assert caught.value.retryable
        assert context.text == "Hello there. And more of it."
        await settle(100)
        while not client.closed:
            await settle()
        assert isinstance(client.error, ConnectionLost)
        assert "1012" in str(client.error)
        assert not engine.active
        await client.close()


async def test_draining_lets_the_open_context_finish() -> None:
    async with talking() as (engine, server, client):
        context = await client.open(voice="stall")
        await context.append("Hello there.")
        await context.end()
        while not context.received:
            await settle()
        draining = asyncio.create_task(server.service.drain(10))
        await client.draining.wait()
        late = await _open_anyway(client)
        with pytest.raises(SpeechError, match="about to stop"):
            await all_of(late)
        engine.release()
        assert sound(await all_of(context)) == b"".join(map(tone, "Hello there."))
        await draining
        while not client.closed:
            await settle()


async def _open_anyway(client: SpeechClient) -> Context:
    client.draining.clear()
    return await client.open()


# --- the door ---


async def test_the_subprotocol_is_required_and_its_absence_has_a_reason() -> None:
    async with talking() as (_, server, _), connect(server.url, **DIRECT) as connection:
        with pytest.raises(websockets.ConnectionClosed) as caught:
            await connection.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1002
        assert PROTOCOL in caught.value.rcvd.reason


async def test_more_connections_than_allowed_are_told_to_come_again() -> None:
    async with talking(max_connections=1) as (_, server, _):
        with pytest.raises(SpeechError, match="1013") as caught:
            await SpeechClient.connect(server.url)
        assert caught.value.retryable


async def test_a_wrong_path_is_told_from_a_missing_server() -> None:
    async with talking() as (_, server, _):
        with pytest.raises(SpeechError, match=r"HTTP 403.*/v1/speech"):
            await SpeechClient.connect(server.url + "/nowhere")


async def test_a_message_larger_than_the_bound_closes_with_1009() -> None:
    async with talking() as (_, server, client):
        async with raw(server, max_size=None) as connection:
            await connection.send("x" * (Limits().max_message_bytes + 1))
            with pytest.raises(websockets.ConnectionClosed) as caught:
                await connection.recv()
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 1009
        context = await client.open()
        await context.append("Hi.")
        await context.end()
        assert isinstance((await all_of(context))[-1], Done)


async def test_text_that_is_not_utf8_closes_with_1007() -> None:
    async with talking() as (_, server, _), raw(server) as connection:
        await connection.send(b'{"type": "\xff"}', text=True)
        with pytest.raises(websockets.ConnectionClosed) as caught:
            await connection.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1007


async def test_a_bound_of_credit_below_the_clients_wish_does_not_stall() -> None:
    async with talking(limits=Limits(max_window_ms=100)) as (_, _, client):
        context = await client.open()
        await context.append("Hello there, this takes more than a tenth of a second.")
        await context.end()
        assert isinstance((await all_of(context))[-1], Done)


async def test_garbage_is_answered_and_the_connection_lives() -> None:
    async with talking() as (_, server, _), raw(server) as connection:
        for data in (b"\0\1\2", "{", "[" * 50_000, '{"type": "nonsense"}', '{"type":"ping"}'):
            await connection.send(data)
            answer = json.loads(await connection.recv())
            assert (answer["type"], answer["code"]) == ("error", "bad_request")
        await connection.send('{"type": "ping", "client_time_ms": 1}')
        assert json.loads(await connection.recv())["type"] == "pong"


async def test_half_a_character_from_a_client_of_another_make_is_spoken_as_a_whole() -> None:
    async with talking() as (engine, server, _), raw(server) as connection:
        for message in (
            '{"type":"context.open","context_id":"a","context_no":1}',
            '{"type":"text.append","context_id":"a","text":"Hi \\ud83d"}',
            '{"type":"text.append","context_id":"a","text":"\\ude00 you \\ud83d"}',
            '{"type":"text.end","context_id":"a"}',
        ):
            await connection.send(message)
        while True:
            data = await connection.recv()
            if isinstance(data, str) and json.loads(data)["type"] == "context.done":
                break
        assert json.loads(data)["chars"] == len("Hi \U0001f600 you \ufffd")
        assert all(request.text.isprintable() for request in engine.requests)


async def test_a_flood_of_bad_messages_does_not_keep_others_from_being_served() -> None:
    async with (
        talking() as (_, server, client),
        raw(server, max_queue=1) as connection,
    ):
        connection.transport.pause_reading()

        async def flood() -> None:
            while True:
                await connection.send("{" * 20_000)

        flooding = asyncio.create_task(flood())
        context = await client.open()
        await context.append("Hi.")
        await context.end()
        assert isinstance((await all_of(context))[-1], Done)
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
        connection.transport.abort()


async def test_the_bounds_told_are_the_bounds_kept() -> None:
    async with talking(limits=Limits(max_text_chars=20)) as (_, _, client):
        assert client.session.limits.max_text_chars == 20
        context = await client.open()
        with pytest.raises(SpeechError, match="20 characters"):
            await context.append("x" * 21)


async def test_deflate_is_not_agreed_on_though_the_client_offers_it() -> None:
    async with talking() as (_, server, _), raw(server, compression="deflate") as connection:
        assert connection.protocol.extensions == []


async def test_the_clocks_are_related() -> None:
    async with talking() as (_, _, client):
        # Both ends are this process: the clocks are one.
        assert abs(client.clock_offset_s) <= client.rtt_s / 2 + 0.001
