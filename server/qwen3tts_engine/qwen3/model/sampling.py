"""Sampling by random numbers that depend only on (seed, frame, codebook, rank).

The same on every device and in any batch. Gumbel-max. Official order: repetition penalty, barred
ids, temperature, top-k, top-p.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.model.config import NOT_FINITE, ModelConfig
from qwen3tts_wire.errors import BadRequest

TOP_K_LIMIT = 64
"""Logits ranked without ``full_sort``."""
ALL = 1 << 30
"""A top-k that keeps everything."""
NO_TOP_P = 2.0
"""A top-p that keeps everything, rounding included."""
FRAME_STEP = 0x1D8E4E27
"""Distance of frames before mixing; odd, and small enough for 63 bits."""
MASK64 = (1 << 64) - 1
MASK32 = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of a row; temperature 0 is greedy."""

    temperature: float = 0.9
    top_k: int = 50
    """Code 0; 0: all."""
    top_p: float = 1.0
    """Least total probability of the candidates."""
    repetition_penalty: float = 1.05
    """Divides positive logits of codes 0 that occurred, multiplies negative ones."""
    predictor_temperature: float = 0.9
    """Codes 1 to 15, like the next two."""
    predictor_top_k: int = 50
    predictor_top_p: float = 1.0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("temperature", 0.0, 100.0),
            ("top_k", 0, ALL),
            ("top_p", 1e-6, 1.0),
            ("repetition_penalty", 1e-2, 1e2),
            ("predictor_temperature", 0.0, 100.0),
            ("predictor_top_k", 0, ALL),
            ("predictor_top_p", 1e-6, 1.0),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise BadRequest(
                    f"{name}={value} is out of range.",
                    remedy=f"Choose {name} from {low:g} to {high:g}.",
                )

    @property
    def needs_full_sort(self) -> bool:
        talker = self.temperature > 0 and not _quick(self.top_k, self.top_p)
        predictor = self.predictor_temperature > 0 and not _quick(
            self.predictor_top_k, self.predictor_top_p
        )
        return talker or predictor


def _quick(top_k: int, top_p: float) -> bool:
    return 0 < top_k <= TOP_K_LIMIT and top_p >= 1.0


def seed_key(seed: int) -> tuple[int, int]:
    """SplitMix64's finalizer, as 32-bit halves."""
    z = (seed + 0x9E3779B97F4A7C15) & MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    z ^= z >> 31
    return z & MASK32, z >> 32


def _mix(x: Tensor) -> Tensor:
    x = _half_mix(x)
    return x ^ (x >> 15)


def _half_mix(x: Tensor) -> Tensor:
    x = ((x ^ (x >> 16)) * 0x21F0AAAD).bitwise_and_(MASK32)
    return ((x ^ (x >> 15)) * 0x735A2D97).bitwise_and_(MASK32)


def uniform(key_low: Tensor, key_high: Tensor, frame: Tensor, stream: Tensor) -> Tensor:
    """Float32 in (0, 1), of 23 bits."""
    here = _half_mix(torch.add(key_low, frame, alpha=FRAME_STEP).bitwise_and_(MASK32))
    bits = _mix((here ^ key_high) ^ stream)
    return ((bits >> 9) * 2.0**-23).add_(2.0**-24)


def stream_keys(codebooks: int, ids: int, device: torch.device) -> Tensor:
    """[codebooks, ids] int64, of 32 bits."""
    place = torch.arange(codebooks)[:, None] * (1 << 16) + torch.arange(ids)
    return _mix(_mix(place + 1) ^ 0x5BD1E995).to(device)


def gumbel(uniforms: Tensor) -> Tensor:
    return uniforms.log_().neg_().log_().neg_()


def apply_repetition_penalty(logits: Tensor, seen: Tensor, penalty: Tensor) -> Tensor:
    """Divide positive logits [B, V] of seen ids by [B, 1], multiply the others."""
    moved = torch.where(logits < 0, logits * penalty, logits / penalty)
    return torch.where(seen, moved, logits)


def sample(
    logits: Tensor,
    noise: Tensor,
    inv_temperature: Tensor,
    greedy: Tensor,
    out: Tensor,
    top_p: Tensor | None = None,
) -> Tensor:
    """Sample one id a row into ``out`` [B, 1]; return the largest logits [B, 1].

    Args:
        logits: [B, V]; barred ids are minus infinity.
        noise: [B, ranks] float32: Gumbel noise by rank, minus infinity behind the row's top-k.
        inv_temperature: [B, 1] float32.
        greedy: [B, 1] bool: take the largest, of equals the first.
        out: [B, 1] int64.
        top_p: [B, 1] float32, with a full sort only.
    """
    logits, noise = logits.float(), noise[:, : logits.shape[1]]
    values, ids = logits.topk(noise.shape[1], dim=-1)
    drawn = torch.addcmul(noise, values, inv_temperature)
    if top_p is not None:
        # Better ranks already reach top_p. Masked ranks must not count.
        share = (
            (values * inv_temperature).masked_fill(noise == -torch.inf, -torch.inf).softmax(dim=-1)
        )
        before = share.cumsum(dim=-1) - share
        drawn = drawn.masked_fill(before >= top_p, -torch.inf)
    picked = ids.gather(-1, drawn.argmax(dim=-1, keepdim=True))
    torch.where(greedy, logits.argmax(dim=-1, keepdim=True), picked, out=out)
    return values[:, :1]


@dataclass(frozen=True, slots=True)
class SamplingConstants:
    barred: Tensor
    """[vocab] float32: minus infinity for control ids except EOS."""
    eos: slice
    """Column of eos."""
    stream_keys: Tensor
    """[16, vocab] int64."""
    ranks: Tensor
    """[vocab] int64: 0, 1, ..."""
    true: Tensor
    """Scalar."""
    not_finite: Tensor
    """Scalar NOT_FINITE."""

    @classmethod
    def build(cls, config: ModelConfig, device: torch.device) -> SamplingConstants:
        talker = config.talker
        barred = torch.zeros(talker.vocab)
        barred[talker.codes :] = -torch.inf
        barred[talker.ids.eos] = 0.0
        return cls(
            barred.to(device),
            slice(talker.ids.eos, talker.ids.eos + 1),
            stream_keys(talker.code_groups, talker.vocab, device),
            torch.arange(talker.vocab, device=device),
            torch.ones((), dtype=torch.bool, device=device),
            torch.tensor(NOT_FINITE, device=device),
        )
