"""The three kinds of work that a runner launches, each over buffers of a size.

A batch of any size runs in buffers of the next size up; what is left over are padding rows, which
live in the scratch slot. At the end of each piece of work that slot's counters go back to zero, so
that its rows always are the shortest there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.arena import CODE_RING, Arena
from qwen3tts_engine.qwen3.codec_state import CodecState
from qwen3tts_engine.qwen3.graphs import Static, Work
from qwen3tts_engine.qwen3.qwen3_model import Qwen3Model
from qwen3tts_engine.qwen3.step import Drawn, advance, draw, prefill

SLOTS = 0
"""First row of all integers."""


class StepKey(NamedTuple):
    """A size of step."""

    rows: int
    kv_len: int
    """Positions that attention looks at, where it cannot read the rows' lengths."""
    full_sort: bool


class PrefillKey(NamedTuple):
    """A size of prefill."""

    rows: int
    length: int
    kv_len: int


class DecodeKey(NamedTuple):
    """A size of decode."""

    rows: int
    frames: int


@dataclass(frozen=True)
class Programs:
    """The model's functions, as they stand or compiled."""

    draw: Callable[..., Drawn] = draw
    advance: Callable[..., None] = advance
    prefill: Callable[..., None] = prefill
    decode: Callable[..., Tensor] | None = None
    """None: the decoder's own ``run``."""

    def compiled(self) -> Programs:
        """All but the prefill, which is one in a hundred launches, by torch.compile."""

        options: Any = {"dynamic": False, "mode": "max-autotune-no-cudagraphs"}
        return replace(
            self,
            draw=torch.compile(self.draw, **options),
            advance=torch.compile(self.advance, **options),
            decode=torch.compile(_run_decoder, **options),
        )


def _run_decoder(model: Qwen3Model, state: CodecState, slots: Tensor, codes: Tensor) -> Tensor:
    return model.decoder.run(state, slots, codes)


class Stages:
    """Builds the work over one arena and one codec state."""

    def __init__(self, model: Qwen3Model, arena: Arena, codec: CodecState) -> None:
        self._model, self._arena, self._codec = model, arena, codec
        self.programs = Programs()

    def _integers(self, kinds: int, rows: int) -> Tensor:
        """Padding rows only: slot ``scratch``, and zero."""
        integers = torch.zeros(kinds, rows, dtype=torch.int64, device=self._arena.device)
        integers[SLOTS].fill_(self._arena.scratch)
        return integers

    def step(self, key: StepKey) -> Static:
        """Integers: slot, text id, whether it may be the end. Output: codes [rows, 16].

        Two works: the codes, and then the talker, which the codec need not wait for.
        """
        model, arena, programs = self._model, self._arena, self.programs
        integers = self._integers(3, key.rows)
        slots, text, may_end = integers.unbind(0)
        groups = model.config.talker.code_groups
        output = torch.zeros(key.rows, groups, dtype=torch.int64, device=arena.device)
        between: list[Drawn] = []

        def make_codes() -> None:
            drawn = programs.draw(model, arena, slots, may_end.bool(), full_sort=key.full_sort)
            output.copy_(drawn.codes)
            between[:] = [drawn]

        def make_scores() -> None:
            programs.advance(model, arena, slots, text, between[0], key.kv_len)
            arena.counters[arena.scratch].zero_()

        return Static(integers, output, (make_codes, make_scores))

    def prefill(self, key: PrefillKey) -> Static:
        """Integers: slot, length, start. Floats: embeddings [rows, length, hidden]."""
        model, arena, programs = self._model, self._arena, self.programs
        integers = self._integers(3, key.rows)
        integers[1].fill_(1)
        slots, lengths, starts = integers.unbind(0)
        hidden = model.config.talker.layers.hidden
        shape = (key.rows, key.length, hidden)
        embeds = torch.zeros(shape, dtype=arena.dtype, device=arena.device)

        def work() -> None:
            programs.prefill(model, arena, slots, embeds, lengths, starts, kv_len=key.kv_len)
            arena.counters[arena.scratch].zero_()

        return Static(integers, embeds, (work,), embeds)

    def decode(self, key: DecodeKey) -> Static:
        """Integers: slot, first frame. Output: samples [rows, frames * 1920] float32."""
        model, arena, codec = self._model, self._arena, self._codec
        run = self.programs.decode or _run_decoder
        integers = self._integers(2, key.rows)
        slots, first = integers.unbind(0)
        samples = key.frames * model.decoder.samples_per_frame
        output = torch.zeros(key.rows, samples, device=arena.device)
        ahead = torch.arange(key.frames, device=arena.device)

        def work() -> None:
            at = (first[:, None] + ahead) % CODE_RING
            codes = arena.codes[slots[:, None], at]
            output.copy_(run(model, codec, slots, codes))

        return Static(integers, output, (work,))


__all__ = ["DecodeKey", "PrefillKey", "Programs", "Stages", "StepKey", "Work"]
