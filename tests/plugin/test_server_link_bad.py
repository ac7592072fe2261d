"""Servers that fail in every way, on 127.0.0.1: each reply ends, and the next one is clean."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection

from mr_qwen3tts.connection import ServerLink
from qwen3tts_codecs.g711 import PCMU
from qwen3tts_speech.line import Speaker, Spoken, Utterance
from qwen3tts_wire.errors import ConnectionLost, ProtocolError, SpeechError
from qwen3tts_wire.fields import encode
from qwen3tts_wire.formats import AudioFrame
from qwen3tts_wire.messages import ServerDraining
from tests.plugin.bad_servers import WORD, Deaf, QuickSink, Server, Talk, speaks
from tests.wire.pair import GREETING

pytestmark = pytest.mark.network

TEXT = "one two three four"
WAIT_S, RESUME_S, STALL_S = 0.8, 1.0, 1.0
"""Bounds, in the order that the plugin has them, and shorter."""
MOST_S = 20.0
"""Nothing here may take so long on any machine."""


class Caller:
    """Who is spoken to, over a link to ``url``."""

    def __init__(self, url: str, **options: Any) -> None:
        self.link = ServerLink(url, wait_s=WAIT_S, resume_s=RESUME_S, **options)
        self.sink = QuickSink()
        self.speaker = Speaker(self.link, self.sink, PCMU, stall_s=STALL_S)

    async def hears(self, text: str = TEXT) -> Spoken:
        """A reply that is to succeed."""
        return await self.speaker.say(text).spoken()

    async def fails(self, kind: type[SpeechError], utterance: Utterance | None = None) -> Spoken:
        """A reply that is to fail with an error that says why and what to do."""
        utterance = utterance or self.speaker.say(TEXT)
        with pytest.raises(kind) as caught:
            await utterance.spoken()
        assert caught.value.message
        assert caught.value.remedy
        spoken = utterance.outcome()
        assert spoken.heard + spoken.remaining == utterance.text, "not a character is lost"
        return spoken

    async def is_up(self, up: bool = True) -> None:
        await until(lambda: self.link.state.up is up)


@contextlib.asynccontextmanager
async def calling(url: str, **options: Any) -> AsyncIterator[Caller]:
    """A caller; when it is over, no task and no socket of the link is left."""
    tasks = asyncio.all_tasks()
    sockets = open_sockets()
    caller = Caller(url, **options)
    caller.link.keep()
    async with asyncio.timeout(MOST_S):
        try:
            yield caller
        finally:
            await caller.speaker.close()
            await caller.link.close()
        left = [task.get_name() for task in asyncio.all_tasks() - tasks]
        ours = ("upkeep", "leave", "utterance", "speech", "look", "close")
        assert not [name for name in left if name.startswith(ours)]
    assert open_sockets() <= sockets


@contextlib.asynccontextmanager
async def calling_after(server: Server, **options: Any) -> AsyncIterator[tuple[Caller, Any]]:
    """A caller of a server that can be stopped."""
    async with contextlib.AsyncExitStack() as running:
        await running.enter_async_context(server.running())

        async def stop() -> None:
            server.die()
            await running.aclose()

        async with calling(server.url, **options) as caller:
            yield caller, stop


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what other tasks bring about; the test has a bound."""
    while not holds():  # noqa: ASYNC110 - it changes on the other end of a socket
        await asyncio.sleep(0.002)


def open_sockets() -> set[int]:
    """Connections of clients in this process."""
    return {
        id(each)
        for each in gc.get_objects()
        if issubclass(type(each), ClientConnection) and not each.transport.is_closing()
    }


# --- not there ---


async def test_nothing_listens_and_then_something_does() -> None:
    server = Server()
    async with server.running():
        pass
    async with calling(server.url) as caller:
        spoken = await caller.fails(ConnectionLost)
        assert (spoken.heard, spoken.remaining, caller.sink.heard) == ("", TEXT, 0)
        async with server.running():
            assert (await caller.hears()).heard == TEXT


async def test_a_server_that_never_answers_the_handshake() -> None:
    deaf = Deaf()
    async with deaf.running() as url, calling(url) as caller:
        spoken = await caller.fails(ConnectionLost)
        assert spoken.remaining == TEXT


async def test_a_server_that_answers_the_handshake_and_never_greets() -> None:
    server = Server()
    server.greeting = None
    async with server.running(), calling(server.url) as caller:
        assert (await caller.fails(ConnectionLost)).remaining == TEXT


@pytest.mark.parametrize("greeting", ["garbage", b"\0\1\2", '{"type": "session.created"}', "[]"])
async def test_a_server_that_greets_with_nonsense_and_comes_to_its_senses(
    greeting: str | bytes,
) -> None:
    server = Server()
    good, server.greeting = server.greeting, greeting
    async with server.running(), calling(server.url) as caller:
        await caller.fails(ConnectionLost)
        server.greeting = good
        assert (await caller.hears()).heard == TEXT


async def test_the_wrong_key_is_told_with_its_remedy() -> None:
    async with calling("ws://127.0.0.1:9/v1/speech", api_key="no key\n") as caller:
        await caller.fails(ConnectionLost)
        assert "QWEN3TTS_API_KEY" in str(caller.link.state.last_error)


# --- there, and of no use ---


async def never(talk: Talk) -> None:
    """Takes the context and says nothing."""


async def accepts(talk: Talk) -> None:
    await talk.start()


async def half(talk: Talk) -> None:
    await talk.start()
    await talk.ended.wait()
    await talk.word(0)
    await talk.word(1)


@pytest.mark.parametrize("manner", [never, accepts])
async def test_a_context_that_is_never_answered_ends_and_the_next_is_on_another_connection(
    manner: Any,
) -> None:
    server = Server()
    server.manners = [manner]
    async with server.running(), calling(server.url) as caller:
        first = await caller.link.client()
        spoken = await caller.fails(ConnectionLost)
        assert (spoken.heard, spoken.remaining) == ("", TEXT)
        assert (await caller.hears()).heard == TEXT
        assert await caller.link.client() is not first
        assert "context.cancel" in [each["type"] for each in server.got]
        await until(lambda: len(server.connections) == 1)


async def test_a_server_that_stays_mute_is_an_outage_for_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qwen3tts_speech.link.FIRST_WITHIN_S", 0.5)
    monkeypatch.setattr("qwen3tts_speech.link.FRESH_S", 0.0)
    server = Server(accepts)
    async with server.running(), calling(server.url) as caller:
        await caller.is_up()
        assert await caller.link.outage() is None
        await caller.fails(ConnectionLost)
        await caller.is_up()
        outage = await caller.link.outage()
        assert outage is not None
        assert "sends no sound" in str(outage)
        monkeypatch.setattr("qwen3tts_speech.link.FIRST_WITHIN_S", 10.0)
        server.manner = speaks
        assert await caller.link.outage() is None
        assert (await caller.hears()).heard == TEXT


async def test_sound_that_stops_in_the_middle_is_played_and_the_rest_is_known() -> None:
    server = Server()
    server.manners = [half]
    async with server.running(), calling(server.url) as caller:
        spoken = await caller.fails(ConnectionLost)
        assert (spoken.heard, spoken.remaining) == ("one two", " three four")
        assert spoken.position == caller.sink.heard == 2 * WORD
        assert (await caller.hears()).heard == TEXT


# --- gone in the middle ---


async def test_a_server_that_closes_in_mid_audio_goes_on_with_the_next_word() -> None:
    async def breaks(talk: Talk) -> None:
        await half(talk)
        talk.vanish()

    server = Server()
    server.manners = [breaks]
    async with server.running(), calling(server.url) as caller:
        spoken = await caller.hears()
        assert spoken.heard == TEXT
        assert server.texts() == [TEXT, " three four"]
        assert spoken.position == 4 * WORD


async def test_a_server_that_closes_each_time_before_it_says_anything() -> None:
    async def breaks(talk: Talk) -> None:
        await talk.ended.wait()
        talk.vanish()

    server = Server(breaks)
    async with server.running(), calling(server.url) as caller:
        assert (await caller.fails(ConnectionLost)).remaining == TEXT
        server.manner = speaks
        assert (await caller.hears()).heard == TEXT


@pytest.mark.parametrize("features", [(), ("alignment",)])
async def test_a_server_that_closes_each_time_after_sound_of_which_it_tells_no_word(
    features: tuple[str, ...],
) -> None:
    async def breaks(talk: Talk) -> None:
        await talk.start()
        await talk.ended.wait()
        await talk.sound()
        talk.vanish()

    server = Server(breaks)
    server.greeting = encode(replace(GREETING, features=features))
    async with server.running(), calling(server.url) as caller:
        await caller.fails(SpeechError)
        server.manner = speaks
        assert (await caller.hears()).heard == TEXT


async def test_a_server_that_restarts_at_the_same_port_in_mid_speech() -> None:
    server = Server()
    server.manners = [half]
    async with calling_after(server) as (caller, stop):
        utterance = caller.speaker.say(TEXT)
        await until(lambda: caller.sink.heard > WORD)
        await stop()
        async with server.running():
            spoken = await utterance.spoken()
            assert spoken.heard == TEXT
            assert server.texts() == [TEXT, " three four"]
            assert (await caller.hears("And more.")).heard == "And more."


async def test_a_server_that_dies_in_mid_speech_and_stays_away() -> None:
    server = Server()
    server.manners = [half]
    async with calling_after(server) as (caller, stop):
        utterance = caller.speaker.say(TEXT)
        await until(lambda: caller.sink.heard > WORD)
        await stop()
        spoken = await caller.fails(ConnectionLost, utterance)
        assert (spoken.heard, spoken.remaining) == ("one two", " three four")
        await caller.fails(ConnectionLost)
        async with server.running():
            assert (await caller.hears()).heard == TEXT


async def test_a_server_that_drains_finishes_and_the_next_reply_goes_to_its_successor() -> None:
    successor = asyncio.Event()

    async def leaves(talk: Talk) -> None:
        await talk.start()
        await talk.ended.wait()
        await talk.word(0)
        await talk.send(ServerDraining(5000.0))
        await successor.wait()
        for at in range(1, 4):
            await talk.word(at)
        await talk.finish()

    server = Server()
    server.manners = [leaves]
    async with server.running(), calling(server.url) as caller:
        utterance = caller.speaker.say(TEXT)
        await until(lambda: caller.sink.heard > 0)
        await until(lambda: len(server.connections) == 2)
        following = caller.speaker.say("And more.")
        await until(lambda: server.texts() == [TEXT, "And more."])
        successor.set()
        assert (await utterance.spoken()).heard == TEXT
        assert (await following.spoken()).heard == "And more."


# --- nonsense ---


async def text_garbage(talk: Talk) -> None:
    await half(talk)
    await talk.send("\u2603 this is no JSON {")


async def binary_garbage(talk: Talk) -> None:
    await half(talk)
    await talk.send(b"\xff" * 100)


async def short_binary(talk: Talk) -> None:
    await half(talk)
    await talk.send(b"\1")


async def wrong_offset(talk: Talk) -> None:
    await half(talk)
    await talk.send(AudioFrame(talk.no, 17, b"\0\0" * 480, 0).to_bytes())


async def half_a_sample(talk: Talk) -> None:
    await half(talk)
    await talk.send(AudioFrame(talk.no, talk.offset, b"\0" * 481, 0).to_bytes())


async def unknown_context(talk: Talk) -> None:
    await half(talk)
    await talk.send(AudioFrame(4711, 0, b"\0\0" * 480, 0).to_bytes())


async def done_too_early(talk: Talk) -> None:
    await talk.start()
    await talk.finish()


@pytest.mark.parametrize(
    "manner",
    [
        text_garbage,
        binary_garbage,
        short_binary,
        wrong_offset,
        half_a_sample,
        unknown_context,
    ],
)
async def test_what_came_before_nonsense_is_played_and_the_next_reply_is_clean(
    manner: Any,
) -> None:
    server = Server()
    server.manners = [manner]
    async with server.running(), calling(server.url) as caller:
        spoken = await caller.fails(ProtocolError)
        assert (spoken.heard, spoken.remaining) == ("one two", " three four")
        assert caller.sink.heard == 2 * WORD
        assert (await caller.hears()).heard == TEXT


async def test_messages_of_contexts_that_were_never_there_are_passed_over() -> None:
    async def strays(talk: Talk) -> None:
        await talk.start()
        await talk.ended.wait()
        await talk.send(
            '{"type": "context.done", "context_id": "c99", "samples": 1, "chars": 1, "clauses": 1}'
        )
        await talk.send('{"type": "of.tomorrow", "context_id": "c1"}')
        for at in range(4):
            await talk.word(at)
        await talk.finish()

    server = Server(strays)
    async with server.running(), calling(server.url) as caller:
        assert (await caller.hears()).heard == TEXT


async def test_a_server_that_speaks_before_its_text_has_ended_breaks_that_reply_alone() -> None:
    server = Server()
    server.manners = [done_too_early]
    async with server.running(), calling(server.url) as caller:

        async def words() -> AsyncIterator[str]:
            yield TEXT
            await asyncio.Event().wait()

        await caller.fails(ProtocolError, caller.speaker.say(words()))
        assert (await caller.hears()).heard == TEXT


# --- the fallback ---


async def test_the_fallback_speaks_while_the_main_server_is_away_and_the_main_one_after() -> None:
    main, other = Server(), Server()
    async with other.running(), calling_after(main, fallback_url=other.url) as (caller, stop):
        assert (await caller.hears()).heard == TEXT
        assert (len(main.texts()), len(other.texts())) == (1, 0)
        await stop()
        await caller.is_up(False)
        assert (await caller.hears()).heard == TEXT
        assert (len(main.texts()), len(other.texts())) == (1, 1)
        async with main.running():
            await caller.is_up()
            assert (await caller.hears()).heard == TEXT
            assert (len(main.texts()), len(other.texts())) == (2, 1)
            await caller.link.close()


async def test_a_main_server_that_never_answers_gives_way_to_the_fallback() -> None:
    main, other = Server(never), Server()
    async with (
        main.running(),
        other.running(),
        calling(main.url, fallback_url=other.url) as caller,
    ):
        await caller.fails(ConnectionLost)
        assert (await caller.hears()).heard == TEXT
        assert other.texts() == [TEXT]


# --- what a word costs ---


class Tap:
    """A transport that notes what is written to it."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.written: list[str] = []

    def write(self, data: bytes) -> None:
        length = data[1] & 0x7F
        assert length < 126, "a short frame, and one of them"
        mask, payload = data[2:6], data[6 : 6 + length]
        assert len(data) == 6 + length
        self.written.append(bytes(b ^ mask[i % 4] for i, b in enumerate(payload)).decode())
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def test_each_word_is_one_message_in_one_write_at_once() -> None:
    server = Server()
    async with server.running(), calling(server.url) as caller:
        client: Any = await caller.link.client()
        words: asyncio.Queue[str | None] = asyncio.Queue()

        async def source() -> AsyncIterator[str]:
            while (word := await words.get()) is not None:
                yield word

        utterance = caller.speaker.say(source())
        words.put_nowait("one")
        await until(lambda: server.texts() == ["one"])
        tap = client._connection.socket.transport = Tap(client._connection.socket.transport)
        for count, word in enumerate((" two", " three", " four"), 2):
            words.put_nowait(word)
            await until(lambda count=count: len(server.texts()) == count)  # type: ignore[misc]
        sent = [each for each in map(json.loads, tap.written) if each["type"] != "ping"]
        assert [(each["type"], each["text"]) for each in sent] == [
            ("text.append", word) for word in (" two", " three", " four")
        ]
        words.put_nowait(None)
        assert (await utterance.spoken()).heard == TEXT
