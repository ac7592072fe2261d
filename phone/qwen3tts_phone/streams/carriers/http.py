"""HTTP of carriers: requests as the carrier made them, start answers, REST interfaces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit
from xml.sax.saxutils import escape, quoteattr

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.streams.adapter import Handshake
from qwen3tts_phone.streams.carriers.messages import clean
from qwen3tts_wire.errors import SpeechError

MOST_BYTES = 1 << 16
"""Longest body that a webhook may have."""
_PORTS = {"wss": 443, "https": 443, "ws": 80, "http": 80}
_SISTERS = {"wss": "https", "https": "wss", "ws": "http", "http": "ws"}


class BadSignature(SpeechError):
    """A request claims to come from a carrier, and nothing proves it; nobody is let in."""

    code = "bad_signature"


@dataclass(frozen=True, slots=True)
class CarrierRequest:
    """A request as the carrier has made it: the opening of a WebSocket, or a webhook."""

    url: str = field(repr=False)
    """With scheme, host and query, as the carrier knows it; a query may hold a token."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Names in lower case."""
    method: str = "GET"
    body: bytes = field(default=b"", repr=False)

    def header(self, name: str, whose: str) -> str:
        """The value of a header. Raises BadSignature where it is missing."""
        value = self.headers.get(name, "").strip()
        if not value:
            raise BadSignature(
                f"The request has no {name} header.",
                remedy=f"Only {whose} may connect; a proxy in between must pass the header on.",
            )
        return value

    def form(self) -> list[tuple[str, str]]:
        """The fields of a form that was posted; none for another kind of body."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if self.method != "POST" or kind != "application/x-www-form-urlencoded":
            return []
        if len(self.body) > MOST_BYTES:
            raise BadSignature(f"The form is longer than {MOST_BYTES} bytes.")
        try:
            return parse_qsl(self.body.decode("utf-8"), keep_blank_values=True, max_num_fields=500)
        except ValueError:
            raise BadSignature("The form that was posted cannot be read.") from None


class RequestCheck(Protocol):
    """Tells a carrier's request from anybody else's."""

    def check(self, request: CarrierRequest, now: float) -> bytes:
        """Return what identifies a signed request, its signature at least; empty for a password.

        Args:
            request: as the carrier made it.
            now: seconds of the wall clock since 1970.

        Raises:
            BadSignature: it is not the carrier's, or that cannot be decided.
        """


def request_of(
    handshake: Handshake, public_url: str = "", *, websocket: bool = True
) -> CarrierRequest:
    """The request as the carrier made it; ``public_url``: see `public_url_of`."""
    return CarrierRequest(
        public_url_of(handshake, public_url, websocket=websocket),
        handshake.headers,
        getattr(handshake, "method", "GET"),
        getattr(handshake, "body", b""),
    )


def public_url_of(handshake: Handshake, public_url: str = "", *, websocket: bool = True) -> str:
    """The URL that the carrier asked for.

    Args:
        handshake: what arrived here.
        public_url: scheme and host under which the carrier knows this server, and the part of the
            path that a proxy takes off, such as ``https://voice.example.com/calls``. Left out, it
            is taken from the Host header, and TLS is assumed: carriers insist on it, and where a
            proxy ends it, nothing here can see it.
        websocket: whether the scheme is ``wss`` or ``https``.
    """
    secure, scheme = True, ""
    host, prefix = handshake.headers.get("host", "").strip(), ""
    if public_url:
        parts = urlsplit(public_url)
        scheme, host, prefix = parts.scheme, parts.netloc, parts.path.rstrip("/")
        secure = scheme in ("https", "wss")
    kind = "ws" if websocket else "http"
    query = f"?{handshake.query}" if handshake.query else ""
    return f"{kind}{'s' if secure else ''}://{host}{prefix}{handshake.path}{query}"


def same_addresses(url: str) -> list[str]:
    """The ways in which one address may be written: scheme, default port, slash at the end.

    None of them is another address, so whoever holds a signature for one of them was meant.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return []
    bare = parts.netloc.rpartition(":")[0] if port is not None else parts.netloc
    names: dict[str, None] = {}
    for scheme in (parts.scheme, _SISTERS.get(parts.scheme, parts.scheme)):
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


XML = "application/xml"
JSON = "application/json"
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
MOST_CHARS = 128
"""Longest value that is handed on."""

Answer = tuple[str, str]
"""Content type and body."""


def stream_url(handshake: Handshake, public_url: str = "") -> str:
    """Where the stream is to go: the webhook's own address without ``/answer``, by WebSocket."""
    url = public_url_of(handshake, public_url).partition("?")[0]
    return url.rstrip("/").removesuffix("/answer")


def asked_with(handshake: Handshake) -> dict[str, str]:
    """The webhook's fields in its query, names in lower case; only what can be handed on."""
    try:
        fields = parse_qsl(handshake.query, max_num_fields=200)
    except ValueError:
        return {}
    return {name.lower()[:MOST_CHARS]: clean(value)[:MOST_CHARS] for name, value in fields}


def call_parameters(fields: Mapping[str, str]) -> dict[str, str]:
    """Who calls whom, and in which direction, out of a webhook's fields."""
    names = {"from": ("from", "caller"), "to": ("to", "called"), "direction": ("direction",)}
    found = {
        ours: next((fields[each] for each in theirs if fields.get(each)), "")
        for ours, theirs in names.items()
    }
    return {name: value for name, value in found.items() if value}


def twilio_answer(url: str, parameters: Mapping[str, str] | None = None) -> Answer:
    """TwiML. ``<Connect>``, not ``<Start>``, which would only listen; the call ends after it."""
    inside = "".join(
        f"<Parameter name={quoteattr(name)} value={quoteattr(value)}/>"
        for name, value in (parameters or {}).items()
    )
    stream = f"<Stream url={quoteattr(url)}>{inside}</Stream>"
    return XML, f"{HEAD}<Response><Connect>{stream}</Connect></Response>"


def telnyx_answer(
    url: str,
    parameters: Mapping[str, str] | None = None,
    *,
    codec: str = "PCMU",
    rate_hz: int = 8000,
) -> Answer:
    """TeXML. Without ``bidirectionalMode="rtp"`` the caller would hear nothing."""
    inside = "".join(
        f"<Parameter name={quoteattr(name)} value={quoteattr(value)}/>"
        for name, value in (parameters or {}).items()
    )
    stream = (
        f'<Stream url={quoteattr(url)} track="inbound_track" bidirectionalMode="rtp"'
        f' bidirectionalCodec={quoteattr(codec)} bidirectionalSamplingRate="{rate_hz}">'
        f"{inside}</Stream>"
    )
    return XML, f"{HEAD}<Response><Connect>{stream}</Connect></Response>"


def plivo_answer(
    url: str,
    parameters: Mapping[str, str] | None = None,
    *,
    content_type: str = "audio/x-mulaw;rate=8000",
) -> Answer:
    """Plivo XML. ``keepCallAlive`` holds the call for as long as the stream lasts."""
    # Only letters and digits may stand in extraHeaders, so a number loses its plus.
    plain = {
        "".join(filter(_plain, name)): "".join(filter(_plain, value))
        for name, value in (parameters or {}).items()
    }
    given = ",".join(f"{name}={value}" for name, value in plain.items() if name and value)
    extra = f" extraHeaders={quoteattr(given)}" if given else ""
    return XML, (
        f'{HEAD}<Response><Stream bidirectional="true" keepCallAlive="true" audioTrack="inbound"'
        f" contentType={quoteattr(content_type)}{extra}>{escape(url)}</Stream></Response>"
    )


def exotel_answer(url: str, *, rate_hz: int = 8000) -> Answer:
    """The address alone, for a Voicebot applet that asks for it; the rate stands in its query."""
    return JSON, json.dumps({"url": url if rate_hz == 8000 else f"{url}?sample-rate={rate_hz}"})


def vonage_answer(
    url: str,
    parameters: Mapping[str, str] | None = None,
    *,
    rate_hz: int = 16000,
    signed: bool = False,
) -> Answer:
    """An NCCO. ``signed`` asks for the token of Vonage's signed webhooks on the WebSocket."""
    endpoint: dict[str, object] = {
        "type": "websocket",
        "uri": url,
        "content-type": f"audio/l16;rate={rate_hz}",
        "headers": dict(parameters or {}),
    }
    if signed:
        endpoint["authorization"] = {"type": "vonage"}
    return JSON, json.dumps([{"action": "connect", "endpoint": [endpoint]}])


def jambonz_answer(url: str, *, rate_hz: int = 8000, user: str = "", password: str = "") -> Answer:
    """Verbs: answer, listen both ways, hang up."""
    listen: dict[str, object] = {
        "verb": "listen",
        "url": url,
        "sampleRate": rate_hz,
        "mixType": "mono",
        "passDtmf": True,
        "bidirectionalAudio": {"enabled": True, "streaming": True, "sampleRate": rate_hz},
    }
    if user:
        listen["wsAuth"] = {"username": user, "password": password}
    return JSON, json.dumps([{"verb": "answer"}, listen, {"verb": "hangup"}])


def _plain(character: str) -> bool:
    return character.isascii() and character.isalnum()


TIMEOUT_S = 10.0


class CarrierRefused(CallError):
    """The carrier's interface did not do what it was asked; ``status`` is its HTTP status, or None
    where no answer came."""

    def __init__(self, message: str, *, remedy: str = "", status: int | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.status = status


@dataclass(frozen=True, slots=True)
class TwilioRest:
    """Twilio's Calls resource (2010-04-01)."""

    account_sid: str
    auth_token: str = field(repr=False)
    api_url: str = "https://api.twilio.com"
    transport: Any = field(default=None, repr=False)
    """An ``httpx.AsyncBaseTransport`` in place of the network, in tests."""

    async def hang_up(self, call_id: str) -> None:
        """End the call; one that is over already is no error. Raises CarrierRefused."""
        await self._update(call_id, {"Status": "completed"}, over=(404,))

    async def transfer(self, call_id: str, target: str) -> None:
        """Hand the call on to a number, or a SIP address. Raises CarrierRefused."""
        kind = "Sip" if target.lower().startswith(("sip:", "sips:")) else "Number"
        number = target.removeprefix("tel:")
        twiml = f"<Response><Dial><{kind}>{escape(number)}</{kind}></Dial></Response>"
        await self._update(call_id, {"Twiml": twiml})

    async def _update(self, call_id: str, form: dict[str, str], over: tuple[int, ...] = ()) -> None:
        url = f"{self.api_url}/2010-04-01/Accounts/{_part(self.account_sid)}/Calls/{_part(call_id)}"
        basic = (self.account_sid, self.auth_token)
        await _asked(self, "Twilio", "POST", f"{url}.json", over, data=form, auth=basic)


@dataclass(frozen=True, slots=True)
class TelnyxRest:
    """Telnyx' Call Control commands (v2)."""

    api_key: str = field(repr=False)
    api_url: str = "https://api.telnyx.com"
    transport: Any = field(default=None, repr=False)
    """See `TwilioRest.transport`."""

    async def hang_up(self, call_id: str) -> None:
        """End the call; one that is over already is no error. Raises CarrierRefused."""
        # 422 with code 90018: the call has already ended.
        await self._command(call_id, "hangup", {}, over=(404, 422))

    async def transfer(self, call_id: str, target: str) -> None:
        """Hand the call on to a number, or a SIP address. Raises CarrierRefused."""
        await self._command(call_id, "transfer", {"to": target.removeprefix("tel:")})

    async def press(self, call_id: str, digits: str) -> None:
        """Press keys. Raises CarrierRefused."""
        await self._command(call_id, "send_dtmf", {"digits": digits})

    async def _command(
        self, call_id: str, name: str, body: dict[str, str], over: tuple[int, ...] = ()
    ) -> None:
        url = f"{self.api_url}/v2/calls/{_part(call_id)}/actions/{name}"
        bearer = {"Authorization": f"Bearer {self.api_key}"}
        await _asked(self, "Telnyx", "POST", url, over, json=body, headers=bearer)


@dataclass(frozen=True, slots=True)
class PlivoRest:
    """Plivo's Call resource (v1)."""

    auth_id: str
    auth_token: str = field(repr=False)
    api_url: str = "https://api.plivo.com"
    transport: Any = field(default=None, repr=False)
    """See `TwilioRest.transport`."""

    async def hang_up(self, call_id: str) -> None:
        """End the call; one that is over already is no error. Raises CarrierRefused."""
        url = f"{self.api_url}/v1/Account/{_part(self.auth_id)}/Call/{_part(call_id)}/"
        basic = (self.auth_id, self.auth_token)
        await _asked(self, "Plivo", "DELETE", url, (404,), auth=basic)


def _part(text: str) -> str:
    """One part of a path; a name from outside must not become another path."""
    if not text or text in (".", ".."):
        raise CarrierRefused("The call has no id that the carrier's interface could be asked with.")
    return quote(text, safe="")


async def _asked(
    rest: TwilioRest | TelnyxRest | PlivoRest,
    whose: str,
    method: str,
    url: str,
    over: tuple[int, ...] = (),
    **request: Any,
) -> None:
    """Ask; ``over``: statuses that say there is no such call any more."""
    try:
        import httpx
    except ImportError:
        raise CarrierRefused(
            f"{whose}'s interface needs the httpx package.",
            remedy='Install it with: pip install "mr_qwen3tts[phone]"',
        ) from None
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT_S, transport=rest.transport) as http:
            response = await http.request(method, url, **request)
    except httpx.HTTPError as error:
        raise CarrierRefused(
            f"{whose}'s interface cannot be reached: {type(error).__name__}.",
            remedy="Check the network; the stream is closed in any case.",
        ) from None
    if response.is_success or response.status_code in over:
        return
    remedy = "Its own log of the call says more."
    if response.status_code in (401, 403):
        remedy = "Check the account's id and key; they belong to one region and one account."
    raise CarrierRefused(
        f"{whose}'s interface answered {response.status_code}.",
        remedy=remedy,
        status=response.status_code,
    )
