"""Twilio, Telnyx, Plivo and Exotel as kinds of streams: adapter, checks, start answer, REST.

Keys come as arguments or from the environment; without a key nothing can be checked,
`StreamKind.check` is None, and `Streams` starts only where a token or ``insecure`` is set.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from qwen3tts_codecs.payload import Payload
from qwen3tts_phone.streams.adapter import Handshake, StreamKind
from qwen3tts_phone.streams.carriers.authentication import (
    PUBLIC_URL,
    Admission,
    BasicPassword,
    HeaderToken,
    PlivoSignature,
    TwilioSignature,
    WallClock,
    key_of,
    passes_by,
)
from qwen3tts_phone.streams.carriers.http import (
    Answer,
    PlivoRest,
    RequestCheck,
    TelnyxRest,
    TwilioRest,
    asked_with,
    call_parameters,
    exotel_answer,
    plivo_answer,
    stream_url,
    telnyx_answer,
    twilio_answer,
)
from qwen3tts_phone.streams.carriers.json_media import (
    EXOTEL,
    PLIVO,
    TELNYX,
    TWILIO,
    CarrierAdapter,
    payload_of,
)
from qwen3tts_phone.streams.carriers.public_keys import TelnyxSignature
from qwen3tts_wire.errors import BadRequest

Parameters = Mapping[str, str]


def twilio(
    *,
    auth_token: str | None = None,
    account_sid: str | None = None,
    public_url: str | None = None,
    parameters: Parameters | None = None,
    clock: WallClock = time.time,
) -> StreamKind:
    """Twilio Media Streams, both ways.

    Args:
        auth_token: checks ``X-Twilio-Signature``, and ends calls; ``TWILIO_AUTH_TOKEN``.
        account_sid: ends calls; ``TWILIO_ACCOUNT_SID``.
        public_url: scheme and host as they stand in the TwiML;
            ``MR_QWEN3TTS_PUBLIC_URL``.
        parameters: what the start answer hands over; `StreamStarted.parameters`.
        clock: where the time comes from.
    """
    token = key_of(auth_token, "TWILIO_AUTH_TOKEN")
    account = key_of(account_sid, "TWILIO_ACCOUNT_SID")
    checks = [TwilioSignature(token)] if token else []
    address = key_of(public_url, PUBLIC_URL)
    admission = Admission(address, checks, checks, passes_by(token), clock)
    rest = TwilioRest(account, token) if account and token else None

    def answer(handshake: Handshake) -> Answer:
        url = admission.with_pass(stream_url(handshake, address), handshake)
        return twilio_answer(url, _handed_on(handshake, parameters))

    return StreamKind(
        "twilio",
        lambda _: CarrierAdapter(TWILIO),
        admission if admission.checks else None,
        needs_key="TWILIO_AUTH_TOKEN",
        answer=answer,
        hang_up=rest.hang_up if rest else None,
        transfer=rest.transfer if rest else None,
    )


def telnyx(
    *,
    stream_token: str | None = None,
    public_key: str | None = None,
    api_key: str | None = None,
    plays: str = "PCMU",
    plays_hz: int = 8000,
    l16_big_endian: bool = True,
    public_url: str | None = None,
    parameters: Parameters | None = None,
    clock: WallClock = time.time,
) -> StreamKind:
    """Telnyx media streaming with ``stream_bidirectional_mode`` rtp.

    Args:
        stream_token: the ``stream_auth_token`` of the stream; ``TELNYX_STREAM_TOKEN``.
        public_key: checks webhooks (Ed25519); ``TELNYX_PUBLIC_KEY``. Needs ``cryptography``.
        api_key: ends calls, hands them on, presses keys; ``TELNYX_API_KEY``.
        plays: ``stream_bidirectional_codec``, which its messages do not repeat: PCMU, PCMA or L16.
        plays_hz: ``stream_bidirectional_sampling_rate``.
        l16_big_endian: the byte order of L16. It is an RTP payload, so the high byte is first; turn
            it off if callers hear noise.
        public_url: scheme and host as they stand in the TeXML;
            ``MR_QWEN3TTS_PUBLIC_URL``.
        parameters: what the start answer hands over.
        clock: where the time comes from.

    Raises:
        BadRequest: ``plays`` is no codec that can be sent, or the public key is none.
    """
    token = key_of(stream_token, "TELNYX_STREAM_TOKEN")
    key, rest_key = key_of(public_key, "TELNYX_PUBLIC_KEY"), key_of(api_key, "TELNYX_API_KEY")
    payload = _sendable(plays, plays_hz, big_endian=l16_big_endian)
    streams: list[RequestCheck] = [HeaderToken(token)] if token else []
    webhooks: list[RequestCheck] = [TelnyxSignature(key)] if key else []
    address = key_of(public_url, PUBLIC_URL)
    admission = Admission(address, streams, webhooks, passes_by(token, rest_key), clock)
    rest = TelnyxRest(rest_key) if rest_key else None

    def answer(handshake: Handshake) -> Answer:
        url = admission.with_pass(stream_url(handshake, address), handshake)
        given = _handed_on(handshake, parameters)
        return telnyx_answer(url, given, codec=plays.upper(), rate_hz=plays_hz)

    return StreamKind(
        "telnyx",
        lambda _: CarrierAdapter(TELNYX, plays=payload, big_endian=l16_big_endian),
        admission if admission.checks else None,
        needs_key="TELNYX_STREAM_TOKEN or TELNYX_PUBLIC_KEY",
        answer=answer,
        hang_up=rest.hang_up if rest else None,
        transfer=rest.transfer if rest else None,
        press=rest.press if rest else None,
    )


def plivo(
    *,
    auth_id: str | None = None,
    auth_token: str | None = None,
    content_type: str = "audio/x-mulaw;rate=8000",
    public_url: str | None = None,
    parameters: Parameters | None = None,
    clock: WallClock = time.time,
) -> StreamKind:
    """Plivo audio streaming, both ways.

    Args:
        auth_id: ends calls; ``PLIVO_AUTH_ID``.
        auth_token: checks ``X-Plivo-Signature-V3``, and ends calls; ``PLIVO_AUTH_TOKEN``.
        content_type: what the start answer asks for; ``audio/x-l16;rate=16000`` sounds better.
        public_url: scheme and host as they stand in the answer XML;
            ``MR_QWEN3TTS_PUBLIC_URL``.
        parameters: what the start answer hands over; letters and digits only.
        clock: where the time comes from.
    """
    token, account = key_of(auth_token, "PLIVO_AUTH_TOKEN"), key_of(auth_id, "PLIVO_AUTH_ID")
    checks = [PlivoSignature(token)] if token else []
    address = key_of(public_url, PUBLIC_URL)
    admission = Admission(address, checks, checks, passes_by(token), clock)
    rest = PlivoRest(account, token) if account and token else None

    def answer(handshake: Handshake) -> Answer:
        url = admission.with_pass(stream_url(handshake, address), handshake)
        return plivo_answer(url, _handed_on(handshake, parameters), content_type=content_type)

    return StreamKind(
        "plivo",
        lambda _: CarrierAdapter(PLIVO),
        admission if admission.checks else None,
        needs_key="PLIVO_AUTH_TOKEN",
        answer=answer,
        hang_up=rest.hang_up if rest else None,
    )


def exotel(
    *,
    user: str | None = None,
    password: str | None = None,
    rate_hz: int = 8000,
    public_url: str | None = None,
    clock: WallClock = time.time,
) -> StreamKind:
    """Exotel's Voicebot applet. It signs nothing; a user and a password can stand in its URL.

    Args:
        user: of the stream's URL; ``EXOTEL_STREAM_USER``.
        password: of the stream's URL; ``EXOTEL_STREAM_PASSWORD``.
        rate_hz: what the start answer asks for: 8000, 16000 or 24000.
        public_url: scheme and host of the stream's URL;
            ``MR_QWEN3TTS_PUBLIC_URL``.
        clock: where the time comes from.
    """
    name, secret = key_of(user, "EXOTEL_STREAM_USER"), key_of(password, "EXOTEL_STREAM_PASSWORD")
    checks = [BasicPassword(name, secret, "Exotel")] if name and secret else []
    address = key_of(public_url, PUBLIC_URL)
    admission = Admission(address, checks, checks, passes_by(secret), clock)

    def answer(handshake: Handshake) -> Answer:
        url = admission.with_pass(stream_url(handshake, address), handshake)
        return exotel_answer(url, rate_hz=rate_hz)

    return StreamKind(
        "exotel",
        lambda _: CarrierAdapter(EXOTEL),
        admission if admission.checks else None,
        needs_key="EXOTEL_STREAM_USER and EXOTEL_STREAM_PASSWORD",
        answer=answer,
    )


def _handed_on(handshake: Handshake, parameters: Parameters | None) -> dict[str, str]:
    return {**call_parameters(asked_with(handshake)), **(parameters or {})}


def _sendable(codec: str, rate_hz: int, *, big_endian: bool) -> Payload:
    payload = payload_of(codec, rate_hz, big_endian=big_endian)
    if payload is None or not payload.sample_bytes:
        raise BadRequest(
            f"{codec} at {rate_hz} Hz cannot be sent to a carrier's stream.",
            remedy="Take PCMU or PCMA at 8000 Hz, or L16 at 8000, 16000 or 24000 Hz.",
        )
    return payload
