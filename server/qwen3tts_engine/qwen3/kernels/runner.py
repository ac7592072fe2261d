"""Batched prefill, step and codec decode, launched in order without waiting.

A batch takes the next larger captured size; a CPU runs its exact size, unless ``static``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.cuda import (
    GraphBackend,
    GraphCache,
    StreamEvent,
    Streams,
    bucket_for,
    buckets_up_to,
    graph_backend,
    pin_attention,
    streams_of,
)
from qwen3tts_engine.qwen3.kernels.memory import plan_memory
from qwen3tts_engine.qwen3.kernels.selection import use_persistent, use_triton
from qwen3tts_engine.qwen3.kernels.stages import (
    DecodeKey,
    PrefillKey,
    StepKey,
    Warmup,
    WorkBuilder,
    workspace_bytes,
)
from qwen3tts_engine.qwen3.kernels.step_runner import DecodeRow, PrefillRow, StepRow, Ticket
from qwen3tts_engine.qwen3.model.codec_state import CodecSnapshot
from qwen3tts_engine.qwen3.model.config import Samples
from qwen3tts_engine.qwen3.model.kv_cache import CODE_RING, KvCache, KvSnapshot
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampler import SampledCodes
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.transformer import TORCH_KERNELS
from qwen3tts_engine.scheduler import decode_frames
from qwen3tts_wire.errors import EngineUnavailable

log = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
"""Callback with activity, steps done, steps in all."""
KV_STEP = 64
"""Granularity of attended positions in eager work."""
KV_LENGTHS = (256, 512, 1024, 2048)
"""Attended positions of captured steps, where attention cannot read the rows' lengths."""
PREFILL_ROWS = (1, 2, 4, 8)
PREFILL_LENGTHS = (16, 32, 64, 128, 256)
RESTORED_KV = 512
"""Attended positions of a captured prefill behind a restored prefix."""
CHUNKS = (1, 2, 4, 8)
"""Frames of a captured decode."""
SORTED_ROWS = (4, 16, 64)
"""Rows of captured steps with a full sort."""
REPLAY_FRAMES = 25
"""Frames per decode in a replay."""


@dataclass(frozen=True, slots=True)
class LaunchMode:
    """Sizes, streams and graph backend; None: the device's."""

    static: bool | None = None
    """Use GPU sizes."""
    streams: Streams | None = None
    backend: GraphBackend | None = None
    persistent: bool = False
    """Sample codes 1 to 15 by one kernel, see ``persistent_predictor``, where that is possible."""


class Runner:
    """Model behind its slots; see StepRunner. Used by one thread."""

    def __init__(
        self,
        model: Qwen3Model,
        *,
        slots: int | Literal["auto"],
        positions: int,
        graphs: bool | Literal["auto"] = "auto",
        compile: bool = False,  # noqa: A002
        caches: int = 0,
        launch: LaunchMode | None = None,
    ) -> None:
        """Allocate the state of ``slots`` rows of at most ``positions`` positions.

        ``slots`` ``auto``: the device's default, if it fits. ``graphs``: captured at ``warmup``,
        ``auto`` with an eager fallback. ``compile``: torch.compile inside them. ``caches``: bytes
        reserved for voices and prompts.
        """
        launch = launch or LaunchMode()
        self.model = model
        self.notes: list[str] = []
        """Degradations, for the operator."""
        device = model.device
        self._graphs = graphs
        self._streams = launch.streams or streams_of(device)
        self._backend = launch.backend or graph_backend(device, graphs)
        self._static = device.type == "cuda" if launch.static is None else launch.static
        if self._streams.device.type == "cuda":
            pin_attention()
            if model.kernels is TORCH_KERNELS:
                with self._streams.on("frames"):
                    self._note(*use_triton(model))
        if launch.persistent:
            with self._streams.on("frames"):
                self._note(*use_persistent(model))
        self.memory = plan_memory(
            model,
            slots=slots,
            positions=positions,
            workspace=workspace_bytes(model, slots, captures=self._backend.captures),
            caches=caches,
        )
        self.slots, self.positions = self.memory.slots, positions
        self.kv_cache = KvCache(
            model.config, slots=self.slots, positions=positions, device=device, dtype=model.dtype
        )
        self.codec = model.decoder.new_state(self.slots)
        wide = model.decoder.float32_layers
        if wide:
            self._note(
                f"The codec runs {len(wide)} layers in float32, since {model.decoder.dtype} cannot"
                f" hold their numbers: {', '.join(wide[:3])}{', …' if len(wide) > 3 else ''}."
            )
        self._stages = WorkBuilder(model, self.kv_cache, self.codec)
        self._steps = GraphCache("frames", self._stages.step)
        self._prefills = GraphCache("frames", self._stages.prefill)
        self._decodes = GraphCache("sound", self._stages.decode)
        self._warmup = Warmup(self._stages, self._backend, self._streams, compiles=compile)
        self._rows = buckets_up_to(self.slots)
        self._sampled: StreamEvent = self._streams.record_event()
        """Event after the last step's codes."""
        self._offsets: list[int] = model.talker.offsets.flatten().tolist()
        self._written = [0] * (self.slots + 1)
        """Positions of each slot that rows have used since its last reset."""
        self._begin()
        # Either stream may be the first to use what was allocated.
        self._streams.synchronize()

    def _begin(self) -> None:
        count = self.slots + 1
        self._length = [0] * count
        """Positions that each slot has used."""
        self._frames = [0] * count
        """Frames that were launched in it."""
        self._full_sort = [False] * count
        self._reading: list[deque[tuple[int, StreamEvent]]] = [deque() for _ in range(count)]
        """First frames of the decodes under way, and when they are done."""

    def _note(self, *notes: str) -> None:
        for note in notes:
            self.notes.append(note)
            log.warning("%s", note)

    # --- warm-up ---

    @property
    def steps_prompts(self) -> bool:
        return self._static

    @property
    def reads_lengths(self) -> bool:
        """True if attention reads row lengths: one graph fits all."""
        return self.model.kernels.reads_lengths

    @property
    def captured(self) -> tuple[int, int]:
        return len(self._steps) + len(self._prefills) + len(self._decodes), self._warmup.bytes

    def warmup(self, progress: Progress | None = None) -> None:
        """Capture all sizes and run each work once; slots must be free."""
        tell = progress or (lambda _what, _done, _of: None)
        if self._backend.captures and not self.captured[0]:
            failed = self._warmup.capture(list(self._sizes()), tell)
            if failed is not None:
                if self._graphs is True:
                    raise EngineUnavailable(
                        f"CUDA graphs cannot be captured: {type(failed).__name__}.",
                        remedy="Use graphs auto, which falls back to slower eager work.",
                    ) from failed
                self._note(f"Without CUDA graphs ({type(failed).__name__}); it is slower.")
            self.notes += self._warmup.notes
        hidden = self.model.config.talker.layers.hidden
        embeds = torch.zeros(2, hidden, dtype=self.model.dtype, device=self.model.device)
        tell("warm-up", 0, 1)
        self.prefill([PrefillRow(0, embeds, Sampling(), 0)])
        self.step([StepRow(0, self.model.config.text_ids.tts_pad, False)]).wait()
        self.decode([DecodeRow(0, 0, 1)]).wait()
        self.free(0)
        self._streams.synchronize()
        tell("warm-up", 1, 1)

    def _sizes(self) -> Iterator[tuple[GraphCache[Any], Any]]:
        most = self.positions
        lengths = (self._kv_len(1),) if self.reads_lengths else buckets_up_to(most, KV_LENGTHS)
        for kv_len in reversed(lengths):
            for rows in reversed(self._rows):
                yield self._steps, StepKey(rows, kv_len, False)
            for rows in reversed(self._rows_sorted()):
                yield self._steps, StepKey(rows, kv_len, True)
        for length in reversed(PREFILL_LENGTHS):
            for rows in reversed(self._prefill_rows()):
                if length <= most:
                    yield self._prefills, PrefillKey(rows, length, length)
                if rows == 1 and most >= RESTORED_KV and length < RESTORED_KV // 2:
                    yield self._prefills, PrefillKey(rows, length, RESTORED_KV)
        for rows in reversed(self._rows):
            for frames in reversed(CHUNKS):
                if rows * frames <= decode_frames(self.slots):
                    yield self._decodes, DecodeKey(rows, frames)

    def _prefill_rows(self) -> tuple[int, ...]:
        return buckets_up_to(min(PREFILL_ROWS[-1], self.slots), PREFILL_ROWS)

    def _rows_sorted(self) -> tuple[int, ...]:
        return tuple(sorted({min(rows, self.slots) for rows in SORTED_ROWS}))

    # --- rows ---

    def running(self) -> AbstractContextManager[object]:
        return self._streams.on("frames")

    def prefill(self, rows: Sequence[PrefillRow]) -> None:
        with self.running():
            self._prefill(rows)

    def _prefill(self, rows: Sequence[PrefillRow]) -> None:
        for each in rows:
            self._reset(each.slot, each.sampling, each.seed)
            if each.prefix is not None:
                self.kv_cache.restore(each.slot, each.prefix)
            self._start_audio(each.slot, each.codec)
            self._full_sort[each.slot] = each.sampling.needs_full_sort
            self._frames[each.slot] = 0
        stepped = [each for each in rows if each.position is not None]
        if stepped:
            self._step_prompts(stepped)
        for restored in (False, True):
            some = [
                each
                for each in rows
                if each.position is None and (each.prefix is not None) is restored
            ]
            # Of a quantized model, one prompt: padded to the longest, it is rounded by that length.
            alone = (restored and self._static) or self.model.quantize is not None
            most = 1 if alone else PREFILL_ROWS[-1]
            for first in range(0, len(some), most):
                self._prefill_batch(
                    [
                        (each.slot, each.embeds, each.prefix.length if each.prefix else 0)
                        for each in some[first : first + most]
                    ]
                )

    def _reset(self, slot: int, sampling: Sampling, seed: int) -> None:
        self.kv_cache.reset(slot, sampling, seed, written=self._written[slot])
        self._written[slot] = 0

    def _step_prompts(self, rows: Sequence[PrefillRow]) -> None:
        talker, cache = self.model.talker, self.kv_cache
        count = bucket_for(len(rows), self._rows) if self._static else len(rows)
        spare = [0] * (count - len(rows))
        places = [
            (each.slot, each.prefix.length, *(each.position or ())) for each in rows if each.prefix
        ]
        slots, starts, text, codes = (list(each) for each in zip(*places, strict=True))
        talker.text.prepare(text)
        for slot, start in zip(slots, starts, strict=True):
            self._length[slot] = start + 1
            self._writes(slot, start + 1)
            # The step counts a position and a frame.
            cache.begin(slot, position=start, frame=-1)
        static = self._steps.get(StepKey(count, self._kv_len(max(starts) + 1), False))
        self._streams.upload(
            (slots + [cache.scratch] * len(spare), text + spare, [0] * count), static.integers
        )
        # All codebooks but the first add nothing.
        others = [[talker.rows.nothing - offset] * count for offset in self._offsets[1:-1]]
        ids = [codes + spare, *others, text + spare]
        if not static.sampled:
            static.sampled.append(SampledCodes.empty(count, len(ids), cache.device))
        sampled = static.sampled[0]
        self._streams.upload(ids, sampled.ids)
        self._streams.upload([starts + spare], sampled.pos[None])
        static.works[1]()

    def _writes(self, slot: int, positions: int) -> None:
        self._written[slot] = max(self._written[slot], min(positions, self.positions))

    def prefill_prefix(self, slot: int, embeds: Tensor) -> KvSnapshot:
        with self.running():
            self._reset(slot, Sampling(), 0)
            self._prefill_batch([(slot, embeds, 0)])
            return self.kv_cache.snapshot(slot, len(embeds))

    def snapshot_prefix(self, slot: int, length: int) -> KvSnapshot:
        with self.running():
            return self.kv_cache.snapshot(slot, length)

    def _prefill_batch(self, rows: Sequence[tuple[int, Tensor, int]]) -> None:
        longest = max(len(embeds) for _, embeds, _ in rows)
        end = max(start + len(embeds) for _, embeds, start in rows)
        restored = any(start for _, _, start in rows)
        count, length = len(rows), longest
        if self._static:
            count = bucket_for(count, self._prefill_rows())
            length = min(self.positions, bucket_for(longest, PREFILL_LENGTHS))
        kv_len = max(length, end)
        if restored and self._static:
            kv_len = RESTORED_KV if end <= RESTORED_KV <= self.positions else self.positions
        static = self._prefills.get(PrefillKey(count, length, min(kv_len, self.positions)))
        assert static.floats is not None
        integers = [[self.kv_cache.scratch] * count, [1] * count, [0] * count]
        for at, (slot, embeds, start) in enumerate(rows):
            integers[0][at], integers[1][at], integers[2][at] = slot, len(embeds), start
            static.floats[at, : len(embeds)].copy_(embeds)
            self._length[slot] = start + len(embeds)
            self._writes(slot, self._length[slot])
        self._streams.upload(integers, static.integers)
        for work in static.works:
            work()

    def step(self, rows: Sequence[StepRow]) -> Ticket:
        with self.running():
            return self._step(rows)

    def _step(self, rows: Sequence[StepRow]) -> Ticket:
        self.model.talker.text.prepare(row.text_id for row in rows)
        slots = [row.slot for row in rows]
        self._streams.share(len(rows))
        self._protect_codes(slots)
        full_sort = any(self._full_sort[slot] for slot in slots)
        kv_len = self._kv_len(max(self._length[slot] for slot in slots) + 1)
        count = len(rows)
        if self._static:
            count = bucket_for(count, self._rows_sorted() if full_sort else self._rows)
        static = self._steps.get(StepKey(count, kv_len, full_sort))
        spare = [0] * (count - len(rows))
        self._streams.upload(
            (
                slots + [self.kv_cache.scratch] * len(spare),
                [row.text_id for row in rows] + spare,
                [int(row.eos_allowed) for row in rows] + spare,
            ),
            static.integers,
        )
        for slot in slots:
            self._writes(slot, self._length[slot] + 1)
        make_codes, make_logits = static.works
        make_codes()
        self._sampled = self._streams.record_event()
        ticket = self._streams.download(static.output[: len(rows)])
        make_logits()
        for slot in slots:
            self._length[slot] += 1
            self._frames[slot] += 1
        return ticket

    def _kv_len(self, longest: int) -> int:
        if self.reads_lengths:
            return min(self.positions, KV_STEP)
        if self._static:
            return min(self.positions, bucket_for(longest, KV_LENGTHS))
        return min(self.positions, -(-longest // KV_STEP) * KV_STEP)

    def _protect_codes(self, slots: Sequence[int]) -> None:
        for slot in slots:
            reading = self._reading[slot]
            while reading and self._frames[slot] - reading[0][0] >= CODE_RING // 2:
                first, mark = reading[0]
                if not mark.query():
                    if self._frames[slot] - first < CODE_RING:
                        break
                    self._streams.wait_event(mark)
                reading.popleft()

    def decode(self, rows: Sequence[DecodeRow]) -> Ticket:
        frames, count = rows[0].frames, len(rows)
        if self._static:
            count = bucket_for(count, self._rows)
        spare = count - len(rows)
        with self._streams.on("sound"):
            static = self._decodes.get(DecodeKey(count, frames))
            self._streams.wait_event(self._sampled)
            self._streams.upload(
                (
                    [row.slot for row in rows] + [self.codec.scratch] * spare,
                    [row.first_frame for row in rows] + [0] * spare,
                ),
                static.integers,
            )
            for work in static.works:
                self._streams.run(work)
            mark = self._streams.record_event()
            ticket = self._streams.download(static.output[: len(rows)])
        for row in rows:
            self._reading[row.slot].append((row.first_frame, mark))
        if any(row.first_frame == 0 for row in rows):
            self._streams.await_first(ticket)
        return ticket

    def replay(self, slot: int, codec: CodecSnapshot | None, codes: NDArray[np.int64]) -> Samples:
        self._start_audio(slot, codec)
        self._streams.synchronize()
        parts = []
        with self._streams.on("sound"):
            slots = torch.tensor([slot], device=self.model.device)
            for first in range(0, len(codes), REPLAY_FRAMES):
                part = torch.from_numpy(codes[first : first + REPLAY_FRAMES])
                part = part.to(self.model.device)[None]
                parts.append(self.model.decoder.run(self.codec, slots, part)[0].cpu().numpy())
        return np.concatenate(parts)

    def free(self, slot: int) -> None:
        self._length[slot] = 0
        self._reading[slot].clear()

    def reset(self) -> None:
        self._streams.synchronize()
        self._begin()

    def _start_audio(self, slot: int, codec: CodecSnapshot | None) -> None:
        # On the sound stream: a decode of the slot's last row may be under way there.
        with self._streams.on("sound"):
            if codec is None:
                self._streams.run(partial(self.codec.reset, slot))
            else:
                self._streams.record_use((codec.position, codec.past, codec.kv))
                self._streams.run(partial(self.codec.restore, slot, codec))

    def close(self) -> None:
        self._streams.close()
