"""The decoder as a streaming graph: each layer keeps the end of its input.

A convolution that sees ``p`` columns ahead runs without padding on *(end of its past, new)*, so a
call computes each column once; the sound is that of the whole decode, later by the sum of all
``p``. The first call begins with ``p`` columns of zeros, the last has ``p`` more behind it (its
``tail``).

At high rates, where a few columns are cheap and copies are not, the layers after an upsampling
share one window: they run with their padding, and the spoilt columns are cut off.

Tensors are [1, channels, 1, columns]: ONNX Runtime's direct convolution is faster in two
dimensions. A transposed convolution becomes a convolution with one set of channels for each phase.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from qwen3tts_engine.piper.graph import NotVits, Seam

FRAMES, SOUND = "frames", "sound"
MOST_COLUMNS = 1 << 20
"""Columns that a layer may keep, and samples of a frame."""
STAGE_RATE = 32
"""Columns of a frame from which on the layers after an upsampling share one window: the few columns
that are computed again cost less than a window for each layer."""
_OPSET = 17
_END = np.iinfo(np.int64).max

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Window:
    """End of a tensor that is kept for the next call."""

    name: str
    """Of its input; ``name.next`` is its output, ``name.tail`` the zeros behind the last call."""
    channels: int
    kept: int
    """Columns in the middle of an utterance."""
    first: int
    """Columns of zeros at its start."""
    tail: int
    """Columns of zeros at its end."""


@dataclass(frozen=True, slots=True)
class Crop:
    """Columns that are cut off; inputs ``name.start`` and ``name.end`` say which stay."""

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
class StreamGraph:
    """Decoder for successive calls: FRAMES [1, channels, 1, n] in, SOUND [1, 1, samples] out."""

    model: onnx.ModelProto
    windows: tuple[Window, ...]
    crops: tuple[Crop, ...]
    conditions: tuple[tuple[str, str], ...]
    """(input, tensor of the seam), each [1, channels, 1, 1]."""
    hop: int
    """Samples of one frame."""
    delay: int
    """Samples that a call's sound lies behind its frames."""


@dataclass(frozen=True, slots=True)
class _Moving:
    name: str
    channels: int
    rate: int
    """Columns of a frame."""
    delay: int
    """Columns that it lies behind the frames of a call."""
    factor: float = 1.0
    """What its numbers are still to be multiplied with; above 0."""
    stage: _Stage | None = None
    reach: int = 0
    """Columns at both ends that the stage's ends have spoilt."""


@dataclass(eq=False, slots=True)
class _Stage:
    window: str
    whole: str
    channels: int
    reach: int = 0
    exits: list[tuple[str, int]] = field(default_factory=list)
    """Crops and what they cut off."""


@dataclass(frozen=True, slots=True)
class _Filled:
    value: float


@dataclass(frozen=True, slots=True)
class _Shape:
    pass


_Value = _Moving | _Filled | _Shape


@dataclass(slots=True)
class _Builder:
    seam: Seam
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)
    crops: list[Crop] = field(default_factory=list)
    values: dict[str, _Value] = field(default_factory=dict)
    stages: list[_Stage] = field(default_factory=list)
    conditions: dict[str, str] = field(default_factory=dict)
    made: dict[tuple[str, int], str] = field(default_factory=dict)
    """Windows by tensor and reach."""
    activated: dict[str, tuple[_Moving, float]] = field(default_factory=dict)
    """What LeakyRelu was taken of, by the tensor of its result: zero stays zero, so that it may be
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

    def window(self, value: _Moving, kept: int, first: int, tail: int) -> str:
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

    def enter(self, value: _Moving) -> _Moving:
        name = self.name("state")
        stage = _Stage(name, self.emit("Concat", [name, value.name], axis=3), value.channels)
        self.stages.append(stage)
        return replace(value, name=stage.whole, stage=stage)

    def leave(self, value: _Moving) -> _Moving:
        if value.stage is None:
            return value
        name = self.name("crop")
        value.stage.exits.append((name, value.reach))
        bounds = [f"{name}.start", f"{name}.end", self.integers(3)]
        made = self.emit("Slice", [value.name, *bounds])
        delay = value.delay + value.reach
        return _Moving(made, value.channels, value.rate, delay, value.factor)

    def finish(self) -> None:
        for stage in self.stages:
            kept = 2 * stage.reach
            window = Window(stage.window, stage.channels, kept, 0, 0)
            self.windows.append(window)
            self.keep(stage.whole, window)
            for name, reach in stage.exits:
                self.crops.append(Crop(name, 0, kept - reach, reach, 0))

    def plain(self, value: _Moving) -> _Moving:
        if value.factor == 1.0:
            return value
        factor = self.constant(np.array(value.factor, np.float32))
        return replace(value, name=self.emit("Mul", [value.name, factor]), factor=1.0)

    def delayed(self, value: _Moving, columns: int) -> _Moving:
        if columns == 0:
            return value
        whole = self.window(value, 2 * columns, columns, columns)
        name = self.slice(whole, columns, -columns, 3)
        return replace(value, name=name, delay=value.delay + columns)

    def aligned(self, values: list[_Moving]) -> list[_Moving]:
        if len({(value.rate, value.stage) for value in values}) > 1:
            raise NotVits("its decoder joins tensors of several rates")
        if len({value.factor for value in values}) > 1:
            values = [self.plain(value) for value in values]
        most = max(value.delay for value in values)
        return [self.delayed(value, most - value.delay) for value in values]

    def convolved(
        self, value: _Moving, weight: Array, bias: Array | None, dilation: int
    ) -> _Moving:
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
            return _Moving(name, outputs, value.rate, value.delay + reach)
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

    def upsampled(self, value: _Moving, weight: Array, bias: Array | None, stride: int) -> _Moving:
        """Build a transposed convolution whose length is ``stride`` times the input's."""
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
        made = _Moving(name, outputs, value.rate * stride, value.delay * stride + pad)
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


def stream_graph(seam: Seam) -> StreamGraph:
    """Return the decoder as a streaming graph."""
    builder = _Builder(seam)
    builder.values[seam.frames] = _Moving(FRAMES, seam.channels, 1, 0)
    for node in seam.decoder:
        _LAYERS.get(node.op_type, _unknown)(builder, node)
    sound = builder.values.get(seam.sound)
    if not isinstance(sound, _Moving) or sound.channels != 1 or sound.rate > MOST_COLUMNS:
        raise NotVits("its output is not sound")
    sound = builder.plain(builder.leave(sound))
    builder.finish()
    builder.nodes.append(helper.make_node("Identity", [sound.name], [SOUND]))
    return StreamGraph(
        _model(builder),
        tuple(builder.windows),
        tuple(builder.crops),
        tuple((made, given) for given, made in builder.conditions.items()),
        sound.rate,
        sound.delay,
    )


def _model(builder: _Builder) -> onnx.ModelProto:
    kind = onnx.TensorProto
    inputs = [(FRAMES, builder.seam.channels)]
    for window in builder.windows:
        inputs.append((window.name, window.channels))
        if window.tail:
            inputs.append((f"{window.name}.tail", window.channels))
    values = [
        helper.make_tensor_value_info(name, kind.FLOAT, [1, channels, 1, f"columns_{name}"])
        for name, channels in inputs
    ]
    values += [
        helper.make_tensor_value_info(name, kind.FLOAT, [1, f"channels_{name}", 1, 1])
        for name in builder.conditions.values()
    ]
    values += [
        helper.make_tensor_value_info(f"{crop.name}.{end}", kind.INT64, [1])
        for crop in builder.crops
        for end in ("start", "end")
    ]
    graph = helper.make_graph(
        builder.nodes,
        "decoder",
        values,
        [
            helper.make_empty_tensor_value_info(name)
            for name in (SOUND, *(f"{window.name}.next" for window in builder.windows))
        ],
        [
            numpy_helper.from_array(np.ascontiguousarray(value), name)
            for name, value in builder.constants.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {one.name: helper.get_attribute_value(one) for one in node.attribute}


def _moving(builder: _Builder, name: str) -> _Moving:
    value = builder.values.get(name)
    if not isinstance(value, _Moving):
        raise NotVits("its decoder has an unusual order of layers")
    return value


def _weights(builder: _Builder, node: onnx.NodeProto) -> tuple[Array, Array | None]:
    constants = builder.seam.constants
    weight = constants.get(node.input[1])
    bias = constants.get(node.input[2]) if len(node.input) > 2 else None
    if weight is None or weight.ndim != 3 or (bias is None and len(node.input) > 2):
        raise NotVits("a convolution of its decoder has no constant weights")
    return weight, bias


def _single(attributes: dict[str, Any], name: str) -> int:
    return int(attributes.get(name, [1])[0])


def _conv(builder: _Builder, node: onnx.NodeProto) -> None:
    attributes = _attributes(node)
    weight, bias = _weights(builder, node)
    dilation = _single(attributes, "dilations")
    pads = list(attributes.get("pads", (0, 0)))
    half = (weight.shape[2] - 1) * dilation // 2
    if attributes.get("group", 1) != 1 or _single(attributes, "strides") != 1 or pads != [half] * 2:
        raise NotVits("a convolution of its decoder changes the length")
    value = _moving(builder, node.input[0])
    builder.values[node.output[0]] = builder.convolved(value, weight, bias, dilation)


def _conv_transpose(builder: _Builder, node: onnx.NodeProto) -> None:
    attributes = _attributes(node)
    weight, bias = _weights(builder, node)
    stride = _single(attributes, "strides")
    pads = list(attributes.get("pads", (0, 0)))
    if (
        attributes.get("group", 1) != 1
        or _single(attributes, "dilations") != 1
        or any(attributes.get("output_padding", ()))
        or pads != [(weight.shape[2] - stride) // 2] * 2
    ):
        raise NotVits("an upsampling of its decoder has an unusual shape")
    value = _moving(builder, node.input[0])
    builder.values[node.output[0]] = builder.upsampled(value, weight, bias, stride)


def _unary(builder: _Builder, node: onnx.NodeProto) -> None:
    value = builder.values[node.input[0]]
    if isinstance(value, _Filled) and node.op_type in ("Neg", "Exp"):
        filled = -value.value if node.op_type == "Neg" else float(np.exp(value.value))
        builder.values[node.output[0]] = _Filled(filled)
        return
    value = _moving(builder, node.input[0])
    attributes = _attributes(node)
    if node.op_type != "LeakyRelu":
        value = builder.plain(value)
    name = builder.emit(node.op_type, [value.name], **attributes)
    made = replace(value, name=name)
    if node.op_type == "LeakyRelu" and value.stage is None:
        builder.activated[name] = (value, float(attributes.get("alpha", 0.01)))
    builder.values[node.output[0]] = made


def _binary(builder: _Builder, node: onnx.NodeProto) -> None:
    given = [builder.values.get(name) for name in node.input]
    neutral = 0.0 if node.op_type in ("Add", "Sub") else 1.0
    left, right = given
    if isinstance(left, _Moving) and isinstance(right, _Filled) and right.value == neutral:
        builder.values[node.output[0]] = left
        return
    if (
        isinstance(right, _Moving)
        and isinstance(left, _Filled)
        and left.value == neutral
        and node.op_type in ("Add", "Mul")
    ):
        builder.values[node.output[0]] = right
        return
    moving = [value for value in given if isinstance(value, _Moving)]
    if not moving or any(isinstance(value, _Filled | _Shape) for value in given):
        raise NotVits("its decoder has an unusual order of layers")
    scalar = builder.seam.constants.get(node.input[1])
    if left is moving[0] and scalar is not None and scalar.size == 1 and float(scalar) > 0:
        factor = {"Mul": float(scalar), "Div": 1 / float(scalar)}.get(node.op_type)
        if factor is not None:
            builder.values[node.output[0]] = replace(left, factor=left.factor * factor)
            return
    if len(moving) == 1 or node.op_type in ("Mul", "Div"):
        moving = [builder.plain(value) for value in moving]
    moving = builder.aligned(moving)
    parts = iter(moving)
    names = [
        next(parts).name if isinstance(value, _Moving) else builder.other(name)
        for value, name in zip(given, node.input, strict=True)
    ]
    builder.values[node.output[0]] = replace(
        moving[0],
        name=builder.emit(node.op_type, names),
        channels=max(value.channels for value in moving),
        reach=max(value.reach for value in moving),
    )


def _slice(builder: _Builder, node: onnx.NodeProto) -> None:
    value = _moving(builder, node.input[0])
    bounds = [builder.seam.constants.get(name) for name in node.input[1:]]
    if len(bounds) < 3 or any(bound is None or bound.size != 1 for bound in bounds):
        raise NotVits("its decoder takes parts of tensors in an unusual way")
    start, end, axis, *rest = (int(bound.reshape(-1)[0]) for bound in bounds if bound is not None)
    step = rest[0] if rest else 1
    if axis not in (1, -2) or step == 0:
        raise NotVits("its decoder takes parts along time")
    left = len(range(value.channels)[slice(start, None if end < -MOST_COLUMNS else end, step)])
    name = builder.slice(value.name, start, end, 1, step)
    builder.values[node.output[0]] = replace(value, name=name, channels=left)


def _split(builder: _Builder, node: onnx.NodeProto) -> None:
    value = _moving(builder, node.input[0])
    attributes = _attributes(node)
    sizes = attributes.get("split")
    if len(node.input) > 1:
        given = builder.seam.constants.get(node.input[1])
        sizes = None if given is None else given.tolist()
    sizes = sizes or [value.channels // len(node.output)] * len(node.output)
    if attributes.get("axis", 0) not in (1, -2) or sum(sizes) != value.channels:
        raise NotVits("its decoder splits tensors along time")
    at = 0
    for name, size in zip(node.output, sizes, strict=True):
        part = builder.slice(value.name, at, at + size, 1)
        builder.values[name] = replace(value, name=part, channels=size)
        at += size


def _concat(builder: _Builder, node: onnx.NodeProto) -> None:
    if _attributes(node).get("axis") not in (1, -2):
        raise NotVits("its decoder joins tensors along time")
    values = builder.aligned([_moving(builder, name) for name in node.input])
    builder.values[node.output[0]] = replace(
        values[0],
        name=builder.emit("Concat", [value.name for value in values], axis=1),
        channels=sum(value.channels for value in values),
        reach=max(value.reach for value in values),
    )


def _shape(builder: _Builder, node: onnx.NodeProto) -> None:
    _moving(builder, node.input[0])
    builder.values[node.output[0]] = _Shape()


def _filled(builder: _Builder, node: onnx.NodeProto) -> None:
    if not isinstance(builder.values.get(node.input[0]), _Shape):
        raise NotVits("its decoder has an unusual order of layers")
    value = _attributes(node).get("value")
    number = 0.0 if value is None else float(numpy_helper.to_array(value).reshape(-1)[0])
    builder.values[node.output[0]] = _Filled(number)


def _same(builder: _Builder, node: onnx.NodeProto) -> None:
    builder.values[node.output[0]] = _moving(builder, node.input[0])


def _unknown(_builder: _Builder, node: onnx.NodeProto) -> None:
    raise NotVits(f"its decoder has a layer {node.op_type}")


_LAYERS: dict[str, Callable[[_Builder, onnx.NodeProto], None]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    **dict.fromkeys(("LeakyRelu", "Tanh", "Sigmoid", "Exp", "Neg"), _unary),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _binary),
    "Slice": _slice,
    "Split": _split,
    "Concat": _concat,
    "Shape": _shape,
    "ConstantOfShape": _filled,
    # The last one gives the sound a dimension more.
    **dict.fromkeys(("Unsqueeze", "Identity"), _same),
}
