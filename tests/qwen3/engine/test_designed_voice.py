"""A VoiceDesign checkpoint speaks a context with one voice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_engine.base import ContextVoice
from qwen3tts_engine.qwen3.api import Qwen3TTS
from qwen3tts_engine.qwen3.engine import loaded
from qwen3tts_engine.qwen3.engine.continuation import DesignedVoice
from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
from qwen3tts_engine.qwen3.engine.jobs import Job
from qwen3tts_engine.qwen3.model.prompt import NO_TEXT, Reference, build_prompt
from tests.engine.speech_like import silence, voice
from tests.parity.ours import Ours, Row
from tests.qwen3.engine.engine_world import DESCRIPTION, GREEDY, growing, made, spoken
from tests.qwen3.engine.scripted import ScriptedEngine

FIRST, SECOND = "Good morning to all of you, and welcome.", "We are glad that you have come."


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    found: list[Job] = []
    make = loaded.LoadedModel.job

    def job(self: loaded.LoadedModel, *given: Any) -> Job:
        found.append(make(self, *given))
        return found[-1]

    monkeypatch.setattr(loaded.LoadedModel, "job", job)
    return found


@pytest.fixture
async def design(tiny: dict[str, Path], jobs: list[Job]) -> AsyncIterator[Qwen3Engine]:
    engine = made(tiny["voice_design"], slots=2, max_new_tokens=60)
    await engine.start()
    yield engine
    await engine.close()


def reference_of(job: Job) -> tuple[tuple[int, ...], ...]:
    """The frames that a generation goes on from."""
    assert job.prompt is not None
    return tuple(each for each in job.prompt.codec if isinstance(each, tuple))


def codes_of(job: Job) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, frame)) for frame in job.codes)


def test_what_goes_on_from_its_own_codes_is_what_one_generation_would_have_said(
    tiny: dict[str, Path],
) -> None:
    """Text and codes of the first clause as a reference: the rest of the codes is the same."""
    ours = Ours(tiny["voice_design"])
    one, two = (tuple(ours.tokenizer.encode(text)) for text in (FIRST, SECOND))
    instruct = ours.tokenizer.encode_instructions(DESCRIPTION)

    def row(text: tuple[int, ...], reference: Reference | None) -> Row:
        prompt = build_prompt(
            ours.config, text_ids=text, instruct_ids=instruct, layout="full", reference=reference
        )
        return Row(prompt, ours.model.embed(prompt, x_vector=None), None)

    (whole,) = ours.speak([row((*one, *two), None)], 30, penalty=1.0)
    said = len(whole.codes) // 2
    assert said > 2
    frames = tuple(tuple(map(int, frame)) for frame in whole.codes[:said])
    (rest,) = ours.speak([row(two, Reference(one, frames))], 30 - said, penalty=1.0)
    np.testing.assert_array_equal(rest.codes, whole.codes[said:])


async def test_the_next_clause_goes_on_from_what_the_first_one_said(
    design: Qwen3Engine, jobs: list[Job]
) -> None:
    context = ContextVoice()
    for text in (FIRST, SECOND, FIRST):
        await spoken(design, text, instructions=DESCRIPTION, sampling=GREEDY, context=context)
    first, second, third = jobs
    assert reference_of(first) == ()
    kept = context.kept
    assert isinstance(kept, DesignedVoice)
    assert kept.reference is not None
    # All but the silence behind the last sound.
    said = reference_of(second)
    assert said == codes_of(first)[: len(said)]
    assert len(said) > 1
    assert len(reference_of(third)) >= len(reference_of(second)) > 0
    assert {job.seed for job in jobs} == {kept.seed}
    assert second.prompt is not None
    tokens = [each for each in second.prompt.text if each != NO_TEXT]
    both = [*first.track.ids, *second.track.ids]
    at = next(i for i in range(len(tokens)) if tokens[i : i + len(both)] == both)
    assert at > 0


async def test_growing_text_behind_the_first_generation_is_waited_for(
    design: Qwen3Engine, jobs: list[Job]
) -> None:
    context = ContextVoice()
    for text in (FIRST, SECOND):
        await spoken(design, "", more=growing(text), sampling=GREEDY, context=context)
    first, second = jobs
    assert first.track.streaming
    assert not second.track.streaming
    assert reference_of(second)
    assert second.track.text == SECOND


async def test_contexts_have_voices_of_their_own(design: Qwen3Engine, jobs: list[Job]) -> None:
    for _ in range(2):
        await spoken(design, FIRST, context=ContextVoice())
    assert reference_of(jobs[1]) == ()
    assert jobs[0].seed != jobs[1].seed


async def test_a_reference_without_room_leaves_the_seed(
    tiny: dict[str, Path], jobs: list[Job]
) -> None:
    engine = made(tiny["voice_design"], slots=2, positions=400, max_new_tokens=100)
    await engine.start()
    try:
        context = ContextVoice()
        await spoken(engine, FIRST, sampling=GREEDY, context=context)
        await spoken(engine, SECOND * 2, sampling=GREEDY, context=context)
    finally:
        await engine.close()
    assert {job.seed for job in jobs} == {jobs[0].seed}


async def test_what_another_generation_says_of_a_clause_has_its_voice(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch, jobs: list[Job]
) -> None:
    def script(number: int, text: str) -> Any:
        half = " ".join(text.split()[: len(text.split()) // 2])
        return voice(text) if number else np.concatenate((voice(half), silence(30.0)))

    world = ScriptedEngine(monkeypatch, script)
    engine = await world.started(tiny["voice_design"])
    try:
        await spoken(engine, f"{FIRST} {SECOND}", language="en", seed=3)
    finally:
        await engine.close()
    assert len(jobs) == 2
    assert 10 < len(reference_of(jobs[1])) < 40
    assert jobs[1].seed != jobs[0].seed == 3


def test_all_clauses_of_a_text_have_one_voice(tiny: dict[str, Path], jobs: list[Job]) -> None:
    with Qwen3TTS.load(str(tiny["voice_design"]), max_new_tokens=60) as tts:
        for mode in ("auto", "clause"):
            jobs.clear()
            tts.generate(f"{FIRST} {SECOND} {FIRST}", instructions=DESCRIPTION, mode=mode)
            assert len(jobs) > 2
            assert all(reference_of(job) for job in jobs[1:])
