"""Prefill, step and codec decode as static work, captured at warm-up.

A batch runs in the next captured size, padded by rows in the scratch slot.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.cuda import (
    GRAPH_BYTES,
    GraphBackend,
    GraphCache,
    StaticWork,
    Streams,
)
from qwen3tts_engine.qwen3.kernels.memory import AUTO_SLOTS, format_bytes, free_bytes
from qwen3tts_engine.qwen3.model.codec_state import CodecState
from qwen3tts_engine.qwen3.model.kv_cache import CODE_RING, KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampler import SampledCodes
from qwen3tts_engine.qwen3.model.step import advance_talker, prefill, sample_codes
from qwen3tts_engine.scheduler import decode_frames
from qwen3tts_wire.errors import EngineUnavailable

SLOTS = 0
"""First row of all integers."""


class StepKey(NamedTuple):
    rows: int
    kv_len: int
    """Attended positions, where attention cannot read the rows' lengths."""
    full_sort: bool


class PrefillKey(NamedTuple):
    rows: int
    length: int
    kv_len: int


class DecodeKey(NamedTuple):
    rows: int
    frames: int


@dataclass(frozen=True)
class ModelFunctions:
    sample_codes: Callable[..., SampledCodes] = sample_codes
    advance_talker: Callable[..., None] = advance_talker
    prefill: Callable[..., None] = prefill
    decode: Callable[..., Tensor] | None = None
    """None: the decoder's own ``run``."""

    def compiled(self) -> ModelFunctions:
        options: Any = {"dynamic": False, "mode": "max-autotune-no-cudagraphs"}
        return replace(
            self,
            sample_codes=torch.compile(self.sample_codes, **options),
            advance_talker=torch.compile(self.advance_talker, **options),
            decode=torch.compile(_run_decoder, **options),
        )


def _run_decoder(model: Qwen3Model, state: CodecState, slots: Tensor, codes: Tensor) -> Tensor:
    return model.decoder.run(state, slots, codes)


class WorkBuilder:
    def __init__(self, model: Qwen3Model, kv_cache: KvCache, codec: CodecState) -> None:
        self._model, self._kv_cache, self._codec = model, kv_cache, codec
        self.functions = ModelFunctions()

    def _integers(self, kinds: int, rows: int) -> Tensor:
        integers = torch.zeros(kinds, rows, dtype=torch.int64, device=self._kv_cache.device)
        integers[SLOTS].fill_(self._kv_cache.scratch)
        return integers

    def step(self, key: StepKey) -> StaticWork:
        """Integers: slot, text id, EOS allowed. Output: codes [rows, 16].

        Two works: the codes, then the talker, for which the codec does not wait.
        """
        model, kv_cache, functions = self._model, self._kv_cache, self.functions
        integers = self._integers(3, key.rows)
        slots, text, may_end = integers.unbind(0)
        groups = model.config.talker.code_groups
        output = torch.zeros(key.rows, groups, dtype=torch.int64, device=kv_cache.device)
        between: list[SampledCodes] = []

        def make_codes() -> None:
            sampled = functions.sample_codes(
                model, kv_cache, slots, may_end, full_sort=key.full_sort
            )
            output.copy_(sampled.codes)
            between[:] = [sampled]

        def make_logits() -> None:
            functions.advance_talker(model, kv_cache, slots, text, between[0], key.kv_len)

        return StaticWork(integers, output, (make_codes, make_logits), sampled=between)

    def prefill(self, key: PrefillKey) -> StaticWork:
        """Integers: slot, length, start. Floats: embeddings [rows, length, hidden]."""
        model, kv_cache, functions = self._model, self._kv_cache, self.functions
        integers = self._integers(3, key.rows)
        integers[1].fill_(1)
        slots, lengths, starts = integers.unbind(0)
        hidden = model.config.talker.layers.hidden
        shape = (key.rows, key.length, hidden)
        embeds = torch.zeros(shape, dtype=kv_cache.dtype, device=kv_cache.device)

        def work() -> None:
            functions.prefill(model, kv_cache, slots, embeds, lengths, starts, kv_len=key.kv_len)
            kv_cache.counters[kv_cache.scratch].zero_()

        return StaticWork(integers, embeds, (work,), embeds)

    def decode(self, key: DecodeKey) -> StaticWork:
        """Integers: slot, first frame. Output: samples [rows, frames * 1920] float32."""
        model, kv_cache, codec = self._model, self._kv_cache, self._codec
        run = self.functions.decode or _run_decoder
        integers = self._integers(2, key.rows)
        slots, first = integers.unbind(0)
        samples = key.frames * model.decoder.samples_per_frame
        output = torch.zeros(key.rows, samples, device=kv_cache.device)
        ahead = torch.arange(key.frames, device=kv_cache.device)

        def work() -> None:
            at = (first[:, None] + ahead) % CODE_RING
            codes = kv_cache.codes[slots[:, None], at]
            output.copy_(run(model, codec, slots, codes))

        return StaticWork(integers, output, (work,))


log = logging.getLogger(__name__)

COMPILED_ROWS = 16
"""Most rows of a size that is compiled: there launches bound a GPU, and each size takes minutes."""
COMPILED_FRAMES = 2
"""Most frames of a decode that is compiled."""
GRAPHS = 90
"""Approximate number of captured sizes."""
COPIES = 4
"""Approximate number of simultaneous copies of the codec's widest activations."""


def workspace_bytes(model: Qwen3Model, slots: int | str, *, captures: bool) -> int:
    codec = model.config.codec.decoder
    rows = slots if isinstance(slots, int) else AUTO_SLOTS.get(model.device.type, 16)
    frames = max(1, min(2 * rows, decode_frames(rows)))
    channels = codec.decoder_dim >> len(codec.upsample_rates)
    sample = 7 * channels * model.decoder.dtype.itemsize * COPIES
    decode = frames * model.decoder.samples_per_frame * sample
    step = rows * model.config.talker.vocab * 4 * 16
    return decode + step + (GRAPHS * GRAPH_BYTES if captures else 0)


class Warmup:
    def __init__(
        self, stages: WorkBuilder, backend: GraphBackend, streams: Streams, *, compiles: bool
    ) -> None:
        self._stages, self._backend, self._streams = stages, backend, streams
        self._compiles = compiles
        self._compiled: ModelFunctions | None = None
        self.notes: list[str] = []
        """Degradations, for the operator."""
        self.bytes = 0
        """Device memory taken by captures."""

    def capture(
        self, sizes: Sequence[tuple[GraphCache[Any], Any]], tell: Callable[[str, int, int], None]
    ) -> Exception | None:
        device = self._streams.device
        before = free_bytes(device)
        compiled = [key for _, key in sizes if self._compiles and gains_by_compiling(key)]
        if compiled:
            self._compiled = ModelFunctions().compiled()
        try:
            with _recompilations(len(compiled)):
                for done, (stage, key) in enumerate(sizes):
                    tell("capturing graphs", done, len(sizes))
                    self._capture(stage, key)
            if self._compiled is not None:
                self.notes.append(
                    f"torch.compile is used for {len(compiled)} of {len(sizes)} sizes: steps of up"
                    f" to {COMPILED_ROWS} rows and decodes of up to {COMPILED_FRAMES} frames of"
                    " them. The others run as without it."
                )
        except torch.OutOfMemoryError as error:
            raise EngineUnavailable(
                f"The device {device} has no room for the graphs: {len(sizes)} sizes.",
                remedy="Use fewer slots or positions, or graphs off.",
            ) from error
        except Exception as error:
            log.exception("no graphs")
            for stage, _ in sizes:
                stage.clear()
            return error
        finally:
            # Sizes that were not captured run eagerly and must not be compiled then.
            self._stages.functions = ModelFunctions()
        tell("capturing graphs", len(sizes), len(sizes))
        after = free_bytes(device)
        if before is not None and after is not None:
            self.bytes = max(0, before - after)
        log.info("%d graphs, %s", len(sizes), format_bytes(self.bytes))
        return None

    def _capture(self, stage: GraphCache[Any], key: Any) -> None:
        if self._compiled is None or not gains_by_compiling(key):
            self._stages.functions = ModelFunctions()
            stage.capture(key, self._backend)
            return
        self._stages.functions = self._compiled
        try:
            stage.capture(key, self._backend)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            log.warning("not compiled", exc_info=error)
            self.notes.append(
                f"torch.compile failed ({type(error).__name__}) at {key}; it is not used."
            )
            self._compiled = None
            self._capture(stage, key)


def gains_by_compiling(key: StepKey | PrefillKey | DecodeKey) -> bool:
    if key.rows > COMPILED_ROWS or isinstance(key, PrefillKey):
        return False
    return not key.full_sort if isinstance(key, StepKey) else key.frames <= COMPILED_FRAMES


@contextmanager
def _recompilations(sizes: int) -> Iterator[None]:
    """Let each function be compiled for so many sizes; beyond them raise."""
    if not sizes:
        yield
        return
    config = importlib.import_module("torch._dynamo.config")
    # Named otherwise before torch 2.7.
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    with config.patch({limit: sizes + 1, "fail_on_recompile_limit_hit": True}):
        yield
