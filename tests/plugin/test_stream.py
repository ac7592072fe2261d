from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from mr_qwen3tts.reply import MAX_CHARS
from mr_qwen3tts.stream import FORMATS, TtsStream
from qwen3tts_server.run import running_server
from qwen3tts_speech.link import SpeechLink, VoiceOptions
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.errors import BadRequest, ConnectionLost, EngineFailed
from qwen3tts_wire.events import Audio
from tests.engine.fake_engine import FakeEngine
from tests.fakes import FakeClock, settle
from tests.speech.fakes import FakeClient, FakeContext


class Link:
    """The one fake client, and what was said of it."""

    def __init__(self) -> None:
        self.there = FakeClient()
        self.dead: list[object] = []

    async def client(self) -> FakeClient:
        return self.there

    async def lease(self) -> FakeClient:
        return self.there

    def release(self, client: object) -> None:
        """Nobody counts."""

    def stalled(self, client: object) -> None:
        self.dead.append(client)


class Service:
    """`TtsStream` on a fake server, in the words of a plugin that takes its sound."""

    def __init__(self) -> None:
        self.link = Link()
        self.clock = FakeClock()

    def stream(self, words: str = "Good morning.", output_format: str = "ulaw_8000") -> TtsStream:
        async def choose(client: SpeechClient) -> VoiceOptions:
            assert cast(Any, client) is self.link.there
            return VoiceOptions(voice="en", language="English", extra={"speed": 1.1})

        link = cast(SpeechLink, self.link)
        return TtsStream(link, words, choose, output_format, clock=self.clock)

    @property
    def context(self) -> FakeContext:
        return self.link.there.contexts[-1]

    async def begun(self) -> FakeContext:
        await settle()
        return self.context


def sound(context: FakeContext, data: bytes) -> None:
    context._events.put_nowait(Audio(data, 0))


@pytest.fixture
def service() -> Service:
    return Service()


async def all_of(stream: TtsStream) -> list[bytes]:
    return [chunk async for chunk in stream]


async def test_the_words_come_as_frames_of_a_phone(service: Service) -> None:
    taking = asyncio.create_task(all_of(service.stream()))
    context = await service.begun()
    sound(context, b"\x01" * 100)
    sound(context, b"\x02" * 300)
    context.done()
    assert await taking == [
        b"\x01" * 100 + b"\x02" * 60,
        b"\x02" * 160,
        b"\x02" * 80 + b"\xff" * 80,
    ]
    assert context.text == "Good morning."
    assert context.ended
    assert context.cancelled_at == []
    assert service.link.there.options == [
        {
            "voice": "en",
            "language": "English",
            "format": FORMATS["ulaw_8000"].audio,
            "speed": 1.1,
        }
    ]


async def test_awaiting_it_first_is_the_same(service: Service) -> None:
    stream = service.stream()
    assert await stream is stream


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("ulaw_8000", [160, 160]),
        ("alaw_8000", [160, 160]),
        ("pcm_8000", [200]),
        ("pcm_16000", [200]),
        ("pcm_24000", [200]),
    ],
)
async def test_every_format_has_chunks_of_20_ms(
    service: Service, name: str, sizes: list[int]
) -> None:
    taking = asyncio.create_task(all_of(service.stream(output_format=name)))
    context = await service.begun()
    sound(context, bytes(200))
    context.done()
    assert [len(chunk) for chunk in await taking] == sizes
    form = FORMATS[name]
    assert form.chunk_bytes == form.audio.samples(20) * form.audio.bytes_per_sample


async def test_an_unknown_format_is_refused_with_those_there_are(service: Service) -> None:
    with pytest.raises(BadRequest, match=r"mp3_44100.*ulaw_8000, alaw_8000, pcm_8000"):
        service.stream(output_format="mp3_44100")


@pytest.mark.parametrize("words", ["", "  \n", "\ud83d"])
async def test_nothing_to_say_is_no_sound_and_no_work(service: Service, words: str) -> None:
    assert await all_of(service.stream(words)) == []
    assert service.link.there.contexts == []


async def test_half_an_emoji_does_not_reach_the_server(service: Service) -> None:
    taking = asyncio.create_task(all_of(service.stream("Hi \ud83d you")))
    context = await service.begun()
    context.done()
    await taking
    assert context.text == "Hi  you"


async def test_a_long_text_is_said_in_parts_without_a_gap(service: Service) -> None:
    text = "And so on. " * (MAX_CHARS // 11 + 10)
    taking = asyncio.create_task(all_of(service.stream(text)))
    context = await service.begun()
    sound(context, bytes(100))
    context.done()
    await settle()
    first, second = service.link.there.contexts
    sound(second, bytes(60))
    second.done()
    assert await taking == [bytes(160)]
    assert first.text + second.text == text


async def test_leaving_the_loop_stops_the_work(service: Service) -> None:
    async def take_one() -> bytes:
        async for chunk in service.stream():
            return chunk
        return b""

    taking = asyncio.create_task(take_one())
    context = await service.begun()
    sound(context, bytes(480))
    assert await taking == bytes(160)
    await settle()
    assert context.cancelled_at == [None]


async def test_a_cancel_stops_the_work(service: Service) -> None:
    taking = asyncio.create_task(all_of(service.stream()))
    context = await service.begun()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert context.cancelled_at == [None]


async def test_an_error_of_the_server_comes_out(service: Service) -> None:
    taking = asyncio.create_task(all_of(service.stream()))
    (await service.begun()).fail(EngineFailed("It broke."))
    with pytest.raises(EngineFailed):
        await taking


async def test_without_a_server_it_says_so(service: Service) -> None:
    service.link.there.closed = True
    with pytest.raises(ConnectionLost):
        await all_of(service.stream())


async def test_a_server_that_never_answers_is_given_up(service: Service) -> None:
    taking = asyncio.create_task(all_of(service.stream()))
    context = await service.begun()
    await service.clock.advance(3.9)
    assert not taking.done()
    await service.clock.advance(0.2)
    with pytest.raises(ConnectionLost, match="not answered for 4 s"):
        await taking
    assert service.link.dead == [service.link.there]
    assert context.cancelled_at == [None]


async def test_a_listener_who_takes_his_time_is_no_dead_server(service: Service) -> None:
    chunks: AsyncIterator[bytes] = aiter(service.stream())
    first = asyncio.ensure_future(anext(chunks))
    context = await service.begun()
    sound(context, bytes(160))
    await first
    await service.clock.advance(60)
    sound(context, bytes(160))
    context.done()
    assert [chunk async for chunk in chunks] == [bytes(160)]


async def test_each_loop_says_the_words_anew(service: Service) -> None:
    stream = service.stream()
    for _ in range(2):
        taking = asyncio.create_task(all_of(stream))
        (await service.begun()).done()
        assert await taking == []
    assert [each.text for each in service.link.there.contexts] == ["Good morning."] * 2


# --- with a real server


async def any_voice(client: SpeechClient) -> VoiceOptions:
    return VoiceOptions()


@pytest.mark.network
@pytest.mark.parametrize("name", FORMATS)
async def test_a_server_speaks_in_every_format(name: str) -> None:
    async with asyncio.timeout(20), running_server(FakeEngine()) as server:
        link = SpeechLink(server.url)
        chunks = await all_of(TtsStream(link, "Good morning to you.", any_voice, name))
        await link.close()
    form = FORMATS[name]
    assert {len(chunk) for chunk in chunks[:-1]} == {form.chunk_bytes}
    assert len(chunks[-1]) <= form.chunk_bytes
    assert len(chunks) > 10


@pytest.mark.network
async def test_the_engine_stops_when_the_loop_is_left() -> None:
    engine = FakeEngine()
    async with asyncio.timeout(20), running_server(engine) as server:
        link = SpeechLink(server.url)
        async for _ in TtsStream(link, "And so on. " * 500, any_voice, "ulaw_8000"):
            break
        while engine.active:
            await settle()
        await link.close()
