"""TLS by settings."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from websockets import Subprotocol
from websockets.asyncio.client import connect

from qwen3tts_server.run import RunningServer, running_server
from qwen3tts_server.settings import AccessSettings, ServerSettings
from qwen3tts_server.tls import tls_of
from qwen3tts_wire.addresses import DIRECT
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.errors import BadRequest, ConnectionLost
from qwen3tts_wire.messages import PROTOCOL
from tests.conftest import require_program
from tests.engine.fake_engine import FakeEngine
from tests.sip.certificates import DAY, Authority, Pair


async def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that it signs itself, and its key."""
    require_program("openssl", "openssl")
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    process = await asyncio.create_subprocess_exec(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"),
        *("-out", str(cert), "-keyout", str(key)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 0
    return cert, key


@asynccontextmanager
async def serving(**access: Any) -> AsyncIterator[RunningServer]:
    settings = ServerSettings(access=AccessSettings(**access))
    async with asyncio.timeout(30), running_server(FakeEngine(), settings=settings) as server:
        yield server


def trusting(cert: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(cert))


def live_files(authority: Authority) -> Pair:
    """Certificate and key as a server has them, to be replaced."""
    return authority.sign("live", "127.0.0.1", "localhost")


def take(renewed: Pair, live: Pair) -> None:
    """Put a renewal where the live files are."""
    renewed.certificate.replace(live.certificate)
    renewed.key.replace(live.key)


async def subject(
    server: RunningServer, context: ssl.SSLContext, server_hostname: str | None = None
) -> Any:
    """Whose certificate the server shows."""
    _, writer = await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=context, server_hostname=server_hostname
    )
    try:
        return writer.get_extra_info("peercert")["subject"][0][0][1]
    finally:
        writer.close()


@pytest.mark.network
async def test_with_a_certificate_only_tls_is_spoken(tmp_path: Path) -> None:
    cert, key = await certificate(tmp_path, "first")
    async with serving(tls_cert=cert, tls_key=key) as server:
        assert server.url.startswith("wss://127.0.0.1:")
        async with connect(
            server.url, subprotocols=[Subprotocol(PROTOCOL)], ssl=trusting(cert), **DIRECT
        ) as client:
            assert json.loads(await client.recv())["type"] == "session.created"
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"200" not in await reader.read()
        writer.close()


@pytest.mark.network
async def test_our_client_trusts_whom_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = await certificate(tmp_path, "first")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    async with serving(tls_cert=cert, tls_key=key) as server:
        with pytest.raises(ConnectionLost, match="not trusted") as unknown:
            await SpeechClient.connect(server.url)
        assert "SSL_CERT_FILE" in unknown.value.remedy
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        async with await SpeechClient.connect(server.url) as client:
            assert client.session.voices
    async with serving() as plain:
        with pytest.raises(ConnectionLost, match="TLS") as error:
            await SpeechClient.connect(plain.url.replace("ws:", "wss:"))
        assert "ws://" in error.value.remedy


@pytest.mark.network
async def test_who_does_not_agree_upon_tls_is_given_up(tmp_path: Path) -> None:
    cert, key = await certificate(tmp_path, "first")
    async with serving(tls_cert=cert, tls_key=key, head_timeout_s=0.05) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await reader.read() == b""
        writer.close()


@pytest.mark.network
async def test_an_old_version_of_tls_is_refused(tmp_path: Path) -> None:
    cert, key = await certificate(tmp_path, "first")
    async with serving(tls_cert=cert, tls_key=key, tls_min="1.3") as server:
        old = trusting(cert)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await subject(server, old)
        assert await subject(server, trusting(cert)) == "first"


@pytest.mark.network
async def test_a_renewed_certificate_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    live = live_files(authority)
    trusted = trusting(authority.file)
    async with serving(tls_cert=live.certificate, tls_key=live.key) as server:
        take(authority.sign("second", "127.0.0.1", "localhost"), live)
        with caplog.at_level(logging.INFO):
            server.reload()
        assert await subject(server, trusted) == "second"
        assert await subject(server, trusted, server_hostname="localhost") == "second"
    assert "read again" in caplog.text


def half(path: Path) -> None:
    """As it is found while somebody writes it."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def spoil(how: str, live: Pair, new: Pair) -> None:
    """Leave files that cannot be used where the live ones were."""
    match how:
        case "a certificate without its key":
            new.certificate.replace(live.certificate)
        case "a key without its certificate":
            new.key.replace(live.key)
        case "no key in the file":
            live.key.write_text("broken")
        case "no file":
            live.key.unlink()
        case _:
            take(new, live)
    match how:
        case "half a key":
            half(live.key)
        case "half a certificate":
            half(live.certificate)
        case "a key that all may read":
            live.key.chmod(0o604)


@pytest.mark.network
@pytest.mark.parametrize(
    "how",
    [
        *("a certificate without its key", "a key without its certificate", "half a key"),
        *("half a certificate", "no key in the file", "no file", "a key that all may read"),
    ],
)
async def test_a_reload_that_fails_keeps_the_old_certificate_for_new_connections(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    authority = Authority(tmp_path)
    live = live_files(authority)
    trusted = trusting(authority.file)
    async with serving(tls_cert=live.certificate, tls_key=live.key) as server:
        spoil(how, live, authority.sign("second", "127.0.0.1"))
        server.reload()
        server.reload()
        assert await subject(server, trusted) == "live"
        take(authority.sign("third", "127.0.0.1"), live)
        server.reload()
        assert await subject(server, trusted) == "third"
    assert caplog.text.count("The old one is kept") == 2


@pytest.mark.network
@pytest.mark.parametrize(
    ("begins", "ends", "reason"),
    [(-9 * DAY, -DAY, "has expired"), (DAY, 9 * DAY, "is not valid before")],
)
async def test_a_certificate_out_of_its_dates_is_not_taken(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    begins: timedelta,
    ends: timedelta,
    reason: str,
) -> None:
    authority = Authority(tmp_path)
    live = live_files(authority)
    dated = authority.sign("dated", "127.0.0.1", begins=begins, ends=ends)
    with pytest.raises(BadRequest, match=reason):
        tls_of(AccessSettings(tls_cert=dated.certificate, tls_key=dated.key))
    async with serving(tls_cert=live.certificate, tls_key=live.key) as server:
        take(dated, live)
        server.reload()
        assert await subject(server, trusting(authority.file)) == "live"
    assert reason in caplog.text


@pytest.mark.parametrize("apart", [True, False], ids=["in a file of its own", "in the same file"])
def test_a_key_that_everybody_may_read_is_refused_unless_that_is_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, apart: bool
) -> None:
    live = live_files(Authority(tmp_path))
    if not apart:
        live.certificate.write_bytes(live.certificate.read_bytes() + live.key.read_bytes())
    held = live.key if apart else live.certificate
    files: dict[str, Any] = {"tls_cert": live.certificate, "tls_key": live.key if apart else None}
    held.chmod(0o644)
    with pytest.raises(BadRequest, match=r"everybody on this machine \(mode 0644\)") as error:
        tls_of(AccessSettings(**files))
    assert str(held) in error.value.message
    assert "chmod 600" in error.value.remedy
    assert "tls_key_world_readable" in error.value.remedy
    assert not caplog.text
    assert tls_of(AccessSettings(**files, tls_key_world_readable=True))
    assert f"{held} of TLS can be read by everybody" in caplog.text


def test_a_key_that_its_group_may_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = live_files(Authority(tmp_path))
    tls_of(AccessSettings(tls_cert=live.certificate, tls_key=live.key))
    assert not caplog.text
    live.key.chmod(0o440)
    tls_of(AccessSettings(tls_cert=live.certificate, tls_key=live.key))
    assert f"{live.key} of TLS can be read by its group (mode 0440)" in caplog.text


async def test_a_certificate_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    cert, key = await certificate(tmp_path, "first")
    _, other = await certificate(tmp_path, "second")
    (tmp_path / "broken").write_text("x")
    cert.chmod(0o600)
    (tmp_path / "broken").chmod(0o600)
    all_wrong: tuple[dict[str, Any], ...] = (
        {"tls_cert": tmp_path / "missing"},
        {"tls_cert": tmp_path / "broken"},
        {"tls_cert": cert},
        {"tls_cert": cert, "tls_key": other},
    )
    for wrong in all_wrong:
        with pytest.raises(BadRequest, match="cannot be used") as error:
            tls_of(AccessSettings(**wrong))
        assert "PEM" in error.value.remedy
    process = await asyncio.create_subprocess_exec(
        *("openssl", "ec", "-aes128", "-passout", "pass:word", "-in", str(key)),
        *("-out", str(tmp_path / "locked")),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 0
    with pytest.raises(BadRequest, match="password"):
        tls_of(AccessSettings(tls_cert=cert, tls_key=tmp_path / "locked"))


def test_without_a_certificate_there_is_no_tls() -> None:
    assert tls_of(AccessSettings()) is None
