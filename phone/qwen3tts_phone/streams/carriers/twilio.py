"""Twilio Media Streams."""

from __future__ import annotations

import hashlib
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
    Answer,
    BadSignature,
    CarrierRequest,
    equivalent_urls,
    path_segment,
    rest_request,
    stream_parameters,
    xml_stream,
)
from qwen3tts_phone.streams.carriers.json_media import (
    NAME,
    SOUND,
    STREAM,
    JsonDialect,
    JsonMediaAdapter,
)

if TYPE_CHECKING:
    import httpx


# twilio.com/docs/voice/media-streams/websocket-messages
TWILIO: Final = JsonDialect(
    line="twilio",
    payload=PCMU,
    media={"event": "media", "streamSid": STREAM, "media": {"payload": SOUND}},
    clear={"event": "clear", "streamSid": STREAM},
    mark={"event": "mark", "streamSid": STREAM, "mark": {"name": NAME}},
    timed=True,
)


def twilio(
    *,
    auth_token: str | None = None,
    account_sid: str | None = None,
    public_url: str | None = None,
    parameters: Mapping[str, str] | None = None,
    clock: WallClock = time.time,
) -> StreamKind:
    """Return bidirectional Twilio Media Streams.

    Args:
        auth_token: checks ``X-Twilio-Signature``, and ends calls; ``TWILIO_AUTH_TOKEN``.
        account_sid: ends calls; ``TWILIO_ACCOUNT_SID``.
        public_url: scheme and host as in the TwiML; ``MR_QWEN3TTS_PUBLIC_URL``.
        parameters: passed on by the start answer; `StreamStarted.parameters`.
        clock: seconds since 1970.
    """
    token = given_key(auth_token, "TWILIO_AUTH_TOKEN")
    account = given_key(account_sid, "TWILIO_ACCOUNT_SID")
    checks = [TwilioSignature(token)] if token else []
    url = given_key(public_url, PUBLIC_URL)
    admission = CarrierAdmission(url, checks, checks, passes_signed_with(token), clock)
    rest = TwilioRest(account, token) if account and token else None

    def answer(handshake: Handshake) -> Answer:
        given = stream_parameters(handshake, parameters)
        return twilio_answer(admission.stream_url(handshake), given)

    return StreamKind(
        "twilio",
        lambda _: JsonMediaAdapter(TWILIO),
        admission if admission.checks else None,
        needs_key="TWILIO_AUTH_TOKEN",
        answer=answer,
        hang_up=rest.hang_up if rest else None,
        transfer=rest.transfer if rest else None,
    )


@dataclass(frozen=True, slots=True)
class TwilioSignature:
    """``X-Twilio-Signature``: HMAC-SHA1 of the URL and the posted fields, base64.

    Source: twilio.com/docs/usage/security. Twilio's libraries disagree about port and trailing
    slash of the signed URL, so each spelling is tried.
    """

    auth_token: str = field(repr=False)

    def check(self, request: CarrierRequest, now: float) -> bytes:
        given = decoded_base64(request.header("x-twilio-signature", "Twilio"))
        # Of a repeated name, Twilio signs each value once, sorted.
        fields = "".join(name + value for name, value in sorted(set(request.form())))
        self._check_body(request)
        key = self.auth_token.encode()
        if not any(
            hmac.compare_digest(given, hmac.digest(key, encoded(url + fields), "sha1"))
            for url in equivalent_urls(request.url)
        ):
            raise BadSignature(
                "The Twilio signature is not that of this request.",
                remedy="Check that the auth token is that of the account which owns the number,"
                " and that public_url is what stands in the TwiML.",
            )
        return given

    def _check_body(self, request: CarrierRequest) -> None:
        # A body that is no form is covered by a hash in the query, and the query by the signature.
        claimed = parse_qs(request.url.partition("?")[2]).get("bodySHA256", [])
        if request.body and claimed and not request.form():
            actual = hashlib.sha256(request.body).hexdigest()
            if not hmac.compare_digest(actual.encode(), encoded(claimed[0].lower())):
                raise BadSignature("The body differs from what Twilio has signed.")


def twilio_answer(url: str, parameters: Mapping[str, str] | None = None) -> Answer:
    return xml_stream(f"url={quoteattr(url)}", parameters)


@dataclass(frozen=True, slots=True)
class TwilioRest:
    account_sid: str
    auth_token: str = field(repr=False)
    api_url: str = "https://api.twilio.com"
    transport: httpx.AsyncBaseTransport | None = field(default=None, repr=False)

    async def hang_up(self, call_id: str) -> None:
        await self._update(call_id, {"Status": "completed"}, accepted=(404,))

    async def transfer(self, call_id: str, target: str) -> None:
        kind = "Sip" if target.lower().startswith(("sip:", "sips:")) else "Number"
        number = target.removeprefix("tel:")
        twiml = f"<Response><Dial><{kind}>{escape(number)}</{kind}></Dial></Response>"
        await self._update(call_id, {"Twiml": twiml})

    async def _update(
        self, call_id: str, form: dict[str, str], accepted: tuple[int, ...] = ()
    ) -> None:
        account = path_segment(self.account_sid)
        url = f"{self.api_url}/2010-04-01/Accounts/{account}/Calls/{path_segment(call_id)}.json"
        basic = (self.account_sid, self.auth_token)
        await rest_request(self, "Twilio", "POST", url, accepted, data=form, auth=basic)
