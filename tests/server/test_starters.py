"""Openings from memory in a context: played immediately, then everything as without them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qwen3tts_engine.base import Engine, PcmChunk, SynthesisRequest
from qwen3tts_engine.starter.engine import StarterEngine, StarterSettings
from qwen3tts_server.metrics import ServerMetrics
from qwen3tts_server.run import running_server
from qwen3tts_server.service import Service
from qwen3tts_server.settings import ServerSettings, VoiceSettings
from qwen3tts_server.speech_stream import SpeechStream
from qwen3tts_server.utterance import AudioPiece
from qwen3tts_server.voices.catalogue import VoiceCatalogue
from qwen3tts_wire.client import Audio, SpeechClient
from qwen3tts_wire.formats import CLAUSE_START, AudioFormat, AudioFrame
from qwen3tts_wire.messages import ContextDone, ContextOpen
from tests.engine.fake_engine import CHAR_SAMPLES, FakeEngine, tone
from tests.engine.waiting import until
from tests.fakes import settle
from tests.server.driver import Driver
from tests.server.openai.caller import calling
from tests.server.voices.world import Cloner, wav

PHRASES = ("Sure,", "One moment, please.", "Yes.", "Very well")
TEXT = "Sure, I can look that up. It takes a moment, please wait."
SURE = len("Sure,") * CHAR_SAMPLES


async def started(inner: FakeEngine | None = None, **settings: Any) -> StarterEngine:
    settings.setdefault("phrases", PHRASES)
    engine = StarterEngine(inner or FakeEngine(), StarterSettings(**settings))
    await engine.start()
    return engine


def engine(inner: FakeEngine | None = None, **settings: Any) -> StarterEngine:
    return asyncio.run(started(inner, **settings))


async def said(engine: Engine, parts: list[str], **order: Any) -> tuple[SpeechStream, bytes]:
    opened = ContextOpen(context_id="a", context_no=1, **order)
    async with SpeechStream(engine, opened, ServerSettings()) as speaking:
        for part in parts:
            speaking.append(part)
        speaking.end()
        sound = b"".join([item.data async for item in speaking if isinstance(item, AudioPiece)])
    return speaking, sound


def tones(sound: bytes) -> list[bytes]:
    """The sound of each code point, white space apart."""
    size = 2 * CHAR_SAMPLES
    parts = [sound[begin : begin + size] for begin in range(0, len(sound), size)]
    return [part for part in parts if any(part)]


# --- the same speech ---

words = st.sampled_from(
    ["I", "can,", "wait.", "please", "One", "moment,", "**bold**", "12", "a", "Ü"]
)
# No line ends: where one falls into a piece, a comma is said, and where pieces part there, none.
spaces = st.sampled_from([" ", "  ", "\t", " \t"])
sentences = st.lists(st.tuples(words, spaces), max_size=12).map(
    lambda pairs: "".join(word + space for word, space in pairs)
)
openings = st.sampled_from(
    ["", "Sure, ", "sure, ", "*Sure,* ", "Sure", "Yes.\n", "Very well ", "One "]
)


@given(openings, sentences, st.lists(st.integers(0, 60), max_size=8), st.booleans())
@example("Sure, ", "", [1, 2, 3, 4, 5, 6], True)
@settings(max_examples=40)
def test_words_and_their_places_are_the_same_with_and_without_memory(
    opening: str, rest: str, places: list[int], live: bool
) -> None:
    text = opening + rest
    ends = sorted({*(place for place in places if place < len(text)), len(text)})
    parts = [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    async def both() -> None:
        memory = await started(FakeEngine(live=live))
        one, sound = await said(memory, parts)
        other, plain = await said(memory.inner, parts)
        assert one.utterance.text == other.utterance.text == text
        assert [(each.text, each.char_start, each.char_end) for each in one.utterance.words] == [
            (each.text, each.char_start, each.char_end) for each in other.utterance.words
        ]
        if not opening.startswith("s"):  # a tone of its own for a small letter
            assert tones(sound) == tones(plain)
        for each in one.utterance.words:
            begin = 2 * each.start
            here = sound[begin : begin + 2 * CHAR_SAMPLES]
            assert here == tone("S" if each.text == "sure," else each.text[0])

    asyncio.run(both())


async def test_an_opening_is_said_before_the_engine_has_begun() -> None:
    memory = await started(FakeEngine(capacity=1))
    inner = memory.inner
    assert isinstance(inner, FakeEngine)
    begun = len(inner.requests)
    async with contextlib.AsyncExitStack() as stack:
        # Somebody else has the only place.
        other = await stack.enter_async_context(
            contextlib.aclosing(memory.inner.synthesize(SynthesisRequest("Hello there.", "step")))
        )
        inner.step()
        await anext(other)
        order = ContextOpen(context_id="a", context_no=1)
        speaking = await stack.enter_async_context(SpeechStream(memory, order, ServerSettings()))
        speaking.append("Sure, I can")
        heard = 0
        while heard < SURE:
            item = await anext(speaking)
            heard += len(item.data) // 2 if isinstance(item, AudioPiece) else 0
        assert speaking.utterance.from_cache
        speaking.flush()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [each.text for each in inner.requests[begun:]] == ["Hello there.", "I can"]
        assert inner.requests[-1].continued


@pytest.mark.parametrize(
    "order", [{"seed": 1}, {"instructions": "warm"}, {"speed": 1.1}, {"voice": "tone-de"}]
)
async def test_what_would_sound_otherwise_is_made_whole(order: dict[str, Any]) -> None:
    memory = await started()
    speaking, _ = await said(memory, [TEXT], **order)
    assert not speaking.utterance.from_cache
    assert "starter" not in speaking.utterance.marks
    assert (memory.hits, memory.misses) == (0, 1)


async def test_names_of_voices_are_resolved_before() -> None:
    service = Service(await started(voices=("tone",)), ServerSettings())
    await service.start()
    for voice in ("tone", None):
        order = ContextOpen(context_id="a", context_no=1, voice=voice)
        async with service.speaking(order, "openai") as speaking:
            speaking.append(TEXT)
            speaking.end()
            await anext(speaking)
            assert speaking.utterance.from_cache
    await service.close()


async def test_a_dual_text_begins_with_a_short_piece_and_is_remembered() -> None:
    memory = await started(phrases=(), dual_segment=True, remember=True)
    inner = memory.inner
    assert isinstance(inner, FakeEngine)
    for _ in range(2):
        await said(memory, ["Well, I would be glad to look that up, if you can wait a moment."])
    assert [each.text for each in inner.requests] == [
        "Well,",
        "I would be glad to look that up, if you can wait a moment.",
        "I would be glad to look that up, if you can wait a moment.",
    ]
    assert (memory.hits, memory.misses) == (1, 1)


# --- the protocol ---


async def chunks_of(memory: StarterEngine, request: SynthesisRequest) -> list[PcmChunk]:
    return [chunk async for chunk in memory.synthesize(request)]


def say_all(line: Driver, memory: StarterEngine, no: int) -> None:
    """The engine says the clause that it was given."""
    for chunk in asyncio.run(chunks_of(memory, line.speaking[no])):
        line.produce(no, chunk.pcm, *chunk.words, end=chunk.end, marks=chunk.marks)
    line.finish(no)


def test_an_opening_is_a_clause_and_what_follows_another() -> None:
    memory = engine()
    line = Driver(memory)  # type: ignore[arg-type]
    no = line.open()
    line.say(no, "Sure, I can look that up", end=True)
    say_all(line, memory, no)
    assert line.speaking[no].text == "I can look that up"
    say_all(line, memory, no)
    line.read()
    done = line.one(ContextDone)
    assert done.clauses == 2
    assert done.marks["starter"] > 0
    starts = [
        each.offset
        for each in line.events
        if isinstance(each, AudioFrame) and each.flags & CLAUSE_START
    ]
    assert starts == [0, SURE]


def test_a_text_that_may_become_an_opening_waits_no_longer_than_a_pause() -> None:
    memory = engine()
    line = Driver(memory, pause_flush_ms=250.0)  # type: ignore[arg-type]
    no = line.open()
    line.say(no, "Sure,")
    assert not line.speaking
    line.pass_time(0.3)
    assert line.speaking[no].text == "Sure,"
    say_all(line, memory, no)
    line.say(no, " I can.", end=True)
    assert line.speaking[no].text == "I can."
    assert memory.hits == 1


@pytest.mark.parametrize(
    ("played", "heard", "remaining"),
    [
        (0, "", "Sure, I can look that up."),
        (SURE // 4, "", "Sure, I can look that up."),
        (3 * SURE // 4, "Sure, ", "I can look that up."),
        (SURE + CHAR_SAMPLES, "Sure, I ", "can look that up."),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_a_cancel_within_an_opening_tells_what_was_heard(
    played: int, heard: str, remaining: str, whole: bool
) -> None:
    memory = engine()
    line = Driver(memory)  # type: ignore[arg-type]
    no = line.open()
    line.say(no, "Sure, I can look that up.", end=True)
    say_all(line, memory, no)
    if whole or played > SURE:
        say_all(line, memory, no)
    line.read()
    answer = line.cancel(no, played)
    assert (answer.text_heard.strip(), answer.text_remaining.strip()) == (
        heard.strip(),
        remaining,
    )
    assert not line.speaking


# --- over a real socket ---


@contextlib.asynccontextmanager
async def talking(memory: StarterEngine) -> AsyncIterator[SpeechClient]:
    async with (
        asyncio.timeout(20),
        running_server(memory, settings=ServerSettings()) as server,
        await SpeechClient.connect(server.url) as client,
    ):
        yield client


@pytest.mark.network
async def test_a_client_hears_the_opening_while_the_rest_is_not_made() -> None:
    memory = StarterEngine(FakeEngine(), StarterSettings(phrases=PHRASES, voices=("step",)))
    inner = memory.inner
    assert isinstance(inner, FakeEngine)
    inner.step(1000)  # for the preparation
    async with talking(memory) as client:
        while not inner._steps.locked():
            await inner._steps.acquire()
        context = await client.open(voice="step", format=AudioFormat())
        await context.append(TEXT)
        heard = 0
        async for event in context:
            heard += len(event.pcm) // 2 if isinstance(event, Audio) else 0
            if heard >= SURE:
                break
        assert heard == SURE
        assert memory.hits == 1
        cancelled = await context.cancel(SURE)
        assert cancelled.text_heard.strip() == "Sure,"
        assert cancelled.sent == SURE
        while inner.active:
            await settle()


# --- where it shows ---


@pytest.mark.parametrize("stream", [True, False])
async def test_a_rest_answer_says_whether_it_began_from_memory(stream: bool) -> None:
    memory = await started(voices=("tone",))
    async with calling(memory) as caller:
        form: dict[str, Any] = {"response_format": "pcm", "stream": stream}
        hit = await caller.speak(input=TEXT, voice="tone", **form)
        miss = await caller.speak(input="Hello there.", voice="tone", **form)
    assert (hit.status, miss.status) == (200, 200)
    assert hit.headers["x-cache-starter"] == "true"
    assert miss.headers["x-cache-starter"] == "false"
    assert hit.body.startswith(b"".join(map(tone, "Sure,")) + tone("I"))


async def test_the_figures_tell_hits_and_what_is_kept() -> None:
    memory = await started()
    await said(memory, [TEXT])
    await said(memory, ["Hello there."])
    text = ServerMetrics(memory).exposition("text/plain", ready=True)[0].decode()
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if "_starter_" in line)
    assert float(figures["qwen3tts_starter_hits_total"]) == 1
    assert float(figures["qwen3tts_starter_misses_total"]) == 1
    assert float(figures["qwen3tts_starter_entries"]) == 2 * len(PHRASES)
    assert float(figures["qwen3tts_starter_bytes"]) == memory.bytes > 0


# --- voices by the names that the catalogue gives them ---


async def catalogue_of(names: tuple[str, ...], store: Path) -> tuple[VoiceCatalogue, StarterEngine]:
    starters = StarterEngine(Cloner(), StarterSettings(phrases=("Sure,",), voices=names))
    voices = VoiceCatalogue(starters, VoiceSettings(store=str(store)))
    await voices.start()
    return voices, starters


async def hits(voices: VoiceCatalogue, starters: StarterEngine, voice: str) -> int:
    """How many of two texts that begin with the opening are said from memory."""
    before = starters.hits
    await said(voices, ["Sure, ", "I can."], voice=voice)
    await said(voices, ["Sure,"], voice=voice)
    return starters.hits - before


async def test_openings_are_kept_for_voices_by_any_of_their_names(tmp_path: Path) -> None:
    voices, starters = await catalogue_of(("nova", "Töne", "Vivian"), tmp_path)
    assert not starters.notes
    for name in ("nova", "Töne", "tone-de", "vivian"):
        assert await hits(voices, starters, name) == 2
    await voices.close()


async def test_openings_of_an_uploaded_voice_are_kept_from_the_upload_on(tmp_path: Path) -> None:
    voices, starters = await catalogue_of(("clone:Anna", "tone"), tmp_path)
    (note,) = starters.notes
    assert "clone:Anna" in note
    assert await hits(voices, starters, "tone") == 2
    stored = await voices.add("anna", wav(), ref_text="Words.")
    await until(lambda: starters.entries == 4)
    for name in ("Anna", "clone:Anna", stored.voice_id):
        assert await hits(voices, starters, name) == 2
    await voices.add("Berta", wav(1.5), ref_text="Words.")
    await settle()
    assert starters.entries == 4
    size = starters.bytes
    other = await voices.add("Anna", wav(1.2), ref_text="Words.", replace=True)
    assert other.voice_id != stored.voice_id
    await until(lambda: starters.entries == 4 and not voices._openings._preparing)
    assert starters.bytes == size
    assert await hits(voices, starters, "Anna") == 2
    await voices.remove("Anna")
    assert starters.entries == 2
    await voices.add("Anna", wav(), ref_text="Words.")
    await until(lambda: starters.entries == 4)
    await voices.close()
    again, others = await catalogue_of(("clone:Anna",), tmp_path)
    assert not others.notes
    assert await hits(again, others, "anna") == 2
    await again.close()


async def test_a_server_that_stops_prepares_no_more(tmp_path: Path) -> None:
    voices, starters = await catalogue_of(("clone:Anna",), tmp_path)
    cloner = starters.inner
    assert isinstance(cloner, Cloner)
    cloner.stepping = True
    await voices.add("Anna", wav())
    await settle()
    await asyncio.wait_for(voices.close(), 10)
    assert cloner.active == 0
