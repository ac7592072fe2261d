"""Telnyx media streaming."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from xml.sax.saxutils import quoteattr

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.payload import Payload
from qwen3tts_phone.streams.carriers.adapter import Handshake, StreamKind
from qwen3tts_phone.streams.carriers.authentication import (
    PUBLIC_URL,
    CarrierAdmission,
    HeaderToken,
    RequestCheck,
    WallClock,
    check_timestamp,
    given_key,
    passes_signed_with,
    require_cryptography,
)
from qwen3tts_phone.streams.carriers.http import (
    Answer,
    BadSignature,
    CarrierRequest,
    path_segment,
    rest_request,
    stream_parameters,
    xml_stream,
)
from qwen3tts_phone.streams.carriers.json_media import (
    EVENTS,
    NAME,
    SOUND,
    EventKind,
    JsonDialect,
    JsonMediaAdapter,
    payload_named,
)
from qwen3tts_settings.constraints import with_changes
from qwen3tts_wire.errors import BadRequest

if TYPE_CHECKING:
    import httpx


# developers.telnyx.com, "Stream call media over WebSocket". Inbound audio has the codec of the call
# (PCMA in Europe); outbound audio that of stream_bidirectional_codec.
TELNYX: Final = JsonDialect(
    line="telnyx",
    payload=PCMU,
    media={"event": "media", "media": {"payload": SOUND}},
    clear={"event": "clear"},
    mark={"event": "mark", "mark": {"name": NAME}},
    events={**EVENTS, "error": EventKind.ERROR},
    stream_id=("stream_id", "streamSid", "stream_sid", "streamId"),
    call_id=("call_control_id", "callSid", "call_sid", "callId"),
    format=("media_format", "mediaFormat"),
    rate=("sample_rate", "sampleRate"),
    parameters=("custom_parameters", "customParameters"),
    ordered=False,
    plays_what_it_sends=False,
)


@dataclass(frozen=True, slots=True)
class TelnyxAudio:
    """Audio sent to Telnyx, whose messages do not repeat it."""

    plays: str = "PCMU"
    """``stream_bidirectional_codec``: PCMU, PCMA or L16."""
    plays_hz: int = 8000
    """``stream_bidirectional_sampling_rate``."""
    l16_big_endian: bool = True
    """Byte order of L16, as in RTP; turn it off if callers hear noise."""

    def payload(self) -> Payload:
        """Return the format; BadRequest for one that cannot be sent."""
        payload = payload_named(self.plays, self.plays_hz, big_endian=self.l16_big_endian)
        if payload is None or not payload.sample_bytes:
            raise BadRequest(
                f"{self.plays} at {self.plays_hz} Hz cannot be sent to a carrier's stream.",
                remedy="Take PCMU or PCMA at 8000 Hz, or L16 at 8000, 16000 or 24000 Hz.",
            )
        return payload


def telnyx(
    *,
    stream_token: str | None = None,
    public_key: str | None = None,
    api_key: str | None = None,
    public_url: str | None = None,
    parameters: Mapping[str, str] | None = None,
    clock: WallClock = time.time,
    **audio: Any,
) -> StreamKind:
    """Return Telnyx media streaming with ``stream_bidirectional_mode`` rtp.

    Args:
        stream_token: the ``stream_auth_token`` of the stream; ``TELNYX_STREAM_TOKEN``.
        public_key: checks webhooks (Ed25519); ``TELNYX_PUBLIC_KEY``. Needs ``cryptography``.
        api_key: ends and transfers calls, sends DTMF; ``TELNYX_API_KEY``.
        public_url: scheme and host as in the TeXML; ``MR_QWEN3TTS_PUBLIC_URL``.
        parameters: passed on by the start answer.
        clock: seconds since 1970.
        audio: ``plays``, ``plays_hz`` and ``l16_big_endian``; see `TelnyxAudio`.

    Raises:
        TypeError: an unknown keyword; the text names the nearest one.
        BadRequest: ``plays`` cannot be sent, or the public key is malformed.
    """
    token = given_key(stream_token, "TELNYX_STREAM_TOKEN")
    key = given_key(public_key, "TELNYX_PUBLIC_KEY")
    rest_key = given_key(api_key, "TELNYX_API_KEY")
    outbound = with_changes(TelnyxAudio(), audio, telnyx)
    payload = outbound.payload()
    streams: list[RequestCheck] = [HeaderToken(token)] if token else []
    webhooks: list[RequestCheck] = [TelnyxSignature(key)] if key else []
    url = given_key(public_url, PUBLIC_URL)
    passes = passes_signed_with(token, rest_key)
    admission = CarrierAdmission(url, streams, webhooks, passes, clock)
    rest = TelnyxRest(rest_key) if rest_key else None

    def answer(handshake: Handshake) -> Answer:
        given = stream_parameters(handshake, parameters)
        stream = admission.stream_url(handshake)
        return telnyx_answer(stream, given, codec=outbound.plays.upper(), rate_hz=outbound.plays_hz)

    return StreamKind(
        "telnyx",
        lambda _: JsonMediaAdapter(TELNYX, plays=payload, big_endian=outbound.l16_big_endian),
        admission if admission.checks else None,
        needs_key="TELNYX_STREAM_TOKEN or TELNYX_PUBLIC_KEY",
        answer=answer,
        hang_up=rest.hang_up if rest else None,
        transfer=rest.transfer if rest else None,
        press=rest.press if rest else None,
    )


@dataclass(frozen=True, slots=True)
class TelnyxSignature:
    """``telnyx-signature-ed25519``: Ed25519 of time, bar and body, base64.

    Source: developers.telnyx.com, telnyx-python. ``public_key`` is base64 of 32 bytes, as in the
    portal. Raises BadRequest for another one, or without ``cryptography``.
    """

    public_key: str

    def __post_init__(self) -> None:
        self._key()

    def check(self, request: CarrierRequest, now: float) -> bytes:
        from cryptography.exceptions import InvalidSignature

        given = request.header("telnyx-signature-ed25519", "Telnyx")
        signed_at = request.header("telnyx-timestamp", "Telnyx")
        check_timestamp(signed_at, now, "Telnyx")
        try:
            signature = base64.b64decode(given, validate=True)
            self._key().verify(signature, signed_at.encode() + b"|" + request.body)
        except (InvalidSignature, binascii.Error, ValueError):
            raise BadSignature(
                "The Telnyx signature is not that of this request.",
                remedy="Check the public key: the portal shows it under Keys & Credentials.",
            ) from None
        # Of a GET only the second is signed: calls of one second differ in the query alone.
        return signature + request.url.encode()

    def _key(self) -> Any:
        require_cryptography("Telnyx' signatures")
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            return Ed25519PublicKey.from_public_bytes(
                base64.b64decode(self.public_key, validate=True)
            )
        except (binascii.Error, ValueError):
            raise BadRequest(
                "The Telnyx public key is not base64 of 32 bytes.",
                remedy="Copy it from the portal, Keys & Credentials, Public Key.",
            ) from None


def telnyx_answer(
    url: str,
    parameters: Mapping[str, str] | None = None,
    *,
    codec: str = "PCMU",
    rate_hz: int = 8000,
) -> Answer:
    """Return TeXML; without ``bidirectionalMode="rtp"`` the caller would hear nothing."""
    attributes = (
        f'url={quoteattr(url)} track="inbound_track" bidirectionalMode="rtp"'
        f' bidirectionalCodec={quoteattr(codec)} bidirectionalSamplingRate="{rate_hz}"'
    )
    return xml_stream(attributes, parameters)


@dataclass(frozen=True, slots=True)
class TelnyxRest:
    api_key: str = field(repr=False)
    api_url: str = "https://api.telnyx.com"
    transport: httpx.AsyncBaseTransport | None = field(default=None, repr=False)

    async def hang_up(self, call_id: str) -> None:
        # 422 with code 90018: the call has already ended.
        await self._command(call_id, "hangup", {}, accepted=(404, 422))

    async def transfer(self, call_id: str, target: str) -> None:
        await self._command(call_id, "transfer", {"to": target.removeprefix("tel:")})

    async def press(self, call_id: str, digits: str) -> None:
        await self._command(call_id, "send_dtmf", {"digits": digits})

    async def _command(
        self, call_id: str, name: str, body: dict[str, str], accepted: tuple[int, ...] = ()
    ) -> None:
        url = f"{self.api_url}/v2/calls/{path_segment(call_id)}/actions/{name}"
        bearer = {"Authorization": f"Bearer {self.api_key}"}
        await rest_request(self, "Telnyx", "POST", url, accepted, json=body, headers=bearer)
