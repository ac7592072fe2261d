"""Triton kernel that samples the codes of one codebook: hash, noise, masks, penalty, top-k, lookup.

One launch replaces ``TorchSampler``, with the same random numbers. The result is that of torch but
for the rounding of logarithms and of one multiplication and addition; of equal logits the smaller
id ranks first, where torch leaves the order open.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.pdl import launch_options, wait_for_inputs
from qwen3tts_engine.qwen3.model.config import MIN_FRAMES, NOT_FINITE
from qwen3tts_engine.qwen3.model.kv_cache import CODE_RING, FRAME, KEY_HIGH, KEY_LOW, POS, TOP_K
from qwen3tts_engine.qwen3.model.sampler import FrameRows, SampledCodes, Sampler, TorchSampler
from qwen3tts_engine.qwen3.model.sampling import FRAME_STEP, TOP_K_LIMIT

RANKS = TOP_K_LIMIT
"""Candidates that a row keeps; a power of two."""
MOST_IDS = 1 << 15
"""Largest vocabulary: ids and counts of them are packed in 16 bits."""
SAME_BITS = {torch.bfloat16: 16, torch.float16: 13, torch.float32: 0}
"""Low bits of a float32 that are the same in all numbers of a type and sign."""
_STEP = tl.constexpr(FRAME_STEP)
_FRAME, _POS, _TOP_K = tl.constexpr(FRAME), tl.constexpr(POS), tl.constexpr(TOP_K)
_KEY_LOW, _KEY_HIGH = tl.constexpr(KEY_LOW), tl.constexpr(KEY_HIGH)
_RING, _MIN_FRAMES = tl.constexpr(CODE_RING), tl.constexpr(MIN_FRAMES)
_NOT_FINITE = tl.constexpr(NOT_FINITE)
_INFINITY = tl.constexpr(0x7F800000)
_LARGEST = tl.constexpr(0x7FFFFFFF)
_LEAST = tl.constexpr(-(1 << 63))


@triton.jit
def _half_mix(x):
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    return (x ^ (x >> 15)) * 0x735A2D97


@triton.jit
def gumbel_noise(low, high, frame, codebook, rank):
    """Return ``sampling.gumbel(sampling.uniform(...))`` of ranks."""
    here = _half_mix((low + frame * _STEP).to(tl.uint32))
    stream = _half_mix((codebook * 65536 + rank + 1).to(tl.uint32))
    stream = _half_mix((stream ^ (stream >> 15)) ^ 0x5BD1E995)
    bits = _half_mix((here ^ high.to(tl.uint32)) ^ (stream ^ (stream >> 15)))
    bits = bits ^ (bits >> 15)
    uniform = (bits >> 9).to(tl.float32) * (2.0**-23) + 2.0**-24
    return -tl.log(-tl.log(uniform))


@triton.jit
def _order(x):
    """Return integers in the order of floats; both zeros are equal, a NaN is the largest."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0, bits ^ _LARGEST, bits)
    return tl.where(x != x, _LARGEST, bits)


@triton.jit
def _value(order):
    return tl.where(order < 0, order ^ _LARGEST, order).to(tl.float32, bitcast=True)


@triton.jit
def _candidates(order, wanted, SIZE: tl.constexpr, RANKS: tl.constexpr, SHIFT: tl.constexpr):
    """Return keys, a border, and how many reach it: ``wanted`` to RANKS, more if equal.

    A search by two bits at a time, which ends early.
    """
    key = (order.to(tl.uint32, bitcast=True) ^ 0x80000000) >> SHIFT
    border = tl.zeros((), key.dtype)
    count = tl.full((), SIZE, tl.int32)
    bit = tl.full((), (32 - SHIFT + 1) // 2 * 2, tl.int32)
    while (count > RANKS) & (bit > 0):
        bit -= 2
        one = tl.full((), 1, key.dtype) << bit
        first = border + one
        second = first + one
        third = second + one
        # Three counts in one sum.
        reached = (key >= first).to(tl.int64) + ((key >= second).to(tl.int64) << 20)
        counts = tl.sum(reached + ((key >= third).to(tl.int64) << 40), axis=0)
        one_count = (counts & 0xFFFFF).to(tl.int32)
        two_count = ((counts >> 20) & 0xFFFFF).to(tl.int32)
        three_count = (counts >> 40).to(tl.int32)
        count = tl.where(one_count >= wanted, one_count, count)
        border = tl.where(one_count >= wanted, first, border)
        count = tl.where(two_count >= wanted, two_count, count)
        border = tl.where(two_count >= wanted, second, border)
        count = tl.where(three_count >= wanted, three_count, count)
        border = tl.where(three_count >= wanted, third, border)
    return key, border, count


@triton.jit
def pick_code(
    x, at, kept, low, high, frame, top_k, codebook, cool,
    SIZE: tl.constexpr, RANKS: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """Return one sampled id of logits ``x`` [SIZE] and whether the largest logit is finite.

    ``kept``: RANKS int64 of this program alone; ``cool``: 1 / temperature, or 0.
    """
    greedy = cool == 0.0
    wanted = tl.where(greedy, 1, tl.minimum(tl.maximum(top_k, 1), RANKS)).to(tl.int32)
    order = _order(x)
    key, border, count = _candidates(order, wanted, SIZE, RANKS, SHIFT)
    # Those above the border, then those on it by id: equal ones may be too many.
    above, on = key > border, key == border
    places = tl.cumsum(above.to(tl.int32) + (on.to(tl.int32) << 16), axis=0)
    more = tl.sum(above.to(tl.int32), axis=0)
    place = tl.where(above, (places & 0xFFFF) - 1, more + (places >> 16) - 1)
    packed = (order.to(tl.int64) << 32) | (SIZE - 1 - at).to(tl.int64)
    tl.store(kept + place, packed, mask=(above | on) & (place < RANKS))
    tl.debug_barrier()
    slot, other = tl.arange(0, RANKS), tl.arange(0, RANKS)
    mine = tl.load(kept + slot, mask=slot < count, other=_LEAST)
    beside = tl.load(kept + other, mask=other < count, other=_LEAST)
    # Its rank is the number of larger ones; no two are equal.
    rank = tl.sum((beside[None, :] > mine[:, None]).to(tl.int32), axis=1)
    value = _value((mine >> 32).to(tl.int32))
    noise = gumbel_noise(low, high, frame, codebook, rank)
    drawn = tl.where(greedy, value, noise + value * cool)
    # The largest drawn, of equals the best rank. A NaN is the largest.
    choice = (_order(drawn).to(tl.int64) << 32) | ((RANKS - 1 - rank) << 16).to(tl.int64)
    choice = choice | (SIZE - 1 - (mine & 0xFFFFFFFF))
    choice = tl.where(rank < tl.minimum(wanted, count), choice, _LEAST)
    best = (tl.max(mine, axis=0) >> 32).to(tl.int32)
    return tl.max(choice, axis=0) & 0xFFFF, best < _INFINITY


@triton.jit(
    # One compilation serves codebooks 1 to 14.
    do_not_specialize=["codebook", "rows"],
    do_not_specialize_on_alignment=["codebook", "rows", "slots", "eos_allowed"],
)
def _sample(
    logits, slots, counters, knobs, ring, ids, codes, kept, table, inputs, eos_allowed, seen,
    hidden, hidden_out, pos, codebook, rows, positions, vocab,
    GROUPS: tl.constexpr, CODES: tl.constexpr, EOS: tl.constexpr, SIZE: tl.constexpr,
    RANKS: tl.constexpr, SHIFT: tl.constexpr, WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr,
    HIDDEN: tl.constexpr, HIDDEN_BLOCK: tl.constexpr, FIRST: tl.constexpr, LOOKUP: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One row; ``FIRST``: code 0, of the KV cache's logits, else of the row's."""
    if FIRST:
        wait_for_inputs(PDL)
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row)
    at = tl.arange(0, SIZE)
    inside = at < vocab
    counter = counters + slot * (_TOP_K + GROUPS)
    knob = knobs + slot * (2 * GROUPS + 1)
    frame = tl.load(counter + _FRAME)
    low, high = tl.load(counter + _KEY_LOW), tl.load(counter + _KEY_HIGH)
    top_k = tl.load(counter + _TOP_K + codebook)
    cool = tl.load(knob + codebook)
    if not FIRST:
        # The kernel before made the logits; what the row's parameters are was known earlier.
        wait_for_inputs(PDL)
    if FIRST:
        x = tl.load(logits + slot * vocab + at, mask=inside, other=float("-inf"))
        penalty = tl.load(knob + 2 * GROUPS)
        occurred = tl.load(seen + slot * vocab + at, mask=inside, other=0) != 0
        x = tl.where(occurred, tl.where(x < 0, x * penalty, tl.div_rn(x, penalty)), x)
        x = tl.where((at < CODES) | (at == EOS), x, x + float("-inf"))
        allowed = (tl.load(eos_allowed + row) != 0) & (frame >= _MIN_FRAMES)
        x = tl.where((at == EOS) & (allowed == 0), float("-inf"), x)
        d = tl.arange(0, HIDDEN_BLOCK)
        h = tl.load(hidden + slot * HIDDEN + d, mask=d < HIDDEN)
        tl.store(hidden_out + row * HIDDEN + d, h, mask=d < HIDDEN)
        place = tl.load(counter + _POS)
        tl.store(pos + row, tl.minimum(place, positions - 1))
    else:
        x = tl.load(logits + row * vocab + at, mask=inside, other=float("-inf")).to(tl.float32)
    code, finite = pick_code(
        x, at, kept + row * RANKS, low, high, frame, top_k, codebook, cool, SIZE, RANKS, SHIFT
    )
    tl.store(ids + codebook * rows + row, code)
    if LOOKUP:
        column = tl.arange(0, WIDTH_BLOCK)
        found = tl.load(table + code * WIDTH + column, mask=column < WIDTH)
        tl.store(inputs + row * WIDTH + column, found, mask=column < WIDTH)
    if FIRST:
        tl.store(seen + slot * vocab + code, 1)
        # A row whose best logit is not finite is lost.
        code = tl.where(finite, code, _NOT_FINITE)
    tl.store(codes + row * GROUPS + codebook, code)
    tl.store(ring + (slot * _RING + frame % _RING) * GROUPS + codebook, code)


@triton.jit(do_not_specialize=["rows"], do_not_specialize_on_alignment=["rows", "slots"])
def _store_codes(
    slots, counters, ring, ids, codes, rows, GROUPS: tl.constexpr, BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    wait_for_inputs(PDL)
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row)
    frame = tl.load(counters + slot * (_TOP_K + GROUPS) + _FRAME)
    book = tl.arange(0, BLOCK)
    there = (book > 0) & (book < GROUPS)
    code = tl.load(ids + book * rows + row, mask=there)
    tl.store(codes + row * GROUPS + book, code, mask=there)
    tl.store(ring + (slot * _RING + frame % _RING) * GROUPS + book, code, mask=there)


class TritonSampler:
    def __init__(self, rows: FrameRows) -> None:
        kv_cache, slots = rows.kv_cache, rows.slots
        count, self._groups = slots.shape[0], kv_cache.codes.shape[2]
        self.rows = rows
        self.ids = slots.new_empty(self._groups + 1, count)
        self._count, self._sampled = count, 0
        self._codes = slots.new_empty(count, self._groups)
        self._pos = slots.new_empty(count)
        self._kept = slots.new_empty(count, RANKS)
        self._hidden = kv_cache.hidden.new_empty(count, kv_cache.hidden.shape[1])
        self._options = launch_options(slots.device)

    def first(self, table: Tensor) -> tuple[Tensor, Tensor]:
        x = table.new_empty(2, self._count, table.shape[1])
        if table.shape[1] == self._hidden.shape[1]:
            self._hidden = x[0]
        self._launch(0, self.rows.kv_cache.logits, table, x[1])
        return self._hidden, x

    def sample(self, codebook: int, logits: Tensor) -> None:
        self._launch(codebook, logits, None, None)

    def sample_input(self, codebook: int, logits: Tensor, table: Tensor) -> Tensor:
        x = table.new_empty(self._count, table.shape[1])
        self._launch(codebook, logits, table, x)
        return x

    def finish(self) -> SampledCodes:
        if self._sampled < self._groups:
            # Codes 1 to 15 were sampled by another kernel.
            kv_cache = self.rows.kv_cache
            _store_codes[(self._count,)](
                self.rows.slots,
                kv_cache.counters,
                kv_cache.codes,
                self.ids,
                self._codes,
                self._count,
                GROUPS=self._groups,
                BLOCK=triton.next_power_of_2(self._groups),
                num_warps=1,
                **self._options,
            )
        return SampledCodes(self._codes, self.ids, self._pos)

    def _launch(
        self, codebook: int, logits: Tensor, table: Tensor | None, inputs: Tensor | None
    ) -> None:
        _, kv_cache, slots, eos_allowed, _ = self.rows
        talker, vocab = kv_cache.config.talker, logits.shape[1]
        width = 1 if table is None else table.shape[1]
        hidden = self._hidden.shape[1]
        self._sampled += 1
        _sample[(self._count,)](
            logits,
            slots,
            kv_cache.counters,
            kv_cache.knobs,
            kv_cache.codes,
            self.ids,
            self._codes,
            self._kept,
            self.ids if table is None else table,
            self.ids if inputs is None else inputs,
            eos_allowed,
            kv_cache.seen.view(torch.uint8),
            kv_cache.hidden,
            self._hidden,
            self._pos,
            codebook,
            self._count,
            kv_cache.positions,
            vocab,
            GROUPS=self._groups,
            CODES=talker.codes,
            EOS=talker.ids.eos,
            SIZE=triton.next_power_of_2(vocab),
            RANKS=RANKS,
            SHIFT=SAME_BITS[logits.dtype],
            WIDTH=width,
            WIDTH_BLOCK=triton.next_power_of_2(width),
            HIDDEN=hidden,
            HIDDEN_BLOCK=triton.next_power_of_2(hidden),
            FIRST=codebook == 0,
            LOOKUP=table is not None,
            num_warps=8,
            **self._options,
        )


def make_sampler(rows: FrameRows) -> Sampler:
    """Return a sampler; a full sort and larger vocabularies are left to torch."""
    config = rows.kv_cache.config
    large = max(config.talker.vocab, config.predictor.vocab) > MOST_IDS
    return TorchSampler(rows) if rows.full_sort or large else TritonSampler(rows)
