"""A streaming prompt's constant beginning is kept by voice; its last position is a step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from qwen3tts_engine.qwen3.kernels.cuda import CpuStreams
from qwen3tts_engine.qwen3.kernels.runner import LaunchMode, Runner
from qwen3tts_engine.qwen3.kernels.step_runner import DecodeRow, PrefillRow, StepRow
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.prompt import Prompt, build_prompt
from qwen3tts_engine.qwen3.model.sampling import Sampling
from tests.qwen3.kernels.fake_cuda import Recorder

GREEDY = Sampling(temperature=0.0, predictor_temperature=0.0)
FREE = Sampling(temperature=0.9, top_k=50)


@pytest.fixture(scope="module")
def model(tiny: dict[str, Path]) -> Qwen3Model:
    return Qwen3Model.load(tiny["custom_voice"])


def prompt(model: Qwen3Model, text: int, speaker: str = "ryan") -> Prompt:
    return build_prompt(
        model.config, text_ids=[text], speaker=speaker, language="english", layout="growing"
    )


def head(whole: Prompt) -> Prompt:
    cut = whole.prefix
    return Prompt(whole.text[:cut], whole.codec[:cut], (), cut)


def frames(runner: Runner, slots: list[int], text: list[int]) -> NDArray[np.int64]:
    """Codes [frames, rows, 16], and the sound of all of them is asked for."""
    tickets = [runner.step([StepRow(slot, token, False) for slot in slots]) for token in text]
    runner.decode([DecodeRow(slot, 0, len(text)) for slot in slots]).wait()
    return np.stack([ticket.wait() for ticket in tickets])


@pytest.mark.parametrize("sampling", [GREEDY, FREE], ids=["greedy", "free"])
@pytest.mark.parametrize("captures", [True, False])
def test_codes_are_those_of_a_whole_prefill(
    model: Qwen3Model, sampling: Sampling, captures: bool
) -> None:
    prompts = [prompt(model, 40), prompt(model, 77, "serena"), prompt(model, 123)]
    plain = Runner(model, slots=3, positions=96)
    rows = [
        PrefillRow(slot, model.embed(each), sampling, slot) for slot, each in enumerate(prompts)
    ]
    plain.prefill(rows)
    expected = frames(plain, [0, 1, 2], [9, 8, 7, 6, 5])

    backend = Recorder() if captures else None
    mode = LaunchMode(static=True, streams=CpuStreams(model.device), backend=backend)
    runner = Runner(model, slots=3, positions=96, launch=mode)
    assert runner.steps_prompts
    assert not plain.steps_prompts
    if backend is not None:
        runner.warmup()
    # A row that has gone far before, and one that speaks beside them.
    kept = [runner.prefill_prefix(2, model.embed(head(each))) for each in prompts]
    if backend is not None:
        backend.replays = 0
    runner.prefill(
        [
            PrefillRow(slot, None, sampling, slot, prefix=kept[slot], position=(each.text[-1], bos))
            for slot, each in enumerate(prompts)
            if isinstance(bos := each.codec[-1], int)
        ]
    )
    if backend is not None:
        # One replay of a talker step for all; no prefill.
        assert backend.replays == 1
    assert np.array_equal(frames(runner, [0, 1, 2], [9, 8, 7, 6, 5]), expected)
    assert runner.kv_cache.frame[:3].tolist() == [5, 5, 5]


def test_scores_are_those_of_a_whole_prefill(model: Qwen3Model) -> None:
    whole = prompt(model, 40)
    plain = Runner(model, slots=1, positions=96)
    plain.prefill([PrefillRow(0, model.embed(whole), GREEDY, 0)])
    mode = LaunchMode(static=True, streams=CpuStreams(model.device), backend=Recorder())
    runner = Runner(model, slots=1, positions=96, launch=mode)
    kept = runner.prefill_prefix(0, model.embed(head(whole)))
    bos = model.config.talker.ids.bos
    assert whole.codec[-1] == bos
    row = PrefillRow(0, None, GREEDY, 0, prefix=kept, position=(40, bos))
    runner.prefill([row])
    assert torch.allclose(runner.kv_cache.logits[0], plain.kv_cache.logits[0], atol=1e-4)
    assert runner.kv_cache.pos[0] == len(whole)
    assert runner.kv_cache.frame[0] == 0
    assert kept.length == len(whole) - 1
    # Of a whole prompt's prefill it is the same.
    runner.free(0)
    runner.prefill([PrefillRow(0, model.embed(whole), GREEDY, 0)])
    again = runner.snapshot_prefix(0, len(whole) - 1)
    assert torch.allclose(again.kv, kept.kv, atol=1e-5)


def test_rows_with_and_without_a_kept_beginning_are_admitted_together(model: Qwen3Model) -> None:
    first, second = prompt(model, 40), prompt(model, 55, "serena")
    mode = LaunchMode(static=True, streams=CpuStreams(model.device), backend=Recorder())
    runner = Runner(model, slots=2, positions=96, launch=mode)
    alone = [
        PrefillRow(slot, model.embed(each), GREEDY, 0) for slot, each in enumerate((first, second))
    ]
    runner.prefill(alone)
    expected = frames(runner, [0, 1], [9, 8, 7])
    runner.free(0)
    runner.free(1)
    kept = runner.prefill_prefix(0, model.embed(head(first)))
    bos = model.config.talker.ids.bos
    runner.prefill([PrefillRow(0, None, GREEDY, 0, prefix=kept, position=(40, bos)), alone[1]])
    assert np.array_equal(frames(runner, [0, 1], [9, 8, 7]), expected)
