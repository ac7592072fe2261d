"""Builder of the streaming decoder's graph."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from qwen3tts_engine.piper.graph import NotVits, Seam

FRAMES, SOUND = "frames", "sound"
MOST_COLUMNS = 1 << 20
"""Columns that a layer may keep, and samples of a frame."""
STAGE_RATE = 32
"""Columns of a frame from which on the layers after an upsampling share one window: the few columns
that are computed again cost less than a window for each layer."""
_END = np.iinfo(np.int64).max

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Window:
    """End of a tensor that is kept for the next call."""

    name: str
    """Past input; ``name.next`` is its output, ``name.tail`` the zeros behind the last call."""
    channels: int
    kept: int
    """Columns in the middle of an utterance."""
    first: int
    """Columns of zeros at its start."""
    tail: int
    """Columns of zeros at its end."""


@dataclass(frozen=True, slots=True)
class Crop:
    """Columns cut off; inputs ``name.start`` and ``name.end`` bound what stays."""

    name: str
    first: int
    """Cut off at the start in an utterance's first call, and"""
    later: int
    """in every other one."""
    before: int
    """Cut off at the end in every call but the last, and"""
    last: int
    """in the last one."""

    def bounds(self, *, first: bool, last: bool) -> tuple[int, int]:
        cut = self.last if last else self.before
        return self.first if first else self.later, -cut if cut else _END


@dataclass(frozen=True, slots=True)
class MovingTensor:
    name: str
    channels: int
    rate: int
    """Columns of a frame."""
    delay: int
    """Columns that it lies behind the frames of a call."""
    factor: float = 1.0
    """Pending factor of its numbers; above 0."""
    stage: UpsampledStage | None = None
    reach: int = 0
    """Columns at both ends that the stage's ends have spoilt."""


@dataclass(eq=False, slots=True)
class UpsampledStage:
    window: str
    whole: str
    channels: int
    reach: int = 0
    exits: list[tuple[str, int]] = field(default_factory=list)
    """Crops and what they cut off."""


@dataclass(frozen=True, slots=True)
class FilledTensor:
    value: float


@dataclass(frozen=True, slots=True)
class TensorShape:
    pass


_Value = MovingTensor | FilledTensor | TensorShape


@dataclass(slots=True)
class GraphBuilder:
    seam: Seam
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)
    crops: list[Crop] = field(default_factory=list)
    values: dict[str, _Value] = field(default_factory=dict)
    stages: list[UpsampledStage] = field(default_factory=list)
    conditions: dict[str, str] = field(default_factory=dict)
    made: dict[tuple[str, int], str] = field(default_factory=dict)
    """Windows by tensor and reach."""
    activated: dict[str, tuple[MovingTensor, float]] = field(default_factory=dict)
    """Input of LeakyRelu, by the tensor of its result: zero stays zero, so that it may be
    taken of the window instead, which the residual shares."""
    count: int = 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def emit(self, op: str, inputs: list[str], **attributes: Any) -> str:
        name = self.name(op.lower())
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, value: Array) -> str:
        name = self.name("constant")
        self.constants[name] = value
        return name

    def integers(self, *values: int) -> str:
        key = "integers_" + "_".join(map(str, values))
        self.constants[key] = np.array(values, np.int64)
        return key

    def slice(self, name: str, start: int, end: int, axis: int, step: int = 1) -> str:
        bounds = [self.integers(value) for value in (start, end, axis, step)]
        return self.emit("Slice", [name, *bounds])

    def window(self, value: MovingTensor, kept: int, first: int, tail: int) -> str:
        key = (value.name, kept)
        if key in self.made:
            return self.made[key]
        if kept > MOST_COLUMNS:
            raise NotVits("a layer of its decoder reaches too far")
        window = Window(self.name("state"), value.channels, kept, first, tail)
        self.windows.append(window)
        parts = [window.name, value.name] + ([f"{window.name}.tail"] if tail else [])
        whole = self.emit("Concat", parts, axis=3)
        self.keep(whole, window)
        self.made[key] = whole
        return whole

    def keep(self, whole: str, window: Window) -> None:
        bounds = [self.integers(bound) for bound in (-window.kept, _END, 3, 1)]
        self.nodes.append(helper.make_node("Slice", [whole, *bounds], [f"{window.name}.next"]))

    def enter(self, value: MovingTensor) -> MovingTensor:
        name = self.name("state")
        stage = UpsampledStage(
            name, self.emit("Concat", [name, value.name], axis=3), value.channels
        )
        self.stages.append(stage)
        return replace(value, name=stage.whole, stage=stage)

    def leave(self, value: MovingTensor) -> MovingTensor:
        if value.stage is None:
            return value
        name = self.name("crop")
        value.stage.exits.append((name, value.reach))
        bounds = [f"{name}.start", f"{name}.end", self.integers(3)]
        made = self.emit("Slice", [value.name, *bounds])
        delay = value.delay + value.reach
        return MovingTensor(made, value.channels, value.rate, delay, value.factor)

    def finish(self) -> None:
        for stage in self.stages:
            kept = 2 * stage.reach
            window = Window(stage.window, stage.channels, kept, 0, 0)
            self.windows.append(window)
            self.keep(stage.whole, window)
            for name, reach in stage.exits:
                self.crops.append(Crop(name, 0, kept - reach, reach, 0))

    def plain(self, value: MovingTensor) -> MovingTensor:
        if value.factor == 1.0:
            return value
        factor = self.constant(np.array(value.factor, np.float32))
        return replace(value, name=self.emit("Mul", [value.name, factor]), factor=1.0)

    def delayed(self, value: MovingTensor, columns: int) -> MovingTensor:
        if columns == 0:
            return value
        whole = self.window(value, 2 * columns, columns, columns)
        name = self.slice(whole, columns, -columns, 3)
        return replace(value, name=name, delay=value.delay + columns)

    def aligned(self, values: list[MovingTensor]) -> list[MovingTensor]:
        if len({(value.rate, value.stage) for value in values}) > 1:
            raise NotVits("its decoder joins tensors of several rates")
        if len({value.factor for value in values}) > 1:
            values = [self.plain(value) for value in values]
        most = max(value.delay for value in values)
        return [self.delayed(value, most - value.delay) for value in values]

    def convolved(
        self, value: MovingTensor, weight: Array, bias: Array | None, dilation: int
    ) -> MovingTensor:
        outputs, channels, kernel = weight.shape
        reach, odd = divmod((kernel - 1) * dilation, 2)
        if odd or channels != value.channels:
            raise NotVits("a convolution of its decoder has an unusual shape")
        name = value.name
        weight = weight * np.float32(value.factor)
        pad = 0
        if value.stage is not None:
            pad = reach
        elif reach:
            plain, alpha = self.activated.get(name, (value, None))
            name = self.window(plain, 2 * reach, reach, reach)
            if alpha is not None:
                name = self.emit("LeakyRelu", [name], alpha=alpha)
        flat = outputs == 1  # one dimension is faster for a single channel
        if flat:
            name = self.emit("Squeeze", [name, self.integers(2)])
        name = self.conv(name, weight, bias, dilation, pad)
        if flat:
            name = self.emit("Unsqueeze", [name, self.integers(2)])
        if value.stage is None:
            return MovingTensor(name, outputs, value.rate, value.delay + reach)
        value.stage.reach = max(value.stage.reach, value.reach + reach)
        return replace(value, name=name, channels=outputs, factor=1.0, reach=value.reach + reach)

    def conv(self, name: str, weight: Array, bias: Array | None, dilation: int, pad: int) -> str:
        outputs, _, kernel = weight.shape
        flat = outputs == 1
        inputs = [name, self.constant(weight if flat else weight[:, :, None])]
        if bias is not None:
            inputs.append(self.constant(bias))
        shape = {"kernel_shape": [kernel], "dilations": [dilation], "pads": [pad, pad]}
        if not flat:
            shape = {
                "kernel_shape": [1, kernel],
                "dilations": [1, dilation],
                "pads": [0, pad, 0, pad],
            }
        return self.emit("Conv", inputs, **shape)

    def upsampled(
        self, value: MovingTensor, weight: Array, bias: Array | None, stride: int
    ) -> MovingTensor:
        value = self.leave(value)
        weight = weight * np.float32(value.factor)
        channels, outputs, kernel = weight.shape
        pad, odd = divmod(kernel - stride, 2)
        if odd or pad < 0 or channels != value.channels or stride > 64:
            raise NotVits("an upsampling of its decoder has an unusual shape")
        taps = -(-kernel // stride)
        filled = np.zeros((channels, outputs, taps * stride), np.float32)
        filled[:, :, :kernel] = weight
        phases = filled.reshape(channels, outputs, taps, stride)[:, :, ::-1]
        turned = np.ascontiguousarray(phases.transpose(1, 3, 0, 2))
        weight = turned.reshape(outputs * stride, channels, taps)
        if bias is not None:
            bias = np.repeat(bias, stride)
        extra = -(-pad // stride)
        plain, alpha = self.activated.get(value.name, (value, None))
        name = self.window(plain, taps - 1, taps - 1, extra) if taps > 1 else plain.name
        if alpha is not None:
            name = self.emit("LeakyRelu", [name], alpha=alpha)
        name = self.conv(name, weight, bias, 1, 0)
        name = self.emit("Reshape", [name, self.integers(outputs, stride, -1)])
        name = self.emit("Transpose", [name], perm=[0, 2, 1])
        name = self.emit("Reshape", [name, self.integers(1, outputs, 1, -1)])
        if pad:
            crop = Crop(self.name("crop"), pad, 0, 0, extra * stride - pad)
            self.crops.append(crop)
            bounds = [f"{crop.name}.start", f"{crop.name}.end", self.integers(3)]
            name = self.emit("Slice", [name, *bounds])
        made = MovingTensor(name, outputs, value.rate * stride, value.delay * stride + pad)
        return self.enter(made) if made.rate >= STAGE_RATE else made

    def other(self, name: str) -> str:
        if name in self.seam.constants:
            value = self.seam.constants[name]
            if value.ndim in (2, 3):
                value = value.reshape(*value.shape[:-1], 1, value.shape[-1])
            elif value.size > 1:
                raise NotVits("a constant of its decoder has an unusual shape")
            return self.constant(value)
        if name not in self.conditions:
            self.conditions[name] = self.name("condition")
        return self.conditions[name]
