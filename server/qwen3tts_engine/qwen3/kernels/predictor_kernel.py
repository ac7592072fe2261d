"""Codes 1 to 15 of a frame in one cooperative Triton kernel.

As many programs as the GPU has processors stay for the whole frame. Between phases they meet at a
barrier on a counter in global memory. Triton's interpreter runs it with a grid of 1.
"""

from __future__ import annotations

import triton
import triton.language as tl

from qwen3tts_engine.qwen3.kernels.pdl import prefetch
from qwen3tts_engine.qwen3.kernels.sampling_kernels import pick_code

PER_LAYER = tl.constexpr(6)
"""Entries of a layer in the table of addresses: qkv, out, gate and up, down, both norms."""
LINE = tl.constexpr(128)
"""Bytes of a line of the L2 cache."""
LINES = tl.constexpr(256)
"""Lines prefetched by one instruction of a program."""


@triton.jit
def _barrier(counter, GRID: tl.constexpr):
    """Wait for all programs; what each wrote before is then visible to all.

    The counter only grows, by GRID at each barrier, so that the count found on arrival tells which
    barrier it is: nothing is reset between launches.
    """
    # All threads of the program have written before one of them releases.
    tl.debug_barrier()
    arrived = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    complete = (arrived // GRID + 1) * GRID
    while tl.atomic_add(counter, 0, sem="acquire", scope="gpu") < complete:
        pass
    tl.debug_barrier()


@triton.jit
def _address(table, index, like):
    pointer = tl.load(table + index).to(tl.pointer_type(like.dtype.element_ty))
    return tl.multiple_of(pointer, 16)


@triton.jit
def _prefetch(
    weight, N: tl.constexpr, K: tl.constexpr, BN: tl.constexpr, GRID: tl.constexpr,
    SIZE: tl.constexpr, COMPILED: tl.constexpr,
):  # fmt: skip
    """Ask for the program's rows of a matrix [N, K] in the L2 cache.

    Weights depend on nothing that a barrier waits for: they arrive while the program waits.
    """
    if COMPILED:
        length: tl.constexpr = BN * K * SIZE // LINE
        line = tl.arange(0, LINES)
        for tile in range(tl.program_id(0), N // BN, GRID):
            start = weight + tile * (BN * K)
            for first in range(0, length, LINES):
                # Behind the end the last line is asked for again.
                at = start + tl.minimum(first + line, length - 1) * (LINE // SIZE)
                prefetch(at)


@triton.jit
def _norm_factor(x, count, floor, scale, K: tl.constexpr, BLOCK_K: tl.constexpr, M: tl.constexpr):
    """Return RMSNorm's factor of each row of ``x``: [M]."""
    m = tl.arange(0, M)
    k = tl.arange(0, BLOCK_K)
    inside = (m < count)[:, None] & (k < K)[None, :]
    at = x + m[:, None] * K + k[None, :]
    value = tl.load(at, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
    return scale / tl.sqrt(tl.sum(value * value, axis=1) + floor)


@triton.jit
def _tile(
    x, norm, weight, count, tile,
    K: tl.constexpr, N: tl.constexpr, M: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    SPLIT: tl.constexpr, NORMED: tl.constexpr, COMPILED: tl.constexpr,
):  # fmt: skip
    """Return ``x @ weight.T`` for BN rows of ``weight`` [N, K]: [M, BN] float32.

    SPLIT parts of K are summed apart, each by a warp. NORMED: ``norm`` [K] multiplies ``x``.
    """
    m = tl.arange(0, M)
    n = tile * BN + tl.arange(0, BN)
    k = tl.arange(0, SPLIT)[:, None] * BK + tl.arange(0, BK)[None, :]
    total = tl.zeros((SPLIT, M, BN), tl.float32)
    for first in range(0, K, SPLIT * BK):
        at = first + k
        there = (m < count)[None, :, None]
        known = tl.full((1, BN, 1), True, tl.int1)
        if N % BN != 0:
            known = (n < N)[None, :, None]
        if K % (SPLIT * BK) != 0:
            there = there & (at < K)[:, None, :]
            known = known & (at < K)[:, None, :]
        left = tl.load(
            x + m[None, :, None] * K + at[:, None, :], mask=there, other=0.0, cache_modifier=".cg"
        )
        right = tl.load(weight + n[None, :, None] * K + at[:, None, :], mask=known, other=0.0)
        if NORMED:
            if K % (SPLIT * BK) != 0:
                by = tl.load(norm + at, mask=at < K, other=0.0)
            else:
                by = tl.load(norm + at)
            left = (left.to(tl.float32) * by.to(tl.float32)[:, None, :]).to(right.dtype)
        if not COMPILED:
            # The interpreter would multiply the bits of bfloat16.
            left = left.to(tl.float32)
            right = right.to(tl.float32)
        total = tl.dot(left, tl.permute(right, (0, 2, 1)), total, input_precision="ieee")
    return tl.sum(total, axis=0)


@triton.jit
def _project(
    x, norm, weight, add, out, count, floor, scale,
    K: tl.constexpr, N: tl.constexpr, M: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    SPLIT: tl.constexpr, BLOCK_K: tl.constexpr, GRID: tl.constexpr, NORM: tl.constexpr,
    WEIGHTED: tl.constexpr, ADD: tl.constexpr, COMPILED: tl.constexpr,
):  # fmt: skip
    """Write ``out`` [count, N] = norm(x) @ weight.T + add.

    WEIGHTED: norm's weights are ``norm``.
    """
    m = tl.arange(0, M)
    factor = tl.full((M,), 1.0, tl.float32)
    if NORM:
        factor = _norm_factor(x, count, floor, scale, K, BLOCK_K, M)
    for tile in range(tl.program_id(0), tl.cdiv(N, BN), GRID):
        y = _tile(x, norm, weight, count, tile, K, N, M, BN, BK, SPLIT, NORM and WEIGHTED, COMPILED)
        if NORM:
            y = y * factor[:, None]
        n = tile * BN + tl.arange(0, BN)
        inside = (m < count)[:, None] & (n < N)[None, :]
        if ADD:
            at = add + m[:, None] * N + n[None, :]
            y += tl.load(at, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
        tl.store(out + m[:, None] * N + n[None, :], y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gated(
    x, norm, weight, out, count, floor, scale,
    K: tl.constexpr, N: tl.constexpr, M: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    SPLIT: tl.constexpr, BLOCK_K: tl.constexpr, GRID: tl.constexpr, WEIGHTED: tl.constexpr,
    COMPILED: tl.constexpr,
):  # fmt: skip
    """Write ``out`` [count, N] = silu(gate) * up, of ``weight`` [2 * N, K]."""
    m = tl.arange(0, M)
    factor = _norm_factor(x, count, floor, scale, K, BLOCK_K, M)
    for tile in range(tl.program_id(0), tl.cdiv(N, BN), GRID):
        gate = _tile(x, norm, weight, count, tile, K, N, M, BN, BK, SPLIT, WEIGHTED, COMPILED)
        up = _tile(x, norm, weight + N * K, count, tile, K, N, M, BN, BK, SPLIT, WEIGHTED, COMPILED)
        gate = gate * factor[:, None]
        y = gate / (1.0 + tl.exp(-gate)) * (up * factor[:, None])
        n = tile * BN + tl.arange(0, BN)
        inside = (m < count)[:, None] & (n < N)[None, :]
        tl.store(out + m[:, None] * N + n[None, :], y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _turned(heads, turn, head, floor, scale, HALF: tl.constexpr, BLOCK_HALF: tl.constexpr):
    """Return both halves of a normed and rotated query or key, rounded as it is stored."""
    d = tl.arange(0, BLOCK_HALF)
    inside = d < HALF
    at = heads + head * (2 * HALF) + d
    low = tl.load(at, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
    high = tl.load(at + HALF, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
    factor = scale / tl.sqrt(tl.sum(low * low + high * high, axis=0) + floor)
    low = low * factor
    high = high * factor
    by = turn + head * (4 * HALF) + d
    r00 = tl.load(by, mask=inside, other=0.0)
    r01 = tl.load(by + HALF, mask=inside, other=0.0)
    r10 = tl.load(by + 2 * HALF, mask=inside, other=0.0)
    r11 = tl.load(by + 3 * HALF, mask=inside, other=0.0)
    stored = heads.dtype.element_ty
    return (low * r00 + high * r01).to(stored), (low * r10 + high * r11).to(stored)


@triton.jit
def _attend_frame(
    work, rotations, out, place, rows, row, group, floor, scale, softmax_scale,
    WIDTH: tl.constexpr, GROUPS: tl.constexpr, QUERIES: tl.constexpr, HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """Attention of one position, row and key head, into ``out`` [GROUPS * QUERIES * 2 * HALF].

    ``work`` is [positions, rows, WIDTH] of the layer; the key is rotated in place.
    """
    dim: tl.constexpr = 2 * HALF
    d = tl.arange(0, BLOCK_HALF)
    inside = d < HALF
    column = work + group * ((QUERIES + 2) * dim)
    mine = column + (place * rows + row) * WIDTH
    turn = rotations + place * ((QUERIES + 1) * 2 * dim)
    key_low, key_high = _turned(mine, turn, QUERIES, floor, scale, HALF, BLOCK_HALF)
    own = mine + QUERIES * dim + d
    tl.store(own, key_low, mask=inside)
    tl.store(own + HALF, key_high, mask=inside)
    value_low = tl.load(own + dim, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
    value_high = tl.load(
        own + dim + HALF, mask=inside, other=0.0, cache_modifier=".cg"
    ).to(tl.float32)  # fmt: skip

    at = tl.arange(0, PLACES)
    there = (at < place)[:, None] & inside[None, :]
    before = column + (at * rows + row)[:, None] * WIDTH + QUERIES * dim + d[None, :]
    k_low = tl.load(before, mask=there, other=0.0, cache_modifier=".cg").to(tl.float32)
    k_high = tl.load(before + HALF, mask=there, other=0.0, cache_modifier=".cg").to(tl.float32)
    v_low = tl.load(before + dim, mask=there, other=0.0, cache_modifier=".cg").to(tl.float32)
    v_high = tl.load(
        before + dim + HALF, mask=there, other=0.0, cache_modifier=".cg"
    ).to(tl.float32)  # fmt: skip
    key_low = key_low.to(tl.float32)
    key_high = key_high.to(tl.float32)
    for query in tl.static_range(QUERIES):
        low, high = _turned(mine, turn, query, floor, scale, HALF, BLOCK_HALF)
        low = low.to(tl.float32)
        high = high.to(tl.float32)
        itself = tl.sum(low * key_low + high * key_high, axis=0) * softmax_scale
        score = tl.sum(low[None, :] * k_low + high[None, :] * k_high, axis=1) * softmax_scale
        score = tl.where(at < place, score, float("-inf"))
        peak = tl.maximum(itself, tl.max(score, axis=0))
        share = tl.exp(score - peak)
        own_share = tl.exp(itself - peak)
        total = tl.sum(share, axis=0) + own_share
        y_low = (tl.sum(share[:, None] * v_low, axis=0) + own_share * value_low) / total
        y_high = (tl.sum(share[:, None] * v_high, axis=0) + own_share * value_high) / total
        to = out + (group * QUERIES + query) * dim + d
        tl.store(to, y_low.to(out.dtype.element_ty), mask=inside)
        tl.store(to + HALF, y_high.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _draw(
    logits, counter, cool, kept, codebook,
    VOCAB: tl.constexpr, SIZE: tl.constexpr, RANKS: tl.constexpr, SHIFT: tl.constexpr,
    KEY_LOW: tl.constexpr, KEY_HIGH: tl.constexpr, FRAME: tl.constexpr, TOP_K: tl.constexpr,
):  # fmt: skip
    """Return a row's code; ``kept`` is its place for ranks."""
    at = tl.arange(0, SIZE)
    x = tl.load(logits + at, mask=at < VOCAB, other=float("-inf"), cache_modifier=".cg")
    code, _ = pick_code(
        x.to(tl.float32), at, kept, tl.load(counter + KEY_LOW), tl.load(counter + KEY_HIGH),
        tl.load(counter + FRAME), tl.load(counter + TOP_K + codebook), codebook, cool,
        SIZE, RANKS, SHIFT,
    )  # fmt: skip
    return code


@triton.jit
def _copy(source, to, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(to + at, tl.load(source + at, mask=at < SIZE), mask=at < SIZE)


@triton.jit(do_not_specialize=["rows"])
def _predict(
    x, codes, slots, counters, knobs, table, rotations,
    work, attended, gated, logits, kept, counter,
    rows, counters_row, knobs_row, codes_row,
    floor, scale, head_floor, head_scale, softmax_scale,
    GRID: tl.constexpr, STEPS: tl.constexpr, LAYERS: tl.constexpr, HIDDEN: tl.constexpr,
    FFN: tl.constexpr, VOCAB: tl.constexpr, GROUPS: tl.constexpr, QUERIES: tl.constexpr,
    HALF: tl.constexpr, RANKS: tl.constexpr, SHIFT: tl.constexpr, M: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr, BN_QKV: tl.constexpr, BN_HIDDEN: tl.constexpr, BN_FFN: tl.constexpr,
    BN_HEAD: tl.constexpr, BLOCK_HIDDEN: tl.constexpr, BLOCK_HALF: tl.constexpr,
    BLOCK_VOCAB: tl.constexpr, PLACES: tl.constexpr, KEY_LOW: tl.constexpr,
    KEY_HIGH: tl.constexpr, FRAME: tl.constexpr, TOP_K: tl.constexpr, WEIGHTED: tl.constexpr,
    COMPILED: tl.constexpr,
):  # fmt: skip
    """Codes 1 to STEPS of ``rows`` rows, into the same rows of ``codes``.

    ``x`` [2, rows, HIDDEN], the inputs of positions 0 and 1, is overwritten; after the first step
    its first half is one position of each row. ``work`` is [LAYERS, STEPS + 1, rows, width],
    ``logits`` [STEPS, rows, VOCAB], ``kept`` [rows, RANKS], ``table`` ``PersistentPredictor``'s.
    """
    pid = tl.program_id(0)
    heads: tl.constexpr = GROUPS * QUERIES * 2 * HALF
    width: tl.constexpr = GROUPS * (QUERIES + 2) * 2 * HALF
    size: tl.constexpr = x.dtype.element_ty.primitive_bitwidth // 8
    books = table + LAYERS * PER_LAYER
    embeddings = books + STEPS
    last_norm = _address(embeddings, STEPS - 1, x)
    _prefetch(_address(table, 0, x), width, HIDDEN, BN_QKV, GRID, size, COMPILED)

    for step in range(STEPS):
        place = tl.where(step == 0, 0, step + 1)
        count = tl.where(step == 0, 2 * rows, rows)
        for layer in range(LAYERS):
            at = table + layer * PER_LAYER
            mine = work + layer * ((STEPS + 1) * rows * width)
            _project(
                x, _address(at, 4, x), _address(at, 0, x), x, mine + place * rows * width, count,
                floor, scale,
                HIDDEN, width, M, BN_QKV, BK, SPLIT, BLOCK_HIDDEN, GRID, True, WEIGHTED, False,
                COMPILED,
            )  # fmt: skip
            _prefetch(_address(at, 1, x), HIDDEN, heads, BN_HIDDEN, GRID, size, COMPILED)
            _barrier(counter, GRID)

            turns = rotations + layer * ((STEPS + 1) * (QUERIES + 1) * 4 * HALF)
            for item in range(pid, rows * GROUPS, GRID):
                row = item // GROUPS
                for here in range(place, step + 2):
                    _attend_frame(
                        mine, turns, attended + ((here - place) * rows + row) * heads, here, rows,
                        row, item % GROUPS, head_floor, head_scale, softmax_scale,
                        width, GROUPS, QUERIES, HALF, BLOCK_HALF, PLACES,
                    )  # fmt: skip
                    # The next position reads the key that this one rotated.
                    tl.debug_barrier()
            gate = _address(at, 2, x)
            _prefetch(gate, FFN, HIDDEN, BN_FFN, GRID, size, COMPILED)
            _prefetch(gate + FFN * HIDDEN, FFN, HIDDEN, BN_FFN, GRID, size, COMPILED)
            _barrier(counter, GRID)

            _project(
                attended, last_norm, _address(at, 1, x), x, x, count, floor, scale,
                heads, HIDDEN, M, BN_HIDDEN, BK, SPLIT, BLOCK_HIDDEN, GRID, False, WEIGHTED, True,
                COMPILED,
            )  # fmt: skip
            _barrier(counter, GRID)

            _gated(
                x, _address(at, 5, x), _address(at, 2, x), gated, count, floor, scale,
                HIDDEN, FFN, M, BN_FFN, BK, SPLIT, BLOCK_HIDDEN, GRID, WEIGHTED, COMPILED,
            )  # fmt: skip
            _prefetch(_address(at, 3, x), HIDDEN, FFN, BN_HIDDEN, GRID, size, COMPILED)
            _barrier(counter, GRID)

            _project(
                gated, last_norm, _address(at, 3, x), x, x, count, floor, scale,
                FFN, HIDDEN, M, BN_HIDDEN, BK, SPLIT, BLOCK_HIDDEN, GRID, False, WEIGHTED, True,
                COMPILED,
            )  # fmt: skip
            if layer + 1 < LAYERS:
                following = _address(at, PER_LAYER, x)
                _prefetch(following, width, HIDDEN, BN_QKV, GRID, size, COMPILED)
            else:
                _prefetch(_address(books, step, x), VOCAB, HIDDEN, BN_HEAD, GRID, size, COMPILED)
            _barrier(counter, GRID)

        scored = logits + step * rows * VOCAB
        _project(
            x + (count - rows) * HIDDEN, last_norm, _address(books, step, x), x, scored, rows,
            floor, scale,
            HIDDEN, VOCAB, M, BN_HEAD, BK, SPLIT, BLOCK_HIDDEN, GRID, True, WEIGHTED, False,
                COMPILED,
        )  # fmt: skip
        _prefetch(_address(table, 0, x), width, HIDDEN, BN_QKV, GRID, size, COMPILED)
        _barrier(counter, GRID)

        book = step + 1
        for row in range(pid, rows, GRID):
            slot = tl.load(slots + row)
            code = _draw(
                scored + row * VOCAB, counters + slot * counters_row,
                tl.load(knobs + slot * knobs_row + book), kept + row * RANKS, book,
                VOCAB, BLOCK_VOCAB, RANKS, SHIFT, KEY_LOW, KEY_HIGH, FRAME, TOP_K,
            )  # fmt: skip
            tl.store(codes + book * codes_row + row, code)
            if book < STEPS:
                source = _address(embeddings, step, x) + code * HIDDEN
                _copy(source, x + row * HIDDEN, HIDDEN, BLOCK_HIDDEN)
        if book < STEPS:
            _barrier(counter, GRID)
