"""The engine in front of a server with a certificate."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from qwen3tts_wire.errors import EngineUnavailable
from tests.conftest import require_program
from tests.engine.upstream.peers import OmniPeer, upstream
from tests.engine.upstream.speaking import heard, is_said

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of its own for 127.0.0.1, and its key, in one file."""
    require_program("openssl", "openssl")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=upstream", "-addext"),
            *("subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=60,
    )
    return folder


def peer(certificate: Path) -> OmniPeer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return OmniPeer(tls=context)


async def test_a_certificate_that_is_trusted_is_spoken_with(certificate: Path) -> None:
    trusted = str(certificate / "cert.pem")
    async with upstream(peer(certificate), tls_ca_file=trusted) as engine:
        assert is_said(await heard(engine))
        assert not engine.notes


async def test_a_certificate_that_nobody_knows_is_refused(certificate: Path) -> None:
    with pytest.raises(EngineUnavailable, match="not to be trusted") as caught:
        async with upstream(peer(certificate)):
            pass
    assert "tls_ca_file" in caught.value.remedy


async def test_whoever_does_not_look_is_told(certificate: Path) -> None:
    async with upstream(peer(certificate), tls_verify=False) as engine:
        assert is_said(await heard(engine))
        assert any("tls_verify" in note for note in engine.notes)


async def test_certificates_that_cannot_be_read_are_no_start(certificate: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"no-such\.pem"):
        async with upstream(peer(certificate), tls_ca_file="no-such.pem"):
            pass


async def test_the_key_may_lie_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("s3cret\n", "utf-8")
    plain = OmniPeer()
    async with upstream(plain, api_key_file=str(file)):
        assert plain.headers[0]["Authorization"] == "Bearer s3cret"


@pytest.mark.parametrize("content", [b"two words", b"\xff\xfe", "ключ".encode()])
async def test_a_file_without_a_key_is_no_start(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(EngineUnavailable, match="key") as caught:
        async with upstream(OmniPeer(), api_key_file=str(file)):
            pass
    assert "words" not in str(caught.value)
    assert caught.value.remedy
