from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_phone.audio.onset import OnsetGate, OnsetSettings


def frame(dbfs: float) -> NDArray[np.int16]:
    """20 ms of a square wave at this level."""
    level = 32768 * 10 ** (dbfs / 20)
    return np.where(np.arange(160) % 2, level, -level).astype(np.int16)


LOUD, QUIET = frame(-20), frame(-60)


def test_speech_opens_the_gate_once() -> None:
    gate = OnsetGate()
    assert [gate.push(LOUD) for _ in range(6)] == [False, False, True, False, False, False]
    assert gate.open


def test_a_click_does_not_open_it() -> None:
    gate = OnsetGate()
    assert not any(gate.push(part) for part in [LOUD, LOUD, QUIET] * 10)


def test_a_pause_between_words_is_no_new_onset_but_a_long_one_is() -> None:
    gate = OnsetGate()
    speech = [LOUD] * 5
    assert sum(gate.push(part) for part in [*speech, *[QUIET] * 19, *speech]) == 1
    assert sum(gate.push(part) for part in [*[QUIET] * 20, *speech]) == 1


def test_silence_and_empty_frames_are_quiet() -> None:
    gate = OnsetGate()
    assert not gate.push(np.zeros(160, np.int16))
    assert not gate.push(np.zeros(0, np.int16))


@pytest.mark.parametrize("bad", [{"level_dbfs": 3.0}, {"onset_ms": 0}, {"hangover_ms": -1}])
def test_settings_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        OnsetSettings(**bad)  # type: ignore[arg-type]


def test_frames_of_another_rate_last_as_long_as_they_do() -> None:
    """A codec may change in mid-call."""
    gate = OnsetGate()
    wide = np.repeat(LOUD, 3)
    assert [gate.push(wide, 24000) for _ in range(4)] == [False, False, True, False]
    assert [OnsetGate(rate_hz=24000).push(wide) for _ in range(3)] == [False] * 3


def test_after_it_was_closed_the_next_sound_is_a_new_onset() -> None:
    gate = OnsetGate()
    assert any(gate.push(LOUD) for _ in range(6))
    gate.close()
    assert not gate.open
    assert [gate.push(LOUD) for _ in range(3)] == [False, False, True]
