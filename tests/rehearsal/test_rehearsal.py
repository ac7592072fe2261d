"""Rehearsals over a line without sockets: plans, results, errors, interruptions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_agent.chat.messages import ChatMessage
from qwen3tts_agent.chat.source import FunctionSource
from qwen3tts_codecs.wav import WavFile
from qwen3tts_phone.detection.recogniser import RecogniserUnavailable
from qwen3tts_rehearsal.rehearsal import PlannedCall, Rehearsal, RehearsalParts, plan
from qwen3tts_rehearsal.results import CallResult, RehearsalResult
from qwen3tts_rehearsal.scenario import Scenario, scenario_of
from qwen3tts_rehearsal.sounds import SoundBook
from qwen3tts_settings.entries import from_yaml
from qwen3tts_wire.errors import EngineUnavailable
from tests.rehearsal.callers import LoudDetector, tone
from tests.rehearsal.fake_line import Deaf, FakeLine, HangsUp, Silent

HAPPY = """
steps:
  - wait: quiet
  - say: hello
  - wait: quiet
  - keys: "12"
  - hang_up: true
expect:
  first_response_s: 1
  response_s: 1
  dead_air_s: 2
  cut_offs: 0
  gaps: 0
  codec: PCMU
  hang_up: {by: caller}
"""


def scenario(text: str = HAPPY, name: str = "s") -> tuple[Scenario, Path]:
    return scenario_of(from_yaml(text, "t.yaml"), name), Path("t.yaml")


async def synthesise(text: str, voice: str, language: str) -> tuple[NDArray[np.int16], int]:
    if text == "broken":
        raise EngineUnavailable("There is no voice.")
    return tone(0.5), 8000


def parts(line: FakeLine, **changes: Any) -> RehearsalParts:
    return RehearsalParts(
        line,
        SoundBook(synthesise),
        detector=LoudDetector,
        now=lambda: line.calls[-1].now,
        **changes,
    )


async def rehearsed(
    line: FakeLine, *scenarios: tuple[Scenario, Path], **changes: Any
) -> CallResult:
    planned = plan(scenarios or [scenario()])
    result = await Rehearsal(parts(line, **changes), planned).run()
    return result.calls[0]


def failures(result: CallResult) -> dict[str, str]:
    return {each.name: each.detail for each in result.failed}


async def test_a_call_is_made_and_judged() -> None:
    line = FakeLine()
    result = await rehearsed(line)
    assert result.passed, failures(result)
    assert result.error == ""
    assert [span.side for span in result.spans] == ["agent", "caller", "agent", "caller"]
    assert result.figures["first_response_s"] == pytest.approx(0.3, abs=0.05)
    assert result.figures["response_max_s"] == pytest.approx(0.52, abs=0.05)
    assert line.calls[0].pressed == ["12"]


async def test_a_recording_has_both_sides(tmp_path: Path) -> None:
    (tmp_path / "s-1.wav").touch(mode=0o644)
    result = await rehearsed(FakeLine(), folder=tmp_path)
    assert result.recording == tmp_path / "s-1.wav"
    assert result.recording.stat().st_mode & 0o077 == 0
    wav = WavFile.parse(result.recording.read_bytes())
    assert wav.channels == 2
    assert wav.seconds == pytest.approx(result.duration_s, abs=0.05)
    for channel, side in enumerate(("caller", "agent")):
        span = next(each for each in result.spans if each.side == side and not each.note)
        loud = np.flatnonzero(np.abs(wav.samples()[:, channel]) > 0.01) / wav.rate
        assert loud[0] == pytest.approx(span.start_s, abs=0.03)


async def test_a_deaf_agent_gives_no_answer() -> None:
    result = await rehearsed(
        FakeLine(Deaf),
        scenario(HAPPY.replace("- wait: quiet\n  - keys", "- wait: {limit_s: 2}\n  - keys")),
    )
    assert "no answer to the turn" in failures(result)["response_s"]
    assert "in vain" in failures(result)["script"]


async def test_an_agent_that_never_speaks_ends_by_the_limits() -> None:
    text = "steps: [{wait: {limit_s: 1}}, {say: hello}, {wait: {limit_s: 1}}]"
    result = await rehearsed(FakeLine(Silent), scenario(text))
    assert failures(result)["script"].count("in vain") == 2
    assert result.spans[0].side == "caller"


async def test_an_agent_that_hangs_up_early_fails_the_script() -> None:
    result = await rehearsed(FakeLine(HangsUp))
    assert "the agent hung up 5 steps before the end" in failures(result)["script"]
    assert failures(result)["hang_up.by"] == "the far end hung up"


async def test_the_agents_end_may_be_waited_for() -> None:
    text = "steps: [{wait: hang_up}]\nexpect: {hang_up: {by: agent, after_s: 1}}"
    assert (await rehearsed(FakeLine(HangsUp), scenario(text))).passed
    vain = "steps: [{wait: {until: hang_up, limit_s: 1}}]"
    assert "in vain" in failures(await rehearsed(FakeLine(), scenario(vain)))["script"]


async def test_words_that_are_waited_for_need_a_recogniser() -> None:
    text = "steps: [{wait: {words: hello, quiet_s: 0.3, limit_s: 5}}]"
    result = await rehearsed(FakeLine(), scenario(text))
    assert failures(result)["script"].startswith("there is no recogniser: name one with --stt;")


async def test_a_refused_call_is_a_result_and_the_next_is_made() -> None:
    line = FakeLine(busy=1)
    result = await Rehearsal(parts(line), plan([scenario()], repeat=2)).run()
    assert [bool(each.error) for each in result.calls] == [True, False]
    assert "486 Busy Here" in result.calls[0].error
    assert not result.passed
    assert result.complete


async def test_a_call_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "max_seconds: 1\nsteps: [{say: hello}, {silence: 300}]"
    result = await rehearsed(FakeLine(), scenario(text))
    assert "max_seconds" in failures(result)["script"]


async def test_keys_that_a_line_cannot_press_are_a_problem() -> None:
    result = await rehearsed(FakeLine(), scenario('steps: [{keys: "1D"}]'))
    assert "keys 1D: " in failures(result)["script"]


async def test_a_voice_that_fails_fails_before_any_call() -> None:
    line = FakeLine()
    with pytest.raises(EngineUnavailable):
        await rehearsed(line, scenario(), scenario("steps: [{say: broken}]", "b"))
    assert line.settings == []


async def test_words_are_those_of_the_recogniser() -> None:
    lengths: list[float] = []

    async def transcribe(samples: NDArray[np.int16], rate_hz: int) -> str:
        lengths.append(len(samples) / rate_hz)
        return "Good morning."

    text = HAPPY + "  heard: [{contains: good morning good morning}]\n"
    result = await rehearsed(FakeLine(), scenario(text), transcribe=transcribe)
    assert result.passed, failures(result)
    assert [span.text for span in result.spans if span.side == "agent"] == ["Good morning."] * 2
    assert lengths == pytest.approx([0.8, 0.8], abs=0.05)


async def test_a_recogniser_that_fails_is_the_error_of_the_call() -> None:
    async def transcribe(samples: NDArray[np.int16], rate_hz: int) -> str:
        raise RecogniserUnavailable("There is no model.", remedy="Install one.")

    result = await rehearsed(FakeLine(), transcribe=transcribe)
    assert result.error == "There is no model. Install one."


def test_a_plan_has_the_seeds_that_follow_or_the_same() -> None:
    two = [scenario("seed: 5\nsteps: [{say: a}]", "a"), scenario(name="b")]
    assert [(each.scenario.name, each.seed) for each in plan(two, repeat=2)] == [
        ("a", 5),
        ("a", 6),
        ("b", 1),
        ("b", 2),
    ]
    same = plan(two, repeat=3, seed=9, same_seed=True)
    assert [(each.seed, each.repeat) for each in same[:3]] == [(9, 0), (9, 1), (9, 2)]


async def test_seeds_reach_the_line_and_calls_are_made_at_a_time() -> None:
    line = FakeLine()
    done: list[str] = []
    planned = plan([scenario("line: {loss: 3}\nsteps: [{say: a}]")], repeat=6)
    result = await Rehearsal(parts(line), planned, lambda each: done.append(each.name)).run(3)
    assert sorted(seed for _, seed in line.settings) == [1, 2, 3, 4, 5, 6]
    assert {settings.loss for settings, _ in line.settings} == {3.0}
    assert line.most == 3
    assert [each.seed for each in result.calls] == [1, 2, 3, 4, 5, 6]
    assert len(done) == 6


async def test_the_same_verdicts_come_of_the_same_seed() -> None:
    text = HAPPY.replace("steps:", "line: {noise: white, snr_db: 40}\nsteps:")
    planned = plan([scenario(text)], repeat=20, same_seed=True)
    result = await Rehearsal(parts(FakeLine()), planned).run(5)
    assert len({tuple((v.name, v.passed) for v in each.verdicts) for each in result.calls}) == 1


async def test_an_interrupted_rehearsal_keeps_what_is_over() -> None:
    line = FakeLine()
    text = "steps: [{say: a}, {wait: quiet}]"
    long = "steps: [{say: a}, {silence: 300}]"
    planned = plan([scenario(text, "short"), scenario(long, "long")])
    over = asyncio.Event()
    rehearsal = Rehearsal(parts(line), planned, lambda result: over.set())
    running = asyncio.create_task(rehearsal.run(2))
    await asyncio.wait_for(over.wait(), 20.0)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    result: RehearsalResult = rehearsal.result
    assert [each.scenario for each in result.calls] == ["short"]
    assert (result.planned, result.complete, result.passed) == (2, False, False)
    assert all(call._hung_up for call in line.calls), "no call is left behind"


async def test_a_persona_talks_until_it_ends_the_call() -> None:
    answers = ["Hello.", "Thanks. [END]"]
    heard: list[str] = []

    async def model(messages: list[ChatMessage]) -> str:
        heard.append(messages[-1].content)
        return answers.pop(0)

    async def transcribe(samples: NDArray[np.int16], rate_hz: int) -> str:
        return f"about {len(samples) / rate_hz:.0f} s" if len(samples) else ""

    text = "caller: {model: http://x/v1, persona: Ann}\nexpect: {response_s: 1}"
    result = await rehearsed(
        FakeLine(), scenario(text), transcribe=transcribe, chat=lambda _: FunctionSource(model)
    )
    assert result.passed, (result.error, failures(result))
    assert [span.text for span in result.spans if span.side == "caller"] == ["Hello.", "Thanks."]
    assert len(heard) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [({}, "no language model"), ({"chat": FunctionSource}, "--stt")],
)
async def test_a_persona_needs_a_model_and_a_recogniser(
    changes: dict[str, Any], message: str
) -> None:
    text = "caller: {model: http://x/v1, persona: Ann}"
    result = await rehearsed(FakeLine(), scenario(text), **changes)
    assert message in result.error


async def test_calls_that_look_at_the_same_posts_are_made_one_after_the_other() -> None:
    line = FakeLine()
    text = "steps: [{say: a}]\nexpect: {webhook: [{path: /x, count: 0}]}"
    planned: list[PlannedCall] = plan([scenario(text)], repeat=3)
    result = await Rehearsal(parts(line), planned).run(3)
    assert line.most == 1
    assert result.passed
