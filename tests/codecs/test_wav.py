from __future__ import annotations

import io
import struct
import wave

import numpy as np
import pytest

from qwen3tts_codecs.wav import DamagedWav, NotWav, WavFile, wav_bytes, wav_header


def written(channels: int, width: int, rate_hz: int, data: bytes) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setparams((channels, width, rate_hz, 0, "NONE", ""))
        wav.writeframes(data)
    return file.getvalue()


def test_a_file_is_what_wave_writes() -> None:
    pcm = np.array([0, 1, -32768, 32767], np.int16)
    expected = written(1, 2, 16_000, pcm.astype("<i2").tobytes())
    assert wav_bytes(pcm, 16_000) == expected
    assert wav_bytes(pcm.astype("<i2").tobytes(), 16_000) == expected


def test_sixteen_bits_of_one_channel_are_read_exactly() -> None:
    pcm = np.arange(-32768, 32768, dtype=np.int16)
    file = WavFile.parse(wav_bytes(pcm, 8000))
    assert (file.rate, file.channels, file.bits, file.frames) == (8000, 1, 16, 65536)
    assert file.seconds == 65536 / 8000
    assert (file.mono() == pcm).all()


def test_channels_become_their_mean() -> None:
    pcm = np.array([[100, 300], [-32768, -32768], [32767, 32767]], np.int16)
    file = WavFile.parse(written(2, 2, 8000, pcm.astype("<i2").tobytes()))
    assert file.mono().tolist() == [200, -32768, 32767]


@pytest.mark.parametrize(
    ("width", "data", "samples"),
    [
        (1, bytes([0, 128, 255]), [-32768, 0, 127 << 8]),
        (3, bytes([0, 0, 0x80, 0, 1, 0]), [-32768, 1]),
        (4, struct.pack("<2i", -(1 << 31), 1 << 16), [-32768, 1]),
    ],
)
def test_other_widths_become_sixteen_bits(width: int, data: bytes, samples: list[int]) -> None:
    assert WavFile.parse(written(1, width, 8000, data)).mono().tolist() == samples


def test_floats_beyond_one_and_without_a_value_are_bounded() -> None:
    values = np.array([0.5, 2.0, -2.0, np.nan, np.inf], "<f4").tobytes()
    header = wav_header(len(values), 8000)
    fmt = struct.pack("<HHIIHH", 3, 1, 8000, 32_000, 4, 32)
    file = WavFile.parse(header[:20] + fmt + header[36:] + values)
    assert file.mono().tolist() == [16384, 32767, -32768, 0, 32767]


def test_a_stream_without_a_length_ends_with_the_file() -> None:
    file = WavFile.parse(wav_header(None, 24_000) + bytes(7))
    assert file.frames == 3


@pytest.mark.parametrize("data", [b"", b"RIFF", b"OggS" + bytes(40), b"RIFF0000AVI " + bytes(8)])
def test_what_is_no_wav_is_not_read(data: bytes) -> None:
    with pytest.raises(NotWav):
        WavFile.parse(data)


def test_a_file_without_samples_is_damaged() -> None:
    with pytest.raises(DamagedWav):
        WavFile.parse(wav_header(0, 8000)[:36])
