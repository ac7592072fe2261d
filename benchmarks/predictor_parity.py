"""The persistent predictor at the published shapes by Triton's interpreter, beside plain torch.

    PYTHONPATH=.:server:codecs python benchmarks/predictor_parity.py            # minutes
    PYTHONPATH=.:server:codecs python benchmarks/predictor_parity.py --quick

All five layers (``--quick``: one) and 15 codebooks of a frame, random weights, a grid of 1. In
float32 the codes of greedy and of sampled rows are compared with plain torch's; in 2-byte numbers
the relative error of greedy logits, kernel and plain torch each against float32 behind the same
codes. Tiles are wider than on a GPU, which changes only the order of sums: ``--tiles gpu`` takes
those of a GPU (hours).
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace

os.environ["TRITON_INTERPRET"] = "1"  # Before Triton's first import.

import torch
from common import Bench

from qwen3tts_engine.qwen3.kernels import persistent_predictor as persistent
from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampler import FrameRows, TorchSampler
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.transformer import TORCH_KERNELS
from tests.tiny_models.published import PUBLISHED
from tests.tiny_models.weights import random_weights

MODELS = ("0.6b-custom_voice", "1.7b-custom_voice")
WIDE = {"BN_QKV": 128, "BN_HIDDEN": 128, "BN_FFN": 128, "BN_HEAD": 256, "BK": 256}
ROWS = (Sampling(), Sampling(predictor_temperature=0.0), Sampling(predictor_temperature=1.3))
"""In turn; with others the first of each is the temperature of code 0."""


def model_of(name: str, dtype: torch.dtype, layers: int) -> Qwen3Model:
    """A published predictor of so many layers beside a talker of one layer and few texts."""
    config = PUBLISHED[name]
    predictor = config.predictor
    predictor = replace(predictor, layers=replace(predictor.layers, layers=layers))
    talker = replace(
        config.talker,
        layers=replace(config.talker.layers, layers=1),
        text_vocab=256,
        text_hidden=64,
        max_positions=64,
    )
    config = replace(config, talker=talker, predictor=predictor)
    weights = random_weights(config, seed=5)
    return Qwen3Model.from_weights(config, *weights, dtype=dtype, fused_norm=True)


def kernel_of(model: Qwen3Model, *, wide: bool) -> persistent.PersistentPredictor:
    """The kernel for the interpreter."""
    built = persistent.PersistentPredictor.build(
        model.predictor, model.config.predictor, programs=1
    )
    return replace(built, constants={**built.constants, **WIDE}) if wide else built


def codes_equal(model: Qwen3Model, rows: int, *, wide: bool) -> int:
    """How many of a frame's codes 1 to 15 are those of plain torch."""
    cache = KvCache(model.config, slots=rows, positions=1, dtype=model.dtype)
    draw = torch.Generator().manual_seed(rows)
    for slot in range(rows):
        cache.reset(slot, ROWS[slot % len(ROWS)], slot)
    for state in (cache.hidden, cache.logits):
        state.copy_(torch.randn(state.shape, generator=draw))
    slots = torch.arange(rows - 1, -1, -1)
    frame = FrameRows(model.constants, cache, slots, torch.zeros_like(slots), False)
    found = []
    with torch.no_grad():
        for predict in (None, kernel_of(model, wide=wide)):
            sampler = TorchSampler(frame)
            model.predictor.predict(sampler, replace(TORCH_KERNELS, predict=predict))
            found.append(sampler.ids[1:-1])
    return int((found[0] == found[1]).sum())


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiles", choices=("wide", "gpu"), default="wide", help="see above")
    parser.add_argument("--rows", type=int, action="append", help="only these; repeatable")
    bench = Bench("predictor_parity", "the persistent predictor beside plain torch", parser)
    wide = bench.args.tiles == "wide"
    layers = 1 if bench.quick else 5
    counts = bench.args.rows or ((1,) if bench.quick else (1, 3, 8))
    table: list[list[object]] = []
    equal = total = 0
    worst = 0.0
    for name in MODELS[:1] if bench.quick else MODELS:
        model = model_of(name, torch.float32, layers)
        for rows in counts:
            same, of = codes_equal(model, rows, wide=wide), 15 * rows
            equal, total = equal + same, total + of
            table.append([name, "float32", rows, f"{same} of {of}", "", ""])
        for dtype in () if bench.quick else (torch.bfloat16, torch.float16):
            narrow = model_of(name, dtype, layers)
            exact = persistent.in_float32(narrow.predictor)
            ours, plain = persistent.errors(narrow, kernel_of(narrow, wide=wide), exact, counts[0])
            worst = max(worst, ours / plain)
            table.append([name, str(dtype)[6:], counts[0], "", ours, plain])
    bench.table(
        "one frame",
        ["model", "numbers", "rows", "codes equal", "error of logits", "plain torch's"],
        table,
    )
    bench.figure(codes_equal=equal, codes=total, error_ratio=worst)


if __name__ == "__main__":
    main()
