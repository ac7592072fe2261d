"""Matrices of 8 and 4 bits: how far they are off, and that a row does not depend on the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from qwen3tts_engine.qwen3.api import Qwen3TTS
from qwen3tts_engine.qwen3.kernels.memory import tensor_bytes
from qwen3tts_engine.qwen3.model import quantized as module
from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.quantized import (
    QUANTIZE,
    Int4Matrix,
    Int8Matrix,
    Packing,
    add_product,
    bits_of,
    multiply,
    pack,
    plain,
    restore,
    stored_form,
    usable,
)
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.step import frame_step, prefill
from qwen3tts_wire.errors import EngineUnavailable
from tests.qwen3.engine.engine_world import assert_same

SHAPES = ((1024, 1024), (256, 2048), (2048, 96), (48, 64), (16, 32))
OFF = {4: 0.11, 8: 0.0125, 16: 5e-5}
"""Error of a random matrix's weights, relative."""
PRODUCT = {4: 5e-3, 8: 2e-4, 16: 2e-4}
"""Error of a product beside the exact one of the same quantized weights."""


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def made(matrix: Tensor, bits: int) -> tuple[Any, Tensor]:
    """The packed matrix, and its quantized weights."""
    parts = QUANTIZE[bits](matrix)
    return pack(stored_form(parts, bits), bits), restore(parts, bits)


def off(found: Tensor, right: Tensor) -> float:
    return float((found.double() - right.double()).norm() / right.double().norm())


@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_weights_and_products_are_within_their_bits(bits: int, rows: int, columns: int) -> None:
    matrix, x = noise(rows, columns), noise(5, columns, seed=1)
    packed, weights = made(matrix, bits)
    assert off(weights, matrix) < OFF[bits]
    assert off(packed.multiply(x), x @ weights.t()) < PRODUCT[bits]


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_a_row_is_the_same_beside_any_others(bits: int) -> None:
    packed, _ = made(noise(1040, 1024), bits)
    x = noise(33, 1024, seed=1)
    x[20] *= 1e4
    together = packed.multiply(x)
    for first, count in ((0, 1), (3, 2), (7, 5), (1, 16), (20, 1)):
        assert torch.equal(packed.multiply(x[first:][:count]), together[first:][:count])


def test_an_outlier_of_the_input_costs_little() -> None:
    packed, weights = made(noise(64, 1024), 8)
    x = noise(1, 1024, seed=1)
    x[0, 5] = 100.0
    assert off(packed.multiply(x), x @ weights.t()) < 2e-3


def test_the_largest_values_do_not_overflow() -> None:
    packed, weights = made(torch.full((32, 3072), -2.0), 8)
    x = torch.full((2, 3072), 7.0)
    x[1] = -7.0
    assert off(packed.multiply(x), x @ weights.t()) < 1e-6


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_zeros_are_zeros_and_lost_rows_stay_lost(bits: int) -> None:
    packed, _ = made(torch.zeros(32, 64), bits)
    assert not packed.multiply(noise(3, 64)).any()
    packed, _ = made(noise(32, 64), bits)
    assert not packed.multiply(torch.zeros(3, 64)).any()
    x = noise(3, 64)
    x[1, 2] = torch.nan
    found = packed.multiply(x)
    assert not found[1].isfinite().any()
    assert found[[0, 2]].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_are_written_and_added(dtype: torch.dtype) -> None:
    packed, weights = made(noise(32, 64), 8)
    x, sums = noise(3, 64).to(dtype), noise(3, 32, seed=2).to(dtype)
    product = multiply(x, packed)
    assert product.dtype == dtype
    out = torch.empty(3, 32, dtype=dtype)
    assert multiply(x, packed, out) is out
    assert torch.equal(out, product)
    right = sums + x.float() @ weights.t()
    assert off(add_product(sums, x, packed), right) < 1e-2
    with pytest.raises(ValueError, match="packed"):
        plain(packed)
    assert plain(weights) is weights


@pytest.mark.parametrize(
    ("name", "int8", "int4"),
    [
        ("talker.model.layers.3.qkv", 8, 4),
        ("talker.code_predictor.model.layers.3.qkv", 8, 8),
        ("talker.code_predictor.lm_head.3", 8, 8),
        ("talker.code_predictor.projection", 16, 16),
        ("talker.codec_head", 16, 16),
    ],
)
def test_each_matrix_has_its_bits(name: str, int8: int, int4: int) -> None:
    assert (bits_of("int8", name), bits_of("int4", name)) == (int8, int4)


@pytest.mark.parametrize("broken", ["wrong", "missing"])
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_without_a_right_kernel_the_same_weights_are_multiplied_plainly(
    monkeypatch: pytest.MonkeyPatch, broken: str, quantization: Any
) -> None:
    class Broken:
        def multiply(self, x: Tensor) -> Tensor:
            return x.new_zeros(len(x), 128)

    def failing(_parts: object, _bits: int) -> Broken:
        if broken == "missing":
            raise RuntimeError("Didn't find engine for operation quantized::linear_prepack")
        return Broken()

    monkeypatch.setattr(module, "_usable", {})
    monkeypatch.setattr(module, "pack", failing)
    assert not usable(8)
    assert not usable(4)
    matrix, x = noise(32, 64), noise(2, 64, seed=1)
    packing = Packing(quantization, module.MemoryStore()).under("talker.model.layers.0.")
    found = packing.matrix("qkv", lambda: matrix)
    weights = restore(QUANTIZE[8 if quantization == "int8" else 4](matrix), packing_bits(packing))
    assert isinstance(found, Tensor)
    assert off(multiply(x, found), x @ weights.t()) < 1e-6


def packing_bits(packing: Packing) -> int:
    return bits_of(packing.quantization, f"{packing.prefix}qkv")


def test_a_matrix_that_4_bits_do_not_fit_has_8() -> None:
    packing = Packing("int4", module.MemoryStore(), "talker.model.layers.0.")
    assert isinstance(packing.matrix("out", lambda: noise(32, 64)), Int4Matrix)
    assert isinstance(packing.matrix("out", lambda: noise(24, 64)), Int8Matrix)
    assert isinstance(packing.matrix("out", lambda: noise(32, 48)), Int8Matrix)


# --- a whole model ---


@pytest.fixture(scope="module", params=["int8", "int4"])
def quantized(
    request: pytest.FixtureRequest, tiny: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Qwen3Model, str, Path]:
    cache = tmp_path_factory.mktemp("cache")
    model = Qwen3Model.load(tiny["custom_voice"], quantize=request.param, quantize_cache=cache)
    return model, request.param, cache


def logits_of(model: Qwen3Model, rows: list[int]) -> dict[int, Tensor]:
    """All logits of rows whose prompts have different lengths, some frames long."""
    lengths, hidden = {0: 5, 1: 70, 2: 20}, model.config.talker.layers.hidden
    kv_cache, slots = KvCache(model.config, slots=3, positions=128), torch.tensor(rows)
    for row in rows:
        kv_cache.reset(row, Sampling(), row)
        embeds = noise(1, lengths[row], hidden, seed=row) * 0.1
        length, start = torch.tensor([lengths[row]]), torch.zeros(1, dtype=torch.int64)
        prefill(model, kv_cache, torch.tensor([row]), embeds, length, start, kv_len=lengths[row])
    text, may_end = torch.full((len(rows),), 5), torch.zeros(len(rows), dtype=torch.bool)
    found: dict[int, list[Tensor]] = {row: [kv_cache.logits[row].clone()] for row in rows}
    for frame in range(4):
        kv_len = 64 if max(lengths[row] for row in rows) + frame < 64 else 128
        frame_step(model, kv_cache, slots, text, may_end, kv_len)
        for row in rows:
            found[row].append(kv_cache.logits[row].clone())
    return {row: torch.stack(each) for row, each in found.items()}


def test_rows_do_not_depend_on_their_neighbours(quantized: tuple[Qwen3Model, str, Path]) -> None:
    model = quantized[0]
    together, others = logits_of(model, [0, 1, 2]), logits_of(model, [2, 0])
    for row in range(3):
        alone = logits_of(model, [row])[row]
        assert torch.equal(together[row], alone)
        assert row not in others or torch.equal(others[row], alone)


def test_logits_are_near_those_of_float32(
    quantized: tuple[Qwen3Model, str, Path], tiny: dict[str, Path]
) -> None:
    model, name, _ = quantized
    right = logits_of(Qwen3Model.load(tiny["custom_voice"]), [0, 1, 2])
    first = {row: each[0] for row, each in logits_of(model, [0, 1, 2]).items()}
    for row, logits in right.items():
        error = off(first[row] - first[row].mean(), logits[0] - logits[0].mean())
        assert 0 < error < (0.03 if name == "int8" else 0.3)


def test_streamed_is_what_is_made_offline(
    quantized: tuple[Qwen3Model, str, Path], tiny: dict[str, Path]
) -> None:
    _, name, cache = quantized
    text = "Good morning."
    settings: dict[str, Any] = {"quantize": name, "quantize_cache": cache}
    with Qwen3TTS.load(str(tiny["custom_voice"]), **settings) as tts:
        offline, _ = tts.generate(text, mode="live", seed=3)
        alone = list(tts.stream(iter(text), mode="live", seed=3, frames_per_emission=1))
        beside: list[Any] = [tts.stream(text * 2, mode="live", seed=seed) for seed in range(2)]
        for stream in beside:
            next(stream)
        pieces = list(tts.stream(iter(text), mode="live", seed=3, frames_per_emission=2))
        for stream in beside:
            stream.close()
    for made_of in (alone, pieces):
        assert_same(torch.cat([torch.from_numpy(pcm) for pcm, _ in made_of]).numpy(), offline)


def test_packed_bytes_are_counted(quantized: tuple[Qwen3Model, str, Path]) -> None:
    layer = quantized[0].talker.stack.layers[0]
    values = sum(each.bytes for each in (layer.qkv, layer.out) if not isinstance(each, Tensor))
    assert tensor_bytes([layer.qkv, layer.out], torch.device("cpu")) >= values > 0


@pytest.mark.parametrize("task", ["base", "voice_design"])
def test_every_checkpoint_is_quantized(tiny: dict[str, Path], task: str, tmp_path: Path) -> None:
    for _ in range(2):
        model = Qwen3Model.load(tiny[task], quantize="int8", quantize_cache=tmp_path)
        assert model.notes == []
        assert isinstance(model.talker.head, Int8Matrix)


def test_a_gpu_is_refused(tiny: dict[str, Path]) -> None:
    with pytest.raises(EngineUnavailable, match="for a CPU, not for cuda") as caught:
        Qwen3Model.load(tiny["base"], quantize="int8", device="cuda")
    assert "device cpu" in caught.value.remedy
