from __future__ import annotations

import numpy as np
import pytest

from qwen3tts_phone.records.call_recordings import BEEP_HZ, ConsentSchedule, beep
from qwen3tts_phone.settings.records import RecordSettings


@pytest.mark.parametrize("rate_hz", [8000, 16_000, 24_000, 48_000])
def test_the_beep_is_a_tone_of_1400_hz_and_begins_and_ends_softly(rate_hz: int) -> None:
    samples = beep(rate_hz)
    assert samples.dtype == np.int16
    assert len(samples) == 0.2 * rate_hz
    spectrum = np.abs(np.fft.rfft(samples.astype(np.float64)))
    assert np.argmax(spectrum) * rate_hz / len(samples) == pytest.approx(BEEP_HZ, abs=5)
    middle = samples[len(samples) // 4 : -len(samples) // 4].astype(np.float64)
    assert 20 * np.log10(np.sqrt(np.mean(middle**2)) / 32768) == pytest.approx(-20, abs=0.2)
    # At most the step of the tone itself.
    steps = np.abs(np.diff(np.concatenate([[0], samples, [0]]).astype(np.float64)))
    assert steps[:8].max() < steps.max() / 2
    assert steps[-8:].max() < steps.max() / 2


@pytest.mark.parametrize(
    ("consent", "text", "tone"),
    [("none", None, False), ("tone", None, True), ("announcement", "It is recorded.", True)],
)
def test_what_comes_before_the_recording(consent: str, text: str | None, tone: bool) -> None:
    plan = ConsentSchedule(RecordSettings(consent=consent, consent_text="It is recorded."))
    notice = plan.before_recording
    assert (notice.text, notice.tone, bool(notice)) == (text, tone, tone)


def plan(every_s: float = 15.0) -> ConsentSchedule:
    made = ConsentSchedule(RecordSettings(consent="tone", consent_every_s=every_s))
    made.began(100.0)
    return made


def test_the_beep_comes_again_at_its_time_and_once_each_time() -> None:
    consent = plan()
    assert consent.next_at == 115.0
    assert not consent.due(114.9, speaking=False)
    assert consent.due(115.0, speaking=False)
    assert not consent.due(115.1, speaking=False)
    assert consent.due(130.0, speaking=False)


def test_it_waits_for_the_end_of_what_is_said_but_not_for_ever() -> None:
    consent = plan()
    assert not consent.due(115.0, speaking=True)
    assert consent.due(117.0, speaking=False)
    assert consent.next_at == 130.0
    assert not consent.due(134.9, speaking=True)
    assert consent.due(135.0, speaking=True)


def test_beeps_that_were_missed_are_not_made_up_for() -> None:
    consent = plan()
    assert consent.due(190.0, speaking=False)
    assert not consent.due(190.0, speaking=False)
    assert consent.next_at == 205.0


def test_it_beeps_only_once_where_no_more_is_asked_for() -> None:
    consent = ConsentSchedule(RecordSettings(consent="tone"))
    consent.began(100.0)
    assert consent.next_at is None
    assert not consent.due(1e9, speaking=False)


def test_nothing_is_due_before_the_recording_began() -> None:
    consent = ConsentSchedule(RecordSettings(consent="tone", consent_every_s=15.0))
    assert not consent.due(1e9, speaking=False)
