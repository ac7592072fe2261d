"""Talker (code 0, text embeddings) and code predictor (codes 1 to 15)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.kv_cache import lazy_zeros
from qwen3tts_engine.qwen3.model.quantized import Matrix, multiply
from qwen3tts_engine.qwen3.model.sampler import Sampler
from qwen3tts_engine.qwen3.model.transformer import (
    DecoderStack,
    Kernels,
    RmsNorm,
    fold_columns,
    load_stack,
    rotary_angles,
)

CHUNK = 8192
"""Text ids projected in one product; a vocabulary no larger is projected at load time on any
device."""
FEW_POSITIONS = 64
"""Positions of a prefill whose rotations are made for all layers together."""
BLOCK = 8
"""Text ids projected together, aligned to multiples: a row's values must not depend on the rest of
the text, and products of other sizes round differently."""


@dataclass(slots=True)
class TextProjection:
    raw: Tensor
    """[text ids, inner], as stored."""
    first: tuple[Tensor, Tensor]
    second: tuple[Tensor, Tensor]
    """Weight and bias, float32."""

    @classmethod
    def read(cls, weights: Weights, config: ModelConfig, device: torch.device) -> TextProjection:
        hidden, inner = config.talker.layers.hidden, config.talker.text_hidden
        first, second = (
            (
                weights.take(f"text_projection.{name}.weight", (out, inner)).to(device).float(),
                weights.take(f"text_projection.{name}.bias", (out,)).to(device).float(),
            )
            for name, out in (("linear_fc1", inner), ("linear_fc2", hidden))
        )
        shape = (config.talker.text_vocab, inner)
        name = "model.text_embedding.weight"
        if weights.packing is None:
            return cls(weights.take_stored(name, shape), first, second)
        raw = weights.packing.table(name, lambda: weights.take_stored(name, shape))
        return cls(raw, first, second)

    def fill(self, table: Tensor, start: int, end: int) -> None:
        part = self.raw[start:end].to(table.device).float()
        middle = functional.silu(functional.linear(part, *self.first))
        table[start:end] = functional.linear(middle, *self.second)


@dataclass(slots=True)
class TextTable:
    """Text embedding rows, projected at first use on a CPU: all take some 20 s.

    Not thread-safe. A GPU projects all at load time: a captured graph must find them.
    """

    table: Tensor
    """[text ids, hidden]."""
    projection: TextProjection | None
    """None: all rows are projected."""
    _ready: set[int] = field(default_factory=set)
    """Projected blocks."""

    @classmethod
    def build(cls, table: Tensor, weights: Weights, config: ModelConfig) -> TextTable:
        if is_lazy(config, table.device):
            return cls(table, TextProjection.read(weights, config, table.device))
        fill_text_table(table, weights, config)
        return cls(table, None)

    @torch.no_grad()
    def prepare(self, ids: Iterable[int]) -> None:
        if self.projection is None:
            return
        for block in {each // BLOCK for each in ids if each >= 0} - self._ready:
            end = min((block + 1) * BLOCK, len(self.table))
            self.projection.fill(self.table, block * BLOCK, end)
            self._ready.add(block)


def is_lazy(config: ModelConfig, device: torch.device) -> bool:
    return device.type == "cpu" and config.talker.text_vocab > CHUNK


def fill_text_table(table: Tensor, weights: Weights, config: ModelConfig) -> None:
    projection = TextProjection.read(weights, config, table.device)
    for start in range(0, len(table), CHUNK):
        projection.fill(table, start, min(start + CHUNK, len(table)))


@dataclass(frozen=True, slots=True)
class EmbeddingRows:
    codec: int
    """Codes 0 and control ids, behind the text ids."""
    groups: tuple[int, ...]
    """Codebooks 0 to 15; the first is ``codec``."""
    nothing: int
    """Row of zeros."""


@dataclass(frozen=True, slots=True)
class Talker:
    table: Tensor
    """[text ids + codec ids + 15 * codes + 1, hidden]: projected text, code 0, codes 1 to 15,
    zeros."""
    rows: EmbeddingRows
    stack: DecoderStack
    norm: RmsNorm
    head: Matrix
    """[hidden, vocab]."""
    angles: Tensor
    """[max positions, 2, 2, head_dim / 2] float32."""
    offsets: Tensor
    """[17, 1] int64: offsets of codebooks 0 to 15, and of text."""
    text: TextTable
    """The table's text rows; ``prepare`` them before use."""

    def embed(self, ids: Tensor) -> Tensor:
        """Sum the embeddings of table rows [terms, N]: [N, hidden]."""
        return functional.embedding(ids, self.table).sum(dim=0)

    def decode(
        self,
        x: Tensor,
        caches: tuple[Tensor, ...],
        slots: Tensor,
        pos: Tensor,
        kv_len: int,
        mask: Tensor | None,
        kernels: Kernels,
    ) -> Tensor:
        """[B, hidden], overwritten, to [B, hidden] before the last norm; ``kv_len`` > ``pos``."""
        stack = self.stack
        rotations = stack.rotations(self.angles.index_select(0, pos)).unbind(0)
        for layer, cache, rotation in zip(stack.layers, caches, rotations, strict=True):
            heads = stack.heads(layer.project(x, kernels))
            y = kernels.decode_attention(
                heads, stack.head_norm, rotation, cache, slots, pos, kv_len, mask=mask
            )
            layer.add(x, y, kernels)
        return x

    def prefill(
        self,
        x: Tensor,
        caches: tuple[Tensor, ...],
        slots: Tensor,
        places: Tensor,
        positions: Tensor,
        mask: Tensor,
        kernels: Kernels,
    ) -> Tensor:
        """[B * T, hidden] before the last norm.

        ``slots`` [B] are attended to, ``places`` [B * T] written; ``mask`` is [B, T, kv_len].
        """
        stack = self.stack
        # The caller's, an input of a graph, stays.
        x = x.clone()
        angles = self.angles.index_select(0, positions)
        # Together for few positions: for many they would take much memory.
        few = len(x) <= FEW_POSITIONS
        rotations = stack.rotations(angles).unbind(0) if few else None
        for number, (layer, cache) in enumerate(zip(stack.layers, caches, strict=True)):
            heads = stack.heads(layer.project(x, kernels))
            rotation = rotations[number] if rotations else stack.rotations_of(number, angles)
            y = kernels.prefill_attention(
                heads, stack.head_norm, rotation, cache, slots, places, positions, mask
            )
            layer.add(x, y, kernels)
        return x


def load_talker(
    weights: Weights,
    config: ModelConfig,
    *,
    device: torch.device,
    dtype: torch.dtype,
    fused: bool,
) -> Talker:
    talker, predictor = config.talker, config.predictor
    hidden = talker.layers.hidden
    groups = [talker.text_vocab]
    for _ in range(predictor.groups):
        groups.append(talker.text_vocab + talker.vocab + (len(groups) - 1) * predictor.vocab)
    nothing = groups[-1] + predictor.vocab
    table = lazy_zeros((nothing + 1, hidden), dtype, device)
    text = TextTable.build(table[: talker.text_vocab], weights.under("talker."), config)
    shape = (talker.vocab, hidden)
    table[talker.text_vocab :][: talker.vocab] = weights.take(
        "talker.model.codec_embedding.weight", shape
    )
    for group, start in enumerate(groups[1:]):
        name = f"talker.code_predictor.model.codec_embedding.{group}.weight"
        table[start:][: predictor.vocab] = weights.take(name, (predictor.vocab, hidden))
    norm, packing = weights.take("talker.model.norm.weight", (hidden,)), weights.packing
    norm = norm.to(device, dtype)

    def head() -> Tensor:
        return weights.take("talker.codec_head.weight", shape).to(device, dtype)

    return Talker(
        table,
        EmbeddingRows(talker.text_vocab, tuple(groups), nothing),
        load_stack(
            weights.under("talker.model."),
            talker.layers,
            device=device,
            dtype=dtype,
            fused=fused,
        ),
        RmsNorm.build(hidden, talker.layers.rms_eps, norm, device=device, fused=fused),
        head().t() if packing is None else packing.matrix("talker.codec_head", head),
        rotary_angles(talker.layers, talker.max_positions, device),
        torch.tensor([*groups, 0], device=device)[:, None],
        text,
    )


@dataclass(frozen=True, slots=True)
class CodePredictor:
    """Position 0 is the talker's hidden state, 1 code 0, then one a code.

    The output at position p gives code p.
    """

    inputs: tuple[Tensor, ...]
    """Embeddings of codes 0 to 14, [ids, hidden] each."""
    projection: tuple[Matrix, Tensor] | None
    """[talker's hidden, hidden] and bias for the talker's hidden state; None: same width."""
    stack: DecoderStack
    norm: RmsNorm
    heads: tuple[Matrix, ...]
    """[hidden, codes] for codes 1 to 15."""
    rotations: tuple[tuple[Tensor, ...], ...]
    """Rotation of each layer and position."""
    first_rotations: tuple[Tensor, ...]
    """Rotation of each layer, for positions 0 and 1: [2, 1, 1, queries + 1, 2, 2, head_dim / 2]."""

    def predict(self, sampler: Sampler, kernels: Kernels) -> None:
        hidden, x = sampler.first(self.inputs[0])
        if self.projection is not None:
            matrix, bias = self.projection
            if isinstance(matrix, Tensor):
                torch.addmm(bias, hidden, matrix, out=x[0])
            else:
                torch.add(multiply(hidden, matrix), bias, out=x[0])
        if kernels.predict is not None and kernels.predict(x, sampler):
            return
        rows, stack = x.shape[1], self.stack
        config = stack.config
        width = (config.heads + 2 * config.kv_heads) * config.head_dim
        work = x.new_empty(len(stack.layers), len(self.heads) + 1, rows, width)
        heads = work.view(
            *work.shape[:3], config.kv_heads, stack.queries + 2, config.head_dim
        ).unbind(0)
        x = self._first_two(x, work, heads, kernels)
        last = len(self.heads)
        for code in range(1, last):
            logits = kernels.norm_linear(x, self.norm, self.heads[code - 1])
            x, position = sampler.sample_input(code, logits, self.inputs[code]), code + 1
            for number, layer in enumerate(stack.layers):
                layer.project(x, kernels, work[number, position])
                rotation = self.rotations[number][position]
                y = kernels.frame_attention(heads[number], stack.head_norm, rotation, position)
                layer.add(x, y, kernels)
        sampler.sample(last, kernels.norm_linear(x, self.norm, self.heads[-1]))

    def _first_two(
        self, x: Tensor, work: Tensor, heads: tuple[Tensor, ...], kernels: Kernels
    ) -> Tensor:
        """[2, B, hidden], overwritten, to [B, hidden] of position 1."""
        rows, stack = x.shape[1], self.stack
        x = x.view(2 * rows, -1)
        last = len(stack.layers) - 1
        for number, layer in enumerate(stack.layers):
            layer.project(x, kernels, work[number, :2].view(2 * rows, -1))
            rotation = self.first_rotations[number]
            # Nothing reads the last output of position 0.
            x = x[rows:] if number == last else x
            y = kernels.first_attention(
                heads[number], stack.head_norm, rotation, only_last=number == last
            )
            layer.add(x, y, kernels)
        return x


def load_code_predictor(
    weights: Weights,
    config: ModelConfig,
    talker: Talker,
    *,
    device: torch.device,
    dtype: torch.dtype,
    fused: bool,
) -> CodePredictor:
    predictor, at = config.predictor, weights.under("talker.code_predictor.")
    packing = at.packing
    layers, positions = predictor.layers, predictor.groups + 1
    hidden, wide = layers.hidden, config.talker.layers.hidden
    stack = load_stack(at.under("model."), layers, device=device, dtype=dtype, fused=fused)
    norm = at.take("model.norm.weight", (hidden,)).to(device, dtype)

    def head(group: int) -> Matrix:
        def make() -> Tensor:
            shape = (predictor.vocab, hidden)
            return at.take(f"lm_head.{group}.weight", shape).to(device, dtype)

        if packing is not None:
            return packing.matrix(f"lm_head.{group}", make)
        return fold_columns(make(), norm, fused=fused).t()

    heads = tuple(map(head, range(predictor.groups)))
    starts = talker.rows.groups[: predictor.groups]
    sizes = [config.talker.vocab] + [predictor.vocab] * (predictor.groups - 1)
    inputs = [talker.table[start:][:size] for start, size in zip(starts, sizes, strict=True)]
    projection: tuple[Matrix, Tensor] | None = None
    if hidden != wide:
        matrix = at.take("small_to_mtp_projection.weight", (hidden, wide)).to(device, dtype)
        bias = at.take("small_to_mtp_projection.bias", (hidden,)).to(device, dtype)
        # In float32, so that the table is rounded only once.
        inputs = [
            functional.linear(one.float(), matrix.float(), bias.float()).to(dtype) for one in inputs
        ]
        packed = None if packing is None else packing.matrix("projection", lambda: matrix)
        projection = (matrix.t() if packed is None else packed, bias)
    rotations = stack.rotations(rotary_angles(layers, positions, device))
    return CodePredictor(
        tuple(inputs),
        projection,
        stack,
        RmsNorm.build(
            hidden,
            layers.rms_eps,
            norm if fused or packing is not None else None,
            device=device,
            fused=fused,
        ),
        heads,
        tuple(one.split(1) for one in rotations),
        tuple(one[:2, None] for one in rotations),
    )
