from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch

from qwen3tts_engine.qwen3.kernels.step_runner import DecodeFault
from qwen3tts_engine.qwen3.model.config import NOT_FINITE
from qwen3tts_wire.errors import BadText, EngineFailed, EngineUnavailable
from tests.qwen3.engine.worker_world import World


def test_a_row_that_breaks_a_step_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def fail(what: str, seeds: list[int]) -> None:
        if what == "step" and 2 in seeds and world.runner.made[1] >= 4:
            raise RuntimeError("secret words")

    world.runner.fails = fail  # type: ignore[assignment]
    said = {seed: world.say(seed=seed)[1] for seed in (1, 2, 3)}
    world.run()
    assert isinstance(said[2].error, EngineFailed)
    assert "secret" not in str(said[2].error)
    assert said[1].frames == said[3].frames == list(range(1, 11))
    assert world.runner.resets == 0


@pytest.mark.parametrize("quick", [True, False], ids=["ready", "late"])
def test_a_decode_that_fails_after_its_launch_is_made_again(quick: bool) -> None:
    world = World()
    world.runner.quick = quick
    failed: list[list[int]] = []

    def fail(what: str, seeds: list[int]) -> None:
        if what == "sound" and 2 in seeds and len(failed) < 2 and world.runner.made[1] >= 4:
            failed.append(seeds)
            raise DecodeFault

    world.runner.fails = fail  # type: ignore[assignment]
    said = {seed: world.say(seed=seed)[1] for seed in (1, 2, 3)}
    world.run()
    assert len(failed) == 2
    assert all(each.error is None for each in said.values())
    assert said[1].frames == said[2].frames == said[3].frames == list(range(1, 11))
    assert world.runner.resets == 0


def test_a_row_whose_sound_cannot_be_made_again_fails_alone() -> None:
    world = World()

    def fail(what: str, seeds: list[int]) -> None:
        if what in ("sound", "replay") and 2 in seeds:
            raise DecodeFault

    world.runner.fails = fail  # type: ignore[assignment]
    said = {seed: world.say(seed=seed)[1] for seed in (1, 2, 3)}
    world.run()
    assert isinstance(said[2].error, EngineFailed)
    assert said[1].frames == said[3].frames == list(range(1, 11))
    assert world.runner.resets == 0
    assert not world.runner.rows


def test_a_row_that_cannot_be_prefilled_fails_alone() -> None:
    world = World()

    class OutOfMemoryError(RuntimeError):
        pass

    def fail(what: str, seeds: list[int]) -> None:
        if what == "prefill" and 2 in seeds:
            raise OutOfMemoryError

    world.runner.fails = fail  # type: ignore[assignment]
    said = {seed: world.say(seed=seed)[1] for seed in (1, 2, 3)}
    world.run()
    assert isinstance(said[2].error, EngineFailed)
    assert "out of memory" in said[2].error.message
    assert said[1].frames == said[3].frames == list(range(1, 11))


def test_a_row_whose_guards_cannot_be_made_fails_alone() -> None:
    world = World()
    bad, refused = world.say("abc", seed=2)

    def broken() -> Any:
        raise AttributeError("'int' object has no attribute 'silence_s'")

    bad.make_postprocessor = broken
    said = {seed: world.say(seed=seed)[1] for seed in (1, 3)}
    world.run()
    assert isinstance(refused.error, EngineFailed)
    assert said[1].frames == said[3].frames == list(range(1, 11))
    assert world.runner.resets == 0
    assert not world.runner.rows


def test_a_prompt_that_cannot_be_embedded_fails_alone() -> None:
    world = World()
    embed = world.worker._batch._embed

    def refuse(prompt: Any, x_vector: Any) -> Any:
        if len(prompt.text) == 3:
            raise RuntimeError("a vector of another length")
        return embed(prompt, x_vector)

    world.worker._batch._embed = refuse
    _, out = world.say("abc", seed=1)
    world.run()
    _, other = world.say("abcd", seed=2)
    world.run()
    assert isinstance(out.error, EngineFailed)
    assert other.end == "text_end"


def test_a_prompt_that_cannot_be_laid_out_fails_alone() -> None:
    world = World()
    error = BadText("No.", remedy="Other words.")

    def refuse(_track: object) -> None:
        raise error

    _, out = world.say(seed=1, lay_out=refuse)
    _, other = world.say(seed=2)
    world.run()
    assert out.error is error
    assert other.end == "text_end"


def test_a_decode_that_breaks_once_is_said_again_from_its_start() -> None:
    world = World()
    broken: list[list[int]] = []

    def fail(what: str, seeds: list[int]) -> None:
        if what == "decode" and len(world.runner.decodes) >= 3 and not broken:
            broken.append(seeds)
            raise RuntimeError("once")

    world.runner.fails = fail  # type: ignore[assignment]
    said = [world.say(seed=seed)[1] for seed in (1, 2)]
    world.run()
    assert broken
    assert [out.frames for out in said] == [list(range(1, 11))] * 2


def test_a_row_that_breaks_each_decode_fails_alone() -> None:
    world = World()

    def fail(what: str, seeds: list[int]) -> None:
        if what in ("decode", "replay") and 2 in seeds:
            raise RuntimeError("again")

    world.runner.fails = fail  # type: ignore[assignment]
    said = {seed: world.say(seed=seed)[1] for seed in (1, 2)}
    world.run()
    assert isinstance(said[2].error, EngineFailed)
    assert said[1].frames == list(range(1, 11))


def test_a_fault_of_no_row_in_particular_fails_all_and_the_next_request_is_served() -> None:
    world = World()
    left = [5]

    def fail(what: str, _seeds: list[int]) -> None:
        if what == "step" and left[0]:
            left[0] -= 1
            raise RuntimeError("the device is gone")

    world.runner.fails = fail  # type: ignore[assignment]
    said = [world.say(seed=seed)[1] for seed in (1, 2, 3)]
    world.turn()
    assert all(isinstance(out.error, EngineFailed) for out in said)
    assert world.runner.resets == 1
    left[0] = 0
    _, out = world.say(seed=4)
    world.run()
    assert out.frames == list(range(1, 11))


def test_a_device_that_fails_while_it_is_waited_for_fails_all_under_way() -> None:
    world = World()
    world.runner.quick = False
    _, out = world.say(seed=1)

    def fail(what: str, _seeds: list[int]) -> None:
        if what == "wait":
            raise RuntimeError("an illegal memory access")

    world.runner.fails = fail  # type: ignore[assignment]
    world.turn()
    world.turn()
    assert isinstance(out.error, EngineFailed)
    assert world.runner.resets == 1


def test_a_device_that_does_not_recover_ends_the_engine_and_says_so() -> None:
    world = World()

    def fail(what: str, _seeds: list[int]) -> None:
        if what in ("step", "reset"):
            raise RuntimeError("gone")

    world.runner.fails = fail  # type: ignore[assignment]
    said = [world.say(seed=seed)[1] for seed in (1, 2)]
    world.worker.run()
    assert all(isinstance(out.error, EngineFailed) for out in said)
    _, later = world.say(seed=3)
    assert isinstance(later.error, EngineUnavailable)
    assert later.error.remedy


@pytest.mark.parametrize("kind", [getattr(torch, "AcceleratorError", RuntimeError), RuntimeError])
def test_a_gpu_that_is_lost_ends_calls_with_what_was_heard(kind: type[RuntimeError]) -> None:
    world = World()
    said = [world.say(seed=seed)[1] for seed in (1, 2)]
    for _ in range(4):
        world.turn()
    before = [out.samples for out in said]
    assert all(before)
    assert not any(out.error for out in said)

    def lost(what: str, _seeds: list[int]) -> None:
        raise kind("CUDA error: device lost")

    world.runner.fails = lost  # type: ignore[assignment]
    world.worker.run()
    for out, samples in zip(said, before, strict=True):
        assert out.samples >= samples
        assert isinstance(out.error, EngineFailed)
        assert out.error.message == "The GPU failed."
        assert "nvidia-smi" in (out.error.remedy or "")
    _, later = world.say(seed=3)
    assert isinstance(later.error, EngineUnavailable)


def test_codes_that_are_no_numbers_fail_their_row_alone() -> None:
    world = World()
    step = world.runner.step

    def spoilt(rows):  # type: ignore[no-untyped-def]
        ticket = step(rows)
        if world.runner.made[rows[0].slot] >= 4:
            for index, row in enumerate(rows):
                if world.runner.rows[row.slot].seed == 2:
                    ticket._result[index, 0] = NOT_FINITE
        return ticket

    world.runner.step = spoilt  # type: ignore[method-assign]
    said = {seed: world.say(seed=seed)[1] for seed in (1, 2)}
    world.run()
    assert isinstance(said[2].error, EngineFailed)
    assert "not finite" in said[2].error.message
    assert said[1].frames == list(range(1, 11))


def test_sound_that_is_no_number_fails_its_row_alone() -> None:
    world = World()
    decode = world.runner.decode

    def spoilt(rows):  # type: ignore[no-untyped-def]
        ticket = decode(rows)
        for index, row in enumerate(rows):
            if world.runner.rows[row.slot].seed == 2:
                ticket._result[index, 7] = np.nan
        return ticket

    world.runner.decode = spoilt  # type: ignore[method-assign]
    said = {seed: world.say(seed=seed)[1] for seed in (1, 2)}
    world.run()
    assert isinstance(said[2].error, EngineFailed)
    assert said[2].chunks == []
    assert said[1].frames == list(range(1, 11))


def test_no_words_of_a_text_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def fail(what: str, _seeds: list[int]) -> None:
        if what == "step":
            raise RuntimeError("a fault")

    world.runner.fails = fail  # type: ignore[assignment]
    with caplog.at_level(logging.DEBUG):
        world.say("confidential", seed=1)
        world.run()
    assert "a fault" in caplog.text
    assert "confidential" not in caplog.text
