"""Plivo audio streaming."""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs
from xml.sax.saxutils import escape, quoteattr

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_phone.streams.carriers.adapter import Handshake, StreamKind
from qwen3tts_phone.streams.carriers.authentication import (
    PUBLIC_URL,
    CarrierAdmission,
    WallClock,
    decoded_base64,
    encoded,
    given_key,
    passes_signed_with,
)
from qwen3tts_phone.streams.carriers.http import (
    XML,
    XML_HEAD,
    Answer,
    BadSignature,
    CarrierRequest,
    equivalent_urls,
    path_segment,
    rest_request,
    stream_parameters,
)
from qwen3tts_phone.streams.carriers.json_media import (
    EVENTS,
    KEYS,
    NAME,
    RATE,
    SOUND,
    STREAM,
    TYPE,
    EventKind,
    JsonDialect,
    JsonMediaAdapter,
)

if TYPE_CHECKING:
    import httpx


# plivo.com/docs, "Audio Streaming Protocol Reference". The id in playAudio is Pipecat's, not the
# reference's; it is harmless where it is not expected.
PLIVO: Final = JsonDialect(
    line="plivo",
    payload=PCMU,
    media={
        "event": "playAudio",
        "media": {"contentType": TYPE, "sampleRate": RATE, "payload": SOUND},
        "streamId": STREAM,
    },
    clear={"event": "clearAudio", "streamId": STREAM},
    mark={"event": "checkpoint", "streamId": STREAM, "name": NAME},
    keys={"event": "sendDTMF", "dtmf": KEYS},
    events={
        **{name: kind for name, kind in EVENTS.items() if name != "mark"},
        "playedStream": EventKind.MARK,
        "clearedAudio": EventKind.CLEARED,
        # Answer to sendDTMF in some versions.
        "sentDTMF": EventKind.IGNORED,
    },
    stream_id=("streamId", "streamSid", "stream_id", "stream_sid"),
    call_id=("callId", "callUuid", "callSid", "call_uuid"),
    parameters=("extra_headers", "extraHeaders", "customParameters"),
    mark_name=("name",),
    ends_by_closing=True,
)


def plivo(
    *,
    auth_id: str | None = None,
    auth_token: str | None = None,
    content_type: str = "audio/x-mulaw;rate=8000",
    public_url: str | None = None,
    parameters: Mapping[str, str] | None = None,
    clock: WallClock = time.time,
) -> StreamKind:
    """Return bidirectional Plivo audio streaming.

    Args:
        auth_id: ends calls; ``PLIVO_AUTH_ID``.
        auth_token: checks ``X-Plivo-Signature-V3``, and ends calls; ``PLIVO_AUTH_TOKEN``.
        content_type: requested by the start answer; ``audio/x-l16;rate=16000`` sounds better.
        public_url: scheme and host as in the answer XML; ``MR_QWEN3TTS_PUBLIC_URL``.
        parameters: passed on by the start answer; letters and digits only.
        clock: seconds since 1970.
    """
    token = given_key(auth_token, "PLIVO_AUTH_TOKEN")
    account = given_key(auth_id, "PLIVO_AUTH_ID")
    checks = [PlivoSignature(token)] if token else []
    url = given_key(public_url, PUBLIC_URL)
    admission = CarrierAdmission(url, checks, checks, passes_signed_with(token), clock)
    rest = PlivoRest(account, token) if account and token else None

    def answer(handshake: Handshake) -> Answer:
        given = stream_parameters(handshake, parameters)
        return plivo_answer(admission.stream_url(handshake), given, content_type=content_type)

    return StreamKind(
        "plivo",
        lambda _: JsonMediaAdapter(PLIVO),
        admission if admission.checks else None,
        needs_key="PLIVO_AUTH_TOKEN",
        answer=answer,
        hang_up=rest.hang_up if rest else None,
    )


@dataclass(frozen=True, slots=True)
class PlivoSignature:
    """``X-Plivo-Signature-V3``: HMAC-SHA256 of URL, sorted fields and a nonce, base64; or V2.

    Source: plivo.com/docs (signature validation), plivo-python's ``signature_v3``. Several
    signatures may stand in one header, divided by commas. It is disputed whether Plivo signs the
    opening of a stream; the pass of the start answer authenticates that.
    """

    auth_token: str = field(repr=False)

    def check(self, request: CarrierRequest, now: float) -> bytes:
        # The second version signs neither query nor body: it proves nothing where there are any.
        bare = not request.body and "?" not in request.url
        version = "v2" if bare and "x-plivo-signature-v2" in request.headers else "v3"
        if "x-plivo-signature-v3" in request.headers:
            version = "v3"
        names = (f"x-plivo-signature-{version}", f"x-plivo-signature-ma-{version}")
        if names[1] not in request.headers:
            request.header(names[0], "Plivo")
        nonce = request.header(f"x-plivo-signature-{version}-nonce", "Plivo")
        given = [
            decoded_base64(each)
            for name in names
            for each in request.headers.get(name, "").split(",")
            if each.strip()
        ]
        key = self.auth_token.encode()
        for url in equivalent_urls(request.url):
            base = _signed_v3(url, request) + "." if version == "v3" else url.partition("?")[0]
            expected = hmac.digest(key, encoded(base + nonce), "sha256")
            if any(hmac.compare_digest(each, expected) for each in given):
                return expected
        raise BadSignature(
            "The Plivo signature is not that of this request.",
            remedy="Check that the auth token is that of the account or subaccount which owns the"
            " number, and that public_url is what stands in the answer XML.",
        )


def _signed_v3(url: str, request: CarrierRequest) -> str:
    base, _, query = url.partition("?")
    try:
        fields = parse_qs(query, keep_blank_values=True, max_num_fields=500)
    except ValueError:
        raise BadSignature("The query of the request cannot be read.") from None
    text = "&".join(f"{name}={value}" for name in sorted(fields) for value in sorted(fields[name]))
    posted = "".join(name + value for name, value in sorted(request.form()))
    if not posted:
        return base + ("?" + text if text else "")
    return base + "?" + (text + "." if text else "") + posted


def plivo_answer(
    url: str,
    parameters: Mapping[str, str] | None = None,
    *,
    content_type: str = "audio/x-mulaw;rate=8000",
) -> Answer:
    """Return Plivo XML; ``keepCallAlive`` holds the call during the stream."""
    # extraHeaders takes letters and digits only, so a number loses its plus.
    plain = {
        _alphanumeric(name): _alphanumeric(value) for name, value in (parameters or {}).items()
    }
    given = ",".join(f"{name}={value}" for name, value in plain.items() if name and value)
    extra = f" extraHeaders={quoteattr(given)}" if given else ""
    return XML, (
        f'{XML_HEAD}<Response><Stream bidirectional="true" keepCallAlive="true"'
        f' audioTrack="inbound" contentType={quoteattr(content_type)}{extra}>{escape(url)}'
        "</Stream></Response>"
    )


def _alphanumeric(text: str) -> str:
    return "".join(each for each in text if each.isascii() and each.isalnum())


@dataclass(frozen=True, slots=True)
class PlivoRest:
    auth_id: str
    auth_token: str = field(repr=False)
    api_url: str = "https://api.plivo.com"
    transport: httpx.AsyncBaseTransport | None = field(default=None, repr=False)

    async def hang_up(self, call_id: str) -> None:
        account, call = path_segment(self.auth_id), path_segment(call_id)
        url = f"{self.api_url}/v1/Account/{account}/Call/{call}/"
        basic = (self.auth_id, self.auth_token)
        await rest_request(self, "Plivo", "DELETE", url, (404,), auth=basic)
