"""The real worker, batch and scheduler on a device with stated costs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from qwen3tts_engine.qwen3.engine.completion import CompletionForecast
from qwen3tts_engine.qwen3.engine.jobs import JobState, VoiceConditioning
from qwen3tts_text.growing import LiveText
from tests.qwen3.engine.worker_world import World

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
MS = 1e-3


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu.virtual_device")


def host_turn_s(costs: Any) -> float:
    """Host time of a turn with one row: the plan, a decode, a step."""
    return float(costs.host_turn + 2 * costs.host_launch + costs.host_row) * MS


@pytest.mark.parametrize("codec_ms", [0.5, 1.8, 6.0])
def test_the_first_sound_leaves_within_a_turn_of_its_decode(virtual: Any, codec_ms: float) -> None:
    costs = virtual.DeviceCosts(decode=((1, codec_ms),))
    late = []
    for index in range(8):
        calls = [virtual.Arrival(0.1, 0.4), virtual.Arrival(1.1 + 0.0007 * index, 0.4)]
        found = virtual.simulate(calls, costs, silent_frames=0)
        # The second call: the first one's durations are known.
        asked = found.calls[1].asked
        end = next(end for end in found.device.decode_ends if end > asked)
        late.append(found.calls[1].heard[0][0] - end)
    assert min(late) >= 0
    assert max(late) <= host_turn_s(costs) + 1e-9


def test_waiting_for_sound_costs_no_throughput(virtual: Any) -> None:
    """The stream of the frames never idles: a step is always launched before a wait."""
    calls = [virtual.Arrival(0.0, 6.0, False)] * 48
    found = virtual.simulate(calls, virtual.DeviceCosts(), slots=48)
    assert found.device.busy_frames / found.seconds > 0.97


def test_a_load_is_served_without_gaps(virtual: Any) -> None:
    found = virtual.simulate(virtual.poisson_calls(20.0, 3.0), virtual.DeviceCosts(), until=5.0)
    assert found.gap_free(before=2.0) == 1.0
    assert found.first_ms(0.5) < 40


def test_costs_are_linear_between_their_points(virtual: Any) -> None:
    points = ((1, 2.0), (8, 9.0), (16, 9.0))
    assert [virtual.at_rows(points, rows) for rows in (0, 1, 4, 8, 12, 99)] == [2, 2, 5, 9, 9, 9]
    assert virtual.at_rows(((4, 3.0),), 100) == 3.0
    costs = virtual.DeviceCosts().scaled(1.5, "prefill", "download")
    assert costs.prefill[0] == (16, pytest.approx(3.15))
    assert costs.download == pytest.approx(0.09)


# --- which result is ready first ---


def test_an_end_is_expected_behind_what_it_waits_for() -> None:
    forecast = CompletionForecast()
    step = forecast.launch("step", 1.0)
    assert forecast.expected_end(step) == 1.0
    forecast.finished(step, 1.004, waited=True)
    second = forecast.launch("step", 1.001, step)
    sound = forecast.launch("sound", 1.002, second, None)
    assert forecast.expected_end(second) == pytest.approx(1.008)
    assert forecast.expected_end(sound) == pytest.approx(1.008)
    forecast.finished(second, 1.009, waited=True)
    assert forecast.expected_end(sound) == pytest.approx(1.009)
    assert not second.after


def test_durations_follow_waits_and_fall_where_nothing_was_waited_for() -> None:
    forecast = CompletionForecast()

    def took(seconds: float, *, waited: bool) -> None:
        forecast.finished(forecast.launch("sound", 5.0), 5.0 + seconds, waited=waited)

    def known() -> float:
        return forecast.expected_end(forecast.launch("sound", 0.0))

    took(0.010, waited=True)
    took(0.002, waited=True)
    assert known() == pytest.approx(0.008)
    took(0.020, waited=False)
    assert known() == pytest.approx(0.008)
    took(0.005, waited=False)
    assert known() == pytest.approx(0.0045)
    took(0.012, waited=True)
    assert known() > 0.006


# --- the constant beginning of streaming prompts ---


def say_streaming(world: World, voice: str, seed: int) -> None:
    """A generation whose prompt is eight constant positions and one token."""
    text = LiveText()
    assert text.push("abc", range(4))
    text.end()
    job = world.job("", seed=seed, more=text, prefix=8)
    job.speaker = VoiceConditioning(voice)
    world.worker.submit(job)
    world.run()
    assert job.state is JobState.DONE


def admitted(world: World, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Rows of all prefills from now on."""
    rows: list[Any] = []
    prefill = world.runner.prefill

    def noted(some: Any) -> None:
        rows.extend(some)
        prefill(some)

    monkeypatch.setattr(world.runner, "prefill", noted)
    return rows


def test_a_voices_constant_beginning_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(world.runner, "steps_prompts", True)
    rows = admitted(world, monkeypatch)
    for seed in range(3):
        say_streaming(world, "ryan", seed)
    # Of the first row's own prefill.
    assert world.runner.prefixes == [(0, 8)]
    assert len(world.embedded) == 1
    assert (rows[0].position, rows[0].prefix) == (None, None)
    assert [(row.position, row.embeds) for row in rows[1:]] == [((1, 2), None)] * 2
    assert rows[1].prefix is rows[2].prefix is not None


def test_kept_beginnings_are_bounded_and_the_least_recent_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    monkeypatch.setattr(world.runner, "steps_prompts", True)
    # Room for two.
    for seed, voice in enumerate(("ryan", "serena", "ryan", "eric", "ryan", "serena")):
        say_streaming(world, voice, seed)
    assert len(world.runner.prefixes) == 4


def test_after_a_fault_beginnings_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(world.runner, "steps_prompts", True)
    say_streaming(world, "ryan", 1)

    def broken(what: str, _seeds: Any) -> None:
        if what == "wait":
            raise RuntimeError("the device is lost")

    world.runner.fails = broken
    world.runner.quick = False
    _, out = world.say(seed=2)
    world.run()
    assert out.error is not None
    world.runner.fails = lambda _what, _seeds: None
    say_streaming(world, "ryan", 3)
    assert len(world.runner.prefixes) == 2


def test_a_full_prompt_is_prefilled(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(world.runner, "steps_prompts", True)
    rows = admitted(world, monkeypatch)
    world.say("abc", seed=1, prefix=8)
    world.run()
    assert world.runner.prefixes == []
    assert rows[0].position is None
    assert rows[0].embeds is not None


def test_a_kept_beginning_sounds_earlier(virtual: Any) -> None:
    costs = virtual.DeviceCosts()
    first = [
        virtual.simulate(
            virtual.single_calls(6), costs, layout="streaming", prefix_bytes=size, silent_frames=0
        ).first_ms(0.5)
        for size in (0, 1 << 24)
    ]
    prefill, talker = costs.prefill[0][1], costs.talker[0][1]
    assert first[0] - first[1] == pytest.approx(prefill - talker, abs=0.1)
