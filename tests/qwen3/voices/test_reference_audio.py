from __future__ import annotations

import io
import os
import resource
import runpy
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qwen3tts_engine.qwen3.voices import audio_worker
from qwen3tts_engine.qwen3.voices.recording import (
    Recording,
    ReferenceLimits,
    Source,
    read_recording,
    read_reference,
    resample,
)
from qwen3tts_wire.errors import BadRequest, LimitExceeded, SpeechError
from tests.conftest import require_package
from tests.qwen3.model import formula
from tests.qwen3.voices.recordings import (
    ALAW,
    FLOAT,
    GUID_REST,
    PCM,
    ULAW,
    chunk,
    encoded,
    extensible,
    layout,
    other_file,
    riff,
    wav,
)

VOICE = formula.voice(30_000)
QUICK = ReferenceLimits(min_s=0.1, max_s=2.0, max_bytes=1 << 20)


def refused(source: Any, error: type[SpeechError], *words: str, limits: Any = None) -> str:
    with pytest.raises(error) as caught:
        read_recording(source, limits or ReferenceLimits())
    assert type(caught.value) is error
    assert caught.value.remedy
    for word in words:
        assert word in caught.value.message
    return caught.value.remedy


# --- WAV ---


@pytest.mark.parametrize(
    ("tag", "bits", "off"),
    [
        (PCM, 8, 2**-8),
        (PCM, 16, 2**-16),
        (PCM, 24, 2**-24),
        (PCM, 32, 2**-24),
        (FLOAT, 32, 0),
        (FLOAT, 64, 0),
        (ULAW, 8, 0.02),
        (ALAW, 8, 0.02),
    ],
)
def test_wav_files_of_every_kind(tag: int, bits: int, off: float) -> None:
    found = read_reference(wav(VOICE, tag=tag, bits=bits))
    assert found.dtype == np.float32
    assert np.abs(found - VOICE).max() <= off


def test_full_scale_is_one() -> None:
    loud = np.tile(np.array([-1, 0, 1], np.float32), 20_000)
    for bits in (8, 16, 24, 32):
        found = read_reference(wav(loud, bits=bits))
        assert found.min() == -1
        assert found[1] == 0
        assert found.max() == np.float32(1 - 2.0 ** (1 - bits))


def test_channels_become_their_mean() -> None:
    both = np.stack([VOICE, VOICE / 2], axis=1)
    expected = both.mean(axis=1, dtype=np.float32)
    assert np.array_equal(read_reference(wav(both, tag=FLOAT, bits=32)), expected)
    assert np.array_equal(read_reference((both, 24_000)), expected)


def test_an_extensible_format_is_the_one_it_names() -> None:
    body = encoded(VOICE, PCM, 16)
    file = riff(chunk(b"fmt ", extensible(PCM, 1, 24_000, 16)), chunk(b"data", body))
    assert np.array_equal(read_reference(file), read_reference(wav(VOICE)))


def test_other_chunks_are_passed_over() -> None:
    file = riff(
        chunk(b"LIST", b"odd"),
        chunk(b"fmt ", layout(PCM, 1, 24_000, 16)),
        chunk(b"data", encoded(VOICE, PCM, 16)),
        b"after",
    )
    assert np.array_equal(read_reference(file), read_reference(wav(VOICE)))


def test_a_file_written_to_a_pipe_ends_where_its_bytes_end() -> None:
    file = wav(VOICE).replace(
        b"data" + struct.pack("<I", 2 * len(VOICE)), b"data" + b"\xff\xff\xff\xff"
    )
    assert np.array_equal(read_reference(file + b"\0"), read_reference(wav(VOICE)))


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([], "no samples"),
        ([chunk(b"data", b"\0\0")], "before their format"),
        ([chunk(b"fmt ", b"short")], "cut off"),
        ([chunk(b"fmt ", layout(0xFFFE, 1, 24_000, 16))], "cut off"),
        ([chunk(b"fmt ", layout(PCM, 0, 24_000, 16))], "0 channels"),
        ([chunk(b"fmt ", layout(PCM, 2, 24_000, 16, block=3))], "not 3 bytes"),
    ],
)
def test_a_damaged_wav_says_what_is_wrong(chunks: list[bytes], words: str) -> None:
    refused(riff(*chunks), BadRequest, "damaged WAV", words)


# --- other formats ---


@pytest.fixture(scope="module")
def av() -> Any:
    return require_package("av", "pip install av")


@pytest.mark.parametrize(
    ("container", "codec", "form", "least_db"),
    [
        ("flac", "flac", "s16", 80),
        ("mp3", "libmp3lame", "s16p", None),
        ("ogg", "libopus", "flt", None),
        ("mp4", "aac", "fltp", None),
        ("wav", "adpcm_ima_wav", "s16p", 20),
        ("w64", "pcm_s16le", "s16", 80),
        ("aiff", "pcm_s16be", "s16", 80),
    ],
)
def test_files_of_other_kinds(
    av: Any, container: str, codec: str, form: str, least_db: int | None
) -> None:
    file = other_file(av, VOICE, 24_000, container, codec, form)
    found = Recording(*audio_worker.decode(av, file, 60.0))
    assert found.seconds == pytest.approx(1.25, abs=0.15)
    if least_db is not None:
        length = min(len(found.samples), len(VOICE))
        noise = (found.at(24_000)[:length] - VOICE[:length]).std()
        assert 20 * np.log10(VOICE.std() / noise) > least_db
    else:
        assert found.samples.std() == pytest.approx(VOICE.std(), rel=0.1)


@pytest.mark.parametrize("own_process", [True, False])
def test_another_file_is_decoded_in_a_process_of_its_own(
    av: Any, monkeypatch: pytest.MonkeyPatch, own_process: bool
) -> None:
    if not own_process:
        monkeypatch.setattr(subprocess, "run", in_this_process)
    sound = formula.voice(60_000, 48_000)
    both = np.stack([sound, sound / 2], axis=1)
    found = read_recording(other_file(av, both, 48_000, "flac", "flac", "s16"))
    assert found.rate == 48_000
    assert found.samples == pytest.approx(both.mean(axis=1), abs=1e-4)


def test_many_channels_become_one(av: Any) -> None:
    many = np.repeat(VOICE[:, None], 24, axis=1)
    samples, rate = audio_worker.decode(av, wav(many), 60.0)
    assert rate == 24_000
    assert samples == pytest.approx(VOICE, abs=1e-4)


def test_a_file_that_is_too_long_is_not_decoded_to_its_end(
    av: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = other_file(av, np.zeros(24_000 * 90, np.float32), 24_000, "flac", "flac", "s16")
    monkeypatch.setattr(subprocess, "run", in_this_process)
    remedy = refused(file, LimitExceeded, "60", "at most 60 s")
    assert "10 s" in remedy


def test_what_is_no_audio(av: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    subtitles = b"1\n00:00:00,000 --> 00:00:01,000\nwords\n\n"
    monkeypatch.setattr(subprocess, "run", in_this_process)
    refused(subtitles, BadRequest, "no audio file")
    refused(b"", BadRequest, "no audio file")


def test_a_container_without_sound(av: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty:
        streams = type("Streams", (), {"audio": ()})

        def __enter__(self) -> Empty:
            return self

        def __exit__(self, *_: object) -> None:
            return None

    monkeypatch.setattr(av, "open", lambda *_, **__: Empty())
    with pytest.raises(audio_worker.NotAudio):
        audio_worker.decode(av, b"anything", 60.0)


def test_playlists_are_not_followed(av: Any, tmp_path: Path) -> None:
    kept = tmp_path / "secret.wav"
    kept.write_bytes(wav(VOICE))
    for playlist in (
        f"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n{kept}\n#EXT-X-ENDLIST\n",
        f"ffconcat version 1.0\nfile {kept}\n",
    ):
        with pytest.raises(audio_worker.NotAudio):
            audio_worker.decode(av, playlist.encode(), 60.0)


def in_this_process(
    command: list[str],
    *,
    input: bytes,  # noqa: A002
    **_: Any,
) -> subprocess.CompletedProcess[bytes]:
    """Stands in for subprocess.run where a process of its own changes nothing."""
    answer = io.BytesIO()
    status = audio_worker.run(command[-1:], io.BytesIO(input), answer)
    return subprocess.CompletedProcess(command, status, answer.getvalue(), b"")


def test_without_pyav_the_remedy_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.setattr(subprocess, "run", in_this_process)
    remedy = refused(b"OggS", BadRequest, "PyAV")
    assert "pip install av" in remedy
    assert "WAV" in remedy


def test_wav_of_unknown_codecs_goes_to_pyav(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.setattr(subprocess, "run", in_this_process)
    for body in (
        layout(PCM, 1, 24_000, 12),
        layout(0x55, 1, 24_000, 16),
        extensible(PCM, 1, 24_000, 16, rest=GUID_REST[::-1]),
    ):
        refused(riff(chunk(b"fmt ", body)), BadRequest, "PyAV")


def test_rates_of_other_files_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def decoder(*_: object, **__: object) -> subprocess.CompletedProcess[bytes]:
        answer = (2000).to_bytes(4, "little") + VOICE.tobytes()
        return subprocess.CompletedProcess([], 0, answer, b"")

    monkeypatch.setattr(subprocess, "run", decoder)
    refused(b"any", BadRequest, "rate is 2000")


@pytest.mark.parametrize("status", [-11, 1, 99])
def test_a_decoder_that_crashes_takes_nothing_with_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    def crash(*_: object, **__: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess([], status, b"", b"")

    monkeypatch.setattr(subprocess, "run", crash)
    refused(b"any", BadRequest, "no audio file")
    assert f"status {status}" in caplog.text


def test_a_decoder_that_hangs_is_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def hang(command: list[str], *, timeout: float, **_: object) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    refused(b"any", BadRequest, "no audio file")
    assert "60 s" in caplog.text


def test_a_machine_without_room_for_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "run", full)
    refused(b"any", BadRequest, "temporarily unavailable")


def test_the_decoders_process_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds: dict[int, tuple[int, int]] = {}
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 2))
    monkeypatch.setattr(resource, "setrlimit", bounds.__setitem__)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(audio_worker.__file__, run_name="__main__")
    assert caught.value.code == audio_worker.NO_PYAV
    assert bounds == {
        resource.RLIMIT_AS: (2, 2),
        resource.RLIMIT_CPU: (2, 2),
        resource.RLIMIT_CORE: (0, 2),
    }


# --- arrays ---


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_float_arrays(dtype: type[np.floating[Any]]) -> None:
    found = read_recording((VOICE.astype(dtype), 24_000))
    assert found.samples == pytest.approx(VOICE, abs=1e-3)
    assert found.rate == 24_000


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32])
def test_integer_arrays_have_their_types_full_scale(dtype: type[np.integer[Any]]) -> None:
    info = np.iinfo(dtype)
    middle = (int(info.max) + int(info.min) + 1) // 2
    whole = np.rint(VOICE.astype(np.float64) * (int(info.max) - middle)) + middle
    rate: Any = np.int32(24_000)
    found = read_recording((whole.astype(dtype), rate))
    assert found.samples == pytest.approx(VOICE, abs=0.01)


def test_mono_at_24_khz_comes_out_bit_for_bit() -> None:
    assert np.array_equal(read_reference((VOICE, 24_000)), VOICE)
    assert np.array_equal(read_reference((VOICE[:, None], 24_000)), VOICE)


def test_the_callers_array_is_its_own() -> None:
    mine = VOICE.copy()
    found = read_reference((mine, 24_000))
    mine[:] = 0
    assert np.array_equal(found, VOICE)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ((VOICE,), "no pair"),
        (([0.0], 24_000), "no pair"),
        ((VOICE.reshape(10, 10, -1), 24_000), "shape (10, 10, 300)"),
        ((VOICE.astype(complex), 24_000), "complex"),
        ((np.array(["a"]), 24_000), "shape (1,)"),
        ((VOICE[None], 24_000), "30000 channels"),
        ((np.zeros((24_000, 0)), 24_000), "0 channels"),
        ((np.zeros((24_000, 65)), 24_000), "65 channels"),
        ((VOICE, 0), "rate is 0"),
        ((VOICE, 3999), "rate is 3999"),
        ((VOICE, 10**9), "rate is 1000000000"),
        ((VOICE, 24_000.5), "rate is 24000.5"),
        ((VOICE, "24000"), "rate is str"),
    ],
)
def test_arrays_that_are_no_recordings(source: Any, words: str) -> None:
    refused(source, BadRequest, words)


# --- what is wrong with a recording ---


def test_a_recording_that_is_too_short() -> None:
    refused((VOICE[:23_999], 24_000), BadRequest, "1.00 s", "at least 1 s")
    refused((VOICE[:0], 24_000), BadRequest, "0.00 s")
    assert read_recording((VOICE[:24_000], 24_000)).seconds == 1.0


def test_a_recording_that_is_too_long() -> None:
    sound = np.zeros(24_000 * 60 + 1, np.int8)
    refused((sound, 24_000), LimitExceeded, "60.0 s", "at most 60 s")
    refused(wav(np.zeros(24_000 * 61, np.float32), bits=8), LimitExceeded, "61.0 s")


@pytest.mark.parametrize("level", [0.0, 1e-4, -1e-4])
def test_a_silent_recording(level: float) -> None:
    silent = np.full(24_000, level, np.float32)
    refused((silent, 24_000), BadRequest, "silent", "dBFS")
    refused((silent + 0.5, 24_000), BadRequest, "silent")


def test_a_quiet_recording_is_taken() -> None:
    assert read_recording((VOICE * 0.02, 24_000)).seconds == 1.25


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite(value: float) -> None:
    sound = VOICE.copy()
    sound[77] = value
    refused((sound, 24_000), BadRequest, "not finite")
    refused(wav(sound, tag=FLOAT, bits=32), BadRequest, "not finite")
    refused((np.stack([sound, sound], axis=1), 24_000), BadRequest, "not finite")


def test_samples_beyond_the_narrower_type() -> None:
    huge: Any = VOICE.astype(np.float64) * 1e300
    refused((huge, 24_000), BadRequest, "not finite")
    refused(wav(huge, tag=FLOAT, bits=64), BadRequest, "not finite")


def test_samples_that_were_not_scaled() -> None:
    remedy = refused((VOICE * 32768, 24_000), BadRequest, "full scale is 1")
    assert "32768" in remedy


def test_bytes_beyond_the_bound() -> None:
    limits = ReferenceLimits(max_bytes=1000)
    refused(bytes(1001), LimitExceeded, "more than 1000 bytes", limits=limits)
    refused(wav(VOICE[:400]), BadRequest, "0.02 s", limits=limits)


def test_a_path(tmp_path: Path) -> None:
    file = tmp_path / "voice.wav"
    file.write_bytes(wav(VOICE))
    assert np.array_equal(read_reference(file), read_reference(wav(VOICE)))
    assert np.array_equal(read_reference(str(file)), read_reference(wav(VOICE)))
    refused(file, LimitExceeded, "more than 999 bytes", limits=ReferenceLimits(max_bytes=999))


def test_paths_that_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path / "none.wav", tmp_path, pipe, "\0", "x" * 5000):
        refused(path, BadRequest)

    def forbidden(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "voice.wav"
    file.write_bytes(wav(VOICE))
    monkeypatch.setattr(Path, "open", forbidden)
    refused(file, BadRequest, "Permission denied")


@pytest.mark.parametrize("limits", [(0.0, 60.0), (5.0, 1.0), (1.0, 4000.0), (float("nan"), 1.0)])
def test_limits_that_make_no_sense(limits: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="min_s"):
        ReferenceLimits(*limits)


# --- rates ---


def test_equal_rates_give_the_same_array() -> None:
    recording = Recording(VOICE, 24_000)
    assert recording.at(24_000) is VOICE


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 44_100, 48_000, 44_101])
def test_a_tone_keeps_its_place_and_level(rate: int) -> None:
    hertz = 0.92 * min(rate, 24_000) / 2
    for tone in (440.0, hertz):
        sound = np.sin(2 * np.pi * tone * np.arange(rate) / rate).astype(np.float32)
        found = resample(sound, rate, 24_000)
        expected = np.sin(2 * np.pi * tone * np.arange(len(found)) / 24_000)
        inner = slice(2400, -2400)
        noise = (found[inner] - expected[inner]).std() / expected[inner].std()
        assert 20 * np.log10(noise) < -118


@pytest.mark.parametrize("rate", [44_100, 48_000, 192_000])
def test_what_the_lower_rate_cannot_hold_is_gone(rate: int) -> None:
    sound = np.sin(2 * np.pi * 12_100 * np.arange(rate) / rate).astype(np.float32)
    assert 20 * np.log10(resample(sound, rate, 24_000)[2400:-2400].std()) < -118


@given(st.integers(4_000, 192_000), st.sampled_from([24_000, 16_000]), st.integers(0, 3000))
@settings(deadline=None, max_examples=25)
def test_the_length_is_that_of_the_time(from_hz: int, to_hz: int, samples: int) -> None:
    found = resample(np.ones(samples, np.float32), from_hz, to_hz)
    assert len(found) == (samples * to_hz + from_hz - 1) // from_hz
    assert np.isfinite(found).all()


def test_a_constant_stays_that_constant() -> None:
    found = resample(np.full(8000, 0.25, np.float32), 8_000, 24_000)
    assert found[600:-600] == pytest.approx(0.25, abs=1e-7)


# --- strangers' bytes ---


@pytest.fixture
def no_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """What we read ourselves is meant; FFmpeg has tests of its own."""
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.setattr(subprocess, "run", in_this_process)


def read_or_refuse(source: Source) -> None:
    found = None
    with suppress(BadRequest, LimitExceeded):
        found = read_recording(source, QUICK)
    if found is not None:
        assert found.samples.ndim == 1
        assert np.isfinite(found.samples).all()
        assert QUICK.min_s <= found.seconds <= QUICK.max_s


WORDS = st.sampled_from([0, 1, 2, 3, 6, 7, 8, 16, 24, 32, 64, 0xFFFE, 0xFFFF]) | st.integers(
    0, 0xFFFF
)


@given(
    tag=WORDS,
    channels=WORDS,
    rate=st.sampled_from([24_000, 48_000]) | st.integers(0, 2**32 - 1),
    block=WORDS,
    bits=WORDS,
    size=st.integers(0, 2**32 - 1) | st.none(),
    body=st.binary(max_size=300),
    repeat=st.integers(1, 100),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("no_decoder")
def test_any_header_is_read_or_refused(
    tag: int,
    channels: int,
    rate: int,
    block: int,
    bits: int,
    size: int | None,
    body: bytes,
    repeat: int,
) -> None:
    data = body * repeat
    head = struct.pack("<HHIIHH", tag, channels, rate, 0, block, bits)
    stated = len(data) if size is None else size
    read_or_refuse(riff(chunk(b"fmt ", head), b"data" + struct.pack("<I", stated) + data))


FILE = wav(VOICE[:3000], tag=FLOAT, bits=32)


@given(st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=6), st.integers(0, 60))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("no_decoder")
def test_a_damaged_file_is_read_or_refused(changes: list[tuple[int, int]], missing: int) -> None:
    data = bytearray(FILE)
    for at, value in changes:
        data[at] = value
    read_or_refuse(bytes(data[: len(data) - missing]))


@given(st.sampled_from([b"", b"RIFF", b"OggS", b"fLaC", b"ID3", b"RIFF\0\0\0\0WAVE"]), st.binary())
@settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.usefixtures("no_decoder")
def test_any_bytes_are_read_or_refused(start: bytes, rest: bytes) -> None:
    read_or_refuse(start + rest)


@pytest.mark.parametrize("at", [0, 8, 18, 26, 50, 400])
def test_a_damaged_file_of_another_kind_is_read_or_refused(av: Any, at: int) -> None:
    data = bytearray(other_file(av, VOICE[:4800], 24_000, "flac", "flac", "s16"))
    data[at] ^= 0xFF
    read_or_refuse(bytes(data))
