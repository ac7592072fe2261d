"""A voice's network on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as runtime
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as states

from qwen3tts_engine.guards import check_finite
from qwen3tts_engine.piper.graph import (
    DURATION_NOISE,
    DURATIONS,
    LOG_SCALES,
    MEANS,
    NotVits,
    Seam,
    find_seam,
)
from qwen3tts_engine.piper.stream import StreamGraph, stream_graph
from qwen3tts_engine.piper.stream_builder import FRAMES, SOUND
from qwen3tts_wire.errors import BadRequest, EngineFailed

MAX_BYTES = 1 << 30
"""Largest network that is loaded."""
LATENT_MAX = 1e9
"""Bound on latents; those of a voice are around 10 at most."""
MAX_FRAMES = 20_000
"""Frames of one sentence at most: some 4 minutes."""
_REFUSALS = (
    states.Fail,
    states.InvalidArgument,
    states.InvalidGraph,
    states.InvalidProtobuf,
    states.NotImplemented,
    states.RuntimeException,
)

Sound = NDArray[np.float32]


class VitsNetwork:
    def __init__(self, seam: Seam, graph: StreamGraph, threads: int) -> None:
        self.seam = seam
        self.graph = graph
        self.hop = graph.hop
        """Samples of one frame."""
        self.ahead = -(-graph.delay // graph.hop)
        """Frames that a call takes beyond its sound."""
        # Optimised, the encoder runs as fast and loads half a second later.
        self._encoder = _session(seam.encoder, threads, optimised=False)
        self._decoder = _session(graph.model, threads, optimised=True)
        self._takes = {value.name for value in self._encoder.get_inputs()}
        self._next = [f"{window.name}.next" for window in graph.windows]
        self._tails = {last: self._tail(last=last) for last in (False, True)}

    @classmethod
    def load(cls, file: Path, threads: int = 1) -> VitsNetwork:
        model = _read(file)
        try:
            seam = find_seam(model)
            with np.errstate(all="ignore"):  # weights of a damaged file
                network = cls(seam, stream_graph(seam), threads)
                random = np.random.default_rng(0)
                network.speak([0] * 24, (0.0, 1.0, 0.0), 0, random).next(8)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise NotVits("its parts do not fit together") from error
        except _REFUSALS as error:
            raise NotVits("ONNX Runtime cannot run it") from error
        except EngineFailed as error:
            raise NotVits("a trial gives no durations or no sound") from error
        return network

    def speak(
        self,
        ids: Sequence[int],
        scales: tuple[float, float, float],
        speaker: int,
        random: np.random.Generator,
    ) -> SentenceAudio:
        rounded, means, log_scales, *conditions = self._encode(ids, scales, speaker, random)
        durations = rounded.reshape(-1)
        if (
            len(durations) != len(ids)
            or not np.isfinite(durations).all()
            or not 1 <= durations.sum(dtype=np.float64) <= MAX_FRAMES
            or durations.min() < 0
        ):
            raise EngineFailed(
                "The voice's durations are out of bounds.",
                remedy="Say less in one sentence, or check the voice's file.",
            )
        counts = durations.astype(np.int64)
        with np.errstate(over="ignore", invalid="ignore"):
            deviation = np.exp(log_scales[0]) * np.float32(scales[0])
        if not (deviation.max() < LATENT_MAX and np.abs(means).max() < LATENT_MAX):
            raise EngineFailed(
                "The voice's latents are out of bounds.", remedy="Check the voice's file."
            )
        frames = np.repeat(means[0], counts, axis=0)
        frames += random.standard_normal(frames.shape, np.float32) * np.repeat(
            deviation, counts, axis=0
        )
        given = dict(zip(self.seam.conditions, conditions, strict=True))
        shaped = {
            name: given[tensor].reshape(1, -1, 1, 1) for name, tensor in self.graph.conditions
        }
        return SentenceAudio(self, np.ascontiguousarray(frames.T), shaped, np.cumsum(counts))

    def _encode(
        self,
        ids: Sequence[int],
        scales: tuple[float, float, float],
        speaker: int,
        random: np.random.Generator,
    ) -> list[Any]:
        feeds: dict[str, Any] = {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array(scales, np.float32),
            "sid": np.array([speaker], np.int64),
        }
        if self.seam.duration_noise:
            feeds[DURATION_NOISE] = random.standard_normal((1, 2, len(ids)), np.float32)
        found: list[Any] = self._encoder.run(
            [DURATIONS, MEANS, LOG_SCALES, *self.seam.conditions],
            {name: value for name, value in feeds.items() if name in self._takes},
        )
        return found

    def forget_graphs(self) -> None:
        self.seam = replace(self.seam, encoder=onnx.ModelProto(), decoder=(), constants={})
        self.graph = replace(self.graph, model=onnx.ModelProto())

    def start(self) -> dict[str, Any]:
        return {
            window.name: np.zeros((1, window.channels, 1, window.first), np.float32)
            for window in self.graph.windows
        }

    def decode(
        self, frames: Sound, state: dict[str, Any], *, first: bool, last: bool
    ) -> tuple[Sound, dict[str, Any]]:
        """Run the decoder on more frames.

        Args:
            frames: [channels, n].
            state: of the call before, with the speaker's tensors.
            first: whether it is the utterance's first call,
            last: and whether it is its last.

        Returns:
            Sound [samples], and the next call's state.
        """
        feeds = {FRAMES: frames[None, :, None], **state, **self._tails[last]}
        for crop in self.graph.crops:
            start, end = crop.bounds(first=first, last=last)
            feeds[f"{crop.name}.start"] = np.array([start])
            feeds[f"{crop.name}.end"] = np.array([end])
        sound, *kept = self._decoder.run([SOUND, *self._next], feeds)
        names = (window.name for window in self.graph.windows)
        return sound.reshape(-1), dict(zip(names, kept, strict=True))

    def _tail(self, *, last: bool) -> Mapping[str, Any]:
        return {
            f"{window.name}.tail": np.zeros(
                (1, window.channels, 1, window.tail if last else 0), np.float32
            )
            for window in self.graph.windows
            if window.tail
        }


class SentenceAudio:
    """Sentence whose durations are known; its sound comes by chunks."""

    def __init__(
        self,
        network: VitsNetwork,
        frames: Sound,
        conditions: dict[str, Any],
        ends: NDArray[np.int64],
    ) -> None:
        self.ends = ends
        """Frames up to the end of each id."""
        self.frames = frames
        """The decoder's input [channels, frames], noise included."""
        self.conditions = conditions
        """The speaker's part of its input, by input."""
        self._network = network
        self._state = network.start()
        self._at = 0

    def next(self, frames: int) -> Sound:
        """Return the sound of about as many frames; the last include the tail."""
        total, ahead = self.frames.shape[1], self._network.ahead
        if self._at == total:
            return np.zeros(0, np.float32)
        end = self._at + frames
        if self._at == 0:
            # A sentence that ends within what a call sees ahead is decoded in one.
            end = min(end + ahead, total - 1) if total - 1 > ahead else total
        end = min(end, total)
        sound, self._state = self._network.decode(
            self.frames[:, self._at : end],
            {**self._state, **self.conditions},
            first=self._at == 0,
            last=end == total,
        )
        self._at = end
        check_finite(sound)
        return sound


def _session(model: onnx.ModelProto, threads: int, *, optimised: bool) -> Any:
    options = runtime.SessionOptions()
    levels = runtime.GraphOptimizationLevel
    options.graph_optimization_level = (
        levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    )
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _read(file: Path) -> onnx.ModelProto:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise BadRequest(
                f"{file.name} is larger than {MAX_BYTES >> 30} GiB.", remedy="Choose another voice."
            )
        data = file.read_bytes()
    except OSError as error:
        raise BadRequest(
            f"The voice's network {file.name} cannot be read: {error.strerror}.",
            remedy="Check the path of the voice, and that it may be read.",
        ) from error
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        model.Clear()
    if not model.graph.node:
        raise BadRequest(
            f"{file.name} is damaged or is not an ONNX file.",
            remedy="Download it again; a voice of medium quality has some 60 MB.",
        )
    if any(tensor.data_location == tensor.EXTERNAL for tensor in model.graph.initializer):
        raise NotVits("its weights are in other files")
    return model
