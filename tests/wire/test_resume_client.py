"""A client whose server vanishes, leaves or breaks, and that finds another one, on 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.server import ServerConnection

from qwen3tts_wire.client import Context, Resume, SpeechClient
from qwen3tts_wire.errors import ConnectionLost, ProtocolError, ServerBusy, UnknownVoice
from qwen3tts_wire.events import Alignment, Audio, Cancelled, Done, Resumed, Started
from qwen3tts_wire.fields import encode
from qwen3tts_wire.formats import FORMATS, AudioFrame
from qwen3tts_wire.messages import (
    AlignmentInfo,
    ContextCancelled,
    ContextDone,
    ContextStarted,
    ErrorInfo,
    ServerDraining,
    VoiceReady,
    WordInfo,
)
from tests.fakes import settle
from tests.wire.pair import GREETING
from tests.wire.test_client import Script, server

pytestmark = pytest.mark.network

QUICK = Resume(within_s=5.0, first_wait_s=0.005, max_wait_s=0.02)
SOUND = b"\0\x10"
"""One sample that is heard."""


class Servers(Script):
    """All the servers behind one address, one after the other; ``away``: none takes anybody."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.refused = asyncio.Event()
        self.count = 0
        self.sockets: list[ServerConnection] = []

    async def __call__(self, connection: ServerConnection) -> None:
        if self.away:
            await connection.close(1013, "full")
            self.refused.set()
            return
        self.count += 1
        self.sockets.append(connection)
        await super().__call__(connection)

    async def die(self) -> None:
        """The server is gone, and no other is there yet."""
        self.away = True
        self.vanish()
        async with asyncio.timeout(5):
            await self.refused.wait()

    async def begin(self, no: int, text: str | None = None) -> str:
        """Read what opens a context, and accept it; returns its id."""
        opened = await self.expect("context.open")
        assert opened["context_no"] == no
        if text is not None:
            assert (await self.expect("text.append"))["text"] == text
        await self.send(ContextStarted(opened["context_id"], no, "clause", FORMATS[0], "v"))
        return str(opened["context_id"])


@contextlib.asynccontextmanager
async def talking(resume: Resume | bool = QUICK) -> AsyncIterator[tuple[Servers, SpeechClient]]:
    servers = Servers()
    async with server(servers) as url, await SpeechClient.connect(url, resume=resume) as client:
        yield servers, client


async def spoken(servers: Servers, client: SpeechClient) -> Context:
    """A context of which the first word has come, ten samples long."""
    context = await client.open(context_id="a")
    await context.append("Hello there.")
    await servers.begin(1, "Hello there.")
    await servers.send(AlignmentInfo("a", (WordInfo("Hello", 0, 10, 0, 5),)))
    await servers.send(AudioFrame(1, 0, 10 * SOUND, 1).to_bytes())
    for kind in (Started, Alignment, Audio):
        assert isinstance(await anext(context), kind)
    return context


async def test_a_context_goes_on_with_the_rest_of_its_text_at_the_next_server() -> None:
    async with talking() as (servers, client):
        context = await spoken(servers, client)
        servers.vanish()
        await servers.begin(2, " there.")
        await context.append(" And")
        await context.end()
        assert (await servers.expect("text.append"))["text"] == " And"
        await servers.expect("text.end")
        await servers.send(AlignmentInfo("a", (WordInfo("there.", 0, 4, 1, 7),)))
        await servers.send(AudioFrame(2, 0, 4 * SOUND, 1).to_bytes())
        await servers.send(ContextDone("a", 4, 11, 1))
        events = [event async for event in context]
        resumed, told, audio, done = events
        assert isinstance(resumed, Resumed)
        assert (resumed.offset, resumed.char) == (10, 5)
        assert resumed.gap_s >= 0
        assert "lost" in resumed.reason
        assert isinstance(told, Alignment)
        (word,) = told.words
        assert (word.start, word.end, word.char_start, word.char_end) == (10, 14, 6, 12)
        assert isinstance(audio, Audio)
        assert audio.offset == 10
        assert isinstance(done, Done)
        assert (done.samples, done.chars, done.clauses) == (14, 16, 2)
        assert context.text == "Hello there. And"
        assert context.heard(12).text_heard == "Hello there."
        assert (context.received, context.resumed) == (14, 1)


async def test_text_given_while_there_is_no_server_is_kept_with_its_flushes() -> None:
    async with talking() as (servers, client):
        context = await spoken(servers, client)
        await servers.die()
        await context.append(" One")
        await context.flush()
        await context.append(" \ud83d")
        await context.append("\ude00")
        await context.report(7)
        await context.end()
        with pytest.raises(ProtocolError, match="ENDING"):
            await context.append("late")
        servers.away = False
        await servers.begin(2, " there. One")
        await servers.expect("text.flush")
        assert (await servers.expect("text.append"))["text"] == " \U0001f600"
        await servers.expect("text.end")
        assert context.text == "Hello there. One \U0001f600"


async def test_a_cancel_without_a_server_is_worked_out_here_and_nothing_is_opened_again() -> None:
    async with talking() as (servers, client):
        context = await spoken(servers, client)
        await servers.die()
        cut = await context.cancel(10)
        assert cut == Cancelled(10, 10, "Hello", " there.", 10, False)
        servers.away = False
        other = await client.open(context_id="b")
        assert await servers.begin(2) == "b"
        assert [event async for event in context] == []
        other.cancel(0)


async def test_a_cancel_after_a_resumption_counts_in_the_positions_of_the_whole() -> None:
    async with talking() as (servers, client):
        context = await spoken(servers, client)
        servers.vanish()
        await servers.begin(2, " there.")
        await servers.send(AlignmentInfo("a", (WordInfo("there.", 0, 4, 1, 7),)))
        await servers.send(AudioFrame(2, 0, 4 * SOUND, 1).to_bytes())
        for kind in (Resumed, Alignment, Audio):
            assert isinstance(await anext(context), kind)
        await context.report(9)
        assert (await servers.expect("playout.report"))["played"] == 0
        answer = context.cancel(13)
        assert (await servers.expect("context.cancel"))["played"] == 3
        await servers.send(ContextCancelled("a", 4, 6, 3, " there.", ""))
        assert await answer == Cancelled(14, 16, "Hello there.", "", 13, True, {})


async def test_a_cancel_in_what_the_lost_server_said_is_cut_by_its_words() -> None:
    async with talking() as (servers, client):
        context = await spoken(servers, client)
        servers.vanish()
        await servers.begin(2, " there.")
        answer = context.cancel(3)
        assert (await servers.expect("context.cancel"))["played"] == 0
        await servers.send(ContextCancelled("a", 0, 0, 0, "", " there."))
        assert await answer == Cancelled(10, 10, "", "Hello there.", 3, True, {})


async def test_sound_whose_words_were_not_told_is_not_said_twice() -> None:
    async with talking() as (servers, client):
        context = await spoken(servers, client)
        # Three of the four samples of the second word, and it is not told.
        await servers.send(AudioFrame(1, 10, 3 * SOUND).to_bytes())
        assert isinstance(await anext(context), Audio)
        servers.vanish()
        await servers.begin(2, " there.")
        await context.append(" More.")
        await servers.expect("text.append")
        words = (WordInfo("there.", 0, 4, 1, 7), WordInfo("More.", 4, 8, 8, 13))
        await servers.send(AlignmentInfo("a", words))
        await servers.send(AudioFrame(2, 0, 8 * SOUND, 1).to_bytes())
        resumed, passed, told, audio = [await anext(context) for _ in range(4)]
        assert isinstance(resumed, Resumed)
        assert (resumed.offset, resumed.char) == (13, 12)
        assert isinstance(passed, Alignment)
        assert [(e.text, e.start, e.end) for e in passed.words] == [("there.", 10, 13)]
        assert isinstance(told, Alignment)
        assert [(e.text, e.start, e.end) for e in told.words] == [("More.", 13, 17)]
        assert isinstance(audio, Audio)
        assert (audio.offset, audio.pcm) == (13, 4 * SOUND)


async def test_what_was_heard_to_its_end_needs_no_other_server() -> None:
    async with talking() as (servers, client):
        context = await client.open(context_id="a")
        await context.append("Hello. ")
        await context.end()
        await servers.begin(1, "Hello. ")
        await servers.send(AlignmentInfo("a", (WordInfo("Hello.", 0, 10, 0, 6),)))
        await servers.send(AudioFrame(1, 0, 10 * SOUND, 1).to_bytes())
        for kind in (Started, Alignment, Audio):
            assert isinstance(await anext(context), kind)
        servers.vanish()
        assert [event async for event in context] == [Done(10, 7, 1, "text_end", {})]
        assert servers.count == 1
        assert (await context.cancel(10)).text_heard == "Hello. "


async def test_a_text_that_ends_after_all_of_it_was_heard_ends_at_the_next_server() -> None:
    async with talking() as (servers, client):
        context = await client.open(context_id="a")
        await context.append("Hello.")
        await servers.begin(1, "Hello.")
        await servers.send(AlignmentInfo("a", (WordInfo("Hello.", 0, 10, 0, 6),)))
        await servers.send(AudioFrame(1, 0, 10 * SOUND, 1).to_bytes())
        for kind in (Started, Alignment, Audio):
            assert isinstance(await anext(context), kind)
        servers.vanish()
        await servers.begin(2)
        await context.end()
        await servers.expect("text.end")
        await servers.send(ContextDone("a", 0, 0, 0))
        resumed, done = [event async for event in context]
        assert isinstance(resumed, Resumed)
        assert (resumed.offset, resumed.char) == (10, 6)
        assert isinstance(done, Done)
        assert (done.samples, done.chars, done.clauses) == (10, 6, 1)


async def test_a_context_of_which_nothing_has_come_begins_anew() -> None:
    async with talking() as (servers, client):
        context = await client.open(context_id="a", voice="w", speed=1.5)
        await context.append("Hello.")
        await servers.expect("context.open")
        await servers.expect("text.append")
        servers.vanish()
        opened = await servers.expect("context.open")
        assert (opened["voice"], opened["speed"], opened["context_id"]) == ("w", 1.5, "a")
        assert (await servers.expect("text.append"))["text"] == "Hello."
        await servers.send(ContextStarted("a", 2, "clause", FORMATS[0], "w"))
        assert isinstance(await anext(context), Started)


async def test_the_voice_that_the_first_server_chose_stays() -> None:
    async with talking() as (servers, client):
        await spoken(servers, client)
        servers.vanish()
        assert (await servers.expect("context.open"))["voice"] == "v"


async def test_ids_given_here_are_not_given_twice_after_a_resumption() -> None:
    async with talking() as (servers, client):
        first = await client.open()
        await servers.begin(1)
        servers.vanish()
        assert await servers.begin(2) == "c1"
        second = await client.open()
        assert await servers.begin(3) == "c3"
        assert (first.context_no, second.context_no) == (2, 3)


async def test_a_server_that_does_not_come_back_is_a_lost_connection_in_the_end() -> None:
    async with talking(Resume(within_s=0.1, first_wait_s=0.01)) as (servers, client):
        context = await spoken(servers, client)
        servers.away = True
        servers.vanish()
        with pytest.raises(ServerBusy, match="1013 full"):
            await anext(context)
        with pytest.raises(ServerBusy, match="1013 full"):
            await client.open()
        assert not client.closed
        servers.away = False
        await client.open()
        await servers.begin(2)


async def test_without_words_nobody_knows_where_to_go_on() -> None:
    async with talking() as (servers, client):
        context = await client.open(context_id="a")
        await context.append("Hello.")
        await servers.begin(1, "Hello.")
        await servers.send(AudioFrame(1, 0, SOUND).to_bytes())
        for kind in (Started, Audio):
            assert isinstance(await anext(context), kind)
        servers.vanish()
        with pytest.raises(ConnectionLost, match="lost"):
            await anext(context)


async def test_a_text_that_breaks_every_server_is_given_up() -> None:
    async with talking() as (servers, client):
        context = await spoken(servers, client)
        for no in (2, 3, 4):
            servers.vanish()
            await servers.begin(no, " there.")
        servers.vanish()
        with pytest.raises(ConnectionLost, match="3 servers in turn"):
            await anext(context)
        assert context.heard(10).text_remaining == " there."


async def test_what_the_next_server_refuses_ends_the_context() -> None:
    async with talking() as (servers, client):
        context = await spoken(servers, client)
        servers.vanish()
        await servers.expect("context.open")
        await servers.send(ErrorInfo("unknown_voice", "No.", "", "a", ends="context"))
        with pytest.raises(UnknownVoice, match="No"):
            await anext(context)


async def test_a_server_that_breaks_the_protocol_is_not_tried_again() -> None:
    async with talking() as (servers, client):
        context = await spoken(servers, client)
        await servers.send("{")
        with pytest.raises(ProtocolError):
            await anext(context)
        assert servers.count == 1


async def test_a_server_that_leaves_finishes_what_it_has_and_the_next_takes_what_is_new() -> None:
    async with talking() as (servers, client):
        old = await spoken(servers, client)
        first = servers.socket
        assert first is not None
        await servers.send(ServerDraining(1000.0))
        while client._connection.usable:
            await settle()
        new = await client.open(context_id="b")
        assert await servers.begin(2) == "b"
        assert servers.socket is not first
        assert not client.draining.is_set()
        await first.send(AudioFrame(1, 10, SOUND).to_bytes())
        assert isinstance(await anext(old), Audio)
        assert isinstance(await anext(new), Started)
        assert old.resumed == 0


@pytest.mark.parametrize("told", [True, False], ids=["told", "closed"])
async def test_what_a_leaving_server_cannot_finish_goes_on_at_the_next(told: bool) -> None:
    async with talking() as (servers, client):
        context = await spoken(servers, client)
        first = servers.socket
        assert first is not None
        await servers.send(ServerDraining(1000.0))
        if told:
            error = ErrorInfo("server_busy", "Stopped.", "", "a", retryable=True, ends="context")
            await servers.send(error)
        await first.close(1012, "stopping")
        await servers.begin(2, " there.")
        await servers.send(AudioFrame(2, 0, SOUND).to_bytes())
        resumed = await anext(context)
        assert isinstance(resumed, Resumed)
        assert ("Stopped" if told else "1012") in resumed.reason


@pytest.mark.parametrize("code", [1001, 1011, 1012])
async def test_it_goes_on_whatever_the_server_closed_with(code: int) -> None:
    async with talking() as (servers, client):
        await spoken(servers, client)
        assert servers.socket is not None
        await servers.socket.close(code, "gone")
        await servers.begin(2, " there.")


async def test_a_context_opened_without_a_server_waits_for_the_next() -> None:
    async with talking() as (servers, client):
        await spoken(servers, client)
        await servers.die()
        opening = asyncio.create_task(client.open(context_id="b"))
        await settle()
        assert not opening.done()
        servers.away = False
        await opening
        await servers.begin(2, " there.")
        assert await servers.begin(3) == "b"


async def test_a_connection_lost_while_nothing_is_said_is_made_when_it_is_needed() -> None:
    async with talking() as (servers, client):
        servers.vanish()
        while client._connection.usable:
            await settle()
        assert servers.count == 1
        await client.open()
        await servers.begin(1)


async def test_a_voice_is_asked_for_at_the_next_server() -> None:
    async with talking() as (servers, client):
        servers.vanish()
        while client._connection.usable:
            await settle()
        loading = asyncio.create_task(client.load_voice(voice_id="x"))
        request = await servers.expect("voice.load")
        await servers.send(VoiceReady(request["request_id"], "x"))
        assert (await loading).voice_id == "x"


async def test_closing_while_a_server_is_looked_for_ends_what_waits() -> None:
    async with talking() as (servers, client):
        context = await spoken(servers, client)
        await servers.die()
        opening = asyncio.create_task(client.open())
        await settle()
        await client.close()
        with pytest.raises(ConnectionLost, match="This side"):
            await anext(context)
        with pytest.raises(ConnectionLost, match="This side"):
            await opening
        with pytest.raises(ConnectionLost, match="This side"):
            await client.open()


async def test_credit_goes_to_the_next_server_for_what_the_queue_has_room_for() -> None:
    async with talking() as (servers, client):
        context = await client.open(context_id="a", window_ms=1000.0)
        await context.append("Hello there.")
        await servers.begin(1, "Hello there.")
        await servers.send(AlignmentInfo("a", (WordInfo("Hello", 0, 12_000, 0, 5),)))
        await servers.send(AudioFrame(1, 0, 12_000 * SOUND, 1).to_bytes())
        assert isinstance(await anext(context), Started)
        servers.vanish()
        opened = await servers.expect("context.open")
        assert opened["window_ms"] == 500.0
        await servers.expect("text.append")
        await servers.send(AudioFrame(2, 0, 12_000 * SOUND, 1).to_bytes())
        assert (await servers.expect("audio.credit"))["window_ms"] == 500.0
        for kind in (Alignment, Audio, Resumed, Audio):
            assert isinstance(await anext(context), kind)
        assert (await servers.expect("audio.credit"))["window_ms"] == 500.0
        assert servers.got.empty()


async def test_a_full_queue_gets_no_more_from_the_next_server_than_it_must() -> None:
    async with talking() as (servers, client):
        context = await client.open(context_id="a", window_ms=100.0)
        await context.append("Hello there.")
        await servers.begin(1, "Hello there.")
        await servers.send(AlignmentInfo("a", (WordInfo("Hello", 0, 2400, 0, 5),)))
        await servers.send(AudioFrame(1, 0, 2400 * SOUND, 1).to_bytes())
        assert isinstance(await anext(context), Started)
        servers.vanish()
        assert (await servers.expect("context.open"))["window_ms"] == 20.0
        await servers.expect("text.append")
        await servers.send(AudioFrame(2, 0, 480 * SOUND, 1).to_bytes())
        credit = (await servers.expect("audio.credit"))["window_ms"]
        for kind in (Alignment, Audio, Resumed, Audio):
            assert isinstance(await anext(context), kind)
        while credit < 100:
            credit += (await servers.expect("audio.credit"))["window_ms"]
        # What was sent while nothing was read counts as taken once.
        assert credit == 100
        await context.flush()
        await servers.expect("text.flush")


async def test_true_is_the_usual_settings_and_false_is_none() -> None:
    async with talking(True) as (_, client):
        assert client.resume == Resume()
    async with talking(False) as (servers, client):
        context = await client.open()
        servers.vanish()
        with pytest.raises(ConnectionLost):
            await anext(context)


@pytest.mark.parametrize("wrong", [{"within_s": 0}, {"fruitless": -1}, {"max_wait_s": 1e999}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        Resume(**wrong)  # type: ignore[arg-type]


def test_waits_double_up_to_the_most_and_no_two_clients_come_together() -> None:
    settings = Resume(first_wait_s=0.1, max_wait_s=0.5)
    longest = settings.waits(lambda: 0.0)
    assert [next(longest) for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    assert next(settings.waits(lambda: 1.0)) == 0.05


def test_the_greeting_of_these_servers_names_no_alignment() -> None:
    assert "alignment" not in GREETING.features
    assert encode(GREETING)


async def test_a_client_that_looks_for_a_server_is_not_connected_and_gets_ready() -> None:
    async with talking() as (servers, client):
        context = await spoken(servers, client)
        away = asyncio.create_task(client.away())
        await servers.die()
        await away
        assert not client.idle, "a context waits for a server"
        ready = asyncio.create_task(client.ready())
        await settle()
        assert not ready.done()
        servers.away = False
        await ready
        assert client.connected
        await servers.begin(2, " there.")
        context.cancel(0)
        assert client.idle
