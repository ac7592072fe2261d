"""Layers of the codec decoder, time-major: activations have shape [B, T, C].

Whatever a layer must remember of the past is a number of its latest inputs: a causal convolution
of kernel k and dilation d needs (k - 1) d of them, and a transposed convolution of kernel m s and
stride s is a convolution of kernel m that makes s samples at a time. Past starts before a stream
does, with zeros, which is the padding of the whole decode.

Weights are folded in float64 when they are loaded, so that what remains at each frame is few,
large operations: a decoder on a large GPU is bound by their number.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.codec_state import PastLayout, PastReader
from qwen3tts_engine.qwen3.weights import Weights

CONVNEXT_KERNEL = 7
CONVNEXT_EPS = 1e-6
RESIDUAL_KERNEL = 7
DIRECT_WINDOWS = 1 << 18
"""Numbers in a convolution's gathered windows from which on they leave a core's cache."""
SNAKE_EPS = 1e-9
"""Added to SnakeBeta's magnitude before the division."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where weights live and how convolutions are computed."""

    device: torch.device
    dtype: torch.dtype
    direct_channels: int
    """Long convolutions of at most so many input channels are left to the library's own routine,
    which reads each input once; the others are one matrix product over gathered windows, which is
    faster where there are few samples and many channels."""

    def put(self, weight: Tensor) -> Tensor:
        """A folded weight, in place and type."""
        return weight.to(device=self.device, dtype=self.dtype).contiguous()


def read(weights: Weights, name: str, *shape: int) -> Tensor:
    """A tensor in float64 on the CPU, for folding."""
    return read_stored(weights, name, *shape).to(torch.float64)


def read_stored(weights: Weights, name: str, *shape: int) -> Tensor:
    """A tensor on the CPU in its file's dtype, for what is put as it is."""
    return weights.take_stored(name, shape).cpu()


@dataclass(frozen=True, slots=True)
class Linear:
    """A product with a bias: [B, T, C] to [B, T, out]."""

    weight: Tensor
    """Shape [C, out], kept as its transpose: products of few rows are more exact that way."""
    bias: Tensor

    @classmethod
    def fold(cls, weight: Tensor, bias: Tensor, place: Place) -> Linear:
        """From the file's order: weight [out, C], bias [out]."""
        return cls(place.put(weight).T, place.put(bias))

    def __call__(self, x: Tensor) -> Tensor:
        """Shape [B, T, C] to [B, T, out]."""
        rows = torch.addmm(self.bias, x.flatten(0, 1), self.weight)
        return rows.view(x.shape[0], x.shape[1], -1)


class CausalConv:
    """A convolution that sees no future: [B, T, C] to [B, T, out]."""

    def __init__(
        self, weight: Tensor, bias: Tensor, past: PastLayout, place: Place, *, dilation: int = 1
    ) -> None:
        """From the file's order: weight [out, C, k], bias [out]."""
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

    def __call__(self, x: Tensor, past: PastReader) -> Tensor:
        """Shape [B, T, C] to [B, T, out]."""
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
    """A transposed convolution trimmed on the right: [B, T, C] to [B, T rate, out]."""

    def __init__(
        self, weight: Tensor, bias: Tensor, rate: int, past: PastLayout, place: Place
    ) -> None:
        """From the file's order: weight [C, out, k], k a multiple of rate; bias [out]."""
        self._rate = rate
        self._conv = CausalConv(phases(weight, rate), bias.repeat(rate), past, place)

    def __call__(self, x: Tensor, past: PastReader) -> Tensor:
        """Shape [B, T, C] to [B, T rate, out]."""
        made = self._conv(x, past)
        return made.view(x.shape[0], x.shape[1] * self._rate, -1)


def phases(weight: Tensor, rate: int) -> Tensor:
    """The convolution that is a transposed one: [C, out, m rate] to [rate out, C, m].

    Sample r of a frame is made of input t - i by the tap i rate + r, so the latest input, last in
    a window, has the first taps.
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
    def read(cls, weights: Weights, channels: int, place: Place) -> Snake:
        """From the logarithms ``alpha`` and ``beta``."""
        alpha = read(weights, "alpha", channels).exp()
        beta = read(weights, "beta", channels).exp()
        return cls(place.put(alpha), place.put(1 / (beta + SNAKE_EPS)))

    def __call__(self, x: Tensor) -> Tensor:
        """Any shape [..., C]."""
        wave = (x * self.alpha).sin_().square_()
        return torch.addcmul(x, wave, self.inverse_beta)


class ConvNeXt:
    """Depthwise convolution, norm, two projections with GELU, and a path around: [B, T, C].

    Source: arXiv 2201.03545. The norm's own scale and the block's gamma are in the projections.
    """

    def __init__(self, weights: Weights, channels: int, past: PastLayout, place: Place) -> None:
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

    def __call__(self, x: Tensor, past: PastReader) -> Tensor:
        """Shape [B, T, C], kept."""
        windows = past.extend(self._span, x).unfold(1, CONVNEXT_KERNEL, 1)
        y = (windows * self._taps).sum(-1).add_(self._bias)
        y = functional.layer_norm(y, y.shape[-1:], eps=CONVNEXT_EPS)
        return self._down(functional.gelu(self._up(y))).add_(x)


class ResidualUnit:
    """Snake, dilated convolution, snake, projection, and a path around: [B, T, C]."""

    def __init__(
        self, weights: Weights, channels: int, dilation: int, past: PastLayout, place: Place
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

    def __call__(self, x: Tensor, past: PastReader) -> Tensor:
        """Shape [B, T, C], kept."""
        before, after = self._snakes
        return self._project(after(self._conv(before(x), past))).add_(x)
