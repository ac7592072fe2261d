from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from qwen3tts_engine.qwen3.kernels.runner import Runner
from qwen3tts_engine.qwen3.kernels.step_runner import DecodeRow, PrefillRow, StepRow
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.prompt import build_prompt
from qwen3tts_engine.qwen3.model.sampling import Sampling

GREEDY = Sampling(temperature=0.0, predictor_temperature=0.0)
FRAME = 1920


@pytest.fixture(scope="module")
def model(tiny: dict[str, Path]) -> Qwen3Model:
    return Qwen3Model.load(tiny["custom_voice"])


@pytest.fixture
def runner(model: Qwen3Model) -> Runner:
    return Runner(model, slots=3, positions=256)


def prompt(model: Qwen3Model, text: str = "Good morning.") -> torch.Tensor:
    assert model.tokenizer is not None
    ids = model.tokenizer.encode(text)
    return model.embed(build_prompt(model.config, text_ids=ids, speaker="ryan", layout="full"))


def prefilled(runner: Runner, slot: int, embeds: torch.Tensor, **fields: object) -> None:
    values = {"sampling": GREEDY, "seed": 1, **fields}
    runner.prefill([PrefillRow(slot, embeds, **values)])  # type: ignore[arg-type]


def frames(runner: Runner, slots: Sequence[int], count: int) -> NDArray[np.int64]:
    """Codes [slots, count, 16]."""
    pad = runner.model.config.text_ids.tts_pad
    rows = [StepRow(slot, pad, False) for slot in slots]
    return np.stack([runner.step(rows).wait() for _ in range(count)], axis=1)


def sound(runner: Runner, slot: int, first: int, count: int) -> NDArray[np.float32]:
    heard: NDArray[np.float32] = runner.decode([DecodeRow(slot, first, count)]).wait()[0]
    return heard


def test_rows_that_share_a_step_have_the_codes_they_have_alone(
    runner: Runner, model: Qwen3Model
) -> None:
    texts = ["Good morning.", "This is the line, and it works."]
    alone = []
    for text in texts:
        prefilled(runner, 0, prompt(model, text))
        alone.append(frames(runner, [0], 12)[0])
        runner.free(0)
    runner.prefill(
        [PrefillRow(slot, prompt(model, text), GREEDY, 1) for slot, text in enumerate(texts)]
    )
    together = frames(runner, [0, 1], 12)
    assert np.array_equal(together[0], alone[0])
    assert np.array_equal(together[1], alone[1])


def test_a_row_that_skips_steps_goes_on_where_it_was(runner: Runner, model: Qwen3Model) -> None:
    prefilled(runner, 2, prompt(model))
    whole = frames(runner, [2], 10)[0]
    runner.free(2)
    prefilled(runner, 2, prompt(model))
    prefilled(runner, 0, prompt(model, "Another."))
    parts = [frames(runner, [2], 4)[0]]
    frames(runner, [0], 5)
    parts.append(frames(runner, [2, 0], 6)[0])
    assert np.array_equal(np.concatenate(parts), whole)


def test_a_prompts_kept_beginning_changes_nothing(runner: Runner, model: Qwen3Model) -> None:
    embeds = prompt(model)
    prefilled(runner, 0, embeds)
    whole = frames(runner, [0], 10)
    kept = runner.prefill_prefix(1, embeds[:6])
    assert kept.length == 6
    assert kept.bytes > 0
    prefilled(runner, 1, embeds[6:], prefix=kept)
    assert np.array_equal(frames(runner, [1], 10), whole)


def test_sound_is_that_of_the_whole_decode_however_it_is_cut(
    runner: Runner, model: Qwen3Model
) -> None:
    prefilled(runner, 0, prompt(model))
    codes = frames(runner, [0], 15)[0]
    parts = [sound(runner, 0, first, count) for first, count in ((0, 1), (1, 2), (3, 4), (7, 8))]
    whole = model.decoder.decode(torch.from_numpy(codes)).numpy()
    assert np.abs(np.concatenate(parts) - whole).max() < 1e-4


def test_the_ring_of_codes_goes_round(runner: Runner, model: Qwen3Model) -> None:
    prefilled(runner, 0, prompt(model))
    heard, codes = [], []
    for first in range(0, 100, 20):
        codes.append(frames(runner, [0], 20)[0])
        heard.append(sound(runner, 0, first, 20))
    whole = model.decoder.decode(torch.from_numpy(np.concatenate(codes))).numpy()
    assert np.abs(np.concatenate(heard) - whole).max() < 1e-4


def test_a_replay_is_the_same_sound_and_leaves_the_same_state(
    runner: Runner, model: Qwen3Model
) -> None:
    prefilled(runner, 0, prompt(model))
    codes = frames(runner, [0], 40)[0]
    first = sound(runner, 0, 0, 30)
    # As a decode that broke off would leave it.
    sound(runner, 0, 30, 3)
    assert np.abs(runner.replay(0, None, codes[:30]) - first).max() < 1e-4
    whole = model.decoder.decode(torch.from_numpy(codes)).numpy()
    assert np.abs(sound(runner, 0, 30, 10) - whole[30 * FRAME :]).max() < 1e-4


def test_a_slot_that_was_used_starts_over(runner: Runner, model: Qwen3Model) -> None:
    prefilled(runner, 0, prompt(model))
    first = frames(runner, [0], 8)
    heard = sound(runner, 0, 0, 8)
    frames(runner, [0], 30)
    runner.free(0)
    prefilled(runner, 0, prompt(model))
    assert np.array_equal(frames(runner, [0], 8), first)
    assert np.abs(sound(runner, 0, 0, 8) - heard).max() < 1e-5


def test_after_a_fault_it_starts_over(runner: Runner, model: Qwen3Model) -> None:
    prefilled(runner, 0, prompt(model))
    first = frames(runner, [0], 8)
    runner.reset()
    prefilled(runner, 0, prompt(model))
    assert np.array_equal(frames(runner, [0], 8), first)


def test_a_row_that_needs_all_scores_gets_them(runner: Runner, model: Qwen3Model) -> None:
    sampling = Sampling(temperature=0.7, top_k=0, top_p=0.9)
    assert sampling.needs_full_sort
    prefilled(runner, 0, prompt(model), sampling=sampling)
    prefilled(runner, 1, prompt(model))
    greedy = frames(runner, [0, 1], 6)[1]
    prefilled(runner, 2, prompt(model))
    assert np.array_equal(frames(runner, [2], 6)[0], greedy)


def test_it_is_warm_without_a_trace(runner: Runner, model: Qwen3Model) -> None:
    told: list[tuple[str, int, int]] = []
    prefilled(runner, 0, prompt(model))
    first = frames(runner, [0], 8)
    runner.free(0)
    runner.warmup(lambda *what: told.append(what))
    runner.warmup()
    prefilled(runner, 0, prompt(model))
    assert np.array_equal(frames(runner, [0], 8), first)
    assert told
    assert told[-1][1] == told[-1][2]
