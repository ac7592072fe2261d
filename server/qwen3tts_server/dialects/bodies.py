"""Bodies of HTTP requests, read within bounds, and JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request

from qwen3tts_server.dialects.http_errors import BodyTooLarge, WrongContentType
from qwen3tts_wire.errors import BadRequest

MOST_PARTS = 20_000
"""Commas, colons and brackets in a JSON body. To read a mebibyte of small fields takes 50 ms, of
one string 1 ms, and everybody waits meanwhile."""
MOST_DIGITS = 40
"""Of a number that is kept whole; a longer one becomes the nearest float, which is quicker."""
THREAD_BYTES = 1 << 18
"""A body of so much and more is read on a thread; 16 MiB take 0.1 s."""
MOST_ESCAPES = 400_000
"""Backslashes in it: some programs write every slash of base64 as ``\\/``."""


async def chunks(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    """The body as it comes; BodyTooLarge as soon as it is known to be longer than ``most``."""
    refusal = BodyTooLarge(
        f"The body is longer than {most} bytes.", remedy="Send a shorter text or recording."
    )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise WrongContentType("The body is compressed.", remedy="Send it as it is.")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > most:
        raise refusal
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise refusal
        yield chunk


async def json_object(request: Request, most: int) -> dict[str, Any]:
    """The body as one JSON object.

    Raises:
        BodyTooLarge: longer than ``most`` bytes.
        WrongContentType: it does not say that it is JSON.
        BadRequest: it is none.
        ClientDisconnect: the client left before it was complete.
    """
    kind = _content_type(request)
    if kind and kind != "application/json" and not kind.endswith("+json"):
        raise WrongContentType(
            "The body is not announced as JSON.", remedy="Send Content-Type: application/json."
        )
    parts = [chunk async for chunk in chunks(request, most)]
    body = b"".join(parts)
    if len(body) < THREAD_BYTES:
        return parse_object(body)
    return await asyncio.to_thread(parse_object, body)


def parse_object(body: bytes) -> dict[str, Any]:
    """One JSON object of these bytes; BadRequest for anything else. Duplicate keys: the last."""
    intricate = sum(body.count(mark) for mark in (b",", b":", b"[", b"{")) > MOST_PARTS
    if intricate or body.count(b"\\") > MOST_ESCAPES:
        raise BadRequest("The body has too many parts.", remedy="Send the documented fields only.")
    try:
        value = json.loads(body.decode("utf-8"), parse_int=_number, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise BadRequest("The body is not UTF-8.", remedy="Send JSON in UTF-8.") from None
    except (ValueError, RecursionError):
        raise BadRequest(
            "The body is not valid JSON.", remedy='Send an object: {"input": "..."}.'
        ) from None
    if not isinstance(value, dict):
        raise BadRequest(
            "The body is not a JSON object.", remedy='Send an object: {"input": "..."}.'
        )
    return value


def _number(text: str) -> int | float:
    return int(text) if len(text) <= MOST_DIGITS else float(text)


def _no_constant(_: str) -> float:
    raise ValueError("NaN and Infinity are not JSON")


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
