"""Residual sums are in place: on CUDA, ``addmm`` with a matrix to add to first copies it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.step import prefill
from tests.qwen3.model.rows import Stage, script
from tests.qwen3.model.small import small_config, small_weights

FRAMES = 4


@pytest.fixture(scope="module", params=[False, True], ids=["same width", "projection"])
def model(request: pytest.FixtureRequest) -> Qwen3Model:
    config = small_config(projection=request.param)
    return Qwen3Model.from_weights(config, *small_weights(config), fused_norm=True)


class _Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts products that are added to a matrix elsewhere, and those added in place."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.copied = self.in_place = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func.overloadpacket is torch.ops.aten.addmm and args[0].dim() == 2:
            out = kwargs.get("out")
            self.copied += out is None or out.data_ptr() != args[0].data_ptr()
        self.in_place += func.overloadpacket is torch.ops.aten.addmm_
        return func(*args, **kwargs)


def counted(run: Callable[[], object]) -> tuple[int, int]:
    """Copies, and sums in place."""
    with _Copies() as found:
        run()
    return found.copied, found.in_place


def test_the_step_the_codec_and_prefill_copy_no_matrix_to_add_to_it(model: Qwen3Model) -> None:
    stage, row = Stage(model, slots=2), script(model, 1, 1, Sampling())
    config, decoder = model.config, model.decoder
    talker, predictor = config.talker.layers.layers, config.predictor.layers.layers
    assert counted(lambda: stage.prefill({0: row})) == (0, 2 * talker)
    codebooks = config.talker.code_groups
    sums = 2 * talker + 2 * predictor * (codebooks - 1)
    assert counted(lambda: stage.step([0])) == (0, sums)
    state, slots = decoder.new_state(2), torch.arange(2)
    codes = torch.zeros(2, 1, codebooks, dtype=torch.int64)
    # A CPU may have products of its own.
    assert counted(lambda: decoder.run(state, slots, codes))[0] == 0


def test_prefill_leaves_its_input_alone(model: Qwen3Model) -> None:
    """It is the static input of a captured graph, and its padding is not written again."""
    stage, row = Stage(model, slots=1), script(model, 2, 1)
    kv_cache, embeds = stage.kv_cache, row.embeds[None].clone()
    kv_cache.reset(0, row.sampling, 0)
    slot, length = torch.zeros(1, dtype=torch.int64), torch.tensor([embeds.shape[1]])
    prefill(model, kv_cache, slot, embeds, length, slot)
    assert torch.equal(embeds, row.embeds[None])


def test_in_place_is_bit_equal(model: Qwen3Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoken() -> tuple[Tensor, Tensor, Tensor]:
        stage, row = Stage(model, slots=2), script(model, 3, FRAMES, Sampling())
        stage.prefill({1: row})
        for _ in range(FRAMES):
            stage.step([1])
        codes = stage.codes(1)
        audible = codes.clamp(max=model.config.codec.decoder.codebook_size - 1)
        return codes, stage.kv_cache.logits, model.decoder.decode(audible)

    def elsewhere(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return x.copy_(torch.addmm(x, a, b))

    ours = spoken()
    monkeypatch.setattr(torch.Tensor, "addmm_", elsewhere)
    for mine, theirs in zip(ours, spoken(), strict=True):
        assert torch.equal(mine, theirs)
