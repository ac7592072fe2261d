"""What a carrier's webhook is answered with so that the call becomes a stream (pure).

Each function gives content type and body. What the webhook says about the call is handed on to the
stream where the carrier's own ``start`` does not have it; everything else in it is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape, quoteattr

from qwen3tts_phone.streams.adapter import Handshake
from qwen3tts_phone.streams.carrier_request import public_url_of
from qwen3tts_phone.streams.json_adapter import clean

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
