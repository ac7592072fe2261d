"""Exotel's Voicebot applet: format, password, start answer."""

from __future__ import annotations

import json
import time
from typing import Final

from qwen3tts_codecs.l16 import slin
from qwen3tts_phone.streams.carriers.adapter import Handshake, StreamKind
from qwen3tts_phone.streams.carriers.authentication import (
    PUBLIC_URL,
    BasicPassword,
    CarrierAdmission,
    WallClock,
    given_key,
    passes_signed_with,
)
from qwen3tts_phone.streams.carriers.http import JSON, Answer
from qwen3tts_phone.streams.carriers.json_media import (
    EVENTS,
    NAME,
    SOUND,
    STREAM,
    EventKind,
    JsonDialect,
    JsonMediaAdapter,
)

# developer.exotel.com/docs/agentstream/websocket-protocol; messages of at least 100 ms and of
# whole 320 bytes, support.exotel.com (article 3000108630).
EXOTEL: Final = JsonDialect(
    line="exotel",
    payload=slin(8000),
    media={"event": "media", "stream_sid": STREAM, "media": {"payload": SOUND}},
    clear={"event": "clear", "stream_sid": STREAM},
    mark={"event": "mark", "stream_sid": STREAM, "mark": {"name": NAME}},
    events={**EVENTS, "clear": EventKind.CLEARED},
    stream_id=("stream_sid", "streamSid", "stream_id", "streamId"),
    call_id=("call_sid", "callSid", "call_id", "callId"),
    format=("media_format", "mediaFormat"),
    rate=("sample_rate", "sampleRate"),
    parameters=("custom_parameters", "customParameters"),
    join_frames=5,
    lead_ms=240,
)


def exotel(
    *,
    user: str | None = None,
    password: str | None = None,
    rate_hz: int = 8000,
    public_url: str | None = None,
    clock: WallClock = time.time,
) -> StreamKind:
    """Return Exotel's Voicebot applet (unsigned; its URL may hold user and password).

    Args:
        user: of the stream's URL; ``EXOTEL_STREAM_USER``.
        password: of the stream's URL; ``EXOTEL_STREAM_PASSWORD``.
        rate_hz: requested by the start answer: 8000, 16000 or 24000.
        public_url: scheme and host of the stream's URL; ``MR_QWEN3TTS_PUBLIC_URL``.
        clock: seconds since 1970.
    """
    name = given_key(user, "EXOTEL_STREAM_USER")
    secret = given_key(password, "EXOTEL_STREAM_PASSWORD")
    checks = [BasicPassword(name, secret, "Exotel")] if name and secret else []
    url = given_key(public_url, PUBLIC_URL)
    admission = CarrierAdmission(url, checks, checks, passes_signed_with(secret), clock)

    def answer(handshake: Handshake) -> Answer:
        return exotel_answer(admission.stream_url(handshake), rate_hz=rate_hz)

    return StreamKind(
        "exotel",
        lambda _: JsonMediaAdapter(EXOTEL),
        admission if admission.checks else None,
        needs_key="EXOTEL_STREAM_USER and EXOTEL_STREAM_PASSWORD",
        answer=answer,
    )


def exotel_answer(url: str, *, rate_hz: int = 8000) -> Answer:
    """Return the URL for a Voicebot applet, with the rate in its query."""
    return JSON, json.dumps({"url": url if rate_hz == 8000 else f"{url}?sample-rate={rate_hz}"})
