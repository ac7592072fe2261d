"""HTTP bodies: JSON, forms, paced sending, HEAD."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qwen3tts_server.dialects.http_errors import BodyTooLarge, WrongContentType
from qwen3tts_wire.errors import BadRequest

MOST_PARTS = 20_000
"""Commas, colons and brackets of a JSON body: a mebibyte of small fields takes 50 ms of the event
loop, of one string 1 ms."""
MOST_DIGITS = 40
"""Longest integer; a longer number becomes a float, which is quicker."""
THREAD_BYTES = 1 << 18
"""Size parsed in a thread; 16 MiB take 0.1 s."""
MOST_ESCAPES = 400_000
"""Backslashes: some programs write base64's slash as ``\\/``."""


async def chunks(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    """Yield the body; BodyTooLarge beyond ``most``."""
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
    """Read the body as a JSON object.

    Raises:
        BodyTooLarge, WrongContentType, BadRequest, ClientDisconnect: not such a body.
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


FIELD_BYTES = 64 * 1024
"""Size of a field other than a file."""
MOST_FIELDS = 16
MOST_FILES = 1
REMEDY = f"Send at most one file and {MOST_FIELDS} fields of {FIELD_BYTES} bytes, each named."


@dataclass(frozen=True)
class Form:
    """Submitted form; the last duplicate counts."""

    fields: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


async def form(request: Request, most: int) -> Form:
    """Read a form of at most ``most`` bytes.

    Raises:
        BodyTooLarge, WrongContentType, BadRequest, ClientDisconnect: not such a body.
    """
    kind, options = parse_options_header(request.headers.get("content-type"))
    if kind != b"multipart/form-data":
        raise WrongContentType(
            "The body is not a form.", remedy="Send Content-Type: multipart/form-data."
        )
    boundary = options.get(b"boundary", b"")
    if not boundary:
        raise BadRequest("The form has no boundary.", remedy="Name it in the Content-Type.")
    reader = _Reader()
    try:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": reader.begin,
                "on_header_field": reader.header_name,
                "on_header_value": reader.header_value,
                "on_header_end": reader.header_end,
                "on_headers_finished": reader.headers_end,
                "on_part_data": reader.data,
                "on_part_end": reader.end,
                "on_end": reader.finish,
            },
        )
        async for chunk in chunks(request, most):
            parser.write(chunk)
    except FormParserError as error:
        raise BadRequest("The form cannot be read.", remedy=REMEDY) from error
    return reader.form()


class _Reader:
    def __init__(self) -> None:
        self._fields: dict[str, str] = {}
        self._files: dict[str, bytes] = {}
        self._parts = {True: 0, False: 0}
        """Files and fields so far."""
        self._complete = False
        self.begin()

    def begin(self) -> None:
        self._headers: dict[bytes, bytes] = {}
        self._name = self._value = b""
        self._field = ""
        self._is_file = False
        self._data = bytearray()

    def header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def headers_end(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        if b"name" not in options:
            raise BadRequest("A part of the form has no name.", remedy=REMEDY)
        self._field = _text(options[b"name"])
        self._is_file = b"filename" in options
        self._parts[self._is_file] += 1
        if self._parts[self._is_file] > (MOST_FILES if self._is_file else MOST_FIELDS):
            raise BadRequest("The form has too many parts.", remedy=REMEDY)

    def data(self, data: bytes, start: int, end: int) -> None:
        self._data += data[start:end]
        if not self._is_file and len(self._data) > FIELD_BYTES:
            raise BadRequest("A field of the form is too long.", remedy=REMEDY)

    def end(self) -> None:
        if self._is_file:
            self._files[self._field] = bytes(self._data)
        else:
            self._fields[self._field] = _text(bytes(self._data))

    def finish(self) -> None:
        self._complete = True

    def form(self) -> Form:
        if not self._complete:
            raise BadRequest("The form is cut off.", remedy="Send it to its last boundary.")
        return Form(self._fields, self._files)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise BadRequest("The form is not UTF-8.", remedy="Send its text in UTF-8.") from None


PIECE_BYTES = 1 << 16
"""Size of a message, to be read within the timeout."""


class ClientStalled(Exception):
    """The client does not read."""


class PacedSender:
    """Sender of an HTTP answer; an unfinished one is cut off visibly.

    Raises:
        ClientStalled: nothing was read for ``timeout_s`` seconds.
    """

    def __init__(self, send: Send, timeout_s: float) -> None:
        self._send = send
        self._timeout_s = timeout_s
        self.started = False
        """True once the status is sent."""

    async def start(self, content_type: str, headers: Mapping[str, str]) -> None:
        self.started = True
        fields = {"Content-Type": content_type, **headers}
        await self._put(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (name.lower().encode("latin-1"), value.encode("latin-1"))
                    for name, value in fields.items()
                ],
            }
        )

    async def body(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE_BYTES):
            piece = data[at : at + PIECE_BYTES]
            await self._put({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self) -> None:
        await self._put({"type": "http.response.body", "body": b"", "more_body": False})

    async def _put(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._send(message)
        except TimeoutError:
            raise ClientStalled from None


async def until_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    working = asyncio.create_task(work, name="answer a request")
    leaving = asyncio.create_task(_left(receive), name="wait for a client to go")
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class HeadAsGet:
    """ASGI middleware: HEAD as GET without body (RFC 9110 section 9.3.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET"}, receive, sending)
