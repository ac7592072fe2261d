"""Certificate for HTTPS: the user's own, or a persistent self-signed one.

Browsers give a microphone only to pages over HTTPS or of this machine. They warn once of a
self-signed certificate; its fingerprint is shown.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import ssl
import stat
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3tts_phone.errors import BadCertificate
from qwen3tts_settings.key_files import readable_by_others
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from cryptography import x509

logger = logging.getLogger(__name__)

FILE = "softphone.pem"
DAYS = 397
"""Browsers accept at most 398 days (CA/Browser Forum, ballot SC31)."""
RENEW_DAYS = 30


class MissingWebPackages(SpeechError):
    code = "missing_extra"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The softphone needs the Python package {name!r}, which is not installed.",
            remedy="Install it with: pip install 'mr_qwen3tts[webrtc]'",
        )


@dataclass(frozen=True, slots=True)
class Certificate:
    path: Path
    """PEM with the certificate and its key, or the certificate alone."""
    key: Path | None
    fingerprint: str
    """SHA-256 as browsers show it: ``AB:CD:…``."""
    own: bool = False

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.path, self.key)
        except OSError as error:  # ssl.SSLError is one
            raise _unusable(self.path, error) from error
        return context


def state_folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    root = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return root / "mr-qwen3tts"


def user_certificate(path: Path, key: Path | None) -> Certificate:
    found = _read(path)
    now = datetime.now(UTC)
    if now > found.not_valid_after_utc:
        raise BadCertificate(
            f"The certificate {path.name} expired on {found.not_valid_after_utc:%Y-%m-%d}.",
            remedy="Renew it, or leave --certificate out: then one is made that is signed by"
            " itself.",
        )
    certificate = Certificate(path, key, _fingerprint_of(found), own=True)
    certificate.context()
    if who := readable_by_others(key or path):
        logger.warning("the private key %s can be read by %s; chmod 600", key or path, who)
    return certificate


def self_signed_certificate(
    hosts: Iterable[str], folder: Path | None = None, now: datetime | None = None
) -> Certificate:
    """Return the kept certificate of these hosts, or a new one.

    ``folder``: None = the user's state folder. Raises MissingWebPackages, BadCertificate.
    """
    now = now or datetime.now(UTC)
    folder = folder or state_folder()
    wanted = sorted({each.lower() for each in hosts if each})
    path = folder / FILE
    found = _kept(path)
    if found is None or not _good(found, wanted, now):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(path, _made(wanted, now))
        except OSError as error:
            raise BadCertificate(
                f"The certificate cannot be kept in {folder}: {error.strerror or error}.",
                remedy="Let XDG_STATE_HOME name a folder that can be written, or give a certificate"
                " of your own with --certificate.",
            ) from error
        logger.info("a certificate was made for %s", ", ".join(wanted))
    return Certificate(path, None, _fingerprint_of(_read(path)))


def _kept(path: Path) -> x509.Certificate | None:
    try:
        from cryptography import x509
    except ModuleNotFoundError as error:
        raise MissingWebPackages(error.name or "cryptography") from None
    try:
        status = path.stat()
        if stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid != os.getuid():
            return None  # others may know its key
        data = path.read_bytes()
        found = x509.load_pem_x509_certificate(data)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
    except (OSError, ValueError):
        return None
    return found


def _good(found: x509.Certificate, wanted: list[str], now: datetime) -> bool:
    from cryptography import x509

    if not found.not_valid_before_utc <= now <= found.not_valid_after_utc - timedelta(RENEW_DAYS):
        return False
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    has = {each.lower() for each in names.get_values_for_type(x509.DNSName)}
    has |= {str(each).lower() for each in names.get_values_for_type(x509.IPAddress)}
    return set(wanted) <= has


def _made(hosts: list[str], now: datetime) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mr-qwen3tts softphone")])
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(DAYS))
        .add_extension(x509.SubjectAlternativeName([_san(each) for each in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8
    private = key.private_bytes(pem, plain, serialization.NoEncryption())
    return private + made.public_bytes(pem)


def _san(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".softphone-")  # 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _fingerprint_of(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives import hashes

    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def _read(path: Path) -> x509.Certificate:
    try:
        from cryptography import x509
    except ModuleNotFoundError as error:
        raise MissingWebPackages(error.name or "cryptography") from None
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: Exception) -> BadCertificate:
    return BadCertificate(
        f"The certificate {path.name} cannot be used: {type(error).__name__}.",
        remedy="Give the PEM files of a certificate with its chain and of its key.",
    )
