from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qwen3tts_phone.audio.tones import Spectrum, Tone, ToneDetector, ToneKind
from tests.phone.sounds import Pcm, noise, quiet, speech, tone

FRAME_S = 0.02


def heard(*parts: Pcm, rate_hz: int = 8000) -> list[Tone]:
    detector = ToneDetector(rate_hz)
    sound = np.concatenate(parts)
    step = round(FRAME_S * rate_hz)
    return [
        tone for at in range(0, len(sound), step) for tone in detector.push(sound[at : at + step])
    ]


def kinds(*parts: Pcm, rate_hz: int = 8000) -> list[str]:
    return [str(each.kind) for each in heard(*parts, rate_hz=rate_hz)]


@pytest.mark.parametrize(
    ("name", "hz", "on", "off", "kind"),
    [
        ("United States", (440.0, 480.0), 2.0, 4.0, "ringback"),
        ("Europe", (425.0,), 1.0, 4.0, "ringback"),
        ("Japan", (400.0,), 1.0, 2.0, "ringback"),
        ("United States", (480.0, 620.0), 0.5, 0.5, "busy"),
        ("Germany", (425.0,), 0.48, 0.48, "busy"),
        ("Britain", (400.0,), 0.375, 0.375, "busy"),
        ("United States", (480.0, 620.0), 0.25, 0.25, "congestion"),
        ("Germany", (425.0,), 0.24, 0.24, "congestion"),
    ],
)
def test_cadences_of_the_networks_are_known(
    name: str, hz: tuple[float, ...], on: float, off: float, kind: str
) -> None:
    cycle = [tone(hz, on), quiet(off)]
    found = heard(*cycle, *cycle, *cycle, *cycle)
    assert {str(each.kind) for each in found} == {kind}, name
    # Within the third part, or in the first pause.
    assert found[0].at_s <= max(3 * (on + off), on + 1.6)


def test_british_ringing_comes_in_pairs() -> None:
    pair = [tone((400.0, 450.0), 0.4), quiet(0.2), tone((400.0, 450.0), 0.4), quiet(2.0)]
    assert kinds(*pair, *pair) == ["ringback", "ringback"]


@pytest.mark.parametrize("hz", [(425.0,), (350.0, 440.0)])
def test_a_dial_tone_does_not_end(hz: tuple[float, ...]) -> None:
    found = heard(tone(hz, 6.0))
    assert [each.kind for each in found] == [ToneKind.DIAL]
    assert found[0].at_s < 3.2


def test_three_rising_tones_say_that_the_number_is_out_of_use() -> None:
    rising = [tone(950.0, 0.33), tone(1400.0, 0.33), tone(1800.0, 0.33)]
    assert kinds(quiet(0.5), *rising, quiet(1.0), speech(2.0)) == ["sit"]
    assert "sit" not in kinds(*rising[::-1], quiet(1.0))


def test_fax_machines_are_known_by_both_of_their_tones() -> None:
    calling = [tone(1100.0, 0.5), quiet(3.0)]
    assert "fax_cng" in kinds(*calling, *calling)
    assert kinds(quiet(0.5), tone(2100.0, 3.0), quiet(0.5)) == ["fax_ced"]


@pytest.mark.parametrize(
    ("hz", "seconds"),
    [(1000.0, 0.08), (1000.0, 0.5), (400.0, 0.3), (440.0, 1.0), (1400.0, 0.2), (2000.0, 0.1)],
)
def test_a_tone_alone_after_speech_is_a_beep(hz: float, seconds: float) -> None:
    found = heard(quiet(0.5), speech(2.0), quiet(0.4), tone(hz, seconds), quiet(1.0))
    assert [each.kind for each in found] == [ToneKind.BEEP]
    beep = found[0]
    assert beep.hz == pytest.approx(hz, abs=6)
    assert beep.began_s == pytest.approx(2.9, abs=0.03)
    assert beep.duration_s == pytest.approx(seconds, abs=0.03)
    assert beep.at_s <= 2.9 + seconds + 0.3


def test_a_beep_is_heard_through_the_noise_of_the_line() -> None:
    sound = np.concatenate([speech(1.0), quiet(0.3), tone(950.0, 0.3), quiet(1.0)])
    assert kinds(sound + noise(len(sound) / 8000, -35.0)) == ["beep"]


def test_a_beep_twice_is_told() -> None:
    assert "beep" in kinds(speech(1.0), tone(900.0, 0.15), quiet(0.12), tone(900.0, 0.15), quiet(1))


def test_speech_and_noise_have_no_tones() -> None:
    assert kinds(speech(20.0)) == []
    assert kinds(noise(10.0, -30.0)) == []
    assert kinds(quiet(5.0)) == []


def test_a_melody_has_no_beeps() -> None:
    notes = [tone(hz, 0.25) for hz in (523.0, 587.0, 659.0, 698.0, 784.0, 659.0, 523.0)]
    assert kinds(*notes, *notes) == []
    apart = [part for note in notes for part in (note, quiet(0.05))]
    assert kinds(*apart, *apart) == []


def test_a_bell_that_fades_is_no_beep() -> None:
    bell = tone(900.0, 1.0) * np.exp(-np.arange(8000) / 1600)
    assert kinds(speech(1.0), bell.astype(np.int16), quiet(1.0)) == []


def test_a_tone_with_speech_over_it_is_no_beep() -> None:
    assert kinds(speech(1.0), tone(900.0, 0.3), speech(1.0)) == []


@pytest.mark.parametrize("rate_hz", [16_000, 24_000, 48_000])
def test_tones_are_the_same_at_any_rate(rate_hz: int) -> None:
    parts = [
        speech(1.0, rate_hz),
        quiet(0.3, rate_hz),
        tone(1000.0, 0.3, rate_hz),
        quiet(1.0, rate_hz),
    ]
    assert kinds(*parts, rate_hz=rate_hz) == ["beep"]


def test_a_rate_that_no_codec_has_is_refused() -> None:
    with pytest.raises(ValueError, match="rate_hz=11025"):
        ToneDetector(11_025)


def test_the_spectrum_tells_a_tone_within_a_few_hertz() -> None:
    moments = Spectrum().push(tone(1234.0, 0.5))
    inner = moments[5:-5]
    assert all(abs(each.hz - 1234.0) < 4 and each.share > 0.98 for each in inner)
    assert inner[0].level_dbfs == pytest.approx(20 * np.log10(4000 / 32768 / np.sqrt(2)), abs=0.1)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(0, 3))
def test_it_does_not_matter_how_the_sound_is_cut(cuts: list[int], seed: int) -> None:
    sound = np.concatenate([speech(0.4, seed=seed), tone(700.0, 0.2), quiet(0.4)])
    whole = ToneDetector().push(sound)
    detector, found, at = ToneDetector(), [], 0
    for cut in cuts:
        found += detector.push(sound[at : at + cut])
        at += cut
    found += detector.push(sound[at:])
    assert found == whole


@settings(max_examples=40, deadline=None)
@given(hnp.arrays(np.int16, st.integers(0, 3000)))
def test_any_sound_gives_tones_or_none(sound: Pcm) -> None:
    for each in ToneDetector().push(sound):
        assert each.kind in ToneKind
