"""Reference recordings, stored voices, WAV files, and Piper settings."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import cast

import h11
import numpy as np

from qwen3tts_codecs.wav import DamagedWav, NotWav, WavFile
from qwen3tts_engine.piper.voice_files import parse_config
from qwen3tts_server.settings import VoiceSettings
from qwen3tts_server.voices.fetch import Fetcher, redirected, target_of
from qwen3tts_server.voices.names import checked_name, key_of
from qwen3tts_server.voices.reference import decode_inline, parse_reference
from qwen3tts_server.voices.stored import (
    StoredVoice,
    VoiceContent,
    entry_file,
    named_as,
    pack,
    pack_entry,
    recording_file,
    unpack,
    unpack_entry,
)
from qwen3tts_wire.addresses import is_public
from qwen3tts_wire.errors import BadRequest, SpeechError
from tests.engine.piper.tiny_vits import LOW, MANY, tiny_config
from tests.fuzz.target import Target
from tests.qwen3.voices.recordings import ALAW, FLOAT, PCM, ULAW, chunk, extensible, riff, wav
from tests.server.voices.world import told

MOST = 600
SETTINGS = VoiceSettings(fetch=True, max_bytes=MOST)


def run_reference(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    try:
        reference = parse_reference(text, MOST)
        if reference.kind == "inline":
            assert 0 < len(decode_inline(reference, MOST)) <= MOST
        elif reference.kind == "web":
            target = target_of(reference.text, SETTINGS)
            assert target.port in SETTINGS.fetch_ports
            assert target.path.startswith("/")
            request = h11.Request(
                method="GET", target=target.path, headers=[("Host", target.authority)]
            )
            h11.Connection(h11.CLIENT).send(request)
    except SpeechError as error:
        told(error)
    with contextlib.suppress(SpeechError):
        target_of(redirected("https://example.com/a/b", text), SETTINGS)
    is_public(text)
    with contextlib.suppress(SpeechError):
        assert checked_name(text).isprintable()
    assert key_of(key_of(text)) == key_of(text)


def within(answer: object) -> None:
    """A redirect, or a recording of the size that is taken."""
    assert isinstance(answer, str) or (isinstance(answer, bytes) and 0 < len(answer) <= MOST)


class _Answer:
    """Bytes that are there already, and then the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self, most: int) -> bytes:
        piece, self._data = self._data[:most], self._data[most:]
        return piece


def run_fetched_answer(data: bytes) -> None:
    line = h11.Connection(h11.CLIENT)
    line.send(h11.Request(method="GET", target="/", headers=[("Host", "example.com")]))
    line.send(h11.EndOfMessage())
    reader = cast(asyncio.StreamReader, _Answer(data))
    answering = Fetcher(SETTINGS)._answer(line, reader)
    try:
        answering.send(None)
    except StopIteration as stopped:
        within(stopped.value)
    except SpeechError as error:
        told(error)
    except h11.RemoteProtocolError:
        pass
    else:
        raise AssertionError("it waits for more than the end")


CONTENT = VoiceContent(b"RIFF....", "What is said.")

ENTRY = StoredVoice("Anna", "id", 1.7e9, 8, 1.5, None, "", "", False, CONTENT.hash)


def run_stored(data: bytes) -> None:
    found = unpack(data, CONTENT.hash)
    assert found is None or found.hash == CONTENT.hash
    voice = unpack_entry(data, entry_file(ENTRY))
    assert voice is None or entry_file(voice) == entry_file(ENTRY)
    name = data.decode("latin-1")
    named_as(name)
    recording_file(name, len(data))


SOUND = np.linspace(-1, 1, 40, dtype=np.float32)


def run_wav(data: bytes) -> None:
    with contextlib.suppress(NotWav, DamagedWav):
        file = WavFile.parse(data)
        samples = file.samples()
        assert samples.shape == (file.frames, file.channels)
        assert samples.dtype == np.float32
        assert samples.nbytes <= 4 * len(data)


def run_voice_settings(data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        config = parse_config(data)
        assert 8000 <= config.sample_rate <= 48_000
        assert all(0 <= one < 65536 for ids in config.phoneme_ids.values() for one in ids)


TARGETS = {
    "reference": Target(
        run_reference,
        "A reference field is a recording within bounds, or is refused.",
        (
            b"data:audio/wav;base64,UklGRg==",
            b"UklG\r\nRg==",
            b"https://example.com:443/a%20b.wav?c=d#e",
            b"http://[2606:4700::1111]/x",
            b"file:///refs/a.wav",
            b"Anna Maria",
        ),
        words=(b"data:", b";base64,", b"https://", b"file://", b"[::1]", b"%2e", b"@", b":443"),
        hard=(
            b"data:;base64," + b"A" * 5000,
            b"data:;base64,%",
            b"http://[::1]:0:0/\\@x",
            b"https://[fe80::1%25x]/",
            b"https://\xff\xfe/",
            b"https://example.com/%zz\x7f",
            b"http://a:b:c@d:e/",
            b"//example.com:443",
            "https://\uff45xample.com/".encode(),
            "\u0130\u0131\u1e9e".encode(),
            "A\u0301\u0327".encode() * 9,
        ),
    ),
    "fetched_answer": Target(
        run_fetched_answer,
        "An answer from the web is a recording within bounds or a redirect, or is refused.",
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsound",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nsou\r\n0\r\n\r\n",
            b"HTTP/1.1 302 Found\r\nLocation: /b\r\n\r\n",
            b"HTTP/1.0 200 OK\r\n\r\nsound",
        ),
        words=(b"Content-Length: ", b"Transfer-Encoding: chunked", b"\r\n", b"103", b"101"),
        hard=(
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nsound",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nsound",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 101 Up\r\nUpgrade: x\r\n\r\nxxxx",
            b"HTTP/1.1 103 x\r\n\r\n" * 200,
            b"HTTP/1.1 302 x\r\nLocation: \r\nLocation: \xff\r\n\r\n",
            b"HTTP/1.1 304 x\r\n\r\nxx",
            b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000,
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nxxHTTP/1.1 200 OK\r\n\r\n",
        ),
    ),
    "stored_voice": Target(
        run_stored,
        "A file of the store is a valid voice, or none.",
        (pack(CONTENT), pack_entry(ENTRY), entry_file(ENTRY).encode()),
        words=(b'"ref_text":', b'"x_vector_only":', b"null", b"true", b"1e999", b"NaN"),
        hard=(
            pack(CONTENT)[:-1],
            pack(CONTENT).replace(b"false", b"0"),
            pack(CONTENT).replace(b'"What is said."', b"[" * 3000),
            pack_entry(ENTRY).replace(b"1700000000.0", b"NaN"),
            pack_entry(ENTRY).replace(b"1700000000.0", b"1e999"),
            pack_entry(ENTRY).replace(b"1700000000.0", b"1" + b"0" * 400),
            pack_entry(ENTRY).replace(b"1700000000.0", b"true"),
            pack_entry(ENTRY).replace(b'"Anna"', b'"\\ud800"'),
            pack_entry(ENTRY).replace(b'"Anna"', b"null"),
            b"[]",
        ),
    ),
    "wav": Target(
        run_wav,
        "A WAV file is read within its own bytes, or is refused.",
        (
            *(wav(SOUND, tag=PCM, bits=bits) for bits in (8, 16, 24, 32)),
            *(wav(SOUND, tag=FLOAT, bits=bits) for bits in (32, 64)),
            *(wav(SOUND.reshape(-1, 2), tag=tag, bits=8) for tag in (ULAW, ALAW)),
            riff(
                chunk(b"LIST", b"odd"),
                chunk(b"fmt ", extensible(PCM, 1, 24_000, 16)),
                chunk(b"data", bytes(20)),
            ),
        ),
        words=(b"fmt ", b"data", b"RIFF", b"WAVE", b"\xfe\xff", b"\xff\xff\xff\xff"),
        hard=(
            b"RIFF\xff\xff\xff\xffWAVE",
            b"RIFF\x04\x00\x00\x00WAVEfmt \xff\xff\xff\xff",
            b"RIFF\x04\x00\x00\x00WAVEfmt \x10\x00\x00\x00" + bytes(16) + b"data\x00\x00\x00\x00",
        ),
    ),
    "voice_settings": Target(
        run_voice_settings,
        "Settings of a voice are within their bounds, or are refused.",
        tuple(json.dumps(tiny_config(shape)).encode() for shape in (LOW, MANY)),
        words=(b'"sample_rate"', b'"phoneme_id_map"', b"1e999", b"null", b"[[", b"NaN"),
        hard=(
            b"[" * 4000,
            b'{"audio": {"sample_rate": 1e999}}',
            b'{"audio": {"sample_rate": 22050}, "phoneme_id_map": {"_": [-1]}}',
        ),
    ),
}
