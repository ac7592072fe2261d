"""The packaged voice passes, and a chunk that is spoilt does not."""

from __future__ import annotations

import numpy as np
import pytest

from qwen3tts_engine.piper.voice import Clause, Sound
from tests.regression.compare import faults
from tests.regression.piper_suite import run_piper
from tests.regression.texts import TEXTS

TEXT = [text for text in TEXTS if text.name == "english"]


def test_the_packaged_voice_has_no_fault() -> None:
    assert list(faults(run_piper(TEXT, 1))) == []


@pytest.mark.parametrize("fault", ["shifted", "silent", "different"])
def test_a_spoilt_chunk_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Clause.next
    random = np.random.default_rng(1)

    def spoilt(clause: Clause, seconds: float | None = None) -> Sound:
        sound = whole(clause, seconds)
        if fault == "shifted":
            return np.roll(sound, 40)
        if fault == "silent":
            return np.zeros_like(sound)
        return sound + random.normal(0, 1e-4, sound.shape).astype(np.float32)

    monkeypatch.setattr(Clause, "next", spoilt)
    found = " ".join(faults(run_piper(TEXT, 1)))
    expected = {
        "shifted": "stream and offline differ",
        "silent": "the level is not sane",
        "different": "the same seed gave other codes",
    }
    assert expected[fault] in found
