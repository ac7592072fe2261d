"""Sampling of a frame's codes, codebook by codebook: interface, and plain torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.model.config import MIN_FRAMES
from qwen3tts_engine.qwen3.model.kv_cache import (
    CODE_RING,
    FRAME,
    KEY_HIGH,
    KEY_LOW,
    POS,
    TOP_K,
    KvCache,
)
from qwen3tts_engine.qwen3.model.sampling import (
    TOP_K_LIMIT,
    SamplingConstants,
    apply_repetition_penalty,
    gumbel,
    sample,
    uniform,
)


class FrameRows(NamedTuple):
    constants: SamplingConstants
    kv_cache: KvCache
    slots: Tensor
    """[B] int64."""
    eos_allowed: Tensor
    """[B] bool or int64; ignored in the first MIN_FRAMES frames."""
    full_sort: bool
    """See ``Sampling.needs_full_sort``."""


class SampledCodes(NamedTuple):
    codes: Tensor
    """[B, 16], as ``frame_step`` returns them."""
    ids: Tensor
    """[17, B] int64: sampled codes, and space for the text id."""
    pos: Tensor
    """[B] int64: position of the frame in the talker's sequence."""

    @classmethod
    def empty(cls, rows: int, terms: int, device: torch.device) -> SampledCodes:
        ids = torch.zeros(terms, rows, dtype=torch.int64, device=device)
        return cls(ids[:-1].t(), ids, torch.zeros(rows, dtype=torch.int64, device=device))


class Sampler(Protocol):
    """Samples codebooks 0 to 15 in this order."""

    @property
    def rows(self) -> FrameRows: ...

    @property
    def ids(self) -> Tensor:
        """[17, B] int64."""
        ...

    def first(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Sample code 0; return hidden states [B, hidden], predictor's inputs [2, B, width]."""
        ...

    def sample(self, codebook: int, logits: Tensor) -> None:
        """Sample a code of ``logits`` [B, vocab] a row."""
        ...

    def sample_input(self, codebook: int, logits: Tensor, table: Tensor) -> Tensor:
        """Also return the codes' rows of ``table``: [B, width]."""
        ...

    def finish(self) -> SampledCodes: ...


MakeSampler = Callable[[FrameRows], Sampler]


@dataclass(frozen=True, slots=True)
class SamplingInputs:
    """Noise and parameters; see ``sampling.sample``."""

    noise: Tensor
    """[B, 16, ranks] float32."""
    inv_temperature: Tensor
    """[B, 16] float32."""
    greedy: Tensor
    """[B, 16] bool."""
    top_p: Tensor | None
    """[B, 16] float32, only with a full sort."""

    def sample(self, codebook: int, logits: Tensor, out: Tensor) -> Tensor:
        """Return the largest logits [B, 1]."""
        at = slice(codebook, codebook + 1)
        return sample(
            logits,
            self.noise[:, codebook],
            self.inv_temperature[:, at],
            self.greedy[:, at],
            out[:, None],
            None if self.top_p is None else self.top_p[:, at],
        )


def sampling_inputs(
    constants: SamplingConstants, counters: Tensor, knobs: Tensor, *, full_sort: bool
) -> SamplingInputs:
    groups = counters.shape[1] - TOP_K
    ranks = constants.ranks.shape[0] if full_sort else TOP_K_LIMIT
    at = counters[:, :, None, None]
    noise = gumbel(
        uniform(at[:, KEY_LOW], at[:, KEY_HIGH], at[:, FRAME], constants.stream_keys[:, :ranks])
    )
    noise.masked_fill_(constants.ranks[:ranks] >= counters[:, TOP_K:, None], -torch.inf)
    inv_temperature = knobs[:, :groups]
    top_p = knobs[:, groups : 2 * groups] if full_sort else None
    return SamplingInputs(noise, inv_temperature, inv_temperature == 0, top_p)


class TorchSampler:
    def __init__(self, rows: FrameRows) -> None:
        constants, kv_cache, slots, _, full_sort = rows
        self.rows = rows
        self._counters = kv_cache.counters.index_select(0, slots)
        self._knobs = kv_cache.knobs.index_select(0, slots)
        self._inputs = sampling_inputs(constants, self._counters, self._knobs, full_sort=full_sort)
        # Codes 0 to 15 and the text id, one row each.
        self.ids = slots.new_empty(kv_cache.codes.shape[2] + 1, slots.shape[0])

    def first(self, table: Tensor) -> tuple[Tensor, Tensor]:
        constants, kv_cache, slots, eos_allowed, _ = self.rows
        logits = apply_repetition_penalty(
            kv_cache.logits.index_select(0, slots),
            kv_cache.seen.index_select(0, slots),
            self._knobs[:, -1:],
        ).add_(constants.barred)
        # Barred: not allowed, or too early. On truth values "<=" is "implies".
        too_early = self._counters[:, FRAME] < MIN_FRAMES
        barred = (eos_allowed.bool() <= too_early)[:, None]
        logits[:, constants.eos].masked_fill_(barred, -torch.inf)
        self._best = self._inputs.sample(0, logits, self.ids[0])
        x = table.new_empty(2, slots.shape[0], table.shape[1])
        torch.index_select(table, 0, self.ids[0], out=x[1])
        if kv_cache.hidden.shape[1] != table.shape[1]:
            return kv_cache.hidden.index_select(0, slots), x
        torch.index_select(kv_cache.hidden, 0, slots, out=x[0])
        return x[0], x

    def sample(self, codebook: int, logits: Tensor) -> None:
        self._inputs.sample(codebook, logits, self.ids[codebook])

    def sample_input(self, codebook: int, logits: Tensor, table: Tensor) -> Tensor:
        self.sample(codebook, logits)
        return functional.embedding(self.ids[codebook], table)

    def finish(self) -> SampledCodes:
        constants, kv_cache, slots, _, _ = self.rows
        ids, best = self.ids, self._best
        kv_cache.seen.index_put_((slots, ids[0]), constants.true)
        codes = ids[:-1].t().contiguous()
        # A row whose best logit is not finite is lost.
        first = codes[:, :1]
        # A compiler takes no output that is not contiguous, and needs none.
        if torch.compiler.is_compiling():
            first.copy_(torch.where(best < torch.inf, first, constants.not_finite))
        else:
            torch.where(best < torch.inf, first, constants.not_finite, out=first)
        kv_cache.codes.index_put_((slots, self._counters[:, FRAME] % CODE_RING), codes)
        pos = self._counters[:, POS].clamp(max=kv_cache.positions - 1)
        return SampledCodes(codes, ids, pos)
