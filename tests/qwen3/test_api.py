from __future__ import annotations

import re
import threading
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_engine.qwen3.api import TEXT_MAX, Qwen3TTS
from qwen3tts_engine.qwen3.api_speech import Speech, SpeechOptions
from qwen3tts_engine.text_plan import PlanMode
from qwen3tts_wire.errors import (
    BadRequest,
    BadText,
    EngineFailed,
    EngineUnavailable,
    LimitExceeded,
    UnknownVoice,
)
from qwen3tts_wire.messages import Sampling
from tests.engine.fake_engine import CHAR_SAMPLES, FakeEngine
from tests.fakes import settle
from tests.qwen3.engine.engine_world import GREEDY, assert_same, recording

TEXT = "Good morning."
LONG = "Good morning. This is the line."
DOC = Path(__file__).parents[2] / "docs" / "engine.md"


@pytest.fixture(scope="module")
def tts(tiny: dict[str, Path]) -> Iterator[Qwen3TTS]:
    with Qwen3TTS.load(str(tiny["custom_voice"])) as loaded:
        loaded.warmup()
        yield loaded


def test_a_text_is_streamed_as_floats_with_their_rate(tts: Qwen3TTS) -> None:
    pieces = list(tts.stream(TEXT, voice="ryan", language="en"))
    assert {rate for _, rate in pieces} == {24_000} == {tts.sample_rate}
    assert "CustomVoice" in tts.model
    assert "ryan" in [each.id for each in tts.voices()]
    assert all(pcm.dtype == np.float32 and len(pcm) for pcm, _ in pieces)
    assert max(np.abs(pcm).max() for pcm, _ in pieces) <= 1.0
    # The first is one frame, so that it comes early, less the silence before it.
    assert len(pieces[0][0]) <= 1920


def test_what_is_streamed_is_what_is_generated(tts: Qwen3TTS) -> None:
    streamed = np.concatenate([pcm for pcm, _ in tts.stream(LONG, sampling=GREEDY)])
    whole, rate = tts.generate(LONG, sampling=GREEDY)
    assert rate == 24_000
    assert_same(streamed, whole)


def test_pieces_are_as_long_as_asked_for(tts: Qwen3TTS) -> None:
    pieces = [pcm for pcm, _ in tts.stream(TEXT, sampling=GREEDY, frames_per_emission=4)]
    assert {len(pcm) for pcm in pieces[:-1]} == {4 * 1920}
    assert 0 < len(pieces[-1]) <= 4 * 1920
    assert_same(np.concatenate(pieces), tts.generate(TEXT, sampling=GREEDY)[0])
    with pytest.raises(BadRequest, match="frames_per_emission"):
        tts.stream(TEXT, frames_per_emission=0)


def test_a_piece_may_be_longer_than_a_first_chunk(tts: Qwen3TTS) -> None:
    pieces = list(tts.stream(TEXT, sampling=GREEDY, frames_per_emission=1000))
    assert_same(pieces[0][0], tts.generate(TEXT, sampling=GREEDY)[0])
    assert len(pieces) == 1


@pytest.mark.parametrize("mode", ["auto", "clause", "live"])
def test_a_text_in_pieces_sounds_as_the_whole_text(tts: Qwen3TTS, mode: Any) -> None:
    whole, _ = tts.generate(LONG, mode=mode, sampling=GREEDY)
    pieces, _ = tts.generate(iter(re.findall(".{1,3}", LONG)), mode=mode, sampling=GREEDY)
    assert_same(pieces, whole)


def test_nothing_to_say_is_no_sound(tts: Qwen3TTS) -> None:
    assert list(tts.stream(iter(["...", " "]))) == []
    assert tts.generate(iter([]))[0].shape == (0,)


@pytest.mark.parametrize("text", ["", " \n", "Good \ud83d morning.", "Good\x00"])
def test_a_whole_text_that_cannot_be_said_is_refused_immediately(tts: Qwen3TTS, text: str) -> None:
    with pytest.raises(BadText) as caught:
        tts.stream(text)
    assert caught.value.remedy


@pytest.mark.parametrize("mode", ["auto", "clause", "live"])
@pytest.mark.parametrize(
    "text", ["<br>", "...", "\U0001f600", "\U0001f44d\U0001f3fd \u2764\ufe0f!"]
)
def test_a_whole_text_with_nothing_to_say_is_no_sound(
    tts: Qwen3TTS, mode: PlanMode, text: str
) -> None:
    assert tts.generate(text, mode=mode)[0].shape == (0,)


def test_a_whole_text_has_a_bound(tts: Qwen3TTS) -> None:
    with pytest.raises(LimitExceeded, match=str(TEXT_MAX)):
        tts.stream("a" * (TEXT_MAX + 1))


@pytest.mark.parametrize("text", [None, 12, b"Good morning."])
def test_what_is_no_text_is_refused_immediately(tts: Qwen3TTS, text: Any) -> None:
    with pytest.raises(BadRequest, match=type(text).__name__):
        tts.stream(text)


@pytest.mark.parametrize("piece", [None, 12, b"morning."])
def test_a_piece_that_is_no_text_is_reported(tts: Qwen3TTS, piece: Any) -> None:
    with pytest.raises(BadRequest, match=type(piece).__name__):
        tts.generate(iter(["Good ", piece, "morning."]))


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_text_that_ends_its_thread_is_reported(tts: Qwen3TTS, end: type[BaseException]) -> None:
    def words() -> Iterator[str]:
        yield "Good morning. "
        raise end

    with pytest.raises(BadRequest, match=end.__name__):
        tts.generate(words())


@pytest.mark.parametrize("frames", [0, 1.5, "2", True])
def test_emissions_are_of_whole_frames(tts: Qwen3TTS, frames: Any) -> None:
    with pytest.raises(BadRequest, match="frames_per_emission"):
        tts.stream(TEXT, frames_per_emission=frames)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("voice", 5, "a str, a LoadedVoice"),
        ("language", 5, "a str"),
        ("instructions", b"calm", "a str"),
        ("seed", "a", "whole number"),
        ("seed", True, "whole number"),
        ("seed", 1.5, "whole number"),
        ("sampling", {"temperature": 1}, "Sampling"),
        ("limits", 5, "GenerationLimits"),
        ("limits", {"silence_s": 1}, "GenerationLimits"),
    ],
)
def test_an_argument_of_another_type_is_named(
    tts: Qwen3TTS, name: str, value: Any, expected: str
) -> None:
    with pytest.raises(BadRequest, match=expected) as caught:
        tts.stream(TEXT, **{name: value})
    assert caught.value.message.startswith(f"{name}=")
    assert caught.value.remedy


@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k", "repetition_penalty"])
@pytest.mark.parametrize("value", ["a", True, float("nan"), -1, 1e9, [1]])
def test_sampling_of_another_type_or_out_of_range_is_named(
    tts: Qwen3TTS, name: str, value: Any
) -> None:
    with pytest.raises(BadRequest, match=f"{name}=") as caught:
        tts.stream(TEXT, sampling=Sampling(**{name: value}))
    expected = r"Expected: (number|integer), [\d.]+ to [\d.]+, or None\."
    assert re.fullmatch(expected, caught.value.remedy)


@pytest.mark.parametrize("name", ["dtype", "codec_dtype"])
def test_float16_on_a_cpu_is_refused(tiny: dict[str, Path], name: str) -> None:
    half: dict[str, Any] = {name: "float16"}
    with pytest.raises(EngineUnavailable, match="float16 on a CPU") as caught:
        Qwen3TTS.load(str(tiny["custom_voice"]), device="cpu", **half)
    assert "bfloat16" in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("subtalker_dosample", "no"),
        ("subtalker_dosample", 1),
        ("subtalker_top_k", 1.5),
        ("subtalker_top_p", 2),
        ("subtalker_temperature", "a"),
        ("max_new_tokens", "a"),
        ("max_new_tokens", 1),
    ],
)
def test_an_official_argument_of_another_type_is_named(
    tts: Qwen3TTS, name: str, value: Any
) -> None:
    with pytest.raises(BadRequest, match=f"{name}="):
        tts.stream(TEXT, **{name: value})


def test_the_code_predictor_has_sampling_of_its_own(tts: Qwen3TTS) -> None:
    greedy, _ = tts.generate(TEXT, sampling=GREEDY, seed=1)
    same, _ = tts.generate(TEXT, sampling=GREEDY, subtalker_dosample=False, seed=1)
    assert_same(same, greedy)
    likeliest, _ = tts.generate(TEXT, sampling=GREEDY, subtalker_dosample=True, subtalker_top_k=1)
    assert_same(likeliest, greedy)
    drawn, _ = tts.generate(TEXT, sampling=GREEDY, subtalker_dosample=True, seed=1)
    assert drawn.shape != greedy.shape or not np.array_equal(drawn, greedy)


def test_several_texts_are_said_in_one_call(tts: Qwen3TTS) -> None:
    found = tts.generate_all([TEXT, LONG], sampling=GREEDY)
    for (pcm, rate), text in zip(found, (TEXT, LONG), strict=True):
        assert rate == 24_000
        assert_same(pcm, tts.generate(text, sampling=GREEDY)[0])
    assert tts.generate_all([]) == []
    bad: Any = [TEXT, 5]
    for texts in (TEXT, bad):
        with pytest.raises(BadRequest):
            tts.generate_all(texts)


def test_each_text_may_have_a_voice_and_a_language_of_its_own(tts: Qwen3TTS) -> None:
    voices = [voice.id for voice in tts.voices()][:2]
    how: dict[str, list[Any]] = {
        "voice": voices,
        "language": ["en", "de"],
        "instructions": [None, "calm"],
    }
    found = tts.generate_all([TEXT, LONG], sampling=GREEDY, **how)
    for index, (text, (pcm, _)) in enumerate(zip((TEXT, LONG), found, strict=True)):
        own = {name: values[index] for name, values in how.items()}
        assert_same(pcm, tts.generate(text, sampling=GREEDY, **own)[0])


@pytest.mark.parametrize(
    ("name", "value"), [("voice", ["ryan"]), ("language", ["en"] * 3), ("instructions", ("a",))]
)
def test_a_list_that_does_not_fit_the_texts_is_named(tts: Qwen3TTS, name: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=f"{name} .* 2 texts"):
        tts.generate_all([TEXT, LONG], **{name: value})


def test_speakers_and_languages_are_listed_as_in_the_official_package(tts: Qwen3TTS) -> None:
    assert tts.supported_speakers() == ["dylan", "eric", "ryan", "serena", "uncle_fu"]
    languages = tts.supported_languages()
    assert languages == sorted(languages)
    assert languages[0] == "auto"
    assert not any("dialect" in name for name in languages)


def test_a_mode_that_there_is_not_is_refused(tts: Qwen3TTS) -> None:
    with pytest.raises(BadRequest, match="bogus"):
        tts.generate(TEXT, mode="bogus")


def test_a_reader_who_stops_frees_the_row(tts: Qwen3TTS) -> None:
    written: list[str] = []
    written_on = threading.Event()
    asked = threading.Event()

    def words() -> Iterator[str]:
        for word in ("Good ", "morning. ", "And "):
            written.append(word)
            yield word
        written_on.set()
        assert asked.wait(10)
        yield "on. "
        written.append("too much")
        yield "This is not read any more. "

    pieces = tts.stream(words())
    next(pieces)
    assert written_on.wait(10)
    pieces.close()  # type: ignore[attr-defined]
    asked.set()
    assert "too much" not in written
    assert len(tts.generate(TEXT)[0]) > 0


def test_a_reader_that_is_forgotten_on_the_loops_own_thread_does_not_block_it(
    tts: Qwen3TTS,
) -> None:
    pieces = tts.stream(LONG)
    next(pieces)
    done = threading.Event()

    def forget() -> None:
        pieces.close()  # type: ignore[attr-defined]
        done.set()

    tts._loop.call_soon_threadsafe(forget)
    assert done.wait(10)
    assert len(tts.generate(TEXT)[0]) > 0


def test_a_text_that_breaks_off_raises_its_own_error_after_what_was_said(tts: Qwen3TTS) -> None:
    def words() -> Iterator[str]:
        yield "Good morning. "
        raise LookupError("the model of language is gone")

    with pytest.raises(LookupError, match="gone"):
        list(tts.stream(words()))


def test_errors_are_those_of_the_engine(tts: Qwen3TTS) -> None:
    with pytest.raises(UnknownVoice):
        tts.generate(TEXT, voice="absent")
    with pytest.raises(UnknownVoice):
        tts.generate(TEXT, language="qq")
    with pytest.raises(BadRequest):
        tts.create_voice(recording(), x_vector_only=True)


def test_several_threads_share_it(tts: Qwen3TTS) -> None:
    alone, _ = tts.generate(TEXT, sampling=GREEDY)
    said: list[Any] = []
    threads = [
        threading.Thread(target=lambda: said.append(tts.generate(TEXT, sampling=GREEDY)[0]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(said) == 4
    for each in said:
        assert_same(each, alone)


def speaking() -> int:
    """Loops that run for loaded models."""
    return [thread.name for thread in threading.enumerate()].count("qwen3 speech")


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    before = speaking()
    with pytest.raises(EngineUnavailable):
        Qwen3TTS.load(str(tmp_path / "none"))
    assert speaking() == before
    with pytest.raises(ValueError, match="slots"):
        Qwen3TTS.load(str(tmp_path), slots=0)


def test_what_is_closed_says_so(tiny: dict[str, Path]) -> None:
    tts = Qwen3TTS.load(str(tiny["custom_voice"]))
    pieces = tts.stream(LONG)
    next(pieces)
    tts.close()
    tts.close()
    with pytest.raises(EngineUnavailable):
        list(pieces)
    with pytest.raises(EngineUnavailable):
        tts.generate(TEXT)


def test_a_caller_waiting_for_text_learns_of_the_close(tiny: dict[str, Path]) -> None:
    tts = Qwen3TTS.load(str(tiny["custom_voice"]))
    asked = threading.Event()
    go_on = threading.Event()
    errors: list[BaseException] = []

    def words() -> Iterator[str]:
        asked.set()
        assert go_on.wait(30)
        yield "Too late."

    def listen() -> None:
        try:
            tts.generate(words())
        except BaseException as error:
            errors.append(error)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    assert asked.wait(10)
    closers = [threading.Thread(target=tts.close) for _ in range(3)]
    for closer in closers:
        closer.start()
    for thread in (*closers, listener):
        thread.join(10)
        assert not thread.is_alive()
    go_on.set()
    assert [type(error) for error in errors] == [EngineUnavailable]
    assert "closed" in str(errors[0])


def test_the_examples_of_the_page_run(
    tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, rate = recording()
    with wave.open(str(tmp_path / "me.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", DOC.read_text("utf-8"), re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        played: list[Any] = []
        names: dict[str, Any] = {
            "play": lambda pcm, rate, played=played: played.append((pcm, rate)),
            "deltas": lambda: iter(["Good ", "morn", "ing. "]),
        }
        for name, task in (("0.6B-CustomVoice", "custom_voice"), ("0.6B-Base", "base")):
            example = example.replace(f"Qwen/Qwen3-TTS-12Hz-{name}", str(tiny[task]))
        exec(compile(example, DOC.name, "exec"), names)
        pcm, rate = (played or [(names["pcm"], names["rate"])])[0]
        assert rate == 24_000
        assert len(pcm) > 0


@pytest.fixture
async def engine() -> FakeEngine:
    made = FakeEngine()
    await made.start()
    return made


async def rest(speech: Speech) -> int:
    samples = 0
    while (chunk := await speech.next()) is not None:
        samples += chunk.samples
    return samples


async def test_the_next_piece_is_begun_before_the_last_is_read(engine: FakeEngine) -> None:
    speech = Speech(engine, "clause", SpeechOptions(voice="tone", seed=3), ahead=10**6)
    speech.append("Good morning to you. This is the line. ")
    speech.end()
    await settle(100)
    assert [request.text for request in engine.requests] == [
        "Good morning to you.",
        "This is the line.",
    ]
    assert {request.seed for request in engine.requests} == {3}
    assert [request.continued for request in engine.requests] == [False, True]
    assert await rest(speech) == (20 + 17) * CHAR_SAMPLES
    assert speech.closed


async def test_no_more_is_made_than_may_wait(engine: FakeEngine) -> None:
    speech = Speech(engine, "clause", SpeechOptions(voice="tone"), ahead=5 * CHAR_SAMPLES)
    speech.append("Good morning to you. This is the line. ")
    speech.end()
    await settle(100)
    assert len(engine.requests) == 1
    assert await rest(speech) == (20 + 17) * CHAR_SAMPLES


async def test_it_waits_for_text(engine: FakeEngine) -> None:
    speech = Speech(engine, "clause", SpeechOptions(voice="tone"), ahead=10**6)
    await settle()
    assert engine.requests == []
    speech.append("Good morning. ")
    await settle()
    speech.end()
    assert await rest(speech) == 13 * CHAR_SAMPLES


async def test_what_was_made_before_an_error_is_read_before_it(engine: FakeEngine) -> None:
    speech = Speech(engine, "clause", SpeechOptions(voice="fail-late"), ahead=10**6)
    speech.append("Good morning.")
    speech.end()
    assert await speech.next() is not None
    with pytest.raises(EngineFailed):
        await rest(speech)
    await speech.close()


async def test_who_closes_cancels(engine: FakeEngine) -> None:
    speech = Speech(engine, "clause", SpeechOptions(voice="stall"), ahead=10**6)
    speech.append("Good morning.")
    speech.end()
    await speech.next()
    await speech.close()
    assert engine.cancelled == 1
    with pytest.raises(UnknownVoice):
        Speech(engine, "auto", SpeechOptions(voice="absent"), ahead=1)
