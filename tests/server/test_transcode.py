from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_server.transcode import Transcoder
from qwen3tts_wire.errors import EngineUnavailable
from qwen3tts_wire.formats import FORMATS, AudioFormat
from qwen3tts_wire.heard import Word
from tests.server.driver import tone

EVERY = (*FORMATS, *(AudioFormat("pcm_s16le", hz) for hz in (8001, 11_025, 44_100, 47_999, 48_000)))
IDS = [f"{each.encoding}-{each.sample_rate}" for each in EVERY]


def test_the_engines_own_form_passes_untouched() -> None:
    transcoder = Transcoder(24_000, AudioFormat())
    pcm = tone(1000)
    assert transcoder.push(pcm) is pcm
    assert transcoder.flush() == b""
    assert transcoder.samples == 1000


@pytest.mark.parametrize("form", EVERY, ids=IDS)
@settings(deadline=None)
@given(st.lists(st.integers(0, 500), min_size=1, max_size=8))
def test_the_portions_do_not_change_the_sound(form: AudioFormat, sizes: list[int]) -> None:
    pcm = tone(sum(sizes))
    whole, parts = Transcoder(24_000, form), Transcoder(24_000, form)
    expected = whole.push(pcm) + whole.flush()
    got, at = b"", 0
    for size in sizes:
        got += parts.push(pcm[2 * at : 2 * (at + size)])
        at += size
    got += parts.flush()
    assert got == expected
    assert parts.samples == round(sum(sizes) * form.sample_rate / 24_000)
    assert len(got) == parts.samples * form.bytes_per_sample


def test_words_of_later_stretches_lie_behind_the_earlier_ones() -> None:
    transcoder = Transcoder(24_000, AudioFormat("mulaw", 8000))
    transcoder.push(tone(2400))
    assert transcoder.engine_position == 2400
    assert transcoder.word(Word("a", 240, 480, 0, 1), 2400) == Word("a", 880, 960, 0, 1)
    transcoder.flush()
    assert transcoder.engine_position == 0
    assert transcoder.word(Word("b", 240, 480, 0, 1), 0) == Word("b", 880, 960, 0, 1)


@pytest.mark.parametrize("hz", [8001, 11_025, 12_345, 22_050, 23_999, 44_100, 47_999])
def test_a_sound_keeps_its_place_and_pitch_at_any_rate(hz: int) -> None:
    seconds = np.arange(24_000) / 24_000
    sine = np.round(8000 * np.sin(2 * np.pi * 440 * seconds)).astype("<i2")
    transcoder = Transcoder(24_000, AudioFormat("pcm_s16le", hz))
    pcm = b"".join(transcoder.push(sine[at : at + 777].tobytes()) for at in range(0, 24_000, 777))
    pcm += transcoder.flush()
    got = np.frombuffer(pcm, "<i2")
    assert len(got) == transcoder.samples == hz
    expected = 8000 * np.sin(2 * np.pi * 440 * np.arange(hz) / hz)
    middle = slice(hz // 10, -hz // 10)
    assert np.abs(got[middle] - expected[middle]).max() < 80  # 1 % of the amplitude


def test_an_odd_rate_without_its_library_is_refused_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(EngineUnavailable, match="12345 Hz") as caught:
        Transcoder(24_000, AudioFormat("pcm_s16le", 12_345))
    assert "pip install" in caught.value.remedy
    Transcoder(24_000, AudioFormat("pcm_s16le", 44_100))
