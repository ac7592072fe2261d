"""The embedded engine with the real library."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray

from qwen3tts_engine.base import SAMPLE_RATE, SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine, EmbeddedSettings
from qwen3tts_wire.errors import BadText, LimitExceeded
from qwen3tts_wire.heard import Word
from tests.engine.waiting import until

LONG = "This is one of many sentences, and it goes on for a while. " * 30


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine() -> AsyncIterator[EmbeddedEngine]:
    made = EmbeddedEngine(EmbeddedSettings(workers=2))
    await made.start()
    yield made
    await made.close()


async def heard(
    engine: EmbeddedEngine, request: SynthesisRequest
) -> tuple[NDArray[np.int16], list[Word]]:
    pcm = bytearray()
    words: list[Word] = []
    async for chunk in engine.synthesize(request):
        pcm += chunk.pcm
        words += chunk.words
    return np.frombuffer(bytes(pcm), np.int16), words


async def said(engine: EmbeddedEngine, text: str, voice: str | None = None) -> list[str]:
    _, words = await heard(engine, SynthesisRequest(text, voice=voice))
    return [word.text for word in words]


async def until_idle(engine: EmbeddedEngine, workers: int = 2) -> None:
    await until(lambda: engine.idle_workers >= workers)


def level_db(samples: NDArray[np.int16]) -> float:
    """Of full scale."""
    if samples.size == 0:
        return -120.0
    rms = np.sqrt(np.mean(samples.astype(np.float64) ** 2))
    return float(20 * np.log10(max(rms, 0.03) / 32768))


async def test_the_first_sound_is_the_librarys_first_60_ms(engine: EmbeddedEngine) -> None:
    chunks = engine.synthesize(SynthesisRequest("Hello there, how are you?"))
    first = await anext(chunks)
    await chunks.aclose()
    assert 0.055 < first.samples / SAMPLE_RATE <= 0.0601


async def test_between_a_words_end_and_the_next_words_start_it_is_quiet(
    engine: EmbeddedEngine,
) -> None:
    text = "Stop. Go on, please; wait! Now? Yes."
    samples, words = await heard(engine, SynthesisRequest(text))
    assert [word.text for word in words] == ["Stop", "Go", "on", "please", "wait", "Now", "Yes"]
    pauses = [(a.end, b.start) for a, b in itertools.pairwise(words) if b.start - a.end > 480]
    assert len(pauses) == 5  # all but "Go on"
    for end, start in pauses:
        assert level_db(samples[end + 60 : start - 60]) < -55
    for word in words:
        assert level_db(samples[word.start : word.end]) > -40


async def test_the_words_of_a_sentence_fill_its_sound(engine: EmbeddedEngine) -> None:
    samples, words = await heard(engine, SynthesisRequest("We are all here now.", final=True))
    assert words[0].start == 0
    assert sum(word.end - word.start for word in words) > 0.95 * len(samples)
    assert len(samples) - words[-1].end < 0.01 * SAMPLE_RATE


async def test_the_pause_after_a_sentence_is_left_out_where_nothing_follows(
    engine: EmbeddedEngine,
) -> None:
    sentence, _ = await heard(engine, SynthesisRequest("It works."))
    clause, _ = await heard(engine, SynthesisRequest("It works,"))
    bare, _ = await heard(engine, SynthesisRequest("It works"))
    last, _ = await heard(engine, SynthesisRequest("It works.", final=True))
    pause_s = [(len(one) - len(last)) / SAMPLE_RATE for one in (sentence, clause, bare)]
    assert pause_s[0] == pytest.approx(0.3, abs=0.05)
    assert pause_s[1] == pytest.approx(0.15, abs=0.05)
    assert pause_s[2] == pytest.approx(0.0, abs=0.02)


async def test_positions_count_code_points_not_bytes(engine: EmbeddedEngine) -> None:
    text = "naïve café, 😀 Zürich: 日本 end"
    _, words = await heard(engine, SynthesisRequest(text))
    by_text = {word.text: word for word in words}
    for expected in ("naïve", "café", "Zürich", "end"):
        word = by_text[expected]
        assert word.char_start == text.index(expected)
        assert word.char_end == word.char_start + len(expected)
    assert "😀" in by_text


async def test_markup_is_read_out_as_text(engine: EmbeddedEngine) -> None:
    words = await said(engine, "a < b and <break time='3s'/> c & d")
    assert words[:1] == ["a"]
    assert {"b", "break", "time", "c", "d"} <= set(words)


async def test_phoneme_input_is_read_out_as_text(engine: EmbeddedEngine) -> None:
    plain, _ = await heard(engine, SynthesisRequest("say now"))
    phonemes, words = await heard(engine, SynthesisRequest("say [[h@l'oU]] now"))
    assert len(phonemes) > 2 * len(plain)
    assert {"h", "@", "now"} <= {word.text for word in words}


async def test_a_number_and_a_hyphenated_word_are_one_word_each(engine: EmbeddedEngine) -> None:
    words = await said(engine, "Pay 3.14 and 1,234,567 for a well-known 2026 thing, don't you?")
    assert words == [
        *("Pay", "3.14", "and", "1,234,567", "for", "a", "well-known", "2026", "thing", "don't"),
        "you",
    ]


@pytest.mark.parametrize(
    ("voice", "text"),
    [
        ("de", "Grüße aus Köln, heute wird es schön."),
        ("fr-fr", "Où êtes-vous allé cet été ?"),
        ("hi", "नमस्ते, आप कैसे हैं?"),
        ("ar", "مرحبا بكم في المدينة"),
        ("cmn", "你好，今天天气很好。"),  # noqa: RUF001
        ("ja", "こんにちは、げんきですか。"),
        ("ru", "Привет, как дела?"),
        ("th", "สวัสดีครับ"),
    ],
)
async def test_the_words_of_any_script_cover_its_letters(
    engine: EmbeddedEngine, voice: str, text: str
) -> None:
    _, words = await heard(engine, SynthesisRequest(text, voice=voice))
    assert words
    told = {at for word in words for at in range(word.char_start, word.char_end)}
    assert {at for at, char in enumerate(text) if char.isalnum()} <= told
    assert all(one.char_end <= two.char_start for one, two in itertools.pairwise(words))


@pytest.mark.parametrize("text", ["a\x00b", "\x01140P", "half \ud83d", "\x1b[31m"])
async def test_what_is_not_text_is_refused_and_the_engine_goes_on(
    engine: EmbeddedEngine, text: str
) -> None:
    with pytest.raises(BadText, match="position"):
        await heard(engine, SynthesisRequest(text))
    assert await said(engine, "fine") == ["fine"]


async def test_a_huge_text_is_refused_by_its_length(engine: EmbeddedEngine) -> None:
    with pytest.raises(LimitExceeded, match="5001 characters"):
        await heard(engine, SynthesisRequest("x" * 5001))


@pytest.mark.parametrize("text", ["9" * 2000, "x" * 3000, "😀" * 300, "日" * 1000, "a\u0301" * 900])
async def test_a_text_of_one_kind_is_said_whole_in_bounded_pieces(
    engine: EmbeddedEngine, text: str
) -> None:
    most = 0.0
    count = 0
    async for chunk in engine.synthesize(SynthesisRequest(text, speed=2.5)):
        count += len(chunk.words)
        most = max(most, chunk.samples / SAMPLE_RATE)
    assert count
    assert most < 0.5


async def test_a_cancelled_request_frees_its_worker_at_once() -> None:
    engine = EmbeddedEngine(EmbeddedSettings(workers=1))
    await engine.start()
    try:
        for _ in range(20):
            chunks = engine.synthesize(SynthesisRequest(LONG))
            await anext(chunks)
            await chunks.aclose()
        await until_idle(engine, 1)
        assert engine.replaced_workers == 0
        assert await said(engine, "fine") == ["fine"]
    finally:
        await engine.close()


async def test_a_request_cancelled_while_it_waits_leaves_the_queue() -> None:
    engine = EmbeddedEngine(EmbeddedSettings(workers=1))
    await engine.start()
    try:
        requests = [SynthesisRequest(LONG) for _ in range(6)]
        tasks = [asyncio.create_task(heard(engine, request)) for request in requests]
        for _ in range(3):
            await asyncio.sleep(0)
        assert engine.waiting == 5
        for task in tasks[1:]:
            task.cancel()
        await asyncio.gather(*tasks[1:], return_exceptions=True)
        assert engine.waiting == 0
        samples, _ = await tasks[0]
        assert len(samples) > 60 * SAMPLE_RATE
        await until_idle(engine, 1)
    finally:
        await engine.close()


async def test_a_long_text_does_not_keep_a_short_one_waiting() -> None:
    engine = EmbeddedEngine(EmbeddedSettings(workers=1))
    await engine.start()
    try:
        order: list[str] = []

        async def speak(name: str, text: str) -> None:
            async for _ in engine.synthesize(SynthesisRequest(text)):
                pass
            order.append(name)

        async with asyncio.TaskGroup() as group:
            group.create_task(speak("long", LONG))
            group.create_task(speak("long too", LONG))
            await asyncio.sleep(0)
            for number in range(5):
                group.create_task(speak(f"short {number}", "A short one."))
        assert order[:5] == [f"short {number}" for number in range(5)]
    finally:
        await engine.close()


async def test_what_an_unread_request_holds_is_bounded(engine: EmbeddedEngine) -> None:
    stalled = [engine.synthesize(SynthesisRequest(LONG)) for _ in range(10)]
    for chunks in stalled:
        await anext(chunks)
    await until_idle(engine)
    for chunks in stalled:
        await chunks.aclose()
    assert await said(engine, "fine") == ["fine"]
