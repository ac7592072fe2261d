"""The talker's text embeddings, projected when they are first used.

On a CPU the projection of a published vocabulary of 151,936 ids takes some 20 s, and a text uses
a few hundred of them. On a GPU all rows are projected at the start: a captured graph has to find
them ready.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.config import ModelConfig
from qwen3tts_engine.qwen3.weights import Weights

CHUNK = 8192
"""Text ids that are projected in one product where all are; a vocabulary no larger is projected at
the start on any device."""
BLOCK = 8
"""Text ids that are projected together, from a multiple of it on: so the values of a row do not
depend on what else is said, though products of other sizes are rounded otherwise."""


@dataclass(slots=True)
class TextProjection:
    """SiLU between two products with biases, in float32: a function of the text id alone."""

    raw: Tensor
    """[text ids, inner], as in the file."""
    first: tuple[Tensor, Tensor]
    second: tuple[Tensor, Tensor]
    """Weight and bias, float32."""

    @classmethod
    def read(cls, weights: Weights, config: ModelConfig, device: torch.device) -> TextProjection:
        """Read it from the talker's weights.

        Raises:
            BadCheckpoint: a tensor is missing or has another shape.
        """
        hidden, inner = config.talker.layers.hidden, config.talker.text_hidden
        first, second = (
            (
                weights.take(f"text_projection.{name}.weight", (out, inner)).to(device).float(),
                weights.take(f"text_projection.{name}.bias", (out,)).to(device).float(),
            )
            for name, out in (("linear_fc1", inner), ("linear_fc2", hidden))
        )
        shape = (config.talker.text_vocab, inner)
        return cls(weights.take_stored("model.text_embedding.weight", shape), first, second)

    def fill(self, table: Tensor, start: int, end: int) -> None:
        """Project ids ``start`` to ``end`` into rows of the table."""
        part = self.raw[start:end].to(table.device).float()
        middle = functional.silu(functional.linear(part, *self.first))
        table[start:end] = functional.linear(middle, *self.second)


@dataclass(slots=True)
class TextTable:
    """The text rows of the talker's table. Not thread-safe: the engine's thread alone uses it."""

    table: Tensor
    """[text ids, hidden]."""
    projection: TextProjection | None
    """None where all rows are there."""
    _ready: set[int] = field(default_factory=set)
    """Blocks that are there."""

    @classmethod
    def build(cls, table: Tensor, weights: Weights, config: ModelConfig) -> TextTable:
        """Read the projection; project all rows, or none where that takes long."""
        if is_lazy(config, table.device):
            return cls(table, TextProjection.read(weights, config, table.device))
        fill_text_table(table, weights, config)
        return cls(table, None)

    @torch.no_grad()
    def prepare(self, ids: Iterable[int]) -> None:
        """Have the rows of these ids; negative ones are none."""
        if self.projection is None:
            return
        for block in {each // BLOCK for each in ids if each >= 0} - self._ready:
            end = min((block + 1) * BLOCK, len(self.table))
            self.projection.fill(self.table, block * BLOCK, end)
            self._ready.add(block)


def is_lazy(config: ModelConfig, device: torch.device) -> bool:
    """Whether rows are projected when they are first used."""
    return device.type == "cpu" and config.talker.text_vocab > CHUNK


def fill_text_table(table: Tensor, weights: Weights, config: ModelConfig) -> None:
    """Project every text embedding, in float32 and by chunks, into ``table``."""
    projection = TextProjection.read(weights, config, table.device)
    for start in range(0, len(table), CHUNK):
        projection.fill(table, start, min(start + CHUNK, len(table)))
