"""TLS of the listening socket."""

from __future__ import annotations

import ssl

from qwen3tts_wire.errors import BadRequest

from .access import AccessSettings

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def tls_context(settings: AccessSettings) -> ssl.SSLContext | None:
    """What to speak TLS with; None where no certificate is set.

    Raises:
        BadRequest: certificate or key cannot be read, or do not belong together.
    """
    if settings.tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.tls_min]
    # Its cost is one handshake more; a client that renegotiates costs one after the other.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: AccessSettings) -> None:
    """Read certificate and key, again if need be: connections made from now on use them.

    Raises:
        BadRequest: certificate or key cannot be read, or do not belong together.
    """
    assert settings.tls_cert is not None
    try:
        # A key with a password would be asked for at the terminal.
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = error.reason if isinstance(error, ssl.SSLError) else None
        told = reason or getattr(error, "strerror", None) or str(error)
        raise BadRequest(
            f"The TLS certificate {settings.tls_cert} or its key cannot be used: {told}.",
            remedy="server.access.tls_cert names the chain, tls_key its key, both PEM and without"
            " a password.",
        ) from error


def _no_password() -> str:
    raise ValueError("the key has a password")
