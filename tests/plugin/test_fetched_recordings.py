"""Recordings that are fetched from an address, whatever answers there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from mr_qwen3tts import recordings
from mr_qwen3tts.recordings import RecordingError, read

pytestmark = pytest.mark.network
RIFF = b"RIFF....WAVE"


@contextmanager
def site(*answers: bytes, drip: bool = False) -> Iterator[tuple[str, list[bytes]]]:
    """An HTTP server that gives one answer a connection; with ``drip`` it never ends one."""
    asked: list[bytes] = []
    over = threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            for answer in answers:
                line, _ = listener.accept()
                with line:
                    request = b""
                    while b"\r\n\r\n" not in request:
                        request += line.recv(4096)
                    asked.append(request)
                    line.sendall(answer)
                    if drip:
                        over.wait(20)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        over.set()


def ok(body: bytes, *headers: str) -> bytes:
    head = "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers])
    return f"{head}\r\nConnection: close\r\n\r\n".encode() + body


def to(where: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode()


def test_a_recording_is_fetched() -> None:
    with site(ok(RIFF)) as (url, asked):
        recording = read(f"{url}/a b/ä.wav?key=1&x=ü")
    assert (recording.data, recording.words, recording.stamp) == (RIFF, None, None)
    assert asked[0].startswith(b"GET /a%20b/%C3%A4.wav?key=1&x=%C3%BC HTTP/1.1\r\n")


def test_redirects_are_followed_a_few_times() -> None:
    with site(to("/b"), to("c?d"), ok(RIFF)) as (url, asked):
        assert read(f"{url}/a").data == RIFF
    assert [each.split()[1] for each in asked] == [b"/a", b"/b", b"/c?d"]
    with site(*[to("/a")] * 4) as (url, _), pytest.raises(RecordingError, match="leads on"):
        read(f"{url}/a")


@pytest.mark.parametrize(
    ("where", "why"),
    [("file:///etc/passwd", "no http address"), ("ftp://h/a", "no http address")],
)
def test_a_redirect_leads_nowhere_else(where: str, why: str) -> None:
    with site(to(where)) as (url, _), pytest.raises(RecordingError, match=why):
        read(f"{url}/a")


def test_no_redirect_leads_out_of_tls() -> None:
    with pytest.raises(RecordingError, match="from https to http"):
        recordings._further("https://a/b", "http://a/b")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 404 Gone\r\nContent-Length: 6\r\n\r\nsecret", "answers 404"),
        (ok(b"<html>secret"), "no sound file"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nRIFF", "cut off|cannot be fetched"),
        (b"what is this\r\n\r\n", "cannot be fetched"),
        (b"", "cannot be fetched"),
    ],
)
def test_a_bad_answer_is_told_without_its_content(answer: bytes, why: str) -> None:
    with site(answer) as (url, _), pytest.raises(RecordingError, match=why) as raised:
        read(f"{url}/a?token=hidden")
    assert "secret" not in str(raised.value)
    assert "hidden" not in str(raised.value)


def test_an_answer_without_end_is_not_read_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "MAX_BYTES", 1000)
    with site(ok(RIFF + bytes(2000))) as (url, _), pytest.raises(RecordingError, match="more than"):
        read(f"{url}/a")


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\n", ok(RIFF).replace(b": 12", b": 99")])
def test_an_answer_that_drips_is_cut_off(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "FETCH_S", 0.2)
    with (
        site(begun, drip=True) as (url, _),
        pytest.raises(RecordingError, match=r"did not come within 0\.2 s"),
    ):
        read(f"{url}/a")


def test_nobody_there_and_strange_addresses_are_told() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    for where, why in (
        (f"http://127.0.0.1:{port}/a", "cannot be fetched"),
        ("http://me:pw@127.0.0.1/a", "user name"),
        ("http://127.0.0.1:99999/a", "cannot be fetched"),
        ("http://[::1", "cannot be fetched"),
        ("http:///a", "no http address"),
    ):
        with pytest.raises(RecordingError, match=why) as raised:
            read(where)
        assert "pw" not in str(raised.value)
