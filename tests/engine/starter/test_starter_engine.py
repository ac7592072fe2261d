"""An engine with a memory of openings: what it says from memory, and what not."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from qwen3tts_engine.base import ClonesVoices, PcmChunk, SynthesisRequest
from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.starter.engine import (
    StarterEngine,
    StarterSettings,
    openings_of,
    spoken_form,
    starters_of,
)
from qwen3tts_engine.starter.memory import SpeechStyle
from qwen3tts_engine.wrapped import WrappedEngine, cloning, load_of
from qwen3tts_text.growing import LiveText
from qwen3tts_wire.errors import EngineFailed, EngineUnavailable, UnknownVoice
from qwen3tts_wire.messages import Sampling
from tests.engine.fake_engine import VOICES, CloningEngine, FakeEngine, tone

SURE = SynthesisRequest("Sure,", "tone")


async def made(inner: FakeEngine | None = None, **settings: Any) -> StarterEngine:
    settings.setdefault("phrases", ("Sure,", "Yes."))
    engine = StarterEngine(inner or FakeEngine(), StarterSettings(**settings))
    await engine.start()
    return engine


async def spoken(engine: StarterEngine, request: SynthesisRequest) -> list[PcmChunk]:
    return [chunk async for chunk in engine.synthesize(request)]


def inner_of(engine: StarterEngine) -> FakeEngine:
    assert isinstance(engine.inner, FakeEngine)
    return engine.inner


def sound(chunks: Sequence[PcmChunk]) -> bytes:
    return b"".join(each.pcm for each in chunks)


async def test_an_opening_is_said_from_memory_as_the_engine_would_say_it() -> None:
    engine = await made()
    asked = len(inner_of(engine).requests)
    by_hand = [chunk async for chunk in engine.inner.synthesize(SURE)]
    from_memory = await spoken(engine, SURE)
    assert [replace(each, marks={}) for each in from_memory] == by_hand
    assert "starter" in from_memory[0].marks
    assert not from_memory[1].marks
    assert len(inner_of(engine).requests) == asked + 1, "only the one by hand"
    assert (engine.hits, engine.misses) == (1, 0)


async def test_words_are_told_as_the_text_has_them() -> None:
    engine = await made()
    request = SynthesisRequest("sure,", offsets=(2, 3, 4, 5, 6, 9))
    (word,) = [word for each in await spoken(engine, request) for word in each.words]
    assert (word.text, word.char_start, word.char_end) == ("sure,", 2, 7)


@pytest.mark.parametrize(
    "changed",
    [
        {"text": "Sure!"},
        {"text": "SURE,"},
        {"voice": "tone-de"},
        {"language": "en"},
        {"speed": 1.2},
        {"instructions": "cheerful"},
        {"sampling": Sampling(temperature=0.5)},
        {"seed": 0},
        {"more": LiveText()},
    ],
)
async def test_what_would_sound_otherwise_is_a_miss(changed: dict[str, Any]) -> None:
    engine = await made()
    if "more" in changed:
        changed["more"].close()
        changed = {"more": LiveText()}
    request = replace(SURE, **changed)
    async with aclosing(engine.synthesize(request)) as chunks:
        if request.more is None:
            assert "starter" not in (await anext(chunks)).marks
    assert (engine.hits, engine.misses) == (0, 1)


@pytest.mark.parametrize(
    "changed",
    [
        {"voice": None},
        {"final": True},
        {"instructions": ""},
        {"sampling": Sampling()},
        {"initial_codec_chunk_frames": 3},
        {"text": "sure,"},
    ],
)
async def test_what_sounds_the_same_is_a_hit(changed: dict[str, Any]) -> None:
    engine = await made()
    await spoken(engine, replace(SURE, **changed))
    assert (engine.hits, engine.misses) == (1, 0)


async def test_live_text_that_has_ended_is_whole() -> None:
    engine = await made(FakeEngine(live=True))
    more = LiveText()
    more.end()
    await spoken(engine, replace(SURE, more=more))
    assert engine.hits == 1


async def test_what_goes_on_from_other_sound_is_not_counted() -> None:
    engine = await made()
    await spoken(engine, replace(SURE, continued=True))
    assert (engine.hits, engine.misses) == (0, 0)


async def test_languages_and_voices_are_prepared_as_asked() -> None:
    engine = await made(voices=("tone", "tone-de"), languages=("de",), phrases=("Gut,",))
    assert engine.entries == 2 * 2 * 2
    for voice, language in (("tone", None), ("tone", "de"), ("tone-de", "DE")):
        await spoken(engine, SynthesisRequest("Gut,", voice, language))
    assert engine.hits == 3
    # Without a voice, a language chooses one: that is another request.
    await spoken(engine, SynthesisRequest("Gut,", None, "de"))
    assert (engine.hits, engine.misses) == (3, 1)


async def test_an_opening_that_cannot_be_prepared_is_a_note() -> None:
    engine = await made(voices=("tone", "fail", "nobody"))
    assert len(engine.notes) == 4
    assert all("Sure," in note or "Yes." in note for note in engine.notes)
    assert engine.entries == 4
    await spoken(engine, SURE)
    assert engine.hits == 1


async def test_an_engine_that_breaks_or_hangs_is_a_note() -> None:
    engine = await made(voices=("crash", "stall"), phrases=("Yes.",), prepare_timeout_s=0.01)
    assert engine.entries == 0
    assert any("broke" in note for note in engine.notes)
    assert any("within 0.01 s" in note for note in engine.notes)
    assert inner_of(engine).active == 0


async def test_what_has_no_end_is_a_note() -> None:
    inner = FakeEngine()
    inner.cap_chars = 2
    engine = await made(inner, phrases=("Sure,",))
    assert engine.entries == 0
    assert "no end" in engine.notes[0]


async def test_openings_without_room_are_a_note() -> None:
    engine = await made(max_bytes=40_000)
    assert 0 < engine.entries < 4
    assert engine.bytes <= 40_000
    assert all("max_bytes=40000" in note for note in engine.notes)
    assert engine.notes


async def test_the_start_tells_how_far_it_is() -> None:
    told: list[tuple[str, int, int]] = []
    engine = StarterEngine(
        FakeEngine(),
        StarterSettings(phrases=("**Sure,**", " Sure, ", "Yes.")),
        progress=lambda *what: told.append(what),
    )
    await engine.start()
    assert told == [("preparing openings", done, 4) for done in range(1, 5)]
    await engine.start()
    assert len(told) == 4, "it was started already"


async def test_an_engine_that_cannot_start_says_so() -> None:
    engine = StarterEngine(FakeEngine(available=False), StarterSettings(phrases=("Yes.",)))
    with pytest.raises(EngineUnavailable):
        await engine.start()
    assert engine.entries == 0


async def test_a_closed_engine_says_nothing_and_another_start_prepares_again() -> None:
    engine = await made()
    await engine.close()
    assert (engine.entries, engine.bytes) == (0, 0)
    assert engine.openings(SpeechStyle()) is None
    with pytest.raises(EngineUnavailable):
        await spoken(engine, SURE)
    await engine.start()
    await spoken(engine, SURE)
    assert engine.hits == 1


class ClosedMeanwhile(FakeEngine):
    """One whose owner closes it while it says the first thing."""

    owner: StarterEngine | None = None

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        if self.owner is not None:
            owner, self.owner = self.owner, None
            await owner.close()
        async for chunk in super().synthesize(request):
            yield chunk


async def test_a_close_while_it_starts_wins() -> None:
    inner = ClosedMeanwhile()
    engine = StarterEngine(inner, StarterSettings(phrases=("Yes.",)))
    inner.owner = engine
    await engine.start()
    with pytest.raises(EngineUnavailable):
        await spoken(engine, SynthesisRequest("Yes."))


async def test_a_listener_is_known_to_have_the_opening_where_the_engine_asks() -> None:
    inner = FakeEngine()
    inner.options = frozenset({"lead"})
    engine = await made(inner)
    lead = PlayoutLead()
    chunks = await spoken(engine, replace(SURE, lead=lead))
    assert lead.made_samples == sum(each.samples for each in chunks) > 0


# --- what it remembers ---


async def test_first_clauses_are_remembered_where_that_is_wanted() -> None:
    engine = await made(remember=True, phrases=())
    request = SynthesisRequest("Hello there.", offsets=tuple(range(3, 16)))
    first = await spoken(engine, request)
    assert engine.entries == 1
    again = await spoken(engine, request)
    assert sound(again) == sound(first) == b"".join(map(tone, "Hello there."))
    words = [[word for each in chunks for word in each.words] for chunks in (first, again)]
    assert words[0] == words[1]
    assert [word.char_start for word in words[0]] == [3, 9]
    assert (engine.hits, engine.misses) == (1, 1)
    assert openings_of(engine, SpeechStyle("tone")) is not None


@pytest.mark.parametrize(
    "request_",
    [
        SynthesisRequest("x" * 41),
        SynthesisRequest("Hello.", continued=True),
    ],
)
async def test_long_or_later_clauses_are_not_remembered(request_: SynthesisRequest) -> None:
    engine = await made(remember=True, phrases=())
    await spoken(engine, request_)
    assert engine.entries == 0


async def test_what_was_not_read_to_its_end_is_not_remembered() -> None:
    engine = await made(remember=True, phrases=())
    async with aclosing(engine.synthesize(SynthesisRequest("Hello."))) as chunks:
        await anext(chunks)
    with pytest.raises(EngineFailed):
        await spoken(engine, SynthesisRequest("Hello.", "fail-late"))
    assert engine.entries == 0
    assert inner_of(engine).active == 0


async def test_what_was_begun_before_a_close_is_not_remembered_after_it() -> None:
    engine = await made(remember=True, phrases=())
    async with aclosing(engine.synthesize(SynthesisRequest("Hello."))) as chunks:
        await anext(chunks)
        await engine.close()
        await engine.start()
        async for _ in chunks:
            pass
    assert engine.entries == 0


async def test_a_seed_or_a_manner_is_remembered_by_itself() -> None:
    engine = await made(remember=True, phrases=())
    for seed in (1, 2, 1, None):
        await spoken(engine, SynthesisRequest("Hello.", seed=seed))
    assert (engine.hits, engine.misses, engine.entries) == (1, 3, 3)


async def test_remembering_stays_within_its_bytes() -> None:
    engine = await made(remember=True, max_bytes=60_000, phrases=("Hi.",))
    for number in range(12):
        await spoken(engine, SynthesisRequest(f"Hello {number}."))
    assert engine.bytes <= 60_000
    await spoken(engine, SynthesisRequest("Hi."))
    assert engine.hits == 1, "what was prepared stays"


# --- around it ---


class Catalogue(WrappedEngine):
    """An outer engine that gives voices more names."""

    def resolve(self, voice: str | None, language: str | None = None) -> str | None:
        if voice == "nobody":
            raise UnknownVoice("No voice 'nobody'.", remedy="Try 'Tones'.")
        return {"alloy": "tone"}.get(voice or "", voice)


async def test_openings_are_found_by_any_name_of_a_voice() -> None:
    engine = await made(voices=("tone",))
    outer = Catalogue(engine)
    assert starters_of(outer) is engine
    for voice in ("alloy", "tone", None):
        phrases = openings_of(outer, SpeechStyle(voice))
        assert phrases is not None
        assert phrases.texts == {"sure,", "yes."}
    assert openings_of(outer, SpeechStyle("nobody")) is None
    assert openings_of(outer, SpeechStyle("tone-de")) is None
    assert openings_of(outer, SpeechStyle("tone", seed=1)) is None


async def test_an_engine_without_a_memory_has_no_openings() -> None:
    assert starters_of(FakeEngine()) is None
    assert openings_of(Catalogue(FakeEngine()), SpeechStyle()) is None


async def test_openings_are_found_behind_any_wrapper() -> None:
    outer = WrappedEngine(await made())
    assert openings_of(outer, SpeechStyle()) is not None


async def test_it_passes_on_what_the_inner_engine_is() -> None:
    engine = await made(CloningEngine())
    assert isinstance(cloning(engine), ClonesVoices)
    assert cloning(await made()) is None
    assert load_of(engine) is None
    assert (engine.name, engine.model, list(engine.voices())) == ("fake", "tones", list(VOICES))


@pytest.mark.parametrize(
    ("phrase", "spoken_as"),
    [
        ("  Sure,\n", "Sure,"),
        ("**One** moment,  please.", "One moment, please."),
        ("Yes. I will look. One moment.", "Yes. I will look. One moment."),
        ("x, " * 60, ("x, " * 60).strip()),
    ],
)
def test_a_phrase_is_taken_as_it_is_spoken(phrase: str, spoken_as: str) -> None:
    assert spoken_form(phrase) == spoken_as
