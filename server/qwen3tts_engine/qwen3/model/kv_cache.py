"""KV cache and row state of all slots, allocated once and never moved.

The extra slot ``scratch`` receives padding rows' writes. Only a step that names its slot changes a
row.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.sampling import ALL, NO_TOP_P, Sampling, seed_key
from qwen3tts_wire.errors import EngineUnavailable

CODE_RING = 64
"""Frames of codes kept per slot, by frame number modulo this."""
POS, FRAME, KEY_LOW, KEY_HIGH, TOP_K = range(5)
"""Columns of ``KvCache.counters``; from TOP_K on one for each codebook."""


@dataclass(frozen=True, slots=True)
class KvSnapshot:
    kv: Tensor
    """[layers, length, kv_heads, 2, head_dim]."""

    @property
    def length(self) -> int:
        return self.kv.shape[1]

    @property
    def bytes(self) -> int:
        return self.kv.nbytes


class KvCache:
    """Callers end a row at ``pos == positions``: a step beyond overwrites the last."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        slots: int,
        positions: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Allocate; EngineUnavailable if there is too little memory."""
        longest = config.talker.max_positions
        if slots < 1 or not 1 <= positions <= longest:
            raise EngineUnavailable(
                f"An kv_cache of {slots} slots of {positions} positions cannot be.",
                remedy=f"Choose at least 1 slot, and 1 to {longest} positions.",
            )
        layers, self.config = config.talker.layers, config
        self.slots, self.positions, self.scratch = slots, positions, slots
        self.device, self.dtype = torch.device(device), dtype
        rows, groups = slots + 1, config.talker.code_groups

        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        try:
            shape = (layers.layers, rows, positions, layers.kv_heads, 2, layers.head_dim)
            self.kv = lazy_zeros(shape, dtype, self.device)
            """[layers, S + 1, positions, kv_heads, 2, head_dim]: rotated keys, and values."""
            self.hidden = zeros(rows, layers.hidden, dtype=dtype)
            """[S + 1, hidden]: the talker's last hidden states, behind its last norm."""
            self.logits = zeros(rows, config.talker.vocab, dtype=torch.float32)
            """[S + 1, vocab]: unprocessed logits of the next code 0."""
            self.seen = zeros(rows, config.talker.vocab, dtype=torch.bool)
            """[S + 1, vocab]: codes 0 that occurred in the row."""
            self.counters = zeros(rows, TOP_K + groups, dtype=torch.int64)
            """[S + 1, 4 + 16]: position, frame, seed key, top-k of each codebook."""
            self.knobs = zeros(rows, 2 * groups + 1, dtype=torch.float32)
            """[S + 1, 16 + 16 + 1]: 1 / temperature (0: greedy) and top-p of each codebook,
            repetition penalty."""
            self.codes = zeros(rows, CODE_RING, groups, dtype=torch.int64)
            """[S + 1, CODE_RING, 16]: latest frames; frame n at n % CODE_RING."""
        except torch.OutOfMemoryError as error:
            size = rows * self.bytes_per_slot(config, positions, dtype)
            raise out_of_memory(
                f"{slots} slots of {positions} positions", size, self.device
            ) from error
        self.caches = self.kv.unbind(0)
        """``kv`` of each layer."""
        self.places = torch.arange(positions, device=self.device)
        """[positions]: 0, 1, ..."""
        self.zero = torch.zeros((), dtype=dtype, device=self.device)
        """A scalar 0, for masks."""
        self.one = torch.ones(1, 2, dtype=torch.int64, device=self.device)
        """One position, one frame."""

    @property
    def pos(self) -> Tensor:
        """[S + 1] int64: next positions; a view."""
        return self.counters[:, POS]

    @property
    def frame(self) -> Tensor:
        return self.counters[:, FRAME]

    @staticmethod
    def bytes_per_slot(config: ModelConfig, positions: int, dtype: torch.dtype) -> int:
        talker, groups = config.talker, config.talker.code_groups
        layers = talker.layers
        kv = layers.layers * positions * layers.kv_heads * 2 * layers.head_dim
        integers = TOP_K + groups + CODE_RING * groups
        return (
            (kv + layers.hidden) * dtype.itemsize
            + talker.vocab * (4 + 1)
            + integers * 8
            + (2 * groups + 1) * 4
        )

    @property
    def bytes(self) -> int:
        return (self.slots + 1) * self.bytes_per_slot(self.config, self.positions, self.dtype)

    def reset(
        self, slot: int, sampling: Sampling, seed: int, *, written: int | None = None
    ) -> None:
        """Start a row; old keys are cleared, as masked values must be finite.

        ``written``: positions that earlier rows may have used; None: unknown.
        """
        groups = self.config.talker.code_groups
        rest = groups - 1
        if written is None and self.device.type == "cpu":
            written = int(self.pos[slot]) + 1
        # Of some hundred MiB; on a CPU what no row has written stays uncommitted.
        self.kv[:, slot, :written].zero_()
        for part in (self.hidden, self.logits, self.seen, self.codes):
            part[slot].zero_()
        top_k = [sampling.top_k, *[sampling.predictor_top_k] * rest]
        counters = [0, 0, *seed_key(seed), *[k or ALL for k in top_k]]
        temperature = [sampling.temperature, *[sampling.predictor_temperature] * rest]
        top_p = [sampling.top_p, *[sampling.predictor_top_p] * rest]
        knobs = [
            *[1 / t if t else 0.0 for t in temperature],
            *[p if p < 1 else NO_TOP_P for p in top_p],
            sampling.repetition_penalty,
        ]
        self.counters[slot].copy_(to_device(counters, torch.int64, self.device))
        self.knobs[slot].copy_(to_device(knobs, torch.float32, self.device))

    def begin(self, slot: int, *, position: int, frame: int) -> None:
        self.counters[slot, :2].copy_(to_device([position, frame], torch.int64, self.device))

    def snapshot(self, slot: int, length: int) -> KvSnapshot:
        return KvSnapshot(self.kv[:, slot, :length].clone())

    def restore(self, slot: int, snapshot: KvSnapshot) -> None:
        self.kv[:, slot, : snapshot.length].copy_(snapshot.kv)
        if self.device.type == "cpu":
            # What the next reset has to clear, if the row gets no further.
            self.pos[slot] = snapshot.length


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # Windows knows neither; what it maps is private as well.
    flags = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
    size = math.prod(shape) * dtype.itemsize
    try:
        memory = mmap.mmap(-1, size, flags=flags) if flags else mmap.mmap(-1, size)
    except (OSError, OverflowError):
        raise torch.OutOfMemoryError from None
    with suppress(AttributeError, OSError):
        # Where the system uses huge pages unasked, or has none.
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def to_device(
    values: Sequence[float] | Sequence[Sequence[int]], dtype: torch.dtype, device: torch.device
) -> Tensor:
    return upload(torch.tensor(values, dtype=dtype), dtype, device)


def upload(tensor: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Copy without waiting for the device's stream, as pageable memory would."""
    if tensor.dtype is not dtype:
        tensor = tensor.to(dtype)
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def out_of_memory(what: str, size: int, device: torch.device) -> EngineUnavailable:
    message = f"{what} need {size / 2**30:.2f} GiB on {device}"
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        message += f", which has {free / 2**30:.2f} of {total / 2**30:.2f} GiB free"
    return EngineUnavailable(
        message + ".",
        remedy="Use fewer slots or positions, a smaller model or dtype, or another device.",
    )
