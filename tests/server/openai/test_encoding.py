"""Files of sound: every form, streamed and whole, is read back as what was put in."""

from __future__ import annotations

import asyncio
import builtins
import io
import itertools
import threading
import wave
from collections.abc import Iterator
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from qwen3tts_codecs.wav import UNKNOWN_LENGTH, wav_header
from qwen3tts_server.dialects.encoding import (
    FORMS,
    JOB_BYTES,
    EncodingThreads,
    SoundEncoder,
    content_type,
    encode_whole,
)
from qwen3tts_wire.errors import BadRequest, EngineUnavailable

RATES = (24000, 16000, 8000)
COMPRESSED = [form for form in FORMS if form not in ("wav", "pcm")]


def tone(samples: int, rate: int) -> bytes:
    """A tone of 440 Hz, a quarter of full scale."""
    at = np.arange(samples) / rate
    return (8000 * np.sin(2 * np.pi * 440 * at)).astype("<i2").tobytes()


def streamed(form: str, rate: int, pcm: bytes, step: int) -> bytes:
    encoder = SoundEncoder(form, rate)
    parts = [encoder.push(pcm[at : at + step]) for at in range(0, len(pcm), step)]
    return b"".join([*parts, encoder.flush()])


def decoded(data: bytes, rate: int) -> NDArray[np.int16]:
    """The samples of a file, at ``rate``; [n]."""
    parts: list[NDArray[np.int16]] = []
    with av.open(io.BytesIO(data), "r") as file:
        resampler = av.AudioResampler("s16", "mono", rate)
        for frame in file.decode(audio=0):
            parts += [each.to_ndarray()[0] for each in resampler.resample(frame)]
        parts += [each.to_ndarray()[0] for each in resampler.resample(None)]
    return np.concatenate(parts)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("form", FORMS)
def test_a_stream_is_read_back(form: str, rate: int) -> None:
    pcm = tone(rate + 100, rate)
    data = streamed(form, rate, pcm, rate // 5)
    sound = np.frombuffer(data, "<i2") if form == "pcm" else decoded(data, rate)
    if form in ("wav", "pcm", "flac"):
        assert sound.tobytes() == pcm
        return
    # A codec's delay and its last block come on top: at most two AAC blocks and a half.
    assert 0 <= len(sound) - len(pcm) // 2 <= 2600
    middle = sound[rate // 4 : rate // 4 + rate // 2].astype(float)
    assert 3000 < np.sqrt(np.mean(middle**2)) < 8000  # 5657 is put in
    spectrum = np.abs(np.fft.rfft(middle))
    assert abs(np.argmax(spectrum) * rate / len(middle) - 440) <= 2


@pytest.mark.parametrize("form", FORMS)
def test_a_whole_file_is_read_back(form: str) -> None:
    pcm = tone(12_000, 24000)
    data = encode_whole(form, 24000, pcm)
    sound = np.frombuffer(data, "<i2") if form == "pcm" else decoded(data, 24000)
    if form in ("wav", "pcm", "flac"):
        assert sound.tobytes() == pcm
    elif form in ("mp3", "opus"):
        assert abs(len(sound) - 12_000) <= 1  # its gaps at both ends are told in the file
    else:
        assert 0 <= len(sound) - 12_000 <= 2600


@pytest.mark.parametrize("form", [each for each in FORMS if each != "aac"])
def test_a_whole_file_states_its_length(form: str) -> None:
    data = encode_whole(form, 24000, tone(24_000, 24000))
    if form == "pcm":
        assert len(data) == 48_000
        return
    with av.open(io.BytesIO(data), "r") as file:
        assert file.duration is not None
        assert abs(file.duration / 1e6 - 1) < 0.08


@settings(max_examples=25, deadline=None)
@given(form=st.sampled_from(FORMS), cuts=st.lists(st.integers(0, 9001), max_size=6))
def test_pieces_of_any_length_give_the_same_file(form: str, cuts: list[int]) -> None:
    pcm = tone(4500, 24000)
    encoder = SoundEncoder(form, 24000)
    places = [0, *sorted(cuts), len(pcm)]
    parts = [encoder.push(pcm[start:end]) for start, end in itertools.pairwise(places)]
    one = SoundEncoder(form, 24000)
    whole = one.push(pcm) + one.flush()
    data = b"".join(parts) + encoder.flush()
    if form == "opus":
        # A stream's serial number is drawn for each.
        assert decoded(data, 24000).tobytes() == decoded(whole, 24000).tobytes()
    else:
        assert data == whole


@pytest.mark.parametrize("form", COMPRESSED)
def test_a_stream_comes_while_it_is_made(form: str) -> None:
    encoder = SoundEncoder(form, 24000)
    pcm = tone(2400, 24000)
    sizes = [len(encoder.push(pcm)) for _ in range(10)]
    assert sum(map(bool, sizes)) >= 8  # of ten blocks of 100 ms
    assert sum(sizes[:3]) > 0


@pytest.mark.parametrize("form", FORMS)
def test_no_samples_make_a_file_all_the_same(form: str) -> None:
    encoder = SoundEncoder(form, 24000)
    data = encoder.push(b"") + encoder.flush()
    assert encoder.flush() == b""
    assert encode_whole(form, 24000, b"") is not None
    assert (data == b"") == (form in ("pcm", "mp3", "aac"))


@pytest.mark.parametrize("form", FORMS)
def test_an_encoder_may_be_left_in_the_middle(form: str) -> None:
    encoder = SoundEncoder(form, 24000)
    encoder.push(tone(5000, 24000))
    del encoder


def test_after_its_end_a_file_takes_no_more() -> None:
    encoder = SoundEncoder("wav", 24000)
    encoder.flush()
    with pytest.raises(ValueError, match="complete"):
        encoder.push(b"\0\0")


def test_an_odd_last_byte_is_no_sample() -> None:
    encoder = SoundEncoder("pcm", 24000)
    assert encoder.push(b"abc") == b"ab"
    assert encoder.push(b"d") == b"cd"
    assert encoder.push(b"e") + encoder.flush() == b""
    assert encode_whole("pcm", 24000, b"abc") == b"ab"


def test_wav_headers() -> None:
    with wave.open(io.BytesIO(encode_whole("wav", 8000, bytes(320)))) as file:
        assert file.getparams()[:4] == (1, 2, 8000, 160)
    header = wav_header(None, 24000)
    assert len(header) == 44
    assert int.from_bytes(header[40:], "little") == UNKNOWN_LENGTH
    assert wav_header(UNKNOWN_LENGTH, 24000) == header
    with wave.open(io.BytesIO(streamed("wav", 16000, bytes(640), 100))) as file:
        assert file.readframes(1000) == bytes(640)


def test_content_types() -> None:
    kinds = [content_type(form) for form in FORMS]
    assert kinds == [
        "audio/wav",
        "audio/pcm",
        "audio/flac",
        "audio/mpeg",
        "audio/ogg",
        "audio/aac",
    ]
    assert SoundEncoder("mp3", 24000).content_type == "audio/mpeg"


@pytest.mark.parametrize("form", ["", "MP3", "ogg", "exe", "wav "])
def test_an_unknown_form_names_the_known(form: str) -> None:
    for making in (lambda: SoundEncoder(form, 24000), lambda: encode_whole(form, 24000, b"")):
        with pytest.raises(BadRequest, match=r"wav, pcm, flac, mp3, opus, aac") as caught:
            making()
        assert form not in caught.value.message or not form.strip()


@pytest.fixture
def threads() -> Iterator[EncodingThreads]:
    threads = EncodingThreads(1)
    yield threads
    threads.close()


@pytest.mark.parametrize("form", FORMS)
async def test_files_made_on_threads_are_the_same(threads: EncodingThreads, form: str) -> None:
    def comparable(file: bytes) -> object:
        return len(file) if form == "opus" else file  # each Ogg stream has a random serial number

    pcm = tone(2 * JOB_BYTES, 24000) + b"odd"
    whole = await threads.whole(form, 24000, pcm)
    assert comparable(whole) == comparable(encode_whole(form, 24000, pcm))
    direct, encoder = SoundEncoder(form, 24000), await threads.open(form, 24000)
    streamed = await threads.push(encoder, pcm) + await threads.flush(encoder)
    assert comparable(streamed) == comparable(direct.push(pcm) + direct.flush())


async def test_compressed_sound_is_never_encoded_on_the_event_loop(
    threads: EncodingThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: set[tuple[str, str]] = set()
    push = SoundEncoder.push

    def watched(encoder: SoundEncoder, pcm: bytes) -> bytes:
        used.add((encoder.form, threading.current_thread().name))
        return push(encoder, pcm)

    monkeypatch.setattr(SoundEncoder, "push", watched)
    for form in FORMS:
        await threads.push(await threads.open(form, 24000), bytes(960))
    main = threading.current_thread().name
    assert {form for form, thread in used if thread == main} == {"pcm", "wav"}
    assert {form for form, thread in used if thread != main} == {"flac", "mp3", "opus", "aac"}


async def test_a_short_file_does_not_wait_for_the_whole_of_a_long_one(
    threads: EncodingThreads,
) -> None:
    long = asyncio.create_task(threads.whole("flac", 24000, bytes(40 * JOB_BYTES)))
    await asyncio.sleep(0)
    assert await threads.whole("flac", 24000, bytes(960))
    assert not long.done()
    assert await long


async def test_closed_threads_cancel_what_waits(threads: EncodingThreads) -> None:
    long = asyncio.create_task(threads.whole("flac", 24000, bytes(400 * JOB_BYTES)))
    await asyncio.sleep(0)
    threads.close()
    with pytest.raises((RuntimeError, asyncio.CancelledError)):
        await long


def test_without_pyav_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "av":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(EngineUnavailable, match="pip install"):
        SoundEncoder("mp3", 24000)
    assert SoundEncoder("wav", 24000).push(b"") == b""


def test_a_rate_that_a_codec_lacks_is_an_error_with_a_way_out() -> None:
    with pytest.raises(EngineUnavailable, match="wav or pcm"):
        SoundEncoder("opus", 11025)
