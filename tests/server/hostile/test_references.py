"""Recordings and names of voices as a way into the machine, its files and its networks."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import resource
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from qwen3tts_server.settings import VoiceSettings
from tests.conftest import require_package
from tests.server.hostile.world import (
    RUNVNC,
    SPEECH,
    VLLM,
    VOICES,
    Answer,
    World,
    attacked,
    request,
    text,
)
from tests.server.voices.world import Cloner, wav

pytestmark = pytest.mark.network

INSIDE = [
    "http://127.0.0.1:{}/",
    "http://127.1:{}/",
    "http://2130706433:{}/",
    "http://0x7f000001:{}/",
    "http://0x7f.0.0.1:{}/",
    "http://0177.0.0.1:{}/",
    "http://017700000001:{}/",
    "http://127.0.0.1.:{}/",
    "http://0:{}/",
    "http://0.0.0.0:{}/",
    "http://localhost:{}/",
    "http://LOCALHOST.:{}/",
    "http://localhost.localdomain:{}/",
    "http://[::1]:{}/",
    "http://[::]:{}/",
    "http://[::ffff:127.0.0.1]:{}/",
    "http://[::ffff:7f00:1]:{}/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]:{}/",
    "http://[::127.0.0.1]:{}/",
    "http://[64:ff9b::127.0.0.1]:{}/",
    "http://[2002:7f00:1::]:{}/",
    "http://[::1%25lo]:{}/",
    "http://[fe80::1%lo]:{}/",
    "http://user@127.0.0.1:{}/",
    "http://example.org@127.0.0.1:{}/",
    "http://example.org\\@127.0.0.1:{}/",
    "http://127.0.0.1:{}#@example.org/",
    "http://127.0.0.1:{}?@example.org/",
    "http://127.0.0.1\t:{}/",
    "http://127.0.0.1\r\nHost: evil:{}/",
    "http:127.0.0.1:{}/",
    "http:///127.0.0.1:{}/",
    "http://①②⑦.⓪.⓪.①:{}/",
    "http://\uff11\uff12\uff17.0.0.1:{}/",
    "HTTPS://127.0.0.1:{}/",
    "http://{host}:{}/",
    "http://169.254.169.254:{}/latest/meta-data/",
    "http://100.100.100.200:{}/",
    "http://10.0.0.1:{}/",
    "http://[fd00:ec2::254]:{}/",
    "http://metadata.google.internal:{}/",
    "ftp://127.0.0.1:{}/x",
    "gopher://127.0.0.1:{}/_x",
    "ws://127.0.0.1:{}/",
    "unix:///run/x:{}",
    "//127.0.0.1:{}/",
]
FILES = [
    "file:///etc/passwd",
    "file://localhost/etc/passwd",
    "file:/etc/passwd",
    "FILE:///etc/passwd",
    "file://127.0.0.1/etc/passwd",
    "file:///proc/self/environ",
    "file:///dev/zero",
    "file:etc/passwd",
    "/etc/passwd",
    "../../etc/passwd",
    "data:text/plain,/etc/passwd",
    "data:;base64,",
    "data:audio/wav;base64,%",
    "data:audio/wav;base64," + "=" * 50,
    "data:" + ";x" * 100_000 + ";base64,AAAA",
]


@asynccontextmanager
async def trap() -> AsyncIterator[tuple[int, list[object]]]:
    """A port of this machine that must not be contacted, and its visitors."""
    came: list[object] = []

    async def caught(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer.get_extra_info("peername"))
        writer.close()

    async with await asyncio.start_server(caught, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], came


async def spoken(world: World, **fields: object) -> Answer:
    body = json.dumps({"input": "Hi.", "response_format": "pcm", "stream": False, **fields})
    (answer,) = await world.http(
        request("POST", SPEECH, body.encode(), Content_Type="application/json")
    )
    return answer


async def test_no_reference_leads_into_this_machine() -> None:
    async with trap() as (port, came):
        settings = VoiceSettings(fetch=True, fetch_ports=(port,), fetch_timeout_s=3)
        inside = [
            each.replace("{host}", socket.gethostname()).replace("{}", str(port)) for each in INSIDE
        ]
        async with attacked(Cloner(), voices=settings) as world:
            for ref in inside + FILES:
                answer = await spoken(world, ref_audio=ref, ref_text="x")
                assert answer.status == 400, ref
                assert answer.error["code"] == "bad_request", ref
                assert answer.error["param"] == "ref_audio", ref
                assert "root:" not in answer.error["message"]
            one = await world.websocket(VLLM)
            other = await world.websocket(RUNVNC)
            for ref in inside + FILES:
                config = {"type": "session.config", "ref_audio": ref, "ref_text": "x"}
                hello = {"type": "input.text", "text": "Hi."}
                await one.send(text(config) + text(hello) + text({"type": "input.done"}))
                assert (await one.until("error"))["code"] == "bad_request", ref
                await one.until("session.done")
                init = {"type": "init", "ref_audio_base64": ref, "ref_text": "x"}
                await other.send(text(init))
                assert (await other.json())["code"] == "bad_request", ref
        assert not came


async def test_no_file_outside_the_folders_is_read(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "good.wav").write_bytes(wav())
    (tmp_path / "secret.wav").write_bytes(wav())
    (tmp_path / "inside-too").mkdir()
    (tmp_path / "inside-too" / "secret.wav").write_bytes(wav())
    (inside / "link.wav").symlink_to(tmp_path / "secret.wav")
    (inside / "up").symlink_to(tmp_path)
    (inside / "zero").symlink_to("/dev/zero")
    os.mkfifo(inside / "pipe")
    settings = VoiceSettings(file_folders=(str(inside),), store=str(tmp_path / "store"))
    async with attacked(Cloner(), voices=settings) as world:
        good = await spoken(world, ref_audio=f"file://{inside}/good.wav", ref_text="x")
        assert good.status == 200
        told = set()
        for path in (
            f"{tmp_path}/secret.wav",
            f"{inside}/../secret.wav",
            f"{inside}/%2e%2e/secret.wav",
            f"{inside}/..%2fsecret.wav",
            f"{inside}/%252e%252e/secret.wav",
            f"{inside}/link.wav",
            f"{inside}/up/secret.wav",
            f"{inside}-too/secret.wav",
            f"{inside}/zero",
            f"{inside}/pipe",
            f"{inside}/",
            f"{inside}/good.wav%00.txt",
            f"{inside}/good.wav/",
            f"{inside}/missing.wav",
            f"{inside}/good.wav?x",
            "/proc/self/fd/0",
            "",
        ):
            answer = await spoken(world, ref_audio=f"file://{path}", ref_text="x")
            assert answer.status == 400, path
            told.add(answer.error["message"])
        assert len(told) == 1  # what is there and may not be read, and what is not there


def form(*parts: tuple[str, bytes], boundary: str = "b") -> bytes:
    """A body of these parts, each with its headers."""
    body = b""
    for headers, data in parts:
        body += b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary.encode(), headers.encode(), data)
    return body + b"--%b--\r\n" % boundary.encode()


def part(name: str, value: bytes | str, more: str = "") -> tuple[str, bytes]:
    data = value.encode() if isinstance(value, str) else value
    return f'Content-Disposition: form-data; name="{name}"{more}', data


async def sent(world: World, body: bytes, boundary: str = "b") -> Answer:
    kind = f"multipart/form-data; boundary={boundary}"
    (answer,) = await world.http(request("POST", VOICES, body, Content_Type=kind))
    return answer


async def uploaded(world: World, name: str, audio: bytes, **fields: str) -> Answer:
    given = {"name": name, "consent": "yes", "ref_text": "x", **fields}
    parts = [part(each, value) for each, value in given.items()]
    return await sent(world, form(*parts, part("audio_sample", audio, '; filename="a.wav"')))


NAMES = [
    "..",
    ".",
    "../x",
    "../../../../tmp/x",
    "/etc/x",
    "a/b",
    "a\\b",
    "a\0b",
    "a\r\nX-Evil: 1",
    "a\x7f",
    "a\u202eb",
    "\u200b",
    "-x",
    ".x",
    "x" * 65,
    "x" * 60_000,
    "clone:x",
    "default",
    "Alloy",
    "tone",
    "TONE",
    "0" * 64,
    "%2e%2e%2fx",
    "$(id)",
    "a;b",
    "a*",
    "<script>",
    "\U0001f600",
]


async def test_no_name_of_a_voice_is_a_path_or_a_header(tmp_path: Path) -> None:
    store = tmp_path / "store"
    settings = VoiceSettings(store=str(store), max_voices=3)
    async with attacked(Cloner(), voices=settings) as world:
        for name in NAMES:
            answer = await uploaded(world, name, wav())
            assert answer.status == 400, name
            assert answer.error["code"] in ("bad_request", "limit_exceeded"), name
            assert "x-evil" not in answer.headers
        assert (await uploaded(world, "Ünder_score .-1", wav())).status == 200
        for name in ("..", "%2e%2e", "..%2f..%2fx", "a%00b", "x" * 5000, "%ff", "clone:..", "*"):
            (answer,) = await world.http(request("DELETE", f"{VOICES}/{name}"))
            assert answer.status in (404, 405), name
            assert answer.error["code"]
        for name in NAMES[:16]:
            for voice in (name, f"clone:{name}"):
                answer = await spoken(world, voice=voice)
                assert answer.status == 400, voice
                assert answer.error["code"] in ("unknown_voice", "bad_request"), voice
        assert (await uploaded(world, "second", wav(1, b"ab"))).status == 200
        assert (await uploaded(world, "third", wav(1, b"cd"))).status == 200
        assert (await uploaded(world, "fourth", wav(1, b"ef"))).error["code"] == "limit_exceeded"
    assert {each.name for each in tmp_path.iterdir()} == {"store"}
    files = [each for each in store.rglob("*") if each.is_file()]
    assert all(each.parent.name in ("voices", "names") or each.parent == store for each in files)
    assert sum(each.parent.name == "names" for each in files) == 3


FORMS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "b"),
    "only an end": (b"--b--\r\n", "b"),
    "no end": (form(part("name", "x"))[:-7], "b"),
    "another boundary": (form(part("name", "x"), boundary="c"), "b"),
    "a boundary that begins alike": (form(part("name", "x"), boundary="bb"), "b"),
    "bare line feeds": (form(part("name", "x")).replace(b"\r\n", b"\n"), "b"),
    "a long boundary": (form(part("name", "x"), boundary="b" * 5000), "b" * 5000),
    "many fields": (form(*[part(f"f{each}", "x") for each in range(5000)]), "b"),
    "many files": (form(*[part("audio_sample", "x", '; filename="a"')] * 3), "b"),
    "a part without a name": (form(("Content-Disposition: form-data", b"x")), "b"),
    "a part without headers": (b"--b\r\n\r\nx\r\n--b--\r\n", "b"),
    "a long header": (form(part("name", "x", "; a=" + "y" * 500_000)), "b"),
    "many headers": (form(("X: y\r\n" * 50_000 + part("name", "x")[0], b"x")), "b"),
    "many options": (form(part("name", "x", "; a=b" * 50_000)), "b"),
    "a long field": (form(part("name", "x" * 100_000)), "b"),
    "a name that is not UTF-8": (form(part("name", b"\xff\xfe")), "b"),
    "a file for a field": (form(part("name", "x", '; filename="../../x"')), "b"),
    "nested": (form(("Content-Type: multipart/mixed; boundary=b", form(part("name", "x")))), "b"),
    "odd names": (form(part("__proto__", "x"), part("", "y"), part("name[]", "z")), "b"),
}


async def test_forms_that_are_none_are_refused_by_name() -> None:
    async with attacked(Cloner()) as world:
        for name, (body, boundary) in FORMS.items():
            answer = await sent(world, body, boundary)
            assert answer.status == 400, name
            assert answer.error["code"] in ("bad_request", "limit_exceeded"), name
        for field, value in [
            ("x_vector_only_mode", "maybe"),
            ("overwrite", "2"),
            ("ref_text", "x" * 5000),
            ("speaker_description", "x" * 5000),
            ("consent", "x" * 5000),
            ("consent", ""),
            ("speaker_embedding", "[1]"),
            ("type", "other"),
        ]:
            answer = await uploaded(world, "someone", wav(), **{field: value})
            assert answer.status == 400, field
        (listed,) = await world.http(request("GET", VOICES))
        assert json.loads(listed.body)["uploaded_voices"] == []


def wave(rate: int, channels: int, bits: int, data: bytes, says: int | None = None) -> bytes:
    """A WAV file that may not be what it says."""
    frame = channels * bits // 8
    head = struct.pack(
        "<HHIIHH", 1, channels & 0xFFFF, rate, (rate * frame) & 0xFFFFFFFF, frame & 0xFFFF, bits
    )
    said = len(data) if says is None else says
    body = b"WAVEfmt " + struct.pack("<I", 16) + head + b"data" + struct.pack("<I", said) + data
    return b"RIFF" + struct.pack("<I", said) + body


def flac(seconds: int) -> bytes:
    """Silence: 23 bytes a second."""
    av = require_package("av", "pip install 'mr_qwen3tts[server]'")
    file = io.BytesIO()
    with av.open(file, "w", format="flac") as made:
        stream = made.add_stream("flac", rate=8000, layout="mono")
        for _ in range(seconds // 10):
            frame = av.AudioFrame(format="s16", layout="mono", samples=80_000)
            frame.planes[0].update(bytes(160_000))
            frame.sample_rate = 8000
            made.mux(stream.encode(frame))
        made.mux(stream.encode(None))
    return file.getvalue()


async def test_small_files_that_are_hours_of_sound_are_refused_in_time() -> None:
    bomb = flac(3600)
    assert len(bomb) < 1_000_000
    bombs: dict[str, bytes] = {
        "an hour of FLAC": bomb,
        "an hour of WAV": wave(100, 1, 8, bytes(360_000)),
        "a day of WAV": wave(1, 1, 8, bytes(86_400)),
        "four gigabytes it says": wave(8000, 1, 16, bytes(100), 0xFFFFFFFF),
        "no rate": wave(0, 1, 16, bytes(1000)),
        "a great rate": wave(0xFFFFFFFF, 1, 16, bytes(1000)),
        "no channels": wave(8000, 0, 16, bytes(1000)),
        "many channels": wave(8000, 65_535, 16, bytes(1000)),
        "no bits": wave(8000, 1, 0, bytes(1000)),
        "odd bits": wave(8000, 1, 13, bytes(1000)),
        "a head": b"RIFF\xff\xff\xff\xffWAVE",
        "chunks of nothing": b"RIFF\xff\xff\xff\xffWAVE" + b"junk\0\0\0\0" * 500_000,
        "nothing": b"",
    }
    async with attacked(Cloner()) as world:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for name, audio in bombs.items():
            answer = await uploaded(world, f"v {name}", audio)
            if answer.status != 200:  # what the real engine would refuse, this one may take
                assert answer.status == 400, name
                assert answer.error["code"] in ("bad_request", "limit_exceeded"), name
            assert (answer.status == 400) >= ("hour" in name or "day" in name), name
        inline = base64.b64encode(bomb).decode()
        for ref in (inline, "data:audio/flac;base64," + inline, inline[:-1], "A" * 14_000_000):
            answer = await spoken(world, ref_audio=ref, ref_text="x")
            assert answer.status == 400
            assert answer.error["code"] in ("bad_request", "limit_exceeded")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB
