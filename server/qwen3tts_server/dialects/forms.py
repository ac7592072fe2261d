"""Forms with a file (``multipart/form-data``, RFC 7578), read within bounds, never to the disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from qwen3tts_server.dialects.bodies import chunks
from qwen3tts_server.dialects.http_errors import WrongContentType
from qwen3tts_wire.errors import BadRequest

FIELD_BYTES = 64 * 1024
"""Of one field that is no file."""
MOST_FIELDS = 16
MOST_FILES = 1
REMEDY = f"Send at most one file and {MOST_FIELDS} fields of {FIELD_BYTES} bytes, each named."


@dataclass(frozen=True)
class Form:
    """A form that was sent; of a field sent twice, the last."""

    fields: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


async def form(request: Request, most: int) -> Form:
    """The body as a form of at most ``most`` bytes.

    Raises:
        BodyTooLarge: longer than that.
        WrongContentType: it does not say that it is a form.
        BadRequest: it is none, or not complete.
        ClientDisconnect: the client left before it was complete.
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
    """What the parser finds."""

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
