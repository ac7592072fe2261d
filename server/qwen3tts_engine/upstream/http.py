"""HTTP to an upstream server: the key, TLS, bounded answers."""

from __future__ import annotations

import asyncio
import os
import ssl
from dataclasses import dataclass
from pathlib import Path

import httpx

from qwen3tts_engine.upstream.faults import AGAIN, Stalled, Unreachable, garbage
from qwen3tts_engine.upstream.settings import UpstreamSettings
from qwen3tts_wire.errors import EngineFailed, EngineUnavailable, SpeechError

MAX_REFUSAL = 65_536
"""Bytes that are read of an answer that is no speech."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer that was read whole."""

    status: int
    content_type: str
    body: bytes


def api_key(settings: UpstreamSettings) -> str:
    """The key, from wherever it was put; empty: none.

    Raises:
        EngineUnavailable: its file cannot be read, or it is no key.
    """
    key = settings.api_key
    if not key and settings.api_key_file:
        try:
            key = Path(settings.api_key_file).read_text("utf-8")
        except (OSError, UnicodeError) as error:
            raise EngineUnavailable(
                f"The upstream server's key cannot be read from {settings.api_key_file}.",
                remedy="Check upstream.api_key_file and who may read it.",
            ) from error
    key = (key or os.environ.get(settings.api_key_env, "")).strip()
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise EngineUnavailable(
            "The upstream server's key holds characters that no header can carry.",
            remedy="Check upstream.api_key_file: one line, the key alone.",
        )
    return key


def tls(settings: UpstreamSettings) -> ssl.SSLContext:
    """What is trusted.

    Raises:
        EngineUnavailable: the file of certificates cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise EngineUnavailable(
            f"No certificates can be read from {settings.tls_ca_file}.",
            remedy="Check upstream.tls_ca_file: certificates in PEM form.",
        ) from error
    if not settings.tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def make_client(settings: UpstreamSettings, key: str, context: ssl.SSLContext) -> httpx.AsyncClient:
    """A client that goes to the server itself: no proxy of the environment, no redirect."""
    # Without compression an answer is no larger than its bytes.
    headers = {"Accept-Encoding": "identity"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return httpx.AsyncClient(
        headers=headers,
        verify=context,
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(None, connect=settings.connect_timeout_s),
        limits=httpx.Limits(
            max_connections=None,
            max_keepalive_connections=settings.max_idle,
            keepalive_expiry=settings.idle_s,
        ),
    )


async def get(client: httpx.AsyncClient, url: str, *, within_s: float, most: int) -> Answer:
    """Read one address.

    Raises:
        Unreachable: nothing answers there.
        Stalled: the answer took too long.
        EngineFailed: it broke off, or is longer than ``most`` bytes.
    """
    try:
        async with asyncio.timeout(within_s), client.stream("GET", url) as response:
            body = await bounded(response, most)
            return Answer(response.status_code, content_type(response), body)
    except TimeoutError as error:
        raise Stalled(f"The upstream server did not answer in {within_s:g} s.") from error
    except httpx.HTTPError as error:
        raise fault(error) from error


async def bounded(response: httpx.Response, most: int) -> bytes:
    """The body.

    Raises:
        EngineFailed: it is longer than ``most`` bytes.
    """
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > most:
            raise garbage(f"an answer of more than {most} bytes")
    return bytes(body)


async def beginning(response: httpx.Response, most: int = MAX_REFUSAL) -> bytes:
    """The body as far as ``most`` bytes."""
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) >= most:
            break
    return bytes(body[:most])


def content_type(response: httpx.Response) -> str:
    """As it was sent; empty where it was not."""
    return str(response.headers.get("content-type", ""))


def fault(error: httpx.HTTPError) -> SpeechError:
    """What kept HTTP from working."""
    if isinstance(error, httpx.ConnectError) and _certificate(error):
        return bad_certificate()
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
        return unreachable()
    if isinstance(error, httpx.TimeoutException):
        return Stalled("The upstream server did not answer in time.", remedy=AGAIN)
    if isinstance(error, httpx.RemoteProtocolError) and "disconnect" not in f"{error}".lower():
        return EngineFailed(
            "The upstream server hung up in the middle of its answer, or does not speak HTTP.",
            remedy=AGAIN,
        )
    return EngineFailed("The connection to the upstream server broke.", remedy=AGAIN)


def unreachable() -> Unreachable:
    """Nothing answers."""
    return Unreachable(
        "The upstream server does not answer.",
        remedy="Check that it runs, and upstream.url; then try again.",
    )


def bad_certificate() -> EngineUnavailable:
    """TLS failed."""
    return EngineUnavailable(
        "The upstream server's certificate is not to be trusted.",
        remedy="Name its authority in upstream.tls_ca_file, or correct upstream.url.",
    )


def _certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
