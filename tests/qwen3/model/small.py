"""Small models of odd shapes with random weights, and the layers written the ordinary way."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_engine.qwen3.model.config import LayersConfig, ModelConfig
from tests.tiny_models.published import PUBLISHED
from tests.tiny_models.weights import random_weights


def small_config(*, projection: bool) -> ModelConfig:
    """Grouped queries in both stacks; with ``projection`` the predictor is narrower."""
    config = PUBLISHED["1.7b-voice_design"]
    decoder = replace(
        config.codec.decoder,
        codebook_dim=16,
        latent_dim=16,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        decoder_dim=16,
    )
    talker = LayersConfig(40, 56, 2, 6, 2, 16, 1e-5, 1e4)
    predictor = LayersConfig(24 if projection else 40, 32, 2, 4, 2, 8, 1e-6, 1e6)
    return replace(
        config,
        talker=replace(
            config.talker, layers=talker, text_vocab=300, text_hidden=36, max_positions=128
        ),
        predictor=replace(config.predictor, layers=predictor),
        codec=replace(config.codec, decoder=decoder),
    )


def small_weights(config: ModelConfig) -> tuple[Weights, Weights]:
    """Random, and the norms' weights far from one."""
    return random_weights(config, seed=4)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm by its formula."""
    return x * torch.rsqrt(x.double().pow(2).mean(-1, keepdim=True) + eps).float() * weight


def rotary(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary embedding of halves: [T, heads, dim]."""
    half = x.shape[-1] // 2
    angle = positions[:, None] / theta ** (torch.arange(half) / half)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def plain_layers(x: Tensor, weights: Weights, config: LayersConfig) -> Tensor:
    """All layers and the last norm over a whole sequence [T, hidden], nothing packed."""
    positions, eps = torch.arange(len(x)), config.rms_eps
    for number in range(config.layers):
        at = weights.under(f"layers.{number}.")

        def heads(h: Tensor, name: str, at: Weights = at) -> Tensor:
            return functional.linear(h, at[f"self_attn.{name}_proj.weight"]).view(
                len(h), -1, config.head_dim
            )

        h = norm(x, at["input_layernorm.weight"], eps)
        q, k = (
            rotary(
                norm(heads(h, name), at[f"self_attn.{name}_norm.weight"], eps),
                positions,
                config.rope_theta,
            )
            for name in ("q", "k")
        )
        k, v = (
            one.repeat_interleave(config.heads // config.kv_heads, dim=1)
            for one in (k, heads(h, "v"))
        )
        scores = torch.einsum("qhd,khd->hqk", q, k) / config.head_dim**0.5
        later = positions > positions[:, None]
        weight = scores.masked_fill(later, -torch.inf).softmax(dim=-1)
        y = torch.einsum("hqk,khd->qhd", weight, v).flatten(1)
        x = x + functional.linear(y, at["self_attn.o_proj.weight"])
        h = norm(x, at["post_attention_layernorm.weight"], eps)
        gate, up = (functional.linear(h, at[f"mlp.{name}_proj.weight"]) for name in ("gate", "up"))
        x = x + functional.linear(functional.silu(gate) * up, at["mlp.down_proj.weight"])
    return norm(x, weights["norm.weight"], eps)
