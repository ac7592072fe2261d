"""Streaming layers and state of the codec decoder; activations are [B, T, C].

Past starts as zeros, the padding of a whole decode. Weights are folded in float64: a large GPU is
bound by the number of operations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_wire.errors import BadRequest


@dataclass(frozen=True, slots=True)
class PastSpan:
    """Part of a slot's flat row that holds one convolution's past."""

    begin: int
    rows: int
    """Inputs kept."""
    channels: int


class CodecStateLayout:
    """Allocator of PastSpans, in the order in which layers run."""

    def __init__(self) -> None:
        self.length = 0

    def reserve(self, rows: int, channels: int) -> PastSpan:
        span = PastSpan(self.length, rows, channels)
        self.length += rows * channels
        return span


class CodecStateReader:
    """Past of a batch in one step; each layer reads its span and appends."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows
        self._next: list[Tensor] = []

    def extend(self, span: PastSpan, x: Tensor) -> Tensor:
        """Prepend the past: [B, T, C] to [B, rows + T, C]."""
        if span.rows == 0:
            return x
        size = span.rows * span.channels
        past = self._rows[:, span.begin : span.begin + size]
        x = torch.cat((past.view(-1, span.rows, span.channels), x), dim=1)
        self._next.append(x[:, -span.rows :].view(-1, size))
        return x

    def after(self) -> Tensor:
        """Return the next step's past, [B, length]."""
        return torch.cat(self._next, dim=1)


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
    """State of ``slots`` streams and scratch: convolution inputs, KV ring.

    Zeros are the start of a stream.
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
        """Allocate; ``past``: flat row length; ``kv``: ring, layers, 2, heads, head_dim."""
        if slots < 0:
            raise BadRequest(f"{slots} slots.", remedy="Ask for 0 or more.")
        self.slots = slots
        self.scratch = slots
        """Slot for padding rows."""
        rows = slots + 1
        self.past = torch.zeros(rows, past, device=device, dtype=dtype)
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


CONVNEXT_KERNEL = 7
CONVNEXT_EPS = 1e-6
RESIDUAL_KERNEL = 7
DIRECT_WINDOWS = 1 << 18
"""Elements of gathered windows from which they exceed a core's cache."""
SNAKE_EPS = 1e-9
"""Added to SnakeBeta's magnitude before the division."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Device and dtype of weights, and the method of convolution."""

    device: torch.device
    dtype: torch.dtype
    direct_channels: int
    """Long convolutions of at most this many input channels use the library's routine, which reads
    each input once; others are one matrix product over gathered windows, faster for few samples of
    many channels."""

    def put(self, weight: Tensor) -> Tensor:
        return weight.to(device=self.device, dtype=self.dtype).contiguous()


def read(weights: Weights, name: str, *shape: int) -> Tensor:
    return read_stored(weights, name, *shape).to(torch.float64)


def read_stored(weights: Weights, name: str, *shape: int) -> Tensor:
    return weights.take_stored(name, shape).cpu()


@dataclass(frozen=True, slots=True)
class Linear:
    """Product with a bias: [B, T, C] to [B, T, out]."""

    weight: Tensor
    """[C, out], stored transposed: products of few rows are more exact that way."""
    bias: Tensor

    @classmethod
    def fold(cls, weight: Tensor, bias: Tensor, place: Placement) -> Linear:
        """Take the file's layout: weight [out, C], bias [out]."""
        return cls(place.put(weight).T, place.put(bias))

    def __call__(self, x: Tensor) -> Tensor:
        rows = torch.addmm(self.bias, x.flatten(0, 1), self.weight)
        return rows.view(x.shape[0], x.shape[1], -1)


class CausalConv:
    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        past: CodecStateLayout,
        place: Placement,
        *,
        dilation: int = 1,
    ) -> None:
        """Take the file's layout: weight [out, C, k], bias [out]."""
        out, channels, kernel = weight.shape
        self._span = past.reserve((kernel - 1) * dilation, channels)
        self._kernel, self._dilation, self._out = kernel, dilation, out
        self._direct = channels <= place.direct_channels
        self._bias = place.put(bias)
        taps = place.put(weight.transpose(1, 2))
        # The same numbers in the same order for either way; for the library's routine, time is
        # the width of a picture of height 1 whose channels come last.
        self._matrix = taps.view(out, kernel * channels).T
        self._picture = taps.view(out, 1, kernel, channels).permute(0, 3, 1, 2)

    def __call__(self, x: Tensor, past: CodecStateReader) -> Tensor:
        batch, time, channels = x.shape
        x = past.extend(self._span, x)
        if self._direct and batch * time * self._kernel * channels >= DIRECT_WINDOWS:
            picture = x.transpose(1, 2).unsqueeze(2)
            dilation = (1, self._dilation)
            made = functional.conv2d(picture, self._picture, self._bias, dilation=dilation)
            return made.squeeze(2).transpose(1, 2).contiguous()
        reach = self._span.rows + 1
        windows = x.unfold(1, reach, 1)[..., :: self._dilation].transpose(2, 3)
        rows = windows.reshape(batch * time, self._kernel * channels)
        return torch.addmm(self._bias, rows, self._matrix).view(batch, time, self._out)


class Upsample:
    """Right-trimmed transposed convolution: [B, T, C] to [B, T rate, out]."""

    def __init__(
        self, weight: Tensor, bias: Tensor, rate: int, past: CodecStateLayout, place: Placement
    ) -> None:
        """Take weight [C, out, k], k a multiple of rate; bias [out]."""
        self._rate = rate
        self._conv = CausalConv(
            transposed_as_convolution(weight, rate), bias.repeat(rate), past, place
        )

    def __call__(self, x: Tensor, past: CodecStateReader) -> Tensor:
        made = self._conv(x, past)
        return made.view(x.shape[0], x.shape[1] * self._rate, -1)


def transposed_as_convolution(weight: Tensor, rate: int) -> Tensor:
    """Rewrite a transposed convolution: [C, out, m rate] to [rate out, C, m].

    Sample r of a frame takes tap i rate + r of input t - i: the latest input has the first taps.
    """
    channels, out, kernel = weight.shape
    # Transposed as one matrix, which the library does by blocks; what follows moves whole rows, and
    # leaves the taps before the channels, as a convolution keeps them.
    taps = weight.reshape(channels, -1).t().contiguous().view(out, kernel // rate, rate, channels)
    rows = taps.permute(2, 0, 1, 3).flip(2).reshape(rate * out, kernel // rate, channels)
    return rows.transpose(1, 2)


@dataclass(frozen=True, slots=True)
class Snake:
    """SnakeBeta: x + sin(alpha x)^2 / beta, exponentials taken. Source: arXiv 2006.08195."""

    alpha: Tensor
    inverse_beta: Tensor

    @classmethod
    def read(cls, weights: Weights, channels: int, place: Placement) -> Snake:
        alpha = read(weights, "alpha", channels).exp()
        beta = read(weights, "beta", channels).exp()
        return cls(place.put(alpha), place.put(1 / (beta + SNAKE_EPS)))

    def __call__(self, x: Tensor) -> Tensor:
        wave = (x * self.alpha).sin_().square_()
        return torch.addcmul(x, wave, self.inverse_beta)


class ConvNeXt:
    """Depthwise convolution, norm, GELU projections, residual. Source: arXiv 2201.03545.

    The norm's scale and gamma are folded into the projections.
    """

    def __init__(
        self, weights: Weights, channels: int, past: CodecStateLayout, place: Placement
    ) -> None:
        c = channels
        self._span = past.reserve(CONVNEXT_KERNEL - 1, c)
        taps = read(weights, "dwconv.conv.weight", c, 1, CONVNEXT_KERNEL)
        self._taps = place.put(taps[:, 0])
        self._bias = place.put(read(weights, "dwconv.conv.bias", c))
        up = read(weights, "pwconv1.weight", 4 * c, c)
        up_bias = read(weights, "pwconv1.bias", 4 * c) + up @ read(weights, "norm.bias", c)
        gamma = read(weights, "gamma", c)
        down = gamma[:, None] * read(weights, "pwconv2.weight", c, 4 * c)
        self._up = Linear.fold(up * read(weights, "norm.weight", c), up_bias, place)
        self._down = Linear.fold(down, gamma * read(weights, "pwconv2.bias", c), place)

    def __call__(self, x: Tensor, past: CodecStateReader) -> Tensor:
        windows = past.extend(self._span, x).unfold(1, CONVNEXT_KERNEL, 1)
        y = (windows * self._taps).sum(-1).add_(self._bias)
        y = functional.layer_norm(y, y.shape[-1:], eps=CONVNEXT_EPS)
        return self._down(functional.gelu(self._up(y))).add_(x)


class ResidualUnit:
    """Snake, dilated convolution, snake, projection, residual."""

    def __init__(
        self,
        weights: Weights,
        channels: int,
        dilation: int,
        past: CodecStateLayout,
        place: Placement,
    ) -> None:
        c = channels
        self._snakes = tuple(
            Snake.read(weights.under(name), c, place) for name in ("act1.", "act2.")
        )
        self._conv = CausalConv(
            read_stored(weights, "conv1.conv.weight", c, c, RESIDUAL_KERNEL),
            read(weights, "conv1.conv.bias", c),
            past,
            place,
            dilation=dilation,
        )
        self._project = Linear.fold(
            read_stored(weights, "conv2.conv.weight", c, c, 1)[..., 0],
            read(weights, "conv2.conv.bias", c),
            place,
        )

    def __call__(self, x: Tensor, past: CodecStateReader) -> Tensor:
        before, after = self._snakes
        return self._project(after(self._conv(before(x), past))).add_(x)
