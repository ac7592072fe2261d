"""A client whose server is lost, and that goes on at another address, on 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from qwen3tts_wire.client import Context, Resume, SpeechClient
from qwen3tts_wire.errors import BadRequest
from qwen3tts_wire.events import Done
from qwen3tts_wire.formats import AudioFrame
from qwen3tts_wire.messages import AlignmentInfo, ContextDone, ErrorInfo, ServerDraining, WordInfo
from tests.wire.test_client import server
from tests.wire.test_resume_client import SOUND, Servers, spoken

pytestmark = pytest.mark.network


@contextlib.asynccontextmanager
async def two(within_s: float = 5.0) -> AsyncIterator[tuple[Servers, Servers, SpeechClient]]:
    main, other = Servers(), Servers()
    async with server(main) as url, server(other) as elsewhere:
        resume = Resume(within_s, 0.005, 0.02, elsewhere=(url, elsewhere))
        async with await SpeechClient.connect(url, resume=resume) as client:
            yield main, other, client


def gone(main: Servers) -> None:
    """The first server is no more, and another does not take its place."""
    main.away = True
    main.vanish()


async def rest(other: Servers, context: Context, no: int = 2) -> None:
    """The other server says what is left."""
    await context.end()
    await other.send(AlignmentInfo("a", (WordInfo("there.", 0, 4, 1, 7),)))
    await other.send(AudioFrame(no, 0, 4 * SOUND, 1).to_bytes())
    await other.send(ContextDone("a", 4, 7, 1))
    events = [event async for event in context]
    assert isinstance(events[-1], Done)
    assert events[-1].samples == 14
    assert context.heard(14).text_heard == "Hello there."


async def test_a_context_goes_on_at_the_other_address_with_the_rest_of_its_text() -> None:
    async with two() as (main, other, client):
        context = await spoken(main, client)
        gone(main)
        await other.begin(2, " there.")
        assert client.elsewhere
        async with asyncio.timeout(5):
            await client.away()  # it is not at its own address
        assert client.connected
        await rest(other, context)


async def test_its_own_address_goes_first() -> None:
    async with two() as (main, other, client):
        context = await spoken(main, client)
        main.vanish()
        await main.begin(2, " there.")
        assert not client.elsewhere
        assert other.count == 0
        await rest(main, context)


async def test_the_voice_is_chosen_again_for_the_other_server() -> None:
    async with two() as (main, other, client):
        context = await spoken(main, client)

        async def revoice() -> tuple[str | None, str | None]:
            assert client.elsewhere
            return "theirs", "de"

        context.revoice = revoice
        gone(main)
        opened = await other.expect("context.open")
        assert (opened["voice"], opened["language"]) == ("theirs", "de")


@pytest.mark.parametrize("known", [True, False])
async def test_a_servers_own_voice_speaks_on_only_where_the_other_has_it(known: bool) -> None:
    async with two() as (main, other, client):
        context = await spoken(main, client)
        context.speak_with(None, None, ["u", "v"] if known else ["u"])
        gone(main)
        assert (await other.expect("context.open")).get("voice") == ("v" if known else None)


async def test_a_choice_that_fails_leaves_the_voice() -> None:
    async with two() as (main, other, client):
        context = await spoken(main, client)

        async def revoice() -> tuple[str | None, str | None]:
            raise BadRequest("no")

        context.revoice = revoice
        gone(main)
        assert (await other.expect("context.open"))["voice"] == "v"


async def test_what_a_draining_server_does_not_finish_the_other_one_says() -> None:
    async with two() as (main, other, client):
        context = await spoken(main, client)
        main.away = True
        await main.send(ServerDraining(1000.0))
        async with asyncio.timeout(5):
            await client.away()
            await client.ready()
        assert client.elsewhere
        assert not client.idle
        await main.send(ErrorInfo("server_busy", "stopped", ends="context", context_id="a"))
        await other.begin(2, " there.")
        await rest(other, context)


async def test_a_server_without_room_is_asked_again_after_a_while() -> None:
    async with two(within_s=0.05) as (main, other, client):
        context = await spoken(main, client)
        gone(main)
        await other.begin(2, " there.")
        await other.send(ErrorInfo("server_busy", "full", ends="context", context_id="a"))
        await other.begin(3, " there.")
        await rest(other, context, no=3)


async def test_a_stalled_server_is_left_for_the_other_address() -> None:
    async with two() as (main, other, client):
        context = await spoken(main, client)
        assert client.reroute(context)
        assert (await main.expect("context.cancel"))["context_id"] == "a"
        await other.begin(2, " there.")
        await rest(other, context)


async def test_without_another_address_a_stalled_server_is_kept() -> None:
    main = Servers()
    async with server(main) as url, await SpeechClient.connect(url, resume=True) as client:
        context = await spoken(main, client)
        assert not client.reroute(context)
        assert client.connected


async def test_contexts_that_are_being_moved_end_with_the_client() -> None:
    async with two() as (main, _, client):
        context = await spoken(main, client)
        asked = asyncio.Event()

        async def revoice() -> tuple[str | None, str | None]:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        context.revoice = revoice
        gone(main)
        async with asyncio.timeout(5):
            await asked.wait()
        assert not client.idle
        await client.close()
        assert context.error is not None


def test_a_further_address_is_one() -> None:
    with pytest.raises(BadRequest):
        Resume(elsewhere=("http://h/v1/speech",))
