"""Whole texts in one generation, in both layouts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_engine.qwen3.api import Qwen3TTS
from qwen3tts_wire.errors import BadRequest
from tests.engine.speech_like import silence, voice
from tests.qwen3.engine.engine_world import GREEDY, assert_same, recording
from tests.qwen3.engine.scripted import ScriptedEngine, requests_of

TEXT = "Good morning. This is the line, and there is more of it. That is all."


@pytest.fixture(scope="module")
def tts(tiny: dict[str, Path]) -> Iterator[Qwen3TTS]:
    with Qwen3TTS.load(str(tiny["custom_voice"])) as loaded:
        yield loaded


@pytest.mark.parametrize(("flag", "mode"), [(True, "whole"), (False, "whole_streaming")])
def test_the_official_name_and_the_mode_are_the_same(tts: Qwen3TTS, flag: bool, mode: Any) -> None:
    named, _ = tts.generate(TEXT, mode=mode, sampling=GREEDY)
    assert_same(tts.generate(TEXT, non_streaming_mode=flag, sampling=GREEDY)[0], named)
    assert_same(tts.generate(iter(TEXT), non_streaming_mode=flag, sampling=GREEDY)[0], named)


def test_what_is_no_truth_value_is_refused(tts: Qwen3TTS) -> None:
    with pytest.raises(BadRequest, match="non_streaming_mode"):
        tts.stream(TEXT, non_streaming_mode="yes")


def test_a_text_without_room_goes_on_in_another_generation(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = requests_of(monkeypatch)
    with Qwen3TTS.load(str(tiny["custom_voice"]), positions=512) as tts:
        tts.generate(TEXT * 8, mode="whole", sampling=GREEDY)
    assert len(requests) > 1
    assert {request.layout for request in requests} == {"full"}


def test_a_text_beyond_the_characters_of_a_clause_goes_on_in_other_generations(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = requests_of(monkeypatch)
    with Qwen3TTS.load(str(tiny["custom_voice"]), positions=512, max_chars=100) as tts:
        pcm, _ = tts.generate(TEXT * 4, mode="whole", sampling=GREEDY)
    assert len(pcm) > 0
    assert len(requests) > 1


@pytest.mark.parametrize("mode", ["whole", "whole_streaming"])
@pytest.mark.parametrize("frames", [2, 8])
def test_an_explicit_bound_cuts_a_whole_text(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch, mode: Any, frames: int
) -> None:
    ScriptedEngine(monkeypatch, lambda _n, text: voice(text))
    with Qwen3TTS.load(str(tiny["custom_voice"])) as tts:
        pcm, _ = tts.generate(TEXT, mode=mode, max_new_tokens=frames)
    assert len(pcm) <= frames * 1920


@pytest.mark.parametrize("mode", ["whole", "whole_streaming"])
def test_an_explicit_bound_cuts_a_text_that_does_not_fit_one_generation(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    world = ScriptedEngine(monkeypatch, lambda _n, text: voice(text))
    with Qwen3TTS.load(str(tiny["custom_voice"]), positions=512) as tts:
        tts.generate(TEXT * 8, mode=mode, max_new_tokens=8)
    assert len(world.requests) == 1


def test_a_bound_cuts_the_text_in_a_repeat_as_well(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(number: int, text: str) -> Any:
        # The first falls silent within its bound, the second one is cut by it.
        if number == 0:
            return np.concatenate((voice(TEXT), silence(60.0)))
        return voice(text, rate=0.3)

    world = ScriptedEngine(monkeypatch, script)
    with Qwen3TTS.load(str(tiny["custom_voice"]), positions=512) as tts:
        tts.generate(TEXT * 8, mode="whole", max_new_tokens=150)
    assert len(world.requests) == 2


@pytest.mark.parametrize("mode", ["auto", "clause", "live"])
@pytest.mark.parametrize("pieces", [False, True])
def test_an_explicit_bound_that_says_nothing_is_no_error_in_other_modes(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch, mode: Any, pieces: bool
) -> None:
    world = ScriptedEngine(monkeypatch, lambda _n, text: voice(text))
    with Qwen3TTS.load(str(tiny["custom_voice"])) as tts:
        text: Any = iter(TEXT) if pieces else TEXT
        pcm, _ = tts.generate(text, mode=mode, max_new_tokens=2)
    assert 0 < len(pcm) <= len(world.requests) * 2 * 1920


@pytest.mark.parametrize("flag", [True, False])
def test_a_voice_that_goes_on_from_a_recording_speaks_in_both_layouts(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch, flag: bool
) -> None:
    requests = requests_of(monkeypatch)
    with Qwen3TTS.load(str(tiny["base"])) as tts:
        voice = tts.create_voice(recording(), "What is said in it.")
        pcm, _ = tts.generate(TEXT, voice=voice, non_streaming_mode=flag, sampling=GREEDY)
    assert len(pcm) > 0
    assert [request.layout for request in requests] == ["full" if flag else "streaming"]
