"""G.722 and Opus: what comes back is what went in, a little later."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_codecs import (
    G722,
    OPUS,
    PCMA,
    PCMU,
    BadPayload,
    BadSamples,
    CodecError,
    OpusSettings,
    Payload,
    Pcm,
    UnknownPayload,
    UnsupportedPtime,
    opus,
    payload_by_name,
    payload_by_type,
)
from tests.codecs.signals import noise, rms, tone

WIDE = [G722, OPUS]
wide = pytest.mark.parametrize("payload", WIDE, ids=lambda p: p.name)


def speechlike(payload: Payload, seconds: float) -> Pcm:
    """A voice of 130 Hz with all its harmonics up to 3 kHz, four syllables a second."""
    time = np.arange(round(seconds * payload.sample_hz)) / payload.sample_hz
    voice = sum(np.sin(2 * np.pi * 130 * k * time + k * k) / k for k in range(1, 24))
    return np.rint(4000 * voice * (0.55 + 0.45 * np.sin(2 * np.pi * 4 * time))).astype(np.int16)


def packets(payload: Payload, pcm: Pcm, ptime: int = 20) -> list[bytes]:
    encoder = payload.encoder(ptime)
    frames = pcm[: len(pcm) // encoder.frame_samples * encoder.frame_samples]
    return [encoder.encode(frame) for frame in frames.reshape(-1, encoder.frame_samples)]


def decoded(payload: Payload, data: list[bytes]) -> Pcm:
    decoder = payload.decoder()
    return np.concatenate([decoder.decode(each) for each in data])


def likeness(one: Pcm, other: Pcm) -> tuple[float, int]:
    """The normalised correlation at the best lag of up to 12 ms of 24 kHz, and that lag."""
    size = min(len(one), len(other)) - 288
    first = one[:size].astype(float)
    best = (0.0, 0)
    for lag in range(288):
        second = other[lag : lag + size].astype(float)
        product = float(first @ second) / float(np.linalg.norm(first) * np.linalg.norm(second))
        best = max(best, (product, lag))
    return best


@wide
@pytest.mark.parametrize("ptime", [10, 20, 40, 60])
def test_a_stream_comes_back_as_it_was(payload: Payload, ptime: int) -> None:
    pcm = speechlike(payload, 1.2)
    back = decoded(payload, packets(payload, pcm, ptime))
    assert len(back) == len(pcm) // payload.frame_samples(ptime) * payload.frame_samples(ptime)
    product, lag = likeness(pcm, back)
    # Opus rolls off the lowest harmonics and keeps the sound of the others, not their shape.
    assert product > (0.97 if payload is G722 else 0.75)
    assert abs(lag - payload.encoder(ptime).delay_samples) <= 40


@pytest.mark.parametrize("ptime", [10, 20, 30, 40, 50, 60])
def test_g722_has_the_bytes_of_g711_for_twice_the_samples(ptime: int) -> None:
    assert G722.frame_samples(ptime) == 16 * ptime
    assert G722.frame_bytes(ptime) == len(packets(G722, noise(16 * ptime), ptime)[0]) == 8 * ptime
    assert G722.frame_ticks(ptime) == 8 * ptime


def test_g722_carries_what_g711_cannot() -> None:
    high = tone(6000, 16000, 0.5, 8000)
    back = decoded(G722, packets(G722, high))
    assert rms(back[1600:]) > 0.8 * rms(high)


@pytest.mark.parametrize("ptime", [30, 50])
def test_opus_has_no_frames_of_30_and_50_ms(ptime: int) -> None:
    with pytest.raises(UnsupportedPtime, match="10, 20, 40, 60"):
        OPUS.encoder(ptime)
    with pytest.raises(UnsupportedPtime):
        OPUS.silent_frame(ptime)


def test_opus_counts_time_at_48_khz_whatever_its_samples() -> None:
    assert (OPUS.clock_hz, OPUS.sample_hz, OPUS.frame_ticks(20)) == (48000, 24000, 960)


def test_opus_keeps_to_its_bitrate_about() -> None:
    def size(bitrate: int) -> int:
        payload = opus(settings=OpusSettings(bitrate=bitrate))
        return sum(map(len, packets(payload, speechlike(payload, 2.0))))

    assert size(12_000) < 0.6 * size(32_000)
    assert 0.5 * 8000 < size(32_000) < 1.5 * 8000


def test_opus_hears_stereo_from_those_who_send_it() -> None:
    """RFC 7587 section 7: one channel is decoded from whatever comes."""
    av = pytest.importorskip("av")
    context = av.CodecContext.create("libopus", "w")
    context.sample_rate, context.layout, context.format = 48000, "stereo", "s16"
    context.open()
    both = np.repeat(tone(440, 48000, 0.02, 9000), 2).reshape(1, -1)
    decoder = OPUS.decoder()
    heard = []
    for _ in range(5):
        frame = av.AudioFrame.from_ndarray(both, format="s16", layout="stereo")
        frame.sample_rate = 48000
        heard += [decoder.decode(bytes(packet)) for packet in context.encode(frame)]
    assert [len(each) for each in heard] == [480] * 5
    assert rms(heard[-1]) > 3000


@pytest.mark.parametrize(
    ("parameters", "wanted"),
    [
        ("", OpusSettings(fec=False)),
        ("useinbandfec=1", OpusSettings()),
        ("minptime=10; UseInbandFEC=1 ;stereo=1", OpusSettings()),
        ("maxaveragebitrate=16000;cbr=1", OpusSettings(fec=False, bitrate=16000, constant=True)),
        ("maxaveragebitrate=500000", OpusSettings(fec=False)),
        ("maxaveragebitrate=1", OpusSettings(fec=False, bitrate=6000)),
        ("maxplaybackrate=8000", OpusSettings(fec=False, bandwidth_hz=4000)),
        ("maxplaybackrate=16000", OpusSettings(fec=False, bandwidth_hz=8000)),
        ("maxplaybackrate=48000", OpusSettings(fec=False)),
        (";;=;a=b=c;cbr=\u0661;maxaveragebitrate=" + "9" * 5000, OpusSettings(fec=False)),
    ],
)
def test_a_far_end_gets_opus_as_it_wants_it(parameters: str, wanted: OpusSettings) -> None:
    """RFC 7587 section 6.1."""
    assert OpusSettings().for_far_end(parameters) == wanted


@given(st.text(max_size=80))
def test_any_parameters_give_settings(text: str) -> None:
    settings = OpusSettings().for_far_end(text)
    assert 6000 <= settings.bitrate <= OpusSettings().bitrate


def test_opus_leaves_out_what_a_far_end_does_not_play() -> None:
    high = tone(6000, 24000, 0.4, 8000)
    narrow = opus(settings=OpusSettings(bandwidth_hz=4000))
    assert rms(decoded(narrow, packets(narrow, high))[4800:]) < 0.05 * rms(high)
    assert rms(decoded(OPUS, packets(OPUS, high))[4800:]) > 0.6 * rms(high)


def test_packets_of_constant_size_say_nothing_of_what_is_in_them() -> None:
    payload = opus(settings=OpusSettings(constant=True))
    sizes = {len(each) for each in packets(payload, speechlike(payload, 1.0))}
    assert len(sizes) == 1


@wide
def test_silence_after_speech_is_silent_within_a_frame(payload: Payload) -> None:
    """What a decoder gives that has just heard speech, below the noise of a quiet line."""
    silence = payload.silent_frame(20)
    heard = decoded(payload, packets(payload, speechlike(payload, 0.4)) + [silence] * 5)
    count = payload.frame_samples(20)
    rest = heard[-4 * count :].astype(float)
    # G.722's least step is a steady level at 0 and at 8 kHz, where nothing is heard.
    audible = (rest + np.roll(rest, 1))[1:] / 2
    assert np.abs(audible - audible.mean()).max() <= 12
    assert np.abs(rest).max() <= 64


@wide
@pytest.mark.parametrize("ptime", [10, 20, 40, 60])
def test_a_silent_frame_is_one_frame(payload: Payload, ptime: int) -> None:
    frame = payload.silent_frame(ptime)
    assert frame == payload.silent_frame(ptime)
    assert len(frame) == payload.frame_bytes(ptime)
    assert len(payload.decoder().decode(frame)) == payload.frame_samples(ptime)


@pytest.mark.parametrize("ptime", [10, 20, 40, 60])
def test_silence_of_opus_is_what_its_mode_for_music_makes_of_silence(ptime: int) -> None:
    encoder = opus(settings=OpusSettings(lowdelay=True)).encoder(ptime)
    frames = [encoder.encode(np.zeros(encoder.frame_samples, np.int16)) for _ in range(8)]
    assert frames[-1] == OPUS.silent_frame(ptime)


@wide
def test_a_stream_knows_nothing_of_another(payload: Payload) -> None:
    pcm = speechlike(payload, 0.2)
    alone = packets(payload, pcm)
    one, other = payload.encoder(20), payload.encoder(20)
    frames = pcm.reshape(-1, one.frame_samples)
    beside = []
    for frame in frames:
        beside.append(one.encode(frame))
        other.encode(noise(other.frame_samples))
    assert beside == alone


@wide
def test_bytes_that_are_no_frame_are_refused_and_the_next_frame_is_heard(payload: Payload) -> None:
    good = packets(payload, speechlike(payload, 0.4))
    decoder = payload.decoder()
    for frame in good[:10]:
        decoder.decode(frame)
    for bad in (b"", bytes(9000)):
        with pytest.raises(BadPayload, match="no payload"):
            decoder.decode(bad)
    heard = [decoder.decode(frame) for frame in good[10:]]
    assert rms(np.concatenate(heard)) > 500


def test_a_broken_opus_packet_is_refused() -> None:
    """RFC 6716 section 3.4, rule R2: two frames of different size in no bytes."""
    with pytest.raises(BadPayload, match="opus"):
        OPUS.decode(b"\x02\xfb")


@pytest.mark.parametrize("payload", [PCMU, PCMA, *WIDE], ids=lambda p: p.name)
def test_a_frame_of_another_length_is_refused(payload: Payload) -> None:
    encoder = payload.encoder(20)
    with pytest.raises(BadSamples, match=str(encoder.frame_samples)):
        encoder.encode(np.zeros(encoder.frame_samples - 1, np.int16))
    with pytest.raises(BadSamples):
        encoder.encode(np.zeros(encoder.frame_samples))  # type: ignore[arg-type]


@pytest.mark.parametrize("payload", [PCMU, PCMA])
def test_g711_has_coders_too_and_they_have_no_memory(payload: Payload) -> None:
    pcm = noise(320)
    encoder, decoder = payload.encoder(20), payload.decoder()
    data = [encoder.encode(pcm[:160]), encoder.encode(pcm[160:])]
    assert b"".join(data) == payload.encode(pcm)
    assert decoder.decode(data[1]).tolist() == payload.decode(data[1]).tolist()
    assert not payload.stateful
    assert encoder.delay_samples == 0


def test_formats_are_found_under_any_spelling() -> None:
    assert payload_by_name("g722") is G722
    assert payload_by_name("OPUS") is payload_by_name("opus") is OPUS
    assert payload_by_type(9) is G722
    assert (G722.static, OPUS.static, PCMU.static) == (True, False, True)
    assert OPUS.with_type(111).payload_type == 111
    assert OPUS.with_type(96) == opus(96) == OPUS


def test_numbers_and_settings_out_of_range_are_refused() -> None:
    for number in (0, 95, 128):
        with pytest.raises(UnknownPayload, match="96 to 127"):
            opus(number)
    with pytest.raises(UnknownPayload, match="not between 0 and 127"):
        PCMU.with_type(128)
    for bad in (
        {"bitrate": 5999},
        {"expected_loss_pct": 101},
        {"complexity": 11},
        {"bandwidth_hz": 9},
    ):
        with pytest.raises(CodecError, match=next(iter(bad))):
            OpusSettings(**bad)  # type: ignore[arg-type]


def test_g711_needs_no_pyav_and_the_others_say_what_they_need() -> None:
    lines = (
        "import sys",
        f"sys.path[:0] = {sys.path}",
        "sys.modules['av'] = None",
        "from qwen3tts_codecs import G722, PCMU, OPUS, CodecMissing, FrameEncoder",
        "FrameEncoder(24000, PCMU).push(bytes(960))",
        "G722.silent_frame(20)",
        "for payload in (G722, OPUS):",
        "    for make in (payload.encoder, payload.decoder):",
        "        try:",
        "            make()",
        "        except CodecMissing as error:",
        "            assert 'pip install' in str(error)",
        "        else:",
        "            raise SystemExit('made without its library')",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, timeout=60)
