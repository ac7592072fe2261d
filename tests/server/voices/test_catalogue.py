"""A voice by all its names."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from qwen3tts_engine.base import SynthesisRequest, Voice
from qwen3tts_server.dialects.encoding import encode_whole
from qwen3tts_server.settings import VoiceSettings
from qwen3tts_server.voices.catalogue import VoiceCatalogue
from qwen3tts_server.voices.fetch import Fetcher
from qwen3tts_server.voices.names import OPENAI_NAMES, QWEN_NAMES
from qwen3tts_server.voices.reference import seconds_of
from qwen3tts_server.voices.stored import VoiceExists
from qwen3tts_wire.errors import (
    BadRequest,
    EngineUnavailable,
    LimitExceeded,
    ServerBusy,
    UnknownVoice,
)
from tests.engine.fake_engine import FakeEngine
from tests.engine.waiting import until
from tests.server.voices.world import Cloner, catalogue, said, wav


@pytest.mark.parametrize("name", ["tone-de", "TONE-DE", " tone_de ", "Töne", "tÖNE"])
def test_a_voice_is_known_by_its_id_and_its_name_in_any_case(name: str) -> None:
    assert catalogue().resolve(name) == "tone-de"


@pytest.mark.parametrize("name", [None, "", "default", "Default", " "])
def test_no_voice_in_particular_is_the_engines_choice(name: str | None) -> None:
    assert catalogue().resolve(name) is None


@pytest.mark.parametrize("name", sorted(OPENAI_NAMES))
def test_openai_names_are_voices_of_the_engine(name: str) -> None:
    voices = catalogue()
    found = voices.resolve(name.upper())
    assert found in [each.id for each in voices.inner.voices()]
    voices.check(name, "en")


def test_openai_names_are_what_the_settings_say() -> None:
    voices = catalogue(openai_voices={"Alloy": "töne", "echo": "echo", "onyx": "unlisted"})
    assert voices.resolve("alloy") == "tone-de"
    assert voices.resolve("echo") == catalogue().resolve("echo")
    with pytest.raises(UnknownVoice):
        voices.resolve("onyx")


@pytest.mark.parametrize("default", ["alloy", "nova", "default", None])
async def test_names_that_mean_each_other_come_to_an_end(default: str | None) -> None:
    around = {"alloy": "echo", "echo": "alloy", "nova": "default", "onyx": "alloy"}
    for engine in (Cloner(), Cloner(built_in=())):
        voices = catalogue(engine=engine, default=default, openai_voices=around)
        for brought in (False, True):
            if brought:
                await voices.add("anna", wav())
            found = {voices.resolve(name) for name in (*around, None, "default")}
            assert found <= {*engine.made, *(each.id for each in engine.built_in), None}
            assert (None in found) <= (not brought or bool(engine.built_in))


@pytest.mark.parametrize("name", [*sorted(QWEN_NAMES), "Vivian", "Uncle Fu", "ONO-ANNA"])
def test_the_speakers_of_qwen3_tts_are_voices_of_an_engine_without_a_checkpoint(name: str) -> None:
    voices = catalogue()
    found = voices.resolve(name)
    assert found in [each.id for each in voices.inner.voices()]
    assert voices.resolve(name) == found
    voices.check(name, "en")
    assert catalogue(openai_voices={name: "töne"}).resolve(name) == "tone-de"


def test_a_checkpoint_has_its_own_speakers_and_refuses_others() -> None:
    class CustomVoice(Cloner):
        task = "custom_voice"

    engine = CustomVoice(built_in=(Voice("serena", "Serena", "mul", "female"),))
    assert catalogue(engine=engine).resolve("Serena") == "serena"
    with pytest.raises(UnknownVoice):
        catalogue(engine=engine).resolve("Vivian")
    assert catalogue(engine=engine, openai_voices={"Vivian": "serena"}).resolve("vivian") == (
        "serena"
    )


def test_choices_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qwen3tts_server.voices.catalogue.SPREAD_MOST", 2)
    voices = catalogue()
    for _ in range(2):
        assert len({voices.resolve("alloy", language) for language in ("en", "de", "fr")}) == 2


def test_a_voice_of_the_engine_goes_before_openais_of_that_name() -> None:
    engine = Cloner(built_in=(Voice("a", "A", "en"), Voice("nova", "Nova", "de")))
    assert catalogue(engine=engine).resolve("Nova") == "nova"


def test_a_default_is_named_by_the_settings() -> None:
    voices = catalogue(default="Töne")
    assert voices.resolve(None) == "tone-de"
    assert voices.resolve(None, "en") is None
    assert voices.voices()[0].id == "tone-de"


def test_who_asks_for_nobody_is_told_of_near_ones() -> None:
    with pytest.raises(UnknownVoice) as told:
        catalogue().check("tone-ed", None)
    assert "tone-de" in told.value.remedy


async def test_who_is_unknown_neither_speaks_nor_has_modes() -> None:
    voices = catalogue()
    assert voices.modes("unlisted") == ("clause",)
    assert voices.bound("unlisted") == "unlisted"
    assert voices.bound("Töne") == "tone-de"
    with pytest.raises(UnknownVoice):
        await said(voices, "unlisted")
    with pytest.raises(BadRequest, match="Neither"):
        await voices.load_voice()


async def test_an_engine_that_does_not_start_leaves_nothing_running() -> None:
    engine = Cloner()
    engine.available = False
    with pytest.raises(EngineUnavailable):
        await catalogue(engine=engine).start()
    assert len(asyncio.all_tasks()) == 1


async def test_every_name_speaks() -> None:
    voices = catalogue()
    await voices.start()
    for name in ("Tones", "alloy", "default", None):
        assert await said(voices, name)
        assert voices.modes(name)
    await voices.close()


async def test_what_was_uploaded_speaks_under_all_its_names() -> None:
    voices = catalogue()
    await voices.start()
    kept = await voices.add("Anna Maria", wav(2.0), ref_text="Hello.", consent="c", description="d")
    assert (kept.name, kept.seconds, kept.ref_text, kept.consent) == (
        "Anna Maria",
        2.0,
        "Hello.",
        "c",
    )
    await voices.refresh()
    assert voices.stored() == (kept,)
    engine = voices.inner
    assert isinstance(engine, Cloner)
    for name in ("anna maria", "clone:Anna Maria", "ANNA_MARIA", kept.voice_id, kept.content):
        assert voices.resolve(name) == kept.voice_id
        voices.check(name, "de")
        assert await said(voices, name)
        assert engine.spoken_with[-1] == kept.voice_id
        assert (await voices.load_voice(voice_id=name)).voice_id == kept.voice_id
    with pytest.raises(UnknownVoice, match="speaks"):
        voices.check("Anna Maria", "xx")
    assert voices.voices()[-1].id == "clone:Anna Maria"
    assert engine.computed == 1
    await voices.close()


async def test_an_engine_without_voices_of_its_own_speaks_with_the_first_uploaded() -> None:
    voices = catalogue(engine=Cloner(built_in=()))
    await voices.start()
    with pytest.raises(UnknownVoice):
        voices.resolve("unlisted")
    first = await voices.add("one", wav(1.0))
    await voices.add("two", wav(1.5))
    assert voices.resolve(None) == voices.resolve("alloy") == first.voice_id
    await voices.close()


async def test_a_voice_that_the_engine_has_dropped_is_made_again() -> None:
    voices = catalogue()
    await voices.start()
    await voices.add("anna", wav())
    engine = voices.inner
    assert isinstance(engine, Cloner)
    engine.made.clear()
    voices.check("anna", "en")
    with pytest.raises(UnknownVoice, match="speaks"):
        voices.check("anna", "xx")
    assert await said(voices, "anna")
    assert engine.computed == 2
    await voices.close()


async def test_an_engine_that_cannot_clone_says_so() -> None:
    voices = VoiceCatalogue(FakeEngine())
    for work in (
        voices.add("anna", wav()),
        voices.load_voice(ref_audio=wav()),
        voices.from_reference("UklGRg=="),
    ):
        with pytest.raises(BadRequest, match="makes no voices"):
            await work


@pytest.mark.parametrize("name", ["tone", "Töne", "alloy", "a/b", ""])
async def test_names_that_are_taken_or_unusable_are_refused(name: str) -> None:
    with pytest.raises(BadRequest):
        await catalogue().add(name, wav())


async def test_uploads_are_bounded() -> None:
    voices = catalogue(max_voices=1, max_bytes=40_000, max_seconds=2.0)
    with pytest.raises(LimitExceeded, match="bytes"):
        await voices.add("anna", wav(3.0))
    with pytest.raises(LimitExceeded, match="2 s"):
        await voices.add("anna", wav(2.1))
    with pytest.raises(LimitExceeded, match="ref_text"):
        await voices.add("anna", wav(), ref_text="a" * 5000)
    with pytest.raises(LimitExceeded, match="consent"):
        await voices.add("anna", wav(), consent="a" * 5000)
    with pytest.raises(BadRequest, match="empty"):
        await voices.add("anna", b"")
    with pytest.raises(BadRequest, match="no audio"):
        await voices.add("anna", b"not a sound")
    with pytest.raises(BadRequest, match="half"):
        await voices.add("anna", wav(), ref_text="\ud800")
    assert voices.stored() == ()
    await voices.add("anna", wav())
    with pytest.raises(LimitExceeded, match="uploaded"):
        await voices.add("ben", wav())
    assert len(voices.stored()) == 1


async def test_a_name_is_replaced_only_on_request() -> None:
    voices = catalogue()
    old = await voices.add("anna", wav(1.0))
    with pytest.raises(VoiceExists):
        await voices.add("ANNA", wav(1.5))
    new = await voices.add("Anna", wav(1.5), replace=True)
    assert voices.stored() == (new,)
    assert voices.resolve("anna") == new.voice_id != old.voice_id


async def test_a_voice_that_the_engine_has_learnt_meanwhile_speaks(tmp_path: Path) -> None:
    voices = catalogue(tmp_path)
    await voices.start()
    engine = voices.inner
    assert isinstance(engine, Cloner)
    sound = voices.synthesize(SynthesisRequest("Hi", voice="clone:new"))
    engine.made["clone:new"] = None
    assert (await anext(sound)).pcm
    await sound.aclose()
    await voices.close()


async def test_an_engine_that_cannot_forget_keeps_what_it_has() -> None:
    class Forgetless(Cloner):
        forget_voice = None  # type: ignore[assignment]

    voices = catalogue(engine=Forgetless())
    await voices.start()
    kept = await voices.add("anna", wav())
    await voices.remove("anna")
    await voices.close()
    assert kept.voice_id in voices.inner.made  # type: ignore[attr-defined]


async def test_what_is_deleted_is_unknown() -> None:
    voices = catalogue()
    kept = await voices.add("anna", wav())
    assert await voices.remove("clone:ANNA") == kept
    assert voices.stored() == ()
    for name in ("anna", "clone:anna", kept.content):
        with pytest.raises(UnknownVoice):
            voices.check(name, None)
    with pytest.raises(UnknownVoice):
        await voices.remove("anna")
    with pytest.raises(UnknownVoice):
        await voices.remove("tone")


async def test_one_recording_may_have_two_names() -> None:
    voices = catalogue()
    one = await voices.add("anna", wav())
    two = await voices.add("ben", wav())
    assert one.voice_id == two.voice_id
    await voices.remove("anna")
    voices.check("ben", None)
    assert voices.resolve(one.content) == two.voice_id


async def test_a_reference_gives_the_id_of_its_voice() -> None:
    voices = catalogue()
    voice = await voices.from_reference(None, audio=wav(), ref_text="Hello.")
    assert voice == await voices.from_reference(None, audio=wav(), ref_text=" Hello. ")
    assert voice != await voices.from_reference(None, audio=wav(), x_vector_only=True)
    assert voice != await voices.from_reference(None, audio=wav(1.1), ref_text="Hello.")
    brought = await voices.bring(None, audio=wav(), ref_text="Hello.")
    assert (brought.voice_id, brought.cached, brought.ref_text) == (voice, True, "Hello.")
    voices.check(voice, "en")
    for ref in (None, "", "  ", "ftp://x/y", "data:,x", "?"):
        with pytest.raises(BadRequest):
            await voices.from_reference(ref)


async def test_a_reference_may_be_a_recording_or_where_it_is(tmp_path: Path) -> None:
    async def nowhere(*_: object) -> list[str]:
        return ["10.0.0.1"]

    (tmp_path / "anna.wav").write_bytes(wav())
    settings = VoiceSettings(file_folders=(str(tmp_path),), fetch=True)
    voices = VoiceCatalogue(Cloner(), settings, fetcher=Fetcher(settings, resolve=nowhere))
    text = base64.b64encode(wav()).decode()
    found = [
        await voices.from_reference(ref, ref_text="Hello.")
        for ref in (text, f"data:audio/wav;base64,{text}", f"file://{tmp_path}/anna.wav")
    ]
    assert len(set(found)) == 1
    for ref in ("https://example.com/anna.wav", f"file://{tmp_path}/ben.wav", "ftp://a/b"):
        with pytest.raises(BadRequest):
            await voices.from_reference(ref)


def test_the_manual_has_the_settings_as_they_are() -> None:
    manual = Path(__file__).parents[3] / "docs" / "voices.md"
    block = manual.read_text("utf-8").partition("```yaml")[2].partition("```")[0]
    told = yaml.safe_load(block)["voices"]
    there = {each.name: getattr(VoiceSettings(), each.name) for each in fields(VoiceSettings)}
    assert set(told) == set(there)
    examples = {"store", "openai_voices"}
    for name in set(there) - examples:
        value = list(there[name]) if isinstance(there[name], tuple) else there[name]
        assert told[name] == value, name


async def test_so_many_voices_are_made_at_once_and_so_many_wait() -> None:
    engine = Cloner()
    engine.gate.clear()
    voices = catalogue(engine=engine, max_loads=1, max_waiting=1)
    loads = [
        asyncio.create_task(voices.from_reference(None, audio=wav(1 + index / 10)))
        for index in range(5)
    ]
    await until(lambda: sum(each.done() for each in loads) == 3)
    engine.gate.set()
    results = await asyncio.gather(*loads, return_exceptions=True)
    assert sum(isinstance(each, ServerBusy) for each in results) == 3


async def test_who_asks_for_one_voice_at_once_shares_the_work() -> None:
    engine = Cloner()
    engine.gate.clear()
    voices = catalogue(engine=engine)
    loads = [asyncio.create_task(voices.from_reference(None, audio=wav())) for _ in range(8)]
    library = voices._library
    await until(lambda: [count for _, count in library._turns._locks.values()] == [8])
    loads.pop().cancel()
    engine.gate.set()
    assert len(set(await asyncio.gather(*loads))) == 1
    assert engine.computed == 1
    assert not library._turns._locks


async def test_closing_the_sound_of_an_uploaded_voice_frees_the_engine_at_once() -> None:
    engine = Cloner()
    engine.stepping = True
    voices = catalogue(engine=engine)
    await voices.start()
    await voices.add("anna", wav())
    engine.step()
    sound = voices.synthesize(SynthesisRequest("Hello you", voice="anna"))
    await anext(sound)
    assert engine.active == 1
    await sound.aclose()
    assert engine.active == 0
    await voices.close()


async def test_so_many_voices_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qwen3tts_server.voices.library.LOADED_MOST", 2)
    voices = catalogue()
    first, *_, last = [
        await voices.from_reference(None, audio=wav(1 + each / 10)) for each in range(4)
    ]
    assert len(voices._library._here) == len(voices._library._contents) == 2
    assert (await voices.load_voice(voice_id=last)).cached
    assert (await voices.load_voice(voice_id=first)).cached  # The engine still has it.


def test_the_length_of_a_recording_is_found_in_any_format() -> None:
    for form in ("flac", "mp3", "opus"):
        sound = encode_whole(form, 24_000, bytes(48_000))
        found = seconds_of(sound, 60.0)
        assert found == pytest.approx(1.0, abs=0.15)
        with pytest.raises(LimitExceeded, match="more than"):
            seconds_of(sound, 0.5)
    assert seconds_of(b"no sound", 60.0) is None
    assert seconds_of(wav()[:20], 60.0) is None
