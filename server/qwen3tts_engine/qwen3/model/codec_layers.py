"""Layers of the streaming codec decoder; activations are [B, T, C].

Weights are folded in float64: a large GPU is bound by the number of operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_engine.qwen3.model.codec_attention import CodecWindow, attend
from qwen3tts_engine.qwen3.model.codec_packed import (
    pack_matrix,
    pack_picture,
    packed_convolution,
    packed_linear,
)
from qwen3tts_engine.qwen3.model.codec_state import CodecStateLayout, CodecStateReader
from qwen3tts_engine.qwen3.model.config_fields import REMEDY, BadCheckpoint
from qwen3tts_engine.qwen3.model.transformer import (
    RmsNorm,
    add_linear,
    gated_linear,
    norm_linear,
    swiglu,
)

CONVNEXT_KERNEL = 7
CONVNEXT_EPS = 1e-6
RESIDUAL_KERNEL = 7
DIRECT_WINDOWS = 1 << 18
"""Elements of gathered windows from which they exceed a core's cache."""
SNAKE_EPS = 1e-9
"""Added to SnakeBeta's magnitude before the division."""
HEADROOM = 4
"""A 2-byte dtype holds magnitudes up to its largest over this: activations add to them."""
LOUD = 1024
"""Magnitude of activations that a Snake's phase is expected to hold."""


@dataclass(frozen=True, slots=True)
class Placement:
    device: torch.device
    dtype: torch.dtype
    direct_channels: int
    """Long convolutions of at most this many input channels use the library's routine, which reads
    each input once; others are one matrix product over gathered windows, faster for few samples of
    many channels."""
    packed: bool = False
    """Weights are packed for oneDNN; see codec_packed.py."""
    risks: list[str] = field(default_factory=list)
    """Layers that run in float32, because the dtype cannot hold their numbers."""

    def put(self, weight: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        return weight.to(device=self.device, dtype=dtype or self.dtype).contiguous()

    def dtype_of(self, name: str, *weights: Tensor) -> torch.dtype:
        """Return the dtype in which a layer can run, the decoder's or float32."""
        if all(held(weight, self.dtype) for weight in weights):
            return self.dtype
        self.risks.append(name)
        return torch.float32


def held(weight: Tensor, dtype: torch.dtype, *, factor: float = HEADROOM) -> bool:
    """True if a dtype keeps a weight times ``factor`` finite, and rounds as it should."""
    if dtype.itemsize > 2:
        return True
    if overflows(weight, dtype, factor=factor):
        return False
    error = weight.to(dtype).to(weight.dtype).sub_(weight)
    return bool(error.norm() <= torch.finfo(dtype).eps * weight.norm())


def overflows(weight: Tensor, dtype: torch.dtype, *, factor: float = HEADROOM) -> bool:
    if dtype.itemsize > 2:
        return False
    return float(weight.abs().max()) * factor > torch.finfo(dtype).max


def read(weights: Weights, name: str, *shape: int) -> Tensor:
    return read_stored(weights, name, *shape).to(torch.float64)


def read_stored(weights: Weights, name: str, *shape: int) -> Tensor:
    return weights.take_stored(name, shape).cpu()


class Snake:
    """SnakeBeta: x + sin(alpha x)^2 / beta (arXiv 2006.08195).

    Float32 where the dtype cannot hold phase or result.
    """

    def __init__(self, weights: Weights, name: str, channels: int, place: Placement) -> None:
        at = weights.under(name)
        alpha = read(at, "alpha", channels).exp()
        inverse = 1 / (read(at, "beta", channels).exp() + SNAKE_EPS)
        if not bool((alpha <= torch.finfo(torch.float32).max).all()):
            raise BadCheckpoint(
                f"{weights.source}: {name}alpha has no finite exponential.", remedy=REMEDY
            )
        self.wide = not held(inverse, place.dtype)
        exact = self.wide or not held(alpha, place.dtype, factor=LOUD)
        if exact:
            place.risks.append(name.rstrip("."))
        dtype = torch.float32 if exact else place.dtype
        self.alpha = place.put(alpha, dtype)
        self.inverse_beta = place.put(inverse, dtype)
        self.out = place.dtype
        """Dtype of the result, that of the convolution behind it."""

    def widen(self) -> None:
        """Compute in float32, in and out."""
        self.wide = True
        self.alpha, self.inverse_beta = self.alpha.float(), self.inverse_beta.float()

    def __call__(self, x: Tensor) -> Tensor:
        wave = (x * self.alpha).sin_().square_()
        return torch.addcmul(x, wave, self.inverse_beta).to(self.out)


@dataclass(frozen=True, slots=True)
class Epilogue:
    snake: Snake | None = None
    gelu: bool = False
    keeps: bool = False
    """The sums are needed beside the activation."""
    rate: int = 1
    """Samples that each position becomes."""


PLAIN_EPILOGUE = Epilogue()


class Convolution:
    """Causal, with bias and what follows: [B, T, C] to [B, T rate, out]."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        past: CodecStateLayout,
        place: Placement,
        *,
        dilation: int = 1,
        before: Snake | None = None,
        wide: bool = False,
        then: Epilogue = PLAIN_EPILOGUE,
    ) -> None:
        """Take the file's layout: weight [out, C, k], bias [out].

        ``before``: the input's Snake; ``wide``: the input exceeds the decoder's dtype.
        """
        out, channels, kernel = weight.shape
        self.span = past.reserve((kernel - 1) * dilation, channels)
        self.channels, self.kernel, self.dilation, self.then = channels, kernel, dilation, then
        self.out = out // then.rate
        self.dtype = torch.float32
        if not wide and (before is None or not before.wide):
            self.dtype = place.dtype_of(f"convolution {out} x {channels} x {kernel}", weight, bias)
        if before is not None:
            before.out = self.dtype
        if then.snake is not None and overflows(weight, place.dtype):
            # So may its sums.
            then.snake.widen()
        if self.dtype != place.dtype:
            past.widen()
        self.direct = channels <= place.direct_channels and kernel > 1
        self.bias = place.put(bias, self.dtype)
        taps = place.put(weight.transpose(1, 2), self.dtype)
        # The same numbers in the same order for either way; for the library's routine, time is
        # the width of a picture of height 1 whose channels come last.
        self.matrix = taps.view(out, kernel * channels).T
        self.picture = taps.view(out, 1, kernel, channels).permute(0, 3, 1, 2)
        if place.packed and self.direct:
            self.picture = pack_picture(self.picture, self.dilation)
        elif place.packed:
            self.matrix = pack_matrix(self.matrix)

    def windows(self, x: Tensor, past: CodecStateReader) -> Tensor:
        """[B, T, C] to [B T, kernel C]."""
        batch, time, channels = x.shape
        if self.kernel == 1:
            return x.reshape(batch * time, channels)
        x = past.extend(self.span, x)
        windows = x.unfold(1, self.span.rows + 1, 1)[..., :: self.dilation].transpose(2, 3)
        return windows.reshape(batch * time, self.kernel * channels)


def transposed_as_convolution(weight: Tensor, rate: int) -> Tensor:
    """Rewrite a transposed convolution: [C, out, m rate] to [rate out, C, m].

    Sample r takes tap i rate + r of input t - i.
    """
    channels, out, kernel = weight.shape
    # Transposed as one matrix, which the library does by blocks; what follows moves whole rows, and
    # leaves the taps before the channels, as a convolution keeps them.
    taps = weight.reshape(channels, -1).t().contiguous().view(out, kernel // rate, rate, channels)
    rows = taps.permute(2, 0, 1, 3).flip(2).reshape(rate * out, kernel // rate, channels)
    return rows.transpose(1, 2)


def convolve(
    conv: Convolution, x: Tensor, past: CodecStateReader, add: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    batch, time, channels = x.shape
    x = x.to(conv.dtype)
    if conv.direct and batch * time * conv.kernel * channels >= DIRECT_WINDOWS:
        picture = past.extend(conv.span, x).transpose(1, 2).unsqueeze(2)
        made = functional.conv2d(
            picture, conv.picture, conv.bias, dilation=(1, conv.dilation)
        ).permute(0, 2, 3, 1)
    else:
        made = torch.addmm(conv.bias, conv.windows(x, past), conv.matrix)
    sums = made.reshape(batch, time * conv.then.rate, conv.out)
    return finish_sums(conv.then, sums if add is None else sums.add_(add))


def finish_sums(then: Epilogue, sums: Tensor) -> tuple[Tensor, Tensor]:
    if then.gelu:
        return sums, functional.gelu(sums)
    return sums, sums if then.snake is None else then.snake(sums)


class ConvNeXt:
    """Depthwise convolution, norm, GELU projections, residual (arXiv 2201.03545)."""

    def __init__(
        self, weights: Weights, channels: int, past: CodecStateLayout, place: Placement
    ) -> None:
        c = channels
        self.channels, self.span = c, past.reserve(CONVNEXT_KERNEL - 1, c)
        taps = read(weights, "dwconv.conv.weight", c, 1, CONVNEXT_KERNEL)[:, 0]
        bias = read(weights, "dwconv.conv.bias", c)
        dtype = place.dtype_of("depthwise convolution", taps, bias)
        self.taps, self.bias = place.put(taps.T, dtype), place.put(bias, dtype)
        up = read(weights, "pwconv1.weight", 4 * c, c)
        up_bias = read(weights, "pwconv1.bias", 4 * c) + up @ read(weights, "norm.bias", c)
        up *= read(weights, "norm.weight", c)
        gamma = read(weights, "gamma", c)
        down = gamma[:, None] * read(weights, "pwconv2.weight", c, 4 * c)
        down_bias = gamma * read(weights, "pwconv2.bias", c)
        self._up = Convolution(up[..., None], up_bias, past, place, then=Epilogue(gelu=True))
        self._down = Convolution(down[..., None], down_bias, past, place)
        self.convolutions = [self._up, self._down]

    def __call__(self, x: Tensor, past: CodecStateReader, kernels: CodecKernels) -> Tensor:
        y = kernels.depthwise(self, x, past)
        _, y = kernels.convolve(self._up, y, past)
        return kernels.convolve(self._down, y, past, x)[0]


def depthwise(block: ConvNeXt, x: Tensor, past: CodecStateReader) -> Tensor:
    time = x.shape[1]
    x = past.extend(block.span, x)
    y = torch.addcmul(block.bias, x[:, :time], block.taps[0])
    for tap in range(1, CONVNEXT_KERNEL):
        y = y.addcmul_(x[:, tap : tap + time], block.taps[tap])
    return functional.layer_norm(y, y.shape[-1:], eps=CONVNEXT_EPS).to(x.dtype)


class ResidualUnit:
    """Dilated convolution of a Snake, another Snake, projection, residual."""

    def __init__(
        self,
        weights: Weights,
        channels: int,
        dilation: int,
        past: CodecStateLayout,
        place: Placement,
        snakes: tuple[Snake, Snake],
        then: Epilogue,
    ) -> None:
        c = channels
        self._conv = Convolution(
            read_stored(weights, "conv1.conv.weight", c, c, RESIDUAL_KERNEL),
            read(weights, "conv1.conv.bias", c),
            past,
            place,
            dilation=dilation,
            before=snakes[0],
            then=Epilogue(snakes[1]),
        )
        self._project = Convolution(
            read_stored(weights, "conv2.conv.weight", c, c, 1),
            read(weights, "conv2.conv.bias", c),
            past,
            place,
            before=snakes[1],
            then=then,
        )
        self.convolutions = [self._conv, self._project]

    def __call__(
        self, sums: Tensor, x: Tensor, past: CodecStateReader, kernels: CodecKernels
    ) -> tuple[Tensor, Tensor]:
        _, x = kernels.convolve(self._conv, x, past)
        return kernels.convolve(self._project, x, past, sums)


@dataclass(frozen=True, slots=True)
class CodecKernels:
    convolve: Callable[..., tuple[Tensor, Tensor]] = convolve
    depthwise: Callable[[ConvNeXt, Tensor, CodecStateReader], Tensor] = depthwise
    attend: Callable[[Tensor, CodecWindow, int], tuple[Tensor, Tensor]] = attend
    norm_linear: Callable[[Tensor, RmsNorm, Tensor], Tensor] = norm_linear
    gated_linear: Callable[[Tensor, RmsNorm, Tensor], Tensor] = gated_linear
    add_linear: Callable[[Tensor, Tensor, Tensor], Tensor] = add_linear
    ring_frames: int = 0
    """Most new frames of a stream for which ``attend`` uses the state's ring itself."""


TORCH_CODEC_KERNELS = CodecKernels()
"""Plain torch."""


def packed_convolve(
    conv: Convolution, x: Tensor, past: CodecStateReader, add: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    batch, time, _ = x.shape
    shape = (batch, time * conv.then.rate, conv.out)
    gelu = conv.then.gelu
    if conv.direct:
        made = packed_convolution(past.extend(conv.span, x), conv.picture, conv.bias, conv.dilation)
    else:
        made = packed_linear(conv.windows(x, past), conv.matrix, conv.bias, gelu=gelu)
    sums = made.reshape(shape)
    if add is not None:
        sums = sums.add_(add)
    return (sums, sums) if gelu else finish_sums(conv.then, sums)


def packed_norm_linear(x: Tensor, norm: RmsNorm, weight: Tensor) -> Tensor:
    return packed_linear(norm(x), weight, None)


def packed_gated_linear(x: Tensor, norm: RmsNorm, weight: Tensor) -> Tensor:
    return swiglu(packed_linear(norm(x), weight, None))


def packed_add_linear(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    return packed_linear(y, weight, None).add_(x)


PACKED_CODEC_KERNELS = CodecKernels(
    convolve=packed_convolve,
    norm_linear=packed_norm_linear,
    gated_linear=packed_gated_linear,
    add_linear=packed_add_linear,
)
"""For weights that are packed for oneDNN."""
