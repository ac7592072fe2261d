"""Files of keys and certificates that settings name: who may read them, and when they are valid."""

from __future__ import annotations

import contextlib
import ssl
import stat
from pathlib import Path
from typing import Any

X509_NO_CHECK_TIME = 0x200000
"""Flag of OpenSSL: the caller compares the dates, so that it can name them."""
MAX_FLIGHTS = 8
"""Flights of a TLS handshake; TLS 1.2 has four."""


def readable_by_others(path: Path) -> str:
    """Return who besides its owner may read a file, with its mode; empty: only the owner."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except (OSError, ValueError):
        return ""
    if mode & stat.S_IROTH:
        return f"everybody on this machine (mode {mode:04o})"
    return f"its group (mode {mode:04o})" if mode & stat.S_IRGRP else ""


def is_world_readable(path: Path) -> bool:
    """Return whether every user of the machine may read a file; False where there is no file."""
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
    """Shake hands in memory and return the peer certificate's fields (``SSLSocket.getpeercert``).

    Dates are not checked.

    Args:
        serving: context of the server; its chain is loaded where ``of_server``.
        calling: context of the client, without a check of the host name; likewise.
        certificate: PEM file of the chain; it is its own trust anchor here.
        of_server: whether the server's certificate is meant, else the client's.

    Raises:
        ssl.SSLError: the chain cannot be used; ValueError: OpenSSL could not read a field.
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
