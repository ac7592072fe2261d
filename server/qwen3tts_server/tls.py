"""TLS of the listener, replaceable while serving."""

from __future__ import annotations

import logging
import ssl
import time
from pathlib import Path

from qwen3tts_server.settings import AccessSettings
from qwen3tts_settings.key_files import certificate_fields, is_world_readable, readable_by_others
from qwen3tts_wire.errors import BadRequest

log = logging.getLogger(__name__)

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_REMEDY = (
    "server.access.tls_cert names the chain, tls_key its key, both PEM and without a password."
)


class ServerTls:
    """Listener context with a replaceable certificate.

    OpenSSL replaces a chain before it checks the key: files are read into a new context, used
    once valid.
    """

    def __init__(self, settings: AccessSettings) -> None:
        """Read the files.

        Raises:
            BadRequest: unreadable, mismatched, out of date, or the key is world-readable.
        """
        self._settings = settings
        self.context = self._current = _loaded(settings)
        self.context.sni_callback = self._choose

    def reload(self) -> None:
        self._current = _loaded(self._settings)

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        # OpenSSL calls it in every handshake, also for clients that name no host (RFC 6066
        # section 3).
        connection.context = self._current


def tls_of(settings: AccessSettings) -> ServerTls | None:
    """Return the settings' TLS or None; raises BadRequest."""
    return None if settings.tls_cert is None else ServerTls(settings)


def key_file(settings: AccessSettings) -> Path | None:
    """Return the file with the private key, or None."""
    return settings.tls_key or settings.tls_cert


def _loaded(settings: AccessSettings) -> ssl.SSLContext:
    _check_key_access(settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.tls_min]
    # Its cost is one handshake more; a client that renegotiates costs one after the other.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    certificate = settings.tls_cert
    assert certificate is not None
    calling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    calling.check_hostname = False
    try:
        # A key with a password would be asked for at the terminal.
        context.load_cert_chain(certificate, settings.tls_key, password=_no_password)
        fields = certificate_fields(context, calling, certificate)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        verified = getattr(error, "verify_message", None)
        reason = error.reason if isinstance(error, ssl.SSLError) else None
        reason_given = verified or reason or getattr(error, "strerror", None) or str(error)
        raise BadRequest(
            f"The TLS certificate {certificate} or its key cannot be used: {reason_given}.",
            remedy=_REMEDY,
        ) from error
    _check_dates(certificate, fields["notBefore"], fields["notAfter"])
    return context


def _check_key_access(settings: AccessSettings) -> None:
    key = key_file(settings)
    assert key is not None
    if is_world_readable(key) and not settings.tls_key_world_readable:
        raise BadRequest(
            f"The private key {key} of TLS can be read by {readable_by_others(key)}.",
            remedy=f"chmod 600 {key}, or set server.access.tls_key_world_readable where no one else"
            " uses this machine, as in a container.",
        )
    if who := readable_by_others(key):
        log.warning("the private key %s of TLS can be read by %s; chmod 600", key, who)


def _check_dates(certificate: Path, begins: str, ends: str) -> None:
    now = time.time()
    if now >= ssl.cert_time_to_seconds(ends):
        raise BadRequest(
            f"The TLS certificate {certificate} has expired ({ends}).", remedy="Renew it."
        )
    if now < ssl.cert_time_to_seconds(begins):
        raise BadRequest(
            f"The TLS certificate {certificate} is not valid before {begins}.",
            remedy="Check this machine's clock.",
        )


def _no_password() -> str:
    raise ValueError("the key has a password")
