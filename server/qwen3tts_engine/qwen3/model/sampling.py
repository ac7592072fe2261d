"""Drawing codes: which scores count, and random numbers that depend on nothing but their key.

A random number is a hash of (seed, frame, codebook, lane): the same on every device, whoever
shares the batch, and however often a frame is computed. A code is drawn by the Gumbel-max
trick: the largest of score / temperature + noise, which is a draw from their softmax.

Order of what changes the scores: repetition penalty, ids that are barred, temperature, top-k,
top-p; source: the generation of the reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.model.config import NOT_FINITE, ModelConfig
from qwen3tts_wire.errors import BadRequest

TOP_K_LIMIT = 64
"""Scores that the quick way of drawing looks at; a row that needs more needs ``full_sort``."""
ALL = 1 << 30
"""A top-k that keeps everything."""
NO_TOP_P = 2.0
"""A top-p that keeps everything, rounding or not."""
FRAME_STEP = 0x1D8E4E27
"""How far apart frames are before they are mixed; odd, and small enough for 63 bits."""
MASK64 = (1 << 64) - 1
MASK32 = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a row's codes are drawn. A temperature of 0 takes the best score."""

    temperature: float = 0.9
    """Of code 0."""
    top_k: int = 50
    """Best scores among which code 0 is drawn; 0: all."""
    top_p: float = 1.0
    """Least share of probability that those drawn from hold together."""
    repetition_penalty: float = 1.05
    """Divides the positive scores of codes 0 that the row already had, multiplies the others."""
    predictor_temperature: float = 0.9
    """Of codes 1 to 15, as are the next two."""
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
        """Whether ``frame_step`` needs ``full_sort`` for a batch with this row."""
        talker = self.temperature > 0 and not _quick(self.top_k, self.top_p)
        predictor = self.predictor_temperature > 0 and not _quick(
            self.predictor_top_k, self.predictor_top_p
        )
        return talker or predictor


def _quick(top_k: int, top_p: float) -> bool:
    return 0 < top_k <= TOP_K_LIMIT and top_p >= 1.0


def seed_key(seed: int) -> tuple[int, int]:
    """The two 32-bit halves of a well mixed seed (SplitMix64's finalizer)."""
    z = (seed + 0x9E3779B97F4A7C15) & MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    z ^= z >> 31
    return z & MASK32, z >> 32


def _mix(x: Tensor) -> Tensor:
    """Hash of 32 bits, held in int64; no product leaves 63 bits.

    Source: the "16 21f0aaad 15 735a2d97 15" member of the hash-prospector family.
    """
    x = _half_mix(x)
    return x ^ (x >> 15)


def _half_mix(x: Tensor) -> Tensor:
    """The same without the last shift, for what is mixed again."""
    x = ((x ^ (x >> 16)) * 0x21F0AAAD).bitwise_and_(MASK32)
    return ((x ^ (x >> 15)) * 0x735A2D97).bitwise_and_(MASK32)


def uniform(key_low: Tensor, key_high: Tensor, frame: Tensor, stream: Tensor) -> Tensor:
    """Random numbers in (0, 1), float32, of 23 bits; the four shapes are broadcast.

    Args:
        key_low: First half of ``seed_key``, int64.
        key_high: Second half, int64.
        frame: Number of the frame, int64 from 0.
        stream: ``stream_keys`` of codebook and lane, int64.
    """
    here = _half_mix(torch.add(key_low, frame, alpha=FRAME_STEP).bitwise_and_(MASK32))
    bits = _mix((here ^ key_high) ^ stream)
    return ((bits >> 9) * 2.0**-23).add_(2.0**-24)


def stream_keys(codebooks: int, lanes: int, device: torch.device) -> Tensor:
    """[codebooks, lanes] int64: a 32-bit number for each place that draws."""
    place = torch.arange(codebooks)[:, None] * (1 << 16) + torch.arange(lanes)
    return _mix(_mix(place + 1) ^ 0x5BD1E995).to(device)


def gumbel(uniforms: Tensor) -> Tensor:
    """Gumbel noise, in place of the uniform numbers."""
    return uniforms.log_().neg_().log_().neg_()


def apply_repetition_penalty(scores: Tensor, seen: Tensor, penalty: Tensor) -> Tensor:
    """Divide the positive scores of seen ids by the penalty, multiply the others.

    Args:
        scores: [B, V] float32.
        seen: [B, V] bool.
        penalty: [B, 1] float32.
    """
    moved = torch.where(scores < 0, scores * penalty, scores / penalty)
    return torch.where(seen, moved, scores)


def choose(
    scores: Tensor,
    noise: Tensor,
    coolness: Tensor,
    greedy: Tensor,
    out: Tensor,
    top_p: Tensor | None = None,
) -> Tensor:
    """Draw one id for each row into ``out``; the best score of each row is returned.

    Args:
        scores: [B, V] floating point; barred ids are minus infinity.
        noise: [B, ranks] float32: Gumbel noise by rank, minus infinity behind the row's top-k.
            Ranks beyond V are left out.
        coolness: [B, 1] float32: 1 / temperature.
        greedy: [B, 1] bool: take the best, of equals the first.
        out: [B, 1] int64.
        top_p: [B, 1] float32, for the full way; ``ranks`` is at least V then.

    Returns:
        [B, 1]; NaN or infinite where one of the row's scores is.
    """
    scores, noise = scores.float(), noise[:, : scores.shape[1]]
    values, ids = scores.topk(noise.shape[1], dim=-1)
    drawn = torch.addcmul(noise, values, coolness)
    if top_p is not None:
        # Those before it hold enough already. The rank's own mask must not count as noise.
        share = (values * coolness).masked_fill(noise == -torch.inf, -torch.inf).softmax(dim=-1)
        before = share.cumsum(dim=-1) - share
        drawn = drawn.masked_fill(before >= top_p, -torch.inf)
    picked = ids.gather(-1, drawn.argmax(dim=-1, keepdim=True))
    torch.where(greedy, scores.argmax(dim=-1, keepdim=True), picked, out=out)
    return values[:, :1]


@dataclass(frozen=True, slots=True)
class SamplingConstants:
    """What every step needs and no row changes."""

    barred: Tensor
    """[vocab] float32: minus infinity for ids that are no codes, but for eos."""
    eos: slice
    """Column of eos."""
    stream_keys: Tensor
    """[16, vocab] int64 of the random numbers."""
    ranks: Tensor
    """[vocab] int64: 0, 1, ..."""
    advance: Tensor
    """[1, 2] int64: one position, one frame."""
    true: Tensor
    """A scalar, for marks."""
    not_finite: Tensor
    """A scalar NOT_FINITE."""

    @classmethod
    def build(cls, config: ModelConfig, device: torch.device) -> SamplingConstants:
        """For a model on a device."""
        talker = config.talker
        barred = torch.zeros(talker.vocab)
        barred[talker.codes :] = -torch.inf
        barred[talker.ids.eos] = 0.0
        return cls(
            barred.to(device),
            slice(talker.ids.eos, talker.ids.eos + 1),
            stream_keys(talker.code_groups, talker.vocab, device),
            torch.arange(talker.vocab, device=device),
            torch.ones(1, 2, dtype=torch.int64, device=device),
            torch.ones((), dtype=torch.bool, device=device),
            torch.tensor(NOT_FINITE, device=device),
        )
