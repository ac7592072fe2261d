"""Frames of the caller in, decisions out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.detection.core import SpeechDetectionCore
from qwen3tts_phone.detection.events import ListenEvent, OnsetHeard, TurnEnded
from qwen3tts_phone.detection.settings import DETECTORS, DetectorName, ListenSettings
from tests.phone.detection.fake_call import LOUD, QUIET, LoudDetector
from tests.phone.detection.spoken import CALLER, Samples, quiet, spoken
from tests.phone.voices import hiss, tone


def frames(
    sound: Samples, rate_hz: int = 8000, count: int | None = None, **how: Any
) -> Iterable[HeardFrame]:
    """The sound in frames of ``count`` samples (20 ms), from time 100 on."""
    count = count or rate_hz // 50
    for number in range(len(sound) // count):
        piece = sound[number * count : (number + 1) * count]
        at = 100 + (number + 1) * count / rate_hz
        concealed = how.get("concealed", False)
        noise = how.get("noise", False)
        yield HeardFrame(piece, at, concealed, rate_hz, number * count, rate_hz, noise)


def hear(sound: Samples, rate_hz: int = 8000, **settings: Any) -> list[ListenEvent]:
    core = SpeechDetectionCore(ListenSettings(**settings), 100.0)
    return [event for frame in frames(sound, rate_hz) for event in core.push(frame)]


def spoken_call() -> Samples:
    return np.concatenate((quiet(1.0), spoken(CALLER), quiet(1.5, 2)))


@pytest.mark.parametrize("name", DETECTORS)
def test_an_utterance_is_one_turn_from_its_first_to_its_last_sound(name: DetectorName) -> None:
    lasts = len(spoken(CALLER)) / 8000
    events = hear(spoken_call(), detector=name)
    (onset,) = [event for event in events if isinstance(event, OnsetHeard)]
    (ended,) = [event for event in events if isinstance(event, TurnEnded)]
    assert 101.0 <= onset.at < 101.3
    assert ended.why == "pause"
    assert ended.ended_at == pytest.approx(101.0 + lasts, abs=0.15)
    assert ended.at - ended.ended_at == pytest.approx(0.6, abs=0.04)


@pytest.mark.parametrize("rate_hz", [16_000, 24_000, 48_000])
def test_other_rates_are_heard_as_well(rate_hz: int) -> None:
    wide = Resampler(8000, rate_hz).push(spoken_call())
    kinds = [type(event).__name__ for event in hear(wide, rate_hz)]
    assert (kinds[0], kinds[-1]) == ("OnsetHeard", "TurnEnded")


def test_the_size_of_the_frames_does_not_matter() -> None:
    def began(count: int) -> list[float]:
        core = SpeechDetectionCore(ListenSettings(), 100.0)
        events = [e for frame in frames(spoken_call(), count=count) for e in core.push(frame)]
        return [e.began_at for e in events if isinstance(e, OnsetHeard)]

    assert began(80) == pytest.approx(began(160))
    assert began(480) == pytest.approx(began(160))


@pytest.mark.parametrize("how", ["concealed", "noise"])
def test_what_was_made_up_here_is_nobody(how: str) -> None:
    core = SpeechDetectionCore(ListenSettings(), 100.0, LoudDetector())
    events = [e for frame in frames(np.tile(LOUD, 50), **{how: True}) for e in core.push(frame)]
    assert events == []


@pytest.mark.parametrize("detector", DETECTORS)
@pytest.mark.parametrize("sound", ["hum", "fan", "tone"])
def test_a_steady_sound_holds_no_turn_open(detector: DetectorName, sound: str) -> None:
    steady = {
        "hum": tone(50, 8000, 10.0, 3000.0) + tone(150, 8000, 10.0, 2000.0),
        "fan": hiss(80_000, 1000.0),
        "tone": tone(1000, 8000, 10.0, 6000.0),
    }[sound]
    core = SpeechDetectionCore(ListenSettings(detector=detector), 100.0)
    for frame in frames(np.concatenate((quiet(1.0), steady))):
        core.push(frame)
    assert not core.speaking


def test_who_speaks_over_a_steady_hum_is_heard() -> None:
    hum = tone(100, 8000, 6.0, 1200.0)
    heard = hum.copy()
    said = spoken(CALLER)[: 3 * 8000]
    heard[20_000 : 20_000 + len(said)] += said
    events = hear(heard)
    assert [102.5 <= e.at < 103.0 for e in events if isinstance(e, OnsetHeard)] == [True]


def test_a_far_end_that_sends_nothing_after_its_words_is_silent() -> None:
    core = SpeechDetectionCore(ListenSettings(pause_ms=300, notice_ms=100), 100.0, LoudDetector())
    for frame in frames(np.tile(LOUD, 25)):
        core.push(frame)
    assert core.tick(100.55) == []  # a late packet is no silence
    assert [type(event).__name__ for event in core.tick(100.65)] == ["SpeechPaused"]
    assert [type(event).__name__ for event in core.tick(100.85)] == ["TurnEnded"]


def test_an_empty_frame_and_one_of_a_single_sample_are_taken() -> None:
    core = SpeechDetectionCore(ListenSettings(), 100.0)
    for samples in (QUIET[:0], QUIET[:1]):
        assert core.push(HeardFrame(samples, 100.0, False)) == []


def test_a_codec_that_changes_in_mid_call_goes_on() -> None:
    core = SpeechDetectionCore(ListenSettings(), 100.0)
    half = len(spoken_call()) // 2
    wide = Resampler(8000, 16_000).push(spoken_call()[half:])
    events = [e for frame in frames(spoken_call()[:half]) for e in core.push(frame)]
    for frame in frames(wide, 16_000):
        late = HeardFrame(frame.samples, frame.at + half / 8000, False, 16_000)
        events += core.push(late)
    assert [type(e).__name__ for e in events if isinstance(e, OnsetHeard)] == ["OnsetHeard"]
    assert isinstance(events[-1], TurnEnded)
