"""The persistent predictor, run by Triton's interpreter with a grid of 1, against plain torch.

Run by test_predictor_kernel.py in a process of its own, like triton_cases.py.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from qwen3tts_engine.qwen3.kernels import persistent_predictor as module
from qwen3tts_engine.qwen3.kernels.persistent_predictor import PersistentPredictor
from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampler import FrameRows, TorchSampler
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.transformer import TORCH_KERNELS
from tests.qwen3.model.rows import GREEDY, Script, Stage
from tests.qwen3.model.small import small_config, small_weights

SAMPLED = (
    GREEDY,
    Sampling(),
    Sampling(predictor_temperature=1.4, predictor_top_k=64),
    Sampling(temperature=0.0, predictor_top_k=1),
)


def a_config(*, projection: bool) -> ModelConfig:
    """Few codebooks and codes: an interpreted tile takes a millisecond."""
    config = small_config(projection=projection)
    return replace(
        config,
        talker=replace(config.talker, code_groups=4),
        predictor=replace(config.predictor, vocab=64, groups=3),
    )


def a_model(
    *, projection: bool = False, fused: bool = True, dtype: torch.dtype = torch.float32
) -> tuple[Qwen3Model, PersistentPredictor]:
    config = a_config(projection=projection)
    model = Qwen3Model.from_weights(config, *small_weights(config), dtype=dtype, fused_norm=fused)
    return model, PersistentPredictor.build(model.predictor, config.predictor, programs=1)


def codes_of(model: Qwen3Model, rows: int, frames: int) -> Tensor:
    """[rows, frames, codebooks]."""
    stage = Stage(model, slots=rows)
    draw = torch.Generator().manual_seed(3)
    scripts = {
        row: Script(
            torch.randn(3 + row, model.config.talker.layers.hidden, generator=draw),
            [5 + row] * frames,
            SAMPLED[row % len(SAMPLED)],
            seed=11 * row,
        )
        for row in range(rows)
    }
    stage.prefill(scripts)
    # Rows in another order than their slots.
    for _ in range(frames):
        stage.step([*reversed(range(rows))], padding_rows=rows == 3)
    return torch.stack([stage.codes(row) for row in range(rows)])


@pytest.mark.parametrize(
    ("projection", "fused", "rows", "frames"),
    [(False, False, 1, 2), (True, True, 3, 1), (False, True, 8, 1)],
)
def test_the_codes_are_those_of_plain_torch(
    projection: bool, fused: bool, rows: int, frames: int
) -> None:
    model, persistent = a_model(projection=projection, fused=fused)
    want = codes_of(model, rows, frames)
    model.kernels = replace(TORCH_KERNELS, predict=persistent)
    got = codes_of(model, rows, frames)
    assert got.tolist() == want.tolist()
    # Each program adds one to the counter at each barrier; nothing resets it between launches.
    assert module.barriers(model.config.predictor) == 3 * (5 * 2 + 2) - 1
    assert persistent.counter.item() == frames * module.barriers(model.config.predictor)


def test_rows_that_it_does_not_serve_take_the_plain_path() -> None:
    model, persistent = a_model()
    hidden = model.config.predictor.layers.hidden
    for rows, full_sort in ((1, True), (module.MOST_ROWS + 1, False)):
        cache = KvCache(model.config, slots=rows, positions=1)
        slots = torch.arange(rows)
        frame = FrameRows(model.constants, cache, slots, slots, full_sort)
        assert not persistent(torch.zeros(2, rows, hidden), TorchSampler(frame))
    assert persistent.counter.item() == 0


def test_the_check_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECKED_ROWS", (1, 2))
    module.check(*a_model(dtype=torch.bfloat16, projection=True))


def test_the_check_finds_a_kernel_that_does_something_else() -> None:
    model, persistent = a_model()
    turned = replace(persistent, rotations=persistent.rotations.flip(1))
    with pytest.raises(ArithmeticError, match="logits"):
        module.check(model, turned)
    # Codebooks 1 and 2 with each other's head.
    table = persistent.table.clone()
    heads = 6 * model.config.predictor.layers.layers
    table[[heads, heads + 1]] = table[[heads + 1, heads]]
    with pytest.raises(ArithmeticError, match="logits"):
        module.check(model, replace(persistent, table=table))
