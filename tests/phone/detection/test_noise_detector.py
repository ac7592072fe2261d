"""A caller is distinguished from noise and other voices; on a clean line nothing is changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.detection.core import SpeechDetectionCore
from qwen3tts_phone.detection.events import ListenEvent, OnsetHeard, TurnEnded
from qwen3tts_phone.detection.noise_detector import (
    Background,
    NoiseAwareDetector,
    with_suppression,
)
from qwen3tts_phone.detection.settings import ListenSettings, NoiseMode
from qwen3tts_phone.detection.silero import SileroDetector
from qwen3tts_phone.detection.vad import LevelDetector
from tests.phone.detection.spoken import AGENT, CALLER, on_the_line, spoken

Samples = NDArray[np.int16]
VOICES = ("en-us+f1", "en-us+m1", "en-gb+f2", "en-gb+m3", "en-us+m7", "en-us+f4", "en-us", "en-gb")


def babble(seconds: float, dbfs: float) -> NDArray[np.float64]:
    """Eight voices together."""
    length = round(seconds * 8000)
    total = np.zeros(length)
    for number, voice in enumerate(VOICES):
        said = np.concatenate((spoken(AGENT, voice), spoken(CALLER, voice))).astype(float)
        total += np.resize(np.roll(said, -number * 7000), length)
    return np.asarray(total * 32768 * 10 ** (dbfs / 20) / np.sqrt(np.mean(total**2)))


def white(seconds: float, dbfs: float) -> NDArray[np.float64]:
    chance = np.random.default_rng(3)
    return chance.normal(size=round(seconds * 8000)) * 32768 * 10 ** (dbfs / 20)


def listen(sound: NDArray[Any], mode: NoiseMode) -> list[ListenEvent]:
    core = SpeechDetectionCore(ListenSettings(noise_suppression=mode, adaptive_pause=False), 0.0)
    heard = on_the_line(sound.astype(np.float64))
    events: list[ListenEvent] = []
    for at in range(0, len(heard), 160):
        ends = at / 8000 + 0.02
        events += core.push(HeardFrame(heard[at : at + 160], ends, False, 8000, at))
    return [*events, *core.finish("call_over", len(heard) / 8000)]


def onsets(events: list[ListenEvent]) -> list[float]:
    return [event.at for event in events if isinstance(event, OnsetHeard)]


def in_turn_s(events: list[ListenEvent]) -> float:
    return sum(event.at - event.began_at for event in events if isinstance(event, TurnEnded))


def test_eight_voices_that_do_not_speak_to_it_are_no_turn() -> None:
    around = babble(20.0, -28.0)
    assert in_turn_s(listen(around, "off")) > 5.0  # the detector alone does not tell
    assert in_turn_s(listen(around, "auto")) < 1.5


def test_a_caller_is_heard_among_them_and_the_end_too() -> None:
    said = spoken(CALLER, dbfs=-20.0).astype(float)
    around = babble(5.0 + len(said) / 8000, -30.0)
    around[24_000 : 24_000 + len(said)] += said
    events = listen(around, "auto")
    heard = [at for at in onsets(events) if 3.0 <= at <= 3.5]
    ends = [each.at for each in events if isinstance(each, TurnEnded) and each.why == "pause"]
    assert heard
    assert any(at > 3.0 + len(said) / 8000 for at in ends)


@pytest.mark.parametrize("level", [-12.0, -22.0, -34.0])
def test_on_a_clean_line_all_is_decided_as_without_it(level: float) -> None:
    said = spoken(CALLER, dbfs=level).astype(float)
    call = np.concatenate((np.zeros(12_000), said, np.zeros(12_000)))
    call += white(len(call) / 8000, -70.0)
    assert listen(call, "auto") == listen(call, "off")


def test_a_caller_in_steady_noise_is_heard_no_later() -> None:
    said = spoken(CALLER, dbfs=-22.0).astype(float)
    call = np.concatenate((np.zeros(32_000), said, np.zeros(12_000)))
    call += white(len(call) / 8000, -24.0)
    plain, aware = onsets(listen(call, "off")), onsets(listen(call, "auto"))
    assert aware
    assert not plain or aware[0] <= plain[0]


def test_probabilities_are_the_detectors_own_on_a_clean_line() -> None:
    said = spoken(CALLER)
    sound = np.concatenate((np.zeros(8000, np.int16), said))
    aware = NoiseAwareDetector(SileroDetector(), SileroDetector())
    plain = SileroDetector().push(sound)
    assert aware.push(sound) == plain
    aware.reset()
    assert aware.push(sound) == plain


@given(
    windows=st.lists(
        st.tuples(st.floats(-120, 0), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=200
    ),
    window_s=st.sampled_from([0.01, 0.032]),
)
@settings(max_examples=50, deadline=None)
def test_a_probability_is_one_whatever_is_heard(
    windows: list[tuple[float, float, float]], window_s: float
) -> None:
    background = Background(window_s)
    for window in windows:
        assert 0.0 <= background.push(*window) <= 1.0


def test_what_the_background_is_follows_from_the_sound() -> None:
    background = Background(0.032)
    chance = np.random.default_rng(1)

    def judged(levels: list[float], probability: float) -> tuple[bool, bool]:
        for level in levels:
            background.push(level, probability, probability)
        return background.steady, background.crowded

    noise, voices = chance.normal(-40, 0.3, 100), chance.normal(-30, 3, 100)
    assert judged(noise.tolist(), 0.01) == (True, True)
    assert judged(voices.tolist(), 0.8) == (False, True)
    assert judged([-80.0, -80.0, -20.0, -22.0] * 30, 0.5) == (False, False)


def test_it_is_used_with_silero_where_it_is_wanted() -> None:
    silero, level = SileroDetector(), LevelDetector()
    assert with_suppression(silero, ListenSettings(noise_suppression="off")) is silero
    assert with_suppression(level, ListenSettings(noise_suppression="on")) is level
    for mode in ("auto", "on"):
        aware = with_suppression(silero, ListenSettings(noise_suppression=mode))
        assert isinstance(aware, NoiseAwareDetector)
        assert aware.window == silero.window


def test_a_mode_that_does_not_exist_is_refused() -> None:
    mode: Any = "sometimes"
    with pytest.raises(ValueError, match="noise_suppression='sometimes' must be one of off, auto"):
        ListenSettings(noise_suppression=mode)
