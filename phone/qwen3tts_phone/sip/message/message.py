"""SIP messages, parsed and written.

``sipmessage`` knows header names, compact forms and multiple values. Bounds, folded lines, a
space before the colon, missing reason phrases, lengths, mandatory headers and control characters
(a lone CR or LF echoed back would inject a header) are checked before. Raises :class:`BadSip`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from sipmessage import Headers, Via
from sipmessage.message import COMPACT_FORMS

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.message.fields import (
    NameAddr,
    parse_address,
    parse_uri,
    parse_via,
    split_list,
)
from qwen3tts_phone.sip.message.network import Hop

MAX_MESSAGE_BYTES = 65535
"""One UDP datagram; also the bound on TCP."""
MAX_HEAD_BYTES = 16384
"""Largest start line and headers together."""
MAX_HEADERS = 160
"""Most header lines of one message."""
MAX_NAMES = 80
"""Most different header names of one message."""
MAX_STRUCTURE = 1000
"""Commas, semicolons, quotes, angle brackets and backslashes of all headers."""
MAX_VALUES = 100
"""Values of one header; a Via has at most 70 (Max-Forwards)."""
MAX_CALL_ID_CHARS = 512
BRANCH_COOKIE = "z9hG4bK"
"""Magic cookie of RFC 3261 section 8.1.1.7."""

_TOKEN = re.compile(r"[A-Za-z0-9\-.!%*_+`'~]+")
CALL_ID = re.compile(rb"\r\n(?:Call-ID|i)[ \t]*:([^\r\n]*)", re.I)
"""Call-ID of an unparsed message."""
_DIGITS = re.compile(r"[0-9]{1,10}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
"""Control characters, line breaks and lone surrogates."""
_STRUCTURE = b',;"<>\\'
_ONCE = ("From", "To", "Call-ID", "CSeq")

REASONS = {
    100: "Trying",
    180: "Ringing",
    181: "Call Is Being Forwarded",
    182: "Queued",
    183: "Session Progress",
    200: "OK",
    202: "Accepted",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    415: "Unsupported Media Type",
    416: "Unsupported URI Scheme",
    420: "Bad Extension",
    422: "Session Interval Too Small",
    423: "Interval Too Brief",
    480: "Temporarily Unavailable",
    481: "Call/Transaction Does Not Exist",
    482: "Loop Detected",
    483: "Too Many Hops",
    486: "Busy Here",
    487: "Request Terminated",
    488: "Not Acceptable Here",
    489: "Bad Event",
    491: "Request Pending",
    500: "Server Internal Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Server Time-out",
    505: "Version Not Supported",
    603: "Decline",
}


@dataclass(slots=True)
class _Message:
    flow: int = field(default=0, kw_only=True, compare=False)
    """Connection that it came by; 0 = none."""
    source: Hop | None = field(default=None, kw_only=True, compare=False, repr=False)
    """Source; None for a message of ours."""
    headers: Headers = field(default_factory=Headers, kw_only=True)
    body: bytes = field(default=b"", kw_only=True)

    def get(self, name: str) -> str | None:
        return self.headers.get(name)

    def values(self, name: str) -> list[str]:
        return [part for line in self.headers.getlist(name) for part in split_list(line)]

    def add(self, name: str, value: str) -> None:
        if _CONTROL.search(value):
            raise BadSip(f"The value of {name} holds a line break or control character.")
        self.headers.add(name, value)

    def add_all(self, lines: Iterable[tuple[str, str]]) -> None:
        for name, value in lines:
            self.add(name, value)

    def replace(self, name: str, value: str) -> None:
        self.headers.remove(name)
        self.add(name, value)

    def copy_headers(self, other: _Message, *, without: tuple[str, ...] = ()) -> None:
        for name in other.headers.keys():  # noqa: SIM118 (not a mapping)
            if name.lower() not in without:
                for value in other.headers.getlist(name):
                    self.headers.add(name, value)

    def require(self, name: str) -> str:
        value = self.headers.get(name)
        if value is None:
            raise BadSip(f"The header {name} is missing.")
        return value

    @property
    def call_id(self) -> str:
        return self.require("Call-ID")

    @property
    def cseq(self) -> int:
        return _cseq(self.require("CSeq"))[0]

    @property
    def cseq_method(self) -> str:
        return _cseq(self.require("CSeq"))[1]

    @property
    def from_(self) -> NameAddr:
        return parse_address(self.require("From"))

    @property
    def to(self) -> NameAddr:
        return parse_address(self.require("To"))

    @property
    def via(self) -> Via:
        values = self.values("Via")
        if not values:
            raise BadSip("The header Via is missing.")
        return parse_via(values[0])

    @property
    def branch(self) -> str:
        return next((v or "" for k, v in self.via.parameters.items() if k.lower() == "branch"), "")

    @property
    def contact(self) -> NameAddr | None:
        values = self.values("Contact")
        return parse_address(values[0]) if values and values[0] != "*" else None

    @property
    def contact_uri(self) -> str | None:
        try:
            contact = self.contact
            if contact is not None:
                parse_uri(contact.uri)
        except BadSip:
            return None
        return contact.uri if contact is not None else None

    @property
    def sdp(self) -> str | None:
        content_type = (self.get("Content-Type") or "").partition(";")[0].strip().lower()
        if not self.body or content_type != "application/sdp":
            return None
        return self.body.decode("utf-8", "replace")

    def set_body(self, sdp: str | None) -> None:
        self.headers.remove("Content-Type")
        self.body = sdp.encode() if sdp else b""
        if sdp:
            self.headers.set("Content-Type", "application/sdp")

    def _write(self, start: str) -> bytes:
        self.headers.remove("Content-Length")
        self.headers.set("Content-Length", str(len(self.body)))
        return f"{start}\r\n{self.headers}".encode() + self.body


@dataclass(slots=True)
class Request(_Message):
    """Request; ``uri`` as received or to be sent."""

    method: str
    uri: str

    def __bytes__(self) -> bytes:
        return self._write(f"{self.method} {self.uri} SIP/2.0")


@dataclass(slots=True)
class Response(_Message):
    status: int
    reason: str
    unanswered: str = field(default="", kw_only=True, compare=False)
    """Reason of an unanswered challenge; else empty."""

    def __bytes__(self) -> bytes:
        return self._write(f"SIP/2.0 {self.status} {self.reason}")


class UnsupportedBody(BadSip):
    """Body of an unsupported type: 415."""


class InvalidRequest(BadSip):
    def __init__(self, message: str, request: Request, status: int = 400) -> None:
        super().__init__(message)
        self.request = request
        self.status = status


def parse_message(data: bytes) -> Request | Response:
    if len(data) > MAX_MESSAGE_BYTES:
        raise BadSip(f"A message of {len(data)} bytes is over the bound of {MAX_MESSAGE_BYTES}.")
    head, blank, body = data.lstrip(b"\r\n").partition(b"\r\n\r\n")
    if not blank:
        raise BadSip("The message ends before its headers do.")
    if len(head) > MAX_HEAD_BYTES:
        raise BadSip(f"Headers of {len(head)} bytes are over the bound of {MAX_HEAD_BYTES}.")
    # Before splitting: the cost of a message must not grow with the structure packed into it.
    structure = len(head) - len(head.translate(None, _STRUCTURE))
    if structure > MAX_STRUCTURE:
        raise BadSip(f"{structure} separators in the headers are over {MAX_STRUCTURE}.")
    try:
        lines = head.decode("utf-8").split("\r\n")
    except UnicodeDecodeError as error:
        raise BadSip("The headers are not UTF-8.") from error
    if len(lines) > MAX_HEADERS:
        raise BadSip(f"{len(lines)} header lines are over the bound of {MAX_HEADERS}.")
    message = _start_line(lines[0])
    _read_headers(message.headers, lines[1:])
    message.body = body
    _check(message)
    return message


def _start_line(line: str) -> Request | Response:
    if _CONTROL.search(line):
        raise BadSip("The start line holds a control character.")
    words = line.split(" ", 2)
    if words[0].upper() == "SIP/2.0" and len(words) > 1:
        if not re.fullmatch(r"[1-6][0-9][0-9]", words[1]):
            raise BadSip(f"{words[1][:20]!r} is not a status code.")
        return Response(int(words[1]), words[2] if len(words) > 2 else "")
    if len(words) != 3 or not words[2].upper().startswith("SIP/"):
        raise BadSip("The start line is neither a request's nor a response's.")
    if not _TOKEN.fullmatch(words[0]) or len(words[0]) > 32 or not words[1]:
        raise BadSip("The request line holds no method or no URI.")
    return Request(words[0], words[1])


def _read_headers(headers: Headers, lines: list[str]) -> None:
    unfolded: list[str] = []
    for line in lines:
        # RFC 3261 section 7.3.1: a line that begins with white space continues the one before.
        if line[:1] in (" ", "\t"):
            if not unfolded:
                raise BadSip("The first header line is a continuation.")
            unfolded[-1] += " " + line.strip()
        else:
            unfolded.append(line)
    commas: Counter[str] = Counter()
    for line in unfolded:
        name, colon, value = line.partition(":")
        name = name.rstrip(" \t")
        if not colon or not _TOKEN.fullmatch(name):
            raise BadSip(f"{line[:40]!r} is not a header line.")
        value = value.strip(" \t")
        if _CONTROL.search(value):
            raise BadSip(f"The value of {name[:40]} holds a control character.")
        name = COMPACT_FORMS.get(name.lower(), name)
        commas[name.lower()] += value.count(",")
        if commas[name.lower()] >= MAX_VALUES or len(commas) > MAX_NAMES:
            raise BadSip(f"The header {name[:40]} has too many values, or it is one of too many.")
        headers.add(name, value)


def _check(message: Request | Response) -> None:
    # Check the mandatory headers (RFC 3261 section 8.1.1) and lengths (section 18.3).
    for name in _ONCE:
        if len(message.headers.getlist(name)) != 1:
            raise BadSip(f"The message must have the header {name} once.")
    if not message.call_id or not message.via.host:
        raise BadSip("Call-ID or Via is empty.")
    if len(message.call_id) > MAX_CALL_ID_CHARS:
        raise BadSip("The Call-ID is too long.")
    method = message.cseq_method
    for address in (message.from_, message.to):
        if address.tag is not None and len(address.tag) > 256:
            raise BadSip("A tag is too long.")
    if isinstance(message, Request) and message.method != method:
        raise InvalidRequest("CSeq names another method than the request line.", message)
    lengths = {value.strip() for value in message.headers.getlist("Content-Length")}
    problem = ""
    if lengths:
        text = lengths.pop()
        if lengths or not _DIGITS.fullmatch(text):
            problem = "Content-Length is not one number."
        elif int(text) > len(message.body):
            problem = f"Content-Length says {text}, and {len(message.body)} bytes came."
        else:
            # RFC 3261 section 18.3: bytes of a datagram beyond the length are discarded.
            message.body = message.body[: int(text)]
    if problem and isinstance(message, Request):
        raise InvalidRequest(problem, message)
    if problem:
        raise BadSip(problem)


def _cseq(value: str) -> tuple[int, str]:
    words = value.split()
    if len(words) != 2 or not _DIGITS.fullmatch(words[0]) or not _TOKEN.fullmatch(words[1]):
        raise BadSip(f"{value[:40]!r} is not a CSeq.")
    number = int(words[0])
    # RFC 3261 section 8.1.1.5: less than 2**31.
    if number >= 2**31:
        raise BadSip(f"The CSeq number {number} is out of range.")
    return number, words[1]


def reply(request: Request, status: int, reason: str = "", *, to_tag: str = "") -> Response:
    """Return a response with the headers of RFC 3261 section 8.2.6."""
    response = Response(status, reason or REASONS.get(status, "Answer"))
    for name in ("Via", "From", "To", "Call-ID", "CSeq"):
        for value in request.headers.getlist(name):
            if name == "To" and to_tag and status > 100 and request.to.tag is None:
                value = f"{value};tag={to_tag}"
            response.headers.add(name, value)
    return response


def checked_sdp(message: Request | Response) -> str | None:
    """Return the SDP; None without a body; raises UnsupportedBody."""
    if not message.body:
        return None
    sdp = message.sdp
    if sdp is None:
        kind = message.get("Content-Type") or "nothing"
        raise UnsupportedBody(f"The body is {kind[:60]!r}; only application/sdp is understood.")
    return sdp


_LENGTH = re.compile(rb"(?:^|\r\n)(?:Content-Length|l)[ \t]*:[ \t]*([^\r\n]*)", re.I)

PING = b"\r\n\r\n"
PONG = b"\r\n"
_PINGS = re.compile(rb"(?:\r\n\r\n)+")


class StreamFramer:
    """Splitter of a byte stream (RFC 3261 section 18.3); an error is final."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._total = 0
        """Length of the current message, once its headers are complete."""
        self.pings = 0
        """Keepalives (RFC 5626 section 3.5.1) not yet answered."""

    def push(self, data: bytes) -> list[bytes]:
        self.feed(data)
        messages: list[bytes] = []
        while (message := self.next()) is not None:
            messages.append(message)
        return messages

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> bytes | None:
        """Return the next whole message or None; raises BadSip."""
        while True:
            if self._total:
                if len(self._buffer) < self._total:
                    return None
                message = bytes(self._buffer[: self._total])
                del self._buffer[: self._total]
                self._searched = self._total = 0
                return message
            self._skip_blank_lines()
            end = self._buffer.find(b"\r\n\r\n", self._searched)
            if end < 0:
                # Bytes of the blank line itself do not count.
                if len(self._buffer) > MAX_HEAD_BYTES + 3:
                    raise BadSip(f"Headers on a stream are over the bound of {MAX_HEAD_BYTES}.")
                # The blank line may be cut anywhere.
                self._searched = max(0, len(self._buffer) - 3)
                return None
            self._total = end + 4 + self._body_bytes(bytes(self._buffer[:end]))

    def _skip_blank_lines(self) -> None:
        # Section 7.5: blank lines before a start line are ignored.
        if self._searched:
            return
        blank = _PINGS.match(self._buffer)
        if blank is not None:
            self.pings += blank.end() // len(PING)
            del self._buffer[: blank.end()]
        while self._buffer[:2] == PONG:
            if PING.startswith(self._buffer):
                return
            else:
                del self._buffer[:2]

    def _body_bytes(self, head: bytes) -> int:
        if len(head) > MAX_HEAD_BYTES:
            raise BadSip(f"Headers on a stream are over the bound of {MAX_HEAD_BYTES}.")
        found = {value.strip() for value in _LENGTH.findall(head)}
        if not found:
            # Section 18.3 demands it; a message without has no body.
            return 0
        text = found.pop()
        if found or not text.isdigit() or len(text) > 9:
            raise BadSip("Content-Length on a stream is not one number.")
        if int(text) + len(head) + 4 > MAX_MESSAGE_BYTES:
            raise BadSip(f"A message of {int(text)} bytes is over {MAX_MESSAGE_BYTES}.")
        return int(text)
