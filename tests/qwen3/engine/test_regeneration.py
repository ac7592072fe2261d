"""What a model leaves unsaid is said by another generation; a pause alone ends none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_engine.base import GenerationLimits, PcmChunk
from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
from qwen3tts_engine.qwen3.engine.settings import Qwen3Settings
from qwen3tts_text.growing import LiveText
from qwen3tts_wire.errors import BadRequest, EngineFailed
from tests.engine.speech_like import silence, voice
from tests.qwen3.engine.engine_world import push, sound, spoken
from tests.qwen3.engine.scripted import FirstCode, Script, ScriptedEngine, varied

TEXT = (
    "The train to Oxford leaves at half past nine from platform four and the next one which also "
    "stops at Reading and Didcot leaves forty minutes later."
)
WORDS = TEXT.split()
Speak = Callable[..., Awaitable[tuple[list[PcmChunk], list[str]]]]


def part(share: float) -> tuple[str, str]:
    """The text, parted at a word."""
    at = round(len(WORDS) * share)
    return " ".join(WORDS[:at]), " ".join(WORDS[at:])


def seconds(chunks: list[PcmChunk]) -> float:
    return sum(chunk.samples for chunk in chunks) / 24_000


@pytest.fixture
async def speak(tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Speak]:
    engines: list[Qwen3Engine] = []

    async def scripted(
        script: Script,
        text: str = TEXT,
        settings: dict[str, Any] | None = None,
        first_code: FirstCode = varied,
        **fields: Any,
    ) -> tuple[list[PcmChunk], list[str]]:
        world = ScriptedEngine(monkeypatch, script, first_code)
        engine = await world.started(tiny["custom_voice"], **(settings or {}))
        engines.append(engine)
        try:
            return await spoken(engine, text, language="en", **fields), world.texts
        finally:
            seeds[:] = [request.seed for request in world.requests]

    yield scripted
    for engine in engines:
        await engine.close()


seeds: list[int | None] = []


@pytest.mark.parametrize("share", [0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.96])
async def test_a_long_pause_in_the_middle_of_a_text_ends_nothing(
    speak: Speak, share: float
) -> None:
    one, two = part(share)
    whole = np.concatenate((voice(one), silence(2.0), voice(two)))
    chunks, texts = await speak(lambda _n, _text: whole)
    assert texts == [TEXT]
    assert chunks[-1].end == "text_end"
    assert seconds(chunks) == pytest.approx(len(whole) / 24_000, abs=0.1)


async def test_two_long_pauses_end_nothing_either(speak: Speak) -> None:
    parts = [" ".join(WORDS[at : at + 9]) for at in range(0, len(WORDS), 9)]
    whole = np.concatenate([each for said in parts for each in (voice(said), silence(1.8))][:-1])
    chunks, texts = await speak(lambda _n, _text: whole)
    assert texts == [TEXT]
    assert seconds(chunks) == pytest.approx(len(whole) / 24_000, abs=0.1)


@pytest.mark.parametrize("rate", [0.7, 1.0, 1.4])
async def test_endless_silence_behind_the_text_is_cut(speak: Speak, rate: float) -> None:
    said = voice(TEXT, rate=rate)
    chunks, texts = await speak(lambda _n, _text: np.concatenate((said, silence(60.0))))
    assert texts == [TEXT]
    assert chunks[-1].end == "silence"
    # Whether its last word is still to come cannot be known.
    assert seconds(chunks) == pytest.approx(len(said) / 24_000 + 4.0, abs=0.2)


async def test_the_silence_that_ends_it_is_a_setting(speak: Speak) -> None:
    said = voice(f"{TEXT} {part(0.5)[0]}")
    script: Script = lambda _n, _text: np.concatenate((said, silence(60.0)))  # noqa: E731
    chunks, _ = await speak(script, settings={"silence_s": 2.5})
    assert seconds(chunks) == pytest.approx(len(said) / 24_000 + 2.5, abs=0.2)


async def test_a_request_has_limits_of_its_own(speak: Speak) -> None:
    said = voice(f"{TEXT} {part(0.5)[0]}")
    script: Script = lambda _n, _text: np.concatenate((said, silence(60.0)))  # noqa: E731
    chunks, _ = await speak(script, limits=GenerationLimits(silence_s=0.5))
    assert seconds(chunks) == pytest.approx(len(said) / 24_000 + 0.5, abs=0.2)
    whole = np.concatenate((voice(part(0.5)[0]), silence(2.0), voice(part(0.5)[1])))
    _, texts = await speak(lambda n, text: voice(text) if n else whole,
                           limits=GenerationLimits(pause_s=1.0))  # fmt: skip
    assert len(texts) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"silence_s": 0},
        {"silence_s": float("nan")},
        {"pause_s": "1"},
        {"max_new_tokens": 1},
        {"max_new_tokens": True},
    ],
)
def test_limits_of_a_request_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=next(iter(wrong))) as caught:
        GenerationLimits(**wrong)
    assert caught.value.remedy


@pytest.mark.parametrize("text", ["\u2192", "\u00a7"])
async def test_a_sign_that_the_model_does_not_say_is_no_error(speak: Speak, text: str) -> None:
    chunks, texts = await speak(lambda _n, _text: silence(10.0), text)
    assert texts == [text]
    assert seconds(chunks) == 0


@pytest.mark.parametrize("live", [False, True])
async def test_a_model_that_falls_silent_for_good_has_its_rest_said_by_another_generation(
    speak: Speak, live: bool
) -> None:
    one, _ = part(0.5)

    def script(number: int, text: str) -> Any:
        return np.concatenate((voice(one), silence(60.0))) if number == 0 else voice(text)

    fields: dict[str, Any] = {}
    if live:
        fields["more"] = LiveText()
        push(fields["more"], TEXT[10:], at=10)
        fields["more"].end()
    chunks, texts = await speak(script, TEXT[:10] if live else TEXT, seed=5, **fields)
    assert len(texts) == 2
    assert TEXT.endswith(texts[1])
    # From the last word, or a little before it: none is left out.
    assert len(part(0.5)[1]) <= len(texts[1]) <= len(part(0.5)[1]) + 30
    assert seeds[0] == 5
    assert seeds[1] not in (None, 5)
    assert chunks[-1].end == "regenerated"
    assert [chunk.end for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    words = [word for chunk in chunks for word in chunk.words]
    assert [word.text.strip(".") for word in words] == [word.strip(".") for word in WORDS]
    assert [word.char_start for word in words] == sorted(word.char_start for word in words)
    assert all(one.end <= two.start for one, two in pairwise(words))
    assert words[-1].end <= len(sound(chunks))


async def test_a_model_that_falls_silent_twice_says_all_of_it_all_the_same(speak: Speak) -> None:
    def script(number: int, text: str) -> Any:
        words = text.split()
        if number == 2:
            return voice(text)
        return np.concatenate((voice(" ".join(words[: len(words) // 2])), silence(60.0)))

    chunks, texts = await speak(script)
    assert len(texts) == 3
    assert TEXT.endswith(texts[2])
    assert chunks[-1].end == "regenerated"


async def test_a_repeat_that_goes_on_in_silence_is_recorded_all_the_same(speak: Speak) -> None:
    def script(number: int, text: str) -> Any:
        said = voice(text) if number else voice(part(0.5)[0])
        return np.concatenate((said, silence(60.0)))

    chunks, texts = await speak(script)
    assert len(texts) == 2
    assert chunks[-1].end == "regenerated"


async def test_a_repeat_that_ends_by_itself_too_early_is_repeated_as_well(speak: Speak) -> None:
    def script(number: int, text: str) -> Any:
        if number == 0:
            return np.concatenate((voice(part(0.5)[0]), silence(60.0)))
        return voice("The train") if number == 1 else voice(text)

    chunks, texts = await speak(script)
    assert len(texts) == 3
    assert TEXT.endswith(texts[2])
    assert chunks[-1].end == "regenerated"
    words = [word.text.strip(".") for chunk in chunks for word in chunk.words]
    assert words == [word.strip(".") for word in WORDS]


async def test_repeats_that_end_by_themselves_too_early_are_bounded(speak: Speak) -> None:
    def script(number: int, text: str) -> Any:
        return voice("a") if number else np.concatenate((voice(part(0.5)[0]), silence(60.0)))

    with pytest.raises(EngineFailed, match="left words unsaid"):
        await speak(script)
    assert len(seeds) <= 12


async def test_a_repeat_that_is_a_little_short_ends_it(speak: Speak) -> None:
    def script(number: int, text: str) -> Any:
        said = voice(text, rate=1.3) if number else voice(part(0.5)[0])
        return said if number else np.concatenate((said, silence(60.0)))

    _, texts = await speak(script)
    assert len(texts) == 2


async def test_a_first_generation_that_ends_early_by_itself_is_believed(speak: Speak) -> None:
    chunks, texts = await speak(lambda _n, _text: voice("The train"))
    assert texts == [TEXT]
    assert chunks[-1].end == "text_end"


async def test_a_model_that_never_speaks_is_a_typed_error_after_some_tries(speak: Speak) -> None:
    with pytest.raises(EngineFailed, match="no sound") as caught:
        await speak(lambda _n, _text: silence(60.0))
    assert caught.value.remedy
    assert TEXT[:10] not in str(caught.value)
    assert len(seeds) == 3


async def test_a_model_that_finds_its_voice_at_the_second_try_is_heard(speak: Speak) -> None:
    chunks, texts = await speak(lambda n, text: voice(text) if n else silence(60.0))
    assert texts == [TEXT, TEXT]
    assert chunks[-1].end == "regenerated"
    assert seconds(chunks) == pytest.approx(len(voice(TEXT)) / 24_000, abs=0.1)


async def test_a_text_that_runs_into_the_cap_goes_on_in_another_generation(speak: Speak) -> None:
    chunks, texts = await speak(
        lambda _n, text: voice(text, rate=0.8), settings={"max_new_tokens": 50}
    )
    assert 2 < len(texts) < 6
    for before, after in pairwise(texts):
        assert before.endswith(after)
        assert len(after) < len(before)
    assert chunks[-1].end == "regenerated_cap"
    words = [word.text.strip(".") for chunk in chunks for word in chunk.words]
    assert words == [word.strip(".") for word in WORDS]


@pytest.mark.parametrize("frames", [2, 8])
@pytest.mark.parametrize("layout", [None, "full", "streaming"])
async def test_a_bound_of_the_settings_that_leaves_words_unsaid_is_a_typed_error(
    speak: Speak, frames: int, layout: Any
) -> None:
    with pytest.raises(EngineFailed, match=r"unsaid|no sound") as caught:
        await speak(
            lambda _n, text: voice(text, rate=0.8),
            TEXT * 2,
            settings={"max_new_tokens": frames},
            layout=layout,
        )
    assert "max_new_tokens" in caught.value.remedy
    assert len(seeds) <= 12


async def test_a_bound_of_a_request_that_needs_too_many_generations_is_a_typed_error(
    speak: Speak,
) -> None:
    with pytest.raises(EngineFailed, match="12 generations") as caught:
        await speak(lambda _n, text: voice(text, rate=0.8), TEXT * 4,
                    limits=GenerationLimits(max_new_tokens=24))  # fmt: skip
    assert "max_new_tokens" in caught.value.remedy


async def test_noise_without_end_is_cut_and_not_said_again(speak: Speak) -> None:
    hum = np.full(24_000 * 100, 0.1, np.float32) * np.tile([1.0, -1.0], 24_000 * 50)
    chunks, texts = await speak(lambda _n, _text: hum.astype(np.float32))
    assert texts == [TEXT]
    assert chunks[-1].end == "frame_cap"


@pytest.mark.parametrize(
    "wrong",
    [
        {"silence_s": 0.0},
        {"silence_s": float("nan")},
        {"silence_s": 2.0, "pause_s": 1.0},
        {"pause_s": 1e9},
        {"max_new_tokens": 0},
        {"max_new_tokens": 2.5},
        {"max_new_tokens": True},
    ],
)
def test_limits_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(reversed(wrong))):
        Qwen3Settings("folder", **wrong)


# --- codes that repeat ---


def stuck_at(share: float) -> tuple[Script, FirstCode]:
    """The first generation says the word at that share of the text over and over."""
    one, two = part(share)
    said = voice(one)
    word = voice(two.split()[0])
    frames = -(-len(said) // 1920)
    whole = np.concatenate((said, *([word] * 40)))

    def first_code(generation: int, frame: int) -> int:
        stuck = generation == 0 and frame >= frames
        return 200 + (frame - frames) % 5 if stuck else varied(generation, frame)

    return lambda number, text: voice(text) if number else whole, first_code


async def test_a_model_that_says_a_word_over_and_over_is_cut_and_the_rest_is_said(
    speak: Speak,
) -> None:
    script, first_code = stuck_at(0.5)
    chunks, texts = await speak(script, first_code=first_code)
    assert len(texts) == 2
    rest = texts[1].split()
    # From the word at which it was stuck, give or take what the estimate is off by.
    assert texts[1] == " ".join(WORDS[-len(rest) :])
    assert len(rest) == pytest.approx(len(part(0.5)[1].split()), abs=4)
    assert chunks[-1].end == "regenerated_repeated"
    assert seconds(chunks) < seconds_of(TEXT) + 8
    found = [word.text for chunk in chunks for word in chunk.words]
    assert found == [word.rstrip(".") for word in WORDS]


async def test_a_repetition_behind_the_text_is_cut(speak: Speak) -> None:
    said = voice(TEXT)
    frames = -(-len(said) // 1920)
    whole = np.concatenate((said, *([voice("later")] * 60)))
    chunks, texts = await speak(
        lambda _n, _text: whole,
        first_code=lambda n, frame: 200 + frame % 6 if frame >= frames else varied(n, frame),
    )
    assert chunks[-1].end in ("repeated", "regenerated_repeated")
    assert len(texts) <= 2
    assert seconds(chunks) < 2 * seconds_of(TEXT) + 8


async def test_a_repetition_can_be_allowed(speak: Speak) -> None:
    script, first_code = stuck_at(0.5)
    _, texts = await speak(script, settings={"repetition_guard": False}, first_code=first_code)
    assert texts[0] == TEXT
    chunks, _ = await speak(
        lambda _n, _text: voice(TEXT), settings={"repetition_guard": False}, first_code=first_code
    )
    assert chunks[-1].end == "text_end"


def seconds_of(text: str) -> float:
    return len(voice(text)) / 24_000


# --- speed ---


@pytest.mark.parametrize("speed", [0.5, 1.3, 2.0])
async def test_another_speed_changes_the_length_and_the_times_of_the_words(
    speak: Speak, speed: float
) -> None:
    said = voice(TEXT)
    usual, _ = await speak(lambda _n, _text: said)
    chunks, _ = await speak(lambda _n, _text: said, speed=speed)
    assert seconds(chunks) == pytest.approx(seconds(usual) / speed, abs=0.03)
    given = 0
    for chunk in chunks:
        given += chunk.samples
        assert all(word.end <= given for word in chunk.words)
    words = [word for chunk in chunks for word in chunk.words]
    before = [word for chunk in usual for word in chunk.words]
    for word, old in zip(words, before, strict=True):
        assert word.text == old.text
        assert word.start == pytest.approx(old.start / speed, abs=800)
        assert word.end == pytest.approx(old.end / speed, abs=800)
    assert chunks[0].marks.keys() == usual[0].marks.keys()


async def test_a_rest_that_another_generation_says_has_the_same_speed(speak: Speak) -> None:
    one, two = part(0.5)
    chunks, texts = await speak(
        lambda n, text: voice(text) if n else np.concatenate((voice(one), silence(60.0))),
        speed=2.0,
    )
    assert len(texts) == 2
    # The silence of 4 s that ended the first is heard as 2 s.
    assert seconds(chunks) == pytest.approx((seconds_of(one) + seconds_of(two) + 4) / 2, abs=0.6)
    assert [word.text for chunk in chunks for word in chunk.words][-1].startswith("later")
