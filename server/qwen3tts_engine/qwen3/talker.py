"""The talker: makes code 0 of each frame from the text and the frames so far."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.arena import untouched_zeros
from qwen3tts_engine.qwen3.attention import Kernels, prefill_attention
from qwen3tts_engine.qwen3.config import ModelConfig
from qwen3tts_engine.qwen3.layers import (
    Norm,
    Stack,
    load_stack,
    rotary_angles,
)
from qwen3tts_engine.qwen3.text_table import TextTable
from qwen3tts_engine.qwen3.weights import Weights


@dataclass(frozen=True, slots=True)
class Rows:
    """Where each kind of embedding begins in the talker's one table."""

    codec: int
    """Codes 0 and control ids; the text ids stand before them."""
    groups: tuple[int, ...]
    """Codes of each codebook, 0 to 15; the first is ``codec``."""
    nothing: int
    """A row of zeros."""


@dataclass(frozen=True, slots=True)
class Talker:
    """Weights of the talker, and all embeddings that are added up to its inputs."""

    table: Tensor
    """[text ids + codec ids + 15 * codes + 1, hidden]: projected text embeddings, the codec
    embeddings of code 0 and of codes 1 to 15, and a row of zeros."""
    rows: Rows
    stack: Stack
    norm: Norm
    head: Tensor
    """[hidden, vocab]."""
    angles: Tensor
    """[max positions, 2, 2, head_dim / 2] float32."""
    offsets: Tensor
    """[17, 1] int64: where the embeddings of codes 0 to 15 begin in the table, and of text."""
    text: TextTable
    """The table's text rows, which must be prepared before they are used."""

    def embed(self, ids: Tensor) -> Tensor:
        """Sum of the embeddings of table rows [terms, N]: [N, hidden]."""
        return functional.embedding(ids, self.table).sum(dim=0)

    def scores(self, hidden: Tensor) -> Tensor:
        """Scores of code 0 from hidden states behind the last norm: [N, vocab] float32."""
        return torch.mm(hidden, self.head).float()

    def decode(
        self,
        x: Tensor,
        caches: tuple[Tensor, ...],
        slots: Tensor,
        pos: Tensor,
        kv_len: int,
        mask: Tensor,
        kernels: Kernels,
    ) -> Tensor:
        """One position of each row.

        Args:
            x: [B, hidden], sums of embeddings.
            caches: One [S, P, kv_heads, 2, head_dim] of each layer; written in place.
            slots: [B] int64.
            pos: [B] int64, within the caches.
            kv_len: Above every ``pos``.
            mask: [B, kv_len], of attention.
            kernels: The device's.

        Returns:
            [B, hidden], before the last norm.
        """
        stack = self.stack
        rotations = stack.rotations(self.angles.index_select(0, pos)).unbind(0)
        for layer, cache, rotation in zip(stack.layers, caches, rotations, strict=True):
            heads = stack.heads(torch.mm(layer.before_attention(x), layer.qkv))
            y = kernels.decode_attention(
                heads, stack.head_norm, rotation, cache, slots, pos, kv_len, mask=mask
            )
            x = torch.addmm(x, y.reshape(x.shape[0], -1), layer.out)
            x = layer.feed_forward(x, kernels.swiglu)
        return x

    def prefill(
        self,
        x: Tensor,
        caches: tuple[Tensor, ...],
        slots: Tensor,
        places: Tensor,
        positions: Tensor,
        kv_len: int,
        mask: Tensor,
        kernels: Kernels,
    ) -> Tensor:
        """T positions of each row at once.

        Args:
            x: [B * T, hidden].
            caches: As for ``decode``.
            slots: [B] int64, whose positions are attended to.
            places: [B * T] int64, slots that are written.
            positions: [B * T] int64.
            kv_len: Above every position that counts.
            mask: [B, T, kv_len].
            kernels: The device's.

        Returns:
            [B * T, hidden], before the last norm.
        """
        stack = self.stack
        angles = self.angles.index_select(0, positions)
        for number, (layer, cache) in enumerate(zip(stack.layers, caches, strict=True)):
            heads = stack.heads(torch.mm(layer.before_attention(x), layer.qkv))
            rotation = stack.rotations_of(number, angles)
            y = prefill_attention(
                heads, stack.head_norm, rotation, cache, slots, places, positions, kv_len, mask
            )
            x = torch.addmm(x, y.reshape(x.shape[0], -1), layer.out)
            x = layer.feed_forward(x, kernels.swiglu)
        return x


def load_talker(
    weights: Weights,
    config: ModelConfig,
    *,
    device: torch.device,
    dtype: torch.dtype,
    fused: bool,
) -> Talker:
    """Read and pack the talker from a whole model's weights; ``fused`` as for ``Norm``.

    Raises:
        BadCheckpoint: a tensor is missing or has another shape.
    """
    talker, predictor = config.talker, config.predictor
    hidden = talker.layers.hidden
    groups = [talker.text_vocab]
    for _ in range(predictor.groups):
        groups.append(talker.text_vocab + talker.vocab + (len(groups) - 1) * predictor.vocab)
    nothing = groups[-1] + predictor.vocab
    table = untouched_zeros((nothing + 1, hidden), dtype, device)
    text = TextTable.build(table[: talker.text_vocab], weights.under("talker."), config)
    shape = (talker.vocab, hidden)
    table[talker.text_vocab :][: talker.vocab] = weights.take(
        "talker.model.codec_embedding.weight", shape
    )
    for group, start in enumerate(groups[1:]):
        name = f"talker.code_predictor.model.codec_embedding.{group}.weight"
        table[start:][: predictor.vocab] = weights.take(name, (predictor.vocab, hidden))
    norm = weights.take("talker.model.norm.weight", (hidden,)).to(device, dtype)
    head = weights.take("talker.codec_head.weight", shape).to(device, dtype)
    return Talker(
        table,
        Rows(talker.text_vocab, tuple(groups), nothing),
        load_stack(
            weights.under("talker.model."),
            talker.layers,
            device=device,
            dtype=dtype,
            fused=fused,
        ),
        Norm.build(hidden, talker.layers.rms_eps, norm, device=device, fused=fused),
        head.t(),
        rotary_angles(talker.layers, talker.max_positions, device),
        torch.tensor([*groups, 0], device=device)[:, None],
        text,
    )
