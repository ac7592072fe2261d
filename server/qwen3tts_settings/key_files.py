"""Key and certificate files: permissions and validity."""

from __future__ import annotations

import contextlib
import ssl
import stat
from pathlib import Path
from typing import Any

X509_NO_CHECK_TIME = 0x200000
"""OpenSSL flag: the caller compares the dates, to name them."""
MAX_FLIGHTS = 8
"""TLS handshake flights; TLS 1.2 has four."""


def readable_by_others(path: Path) -> str:
    """Return the others who may read a file, with its mode; empty: only its owner."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except (OSError, ValueError):
        return ""
    if mode & stat.S_IROTH:
        return f"everybody on this machine (mode {mode:04o})"
    return f"its group (mode {mode:04o})" if mode & stat.S_IRGRP else ""


def is_world_readable(path: Path) -> bool:
    """Return whether every user may read a file; False without one."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except (OSError, ValueError):
        return False


def certificate_fields(
    serving: ssl.SSLContext,
    calling: ssl.SSLContext,
    certificate: str | Path,
    *,
    of_server: bool = True,
) -> dict[str, Any]:
    """Return the peer certificate's fields by an in-memory handshake.

    Dates are not checked (``SSLSocket.getpeercert``).

    Args:
        serving: server context; loads its chain if ``of_server``.
        calling: client context without host name check; likewise.
        certificate: PEM chain, its own trust anchor here.
        of_server: inspect the server's, else the client's.

    Raises:
        ssl.SSLError: unusable chain.
        ValueError: an unreadable field.
    """
    looking = calling if of_server else serving
    looking.verify_mode = ssl.CERT_REQUIRED
    looking.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VerifyFlags(X509_NO_CHECK_TIME)
    looking.load_verify_locations(cafile=certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = calling.wrap_bio(to_client, to_server)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(MAX_FLIGHTS):
        for end in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return dict((client if of_server else server).getpeercert() or {})
