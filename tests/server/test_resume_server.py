"""A connection to the real server that is cut somewhere, and a client that goes on."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import pytest

from qwen3tts_server.run import running_server
from qwen3tts_wire.client import Context, Resume, SpeechClient
from qwen3tts_wire.errors import ConnectionLost
from qwen3tts_wire.events import Audio, Done, Resumed
from qwen3tts_wire.formats import FORMATS, AudioFormat
from tests.engine.fake_engine import CHAR_SAMPLES, FakeEngine, tone
from tests.server.relay import Relay, relay

pytestmark = pytest.mark.network

TEXT = "One two three, four five six. Seven eight nine ten! Eleven twelve."
WHOLE = b"".join(map(tone, TEXT))
QUICK = Resume(first_wait_s=0.005, max_wait_s=0.05)


@contextlib.asynccontextmanager
async def talking(
    cut_after: int | None = None, **options: object
) -> AsyncIterator[tuple[Relay, SpeechClient]]:
    async with running_server(FakeEngine(live=True)) as server, relay(server.port) as way:
        way.cut_after = cut_after
        url = f"ws://127.0.0.1:{way.port}/v1/speech"
        async with await SpeechClient.connect(url, resume=QUICK) as client:
            yield way, client


async def said(context: Context) -> tuple[bytes, list[Resumed]]:
    """The sound of a context, and where it was resumed."""
    sound, resumed = b"", []
    async for event in context:
        if isinstance(event, Audio):
            assert event.offset * 2 == len(sound)
            sound += event.pcm
        elif isinstance(event, Resumed):
            resumed.append(event)
    assert isinstance(context.done, Done)
    assert context.done.samples * 2 == len(sound)
    return sound, resumed


# What comes before the sound is some 4 KB; a second of sound has 48,000 bytes.
@pytest.mark.parametrize("cut_after", [5_000, *range(9_000, 150_000, 11_777)])
@pytest.mark.parametrize("mode", ["clause", "live"])
async def test_what_is_heard_is_the_whole_text_wherever_the_connection_was_cut(
    cut_after: int, mode: str
) -> None:
    async with talking(cut_after) as (way, client):
        context = await client.open(mode=mode)
        for word in re.findall(r"\S+\s*", TEXT):
            await context.append(word)
        await context.end()
        sound, resumed = await said(context)
        assert way.connections == 2
        words = [each.text for each in context.words]
        assert words == TEXT.split()
        for word in context.words:
            heard = sound[2 * word.start : 2 * word.end]
            whole = b"".join(map(tone, word.text))
            # One may have been cut, in its second half.
            cut = [each for each in resumed if each.offset == word.end]
            assert heard == whole or (cut and 2 * len(heard) >= len(whole))
            assert whole.startswith(heard)
        for at in resumed:
            (first,) = [each for each in context.words if each.start >= at.offset][:1]
            assert TEXT[at.char : first.char_start].strip() == ""
        assert context.heard(len(sound) // 2).text_heard == TEXT
        assert len(sound) <= len(WHOLE) + 2 * CHAR_SAMPLES * 6


@pytest.mark.parametrize("form", FORMATS[1:], ids=lambda f: f"{f.encoding}-{f.sample_rate}")
async def test_it_goes_on_in_every_format(form: AudioFormat) -> None:
    async with talking(25_000) as (way, client):
        context = await client.open(format=form)
        await context.append(TEXT)
        await context.end()
        heard = 0
        async for event in context:
            if isinstance(event, Audio):
                assert event.offset == heard
                heard += len(event.pcm) // form.bytes_per_sample
        assert way.connections == 2
        assert [each.text for each in context.words] == TEXT.split()
        assert context.heard(heard).text_heard == TEXT
        # 50 ms for each code point; what is said again is less than half a word.
        assert heard <= (len(TEXT) + 6) * form.sample_rate // 20


async def test_text_that_is_still_being_written_goes_on_in_the_next_context() -> None:
    async with talking() as (way, client):
        context = await client.open(mode="live", window_ms=20_000.0)
        await context.append("One two three ")
        while not context.received:
            await anext(context)
        way.cut()
        await context.append("four five ")
        await context.flush()
        await context.append("six.")
        await context.end()
        await said(context)
        assert [each.text for each in context.words] == [
            "One",
            "two",
            "three",
            "four",
            "five",
            "six.",
        ]


async def test_many_contexts_of_a_connection_go_on_together() -> None:
    async with talking(60_000) as (way, client):
        contexts = [await client.open() for _ in range(5)]
        for context in contexts:
            await context.append(TEXT)
            await context.end()
        for context, (sound, _) in zip(
            contexts, await asyncio.gather(*map(said, contexts)), strict=True
        ):
            assert [each.text for each in context.words] == TEXT.split()
            assert context.heard(len(sound) // 2).text_remaining == ""
        assert way.connections == 2


async def test_an_engine_of_unknown_words_is_not_guessed_at() -> None:
    engine = FakeEngine()
    engine.alignment = "none"
    async with running_server(engine) as server, relay(server.port) as way:
        url = f"ws://127.0.0.1:{way.port}/v1/speech"
        async with await SpeechClient.connect(url, resume=QUICK) as client:
            assert "alignment" not in client.session.features
            context = await client.open(voice="stall")
            await context.append("Hello there. And more.")
            while not context.received:
                await anext(context)
            context.words.clear()
            way.cut()
            with pytest.raises(ConnectionLost):
                await said(context)
        engine.release()
