"""Recordings that are fetched from an address, whatever answers there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from mr_qwen3tts.voices import recordings
from mr_qwen3tts.voices.recordings import Access, Recording, RecordingError

pytestmark = pytest.mark.network
RIFF = b"RIFF....WAVE"
HERE = "127.0.0.1"
PUBLIC = "93.184.216.34"


def read(where: str) -> Recording:
    """Read it though this machine is where it is."""
    return recordings.read(where, Access(private=True))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What each further look-up of a host gives; a connection to any address ends up here."""
    book: dict[str, list[str]] = {}

    def look_up(host: str, port: int, **_: object) -> list[object]:
        found = book.get(host, [host])
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    class Here(socket.socket):
        def connect(self, place: tuple[str, int]) -> None:  # type: ignore[override]
            super().connect((HERE, place[1]))

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "socket", Here)
    return book


@pytest.mark.parametrize(
    "host", [HERE, "[::1]", "169.254.169.254", "10.0.0.1", "2130706433", "0x7f.1", "localhost"]
)
def test_an_address_of_this_machine_or_a_private_network_is_not_asked(host: str) -> None:
    with site(ok(RIFF)) as (url, asked):
        port = url.rpartition(":")[2]
        with pytest.raises(RecordingError, match=r"PRIVATE_RECORDINGS=1|cannot be fetched"):
            recordings.read(f"http://{host}:{port}/a.wav", Access())
        assert asked == []


def test_a_name_with_one_private_address_among_public_ones_is_not_asked(
    names: dict[str, list[str]],
) -> None:
    names["voices.example"] = [PUBLIC, "10.0.0.1"]
    with site(ok(RIFF)) as (url, asked):
        port = url.rpartition(":")[2]
        with pytest.raises(RecordingError, match="private network"):
            recordings.read(f"http://voices.example:{port}/a.wav", Access())
        assert asked == []
        names["voices.example"] = [PUBLIC]
        assert recordings.read(f"http://voices.example:{port}/a.wav", Access()).data == RIFF
        assert b"\r\nHost: voices.example:" in asked[0]


def test_a_redirect_from_a_public_address_to_this_machine_is_not_followed(
    names: dict[str, list[str]],
) -> None:
    names["voices.example"] = [PUBLIC]
    with site(to("http://127.0.0.1/a.wav"), ok(RIFF)) as (url, asked):
        port = url.rpartition(":")[2]
        with pytest.raises(RecordingError, match="private network"):
            recordings.read(f"http://voices.example:{port}/a.wav", Access())
        assert len(asked) == 1


@contextmanager
def site(*answers: bytes, drip: bool = False) -> Iterator[tuple[str, list[bytes]]]:
    """An HTTP server that gives one answer a connection; with ``drip`` it never ends one."""
    asked: list[bytes] = []
    over = threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            for answer in answers:
                try:
                    line, _ = listener.accept()
                except OSError:  # closed, for it is not asked so often
                    return
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
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        finally:
            over.set()
            # Without it, `accept` goes on in this thread, on a number that other sockets get.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)


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
