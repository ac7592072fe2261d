"""Gain of encoded frames, against the codecs' own tables, and the log of what was scaled."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_codecs.g711 import PCMA, PCMU
from qwen3tts_codecs.l16 import l16, slin
from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.gain import (
    Attenuator,
    GainReader,
    GainWriter,
    gain_table,
    scale_of,
    tenths,
)
from qwen3tts_pacer.memory import GAIN_ENTRIES, CallMemory
from qwen3tts_pacer.slot import Frame, Kind, Slot

ATTENUATIONS = st.integers(0, 400)
FRAMES = st.binary(min_size=160, max_size=160)


def level_db(payload: Payload, data: bytes) -> float:
    samples = payload.decode(data).astype(float)
    return 10 * math.log10(float(np.mean(samples**2)) + 1e-9)


def tone(payload: Payload, count: int, hz: float = 440.0, crest: int = 0) -> bytes:
    """A tone with a crest at that sample."""
    time = (np.arange(count) - crest) / payload.sample_hz
    samples = np.round(9000 * np.cos(2 * np.pi * hz * time))
    return payload.encode(samples.astype(np.int16))


@pytest.mark.parametrize("payload", [PCMU, PCMA], ids=lambda payload: payload.name)
def test_a_table_gives_the_code_word_nearest_to_the_lowered_level(payload: Payload) -> None:
    codes = bytes(range(256))
    levels = payload.decode(codes).astype(float)
    for attenuation in range(401):
        lowered = np.round(levels * 10 ** (-attenuation / 200))
        nearest = payload.decode(payload.encode(lowered.astype(np.int16))).astype(int)
        found = payload.decode(codes.translate(gain_table(payload.name, attenuation))).astype(int)
        # A-law has no zero: there the sign of the code word is kept.
        assert np.array_equal(np.abs(found), np.abs(nearest)), attenuation
        assert not np.any(found * levels < 0), attenuation


@pytest.mark.parametrize("payload", [PCMU, PCMA], ids=lambda payload: payload.name)
def test_no_attenuation_changes_nothing(payload: Payload) -> None:
    scale = scale_of(payload.name)
    assert scale is not None
    codes = bytes(range(256))
    assert gain_table(payload.name, 0) == codes
    assert scale(codes, 0, 0) == codes


@pytest.mark.parametrize(
    "payload", [PCMU, PCMA, l16(16000, 96), slin(8000)], ids=lambda payload: payload.name
)
@pytest.mark.parametrize("db", [1.0, 6.0, 12.0, 20.0, 40.0])
def test_a_lowered_frame_is_that_much_lower(payload: Payload, db: float) -> None:
    scale = scale_of(payload.name, payload.sample_hz)
    assert scale is not None
    frame = tone(payload, payload.sample_hz // 50)
    fall = level_db(payload, frame) - level_db(payload, scale(frame, tenths(db), tenths(db)))
    assert fall == pytest.approx(db, abs=0.6)


@given(FRAMES, ATTENUATIONS, ATTENUATIONS)
def test_a_ramp_ends_after_5_ms_and_never_overshoots(frame: bytes, before: int, after: int) -> None:
    scale = scale_of("PCMU")
    assert scale is not None
    ramped = scale(frame, before, after)
    assert len(ramped) == len(frame)
    assert ramped[40:] == scale(frame, after, after)[40:]
    ends = [np.abs(PCMU.decode(scale(frame, each, each)).astype(int)) for each in (before, after)]
    middle = np.abs(PCMU.decode(ramped).astype(int))
    assert np.all(middle >= np.minimum(*ends))
    assert np.all(middle <= np.maximum(*ends))


def test_a_ramp_has_less_splatter_than_a_step() -> None:
    """A step of 12 dB sounds as a click; the ramp is as clean as the codec."""
    scale = scale_of("PCMU")
    assert scale is not None

    def splatter(data: bytes) -> float:
        power = np.abs(np.fft.rfft(PCMU.decode(data)[96:224] * np.hanning(128))) ** 2
        return float(power[np.fft.rfftfreq(128, 1 / 8000) > 2000].sum() / power.sum())

    for hz in (150.0, 300.0, 440.0, 1000.0):
        whole = tone(PCMU, 320, hz, crest=160)
        step = splatter(whole[:160] + scale(whole[160:], 120, 120))
        ramp = splatter(whole[:160] + scale(whole[160:], 0, 120))
        assert step > 0.004
        assert ramp < 0.0003


@pytest.mark.parametrize("name", ["G722", "opus", "AMR-WB", ""])
def test_other_codecs_cannot_be_scaled(name: str) -> None:
    assert scale_of(name) is None


@pytest.mark.parametrize("db", [-1, 40.1, math.nan, math.inf, True, "12", None])
def test_an_attenuation_has_bounds(db: object) -> None:
    with pytest.raises(ValueError, match="not between 0 and 40"):
        tenths(db)  # type: ignore[arg-type]


def slot(payload: bytes, kind: Kind = Kind.SPEECH) -> Slot:
    frame = Frame(payload, None, None, 1, 0, 160) if kind is Kind.SPEECH else None
    return Slot(payload, kind, False, 1, frame, 0.0)


def test_speech_is_ramped_a_fade_keeps_its_level_and_what_follows_a_pause_is_not_ramped() -> None:
    scale = scale_of("PCMU")
    assert scale is not None
    lowered = Attenuator(scale)
    frame = tone(PCMU, 160)
    lowered.aim(120, sounding=True)
    assert lowered.slot(slot(frame)) == scale(frame, 0, 120)
    assert lowered.slot(slot(frame)) == scale(frame, 120, 120)
    lowered.aim(0, sounding=True)
    assert lowered.slot(slot(frame, Kind.FADE)) == scale(frame, 120, 120)
    assert not lowered.active
    lowered.aim(120, sounding=False)
    assert lowered.slot(slot(frame)) == scale(frame, 120, 120)
    lowered.aim(0, sounding=True)
    assert lowered.slot(slot(b"\xff" * 160, Kind.SILENCE)) == b"\xff" * 160
    assert lowered.slot(slot(frame)) == frame


def test_a_duck_that_is_taken_back_before_its_frame_leaves_no_trace() -> None:
    scale = scale_of("PCMA")
    assert scale is not None
    lowered = Attenuator(scale)
    lowered.aim(120, sounding=True)
    lowered.aim(0, sounding=True)
    assert not lowered.active


# --- the log


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), ATTENUATIONS), max_size=300),
    st.integers(1, GAIN_ENTRIES),
)
def test_the_log_tells_every_frame_s_attenuation(
    course: list[tuple[int, bool, int]], look_every: int
) -> None:
    """Frames of rising contexts, each with its attenuation; the parent reads now and then."""
    memory = CallMemory.create()
    writer, reader = GainWriter(memory), GainReader(memory)
    context, frame, level = 1, 0, 0
    fresh: list[tuple[int, int, tuple[int, int]]] = []
    for index, (step, ramped, after) in enumerate(course):
        if step == 3:
            context, frame = context + 1, 0
        before = level if ramped else after
        writer.sent(context, frame, before, after)
        fresh.append((context, frame, (before, after)))
        level = after
        frame += 1
        if index % look_every == 0:
            reader.read()
            assert [reader.of(*each[:2]) for each in fresh] == [each[2] for each in fresh]
            fresh.clear()
    memory.close()


def test_a_log_without_an_entry_costs_no_look() -> None:
    memory = CallMemory.create()
    assert not GainReader(memory).read()
    assert GainReader(memory).of(1, 0) == (0, 0)
    memory.close()
