"""Small VITS networks with random weights, of the structure that Piper exports."""

# Look-alike characters are meant.
# ruff: noqa: RUF001

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from qwen3tts_engine.piper.voice_files import VoiceFiles

SYMBOLS = "_^$ !',-.:;?abcdefghijklmnopqrstuvwxyzæðŋɐɑɔəɚɛɜɡɪɹʃʊʌʒˈˌːθɾᵻ"


@dataclass(frozen=True)
class Shape:
    """What differs between voices."""

    rate: int = 16_000
    speakers: int = 1
    channels: int = 8
    upsamplings: tuple[tuple[int, int], ...] = ((8, 16), (4, 8))
    """(stride, kernel)."""
    kernels: tuple[int, ...] = (3, 5)
    dilations: tuple[int, ...] = (1, 2)
    paired: bool = False
    """Whether each dilated convolution is followed by a plain one (``resblock1``)."""
    stochastic: bool = True
    """Whether durations are drawn."""
    prefix: str = ""
    """Of all names in the graph."""

    @property
    def hop(self) -> int:
        return int(np.prod([stride for stride, _ in self.upsamplings]))


LOW = Shape()
MEDIUM = Shape(rate=22_050, upsamplings=((8, 16), (8, 16), (4, 8)), kernels=(3, 5, 7))
HIGH = Shape(
    rate=22_050,
    speakers=3,
    upsamplings=((8, 16), (8, 16), (2, 4), (2, 4)),
    kernels=(3, 7),
    dilations=(1, 3, 5),
    paired=True,
)
MANY = Shape(speakers=4, prefix="other/")
ODD = Shape(rate=24_000, upsamplings=((5, 11), (3, 7)), kernels=(3,), stochastic=False)


class _Net:
    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(5)

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [f"{self.shape.prefix}t{len(self.nodes)}_{at}" for at in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if outputs == 1 else " ".join(names)

    def value(self, value: Any, kind: Any = np.int64) -> str:
        name = f"{self.shape.prefix}w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def normal(self, *shape: int, gain: float = 1.0) -> str:
        spread = gain / np.sqrt(np.prod(shape[1:]))
        return self.value(self.random.standard_normal(shape) * spread, np.float32)

    def conv(self, name: str, inside: int, outside: int, kernel: int, **more: Any) -> str:
        dilation = more.pop("dilation", 1)
        inputs = [name, self.normal(outside, inside, kernel, gain=more.pop("gain", 1.0))]
        if more.pop("bias", True):
            inputs.append(self.normal(outside, 1, gain=0.1))
            self.weights[-1].dims[:] = [outside]
        pad = (kernel - 1) * dilation // 2
        return self("Conv", *inputs, dilations=[dilation], kernel_shape=[kernel], pads=[pad, pad])

    def slice(self, name: str, start: int, end: int, step: int = 1) -> str:
        bounds = [self.value([bound]) for bound in (start, end, 1, step)]
        return self("Slice", name, *bounds)


def tiny_model(shape: Shape) -> onnx.ModelProto:
    """Return the whole network."""
    net = _Net(shape)
    size = shape.channels
    speaker = ""
    if shape.speakers > 1:
        row = net("Gather", net.normal(shape.speakers, size), "sid")
        speaker = net("Unsqueeze", row, net.value([-1]))
    noise, length, noise_w = (net("Gather", "scales", net.value(at)) for at in range(3))
    durations, means, log_scales, id_mask = _encoder(net, noise_w, length)
    frames, mask = _stretched(net, durations, means, log_scales, noise, id_mask)
    for _ in range(2):
        frames = net.slice(frames, -1, -(1 << 31), -1)
        frames = _coupling(net, frames, mask, speaker)
    sound = _decoder(net, net("Mul", frames, mask), speaker)
    net.nodes.append(helper.make_node("Unsqueeze", [sound, net.value([1])], ["output"]))
    inputs: list[tuple[str, list[int | None]]] = [("input", [1, None]), ("input_lengths", [1])]
    values = [helper.make_tensor_value_info(name, TensorProto.INT64, dims) for name, dims in inputs]
    values.append(helper.make_tensor_value_info("scales", TensorProto.FLOAT, [3]))
    if speaker:
        values.append(helper.make_tensor_value_info("sid", TensorProto.INT64, [1]))
    graph = helper.make_graph(
        net.nodes, "tiny", values, [helper.make_empty_tensor_value_info("output")], net.weights
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def _encoder(net: _Net, noise_w: str, length: str) -> tuple[str, str, str, str]:
    size = net.shape.channels
    rows = net("Gather", net.normal(64, size, gain=1.5), "input")
    hidden = net.conv(net("Transpose", rows, perm=[0, 2, 1]), size, size, 3)
    count = net("Gather", net("Shape", hidden), net.value(2))
    places = net("Range", net.value(0), count, net.value(1))
    below = net("Less", places, net("Unsqueeze", "input_lengths", net.value([1])))
    id_mask = net("Unsqueeze", net("Cast", below, to=TensorProto.FLOAT), net.value([1]))
    hidden = net("Mul", hidden, id_mask)
    stats = net.conv(hidden, size, 2 * size, 1, gain=0.5)
    means, log_scales = net("Split", stats, net.value([size, size]), outputs=2, axis=1).split()
    logs = net.conv(hidden, size, 2, 1, gain=0.5)
    if net.shape.stochastic:
        drawn = net("Mul", net("RandomNormalLike", logs), noise_w)
        logs = net("Add", logs, drawn)
    log_width, _ = net("Split", logs, net.value([1, 1]), outputs=2, axis=1).split()
    width = net("Mul", net("Mul", net("Exp", log_width), id_mask), length)
    scaled = net("Mul", width, net.value(3.0, np.float32))
    return net("Ceil", scaled), means, log_scales, id_mask


def _stretched(
    net: _Net, durations: str, means: str, log_scales: str, noise: str, id_mask: str
) -> tuple[str, str]:
    total = net("ReduceSum", durations, net.value([1, 2]), keepdims=0)
    total = net("Cast", net("Clip", total, net.value(1.0, np.float32)), to=TensorProto.INT64)
    steps = net("Range", net.value(0), net("ReduceMax", total, keepdims=0), net.value(1))
    below = net(
        "Less", net("Unsqueeze", steps, net.value([0])), net("Unsqueeze", total, net.value([1]))
    )
    mask = net("Unsqueeze", net("Cast", below, to=TensorProto.FLOAT), net.value([1]))
    ends = net("CumSum", durations, net.value(-1))
    starts = net("Sub", ends, durations)
    at = net("Unsqueeze", net("Cast", steps, to=TensorProto.FLOAT), net.value([0, 1]))
    at = net("Transpose", at, perm=[0, 2, 1])
    kind = {"to": TensorProto.FLOAT}
    before, done = (net("Cast", net("Less", at, edge), **kind) for edge in (ends, starts))
    path = net("Mul", net("Sub", before, done), id_mask)
    wide = [
        net(
            "Transpose", net("MatMul", path, net("Transpose", name, perm=[0, 2, 1])), perm=[0, 2, 1]
        )
        for name in (means, log_scales)
    ]
    drawn = net("RandomNormalLike", wide[0])
    drawn = net("Mul", net("Mul", drawn, net("Exp", wide[1])), noise)
    return net("Add", wide[0], drawn), mask


def _coupling(net: _Net, frames: str, mask: str, speaker: str) -> str:
    size = net.shape.channels
    half = size // 2
    left, right = net("Split", frames, net.value([half, half]), outputs=2, axis=1).split()
    hidden = net("Mul", net.conv(left, half, size, 1), mask)
    total = net("ConstantOfShape", net("Shape", hidden))
    condition = net.conv(speaker, size, 4 * size, 1) if speaker else ""
    for layer in range(2):
        both = net.conv(hidden, size, 2 * size, 5)
        if speaker:
            at = 2 * size * layer
            part = net.slice(condition, at, at + 2 * size)
        else:
            part = net("ConstantOfShape", net("Shape", both))
        both = net("Add", both, part)
        gates = (
            net("Tanh", net.slice(both, 0, size)),
            net("Sigmoid", net.slice(both, size, 1 << 40)),
        )
        out = net.conv(net("Mul", *gates), size, size if layer else 2 * size, 1)
        if layer == 0:
            hidden = net("Mul", net("Add", hidden, net.slice(out, 0, size)), mask)
            out = net.slice(out, size, 1 << 40)
        total = net("Add", total, out)
    mean = net("Mul", net.conv(net("Mul", total, mask), size, half, 1), mask)
    zero = net("ConstantOfShape", net("Shape", mean))
    moved = net("Mul", net("Sub", right, mean), net("Exp", net("Neg", zero)))
    return net("Concat", left, net("Mul", moved, mask), axis=1)


def _decoder(net: _Net, frames: str, speaker: str) -> str:
    shape = net.shape
    size = 16
    sound = net.conv(frames, shape.channels, size, 7)
    if speaker:
        sound = net("Add", sound, net.conv(speaker, shape.channels, size, 1))
    for stride, kernel in shape.upsamplings:
        sound = net("LeakyRelu", sound, alpha=0.1)
        weight, bias = net.normal(size, size // 2, kernel), net.normal(size // 2, 1, gain=0.1)
        net.weights[-1].dims[:] = [size // 2]
        pad = (kernel - stride) // 2
        sound = net("ConvTranspose", sound, weight, bias, strides=[stride], pads=[pad, pad])
        size = max(1, size // 2)
        blocks = [_block(net, sound, size, kernel) for kernel in shape.kernels]
        sound = blocks[0]
        for block in blocks[1:]:
            sound = net("Add", sound, block)
        sound = net("Div", sound, net.value(len(blocks), np.float32))
    sound = net("LeakyRelu", sound)
    return net("Tanh", net.conv(sound, size, 1, 7, bias=False, gain=4.0))


def _block(net: _Net, sound: str, size: int, kernel: int) -> str:
    for dilation in net.shape.dilations:
        out = net.conv(net("LeakyRelu", sound, alpha=0.1), size, size, kernel, dilation=dilation)
        if net.shape.paired:
            out = net.conv(net("LeakyRelu", out, alpha=0.1), size, size, kernel)
        sound = net("Add", out, sound)
    return sound


def tiny_config(shape: Shape, **changes: Any) -> dict[str, Any]:
    """Return the settings of such a voice."""
    return {
        "audio": {"sample_rate": shape.rate, "quality": "low"},
        "espeak": {"voice": "en-us"},
        "inference": {"noise_scale": 0.667, "length_scale": 1, "noise_w": 0.8},
        "phoneme_type": "espeak",
        "phoneme_map": {},
        "phoneme_id_map": {symbol: [at] for at, symbol in enumerate(SYMBOLS)},
        "num_symbols": 64,
        "num_speakers": shape.speakers,
        "speaker_id_map": {f"s{at}": at for at in range(shape.speakers)}
        if shape.speakers > 1
        else {},
        "language": {"code": "en_US"},
        **changes,
    }


def write_voice(folder: Path, shape: Shape = LOW, **changes: Any) -> VoiceFiles:
    """Write a voice's two files."""
    network = folder / "en_US-tiny-low.onnx"
    network.write_bytes(tiny_model(shape).SerializeToString())
    config = folder / "en_US-tiny-low.onnx.json"
    config.write_text(json.dumps(tiny_config(shape, **changes)), encoding="utf-8")
    return VoiceFiles(network, config, network.stem)
