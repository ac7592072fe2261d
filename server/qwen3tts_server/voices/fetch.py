"""Download of references, protected against SSRF."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import re
import socket
import ssl
import urllib.parse
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import h11

from qwen3tts_server.settings import VoiceSettings
from qwen3tts_server.voices.reference import too_large
from qwen3tts_wire.addresses import is_public
from qwen3tts_wire.errors import BadRequest

_HOST = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")


@dataclass(frozen=True, slots=True)
class Target:
    secure: bool
    host: str
    """Name, or address without brackets."""
    port: int
    path: str
    """With query."""

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def target_of(url: str, settings: VoiceSettings) -> Target:
    try:
        parts = urllib.parse.urlsplit(url)
        secure = parts.scheme.lower() == "https"
        port = parts.port if parts.port is not None else (443 if secure else 80)
        host = (parts.hostname or "").rstrip(".")
        named = "@" in parts.netloc
    except ValueError:
        raise _no_address() from None
    if parts.scheme.lower() not in ("http", "https") or named or not url.isascii():
        raise _no_address()
    if not (_is_ip(host) or (len(host) <= 253 and _HOST.fullmatch(host))):
        raise _no_address()
    if port not in settings.fetch_ports:
        raise BadRequest(
            f"The reference's address has the port {port}.",
            remedy=f"Ports that are asked: {', '.join(map(str, settings.fetch_ports))}.",
        )
    if settings.fetch_hosts and not any(_fits(host, rule) for rule in settings.fetch_hosts):
        raise BadRequest(
            "This server does not fetch from the reference's host.",
            remedy="Send the sound file itself, or add the host to voices.fetch_hosts.",
        )
    path = urllib.parse.quote(parts.path or "/", safe="/%:@!$&'()*+,;=-._~")
    query = urllib.parse.quote(parts.query, safe="/?%:@!$&'()*+,;=-._~")
    return Target(secure, host, port, f"{path}?{query}" if query else path)


def redirected(url: str, location: str) -> str:
    """Return a redirect's target; BadRequest for none, or from secure to insecure."""
    try:
        joined = urllib.parse.urljoin(url, location)
    except ValueError:
        raise _no_address() from None
    if url.lower().startswith("https:") and not joined.lower().startswith("https:"):
        raise BadRequest(
            "The reference's address leads to one that is not secure.",
            remedy="Give the address of the sound file itself.",
        )
    return joined


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _fits(host: str, rule: str) -> bool:
    rule = rule.lower().rstrip(".")
    if rule.startswith("*."):
        return host.endswith(rule[1:])
    return host == rule


def _no_address() -> BadRequest:
    return BadRequest(
        "The reference's address cannot be used.",
        remedy="Write https://HOST/PATH, without a user's name, in plain ASCII.",
    )


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""IP addresses of host and port."""
Dial = Callable[[str, Target], Awaitable[Streams]]
"""Connection to an IP address, encrypted as the target says."""

HEADERS_MAX = 32 * 1024
"""Bytes before the content."""
_REDIRECTS = (301, 302, 303, 307, 308)
_NAMES = ThreadPoolExecutor(4, thread_name_prefix="voice names")
"""Threads of the system's resolver, apart from the event loop's."""
_TLS = ssl.create_default_context()
_TLS.minimum_version = ssl.TLSVersion.TLSv1_2


async def resolve(host: str, port: int) -> Sequence[str]:
    ask = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_NAMES, ask)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


async def dial(address: str, target: Target) -> Streams:
    return await asyncio.open_connection(
        address,
        target.port,
        ssl=_TLS if target.secure else None,
        server_hostname=target.host if target.secure else None,
        limit=1 << 16,
    )


class Fetcher:
    def __init__(
        self, settings: VoiceSettings, *, resolve: Resolve = resolve, dial: Dial = dial
    ) -> None:
        self._settings = settings
        self._resolve = resolve
        self._dial = dial

    async def fetch(self, url: str) -> bytes:
        settings = self._settings
        if not settings.fetch:
            raise BadRequest(
                "This server fetches no references from the web.",
                remedy="Send the sound file itself, as base64 or as a data: address; or set"
                " voices.fetch.",
            )
        try:
            async with asyncio.timeout(settings.fetch_timeout_s):
                for _ in range(settings.fetch_redirects + 1):
                    answer = await self._ask(target_of(url, settings))
                    if isinstance(answer, bytes):
                        return answer
                    url = redirected(url, answer)
        except TimeoutError:
            raise BadRequest(
                f"The reference did not arrive within {settings.fetch_timeout_s:g} s.",
                remedy="Send the sound file itself.",
            ) from None
        except ssl.SSLError:
            raise _failed("it has no valid certificate, or does not speak TLS") from None
        except OSError as error:
            raise _failed(f"it cannot be reached ({type(error).__name__})") from None
        except h11.RemoteProtocolError:
            raise _failed("its answer is no HTTP") from None
        raise _failed(f"it redirects more than {settings.fetch_redirects} times")

    async def _ask(self, target: Target) -> bytes | str:
        addresses = await self._resolve(target.host, target.port)
        # One that is not public makes all of them suspect.
        if not addresses or not all(map(is_public, addresses)):
            raise BadRequest(
                "The reference's host has no public address.",
                remedy="Send the sound file itself; private networks are never asked.",
            )
        reader, writer = await self._connected(addresses, target)
        try:
            line = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEADERS_MAX)
            headers = [
                ("Host", target.authority),
                ("Accept", "audio/*, application/octet-stream;q=0.9, */*;q=0.1"),
                ("Accept-Encoding", "identity"),
                ("User-Agent", "mr-qwen3tts"),
                ("Connection", "close"),
            ]
            request = h11.Request(method="GET", target=target.path, headers=headers)
            writer.write((line.send(request) or b"") + (line.send(h11.EndOfMessage()) or b""))
            await writer.drain()
            return await self._answer(line, reader)
        finally:
            # Not to wait for one who does not close.
            writer.transport.abort()

    async def _connected(self, addresses: Sequence[str], target: Target) -> Streams:
        for address in addresses[:-1]:
            with contextlib.suppress(OSError):
                return await self._dial(address, target)
        return await self._dial(addresses[-1], target)

    async def _answer(self, line: h11.Connection, reader: asyncio.StreamReader) -> bytes | str:
        most = self._settings.max_bytes
        content = bytearray()
        seen = 0
        while True:
            event = line.next_event()
            if event is h11.NEED_DATA:
                data = await reader.read(1 << 16)
                seen += len(data)
                if seen > most + 16 * HEADERS_MAX:
                    # More than what it says can be: interim answers, chunks of nothing.
                    raise too_large(most)
                line.receive_data(data)
            elif isinstance(event, h11.Response):
                location = _checked(event, most)
                if location is not None:
                    return location
            elif isinstance(event, h11.Data):
                content += event.data
                if len(content) > most:
                    raise too_large(most)
            elif isinstance(event, h11.EndOfMessage):
                if not content:
                    raise _failed("it is empty")
                return bytes(content)
            elif not isinstance(event, h11.InformationalResponse):
                raise _failed("its answer is no HTTP")


def _checked(answer: h11.Response, most: int) -> str | None:
    headers = dict(answer.headers)
    if answer.status_code in _REDIRECTS and b"location" in headers:
        return headers[b"location"].decode("ascii", "replace")
    if answer.status_code != 200:
        raise _failed(f"it answered with status {answer.status_code}")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise _failed("its content is compressed")
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:20]) > most:
        raise too_large(most)
    return None


def _failed(reason: str) -> BadRequest:
    return BadRequest(
        f"The reference could not be fetched: {reason}.", remedy="Send the sound file itself."
    )
