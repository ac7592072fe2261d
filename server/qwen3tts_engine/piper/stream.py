"""The decoder as a streaming graph: each layer keeps the end of its input.

A convolution that sees ``p`` columns ahead runs without padding on *(end of its past, new)*: each
column is computed once, and the sound is that of the whole decode, later by the sum of all ``p``.
The first call begins with ``p`` columns of zeros, the last has ``p`` more behind it (its ``tail``).

At high rates, where columns are cheap and copies are not, layers after an upsampling share one
window: they run padded, and spoilt columns are cut off.

Tensors are [1, channels, 1, columns]: ONNX Runtime's direct convolution is faster in two
dimensions. A transposed convolution becomes a convolution with one set of channels a phase.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from qwen3tts_engine.piper.graph import NotVits, Seam
from qwen3tts_engine.piper.stream_builder import (
    FRAMES,
    MOST_COLUMNS,
    SOUND,
    Array,
    Crop,
    FilledTensor,
    GraphBuilder,
    MovingTensor,
    TensorShape,
    Window,
)

_OPSET = 17


@dataclass(frozen=True, slots=True)
class StreamGraph:
    """Successive calls: FRAMES [1, channels, 1, n] in, SOUND [1, 1, samples] out."""

    model: onnx.ModelProto
    windows: tuple[Window, ...]
    crops: tuple[Crop, ...]
    conditions: tuple[tuple[str, str], ...]
    """(input, tensor of the seam), each [1, channels, 1, 1]."""
    hop: int
    """Samples of one frame."""
    delay: int
    """Samples that a call's sound lies behind its frames."""


def stream_graph(seam: Seam) -> StreamGraph:
    builder = GraphBuilder(seam)
    builder.values[seam.frames] = MovingTensor(FRAMES, seam.channels, 1, 0)
    for node in seam.decoder:
        _LAYERS.get(node.op_type, _unknown)(builder, node)
    sound = builder.values.get(seam.sound)
    if not isinstance(sound, MovingTensor) or sound.channels != 1 or sound.rate > MOST_COLUMNS:
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


def _model(builder: GraphBuilder) -> onnx.ModelProto:
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


def _moving(builder: GraphBuilder, name: str) -> MovingTensor:
    value = builder.values.get(name)
    if not isinstance(value, MovingTensor):
        raise NotVits("its decoder has an unusual order of layers")
    return value


def _weights(builder: GraphBuilder, node: onnx.NodeProto) -> tuple[Array, Array | None]:
    constants = builder.seam.constants
    weight = constants.get(node.input[1])
    bias = constants.get(node.input[2]) if len(node.input) > 2 else None
    if weight is None or weight.ndim != 3 or (bias is None and len(node.input) > 2):
        raise NotVits("a convolution of its decoder has no constant weights")
    return weight, bias


def _single(attributes: dict[str, Any], name: str) -> int:
    return int(attributes.get(name, [1])[0])


def _conv(builder: GraphBuilder, node: onnx.NodeProto) -> None:
    attributes = _attributes(node)
    weight, bias = _weights(builder, node)
    dilation = _single(attributes, "dilations")
    pads = list(attributes.get("pads", (0, 0)))
    half = (weight.shape[2] - 1) * dilation // 2
    if attributes.get("group", 1) != 1 or _single(attributes, "strides") != 1 or pads != [half] * 2:
        raise NotVits("a convolution of its decoder changes the length")
    value = _moving(builder, node.input[0])
    builder.values[node.output[0]] = builder.convolved(value, weight, bias, dilation)


def _conv_transpose(builder: GraphBuilder, node: onnx.NodeProto) -> None:
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


def _unary(builder: GraphBuilder, node: onnx.NodeProto) -> None:
    value = builder.values[node.input[0]]
    if isinstance(value, FilledTensor) and node.op_type in ("Neg", "Exp"):
        filled = -value.value if node.op_type == "Neg" else float(np.exp(value.value))
        builder.values[node.output[0]] = FilledTensor(filled)
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


def _binary(builder: GraphBuilder, node: onnx.NodeProto) -> None:
    given = [builder.values.get(name) for name in node.input]
    neutral = 0.0 if node.op_type in ("Add", "Sub") else 1.0
    left, right = given
    if (
        isinstance(left, MovingTensor)
        and isinstance(right, FilledTensor)
        and right.value == neutral
    ):
        builder.values[node.output[0]] = left
        return
    if (
        isinstance(right, MovingTensor)
        and isinstance(left, FilledTensor)
        and left.value == neutral
        and node.op_type in ("Add", "Mul")
    ):
        builder.values[node.output[0]] = right
        return
    moving = [value for value in given if isinstance(value, MovingTensor)]
    if not moving or any(isinstance(value, FilledTensor | TensorShape) for value in given):
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
        next(parts).name if isinstance(value, MovingTensor) else builder.other(name)
        for value, name in zip(given, node.input, strict=True)
    ]
    builder.values[node.output[0]] = replace(
        moving[0],
        name=builder.emit(node.op_type, names),
        channels=max(value.channels for value in moving),
        reach=max(value.reach for value in moving),
    )


def _slice(builder: GraphBuilder, node: onnx.NodeProto) -> None:
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


def _split(builder: GraphBuilder, node: onnx.NodeProto) -> None:
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


def _concat(builder: GraphBuilder, node: onnx.NodeProto) -> None:
    if _attributes(node).get("axis") not in (1, -2):
        raise NotVits("its decoder joins tensors along time")
    values = builder.aligned([_moving(builder, name) for name in node.input])
    builder.values[node.output[0]] = replace(
        values[0],
        name=builder.emit("Concat", [value.name for value in values], axis=1),
        channels=sum(value.channels for value in values),
        reach=max(value.reach for value in values),
    )


def _shape(builder: GraphBuilder, node: onnx.NodeProto) -> None:
    _moving(builder, node.input[0])
    builder.values[node.output[0]] = TensorShape()


def _filled(builder: GraphBuilder, node: onnx.NodeProto) -> None:
    if not isinstance(builder.values.get(node.input[0]), TensorShape):
        raise NotVits("its decoder has an unusual order of layers")
    value = _attributes(node).get("value")
    number = 0.0 if value is None else float(numpy_helper.to_array(value).reshape(-1)[0])
    builder.values[node.output[0]] = FilledTensor(number)


def _same(builder: GraphBuilder, node: onnx.NodeProto) -> None:
    builder.values[node.output[0]] = _moving(builder, node.input[0])


def _unknown(_builder: GraphBuilder, node: onnx.NodeProto) -> None:
    raise NotVits(f"its decoder has a layer {node.op_type}")


_LAYERS: dict[str, Callable[[GraphBuilder, onnx.NodeProto], None]] = {
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
