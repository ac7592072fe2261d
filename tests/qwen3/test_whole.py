"""Whole texts in one generation, in both layouts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qwen3tts_engine.qwen3.api import Qwen3TTS
from qwen3tts_wire.errors import BadRequest
from tests.qwen3.engine_world import GREEDY, assert_same, recording
from tests.qwen3.scripted import requests_of

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
        tts.stream(TEXT, non_streaming_mode="yes")  # type: ignore[arg-type]


def test_a_text_without_room_goes_on_in_another_generation(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = requests_of(monkeypatch)
    with Qwen3TTS.load(str(tiny["custom_voice"]), positions=512) as tts:
        tts.generate(TEXT * 8, mode="whole", sampling=GREEDY)
    assert len(requests) > 1
    assert {request.layout for request in requests} == {"full"}


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
