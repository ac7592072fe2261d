"""Smart Turn v3.2 (https://github.com/pipecat-ai/smart-turn, BSD-2-Clause), a `TurnDetector`.

A network of 8 million parameters that takes the last 8 s of a turn at 16 kHz, as the log-mel
spectrum of Whisper, and returns the probability that the turn is complete. It needs onnxruntime
and the file ``smart-turn-v3.2-cpu.onnx``, which must have the checksum `SHA256`.

    agent = Agent(..., turn_detector=SmartTurn("/opt/models/smart-turn-v3.2-cpu.onnx"))

Sound at other rates is resampled: at 8 kHz taken for 16 kHz it answers "complete" to everything.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.detection.endpointing import TurnSoFar
from qwen3tts_phone.detection.events import MissingDetector
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.errors import traceback_without_message
from qwen3tts_wire.errors import log_text

logger = logging.getLogger(__name__)

Samples = NDArray[np.int16]
T = TypeVar("T")

AUTO: Final = "auto"
"""Path that stands for the file of the package ``pipecat-ai``."""
NAME: Final = "smart-turn-v3.2-cpu.onnx"
SHA256: Final = "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f"
RATE_HZ: Final = 16_000
WINDOW_S: Final = 8
"""Sound that the network takes; shorter sound has zeros before it."""
LATE_S: Final = 0.5
"""Time after which an answer is of no use."""
MAX_WAITING: Final = 8
"""Turns of all calls that may wait for the network."""
_PACKAGE: Final = "pipecat"
_FOLDER: Final = "audio/turn/smart_turn/data"
_MAX_BYTES: Final = 64 << 20

FFT: Final = 400
HOP: Final = 160
MELS: Final = 80
FRAMES: Final = WINDOW_S * RATE_HZ // HOP
_BLOCK: Final = 16
"""Frames of one product: larger products are shared among threads by OpenBLAS."""


class SmartTurn:
    """Smart Turn for any number of calls; those of one file share a network and its thread.

    Args:
        path: the file; ``auto`` = that of an installed ``pipecat-ai``, which is not imported.
        sha256: its checksum; give another for another network of the same shapes.
        late_s: time limit of an answer.

    Raises MissingDetector: no onnxruntime, or a file that is missing, unreadable or altered.
    """

    thresholds: tuple[float, float] = (0.1, 0.95)
    """Below the first the caller goes on; from the second on the turn is complete. In between the
    network is wrong too often: at 0.5 it cuts people off twice as often as a pause of 600 ms.
    """

    def __init__(
        self, path: str | Path = AUTO, *, sha256: str = SHA256, late_s: float = LATE_S
    ) -> None:
        self._network = _network(find_file(path), sha256)
        self._late_s = late_s
        self._logged: set[str] = set()

    @property
    def path(self) -> Path:
        return self._network.path

    def begin(self) -> None:
        """Begin to load the network, in its thread."""
        self._network.submit(self._network.load)

    def check(self) -> float:
        """Load the network and return the seconds that an answer takes.

        Blocks for 0.2 to 0.5 s. Raises MissingDetector.
        """
        network = self._network
        self._raise(network.submit(network.load).exception())
        began = time.perf_counter()
        asked = network.submit(network.probability, np.zeros(800, np.int16), 8000)
        self._raise(asked.exception())
        return time.perf_counter() - began

    async def warm(self) -> None:
        """Load the network, 0.2 to 0.5 s. Raises MissingDetector."""
        loading = asyncio.wrap_future(self._network.submit(self._network.load))
        await asyncio.wait([loading])
        self._raise(loading.exception())

    async def finished(self, turn: TurnSoFar) -> float | None:
        """Return the probability that the turn is complete; None: too late, or a failure.

        The first of each kind is logged.
        """
        network = self._network
        if network.waiting >= MAX_WAITING:
            self._failed("too many turns wait for it")
            return None
        work = network.submit(network.probability, turn.samples, turn.rate_hz)
        asked = asyncio.wrap_future(work)
        try:
            await asyncio.wait([asked], timeout=self._late_s)
        finally:
            work.cancel()  # unless it has begun
            asked.cancel()
        if asked.cancelled():
            self._failed(f"no answer within {1000 * self._late_s:.0f} ms")
        elif (error := asked.exception()) is not None:
            self._failed(type(error).__name__, error)
        else:
            return asked.result()
        return None

    def _raise(self, error: BaseException | None) -> None:
        if error is None:
            return
        if isinstance(error, MissingDetector):
            raise error
        raise MissingDetector(
            f"Smart Turn's file {self.path} cannot be run: {type(error).__name__}.",
            remedy="Install another version of onnxruntime.",
        ) from error

    def _failed(self, reason: str, error: BaseException | None = None) -> None:
        if reason not in self._logged:
            self._logged.add(reason)
            more = "" if error is None else f"\n{traceback_without_message(error)}"
            logger.warning(
                "Smart Turn: %s; the pause decides (logged once)%s", log_text(reason), more
            )


def turn_detector_of(settings: ListenSettings) -> SmartTurn | None:
    """Return the detector that the settings name, whose network is being loaded.

    Raises MissingDetector.
    """
    return _shared(settings.smart_turn) if settings.smart_turn else None


@lru_cache(maxsize=4)
def _shared(path: str) -> SmartTurn:
    detector = SmartTurn(path)
    detector.begin()
    return detector


def find_file(path: str | Path = AUTO) -> Path:
    """Return the path of the network's file. Raises MissingDetector."""
    if str(path) != AUTO:
        return Path(path).expanduser()
    spec = importlib.util.find_spec(_PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        if (file := Path(folder, _FOLDER, NAME)).is_file():
            return file
    raise MissingDetector(
        f"Smart Turn's file {NAME} is in no installed package.",
        remedy="Name the file, or: pip install --no-deps pipecat-ai==1.14.0",
    )


class _Session(Protocol):
    """Part of onnxruntime's InferenceSession."""

    def run(
        self, names: None, given: dict[str, NDArray[np.float32]]
    ) -> list[NDArray[np.float32]]: ...


class _Network:
    """Network of one file, with its thread."""

    def __init__(self, path: Path, sha256: str) -> None:
        self.path = path
        self.waiting = 0
        """Work that has not ended."""
        self._data: bytes | None = _read(path, sha256)
        if importlib.util.find_spec("onnxruntime") is None:
            raise _no_runtime()
        self._session: _Session | None = None
        self._counting = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="smart turn")

    def submit(self, function: Callable[..., T], *args: object) -> Future[T]:
        with self._counting:
            self.waiting += 1
        work = self._thread.submit(function, *args)
        work.add_done_callback(self._ended)
        return work

    def load(self) -> None:
        """Load the session; in the thread. Raises MissingDetector, or an error of onnxruntime."""
        if self._session is not None:
            return
        try:
            runtime = importlib.import_module("onnxruntime")
        except ImportError:
            raise _no_runtime() from None
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        assert self._data is not None
        self._session = runtime.InferenceSession(
            self._data, options, providers=["CPUExecutionProvider"]
        )
        self._data = None

    def probability(self, samples: Samples, rate_hz: int) -> float:
        """Return the probability of int16 samples, shape [n]; in the thread."""
        self.load()
        assert self._session is not None
        features = log_mel(window(samples, rate_hz))
        (answer,) = self._session.run(None, {"input_features": features[np.newaxis]})
        found = float(answer.reshape(-1)[0])
        if not 0.0 <= found <= 1.0:
            raise ValueError("no probability")
        return found

    def _ended(self, _: object) -> None:
        with self._counting:
            self.waiting -= 1


@lru_cache(maxsize=4)
def _network(path: Path, sha256: str) -> _Network:
    return _Network(path, sha256)


def _read(path: Path, sha256: str) -> bytes:
    remedy = f"Take {NAME} of pipecat-ai 1.14.0 (sha256 {SHA256}), or leave the setting out."
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise OSError("it is too large")
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise MissingDetector(
            f"Smart Turn's file {path} cannot be read: {reason}.", remedy=remedy
        ) from None
    if (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise MissingDetector(
            f"Smart Turn's file {path} is another or altered: its sha256 is {found}.",
            remedy=remedy,
        )
    return data


def _no_runtime() -> MissingDetector:
    return MissingDetector(
        "Smart Turn needs onnxruntime, which is not installed.",
        remedy="Install it: pip install onnxruntime (the extra 'voice' has it, too).",
    )


def window(samples: Samples, rate_hz: int) -> NDArray[np.float32]:
    """Return the last 8 s at 16 kHz, full scale 1, shape [128000], zeros before shorter sound."""
    whole = WINDOW_S * RATE_HZ
    spare = rate_hz // 10  # its beginning is the resampler's
    sound = samples[-(WINDOW_S * rate_hz + spare) :]
    if rate_hz != RATE_HZ:
        resampler = Resampler(rate_hz, RATE_HZ, aligned=True)
        sound = np.concatenate((resampler.push(sound), resampler.flush()))
    sound = sound[-whole:]
    out = np.zeros(whole, np.float32)
    if len(sound):
        out[-len(sound) :] = sound
    out /= 32768.0
    return out


def log_mel(sound: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return Whisper's log-mel spectrum of 8 s at 16 kHz, shape [80, 800].

    The sound is brought to zero mean and unit variance before it, as Smart Turn was trained.
    """
    level = (sound - sound.mean()) / np.sqrt(sound.var() + np.float32(1e-7))
    padded = np.pad(level.astype(np.float64), FFT // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, FFT)[::HOP][:FRAMES]
    filters, shape = _mel_filters(), _hann()
    powers = np.abs(np.fft.rfft(frames * shape, axis=-1)) ** 2
    mels = (powers.reshape(-1, _BLOCK, FFT // 2 + 1) @ filters).reshape(FRAMES, MELS)
    logs = np.log10(np.maximum(mels, 1e-10))
    logs = np.maximum(logs, logs.max() - 8.0)
    return np.ascontiguousarray(((logs + 4.0) / 4.0).T, np.float32)


@lru_cache(maxsize=1)
def _hann() -> NDArray[np.float64]:
    return np.hanning(FFT + 1)[:-1]


@lru_cache(maxsize=1)
def _mel_filters() -> NDArray[np.float64]:
    """Slaney's mel filters (1998) of equal area, shape [201, 80]."""
    edges = _hertz(np.linspace(0.0, _mel(RATE_HZ / 2), MELS + 2))
    bins = np.linspace(0.0, RATE_HZ / 2, FFT // 2 + 1)[:, np.newaxis]
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (bins - low) / (middle - low), (high - bins) / (high - middle)
    return np.maximum(0.0, np.minimum(rising, falling)) * 2 / (high - low)


_LINEAR_HZ, _LINEAR_MELS = 1000.0, 15.0
"""Below this the scale is linear, above it logarithmic: 27 steps for a factor of 6.4."""


def _mel(hertz: float) -> float:
    return _LINEAR_MELS + 27 * float(np.log(hertz / _LINEAR_HZ) / np.log(6.4))


def _hertz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    above = _LINEAR_HZ * 6.4 ** ((mels - _LINEAR_MELS) / 27)
    return np.where(mels < _LINEAR_MELS, mels * _LINEAR_HZ / _LINEAR_MELS, above)
