"""The whole line: our client, our server with this engine, another server of ours with its own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from qwen3tts_engine.base import Engine
from qwen3tts_engine.embedded.engine import EmbeddedEngine, EmbeddedSettings
from qwen3tts_engine.upstream.engine import UpstreamEngine
from qwen3tts_engine.upstream.settings import UpstreamSettings
from qwen3tts_server.dialects.http_errors import FieldRefused
from qwen3tts_server.dialects.openai.request import Models
from qwen3tts_server.run import RunningServer, running_server
from qwen3tts_wire.client import Alignment, Audio, Context, Done, SpeechClient, Started
from qwen3tts_wire.errors import EngineFailed, SpeechError, UnknownVoice
from tests.engine.fake_engine import FakeEngine
from tests.engine.upstream.peers import OmniPeer, RestPeer, Talk, sound_of
from tests.engine.upstream.speaking import change, is_said
from tests.engine.waiting import until

pytestmark = pytest.mark.network

KINDS = ["ws", "http"]
HUB_ID = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"


@dataclass
class Line:
    """All of it."""

    client: SpeechClient
    front: RunningServer
    engine: UpstreamEngine

    async def say(self, text: str, **options: Any) -> Context:
        context = await self.client.open(**options)
        await context.append(text)
        await context.end()
        return context


@contextlib.asynccontextmanager
async def in_front_of(url: str, **settings: Any) -> AsyncIterator[Line]:
    engine = UpstreamEngine(
        UpstreamSettings(url=url, **{"reconnect_s": 0.2, "languages": (), **settings})
    )
    async with (
        asyncio.timeout(60),
        running_server(engine) as front,
        await SpeechClient.connect(front.url) as client,
    ):
        yield Line(client, front, engine)


@contextlib.asynccontextmanager
async def line(engine: Engine, kind: str, **settings: Any) -> AsyncIterator[Line]:
    async with (
        running_server(engine) as back,
        in_front_of(f"{kind}://127.0.0.1:{back.port}", **settings) as made,
    ):
        yield made


async def heard(context: Context) -> bytes:
    return b"".join([event.pcm async for event in context if isinstance(event, Audio)])


async def first_sound(context: Context) -> Audio:
    async for event in context:
        if isinstance(event, Audio):
            return event
    raise AssertionError("no sound came")


class Checkpoint(FakeEngine):
    """One whose model has a hub id besides its name."""

    model = "Qwen3-TTS 1.7B CustomVoice"
    model_ids = (HUB_ID, HUB_ID.rpartition("/")[2])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_may_name_the_model_there_by_its_hub_id(kind: str) -> None:
    async with line(Checkpoint(), kind) as made:
        models = Models(made.front.service)
        assert models.own == Checkpoint.model
        for name in (Checkpoint.model, *Checkpoint.model_ids):
            assert models.find(name) == name
        with pytest.raises(FieldRefused):
            models.find("Qwen/Qwen3-TTS-12Hz-0.6B-Base")


TEXT = "Good morning, this is the line. It works today."


@pytest.mark.parametrize("kind", KINDS)
async def test_a_text_comes_back_as_its_sound_and_words(kind: str) -> None:
    async with line(FakeEngine(), kind) as made:
        context = await made.say(TEXT, voice="tone")
        events = [event async for event in context]
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Done)
    words = [word for event in events if isinstance(event, Alignment) for word in event.words]
    assert [word.text for word in words] == [each.strip(",.") for each in TEXT.split()]
    assert all(word.precision == "estimated" and word.precision_ms for word in words)
    assert all(TEXT[word.char_start : word.char_end] == word.text for word in words)
    assert all(one.end <= two.start for one, two in itertools.pairwise(words))
    sound = b"".join(event.pcm for event in events if isinstance(event, Audio))
    # A clause begins with at most 120 ms of its silence, and its pause of at most 300 ms follows.
    assert -2 * 48 * (120 + 300) <= len(sound_of(TEXT)) - len(sound) < 6 * 2400


@pytest.mark.parametrize("kind", KINDS)
async def test_the_session_says_what_cannot_be_done(kind: str) -> None:
    async with line(FakeEngine(), kind) as made:
        session = made.client.session
        assert session.engine == "upstream"
        assert session.features == ("estimated_alignment",)
        assert session.modes == ("clause",)
        assert {voice.id for voice in session.voices} >= {"tone", "tone-de", "stall"}
        context = await made.say("Hi.", mode="live", seed=3, lead_ms=200.0)
        events = [event async for event in context]
        assert isinstance(events[0], Started)
        assert events[0].mode == "clause"
        assert ("seed" in events[0].ignored) is (kind == "http")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cancel_frees_the_upstreams_slot_at_once(kind: str) -> None:
    back = FakeEngine(capacity=1)
    async with line(back, kind) as made:
        for _ in range(3):
            context = await made.say(TEXT, voice="stall")
            await first_sound(context)
            assert back.active == 1
            answer = await context.cancel(0)
            assert answer.confirmed
            assert (answer.text_heard, answer.text_remaining) == ("", TEXT)
            await until(lambda: back.active == 0)
        assert made.engine.load().busy == 0
        assert await heard(await made.say("Fine.", voice="tone"))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_that_vanishes_frees_the_upstreams_slot(kind: str) -> None:
    back = FakeEngine()
    async with line(back, kind) as made:
        context = await made.say(TEXT, voice="stall")
        await first_sound(context)
        made.client._connection.socket.transport.abort()
        await until(lambda: back.active == 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_who_cuts_in_learns_what_was_heard(kind: str) -> None:
    text = "Good morning, this is the line. It works today. And it goes on for a while."
    async with line(EmbeddedEngine(EmbeddedSettings(workers=2)), kind) as made:
        context = await made.say(text)
        await heard(context)
        words = context.words
        assert [word.text for word in words] == [each.strip(",.") for each in text.split()]
        for count in (1, 5, len(words)):
            last = words[count - 1]
            answer = context.heard(last.end)
            assert answer.words_heard == count
            assert answer.text_heard + answer.text_remaining == text
            assert answer.text_heard.rstrip(",. ").endswith(last.text)
        cancelled = await context.cancel(words[4].end)
        assert cancelled.confirmed
        assert cancelled.text_heard == "Good morning, this is the"
        assert cancelled.text_remaining == text.removeprefix(cancelled.text_heard)


async def test_the_estimated_words_lie_near_the_true_ones() -> None:
    text = "The quick brown fox jumps over the lazy dog, and then it sleeps for an hour."
    back = EmbeddedEngine(EmbeddedSettings(workers=2))
    async with running_server(back) as server, await SpeechClient.connect(server.url) as direct:
        true = await direct.open(voice="en-us+f3")
        await true.append(text)
        await true.end()
        await heard(true)
        url = f"ws://127.0.0.1:{server.port}"
        async with in_front_of(url) as made:
            told = await made.say(text, voice="en-us+f3")
            await heard(told)
    off = [abs(one.end - two.end) / 24 for one, two in zip(true.words, told.words, strict=True)]
    bounds = [word.precision_ms or 0.0 for word in told.words]
    # What is said of 95 of 100 words: of 16 one may lie beyond it.
    assert sum(one > two for one, two in zip(off, bounds, strict=True)) <= 1


@pytest.mark.parametrize("kind", KINDS)
async def test_an_upstream_that_dies_in_mid_utterance_fails_that_one_alone(kind: str) -> None:
    stack = contextlib.AsyncExitStack()
    async with stack:
        back = contextlib.AsyncExitStack()
        await stack.enter_async_context(back)
        server = await back.enter_async_context(running_server(FakeEngine()))
        made = await stack.enter_async_context(in_front_of(f"{kind}://127.0.0.1:{server.port}"))
        context = await made.say(TEXT, voice="stall")
        await first_sound(context)
        await back.aclose()
        with pytest.raises(EngineFailed) as caught:
            await heard(context)
        assert caught.value.retryable
        assert caught.value.remedy
        with pytest.raises(EngineFailed, match="does not answer"):
            await heard(await made.say(TEXT, voice="tone"))
        await stack.enter_async_context(running_server(FakeEngine(), port=server.port))
        assert is_said(await heard(await made.say("Fine.", voice="tone")), "Fine.")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("voice", "sound"), [("fail", False), ("fail-late", True)])
async def test_an_upstreams_failure_is_ours(kind: str, voice: str, sound: bool) -> None:
    back = FakeEngine()
    async with line(back, kind) as made:
        context = await made.say(TEXT, voice=voice)
        with pytest.raises(EngineFailed) as caught:
            await heard(context)
        assert caught.value.retryable
        assert (context.received > 0) is sound
        # What failed before any sound was asked for once more.
        assert len(back.requests) == (1 if sound else 2)
        assert await heard(await made.say("Fine.", voice="tone"))


@pytest.mark.parametrize("kind", KINDS)
async def test_an_unknown_voice_is_told_before_anything_is_asked(kind: str) -> None:
    back = FakeEngine()
    async with line(back, kind) as made:
        with pytest.raises(UnknownVoice, match="no-such"):
            await heard(await made.say("Hi.", voice="no-such"))
        assert not back.requests


@pytest.mark.parametrize("kind", KINDS)
async def test_many_contexts_of_one_call_are_each_said_whole(kind: str) -> None:
    async with line(FakeEngine(), kind) as made:
        texts = [f"Number {number}." for number in range(12)]
        contexts = [await made.say(text, voice="tone") for text in texts]
        spoken = await asyncio.gather(*map(heard, contexts))
        assert all(is_said(pcm, text) for pcm, text in zip(spoken, texts, strict=True))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_listener_who_does_not_read_stalls_nobody(kind: str) -> None:
    back = FakeEngine()
    async with line(back, kind) as made:
        slow = await made.say(TEXT * 4, voice="tone", window_ms=100.0)
        await first_sound(slow)
        assert await heard(await made.say("Fine.", voice="tone"))
        await until(lambda: back.active == 0)
        assert len(await heard(slow)) > 2 * 24_000 * 5


@pytest.mark.parametrize("kind", KINDS)
async def test_text_that_grows_is_spoken_by_clauses(kind: str) -> None:
    async with line(FakeEngine(), kind) as made:
        context = await made.client.open(voice="tone")
        for piece in ("Good mor", "ning, this is ", "the line. ", "It works", " today."):
            await context.append(piece)
        await context.end()
        assert len(await heard(context)) > 2 * 24_000
        assert context.text == TEXT
        assert context.done is not None
        assert context.done.clauses >= 2


async def hanging(talk: Talk) -> None:
    await talk.start()
    await talk.gone()


@pytest.mark.parametrize(
    ("peer", "settings"),
    [
        (OmniPeer(hanging), {"first_audio_s": 0.05}),
        (RestPeer(lambda call: call.gone()), {"first_audio_s": 0.05}),
        (RestPeer(lambda call: call.answer(429, b"")), {}),
        (RestPeer(lambda call: call.answer(404, b"<html>", "text/html")), {}),
        (RestPeer(lambda call: call.answer(401, b"")), {}),
        (RestPeer(lambda call: call.raw(b"x")), {"retries": 0}),
    ],
    ids=["silent-ws", "silent-http", "busy", "html", "key", "half-a-sample"],
)
async def test_a_fault_ends_its_context_and_no_other(
    peer: OmniPeer | RestPeer, settings: dict[str, Any]
) -> None:
    await peer.start()
    try:
        async with in_front_of(peer.url, **settings) as made:
            with pytest.raises(SpeechError) as caught:
                await heard(await made.say("Hi there."))
            assert caught.value.remedy
            change(made.engine, first_audio_s=20.0)
            assert is_said(await heard(await made.say("Hi there.")), "Hi there.")
    finally:
        await peer.stop()
