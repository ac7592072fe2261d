"""What the GPU benchmark measures, on a small engine."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest

from qwen3tts_engine.qwen3.kernels.runner import Runner
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from tests.qwen3.model.small import small_config, small_weights

FRAME = 1920


@pytest.fixture(scope="module")
def load() -> Any:
    return importlib.import_module("benchmarks.gpu.load")


def call(load: Any, *heard: tuple[float, int]) -> Any:
    return load.Call(frames=9, asked=10.0, lead=None, heard=list(heard))


def test_the_first_audible_sample_is_behind_the_silent_frames(load: Any) -> None:
    one = call(load, (10.01, FRAME), (10.03, 2 * FRAME), (10.5, FRAME))
    assert one.first_ms(0) == pytest.approx(10)
    assert one.first_ms(1) == pytest.approx(30)
    assert one.first_ms(3) == pytest.approx(500)
    two = call(load, (10.02, 4 * FRAME))
    assert two.audible(1) == [(10.02, 3 * FRAME)]


def test_a_gap_is_when_the_listener_has_nothing(load: Any) -> None:
    # Heard from 10.05 on, 80 ms a frame.
    assert not call(load, (10.01, FRAME), (10.129, FRAME), (10.2, FRAME)).has_gap(0)
    assert call(load, (10.01, FRAME), (10.14, FRAME)).has_gap(0)
    assert not call(load, (10.01, FRAME), (10.14, FRAME)).has_gap(1)


def test_calls_speak_for_as_long_as_they_are_told(load: Any) -> None:
    config = small_config(projection=False)
    talker = replace(config.talker, text_vocab=151_936)
    config = replace(config, task="custom_voice", talker=replace(talker, speakers={"one": 2200}))
    model = Qwen3Model.from_weights(config, *small_weights(config))
    made = load.Load(model, Runner(model, slots=2, positions=128))
    with made.running():
        first, _ = made.call(0.8)
        _, job = made.call(8.0, paced=False)
        assert first.over.wait(60)
        made.worker.cancel(job)
    assert first.error is None
    assert sum(samples for _, samples in first.heard) == 10 * FRAME
    assert set(first.marks) >= {"slot", "prefill", "first_codes"}
