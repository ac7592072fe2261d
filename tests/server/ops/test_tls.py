"""TLS by settings."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets import Subprotocol
from websockets.asyncio.client import connect

from qwen3tts_server.access import AccessSettings
from qwen3tts_server.run import RunningServer, running_server
from qwen3tts_server.settings import ServerSettings
from qwen3tts_server.tls import tls_context
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.dialling import DIRECT
from qwen3tts_wire.errors import BadRequest, ConnectionLost
from qwen3tts_wire.messages import PROTOCOL
from tests.conftest import require_program
from tests.engine.fake_engine import FakeEngine


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


async def subject(server: RunningServer, context: ssl.SSLContext) -> Any:
    """Whose certificate the server shows."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
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
async def test_a_renewed_certificate_is_read_again_and_a_useless_one_is_not_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = await certificate(tmp_path, "first")
    (tmp_path / "keys").write_text("a-key")
    async with serving(tls_cert=cert, tls_key=key, api_key_file=tmp_path / "keys") as server:
        newer_cert, newer_key = await certificate(tmp_path, "second")
        newer_cert.replace(cert)
        newer_key.replace(key)
        with caplog.at_level(logging.INFO):
            server.reload()
            assert await subject(server, trusting(cert)) == "second"
            key.write_text("broken")
            server.reload()
        assert await subject(server, trusting(cert)) == "second"
    assert "The old one is kept" in caplog.text
    assert "read again" in caplog.text


async def test_a_certificate_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    cert, key = await certificate(tmp_path, "first")
    _, other = await certificate(tmp_path, "second")
    (tmp_path / "broken").write_text("x")
    all_wrong: tuple[dict[str, Any], ...] = (
        {"tls_cert": tmp_path / "missing"},
        {"tls_cert": tmp_path / "broken"},
        {"tls_cert": cert},
        {"tls_cert": cert, "tls_key": other},
    )
    for wrong in all_wrong:
        with pytest.raises(BadRequest, match="cannot be used") as error:
            tls_context(AccessSettings(**wrong))
        assert "PEM" in error.value.remedy
    process = await asyncio.create_subprocess_exec(
        *("openssl", "ec", "-aes128", "-passout", "pass:word", "-in", str(key)),
        *("-out", str(tmp_path / "locked")),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 0
    with pytest.raises(BadRequest, match="password"):
        tls_context(AccessSettings(tls_cert=cert, tls_key=tmp_path / "locked"))


def test_without_a_certificate_there_is_no_tls() -> None:
    assert tls_context(AccessSettings()) is None
