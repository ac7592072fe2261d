"""Forecast of the real-time factor on this machine's CPU, from a measurement of some seconds.

    python -m qwen3tts_engine.qwen3.kernels.cpu_forecast

The layers have the published sizes and arbitrary weights. The talker's 28 are a few that repeat,
together larger than a usual cache. 1.7B differs from 0.6B by the talker's layers alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.cpu_streams import set_threads
from qwen3tts_engine.qwen3.kernels.cpu_threads import plan_threads, usable_cores
from qwen3tts_engine.qwen3.kernels.cuda import Streams, streams_of
from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_engine.qwen3.model.codec_decoder import CodecDecoder
from qwen3tts_engine.qwen3.model.config import (
    CONTROL_IDS,
    CodecConfig,
    CodecDecoderConfig,
    ControlIds,
    LayersConfig,
    ModelConfig,
    PredictorConfig,
    TalkerConfig,
    TextIds,
)
from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.quantized import MemoryStore, Packing, Quantization
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.step import frame_step
from qwen3tts_engine.qwen3.model.talker import Talker, load_code_predictor, load_talker
from qwen3tts_engine.qwen3.model.transformer import TORCH_KERNELS, length_mask

CPU = torch.device("cpu")
KINDS: tuple[Quantization | None, ...] = (None, "int8", "int4")
"""None: bfloat16, not quantized."""
SIZES = {"0.6B": 1024, "1.7B": 2048}
"""Width of the talker."""
LAYERS = 28
"""Of the talker."""
PREDICTOR = 1024
"""Width of the code predictor."""
DISTINCT_BYTES = 90 << 20
"""Size of the talker layers that repeat, at 8 bits."""
POSITIONS = 128
CHUNK = 4
"""Frames of a decode."""
ROUNDS = 2
FRAME_MS = 80.0
OVERHEAD = 1.05
"""The engine's scheduling, guards and word times over the model's own time."""
NOISE = 1 << 20


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds of work for a second of speech, of one call."""

    threads: dict[str, str]
    """By quantization, in words."""
    factors: dict[str, dict[str, float]]
    """By size (``0.6B``, ``1.7B``) and quantization (``none``: bfloat16)."""
    seconds: float
    """Length of the measurement."""


class ArbitraryWeights(Weights):
    def __init__(self, packing: Packing | None = None, noise: Tensor | None = None) -> None:
        super().__init__("arbitrary", {}, self._none, packing=packing)
        if noise is None:
            noise = torch.randn(NOISE, generator=torch.Generator().manual_seed(0)).mul_(0.03)
        self._noise = noise

    def _none(self, name: str) -> Tensor:
        raise KeyError(name)

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        count = 1
        for size in shape:
            count *= size
        return self._noise.repeat(-(-count // NOISE))[:count].view(shape)

    def take_stored(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self.take(name, shape)

    def under(self, prefix: str) -> ArbitraryWeights:
        packing = None if self.packing is None else self.packing.under(prefix)
        return ArbitraryWeights(packing, self._noise)


def forecast() -> Forecast:
    began = time.perf_counter()
    cores = min(usable_cores(), torch.get_num_threads())
    threads: dict[str, str] = {}
    factors: dict[str, dict[str, float]] = {size: {} for size in SIZES}
    (first, width), *others = SIZES.items()
    codec = _codec()
    for kind in KINDS:
        name = kind or "none"
        plan = plan_threads(None, None, cores, quantized=kind is not None)
        threads[name] = str(plan)
        set_threads(plan.total)
        streams = streams_of(CPU, plan)
        try:
            small = _model(_config(width), kind, codec)
            frame = _least(_frames(small, streams)) / CHUNK
            factors[first][name] = _factor(frame)
            frame -= _least(_talker_layers(small.talker, small.config))
            for size, other in others:
                config = _config(other, codes=16)
                talker = _talker(config, kind)
                factors[size][name] = _factor(frame + _least(_talker_layers(talker, config)))
        finally:
            streams.close()
    return Forecast(threads, factors, round(time.perf_counter() - began, 1))


def _factor(frame: float) -> float:
    return round(1e3 * OVERHEAD * frame / FRAME_MS, 2)


def _least(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def _frames(model: Qwen3Model, streams: Streams) -> Callable[[], None]:
    kv_cache = KvCache(model.config, slots=1, positions=POSITIONS, dtype=model.dtype)
    kv_cache.reset(0, Sampling(), 0)
    slots, text = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    may_end = torch.zeros(1, dtype=torch.bool)
    state = model.decoder.new_state(1)
    codes = torch.zeros(1, CHUNK, model.config.talker.code_groups, dtype=torch.int64)

    def sound() -> None:
        model.decoder.run(state, slots, codes)

    def work() -> None:
        with streams.on("sound"):
            streams.run(sound)
        for _ in range(CHUNK):
            frame_step(model, kv_cache, slots, text, may_end, POSITIONS)
        streams.synchronize()

    return work


@torch.no_grad()
def _talker_layers(talker: Talker, config: ModelConfig) -> Callable[[], None]:
    kv_cache = KvCache(config, slots=1, positions=POSITIONS, dtype=talker.table.dtype)
    slot, x = torch.zeros(1, dtype=torch.int64), talker.table[:1].clone()
    mask = length_mask(slot, kv_cache.places, kv_cache.zero)

    @torch.no_grad()
    def work() -> None:
        talker.decode(x, kv_cache.caches, slot, slot, POSITIONS, mask, TORCH_KERNELS)

    return work


@torch.no_grad()
def _codec() -> CodecDecoder:
    return CodecDecoder.from_weights(CODEC, ArbitraryWeights(), device=CPU, dtype=torch.float32)


def _weights(kind: Quantization | None) -> tuple[ArbitraryWeights, torch.dtype]:
    if kind is None:
        return ArbitraryWeights(), torch.bfloat16
    return ArbitraryWeights(Packing(kind, MemoryStore())), torch.float32


@torch.no_grad()
def _talker(config: ModelConfig, kind: Quantization | None) -> Talker:
    weights, dtype = _weights(kind)
    layers = config.talker.layers
    size = layers.hidden * (layers.head_dim * (layers.heads * 2 + layers.kv_heads * 2))
    size += 3 * layers.hidden * layers.ffn
    distinct = min(LAYERS, max(2, -(-DISTINCT_BYTES // size)))
    few = replace(config.talker, layers=replace(layers, layers=distinct))
    talker = load_talker(weights, replace(config, talker=few), device=CPU, dtype=dtype, fused=False)
    repeats = -(-LAYERS // distinct)
    stack = replace(
        talker.stack,
        config=layers,
        layers=(talker.stack.layers * repeats)[:LAYERS],
        head_weights=torch.cat([talker.stack.head_weights] * repeats)[:LAYERS],
    )
    return replace(talker, stack=stack)


@torch.no_grad()
def _model(config: ModelConfig, kind: Quantization | None, codec: CodecDecoder) -> Qwen3Model:
    talker = _talker(config, kind)
    weights, dtype = _weights(kind)
    predictor = load_code_predictor(weights, config, talker, device=CPU, dtype=dtype, fused=False)
    return Qwen3Model(
        config,
        talker,
        predictor,
        codec,
        speaker_encoder=None,
        codec_encoder=None,
        tokenizer=None,
    )


def _config(hidden: int, *, codes: int = 2048) -> ModelConfig:
    def layers(width: int, count: int) -> LayersConfig:
        return LayersConfig(width, 3 * width, count, 16, 8, 128, 1e-6, 1e6)

    return ModelConfig(
        task="custom_voice",
        size="",
        text_ids=TextIds(0, 0, 0, 0, 0, 0, 0, 0),
        talker=TalkerConfig(
            layers=layers(hidden, LAYERS),
            vocab=codes + CONTROL_IDS,
            text_vocab=16,
            text_hidden=16,
            code_groups=16,
            max_positions=POSITIONS,
            ids=ControlIds(*range(codes, codes + 7)),
            languages={},
            speakers={},
            dialects={},
        ),
        predictor=PredictorConfig(layers(PREDICTOR, 5), vocab=codes, groups=15),
        speaker=None,
        codec=CodecConfig(CODEC, cast("Any", None)),
        generation=cast("Any", None),
    )


CODEC = CodecDecoderConfig(
    codebook_size=2048,
    codebook_dim=512,
    num_quantizers=16,
    latent_dim=1024,
    hidden_size=512,
    intermediate_size=1024,
    num_hidden_layers=8,
    num_attention_heads=16,
    num_key_value_heads=16,
    head_dim=64,
    sliding_window=72,
    rms_norm_eps=1e-5,
    rope_theta=10_000.0,
    decoder_dim=1536,
    upsample_rates=(8, 5, 4, 3),
    upsampling_ratios=(2, 2),
)
"""As published."""


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(forecast())) + "\n")
