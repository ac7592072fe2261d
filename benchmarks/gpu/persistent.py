"""The persistent predictor without a GPU: its launch, the nodes of a step with it, its time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import torch
from gpu.trace import Trace, meta_model

from qwen3tts_engine.qwen3.kernels.persistent_predictor import (
    MOST_ROWS,
    PersistentPredictor,
    barriers,
)
from qwen3tts_engine.qwen3.model.config import PredictorConfig
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampler import FrameRows

PROGRAMS = 132
"""Multiprocessors of an H100 and an H200."""
BARRIER_US = 1.2
"""One barrier of all programs: an atomic addition and the reading of its result through the level 2
cache, and what the last program is behind the others (assumed)."""


def persistent_of(model: Qwen3Model) -> PersistentPredictor:
    """The kernel of a model without numbers."""
    predictor = model.config.predictor
    return PersistentPredictor.build(model.predictor, predictor, programs=PROGRAMS)


def launch(trace: Trace) -> None:
    """Launch it for the rows of a trace, if it serves so many; for ``kernels.EXTRA``."""
    model, rows = trace.model, min(trace.rows, MOST_ROWS)
    persistent = persistent_of(model)
    slots = torch.zeros(rows, dtype=torch.int64, device="meta")
    frame = FrameRows(model.constants, trace.kv_cache, slots, slots, False)
    sampler = model.kernels.sampler(frame)
    x = model.talker.table.new_empty(2, rows, model.config.predictor.layers.hidden)
    trace.run("predictor", lambda: persistent(x, sampler))


def step_nodes(name: str, *, rows: int) -> Counter[str]:
    """Kernels of a frame step of a published model in bfloat16, with the persistent predictor."""
    trace = Trace(meta_model(name, torch.bfloat16, torch.float16), rows)
    model = trace.model
    plain, model.kernels = (
        model.kernels,
        replace(model.kernels, predict=persistent_of(model)),
    )
    try:
        trace.step()
    finally:
        model.kernels = plain
    return Counter(node.name for node in trace.nodes)


def launch_bytes(config: PredictorConfig, *, rows: int, element_bytes: int = 2) -> int:
    """Bytes that one launch reads and writes: every weight once for each of 15 positions.

    Activations stay in the level 2 cache, and are counted all the same: each matrix's input and
    output once.
    """
    layers = config.layers
    heads = layers.heads * layers.head_dim
    qkv = heads + 2 * layers.kv_heads * layers.head_dim
    matrices = ((layers.hidden, qkv), (heads, layers.hidden), (layers.hidden, 2 * layers.ffn))
    weights = seen = 0
    for inner, outer in (*matrices, (layers.ffn, layers.hidden)):
        weights += layers.layers * inner * outer
        seen += layers.layers * (inner + outer)
    weights += layers.hidden * config.vocab
    seen += layers.hidden + config.vocab
    # Positions 0 and 1 run together.
    return element_bytes * (config.groups * weights + (config.groups + 1) * rows * seen)


def predicted_ms(
    config: PredictorConfig,
    *,
    rows: int,
    bandwidth: float,
    barrier_us: float = BARRIER_US,
    hidden: float = 0.0,
) -> float:
    """Time of one launch by arithmetic: barriers, and bytes at ``bandwidth`` (bytes a second).

    ``hidden`` is the share of the barriers' time in which the weights behind them arrive: each
    program asks for its part of the next matrix before it waits. 0: nothing overlaps; 1: bytes
    alone, where they take longer than the barriers.
    """
    waiting = barriers(config) * barrier_us * 1e-3
    reading = launch_bytes(config, rows=rows) / bandwidth * 1e3
    return waiting + reading - hidden * min(waiting, reading)
