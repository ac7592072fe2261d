"""Results of rehearsals for tests of the reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from qwen3tts_phone.audio.wav import StereoRecorder
from qwen3tts_rehearsal.results import CallResult, RehearsalResult, TurnSpan, Verdict

HOSTILE = "</script><img src=x onerror=alert(1)> \x00\x1b[31m & \"' \ud800 日本語 🙂 ]]>"
SPANS = (
    TurnSpan("agent", 0.4, 1.9, "Hello, how can I help?"),
    TurnSpan("caller", 2.6, 4.1, "My number is 4 7 1 1."),
    TurnSpan("agent", 4.9, 6.4, "Four seven one one, is that right?"),
    TurnSpan("caller", 5.6, 6.0, "mhm", "backchannel"),
)
PASSED = Verdict("cut_offs", True, 0.0, 0.0)
LATE = Verdict("response_s", False, 0.812, 0.6, "after the turn at 2.6 s")


def call(scenario: str = "table", seed: int = 1, **changes: object) -> CallResult:
    fields: dict[str, object] = {
        "scenario": scenario,
        "seed": seed,
        "started": 1_795_722_000.0 + seed,
        "duration_s": 7.5,
        "verdicts": (PASSED,),
        "spans": SPANS,
        **changes,
    }
    return CallResult(**fields)  # type: ignore[arg-type]


def rehearsal(*calls: CallResult, planned: int | None = None) -> RehearsalResult:
    return RehearsalResult(calls, 61.5, len(calls) if planned is None else planned)


def recording(path: Path, seconds: float = 7.5) -> Path:
    """A stereo recording with a tone where `SPANS` has speech."""
    with StereoRecorder(path) as recorder:
        for span in SPANS:
            count = round(span.duration_s * 8000)
            tone = np.sin(np.arange(count) * 2 * np.pi * 300 / 8000) * 9000
            write = recorder.caller if span.side == "caller" else recorder.agent
            write(tone.astype(np.int16), round(span.start_s * 8000))
        recorder.close(round(seconds * 8000))
    return path
