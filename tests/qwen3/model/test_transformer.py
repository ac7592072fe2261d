"""What is packed and folded computes what it stands for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_engine.qwen3.model.config import LayersConfig
from qwen3tts_engine.qwen3.model.config_fields import BadCheckpoint
from qwen3tts_engine.qwen3.model.transformer import (
    TORCH_KERNELS,
    RmsNorm,
    fold_columns,
    has_fused_norm,
    length_mask,
    load_stack,
    rotary_angles,
    rotate,
    slot_attention,
    write_kv,
)
from tests.qwen3.model.small import norm, rotary, small_config, small_weights

CPU = torch.device("cpu")


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class TestNorm:
    @pytest.mark.parametrize("fused", [False, True])
    @pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
    def test_it_is_the_formula(self, fused: bool, scale: float) -> None:
        x, weight = noise(5, 3, 48) * scale, noise(48, seed=1)
        found = RmsNorm.build(48, 1e-5, weight, device=CPU, fused=fused)(x)
        torch.testing.assert_close(found, norm(x, weight, 1e-5), rtol=2e-6, atol=1e-6)

    @pytest.mark.parametrize("fused", [False, True])
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half_precision_sums_in_float32(self, fused: bool, dtype: torch.dtype) -> None:
        """Squares of 300 and more do not fit into float16."""
        x, weight = (noise(4, 64) * 900).to(dtype), noise(64, seed=1).to(dtype)
        found = RmsNorm.build(64, 1e-6, weight, device=CPU, fused=fused)(x)
        assert found.dtype == dtype
        exact = norm(x.float(), weight.float(), 1e-6)
        torch.testing.assert_close(found.float(), exact, rtol=3 * torch.finfo(dtype).eps, atol=0.01)

    @pytest.mark.parametrize("fused", [False, True])
    def test_the_matrix_behind_it_may_hold_its_weight(self, fused: bool) -> None:
        x, weight, matrix = noise(7, 20), noise(20, seed=1), noise(11, 20, seed=2)
        inside = weight if fused else None
        before = RmsNorm.build(20, 1e-6, inside, device=CPU, fused=fused)
        found = before(x) @ fold_columns(matrix, weight, fused=fused).t()
        torch.testing.assert_close(found, norm(x, weight, 1e-6) @ matrix.t(), rtol=1e-5, atol=1e-5)
        spoilt = fold_columns(matrix.clone(), weight, fused=fused, spoil=True)
        assert torch.equal(spoilt, fold_columns(matrix, weight, fused=fused))

    def test_only_a_gpu_has_it_fused_and_not_in_every_torch(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cuda = torch.device("cuda")
        for returns, has in ((2, True), (1, False)):
            schema = SimpleNamespace(returns=[None] * returns)
            op = SimpleNamespace(default=SimpleNamespace(_schema=schema))
            monkeypatch.setattr(torch.ops.aten, "_fused_rms_norm", op, raising=False)
            assert has_fused_norm(cuda) == has
            assert not has_fused_norm(CPU)


@pytest.mark.parametrize("projection", [False, True])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("part", ["talker", "predictor"])
def test_a_packed_layer_holds_all_its_matrices(part: str, fused: bool, projection: bool) -> None:
    config = small_config(projection=projection)
    weights = small_weights(config)[0]
    prefix = "talker.model." if part == "talker" else "talker.code_predictor.model."
    layers = config.talker.layers if part == "talker" else config.predictor.layers
    under = weights.under(prefix)
    stack = load_stack(under, layers, device=CPU, dtype=torch.float32, fused=fused)
    x, positions = noise(5, layers.hidden), torch.tensor([0, 3, 9, 1, 60])
    group = layers.heads // layers.kv_heads
    angles = rotary_angles(layers, 64, CPU).index_select(0, positions)
    together = stack.rotations(angles)
    for number, layer in enumerate(stack.layers):
        at = under.under(f"layers.{number}.")
        h = norm(x, at["input_layernorm.weight"], layers.rms_eps)
        heads = stack.heads(layer.project(x, TORCH_KERNELS))
        parts = torch.split(heads, [group, 1, 1], dim=2)
        for name, found in zip("qkv", parts, strict=True):
            expected = h @ at[f"self_attn.{name}_proj.weight"].t()
            torch.testing.assert_close(found.flatten(1), expected, rtol=1e-4, atol=1e-5)
        value = parts[2].clone()
        rotation = stack.rotations_of(number, angles)
        torch.testing.assert_close(rotation, together[number])
        rotate(heads, stack.head_norm, rotation)
        for name, found in zip("qk", torch.split(heads, [group, 1, 1], dim=2), strict=False):
            expected = (h @ at[f"self_attn.{name}_proj.weight"].t()).view(5, -1, layers.head_dim)
            expected = norm(expected, at[f"self_attn.{name}_norm.weight"], layers.rms_eps)
            expected = rotary(expected, positions, layers.rope_theta)
            torch.testing.assert_close(found.flatten(1, 2), expected, rtol=1e-4, atol=1e-4)
        assert torch.equal(heads[:, :, -1:], value)
        attended = noise(5, layers.heads * layers.head_dim)
        before, x = x, x + attended @ at["self_attn.o_proj.weight"].t()
        h = norm(x, at["post_attention_layernorm.weight"], layers.rms_eps)
        gate, up = (h @ at[f"mlp.{name}_proj.weight"].t() for name in ("gate", "up"))
        expected = x + (torch.nn.functional.silu(gate) * up) @ at["mlp.down_proj.weight"].t()
        added = layer.add(before.clone(), attended, TORCH_KERNELS)
        torch.testing.assert_close(added, expected, rtol=1e-4, atol=1e-4)


def test_a_tensor_of_the_wrong_shape_is_named() -> None:
    config = small_config(projection=False)
    weights = small_weights(config)[0]
    name = "talker.model.layers.1.mlp.up_proj.weight"
    wrong = Weights(
        "some file",
        {one: (7, 7) if one == name else tuple(weights[one].shape) for one in weights.names()},
        lambda one: torch.zeros(7, 7) if one == name else weights[one],
    )
    with pytest.raises(BadCheckpoint, match=name):
        load_stack(
            wrong.under("talker.model."),
            config.talker.layers,
            device=CPU,
            dtype=torch.float32,
            fused=False,
        )


def test_angles_are_exact_far_out() -> None:
    layers = LayersConfig(8, 8, 1, 1, 1, 128, 1e-6, 1e6)
    found = rotary_angles(layers, 4096, CPU)
    exact = torch.tensor(4095.0, dtype=torch.float64) / 1e6 ** (
        torch.arange(64, dtype=torch.float64) / 64
    )
    assert found.shape == (4096, 2, 2, 64)
    # A float32 angle of 4095 is right to 2e-4.
    torch.testing.assert_close(found[-1, 0, 0].double(), exact.cos(), rtol=0, atol=4e-4)
    torch.testing.assert_close(found[-1, 1, 0].double(), exact.sin(), rtol=0, atol=4e-4)
    torch.testing.assert_close(found[:, 0, 1], -found[:, 1, 0])
    torch.testing.assert_close(found[:, 0, 0], found[:, 1, 1])


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 5),
    kv_heads=st.integers(1, 3),
    queries=st.integers(1, 3),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_attention_sees_its_own_slot_up_to_its_own_position(
    rows: int, kv_heads: int, queries: int, seed: int, data: st.DataObject
) -> None:
    positions, dim = 12, 8
    cache = noise(7, positions, kv_heads, 2, dim, seed=seed)
    slots = torch.tensor(data.draw(st.permutations(range(7)))[:rows])
    pos = torch.tensor(
        data.draw(st.lists(st.integers(0, positions - 1), min_size=rows, max_size=rows))
    )
    kv_len = data.draw(st.integers(int(pos.max()) + 1, positions))
    q, new = noise(rows, kv_heads, queries, dim), noise(rows, kv_heads, 2, dim, seed=seed + 1)
    before = cache.clone()
    write_kv(cache, slots, pos, new)
    before[slots, pos] = new
    assert torch.equal(cache, before)
    mask = length_mask(pos, torch.arange(kv_len), torch.zeros(()))
    found = slot_attention(q, cache, slots, pos, kv_len, mask=mask)
    torch.testing.assert_close(found, slot_attention(q, cache, slots, pos, kv_len))
    assert found.shape == q.shape
    for row in range(rows):
        length = int(pos[row]) + 1
        k, v = cache[slots[row], :length].unbind(2)
        weight = torch.einsum("hqd,khd->hqk", q[row], k).div(dim**0.5).softmax(dim=-1)
        expected = torch.einsum("hqk,khd->hqd", weight, v)
        torch.testing.assert_close(found[row], expected, rtol=1e-4, atol=1e-5)
