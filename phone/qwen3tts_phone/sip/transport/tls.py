"""Certificates for SIP over TLS, checked before binding.

Inspected by an in-memory handshake, as peers will see them.
"""

from __future__ import annotations

import ipaddress
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen3tts_phone.errors import BadCertificate, CalleeUnreachable, CallError
from qwen3tts_phone.sip.core.settings import TlsSettings
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_settings.key_files import certificate_fields, readable_by_others

DAY_S = 24 * 3600.0
SOON_S = 14 * DAY_S
"""A certificate that ends within this is warned of."""

X509_EXPIRED, X509_NOT_YET = 10, 9
X509_UNKNOWN_ISSUER = {2, 18, 19, 20, 21}
X509_WRONG_NAME = {62, 64}
"""X509_V_ERR_...

of OpenSSL: expired, not yet valid, issuer unknown (20, 21, 2) or self-signed (18, 19), wrong host
name or IP address.
"""

MAX_FILE_BYTES = 1 << 20
_WANTS_OURS = ("CERTIFICATE_REQUIRED", "UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN")


@dataclass(frozen=True, slots=True)
class TlsContexts:
    server: ssl.SSLContext | None
    """None without a certificate to listen with."""
    client: ssl.SSLContext
    warnings: tuple[str, ...] = ()


def check_certificates(
    tls: TlsSettings, hosts: Iterable[str] = (), *, now_wall: float | None = None
) -> tuple[str, ...]:
    """Check all files; return warnings. Raises BadCertificate.

    ``hosts``: advertised names; ``now_wall``: seconds since 1970, for tests.
    """
    return load_contexts(tls, hosts, now_wall=now_wall).warnings


def load_contexts(
    tls: TlsSettings, hosts: Iterable[str] = (), *, now_wall: float | None = None
) -> TlsContexts:
    now = time.time() if now_wall is None else now_wall
    warnings: list[str] = []
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.ca:
        _trust(client, Path(tls.ca))
    else:
        client.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if not tls.verify:
        client.check_hostname = False
        client.verify_mode = ssl.CERT_NONE
        warnings.append("tls.verify is off: any certificate at a server's address is accepted.")
    if tls.client_certificate:
        shown = (tls.client_certificate, tls.client_key)
        _load(client, *shown, tls.key_password)
        warnings += _look(*shown, tls.key_password, now, of_server=False)
    server: ssl.SSLContext | None = None
    if tls.listens:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.minimum_version = ssl.TLSVersion.TLSv1_2
        ours = (tls.certificate, tls.key, tls.key_password)
        _load(server, *ours)
        warnings += _look(*ours, now, of_server=True, hosts=hosts)
        if not tls.client_certificate:
            _load(client, *ours)
        if tls.require_client_certificate:
            server.verify_mode = ssl.CERT_REQUIRED
            _trust(server, Path(tls.ca))
    return TlsContexts(server, client, tuple(dict.fromkeys(warnings)))


def handshake_error(error: ssl.SSLError, hop: Hop) -> CallError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _untrusted(error, hop)
    reason = (error.reason or "").upper()
    if any(word in reason for word in _WANTS_OURS):
        return BadCertificate(
            f"{hop.words} does not take our certificate, or wants one ({_plain(reason)}).",
            remedy="Give one of an authority that it trusts (tls.client_certificate).",
        )
    if "WRONG_VERSION_NUMBER" in reason or "HTTP_REQUEST" in reason or "RECORD" in reason:
        return CalleeUnreachable(
            f"{hop.words} does not speak TLS.",
            remedy="Check its port (5061 is usual), or use transport=tcp.",
            why="tls",
        )
    return CalleeUnreachable(
        f"The TLS connection to {hop.words} failed ({_plain(reason) or 'closed'}).",
        remedy="Check that both ends share a version of TLS (1.2 or later) and a cipher.",
        why="tls",
    )


def names_cover_host(names: Iterable[tuple[str, str]], host: str) -> bool:
    """Return whether (kind, name) pairs cover a host; ``*.`` is one label."""
    host = host.strip("[]").rstrip(".").lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        dns = [name.rstrip(".").lower() for kind, name in names if kind == "DNS"]
        return host in dns or f"*.{host.partition('.')[2]}" in dns
    return any(kind == "IP Address" and _same_ip(name, address) for kind, name in names)


def _same_ip(name: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return ipaddress.ip_address(name.strip()) == address
    except ValueError:
        return False


def _untrusted(error: ssl.SSLCertVerificationError, hop: Hop) -> BadCertificate:
    code = error.verify_code
    if code == X509_EXPIRED:
        remedy = "The server's operator must renew it; check this machine's clock as well."
    elif code == X509_NOT_YET:
        remedy = "Check this machine's clock."
    elif code in X509_WRONG_NAME:
        remedy = "Use the name on its certificate, or ask for one with this name."
    elif code in X509_UNKNOWN_ISSUER:
        remedy = "Give the authority that signed it (tls.ca)."
    else:
        remedy = "Ask the server's operator."
    reason = error.verify_message or "not verified"
    return BadCertificate(
        f"The certificate of {hop.words} is not trusted: {reason.rstrip('.')}.", remedy=remedy
    )


def _read(path: Path, what: str, marker: bytes) -> None:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        raise BadCertificate(
            f"{what} {str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}.",
            remedy="Check the path and who may read it.",
        ) from error
    if marker not in data:
        raise BadCertificate(
            f"{what} {str(path)!r} is not there: the file holds none in PEM.",
            remedy="Convert it: openssl x509 -inform der -in FILE -out FILE.pem."
            if b"CERTIFICATE" in marker
            else "Give the file with BEGIN PRIVATE KEY.",
        )


def _trust(context: ssl.SSLContext, path: Path) -> None:
    _read(path, "The authority's certificate (tls.ca)", b"-----BEGIN CERTIFICATE-----")
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise BadCertificate(
            f"The authority's certificate {str(path)!r} is damaged ({_plain(error.reason or '')}).",
            remedy="Get the file again.",
        ) from error


def _load(context: ssl.SSLContext, certificate: str | Path, key: str | Path, password: str) -> None:
    key = key or certificate
    _read(Path(certificate), "The certificate", b"-----BEGIN CERTIFICATE-----")
    _read(Path(key), "The private key", b"PRIVATE KEY-----")
    asked = False

    def give() -> str:
        nonlocal asked
        asked = True
        # Without this, OpenSSL would prompt on a terminal.
        return password

    try:
        context.load_cert_chain(certificate, key, password=give)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or ""
        if asked:
            raise BadCertificate(
                f"The private key {str(key)!r} is protected, and the password does not open it.",
                remedy="Give its password (tls.key_password), or a key without one.",
            ) from error
        if "VALUES_MISMATCH" in reason or "TYPE_MISMATCH" in reason:
            raise BadCertificate(
                f"The private key {str(key)!r} does not fit the certificate {str(certificate)!r}.",
                remedy="Give the key that the certificate was requested with; in a chain, our own "
                "certificate comes first.",
            ) from error
        raise BadCertificate(
            f"The certificate {str(certificate)!r} with the key {str(key)!r} cannot be used "
            f"({_plain(reason) or 'damaged'}).",
            remedy="Get the files again.",
        ) from error


def _look(
    certificate: str | Path,
    key: str | Path,
    password: str,
    now_wall: float,
    *,
    of_server: bool,
    hosts: Iterable[str] = (),
) -> list[str]:
    shown = repr(str(certificate))
    found = _decoded(certificate, key, password, of_server=of_server)
    ends = ssl.cert_time_to_seconds(found["notAfter"])
    if now_wall >= ends:
        raise BadCertificate(
            f"The certificate {shown} has expired ({found['notAfter']}).", remedy="Renew it."
        )
    if now_wall < ssl.cert_time_to_seconds(found["notBefore"]):
        raise BadCertificate(
            f"The certificate {shown} is not valid before {found['notBefore']}.",
            remedy="Check this machine's clock.",
        )
    warnings: list[str] = []
    if ends - now_wall < SOON_S:
        warnings.append(
            f"The certificate {shown} expires in {int((ends - now_wall) // DAY_S)} days."
        )
    names = found.get("subjectAltName", ())
    warnings += [
        f"The certificate {shown} does not bear the name {host!r} that we are called by; it names "
        f"{', '.join(name for _, name in names) or 'none'}."
        for host in hosts
        if not names_cover_host(names, host)
    ]
    secret = Path(key or certificate)
    if who := readable_by_others(secret):
        warnings.append(f"The private key {str(secret)!r} can be read by {who}; chmod 600.")
    return warnings


def _decoded(
    certificate: str | Path, key: str | Path, password: str, *, of_server: bool
) -> dict[str, Any]:
    # Return the fields of our certificate as the standard library gives those of a peer.
    # ``notBefore``, ``notAfter`` as text, ``subjectAltName`` as pairs of kind and name.
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    calling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    calling.check_hostname = False
    calling.verify_mode = ssl.CERT_NONE
    for context in (serving, calling):
        _load(context, certificate, key, password)
    try:
        fields = certificate_fields(serving, calling, certificate, of_server=of_server)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "verify_message", None) or _plain(getattr(error, "reason", ""))
        raise BadCertificate(
            f"The certificate {str(certificate)!r} cannot be used: {reason or 'damaged'}.",
            remedy=f"Ask for one for a TLS {'server' if of_server else 'client'}.",
        ) from error
    if not fields:
        raise BadCertificate(f"The certificate {str(certificate)!r} cannot be read.")
    return fields


def _plain(reason: str | None) -> str:
    return (reason or "").replace("_", " ").lower()
