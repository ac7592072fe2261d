"""Recordings from the web; the web is a server on 127.0.0.1 that says it is somewhere else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import h11
import pytest

from qwen3tts_server.settings import VoiceSettings
from qwen3tts_server.voices import fetch as fetching
from qwen3tts_server.voices.fetch import Fetcher, Streams, Target
from qwen3tts_wire.errors import BadRequest, LimitExceeded
from tests.conftest import require_program
from tests.engine.waiting import until

pytestmark = pytest.mark.network

PUBLIC = "93.184.215.14"
OK = b"HTTP/1.1 200 OK\r\n"


class Web:
    """A web of one server, which gives one answer after another."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.names: dict[str, list[list[str]]] = {}
        """The addresses that a name has, from one look to the next."""
        self.looked_up: list[str] = []
        self.dialled: list[tuple[str, Target]] = []
        self.requests: list[bytes] = []
        self.stalls = False
        """Goes on talking slowly instead of closing."""
        self.rude = False
        """Speaks without having been asked."""
        self.gone = 0
        self._open: dict[Any, asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None

    async def resolve(self, host: str, _: int) -> Sequence[str]:
        self.looked_up.append(host)
        known = self.names.get(host, [[PUBLIC]])
        return known.pop(0) if len(known) > 1 else known[0]

    async def dial(self, address: str, target: Target) -> Streams:
        self.dialled.append((address, target))
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return await asyncio.open_connection("127.0.0.1", port)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[asyncio.current_task()] = writer
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if not self.rude:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.answers.pop(0))
            await writer.drain()
            while self.stalls and await reader.read(100):
                pass
        self.gone += 1
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    @contextlib.asynccontextmanager
    async def up(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
        async with asyncio.timeout(20):
            self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0, ssl=tls)
            async with self._server:
                try:
                    yield self
                finally:
                    for task, writer in self._open.items():
                        writer.transport.abort()
                        await asyncio.wait({task})

    async def fetch(self, url: str = "http://example.com/a.wav", **settings: Any) -> bytes:
        made = VoiceSettings(**{"fetch": True, "max_bytes": 1000, **settings})
        return await Fetcher(made, resolve=self.resolve, dial=self.dial).fetch(url)


def moved(location: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} Found\r\nLocation: {location}\r\n\r\n".encode()


async def test_the_content_of_an_address_comes() -> None:
    answer = OK + b"Content-Length: 5\r\n\r\nsound"
    async with Web(answer).up() as web:
        assert await web.fetch("http://example.com/a%20b.wav?c=d") == b"sound"
    assert web.requests[0].startswith(b"GET /a%20b.wav?c=d HTTP/1.1\r\nHost: example.com\r\n")
    assert web.dialled[0][0] == PUBLIC


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nsou\r\n2\r\nnd\r\n0\r\n\r\n",
        OK + b"\r\nsound",
        b"HTTP/1.1 103 Early\r\n\r\n" + OK + b"Content-Encoding: identity\r\n\r\nsound",
        b"HTTP/1.0 200\r\n\r\nsound",
    ],
)
async def test_answers_come_in_several_forms(answer: bytes) -> None:
    async with Web(answer).up() as web:
        assert await web.fetch() == b"sound"


async def test_nothing_is_fetched_unless_the_settings_say_so() -> None:
    async with Web().up() as web:
        with pytest.raises(BadRequest, match="fetches no references") as told:
            await web.fetch(fetch=False)
    assert "voices.fetch" in told.value.remedy
    assert web.looked_up == []


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["169.254.169.254"], ["::1"], ["::ffff:10.0.0.1"], [PUBLIC, "10.0.0.1"], []],
)
async def test_a_name_with_a_private_address_is_not_asked(addresses: list[str]) -> None:
    async with Web().up() as web:
        web.names["inside.example.com"] = [addresses]
        with pytest.raises(BadRequest, match="no public address"):
            await web.fetch("http://inside.example.com/")
    assert web.dialled == []


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "http://2130706433/", "http://0x7f.1/", "http://[::1]/",
            "http://localhost/", "http://[::ffff:127.0.0.1]/", "http://127.1/"]
)  # fmt: skip
async def test_this_machine_is_not_asked_however_it_is_written(url: str) -> None:
    """With the system's own resolver."""
    made = VoiceSettings(fetch=True)
    web = Web()
    with pytest.raises(BadRequest, match=r"no public address|reached"):
        await Fetcher(made, dial=web.dial).fetch(url)
    assert web.dialled == []


async def test_a_name_that_changes_its_mind_gains_nothing() -> None:
    async with Web(OK + b"\r\nsound").up() as web:
        web.names["example.com"] = [[PUBLIC], ["127.0.0.1"]]
        await web.fetch()
    assert [address for address, _ in web.dialled] == [PUBLIC]
    assert web.looked_up == ["example.com"]


async def test_redirects_are_followed_and_each_is_checked() -> None:
    async with Web(moved("/b"), moved("//other.org/c", 308), OK + b"\r\nsound").up() as web:
        assert await web.fetch() == b"sound"
    assert web.looked_up == ["example.com", "example.com", "other.org"]
    async with Web(moved("http://inside/")).up() as web:
        web.names["inside"] = [["10.0.0.1"]]
        with pytest.raises(BadRequest, match="no public address"):
            await web.fetch()
    assert len(web.dialled) == 1
    for location in ("http://example.com:22/", "file:///etc/passwd", "http://u@example.com/"):
        async with Web(moved(location)).up() as web:
            with pytest.raises(BadRequest):
                await web.fetch()
        assert len(web.dialled) == 1


async def test_redirects_have_a_bound() -> None:
    async with Web(*[moved("/again")] * 9).up() as web:
        with pytest.raises(BadRequest, match="more than 2 times"):
            await web.fetch(fetch_redirects=2)
    assert len(web.dialled) == 3


async def test_a_host_that_is_not_allowed_is_not_reached_by_a_redirect() -> None:
    async with Web(moved("http://evil.org/")).up() as web:
        with pytest.raises(BadRequest, match="host"):
            await web.fetch(fetch_hosts=("example.com",))
    assert web.looked_up == ["example.com"]


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 1001\r\n\r\n",
        OK + b"Content-Length: 99999999999999999999\r\n\r\n",
        OK + b"\r\n" + bytes(1001),
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"fff\r\n" + bytes(1002),
    ],
)
async def test_content_has_a_bound(answer: bytes) -> None:
    async with Web(answer).up() as web:
        web.stalls = True
        with pytest.raises(LimitExceeded, match="1000 bytes"):
            await web.fetch()


async def test_interim_answers_without_end_are_not_read_to_their_end() -> None:
    async with Web(b"HTTP/1.1 103 x\r\n\r\n" * 100_000).up() as web:
        web.stalls = True
        with pytest.raises((LimitExceeded, BadRequest)):
            await web.fetch()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 404 No\r\n\r\n", "status 404"),
        (b"HTTP/1.1 302 No\r\n\r\n", "status 302"),
        (b"HTTP/1.1 206 Part\r\n\r\nxx", "status 206"),
        (OK + b"Content-Encoding: gzip\r\n\r\nxx", "compressed"),
        (OK + b"Content-Length: 0\r\n\r\n", "empty"),
        (OK + b"Content-Length: 9\r\n\r\nxx", "no HTTP"),
        (b"", "no HTTP"),
        (b"220 smtp.example.com ready\r\n", "no HTTP"),
        (OK + b"X: " + b"a" * 50_000, "no HTTP"),
        (b"HTTP/1.1 101 Up\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "no HTTP"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "no HTTP"),
    ],
)
async def test_what_is_no_recording_is_named(answer: bytes, reason: str) -> None:
    async with Web(answer).up() as web:
        with pytest.raises(BadRequest, match=reason) as told:
            await web.fetch()
    assert "example" not in str(told.value)


async def test_what_is_no_answer_at_all_is_refused() -> None:
    class Paused:
        def next_event(self) -> object:
            return h11.PAUSED

    fetcher = Fetcher(VoiceSettings(fetch=True))
    with pytest.raises(BadRequest, match="no HTTP"):
        await fetcher._answer(cast(h11.Connection, Paused()), asyncio.StreamReader())


async def test_a_server_that_stalls_is_left() -> None:
    async with Web(OK + b"Content-Length: 9\r\n\r\nxx").up() as web:
        web.stalls = True
        with pytest.raises(BadRequest, match="within"):
            await web.fetch(fetch_timeout_s=0.05)
        await until(lambda: web.gone == 1)


async def test_hosts_that_cannot_be_reached_are_errors_of_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(*_: object) -> Streams:
        raise ConnectionRefusedError

    async def unknown(*_: object) -> Sequence[str]:
        raise socket.gaierror(-2, "Name or service not known")

    web, made = Web(), VoiceSettings(fetch=True)
    for fetcher in (
        Fetcher(made, resolve=web.resolve, dial=refused),
        Fetcher(made, resolve=unknown, dial=web.dial),
    ):
        with pytest.raises(BadRequest, match="cannot be reached"):
            await fetcher.fetch("http://example.com/")


async def test_the_next_address_is_tried() -> None:
    async with Web(OK + b"\r\nsound").up() as web:
        web.names["example.com"] = [["8.8.8.8", PUBLIC]]
        dial = web.dial

        async def first_is_down(address: str, target: Target) -> Streams:
            if address == "8.8.8.8":
                raise ConnectionRefusedError
            return await dial(address, target)

        fetcher = Fetcher(VoiceSettings(fetch=True), resolve=web.resolve, dial=first_is_down)
        assert await fetcher.fetch("http://example.com/") == b"sound"


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """What a server shows that is example.com for all who trust this test."""
    require_program("openssl", "openssl")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=example.com"),
            *("-addext", "subjectAltName=DNS:example.com", "-out", cert, "-keyout", key),
        ],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    monkeypatch.setattr(fetching, "_TLS", ssl.create_default_context(cafile=str(cert)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


def secure(web: Web) -> Fetcher:
    """With connections as they are made outside of tests."""

    async def here(address: str, target: Target) -> Streams:
        web.dialled.append((address, target))
        assert web._server is not None
        port = web._server.sockets[0].getsockname()[1]
        return await fetching.dial("127.0.0.1", replace(target, port=port))

    return Fetcher(VoiceSettings(fetch=True), resolve=web.resolve, dial=here)


async def test_a_secure_address_is_fetched(certified: ssl.SSLContext) -> None:
    async with Web(OK + b"\r\nsound").up(certified) as web:
        assert await secure(web).fetch("https://example.com/a.wav") == b"sound"
    assert web.requests[0].startswith(b"GET /a.wav HTTP/1.1\r\nHost: example.com\r\n")


async def test_a_server_that_is_not_who_was_asked_for_is_told_nothing(
    certified: ssl.SSLContext,
) -> None:
    async with Web(OK + b"\r\nsound").up(certified) as web:
        with pytest.raises(BadRequest, match="certificate"):
            await secure(web).fetch("https://other.org/secret")
    assert web.requests == []


async def test_a_server_without_tls_is_told_nothing() -> None:
    async with Web(OK + b"\r\nsound").up() as web:
        web.rude = True
        with pytest.raises(BadRequest, match="certificate"):
            await secure(web).fetch("https://example.com/secret")
