"""The network Smart Turn as a turn detector: its file, its features, its thread."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import logging
import sys
import threading
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_phone.detection import core, smart_turn
from qwen3tts_phone.detection.endpointing import LoadedTurnDetector, TurnSoFar
from qwen3tts_phone.detection.events import MissingDetector
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.smart_turn import (
    MAX_WAITING,
    NAME,
    RATE_HZ,
    SHA256,
    WINDOW_S,
    SmartTurn,
    find_file,
    log_mel,
    turn_detector_of,
    window,
)
from qwen3tts_phone.detection.speech_detection import SpeechDetection
from tests.clients.install import CLIENTS
from tests.conftest import leave_out, require_package
from tests.fakes import settle
from tests.phone.detection.fake_call import FakeCall, LoudDetector
from tests.phone.detection.spoken import Samples, quiet, spoken

FOLDER = Path("audio/turn/smart_turn")


def a_sound(seconds: float = 2.0, rate_hz: int = RATE_HZ) -> NDArray[np.float32]:
    """Three tones that come and go, the same each time; full scale 1, shape [n]."""
    time = np.arange(round(seconds * rate_hz)) / rate_hz
    tones = sum(np.sin(2 * np.pi * hertz * time) / hertz**0.5 for hertz in (180.0, 1130.0, 2900.0))
    return np.asarray(tones * (1 + np.sin(7 * time)) * 2, np.float32)


def int16(sound: NDArray[np.float32]) -> NDArray[np.int16]:
    return np.rint(sound * 32767).astype(np.int16)


def so_far(samples: NDArray[np.int16] | None = None, rate_hz: int = 8000) -> TurnSoFar:
    if samples is None:
        samples = np.zeros(800, np.int16)
    return TurnSoFar(samples, rate_hz, "", 1.0, 2.0, 2.15)


# --- the features

COLUMNS = (0, 598, 600, 640, 701, 799)
REFERENCE = {  # by the vendor's own code (pipecat-ai 1.14.0), of `a_sound` at the window's end
    0: (-0.1345, -0.1345, 1.3592, 0.7061, 0.8592, 1.1027),
    4: (-0.1345, -0.1345, 1.5922, 1.7778, 1.8313, 1.8619),
    24: (-0.1345, -0.1345, 0.9508, 0.2557, 0.3338, 0.7175),
    40: (-0.1345, -0.1345, 0.6288, -0.1345, -0.1345, 0.4717),
    79: (-0.1345, -0.1345, 0.3288, -0.1345, -0.1345, 0.0334),
}


def test_the_features_are_those_that_the_network_was_trained_with() -> None:
    sound = np.zeros(WINDOW_S * RATE_HZ, np.float32)
    sound[-2 * RATE_HZ :] = a_sound()
    features = log_mel(sound)
    assert (features.shape, features.dtype) == ((80, 800), np.dtype(np.float32))
    for row, values in REFERENCE.items():
        assert features[row, list(COLUMNS)] == pytest.approx(values, abs=1e-3)


def test_silence_has_features_too() -> None:
    assert np.isfinite(log_mel(np.zeros(WINDOW_S * RATE_HZ, np.float32))).all()


# --- a file, and a runtime that stands for onnxruntime


class Runtime(ModuleType):
    """Answers ``answer``, once ``gate`` is open."""

    def __init__(self) -> None:
        super().__init__("onnxruntime")
        self.__spec__ = ModuleSpec("onnxruntime", None)
        self.answer: Any = 0.75
        self.gate = threading.Event()
        self.gate.set()
        self.began = threading.Event()
        self.loaded: list[bytes] = []
        self.asked: list[NDArray[np.float32]] = []
        runtime = self

        class Options:
            pass

        class Session:
            def __init__(self, data: bytes, options: Any, providers: list[str]) -> None:
                if isinstance(runtime.answer, ImportError):
                    raise RuntimeError("opset 99")
                assert (options.intra_op_num_threads, providers) == (1, ["CPUExecutionProvider"])
                runtime.loaded.append(data)

            def run(self, names: None, given: dict[str, NDArray[np.float32]]) -> list[Any]:
                runtime.began.set()
                runtime.gate.wait(60)
                runtime.asked.append(given["input_features"])
                if isinstance(runtime.answer, Exception):
                    raise runtime.answer
                return [np.array([[runtime.answer]], np.float32)]

        self.SessionOptions, self.InferenceSession = Options, Session


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    made = Runtime()
    monkeypatch.setitem(sys.modules, "onnxruntime", made)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / NAME
    path.write_bytes(b"a network")
    return path


CHECKSUM = hashlib.sha256(b"a network").hexdigest()


def detector(file: Path, **options: Any) -> SmartTurn:
    return SmartTurn(file, sha256=CHECKSUM, **options)


async def test_an_answer_is_the_probability_of_the_last_8_s(runtime: Runtime, file: Path) -> None:
    smart = detector(file)
    assert isinstance(smart, LoadedTurnDetector)
    await smart.warm()
    assert runtime.loaded == [b"a network"]
    assert await smart.finished(so_far(int16(a_sound(3.0, 8000)))) == pytest.approx(0.75)
    (features,) = runtime.asked
    assert (features.shape, features.dtype) == ((1, 80, 100 * WINDOW_S), np.dtype(np.float32))
    # Calls share it: the file is loaded once.
    await detector(file).finished(so_far())
    assert len(runtime.loaded) == 1


async def test_a_file_that_is_missing_altered_or_unreadable_is_refused_by_name(
    runtime: Runtime, file: Path, tmp_path: Path
) -> None:
    with pytest.raises(MissingDetector, match="cannot be read: No such file") as caught:
        SmartTurn(tmp_path / "none.onnx")
    assert str(tmp_path / "none.onnx") in str(caught.value)
    assert SHA256 in caught.value.remedy
    with pytest.raises(MissingDetector, match="cannot be read: Is a directory"):
        SmartTurn(tmp_path)
    with pytest.raises(MissingDetector, match=f"altered: its sha256 is {CHECKSUM}"):
        SmartTurn(file)
    with file.open("r+b") as large:
        large.truncate(65 << 20)
    with pytest.raises(MissingDetector, match="too large"):
        SmartTurn(file)


async def test_without_onnxruntime_it_is_said_how_to_install_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDetector, match="needs onnxruntime") as caught:
        detector(file)
    assert "pip install onnxruntime" in caught.value.remedy


async def test_a_file_that_the_runtime_cannot_read_is_refused_when_it_is_loaded(
    runtime: Runtime, file: Path
) -> None:
    runtime.answer = ImportError()
    smart = detector(file)
    with pytest.raises(MissingDetector, match="cannot be run: RuntimeError"):
        await smart.warm()
    with pytest.raises(MissingDetector, match="cannot be run: RuntimeError"):
        await asyncio.to_thread(smart.check)
    assert await smart.finished(so_far()) is None


@pytest.mark.parametrize("answer", [ValueError("of the caller's words"), float("nan"), 1.5])
async def test_a_failure_leaves_it_to_the_pause_and_is_logged_once(
    answer: Any, runtime: Runtime, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.answer = answer
    smart = detector(file)
    for _ in range(3):
        assert await smart.finished(so_far()) is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "Smart Turn: ValueError; the pause decides" in record.getMessage()
    assert "words" not in record.getMessage()
    runtime.answer = 0.25
    assert await smart.finished(so_far()) == 0.25


async def test_an_answer_that_is_late_is_none(
    runtime: Runtime, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    smart = detector(file, late_s=0.01)
    runtime.gate.clear()
    assert await smart.finished(so_far()) is None
    assert await smart.finished(so_far()) is None
    runtime.gate.set()
    (record,) = caplog.records
    assert "no answer within 10 ms" in record.getMessage()
    smart._network.submit(int).result()
    assert len(runtime.asked) == 1, "what is not awaited any more is not computed"


async def test_a_caller_who_goes_on_costs_no_work_that_has_not_begun(
    runtime: Runtime, file: Path
) -> None:
    smart = detector(file, late_s=60)
    runtime.gate.clear()
    first = asyncio.create_task(smart.finished(so_far()))
    await asyncio.to_thread(runtime.began.wait, 60)
    second = asyncio.create_task(smart.finished(so_far()))
    await settle()
    for each in (first, second):
        each.cancel()
    assert all(
        isinstance(each, asyncio.CancelledError)
        for each in await asyncio.gather(first, second, return_exceptions=True)
    )
    runtime.gate.set()
    smart._network.submit(int).result()
    assert len(runtime.asked) == 1
    assert await smart.finished(so_far()) == 0.75


async def test_a_crowd_of_pauses_does_not_make_a_queue(
    runtime: Runtime, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    smart = detector(file, late_s=60)
    runtime.gate.clear()
    asked = [asyncio.create_task(smart.finished(so_far())) for _ in range(MAX_WAITING + 3)]
    await asyncio.to_thread(runtime.began.wait, 60)
    await settle()
    assert [each.result() for each in asked if each.done()] == [None] * 3
    runtime.gate.set()
    assert (await asyncio.gather(*asked)).count(0.75) == MAX_WAITING
    assert caplog.text.count("too many turns wait") == 1


def test_what_the_settings_name_is_made_once_for_all_calls(
    runtime: Runtime, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert turn_detector_of(ListenSettings()) is None
    with pytest.raises(MissingDetector, match="altered"):
        turn_detector_of(ListenSettings(smart_turn=str(file)))
    monkeypatch.setattr(smart_turn, "_read", lambda path, sha256: path.read_bytes())
    made = turn_detector_of(ListenSettings(smart_turn=str(file)))
    assert made is not None
    assert made is turn_detector_of(ListenSettings(smart_turn=str(file)))
    assert made.path == file
    made._network.submit(int).result()
    assert runtime.loaded == [b"a network"], "it is being loaded before it is asked"


def test_the_wheel_is_one_place_where_the_file_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(MissingDetector, match="in no installed package") as caught:
        find_file()
    assert "--no-deps pipecat-ai" in caught.value.remedy
    package = tmp_path / "pipecat"
    (package / FOLDER / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    importlib.invalidate_caches()
    with pytest.raises(MissingDetector, match="in no installed package"):
        find_file()
    there = package / FOLDER / "data" / NAME
    there.write_bytes(b"")
    assert find_file() == there
    assert "pipecat" not in sys.modules


async def test_in_a_call_a_file_that_is_gone_leaves_it_to_the_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(core, "make_detector", lambda name: LoudDetector())
    call = FakeCall()
    listening = SpeechDetection(
        call, ListenSettings(smart_turn=str(tmp_path / NAME), adaptive_pause=False)
    )
    async with listening:
        await settle()
        await call.say(0.4)
        await call.rest(0.8)
        await call.hang_up()
        turn = await anext(listening)
    assert turn.why == "pause"
    (record,) = [each for each in caplog.records if "turn detector" in each.getMessage()]
    assert f"{tmp_path / NAME} cannot be read: No such file" in record.getMessage()


# --- the window


@pytest.mark.parametrize("rate_hz", [8000, 16_000, 24_000, 48_000])
@pytest.mark.parametrize("seconds", [0.0, 0.01, 3.0, 8.0, 11.3])
def test_the_window_is_the_end_of_the_sound_at_16_khz(rate_hz: int, seconds: float) -> None:
    sound = a_sound(seconds, rate_hz)
    found = window(int16(sound), rate_hz)
    assert (found.shape, found.dtype) == ((WINDOW_S * RATE_HZ,), np.dtype(np.float32))
    wanted = np.zeros(WINDOW_S * RATE_HZ, np.float32)
    at_16 = a_sound(seconds)[-len(wanted) :]
    if len(at_16):
        wanted[-len(at_16) :] = at_16
    # Its ends apart: a tone that is cut has all frequencies.
    inner = slice(len(wanted) - len(at_16) + 200, len(wanted) - 200)
    assert float(np.abs(found - wanted)[inner].max(initial=0.0)) < 2e-3
    assert not found[: len(wanted) - len(at_16)].any()


# --- beside the vendor's


@pytest.fixture(scope="module")
def vendor() -> Path:
    """The folder of the package's code for it, in this environment or in that of the clients."""
    spec = importlib.util.find_spec("pipecat")
    places = list(CLIENTS.glob("lib/python3*/site-packages/pipecat"))
    if spec is not None:
        places += map(Path, spec.submodule_search_locations or ())
    for place in places:
        if (place / FOLDER / "data" / NAME).is_file():
            return place / FOLDER
    leave_out("there is no pipecat-ai (make clients, or pip install --no-deps pipecat-ai==1.14.0)")


def test_the_features_are_the_vendors(vendor: Path) -> None:
    spec = importlib.util.spec_from_file_location("features", vendor / "_whisper_features.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    noise = np.random.default_rng(1).normal(0, 0.1, WINDOW_S * RATE_HZ).astype(np.float32)
    for sound in (noise, window(int16(a_sound(3.0)), RATE_HZ), np.zeros_like(noise)):
        theirs = module.compute_whisper_log_mel_features(sound)
        np.testing.assert_allclose(log_mel(sound), theirs, atol=1e-5)


COMPLETE, HESITATION = (
    "Please call me back tomorrow morning.",
    "I would like to book a table for, um",
)


@pytest.fixture(scope="module")
def speech() -> dict[str, Samples]:
    return {text: spoken(text) for text in (COMPLETE, HESITATION)}


@pytest.mark.parametrize(
    ("text", "after_s", "rule"),
    [(COMPLETE, 0.25, "detector:end"), (HESITATION, 1.2, "detector:wait")],
)
async def test_in_a_call_a_sentence_ends_early_and_a_hesitation_is_waited_for(
    text: str, after_s: float, rule: str, vendor: Path, speech: dict[str, Samples]
) -> None:
    require_package("onnxruntime", "pip install onnxruntime")
    detector = SmartTurn(vendor / "data" / NAME, late_s=60)
    assert detector.thresholds == (0.1, 0.95)
    detector.thresholds = (0.3, 0.7)  # processors differ in the last digits
    await detector.warm()
    assert detector.check() > 0
    call = FakeCall()
    listening = SpeechDetection(call, ListenSettings(adaptive_pause=False), turn_detector=detector)
    async with listening:
        await settle()
        sound = np.concatenate((quiet(0.6), speech[text], quiet(1.6)))
        for start in range(0, len(sound), 160):
            await call.hear(sound[start : start + 160])
            await detector.warm()  # after what is asked: it takes no time of this clock
            await settle()
        await call.hang_up()
        turn = await anext(listening)
    assert turn.rule == rule
    assert turn.decided_at - turn.ended_at == pytest.approx(after_s, abs=0.041)
