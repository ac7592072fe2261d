"""Codes to samples while they arrive: our stateful decoder beside decoding a window again.

A random decoder of the published size, float32, one thread unless said. Open engines make a chunk
of new frames by decoding the frames before it once more as context and cutting their samples off;
25 and 72 frames of context are the common choices. Here they run on our own layers, each window
decoded whole from an empty past, which is what costs them least.

- *ms a frame*: per new frame, the least over rounds; rounds of all methods alternate, so that a
  busy moment of the machine hits all. Windows are full, as they are after the first seconds.
- *x ours*: that over ours with the same chunk.
- *official*: the official package's decoder (where ``make oracle`` made its environment), of the
  same size with weights of its own, in another process, one piece of 24 frames: what it does, and
  its best case. Its rounds alternate with ours. Here processor time counts, which other work on
  the machine disturbs least; with two threads it is that of both, halved.
- *max diff*, *SNR*: samples in chunks of 4 against the decode of all frames in one piece, where
  full scale is ±1: of ours the whole stream, of a window some chunks where it is full. LayerScale
  is set to several values, since distant frames matter more the larger it is.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from common import Bench
from torch import Tensor

from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_engine.qwen3.model.codec_decoder import CodecDecoder
from qwen3tts_engine.qwen3.model.codec_state import CodecState
from qwen3tts_engine.qwen3.model.config import CodecDecoderConfig
from tests.tiny_models.published import PUBLISHED
from tests.tiny_models.weights import random_weights

CONTEXTS = (25, 72)
STREAMS = 8
COMPARED = 4
"""Chunk of the figures."""
GAIN = 0.8
"""On all random matrices, for *max diff* and *SNR*, which depend on it: at 1.0 the layers amplify
rounding (ours 5e-5, a window of 25 at 7 dB), at 0.58 what is distant hardly matters (4e-7, 38 dB).
The ratios of cost do not depend on it."""
PIECE = 24
"""Frames of the official decoder's piece."""
ROOT = Path(__file__).resolve().parent.parent
OFFICIAL_PYTHON = ROOT / ".oracle" / "bin" / "python"
OFFICIAL = """
import json, sys, time
import torch
from qwen_tts.core.tokenizer_12hz import modeling_qwen3_tts_tokenizer_v2 as official
asked = json.loads(sys.argv[1])
torch.set_grad_enabled(False)
config = official.Qwen3TTSTokenizerV2DecoderConfig(**asked["config"])
decoder = official.Qwen3TTSTokenizerV2Decoder(config).eval()
for line in sys.stdin:
    threads, rows = map(int, line.split())
    torch.set_num_threads(threads)
    codes = torch.randint(0, config.codebook_size, (rows, config.num_quantizers, asked["piece"]))
    began = time.process_time()
    decoder(codes)
    taken = (time.process_time() - began) / threads
    print(json.dumps(1e3 * taken / rows / asked["piece"]), flush=True)
"""
Work = Callable[[], object]


def loud(weights: Weights, config: CodecDecoderConfig, scale: float, codes: Tensor) -> CodecDecoder:
    """A decoder with every LayerScale at one value, whose output is speech-like loud: 0.15 rms."""
    tensors = {name: weights[name] for name in weights.names() if name.startswith("decoder.")}
    for name, tensor in tensors.items():
        if name.endswith("layer_scale.scale"):
            tensor.fill_(scale)
        elif name.endswith("weight") and tensor.dim() > 1:
            tensor.mul_(GAIN)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    found = Weights(weights.source, shapes, tensors.__getitem__)
    last = f"decoder.decoder.{len(config.upsample_rates) + 2}.conv."
    for _ in range(2):  # the first time it may clip
        level = CodecDecoder.from_weights(config, found).decode(codes).pow(2).mean().sqrt()
        for part in ("weight", "bias"):
            tensors[last + part].mul_(0.15 / level)
    return CodecDecoder.from_weights(config, found)


def window(decoder: CodecDecoder, codes: Tensor, begin: int, frames: int, context: int) -> Tensor:
    """New frames by a window: shape [T, 16] to [frames samples_per_frame]."""
    first = max(0, begin - context)
    made = decoder.decode(codes[first : begin + frames])
    return made[(begin - first) * decoder.samples_per_frame :]


def stateful_work(decoder: CodecDecoder, codes: Tensor, frames: int, rows: int = 1) -> Work:
    """One chunk of ours for ``rows`` streams, anywhere in them: it costs the same."""
    state = decoder.new_state(rows)
    slots = torch.arange(rows)
    batch = codes[:frames].expand(rows, -1, -1)
    return lambda: decoder.run(state, slots, batch)


def window_work(decoder: CodecDecoder, codes: Tensor, frames: int, context: int) -> Work:
    """One chunk of a window method, its window full."""
    return lambda: window(decoder, codes, context, frames, context)


def least(works: Sequence[Work], rounds: int) -> list[float]:
    """Seconds of each, the least over rounds."""
    times = [math.inf] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            began = time.perf_counter()
            work()
            times[index] = min(times[index], time.perf_counter() - began)
    return times


def speed(
    decoder: CodecDecoder, codes: Tensor, chunks: Sequence[int], rounds: int
) -> dict[tuple[str, int], float]:
    """Milliseconds a new frame by method and chunk."""
    works: dict[tuple[str, int], Work] = {}
    for chunk in chunks:
        works["stateful (ours)", chunk] = stateful_work(decoder, codes, chunk)
        for context in CONTEXTS:
            works[f"window of {context}", chunk] = window_work(decoder, codes, chunk, context)
    times = least(list(works.values()), rounds)
    return {
        (name, chunk): 1e3 * taken / chunk
        for (name, chunk), taken in zip(works, times, strict=True)
    }


@contextmanager
def official_decoder(config: CodecDecoderConfig) -> Iterator[Callable[[int, int], float]]:
    """A running official decoder: threads and rows to milliseconds a frame."""
    asked = {"config": dataclasses.asdict(config), "piece": PIECE}
    stubs = str(ROOT / "tests" / "parity" / "stubs")
    with subprocess.Popen(
        [OFFICIAL_PYTHON, "-W", "ignore", "-c", OFFICIAL, json.dumps(asked)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": stubs},
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        given, found = running.stdin, running.stdout

        def measure(threads: int, rows: int) -> float:
            print(threads, rows, file=given, flush=True)
            for line in found:
                if line[:1].isdigit():
                    return float(line)
            raise SystemExit("the official decoder ended")

        try:
            yield measure
        finally:
            given.close()


def beside_official(
    decoders: dict[str, CodecDecoder], codes: Tensor, chunks: Sequence[int], rounds: int
) -> list[list[str | float]]:
    """Threads, rows, the official decoder's milliseconds a frame, and ours by chunk."""
    table: list[list[str | float]] = []
    threads_before = torch.get_num_threads()
    with official_decoder(next(iter(decoders.values())).config) as measure:
        measure(1, 1)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for rows in (1, 4):
                works = [
                    stateful_work(decoder, codes, chunk, rows)
                    for decoder in decoders.values()
                    for chunk in chunks
                ]
                best = [math.inf] * (1 + len(works))
                for _ in range(rounds):
                    best[0] = min(best[0], measure(threads, rows))
                    for at, work in enumerate(works):
                        for _ in range(2):
                            began = time.process_time()
                            work()
                            taken = (time.process_time() - began) / threads / rows
                            chunk = chunks[at % len(chunks)]
                            best[1 + at] = min(best[1 + at], 1e3 * taken / chunk)
                table.append([threads, rows, *best])
    torch.set_num_threads(threads_before)
    return table


def batched(decoder: CodecDecoder, codes: Tensor, rounds: int) -> float:
    """Milliseconds a frame of a stream, with STREAMS of them in one run of one frame each."""
    (taken,) = least([stateful_work(decoder, codes, 1, STREAMS)], rounds)
    return 1e3 * taken / STREAMS


def streamed(decoder: CodecDecoder, codes: Tensor, frames: int) -> Tensor:
    """A whole stream of ours in chunks."""
    state: CodecState = decoder.new_state(1)
    slot = torch.zeros(1, dtype=torch.int64)
    return torch.cat(
        [decoder.run(state, slot, part[None])[0] for part in torch.split(codes, frames)]
    )


def errors(found: Tensor, exact: Tensor) -> tuple[float, float]:
    """Largest difference, and SNR in dB."""
    error = (found - exact).double()
    snr = 10 * math.log10(float(exact.double().pow(2).mean() / error.pow(2).mean()))
    return float(error.abs().max()), snr


def quality(decoder: CodecDecoder, codes: Tensor, places: int) -> list[tuple[str, float, float]]:
    """Method, largest difference and SNR; ours first."""
    exact = decoder.decode(codes)
    found = [("stateful (ours)", *errors(streamed(decoder, codes, COMPARED), exact))]
    size = decoder.samples_per_frame
    for context in CONTEXTS:
        # Evenly from where the window is full to the end.
        last = len(codes) - COMPARED
        begins = [last - (last - context) * place // places for place in range(places)]
        made = torch.cat([window(decoder, codes, at, COMPARED, context) for at in begins])
        wanted = torch.cat([exact[at * size : (at + COMPARED) * size] for at in begins])
        found.append((f"window of {context}", *errors(made, wanted)))
    return found


def main() -> None:
    """Measure all, print the tables and the figures."""
    parser = argparse.ArgumentParser(description="the codec decoder beside windows")
    parser.add_argument("--threads", type=int, default=1, help="of torch; 1 unless said")
    bench = Bench("codec_decode", "the codec decoder beside windows", parser)
    torch.set_num_threads(bench.args.threads)
    config = PUBLISHED["1.7b-custom_voice"].codec.decoder
    _, weights = random_weights(PUBLISHED["1.7b-custom_voice"])
    frames, rounds = (96, 1) if bench.quick else (200, 5)
    draw = torch.Generator().manual_seed(0)
    codes = torch.randint(0, config.codebook_size, (frames, 16), generator=draw)
    decoder = CodecDecoder.from_weights(config, weights)
    window(decoder, codes, 0, COMPARED, 0)  # the first run of all is slow
    times = speed(decoder, codes, (1, COMPARED) if bench.quick else (1, 2, COMPARED, 8), rounds)
    rows: list[list[str | float]] = [
        [name, chunk, taken, taken / times["stateful (ours)", chunk], 80 / taken]
        for (name, chunk), taken in times.items()
    ]
    official: list[list[str | float]] = []
    if OFFICIAL_PYTHON.exists():
        chunks = (1, COMPARED) if bench.quick else (1, 2, COMPARED, 8)
        sides = {"ours": decoder}
        if not bench.quick:
            sides["bfloat16"] = CodecDecoder.from_weights(config, weights, dtype=torch.bfloat16)
        official = beside_official(sides, codes, chunks, 2 if bench.quick else 8)
        named = [f"{side}, chunk {chunk}" for side in sides for chunk in chunks]
        bench.table(
            "ms a frame of a stream, processor time",
            ["threads", "rows", f"official, {PIECE} frames", *named],
            official,
        )
    alone = times["stateful (ours)", 1]
    taken = batched(decoder, codes, rounds)
    rows.append([f"stateful, {STREAMS} streams together", 1, taken, taken / alone, 80 / taken])
    rows.sort(key=lambda row: (str(row[0]), row[1]))
    columns = ["method", "chunk", "ms a frame", "x ours", "x real time"]
    bench.table(f"cost, {bench.args.threads} thread(s)", columns, rows)
    found: list[list[str | float]] = []
    for scale in (0.3,) if bench.quick else (0.01, 0.3, 1.0):
        scaled = loud(weights, config, scale, codes[:8])
        for name, *numbers in quality(scaled, codes, 1 if bench.quick else 8):
            found.append([name, scale, *numbers])
    columns = ["method", "LayerScale", "max diff", "SNR dB"]
    bench.table(f"{frames} frames in chunks of {COMPARED}, against one piece", columns, found)
    state = decoder.new_state(1)
    bench.note(f"Random matrices times {GAIN}: max diff and SNR depend on it, the cost does not.")
    bench.note(f"State of a stream: {state.bytes_per_slot / 2**20:.2f} MiB, float32.")
    ours = times["stateful (ours)", COMPARED]
    if official:
        bench.note("bfloat16 is as slow as float32 on CPUs without instructions for it.")
    bench.figure(
        **({"official_ms": official[0][2], "ours_ms_1": official[0][3]} if official else {}),
        max_abs_diff=max(float(row[2]) for row in found if row[0] == "stateful (ours)"),
        ratio_window25=round(times["window of 25", COMPARED] / ours, 2),
        ratio_window72=round(times["window of 72", COMPARED] / ours, 2),
    )


if __name__ == "__main__":
    main()
