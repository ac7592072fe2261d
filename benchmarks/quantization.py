"""Error of quantized weights on a CPU, beside float32: logits, first codes, memory, load.

A checkpoint of the 0.6B sizes with random weights of the published scale (``--checkpoint``: another
one). The float32 model draws ``--rows`` speeches of ``--frames`` frames; then each model reads the
same frames (teacher forcing), and its most probable code 0 behind each is compared with that of
float32. The error is that of the logits, over their standard deviation.

Logits of random weights are flat: often the first two are nearer to each other than any rounding
is exact, while a trained model is seldom undecided. So bfloat16, in which models are published and
run, stands beside them, and the share of equal codes is also given for
frames whose margin, the first logit less the second over the standard deviation, is large
enough. What it is in speech, only published weights can say. ``--quick``: 2 layers, 40 frames.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from checkpoint_load import build
from common import Bench
from torch import Tensor

from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.quantized import Quantization, multiply
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.step import frame_step, prefill
from qwen3tts_engine.qwen3.model.transformer import length_mask

QUANTIZATIONS: tuple[Quantization | None, ...] = (None, "int8", "int4")
"""None: bfloat16."""
MARGINS = (0.0, 0.05, 0.1, 0.25, 0.5)
PROMPT = 16
"""Positions before the first frame: text ids alone."""


@dataclass(frozen=True)
class Speeches:
    """What the float32 model drew."""

    inputs: Tensor
    """[rows, PROMPT + frames, hidden]: what the talker read."""
    logits: Tensor
    """[rows, frames, codes] behind each frame, float32."""


def speeches(model: Qwen3Model, rows: int, frames: int) -> Speeches:
    """Draw speeches, seeds 0 and on, and read them as ``logits`` does."""
    kv_cache = KvCache(model.config, slots=rows, positions=PROMPT + frames + 1)
    talker, slots = model.talker, torch.arange(rows)
    text = torch.arange(rows * PROMPT).view(PROMPT, rows)
    talker.text.prepare([*text.flatten().tolist(), model.config.text_ids.tts_pad])
    pad = torch.full((rows,), model.config.text_ids.tts_pad)
    embeds = talker.table[text].transpose(0, 1).contiguous()
    for row in range(rows):
        kv_cache.reset(row, Sampling(), row)
    lengths = torch.full((rows,), PROMPT)
    prefill(model, kv_cache, slots, embeds, lengths, torch.zeros_like(lengths), kv_len=PROMPT)
    may_end, inputs = torch.zeros(rows, dtype=torch.bool), [embeds]
    for _ in range(frames):
        codes = frame_step(model, kv_cache, slots, pad, may_end, kv_cache.positions)
        ids = torch.cat([codes.t(), pad[None]]) + talker.offsets
        inputs.append(talker.table[ids].sum(dim=0)[:, None])
    read = torch.cat(inputs, dim=1)
    return Speeches(read, logits(model, read))


def logits(model: Qwen3Model, inputs: Tensor) -> Tensor:
    """Logits of code 0 behind each frame, [rows, frames, codes] float32."""
    talker, rows = model.talker, []
    for row in inputs:
        length = len(row)
        kv_cache = KvCache(model.config, slots=1, positions=length, dtype=model.dtype)
        places = torch.arange(length)
        x = talker.prefill(
            row.to(model.dtype),
            kv_cache.caches,
            torch.zeros(1, dtype=torch.int64),
            torch.zeros(length, dtype=torch.int64),
            places,
            length_mask(places[None], places, kv_cache.zero),
            model.kernels,
        )
        found = multiply(talker.norm(x[PROMPT:]), talker.head).float()
        rows.append(found[:, : model.config.talker.codes])
    return torch.stack(rows)


@dataclass(frozen=True)
class Agreement:
    """One model beside float32."""

    error: float
    """Root mean square of the logits' error over their standard deviation, per cent."""
    equal: dict[float, float]
    """Per cent of equal first codes, of frames with at least a margin."""
    frames: dict[float, int]


def agreement(found: Tensor, right: Tensor) -> Agreement:
    """Compare logits [rows, frames, codes]."""
    found, right = found.flatten(0, 1), right.flatten(0, 1)
    # A constant in all logits of a frame changes no probability.
    found, right = (each - each.mean(-1, keepdim=True) for each in (found, right))
    spread = right.std(-1)
    first, second = right.topk(2, dim=-1).values.unbind(-1)
    margin, equal = (first - second) / spread, found.argmax(-1) == right.argmax(-1)
    some = {least: margin >= least for least in MARGINS}
    return Agreement(
        100 * float((found - right).square().mean().sqrt() / spread.mean()),
        {least: 100 * float(equal[at].float().mean()) for least, at in some.items()},
        {least: int(at.sum()) for least, at in some.items()},
    )


def loaded(folder: Path, cache: Path, quantize: Quantization | None) -> Qwen3Model:
    """Load quantized, or in bfloat16."""
    dtype = torch.bfloat16 if quantize is None else torch.float32
    return Qwen3Model.load(folder, dtype=dtype, quantize=quantize, quantize_cache=cache)


@torch.no_grad()
def main() -> None:
    """Run everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, help="folder; default: random weights")
    parser.add_argument("--rows", type=int, default=20, help="speeches")
    parser.add_argument("--frames", type=int, default=25, help="frames of each")
    bench = Bench("quantization", "quantized weights beside float32", parser)
    rows, frames = (4, 10) if bench.quick else (bench.args.rows, bench.args.frames)
    with tempfile.TemporaryDirectory() as temporary:
        folder = bench.args.checkpoint or build(Path(temporary), small=bench.quick)
        cache = Path(temporary) / "cache"
        model = Qwen3Model.load(folder)
        right = speeches(model, rows, frames)
        sizes: dict[str, tuple[float, float, float]] = {}
        found: dict[str, Agreement] = {}
        del model
        for quantize in QUANTIZATIONS:
            seconds = []
            for _ in range(2):
                began = time.perf_counter()
                model = loaded(folder, cache, quantize)
                seconds.append(time.perf_counter() - began)
            name = quantize or "bfloat16"
            found[name] = agreement(logits(model, right.inputs), right.logits)
            kept = sum(each.stat().st_size for each in cache.glob(f"{name}-*/*"))
            sizes[name] = seconds[0], seconds[1], kept / 2**20
            del model
    bench.table(
        f"{rows} x {frames} frames: first codes equal to float32's, by the margin of its logits",
        ["", "error of logits %", *(f"margin >= {least:g}, %" for least in MARGINS)],
        [
            *([name, one.error, *one.equal.values()] for name, one in found.items()),
            ["frames", "", *next(iter(found.values())).frames.values()],
        ],
    )
    bench.table(
        "load",
        ["", "first s (quantizes)", "later s", "cache MB"],
        [[name, *size] for name, size in sizes.items()],
    )
    bench.figure(
        **{
            f"{key}_{name}": value
            for name, one in found.items()
            for key, value in (
                ("logit_error_pct", one.error),
                ("equal_pct", one.equal[0.0]),
                ("equal_decided_pct", one.equal[0.1]),
            )
        },
        frames=rows * frames,
    )


if __name__ == "__main__":
    main()
