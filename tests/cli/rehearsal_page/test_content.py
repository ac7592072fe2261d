"""The page's tables, waits and sound: what is computed before it is drawn."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_cli.rehearsal_page.calls import (
    MAX_SPANS,
    MAX_TEXT_CHARS,
    Wait,
    call_data,
    overlaps_of,
    scenario_rows,
    verdict_names,
    waits_of,
)
from qwen3tts_cli.rehearsal_page.sound import (
    MAX_BINS,
    NoRecording,
    embedded,
    read_stereo,
    relative_address,
    waveform,
)
from qwen3tts_codecs.wav import wav_bytes
from qwen3tts_rehearsal.results import TurnSpan, Verdict
from tests.conftest import require_package
from tests.rehearsal.results_made import LATE, PASSED, SPANS, call, recording, rehearsal


def test_verdicts_of_a_scenario_are_counted_with_their_range() -> None:
    fast = Verdict("response_s", True, 0.41, 0.6)
    made = rehearsal(
        call(verdicts=(fast,)),
        call(seed=2, verdicts=(LATE, PASSED)),
        call("other", verdicts=(Verdict("heard", False, "six", "seven"),)),
        call("other", seed=2, error="486 Busy Here", verdicts=()),
    )
    assert verdict_names(made) == ["response_s", "cut_offs", "heard"]
    table, other = scenario_rows(made)
    assert (table.calls, table.passed, other.passed, other.errors) == (2, 1, 0, 1)
    response, cut_offs, heard = table.cells
    assert response is not None
    assert (response.passed, response.total) == (1, 2)
    assert (response.measured, response.limit) == ("0.41–0.812", "0.6")  # noqa: RUF001
    assert cut_offs is not None
    assert cut_offs.ok
    assert heard is None
    assert other.cells[2] is not None
    assert (other.cells[2].measured, other.cells[2].limit) == ("", "seven")


def test_waits_are_from_the_callers_last_turn_to_the_agent() -> None:
    first, answer = waits_of(call(verdicts=(LATE,)))
    assert first == Wait(0.0, 0.4, False)
    assert (answer.start_s, answer.end_s, answer.bad) == (4.1, 4.9, True)


def test_an_agent_that_speaks_before_the_end_has_no_wait() -> None:
    spans = (TurnSpan("caller", 0.0, 2.0), TurnSpan("agent", 1.5, 3.0))
    assert waits_of(call(spans=spans)) == []
    assert overlaps_of(spans) == [(1.5, 2.0)]


spans = st.lists(
    st.builds(
        lambda side, start, length: TurnSpan(side, start, start + length, "words"),
        st.sampled_from(["caller", "agent"]),
        st.floats(0, 60),
        st.floats(0, 10),
    ),
    max_size=20,
)


@given(spans)
def test_waits_and_overlaps_lie_where_they_should(found: list[TurnSpan]) -> None:
    for wait in waits_of(call(spans=tuple(found))):
        assert wait.end_s > wait.start_s
        assert any(each.side == "agent" and each.start_s == wait.end_s for each in found)
    for start, end in overlaps_of(found):
        for side in ("caller", "agent"):
            assert any(
                each.side == side and each.start_s <= start and each.end_s >= end for each in found
            )


def test_a_long_call_is_bounded() -> None:
    many = tuple(TurnSpan("agent", at, at + 0.5, "x" * 5000) for at in range(1000))
    # As the page's script reads it.
    data = json.loads(json.dumps(call_data(call(spans=many, error="e" * 5000))))
    assert len(data["spans"]) == MAX_SPANS
    assert data["left_out"] == 1000 - MAX_SPANS
    assert max(len(each[3]) for each in data["spans"]) == MAX_TEXT_CHARS + 1
    assert len(data["error"]) == MAX_TEXT_CHARS + 1


# --- sound


def test_the_waveform_shows_who_speaks_when(tmp_path: Path) -> None:
    wave = waveform(recording(tmp_path / "call.wav"))
    assert wave.seconds == 7.5
    per_s = wave.peaks.shape[1] / wave.seconds
    for side, name in enumerate(("caller", "agent")):
        loud = np.flatnonzero(wave.peaks[side]) / per_s
        for each in (span for span in SPANS if span.side == name):
            inside = (loud > each.start_s - 0.1) & (loud < each.end_s + 0.1)
            assert inside.sum() >= (each.duration_s - 0.1) * per_s
        silent = [
            at
            for at in loud
            if not any(
                each.side == name and each.start_s - 0.1 < at < each.end_s + 0.1 for each in SPANS
            )
        ]
        assert not silent
    assert len(base64.b64decode(wave.encoded())) == wave.peaks.size


def test_a_long_recording_has_a_bounded_waveform(tmp_path: Path) -> None:
    wave = waveform(recording(tmp_path / "long.wav", seconds=600.0))
    assert wave.peaks.shape == (2, MAX_BINS)


def test_a_recording_that_was_cut_off_shows_what_there_is(tmp_path: Path) -> None:
    path = recording(tmp_path / "call.wav")
    path.write_bytes(path.read_bytes()[:-50_001])
    assert waveform(path).seconds == pytest.approx(7.5 - 50_001 / 32_000, abs=0.001)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read"),
        (b"", "no WAV file"),
        (b"RIFF\0\0\0\0WAVEjunk", "no samples"),
        (wav_bytes(np.zeros(800, np.int16), 8000), "no stereo"),
        (wav_bytes(b"", 8000), "no stereo"),
    ],
)
def test_a_recording_that_is_none(tmp_path: Path, content: bytes | None, why: str) -> None:
    path = tmp_path / "call.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(NoRecording, match=why):
        read_stereo(path)


def test_an_empty_recording(tmp_path: Path) -> None:
    with pytest.raises(NoRecording, match="empty"):
        read_stereo(recording_of_nothing(tmp_path / "call.wav"))


def recording_of_nothing(path: Path) -> Path:
    recording(path)
    path.write_bytes(path.read_bytes()[:44])
    return path


def test_sound_is_embedded_small(tmp_path: Path) -> None:
    require_package("av", "pip install 'mr_qwen3tts[phone]'")
    address = embedded(recording(tmp_path / "call.wav"))
    assert address.startswith("data:audio/ogg;base64,")
    assert len(address) < 60_000  # of 240,000 bytes
    (tmp_path / "broken.wav").write_bytes(b"RIFF")
    with pytest.raises(NoRecording):
        embedded(tmp_path / "broken.wav")


def test_a_file_is_named_as_seen_from_the_page(tmp_path: Path) -> None:
    found = relative_address(tmp_path / "calls" / "a b#1.wav", tmp_path / "out" / "page.html")
    assert found == "../calls/a%20b%231.wav"
