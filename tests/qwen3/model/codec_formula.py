"""The codec decoder as its description reads: channels first, whole, nothing folded or kept."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.model.config import CodecDecoderConfig

Tensors = dict[str, Tensor]


def decode(t: Tensors, c: CodecDecoderConfig, codes: Tensor) -> Tensor:
    """Shape [T, quantizers] to [T 1920], in the tensors' type."""
    x = conv(t, "pre_conv.conv", quantized(t, c, codes), pad=2).T
    x = transformer(t, c, x).T
    for index, rate in enumerate(c.upsampling_ratios):
        x = upsampled(t, f"upsample.{index}.0.conv", x, rate)
        x = convnext(t, f"upsample.{index}.1", x)
    x = conv(t, "decoder.0.conv", x, pad=6)
    for index, rate in enumerate(c.upsample_rates, start=1):
        at = f"decoder.{index}.block"
        x = upsampled(t, f"{at}.1.conv", snake(t, f"{at}.0", x), rate)
        for unit, dilation in ((2, 1), (3, 3), (4, 9)):
            one = f"{at}.{unit}"
            y = conv(t, f"{one}.conv1.conv", snake(t, f"{one}.act1", x), pad=6, dilation=dilation)
            x = x + conv(t, f"{one}.conv2.conv", snake(t, f"{one}.act2", y))
    last = len(c.upsample_rates) + 1
    x = conv(t, f"decoder.{last + 1}.conv", snake(t, f"decoder.{last}", x), pad=6)
    return x[0].clamp(-1, 1)


def quantized(t: Tensors, c: CodecDecoderConfig, codes: Tensor) -> Tensor:
    """Shape [codebook_dim, T]."""
    parts = []
    for part, columns in (("rvq_first", codes[:, :1]), ("rvq_rest", codes[:, 1:])):
        total = torch.zeros(c.codebook_dim // 2, len(codes), dtype=t["pre_conv.conv.bias"].dtype)
        for index, column in enumerate(columns.T):
            at = f"quantizer.{part}.vq.layers.{index}._codebook"
            usage = t[f"{at}.cluster_usage"].clamp(min=1e-5)
            total += (t[f"{at}.embedding_sum"] / usage[:, None])[column].T
        parts.append(t[f"quantizer.{part}.output_proj.weight"][..., 0] @ total)
    return parts[0] + parts[1]


def conv(t: Tensors, at: str, x: Tensor, *, pad: int = 0, dilation: int = 1) -> Tensor:
    """A causal convolution, [C, T]."""
    padded = functional.pad(x, (pad * dilation, 0))[None]
    return functional.conv1d(padded, t[f"{at}.weight"], t[f"{at}.bias"], dilation=dilation)[0]


def upsampled(t: Tensors, at: str, x: Tensor, rate: int) -> Tensor:
    """A transposed convolution cut to rate times the length, [C, T]."""
    made = functional.conv_transpose1d(x[None], t[f"{at}.weight"], t[f"{at}.bias"], stride=rate)
    return made[0, :, : x.shape[1] * rate]


def snake(t: Tensors, at: str, x: Tensor) -> Tensor:
    """SnakeBeta, [C, T]."""
    alpha, beta = t[f"{at}.alpha"].exp()[:, None], t[f"{at}.beta"].exp()[:, None]
    return x + (x * alpha).sin() ** 2 / (beta + 1e-9)


def convnext(t: Tensors, at: str, x: Tensor) -> Tensor:
    """A ConvNeXt block, [C, T]."""
    weight = t[f"{at}.dwconv.conv.weight"]
    padded = functional.pad(x, (6, 0))[None]
    y = functional.conv1d(padded, weight, t[f"{at}.dwconv.conv.bias"], groups=len(weight))[0].T
    y = functional.layer_norm(
        y, y.shape[1:], t[f"{at}.norm.weight"], t[f"{at}.norm.bias"], eps=1e-6
    )
    y = functional.gelu(y @ t[f"{at}.pwconv1.weight"].T + t[f"{at}.pwconv1.bias"])
    y = y @ t[f"{at}.pwconv2.weight"].T + t[f"{at}.pwconv2.bias"]
    return x + (t[f"{at}.gamma"] * y).T


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last dimension."""
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def transformer(t: Tensors, c: CodecDecoderConfig, x: Tensor) -> Tensor:
    """Shape [T, latent_dim], kept."""
    top = "pre_transformer"
    x = x @ t[f"{top}.input_proj.weight"].T + t[f"{top}.input_proj.bias"]
    at = torch.arange(len(x))
    behind = at[:, None] - at
    hidden = torch.where((behind >= 0) & (behind < c.sliding_window), 0.0, -torch.inf).to(x)
    waves = c.rope_theta ** (-torch.arange(0, c.head_dim, 2, dtype=torch.float64) / c.head_dim)
    angles = (at[:, None] * waves).repeat(1, 2)[:, None].to(x)
    groups = c.num_attention_heads // c.num_key_value_heads

    def turned(y: Tensor) -> Tensor:
        first, second = y.chunk(2, dim=-1)
        return y * angles.cos() + torch.cat((-second, first), dim=-1) * angles.sin()

    for index in range(c.num_hidden_layers):
        at_layer = f"{top}.layers.{index}"
        y = rms(x, t[f"{at_layer}.input_layernorm.weight"], c.rms_norm_eps)
        q, k, v = (
            (y @ t[f"{at_layer}.self_attn.{one}_proj.weight"].T).view(len(x), -1, c.head_dim)
            for one in "qkv"
        )
        q, k, v = turned(q), *(one.repeat_interleave(groups, 1) for one in (turned(k), v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / c.head_dim**0.5 + hidden
        y = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)
        y = y @ t[f"{at_layer}.self_attn.o_proj.weight"].T
        x = x + t[f"{at_layer}.self_attn_layer_scale.scale"] * y
        y = rms(x, t[f"{at_layer}.post_attention_layernorm.weight"], c.rms_norm_eps)
        gate, up = (y @ t[f"{at_layer}.mlp.{one}_proj.weight"].T for one in ("gate", "up"))
        y = (functional.silu(gate) * up) @ t[f"{at_layer}.mlp.down_proj.weight"].T
        x = x + t[f"{at_layer}.mlp_layer_scale.scale"] * y
    x = rms(x, t[f"{top}.norm.weight"], c.rms_norm_eps)
    return x @ t[f"{top}.output_proj.weight"].T + t[f"{top}.output_proj.bias"]
