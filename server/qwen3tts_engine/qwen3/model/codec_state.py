"""State of the streaming codec decoder; zeros are the start of a stream."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from qwen3tts_wire.errors import BadRequest


@dataclass(frozen=True, slots=True)
class PastSpan:
    begin: int
    rows: int
    """Inputs kept."""
    channels: int


class CodecStateLayout:
    def __init__(self) -> None:
        self.length = 0
        self.wide = False
        """Some layer's past is float32 whatever the decoder's dtype."""

    def reserve(self, rows: int, channels: int) -> PastSpan:
        span = PastSpan(self.length, rows, channels)
        self.length += rows * channels
        return span

    def widen(self) -> None:
        self.wide = True


class CodecStateReader:
    def __init__(self, state: CodecState, slots: Tensor) -> None:
        self.state, self.slots = state, slots
        self.rows = state.past.index_select(0, slots)
        """[B, length], a copy: a kernel may write the state while others read this."""
        self._next: list[tuple[int, Tensor]] = []

    def extend(self, span: PastSpan, x: Tensor) -> Tensor:
        """Prepend the past: [B, T, C] to [B, rows + T, C]."""
        if span.rows == 0:
            return x
        size = span.rows * span.channels
        past = self.rows[:, span.begin : span.begin + size]
        x = torch.cat((past.view(-1, span.rows, span.channels).to(x.dtype), x), dim=1)
        self._next.append((span.begin, x[:, -span.rows :].reshape(-1, size)))
        return x

    def finish(self) -> None:
        while self._next:
            begin, first = self._next[0]
            run, end = [first], begin + first.shape[1]
            for at, rows in self._next[1:]:
                if at != end:
                    break
                run.append(rows)
                end += rows.shape[1]
            del self._next[: len(run)]
            past = self.state.past[:, begin:end]
            past.index_copy_(0, self.slots, torch.cat(run, dim=1).to(past.dtype))


@dataclass(frozen=True, slots=True)
class CodecSnapshot:
    position: Tensor
    """[] int64."""
    past: Tensor
    """[length]."""
    kv: Tensor
    """[ring, layers, 2, heads, head_dim]."""

    @property
    def bytes(self) -> int:
        return sum(part.nbytes for part in (self.position, self.past, self.kv))


class CodecState:
    def __init__(
        self,
        slots: int,
        *,
        past: int,
        kv: tuple[int, ...],
        device: torch.device,
        dtype: torch.dtype,
        past_dtype: torch.dtype | None = None,
    ) -> None:
        """Allocate; ``past``: flat row length; ``kv``: ring, layers, 2, heads, head_dim."""
        if slots < 0:
            raise BadRequest(f"{slots} slots.", remedy="Ask for 0 or more.")
        self.slots = slots
        self.scratch = slots
        """Slot for padding rows."""
        rows = slots + 1
        self.past = torch.zeros(rows, past, device=device, dtype=past_dtype or dtype)
        self.kv = torch.zeros(rows, *kv, device=device, dtype=dtype)
        self.position = torch.zeros(rows, device=device, dtype=torch.int64)
        """Frames decoded so far."""

    @property
    def bytes_per_slot(self) -> int:
        return sum(part[0].nbytes for part in (self.position, self.past, self.kv))

    @property
    def bytes(self) -> int:
        return self.bytes_per_slot * (self.slots + 1)

    def reset(self, slot: int) -> None:
        for part in self._parts(slot):
            part.zero_()

    def snapshot(self, slot: int) -> CodecSnapshot:
        position, past, kv = (part.clone() for part in self._parts(slot))
        return CodecSnapshot(position, past, kv)

    def restore(self, slot: int, snapshot: CodecSnapshot) -> None:
        """Load a snapshot into a slot; BadRequest if it does not fit."""
        taken = (snapshot.position, snapshot.past, snapshot.kv)
        for part, saved in zip(self._parts(slot), taken, strict=True):
            if part.shape != saved.shape or part.dtype != saved.dtype:
                raise BadRequest(
                    f"A codec snapshot of {math.prod(saved.shape)} {saved.dtype} does not fit "
                    f"{math.prod(part.shape)} {part.dtype}.",
                    remedy="Restore it into a state of the decoder that it was taken from.",
                )
        for part, saved in zip(self._parts(slot), taken, strict=True):
            part.copy_(saved)

    def _parts(self, slot: int) -> tuple[Tensor, Tensor, Tensor]:
        if not 0 <= slot <= self.slots:
            raise BadRequest(
                f"There is no codec slot {slot}.", remedy=f"Slots are 0 to {self.slots}."
            )
        return self.position[slot], self.past[slot], self.kv[slot]
