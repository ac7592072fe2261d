"""HTTP to an upstream server, with its errors as ours."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from qwen3tts_engine.upstream.settings import UpstreamSettings
from qwen3tts_wire.errors import (
    BY_CODE,
    BadRequest,
    ConnectionLost,
    EngineFailed,
    EngineUnavailable,
    LimitExceeded,
    ProtocolError,
    ServerBusy,
    SpeechError,
    UnknownVoice,
)

MOST_CHARS = 300
"""Bound of a server's error message, characters."""
KEY = "Set its key: upstream.api_key_file, or the variable that upstream.api_key_env names."
AGAIN = "Try again; the upstream server's log has the reason."
_OURS = {
    code: kind for code, kind in BY_CODE.items() if kind not in (ConnectionLost, ProtocolError)
}
"""Error codes passed on from a server like ours; those of the line to it are ours."""
_THEIRS: dict[str, type[SpeechError]] = {
    "voice_not_found": UnknownVoice,
    "rate_limit_exceeded": ServerBusy,
    "insufficient_quota": ServerBusy,
    "invalid_api_key": EngineUnavailable,
    "model_not_found": EngineUnavailable,
}
_VOICE = re.compile(
    r"\b(voice|speaker)s?\b.*\b(unknown|invalid|unsupported|available|supported|exist|found)\b"
    r"|\b(unknown|invalid|unsupported|no such|not found)\b.*\b(voice|speaker)\b",
    re.IGNORECASE | re.DOTALL,
)
_SPACE = re.compile(r"\s+")


class Unreachable(EngineFailed): ...


class Stalled(EngineFailed):
    """It took too long; a retry would take as long again."""


def printable(message: object) -> str:
    if not isinstance(message, str):
        return ""
    # A message may be megabytes; more than this is not even looked at.
    text = _SPACE.sub(" ", message[: 4 * MOST_CHARS]).strip()
    text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return text if len(text) <= MOST_CHARS else f"{text[: MOST_CHARS - 1]}…"


def of_fields(error: Mapping[str, Any]) -> SpeechError:
    said = printable(error.get("message")) or "no reason given"
    code = error.get("code")
    name = code.lower() if isinstance(code, str) else ""
    kind = _OURS.get(name) or _THEIRS.get(name)
    if kind is None and (error.get("param") == "voice" or _VOICE.search(said)):
        kind = UnknownVoice
    if kind is None:
        kind = BadRequest if error.get("type") == "invalid_request_error" else EngineFailed
    return _made(kind, said, printable(error.get("remedy")))


def of_status(
    status: int, body: bytes, content_type: str = "", retry_after: str | None = None
) -> SpeechError:
    found = _fields(body, content_type)
    said = printable(found.get("message")) or f"HTTP {status}"
    kind: type[SpeechError]
    if status in (401, 403):
        kind = EngineUnavailable
        return kind(f"The upstream server refused the key: {said}", remedy=KEY)
    told = of_fields(found) if found else None
    if status in (429, 503):
        wait = printable(retry_after)
        remedy = f"Try again after {wait} s." if wait.isdigit() else "Try again later."
        return ServerBusy(_sentence(said), remedy=remedy)
    if status >= 500:
        kind = type(told) if isinstance(told, (EngineUnavailable, EngineFailed)) else EngineFailed
        return _made(kind, said)
    if told is not None and not isinstance(told, EngineFailed):
        return told
    if status == 404:
        return EngineUnavailable(
            _sentence(said), remedy="Check upstream.url and upstream.model against that server."
        )
    if status == 413:
        return _made(LimitExceeded, said)
    if status in (400, 409, 422):
        return _made(BadRequest, said)
    return EngineUnavailable(
        f"The upstream server answered HTTP {status}: {said}",
        remedy="Check that upstream.url is the address of a speech server.",
    )


def garbage(what: str) -> EngineFailed:
    return EngineFailed(
        f"The upstream server sent {what}.",
        remedy="Check that upstream.url names the protocol that the server speaks.",
    )


def _made(kind: type[SpeechError], said: str, remedy: str = "") -> SpeechError:
    usual = {
        EngineFailed: AGAIN,
        ServerBusy: "Try again later.",
        UnknownVoice: "Ask for the list of voices.",
    }
    return kind(_sentence(said), remedy=remedy or usual.get(kind, "Change the request."))


def _sentence(said: str) -> str:
    said = said if said.endswith((".", "!", "?", "…")) else f"{said}."
    return f"The upstream server says: {said}"


def _fields(body: bytes, content_type: str) -> dict[str, Any]:
    text = body.decode("utf-8", "replace")
    if "html" in content_type.lower() or text.lstrip()[:1] == "<":
        return {"message": "an HTML page, not an answer of a speech server"}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {"message": text} if text.strip() else {}
    if not isinstance(found, dict):
        return {"message": found} if isinstance(found, str) else {}
    inner = found.get("error")
    if isinstance(inner, dict):
        return inner
    for name in ("error", "message", "detail"):
        value = found.get(name)
        if isinstance(value, str):
            return {**found, "message": value}
        if isinstance(value, dict) and isinstance(value.get("message"), str):
            return value
        if isinstance(value, list):  # FastAPI's list of what is wrong with each field
            said = [
                f"{'.'.join(str(part) for part in each.get('loc', ())[-2:])}: {each['msg']}"
                for each in value[:3]
                if isinstance(each, dict)
                and isinstance(each.get("msg"), str)
                and isinstance(each.get("loc", ()), list)
            ]
            if said:
                return {"message": "; ".join(said)}
    return {}


MAX_REFUSAL = 65_536
"""Bytes that are read of an answer that is no speech."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    content_type: str
    body: bytes


def api_key(settings: UpstreamSettings) -> str:
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


async def get(client: httpx.AsyncClient, url: str, *, within_s: float, most: int) -> HttpAnswer:
    try:
        async with asyncio.timeout(within_s), client.stream("GET", url) as response:
            body = await bounded(response, most)
            return HttpAnswer(response.status_code, content_type(response), body)
    except TimeoutError as error:
        raise Stalled(f"The upstream server did not answer in {within_s:g} s.") from error
    except httpx.HTTPError as error:
        raise fault(error) from error


async def bounded(response: httpx.Response, most: int) -> bytes:
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > most:
            raise garbage(f"an answer of more than {most} bytes")
    return bytes(body)


async def beginning(response: httpx.Response, most: int = MAX_REFUSAL) -> bytes:
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) >= most:
            break
    return bytes(body[:most])


def content_type(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", ""))


def fault(error: httpx.HTTPError) -> SpeechError:
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
    return Unreachable(
        "The upstream server does not answer.",
        remedy="Check that it runs, and upstream.url; then try again.",
    )


def bad_certificate() -> EngineUnavailable:
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
