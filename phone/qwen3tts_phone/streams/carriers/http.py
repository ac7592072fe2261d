"""HTTP of carriers: requests, start answers, REST interfaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit
from xml.sax.saxutils import quoteattr

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.streams.carriers.adapter import Handshake
from qwen3tts_phone.streams.carriers.messages import clean
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    import httpx


MAX_FORM_BYTES = 1 << 16
MAX_VALUE_CHARS = 128
REST_TIMEOUT_S = 10.0
XML = "application/xml"
JSON = "application/json"
XML_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_PORTS = {"wss": 443, "https": 443, "ws": 80, "http": 80}
_EQUIVALENT_SCHEMES = {"wss": "https", "https": "wss", "ws": "http", "http": "ws"}

Answer = tuple[str, str]
"""Content type and body of the response to a webhook."""


class BadSignature(SpeechError):
    code = "bad_signature"


# --- requests


@dataclass(frozen=True, slots=True)
class CarrierRequest:
    """WebSocket handshake or webhook, as the carrier made it."""

    url: str = field(repr=False)
    """With scheme, host and query, as the carrier knows it; a query may hold a token."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    method: str = "GET"
    body: bytes = field(default=b"", repr=False)

    def header(self, name: str, carrier: str) -> str:
        value = self.headers.get(name, "").strip()
        if not value:
            raise BadSignature(
                f"The request has no {name} header.",
                remedy=f"Only {carrier} may connect; a proxy in between must pass the header on.",
            )
        return value

    def form(self) -> list[tuple[str, str]]:
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if self.method != "POST" or kind != "application/x-www-form-urlencoded":
            return []
        if len(self.body) > MAX_FORM_BYTES:
            raise BadSignature(f"The form is longer than {MAX_FORM_BYTES} bytes.")
        try:
            return parse_qsl(self.body.decode("utf-8"), keep_blank_values=True, max_num_fields=500)
        except ValueError:
            raise BadSignature("The form that was posted cannot be read.") from None


def carrier_request(
    handshake: Handshake, public_url: str = "", *, websocket: bool = True
) -> CarrierRequest:
    return CarrierRequest(
        requested_url(handshake, public_url, websocket=websocket),
        handshake.headers,
        handshake.method,
        handshake.body,
    )


def requested_url(handshake: Handshake, public_url: str = "", *, websocket: bool = True) -> str:
    """Return the URL that the carrier requested.

    ``public_url``: its scheme, host and path prefix that a proxy strips; default: the Host header
    and TLS, as a proxy that terminates it is not visible.
    """
    secure = True
    host, prefix = handshake.headers.get("host", "").strip(), ""
    if public_url:
        parts = urlsplit(public_url)
        host, prefix = parts.netloc, parts.path.rstrip("/")
        secure = parts.scheme in ("https", "wss")
    scheme = ("ws" if websocket else "http") + ("s" if secure else "")
    query = f"?{handshake.query}" if handshake.query else ""
    return f"{scheme}://{host}{prefix}{handshake.path}{query}"


def equivalent_urls(url: str) -> list[str]:
    """Return all spellings of a URL: scheme, default port, trailing slash."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return []
    bare = parts.netloc.rpartition(":")[0] if port is not None else parts.netloc
    names: dict[str, None] = {}
    for scheme in (parts.scheme, _EQUIVALENT_SCHEMES.get(parts.scheme, parts.scheme)):
        default = _PORTS.get(scheme)
        hosts = [parts.netloc]
        if default is not None and port in (None, default):
            hosts = [bare, f"{bare}:{default}"]
        for each in hosts:
            for path in _paths(parts.path):
                names[urlunsplit((scheme, each, path, parts.query, ""))] = None
    return list(names)


def _paths(path: str) -> Iterable[str]:
    stripped = path.rstrip("/")
    return dict.fromkeys((path, stripped, stripped + "/"))


# --- start answers


def stream_url(handshake: Handshake, public_url: str = "") -> str:
    url = requested_url(handshake, public_url).partition("?")[0]
    return url.rstrip("/").removesuffix("/answer")


def webhook_fields(handshake: Handshake) -> dict[str, str]:
    """Return a webhook's query: lower-case names, values cleaned and cut."""
    try:
        fields = parse_qsl(handshake.query, max_num_fields=200)
    except ValueError:
        return {}
    cut = MAX_VALUE_CHARS
    return {name.lower()[:cut]: clean(value)[:cut] for name, value in fields}


def call_parameters(fields: Mapping[str, str]) -> dict[str, str]:
    names = {"from": ("from", "caller"), "to": ("to", "called"), "direction": ("direction",)}
    found = {
        ours: next((fields[each] for each in theirs if fields.get(each)), "")
        for ours, theirs in names.items()
    }
    return {name: value for name, value in found.items() if value}


def stream_parameters(handshake: Handshake, parameters: Mapping[str, str] | None) -> dict[str, str]:
    return {**call_parameters(webhook_fields(handshake)), **(parameters or {})}


def xml_stream(attributes: str, parameters: Mapping[str, str] | None) -> Answer:
    """Return TwiML or TeXML that connects to a ``<Stream>``."""
    inside = "".join(
        f"<Parameter name={quoteattr(name)} value={quoteattr(value)}/>"
        for name, value in (parameters or {}).items()
    )
    # <Connect> makes the stream bidirectional; <Start> would only fork the inbound audio.
    stream = f"<Stream {attributes}>{inside}</Stream>"
    return XML, f"{XML_HEAD}<Response><Connect>{stream}</Connect></Response>"


# --- REST interfaces


class CarrierRefused(CallError):
    """Refusal by a carrier's REST interface; ``status`` None: no response."""

    def __init__(self, message: str, *, remedy: str = "", status: int | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.status = status


class RestClient(Protocol):
    @property
    def transport(self) -> httpx.AsyncBaseTransport | None: ...


def path_segment(text: str) -> str:
    if not text or text in (".", ".."):
        raise CarrierRefused("The call has no id that the carrier's interface could be asked with.")
    return quote(text, safe="")


async def rest_request(
    client: RestClient,
    carrier: str,
    method: str,
    url: str,
    accepted: tuple[int, ...] = (),
    **request: Any,
) -> None:
    """Send one request without redirects; ``accepted``: further successes.

    Raises CarrierRefused, whose text holds no key.
    """
    try:
        import httpx
    except ImportError:
        raise CarrierRefused(
            f"{carrier}'s interface needs the httpx package.",
            remedy='Install it with: pip install "mr_qwen3tts[phone]"',
        ) from None
    try:
        async with httpx.AsyncClient(timeout=REST_TIMEOUT_S, transport=client.transport) as http:
            response = await http.request(method, url, **request)
    except httpx.HTTPError as error:
        raise CarrierRefused(
            f"{carrier}'s interface cannot be reached: {type(error).__name__}.",
            remedy="Check the network; the stream is closed in any case.",
        ) from None
    if response.is_success or response.status_code in accepted:
        return
    remedy = "Its own log of the call says more."
    if response.status_code in (401, 403):
        remedy = "Check the account's id and key; they belong to one region and one account."
    raise CarrierRefused(
        f"{carrier}'s interface answered {response.status_code}.",
        remedy=remedy,
        status=response.status_code,
    )
