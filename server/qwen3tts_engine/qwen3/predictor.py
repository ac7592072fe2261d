"""The code predictor: codes 1 to 15 of a frame, one after the other.

Its sequence begins anew with every frame: position 0 is the talker's hidden state, position 1
code 0, then one position for each code. The first two run together; the output at position p
gives code p. All loops are over constants, so nothing waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.attention import PLAIN, Kernels, rotate
from qwen3tts_engine.qwen3.config import ModelConfig
from qwen3tts_engine.qwen3.layers import (
    Layer,
    Norm,
    Stack,
    fold_columns,
    load_stack,
    rotary_angles,
)
from qwen3tts_engine.qwen3.talker import Talker
from qwen3tts_engine.qwen3.weights import Weights


@dataclass(frozen=True, slots=True)
class Draws:
    """How the codes of one frame are drawn; see ``sampling.choose``."""

    noise: Tensor
    """[B, 16, ranks] float32."""
    coolness: Tensor
    """[B, 16] float32."""
    greedy: Tensor
    """[B, 16] bool."""
    top_p: Tensor | None
    """[B, 16] float32, for the full way."""

    def choose(
        self, codebook: int, scores: Tensor, out: Tensor, kernels: Kernels = PLAIN
    ) -> Tensor:
        """Draw the codes [B] of one codebook into ``out``; see ``sampling.choose``."""
        at = slice(codebook, codebook + 1)
        return kernels.choose(
            scores,
            self.noise[:, codebook],
            self.coolness[:, at],
            self.greedy[:, at],
            out[:, None],
            None if self.top_p is None else self.top_p[:, at],
        )


@dataclass(frozen=True, slots=True)
class Predictor:
    """Weights of the code predictor."""

    inputs: tuple[Tensor, ...]
    """Embeddings of codes 0 to 14 as the predictor sees them, [ids, hidden] each."""
    projection: tuple[Tensor, Tensor] | None
    """[talker's hidden, hidden] and a bias, for the talker's hidden state; None: it fits."""
    stack: Stack
    norm: Norm
    heads: tuple[Tensor, ...]
    """[hidden, codes] for codes 1 to 15."""
    rotations: tuple[tuple[Tensor, ...], ...]
    """Of each layer and position."""
    first_rotations: tuple[Tensor, ...]
    """Of each layer, for positions 0 and 1: [2, 1, 1, queries + 1, 2, 2, head_dim / 2]."""

    def predict(self, hidden: Tensor, codes: Tensor, draws: Draws, kernels: Kernels) -> None:
        """Codes 1 to 15 of each row.

        Args:
            hidden: [B, talker's hidden], behind the talker's last norm.
            codes: [>= 16, B] int64: row 0 is given, rows 1 to 15 are written.
            draws: How to draw.
            kernels: The device's.
        """
        rows, stack = hidden.shape[0], self.stack
        config = stack.config
        width = (config.heads + 2 * config.kv_heads) * config.head_dim
        work = hidden.new_empty(len(stack.layers), len(self.heads) + 1, rows, width)
        heads = work.view(
            *work.shape[:3], config.kv_heads, stack.queries + 2, config.head_dim
        ).unbind(0)
        x = self._first_two(hidden, codes[0], work, heads, kernels)
        for position in range(1, len(self.heads) + 1):
            if position > 1:
                x = functional.embedding(codes[position - 1], self.inputs[position - 1])
                for number, layer in enumerate(stack.layers):
                    torch.mm(layer.before_attention(x), layer.qkv, out=work[number, position])
                    rotation = self.rotations[number][position]
                    y = kernels.frame_attention(heads[number], stack.head_norm, rotation, position)
                    x = torch.addmm(x, y.reshape(rows, -1), layer.out)
                    x = layer.feed_forward(x, kernels.swiglu)
            scores = torch.mm(self.norm(x), self.heads[position - 1])
            draws.choose(position, scores, codes[position], kernels)

    def _first_two(
        self,
        hidden: Tensor,
        code: Tensor,
        work: Tensor,
        heads: tuple[Tensor, ...],
        kernels: Kernels,
    ) -> Tensor:
        """Positions 0 and 1 together; the result is that of position 1, [B, hidden]."""
        rows, stack = hidden.shape[0], self.stack
        x = hidden.new_empty(2, rows, stack.config.hidden)
        if self.projection is None:
            x[0].copy_(hidden)
        else:
            torch.addmm(self.projection[1], hidden, self.projection[0], out=x[0])
        torch.index_select(self.inputs[0], 0, code, out=x[1])
        x = x.view(2 * rows, -1)
        last = len(stack.layers) - 1
        for number, layer in enumerate(stack.layers):
            two = work[number, :2].view(2 * rows, -1)
            torch.mm(layer.before_attention(x), layer.qkv, out=two)
            x = self._first_attention(x, layer, heads[number], number, only_last=number == last)
            x = layer.feed_forward(x, kernels.swiglu)
        return x

    def _first_attention(
        self, x: Tensor, layer: Layer, heads: Tensor, number: int, *, only_last: bool
    ) -> Tensor:
        """Attention of positions 0 and 1, and the path around it.

        Position 0 sees itself alone, so its output is its value. Behind the last layer nobody
        needs it.
        """
        rows, config = heads.shape[1], self.stack.config
        two = heads[:2]
        rotate(two, self.stack.head_norm, self.first_rotations[number])
        k, v = two[:, :, :, -2:].permute(3, 1, 2, 0, 4).unbind(0)
        y = functional.scaled_dot_product_attention(two[1, :, :, :-2], k, v)
        if only_last:
            return torch.addmm(x[rows:], y.reshape(rows, -1), layer.out)
        first = two[0, :, :, -1:].expand(y.shape)
        both = torch.stack((first, y)).view(2 * rows, config.heads * config.head_dim)
        return torch.addmm(x, both, layer.out)


def load_predictor(
    weights: Weights,
    config: ModelConfig,
    talker: Talker,
    *,
    device: torch.device,
    dtype: torch.dtype,
    fused: bool,
) -> Predictor:
    """Read and pack the code predictor from a whole model's weights; ``fused`` as for ``Norm``.

    Raises:
        BadCheckpoint: a tensor is missing or has another shape.
    """
    predictor, at = config.predictor, weights.under("talker.code_predictor.")
    layers, positions = predictor.layers, predictor.groups + 1
    hidden, wide = layers.hidden, config.talker.layers.hidden
    stack = load_stack(at.under("model."), layers, device=device, dtype=dtype, fused=fused)
    norm = at.take("model.norm.weight", (hidden,)).to(device, dtype)
    heads = tuple(
        fold_columns(
            at.take(f"lm_head.{group}.weight", (predictor.vocab, hidden)).to(device, dtype),
            norm,
            fused=fused,
        ).t()
        for group in range(predictor.groups)
    )
    starts = talker.rows.groups[: predictor.groups]
    sizes = [config.talker.vocab] + [predictor.vocab] * (predictor.groups - 1)
    inputs = [talker.table[start:][:size] for start, size in zip(starts, sizes, strict=True)]
    projection = None
    if hidden != wide:
        matrix = at.take("small_to_mtp_projection.weight", (hidden, wide)).to(device, dtype)
        bias = at.take("small_to_mtp_projection.bias", (hidden,)).to(device, dtype)
        # In float32, so that the table is rounded once.
        inputs = [
            functional.linear(one.float(), matrix.float(), bias.float()).to(dtype) for one in inputs
        ]
        projection = (matrix.t(), bias)
    rotations = stack.rotations(rotary_angles(layers, positions, device))
    return Predictor(
        tuple(inputs),
        projection,
        stack,
        Norm.build(hidden, layers.rms_eps, norm if fused else None, device=device, fused=fused),
        heads,
        tuple(one.split(1) for one in rotations),
        tuple(one[:2, None] for one in rotations),
    )
