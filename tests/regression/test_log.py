"""What a run of the suite leaves behind: its sound, and a line in the log."""

from __future__ import annotations

import datetime
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.regression.__main__ import KEPT_RUNS, keeper, log_line, runs_folder

NOW = datetime.datetime(2026, 11, 26, 23, 0, tzinfo=datetime.UTC)


def record() -> dict[str, Any]:
    text = {"difference": {"snr_db": 121.26, "mae": 1.234e-7}}
    speed = {"first_audio_ms_p50": 20.04, "first_audio_ms_p95": 31.0, "real_time_factor": 0.41}
    model = {"texts": {"short": text, "long": text}, "speed": speed}
    return {"commit": "abc1234", "date": "2026-11-26T23:00:00+00:00", "models": {"tiny": model}}


@pytest.mark.parametrize(("wrong", "verdict"), [([], "PASS"), (["it clicks"], "FAIL")])
def test_a_run_is_one_line_with_its_verdict(wrong: list[str], verdict: str) -> None:
    assert log_line(record(), wrong) == (
        f"2026-11-26T23:00:00+00:00 {verdict} commit=abc1234 texts=2 regressions={len(wrong)} "
        "snr_db_min=121.3 mae_max=1.2e-07 first_audio_ms_p50=20.0 first_audio_ms_p95=31.0 "
        "real_time_factor=0.41"
    )


def test_the_sound_is_kept_streamed_and_whole(tmp_path: Path) -> None:
    keep = keeper(tmp_path / "run", "tiny base")
    keep("short", np.full(2400, 0.5, np.float32), np.full(2400, 2.0, np.float32), 24_000)
    for kind, level in (("stream", 16384), ("offline", 32767)):
        with wave.open(str(tmp_path / "run" / "tiny_base" / f"short_{kind}.wav")) as sound:
            assert (sound.getframerate(), sound.getnframes()) == (24_000, 2400)
            assert np.frombuffer(sound.readframes(1), "<i2")[0] == level


def test_the_sound_of_the_last_runs_is_left(tmp_path: Path) -> None:
    for day in range(1, 20):
        runs_folder(tmp_path, NOW.replace(day=day)).mkdir()
    left = sorted(each.name for each in tmp_path.iterdir())
    assert len(left) == KEPT_RUNS
    assert left[-1] == "2026-11-19T23-00-00Z"
