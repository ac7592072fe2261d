"""Noise is taken from the sound, and a clean line's sound is not touched."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from qwen3tts_codecs.errors import BadSamples, UnsupportedRate
from qwen3tts_codecs.g711 import decode_ulaw, encode_ulaw
from qwen3tts_phone.detection.noise_suppression import RATES_HZ, NoiseSuppressor
from qwen3tts_phone.detection.turn_transcriber import HeardSound
from tests.phone.detection.spoken import CALLER, spoken

Samples = NDArray[np.int16]
FRAME = 160


def noise(dbfs: float, seconds: float, rate_hz: int = 8000, seed: int = 1) -> NDArray[np.float64]:
    chance = np.random.default_rng(seed)
    return chance.normal(size=round(seconds * rate_hz)) * 10 ** (dbfs / 20) * 32768


def pcm(sound: NDArray[Any]) -> Samples:
    return decode_ulaw(encode_ulaw(np.clip(np.rint(sound), -32768, 32767).astype(np.int16)))


def through(suppressor: NoiseSuppressor, sound: Samples, *cuts: int) -> Samples:
    """The sound in frames of these lengths, one after the other and again, and what is left."""
    parts, at, number = [], 0, 0
    while at < len(sound):
        length = cuts[number % len(cuts)] if cuts else FRAME
        parts.append(suppressor.push(sound[at : at + length]))
        at, number = at + length, number + 1
    return np.concatenate([*parts, suppressor.flush()])


def dbfs(sound: NDArray[Any]) -> float:
    return float(10 * np.log10(np.mean((sound / 32768.0) ** 2) + 1e-12))


def call(snr_db: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A second of noise, a caller at -22 dBFS and a second of noise: the caller, and the noise."""
    said = np.concatenate((np.zeros(8000), spoken(CALLER).astype(float), np.zeros(8000)))
    return said, noise(-22 - snr_db, len(said) / 8000)


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_steady_noise_becomes_quieter(rate_hz: int) -> None:
    sound = pcm(noise(-30, 3.0, rate_hz))
    after = through(NoiseSuppressor(rate_hz), sound, rate_hz // 50)
    assert dbfs(after[2 * rate_hz :]) < dbfs(sound[2 * rate_hz :]) - 6


def test_a_caller_in_noise_stands_out_more_and_keeps_the_level() -> None:
    said, around = call(5.0)
    after = through(NoiseSuppressor(), pcm(said + around))
    speech = slice(9000, len(said) - 9000)
    assert dbfs(after[-5000:]) < dbfs(around[-5000:]) - 6
    assert abs(dbfs(after[speech]) - dbfs(said[speech])) < 1.5


@pytest.mark.parametrize("snr_db", [25.0, 35.0, 60.0])
def test_a_clean_line_is_passed_on_bit_for_bit(snr_db: float) -> None:
    said, around = call(snr_db)
    sound = pcm(said + around)
    assert np.array_equal(through(NoiseSuppressor(), sound), sound)


def test_music_and_voices_are_left_to_the_recogniser() -> None:
    time = np.arange(5 * 8000) / 8000
    notes = 440 * 2 ** (np.floor(time * 5) * 7 % 12 / 12)
    tune = 2000 * np.sin(2 * np.pi * np.cumsum(notes) / 8000) * (1 - time * 5 % 1)
    others = np.resize(spoken(CALLER, "en-us+m3", dbfs=-30.0), len(time)).astype(float)
    for sound in (pcm(tune), pcm(others)):
        assert np.array_equal(through(NoiseSuppressor(), sound), sound)


def test_on_means_on_a_clean_line_too() -> None:
    said, around = call(40.0)
    sound = pcm(said + around)
    suppressor = NoiseSuppressor(always=True)
    assert not np.array_equal(through(suppressor, sound), sound)
    assert suppressor.working


def test_it_begins_with_the_noise_ends_with_it_and_does_not_click() -> None:
    said, around = call(40.0)
    sound = pcm(np.concatenate((said + around, noise(-32, 8.0), said + around, said + around)))
    suppressor = NoiseSuppressor()
    working = []
    parts = []
    for at in range(0, len(sound), FRAME):
        parts.append(suppressor.push(sound[at : at + FRAME]))
        working.append(suppressor.working)
    states = [working[0], *(b for a, b in pairwise(working) if a != b)]
    assert states == [False, True, False]
    after = np.concatenate(parts).astype(float)
    added = np.abs(np.diff(after - sound[: len(after)]))
    assert added.max() < 3 * np.abs(np.diff(sound.astype(float))).max()


@given(cuts=st.lists(st.integers(1, 700), min_size=1, max_size=5), always=st.booleans())
@settings(max_examples=30, deadline=None)
def test_the_sound_is_the_same_however_it_was_cut(cuts: list[int], always: bool) -> None:
    sound = pcm(noise(-30, 0.5))
    whole = through(NoiseSuppressor(always=always), sound, len(sound))
    assert np.array_equal(through(NoiseSuppressor(always=always), sound, *cuts), whole)


@given(cuts=st.lists(st.integers(0, 700), max_size=20), rate_hz=st.sampled_from(RATES_HZ))
@settings(max_examples=50, deadline=None)
def test_what_is_held_is_the_delay_and_less_than_a_hop(cuts: list[int], rate_hz: int) -> None:
    suppressor = NoiseSuppressor(rate_hz, always=True)
    sound = pcm(noise(-30, 1.0, rate_hz))
    given_, got = 0, 0
    for length in cuts:
        given_ += len(sound[:length])
        got += len(suppressor.push(sound[:length]))
        assert given_ - got == suppressor.held_samples
        assert given_ - got < 2 * suppressor.delay_samples
        if given_ and given_ % suppressor.delay_samples == 0:
            assert given_ - got == suppressor.delay_samples
    assert len(suppressor.flush()) == given_ - got
    assert suppressor.held_samples == 0


SOUNDS = {
    "silence": np.zeros(16_000, np.int16),
    "full scale": np.where(np.arange(16_000) // 20 % 2, 32767, -32768).astype(np.int16),
    "constant": np.full(16_000, 12_000, np.int16),
    "one click": np.eye(1, 16_000, 8000, dtype=np.int16)[0] * 32767,
    "noise after silence": np.concatenate((np.zeros(8000, np.int16), pcm(noise(-10, 1.0)))),
    "least": np.full(16_000, -32768, np.int16),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("name", SOUNDS)
def test_no_sound_breaks_it(name: str, always: bool) -> None:
    for rate_hz in RATES_HZ:
        suppressor = NoiseSuppressor(rate_hz, always=always)
        after = through(suppressor, SOUNDS[name], 333)
        assert after.dtype == np.int16
        assert len(after) == len(SOUNDS[name])
        assert abs(dbfs(after)) <= max(abs(dbfs(SOUNDS[name])) + 11, 121)
        assert np.isfinite([suppressor.snr_db, suppressor.noise_dbfs]).all()


def test_silence_that_was_not_sent_tells_nothing_of_the_noise() -> None:
    suppressor = NoiseSuppressor()
    suppressor.push(pcm(noise(-35, 2.0)))
    before = suppressor.noise_dbfs
    suppressor.push(np.zeros(16_000, np.int16))
    assert suppressor.noise_dbfs == pytest.approx(before, abs=3.0)
    assert suppressor.working


def test_an_hour_leaves_no_more_than_a_minute() -> None:
    suppressor = NoiseSuppressor()
    sound = pcm(noise(-30, 1.0))

    def held() -> int:
        return sum(each.nbytes for each in vars(suppressor).values() if hasattr(each, "nbytes"))

    suppressor.push(sound)
    before = held()
    for _ in range(60):
        suppressor.push(sound)
    assert held() == before


@pytest.mark.parametrize("rate_hz", [0, 11_025, 48_000, -8000])
def test_other_rates_are_refused(rate_hz: int) -> None:
    with pytest.raises(UnsupportedRate, match="8000 or 16000"):
        NoiseSuppressor(rate_hz)


@pytest.mark.parametrize(
    "samples", [np.zeros(160), np.zeros((2, 160), np.int16), [0] * 160, np.zeros(9, np.uint8)]
)
def test_other_samples_are_refused(samples: Any) -> None:
    with pytest.raises(BadSamples):
        NoiseSuppressor().push(samples)


# --- the recogniser's sound


@pytest.mark.parametrize(("rate_hz", "late_s"), [(8000, 0.01), (16_000, 0.01), (48_000, 0.01)])
def test_the_recogniser_is_given_times_that_are_right(rate_hz: int, late_s: float) -> None:
    heard = HeardSound(16_000, "auto")
    sound = np.zeros(rate_hz, np.int16)
    sound[rate_hz // 2] = 20_000
    parts = [
        heard.push(sound[at : at + rate_hz // 50], rate_hz)
        for at in range(0, rate_hz, rate_hz // 50)
    ]
    whole = np.concatenate(parts)
    assert heard.late_s == pytest.approx(late_s)
    # Samples of 16 kHz; the rate converters' own delay is 3 to 6 ms.
    assert len(whole) == pytest.approx(16_000 * (1 - late_s), abs=2)
    assert 0 <= int(np.abs(whole.astype(int)).argmax()) - 8000 <= 0.007 * 16_000


def test_off_gives_the_recogniser_the_sound_as_before() -> None:
    heard = HeardSound(8000, "off")
    sound = pcm(noise(-30, 0.5))
    assert np.array_equal(heard.push(sound, 8000), sound)
    assert heard.late_s == 0.0


def test_a_codec_that_changes_is_taken_up() -> None:
    heard = HeardSound(16_000, "auto")
    lengths = [len(heard.push(np.zeros(rate // 50, np.int16), rate)) for rate in [8000] * 9]
    lengths += [len(heard.push(np.zeros(rate // 50, np.int16), rate)) for rate in [48_000] * 9]
    assert sum(lengths) == pytest.approx(18 * 320 - 2 * 160, abs=170)
