"""Speech server addresses: validation, dial errors, API keys."""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect

from qwen3tts_wire.errors import BadRequest, ConnectionLost, ProtocolError, ServerBusy, SpeechError

HEAD_START_S = 0.25
"""Delay before the next address is dialled too: a vanished machine does not refuse."""

T = TypeVar("T")


async def first_connected(
    addresses: Sequence[str],
    dial: Callable[[str], Awaitable[T]],
    leave: Callable[[T], Awaitable[None]],
    *,
    head_start_s: float = HEAD_START_S,
) -> T:
    """Dial addresses in order until one answers; the next follows after ``head_start_s``.

    ``leave`` closes a connection that came too late.

    Raises:
        SpeechError: the first address's, when none answers.
    """
    dials: dict[asyncio.Task[T], str] = {}
    left = list(addresses)
    failures: dict[str, SpeechError] = {}
    found: asyncio.Task[T] | None = None

    async def dialled(url: str) -> T:
        return await dial(url)

    try:
        while True:
            if left:
                url = left.pop(0)
                dials[asyncio.create_task(dialled(url), name=f"dial {url}")] = url
            if not dials:
                raise failures[addresses[0]]
            done, _ = await asyncio.wait(
                dials,
                timeout=head_start_s if left else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for each in sorted(done, key=lambda task: addresses.index(dials[task])):
                url, failure = dials[each], each.exception()
                if failure is None:
                    found = each
                    return each.result()
                del dials[each]
                if not isinstance(failure, SpeechError):
                    raise failure
                failures[url] = failure
    finally:
        late = [each for each in dials if each is not found]
        for each in late:
            each.cancel()
        for answer in await asyncio.gather(*late, return_exceptions=True):
            if not isinstance(answer, BaseException):
                await leave(answer)


API_KEY_ENV = "QWEN3TTS_API_KEY"
"""Client's key; a server's own are in ``QWEN3TTS_API_KEYS``."""

_own_keys: dict[str, str] = {}
"""Keys of servers started by this process, by address."""


def know_key(url: str, key: str) -> None:
    """Use ``key`` for the server at ``url`` in this process; empty: no longer."""
    if key:
        _own_keys[url] = key
    else:
        _own_keys.pop(url, None)


def key_for(url: str) -> str | None:
    """Return the key for ``url``: of ``know_key``, else the environment's."""
    return _own_keys.get(url) or os.environ.get(API_KEY_ENV)


def check_address(url: str) -> None:
    """Raise BadRequest for an invalid server address."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that there is not
        good = False
    if not good:
        raise BadRequest(
            f"{url!r} is not the address of a speech server.",
            remedy="It looks like ws://127.0.0.1:8765/v1/speech.",
        )


def frame_log() -> logging.Logger:
    client = logging.getLogger("qwen3tts_wire.client")
    frames = client.getChild("frames")
    frames.setLevel(max(logging.INFO, client.getEffectiveLevel()))
    return frames


def close_error(socket: ClientConnection) -> SpeechError:
    """Return a server's close as an error."""
    code, reason = socket.close_code, socket.close_reason or ""
    said = f" ({code} {reason})".rstrip() if code not in (None, 1005, 1006) else ""
    if code == 1013:
        return ServerBusy(f"The server takes no connection now{said}.", remedy="Try again later.")
    if code == 1002:
        return ProtocolError(f"The server refused the protocol{said}.")
    if code == 1012:
        return ConnectionLost(f"The server is stopping{said}.", remedy="Connect again.")
    return ConnectionLost(
        f"The connection to the server is lost{said}.", remedy="Check the server and connect again."
    )


def key_headers(api_key: str | None) -> dict[str, str]:
    """Return a key's headers; raises BadRequest."""
    if not api_key:
        return {}
    if not all("!" <= char <= "~" for char in api_key):
        raise BadRequest(
            "The API key holds something else than visible ASCII characters.",
            remedy=f"Check it, and the environment's {API_KEY_ENV}.",
        )
    return {"Authorization": f"Bearer {api_key}"}


def handshake_error(url: str, status: int) -> SpeechError:
    """Return the error of a failed WebSocket handshake."""
    if status == 401:
        return BadRequest(
            f"{url} asks for an API key, or for another one.",
            remedy=f"Put one of the server's keys into the environment's {API_KEY_ENV}.",
        )
    if status in (429, 503):
        return ServerBusy(f"{url} answered HTTP {status}.", remedy="Try again later.")
    return ProtocolError(
        f"{url} answered HTTP {status}, not as a speech server.",
        remedy="Check host, port and path; the path is /v1/speech.",
    )


def tls_error(url: str, error: ssl.SSLError) -> SpeechError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConnectionLost(
            f"The certificate at {url} is not trusted: {error.verify_message}.",
            remedy="Name the certificate of who signed it in the environment's SSL_CERT_FILE, or"
            " write the host as the certificate has it.",
        )
    return ConnectionLost(
        f"What answers at {url} does not speak TLS as this client does ({error.reason}).",
        remedy="Without TLS an address begins with ws://.",
    )


# websockets 15 and later would take a proxy from the environment.
DIRECT: dict[str, Any] = {"proxy": None} if "proxy" in inspect.signature(connect).parameters else {}
"""Options of a connection without proxies."""


_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NEVER = tuple(
    map(
        ipaddress.ip_network,
        (
            "100.64.0.0/10",  # behind a carrier's translation
            "168.63.129.16/32",  # a cloud's metadata, at a public address
            "192.0.0.0/24",  # protocols, and another cloud's metadata
            "192.88.99.0/24",  # relays into 6to4
            "198.18.0.0/15",  # benchmarks
            "64:ff9b:1::/48",  # local translation into IPv4
            "100::/64",
            "2001:db8::/32",
            "3fff::/20",
            "5f00::/16",
            "fec0::/10",  # sites
        ),
    )
)
"""Some are global in older standard libraries."""


def is_public(address: str) -> bool:
    """Return whether an IP address is public.

    Not public: this machine, private networks, links, multicast, cloud metadata, and these
    within IPv6.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.scope_id is not None:
            return False
        within = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
        if ip in _NAT64:
            within.append(ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF))
        # The first 96 bits 0: addresses of IPv4 in a form that is used no more.
        if int(ip) >> 32 == 0:
            return False
        if not all(is_public(str(each)) for each in within if each is not None):
            return False
        if ip.ipv4_mapped is not None or ip in _NAT64:
            return True
    return (
        ip.is_global
        and not ip.is_multicast
        and not ip.is_reserved
        and not ip.is_unspecified
        and not any(ip in each for each in _NEVER if each.version == ip.version)
    )
