"""What the codec decoder remembers of each stream, in one allocation for all slots.

Two things: the latest inputs of every convolution, one flat row per slot, and the keys and values
of the latest positions of every attention layer, a ring per slot. All of it is read and written
by slot index, so that a step over any choice of slots is the same sequence of operations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from qwen3tts_wire.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a slot's flat row that belongs to one convolution."""

    begin: int
    rows: int
    """Inputs remembered."""
    channels: int


class PastLayout:
    """Hands out parts of the flat row, in the order in which the layers will use them."""

    def __init__(self) -> None:
        self.length = 0

    def reserve(self, rows: int, channels: int) -> Span:
        """Room for the latest ``rows`` inputs of a layer."""
        span = Span(self.length, rows, channels)
        self.length += rows * channels
        return span


class PastReader:
    """The past of a batch during one step: each layer reads its own and leaves the next."""

    def __init__(self, rows: Tensor) -> None:
        """``rows``: shape [B, length]."""
        self._rows = rows
        self._next: list[Tensor] = []

    def extend(self, span: Span, x: Tensor) -> Tensor:
        """The layer's past and then ``x``: shape [B, T, C] to [B, rows + T, C]."""
        if span.rows == 0:
            return x
        size = span.rows * span.channels
        past = self._rows[:, span.begin : span.begin + size]
        x = torch.cat((past.view(-1, span.rows, span.channels), x), dim=1)
        self._next.append(x[:, -span.rows :].view(-1, size))
        return x

    def after(self) -> Tensor:
        """The past of the next step, shape [B, length]; all layers must have been there."""
        return torch.cat(self._next, dim=1)


@dataclass(frozen=True, slots=True)
class CodecSnapshot:
    """One stream's past, taken out of its slot. Immutable."""

    position: Tensor
    """Shape [], int64."""
    past: Tensor
    """Shape [length]."""
    kv: Tensor
    """Shape [ring, layers, 2, heads, head_dim]."""

    @property
    def bytes(self) -> int:
        """Memory of it."""
        return sum(part.nbytes for part in (self.position, self.past, self.kv))


class CodecState:
    """The past of ``slots`` streams and of one more row, the scratch slot, for padding.

    A slot that is new or reset holds zeros, which is exactly how a stream begins.
    """

    def __init__(
        self,
        slots: int,
        *,
        past: int,
        kv: tuple[int, ...],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """``past``: length of the flat row. ``kv``: ring, layers, 2, heads, head_dim."""
        if slots < 0:
            raise BadRequest(f"{slots} slots.", remedy="Ask for 0 or more.")
        self.slots = slots
        self.scratch = slots
        """Index of the row that padding of a batch may use, any number of times."""
        rows = slots + 1
        self.past = torch.zeros(rows, past, device=device, dtype=dtype)
        self.kv = torch.zeros(rows, *kv, device=device, dtype=dtype)
        self.position = torch.zeros(rows, device=device, dtype=torch.int64)
        """Frames decoded since the stream began."""

    @property
    def bytes_per_slot(self) -> int:
        """Memory of one slot."""
        return sum(part[0].nbytes for part in (self.position, self.past, self.kv))

    @property
    def bytes(self) -> int:
        """Memory of all slots and the scratch slot."""
        return self.bytes_per_slot * (self.slots + 1)

    def reset(self, slot: int) -> None:
        """Begin a new stream in a slot.

        Raises:
            BadRequest: no such slot.
        """
        for part in self._parts(slot):
            part.zero_()

    def snapshot(self, slot: int) -> CodecSnapshot:
        """Copy a stream's past, say after a voice's reference.

        Raises:
            BadRequest: no such slot.
        """
        position, past, kv = (part.clone() for part in self._parts(slot))
        return CodecSnapshot(position, past, kv)

    def restore(self, slot: int, snapshot: CodecSnapshot) -> None:
        """Continue in ``slot`` from a snapshot, of this state or of another of the same decoder.

        Raises:
            BadRequest: no such slot, or the snapshot is of another decoder.
        """
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
