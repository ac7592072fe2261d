"""Seam in a voice's network: text to durations before, frames to sound behind.

A VITS network (Kim et al. 2021) as Piper exports it is one graph. Text encoder and duration
predictor see the whole text; flow and HiFi-GAN decoder are convolutions over frames. The seam is
found by structure: the only ``Ceil``, which rounds durations, the random normal numbers behind it,
and the sum with them, the decoder's input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from qwen3tts_wire.errors import BadRequest

INPUTS = frozenset({"input", "input_lengths", "scales", "sid"})
DURATIONS, MEANS, LOG_SCALES = "durations", "means", "log_scales"
DURATION_NOISE = "duration_noise"
OTHER_KIND = "Name a voice in Piper's format: a VITS network (.onnx) and its .onnx.json."

Array = NDArray[Any]


class NotVits(BadRequest):
    """The graph is not a VITS network as Piper exports it."""

    def __init__(self, what: str) -> None:
        super().__init__(f"The voice's network is of another kind: {what}.", remedy=OTHER_KIND)


@dataclass(frozen=True, slots=True)
class Seam:
    """Both halves of a network.

    The encoder's outputs are DURATIONS [1, 1, ids], MEANS and LOG_SCALES [1, ids, channels], then
    the tensors ``conditions`` (a speaker's part of the decoder, [1, channels, 1]).
    """

    encoder: onnx.ModelProto
    decoder: tuple[onnx.NodeProto, ...]
    """Nodes from ``frames`` [1, channels, frames] to ``sound``, in order."""
    frames: str
    sound: str
    constants: Mapping[str, Array]
    conditions: tuple[str, ...]
    duration_noise: bool
    """True if the encoder takes DURATION_NOISE [1, 2, ids]."""
    speakers: bool
    """True if the encoder takes ``sid``."""
    channels: int
    symbols: int
    """Rows of the embedding of phonemes."""
    opset: int


class _Graph:
    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.nodes = list(graph.node)
        self.constants: dict[str, Array] = {}
        for tensor in graph.initializer:
            self.constants[tensor.name] = numpy_helper.to_array(tensor)
        for node in self.nodes:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self.constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        self.maker = {name: node for node in self.nodes for name in node.output if name}
        self.inputs = [value.name for value in graph.input if value.name not in self.constants]
        self.outputs = [value.name for value in graph.output]

    def after(self, names: Iterable[str]) -> set[str]:
        found = set(names)
        for node in self.nodes:
            if not found.isdisjoint(node.input):
                found.update(name for name in node.output if name)
        return found

    def before(self, names: Iterable[str], stop: Iterable[str] = ()) -> list[onnx.NodeProto]:
        wanted, ends = set(names), set(stop)
        found = []
        for node in reversed(self.nodes):
            made = [name for name in node.output if name in wanted and name not in ends]
            if made:
                found.append(node)
                wanted.update(name for name in node.input if name)
        return found[::-1]

    def users(self, name: str) -> list[onnx.NodeProto]:
        return [node for node in self.nodes if name in node.input]


def find_seam(model: onnx.ModelProto) -> Seam:
    graph = _Graph(model)
    if not graph.outputs or not {"input", "input_lengths", "scales"} <= set(graph.inputs):
        raise NotVits("its inputs are not input, input_lengths and scales")
    if strange := sorted(set(graph.inputs) - INPUTS):
        raise NotVits(f"it takes {strange[0][:40]!r} too")
    sound = graph.outputs[0]
    rounded = [n for n in graph.before([sound]) if n.op_type == "Ceil"]
    if len(rounded) != 1:
        raise NotVits(f"it rounds durations in {len(rounded)} places, not in one")
    durations = rounded[0].output[0]
    timed = graph.after([durations])
    if sound not in timed:
        raise NotVits("its sound does not follow from durations")
    frames, means, log_scales = _prior(graph, timed)
    decoder = graph.before([sound], stop=[frames])
    moving = graph.after([frames])
    conditions, nodes = _decoder_nodes(graph, decoder, timed, moving)
    noise = [
        n.output[0]
        for n in graph.before([durations])
        if n.op_type in ("RandomNormalLike", "RandomNormal")
    ]
    if len(noise) > 1:
        raise NotVits("its durations take random numbers in several places")
    encoder = _encoder(model, graph, (durations, means, log_scales, *conditions), noise)
    return Seam(
        encoder=encoder,
        decoder=tuple(nodes),
        frames=frames,
        sound=sound,
        constants=graph.constants,
        conditions=tuple(conditions),
        duration_noise=bool(noise),
        speakers="sid" in graph.inputs,
        channels=_channels(graph, nodes, frames),
        symbols=_symbols(graph),
        opset=max(
            (o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0
        ),
    )


def _prior(graph: _Graph, timed: set[str]) -> tuple[str, str, str]:
    drawn = [
        node.output[0]
        for node in graph.nodes
        if node.op_type in ("RandomNormalLike", "RandomNormal") and node.output[0] in timed
    ]
    if len(drawn) != 1:
        raise NotVits(f"random numbers are drawn for frames in {len(drawn)} places, not in one")
    at, scale = drawn[0], None
    while True:
        users = graph.users(at)
        if len(users) != 1 or users[0].op_type not in ("Mul", "Add"):
            raise NotVits("its random numbers are not scaled and added to means")
        other = next((name for name in users[0].input if name != at), at)
        if users[0].op_type == "Add":
            break
        if other in timed:
            scale = other
        at = users[0].output[0]
    maker = graph.maker.get(scale or "")
    if maker is None or maker.op_type != "Exp":
        raise NotVits("its random numbers are not scaled by the encoder")
    return (
        users[0].output[0],
        _stretched(graph, timed, other),
        _stretched(graph, timed, maker.input[0]),
    )


def _stretched(graph: _Graph, timed: set[str], name: str) -> str:
    node = graph.maker.get(name)
    while node is not None and node.op_type in ("Transpose", "Identity"):
        node = graph.maker.get(node.input[0])
    if node is None or node.op_type != "MatMul" or node.input[1] in timed:
        raise NotVits("its encoder's output is not stretched by an alignment")
    return str(node.input[1])


def _decoder_nodes(
    graph: _Graph, decoder: list[onnx.NodeProto], timed: set[str], moving: set[str]
) -> tuple[list[str], list[onnx.NodeProto]]:
    conditions: list[str] = []
    renamed: dict[str, str] = {}
    nodes = []
    for node in decoder:
        if not any(name in moving for name in node.output):
            continue
        masks = [n for n in node.input if n in timed and n not in moving]
        if masks:
            # One clause at a time has no padding: the mask is one everywhere.
            kept = [name for name in node.input if name in moving]
            if node.op_type != "Mul" or len(kept) != 1:
                raise NotVits(f"its decoder takes the mask by {node.op_type}")
            renamed[node.output[0]] = renamed.get(kept[0], kept[0])
            continue
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for at, name in enumerate(node.input):
            if name in renamed:
                copy.input[at] = renamed[name]
            elif name not in (*conditions, "", *moving, *graph.constants):
                conditions.append(name)
        nodes.append(copy)
    return conditions, nodes


def _encoder(
    model: onnx.ModelProto, graph: _Graph, outputs: tuple[str, ...], noise: list[str]
) -> onnx.ModelProto:
    nodes = [
        node
        for node in graph.before(outputs, stop=noise)
        if not (noise and node.output[0] == noise[0])
    ]
    helper = onnx.helper
    names = (DURATIONS, MEANS, LOG_SCALES, *outputs[3:])
    ends = [
        helper.make_node("Identity", [made], [name])
        for made, name in zip(outputs, names, strict=True)
        if made != name
    ]
    needed = {name for node in nodes for name in node.input}
    values = [value for value in model.graph.input if value.name in INPUTS & needed]
    if noise:
        copies = [helper.make_node("Identity", [DURATION_NOISE], [noise[0]])]
        nodes = [*copies, *nodes]
        values.append(
            helper.make_tensor_value_info(
                DURATION_NOISE, onnx.TensorProto.FLOAT, [1, 2, "phonemes"]
            )
        )
    built = helper.make_graph(
        [*nodes, *ends],
        "encoder",
        values,
        [helper.make_empty_tensor_value_info(name) for name in names],
        [tensor for tensor in model.graph.initializer if tensor.name in needed],
    )
    return helper.make_model(built, opset_imports=model.opset_import, ir_version=model.ir_version)


def _channels(graph: _Graph, nodes: list[onnx.NodeProto], frames: str) -> int:
    for node in nodes:
        if node.op_type == "Conv":
            weight = graph.constants.get(node.input[1])
            if weight is None or weight.ndim != 3:
                break
            return int(weight.shape[1]) * (1 if node.input[0] == frames else 2)
    raise NotVits("its decoder has no convolution over frames")


def _symbols(graph: _Graph) -> int:
    for node in graph.users("input"):
        table = graph.constants.get(node.input[0])
        if node.op_type == "Gather" and table is not None and table.ndim == 2:
            return int(table.shape[0])
    raise NotVits("it has no embedding of phonemes")


def decoder_model(seam: Seam) -> onnx.ModelProto:
    helper = onnx.helper
    needed = {name for node in seam.decoder for name in node.input}
    made = {name for node in seam.decoder for name in node.output}
    constants = [
        numpy_helper.from_array(np.ascontiguousarray(value), name)
        for name, value in seam.constants.items()
        if name in needed and name not in made
    ]
    names = (seam.frames, *seam.conditions)
    built = helper.make_graph(
        list(seam.decoder),
        "decoder",
        [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, None, None])
            for name in names
        ],
        [helper.make_empty_tensor_value_info(seam.sound)],
        constants,
    )
    return helper.make_model(
        built, opset_imports=[helper.make_opsetid("", seam.opset)], ir_version=8
    )
