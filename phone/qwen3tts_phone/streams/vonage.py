"""Vonage as a kind of stream: adapter, check, start answer."""

from __future__ import annotations

import time
from collections.abc import Mapping

from qwen3tts_phone.streams.adapter import Handshake, StreamKind
from qwen3tts_phone.streams.admission import (
    PUBLIC_URL,
    Admission,
    WallClock,
    key_of,
    passes_by,
)
from qwen3tts_phone.streams.public_keys import VonageToken
from qwen3tts_phone.streams.start_answers import (
    Answer,
    asked_with,
    call_parameters,
    stream_url,
    vonage_answer,
)
from qwen3tts_phone.streams.vonage_adapter import RATES_HZ, VonageAdapter
from qwen3tts_wire.errors import BadRequest


def vonage(
    *,
    signature_secret: str | None = None,
    application_id: str = "",
    rate_hz: int = 16000,
    public_url: str | None = None,
    parameters: Mapping[str, str] | None = None,
    clock: WallClock = time.time,
) -> StreamKind:
    """Vonage's Voice API over a WebSocket.

    Args:
        signature_secret: checks the token of signed webhooks, and of the WebSocket where the NCCO
            asks for one; ``VONAGE_SIGNATURE_SECRET``.
        application_id: refuses tokens of other applications.
        rate_hz: what the start answer asks for: 8000, 16000 or 24000.
        public_url: scheme and host as they stand in the NCCO;
            ``MR_QWEN3TTS_PUBLIC_URL``.
        parameters: headers of the start answer's endpoint; `StreamStarted.parameters`.
        clock: where the time comes from.

    Raises:
        BadRequest: there is no such rate.
    """
    if rate_hz not in RATES_HZ:
        raise BadRequest(
            f"Vonage has no streams of {rate_hz} Hz.", remedy="Take 8000, 16000 or 24000."
        )
    secret = key_of(signature_secret, "VONAGE_SIGNATURE_SECRET")
    checks = [VonageToken(secret, application_id=application_id)] if secret else []
    address = key_of(public_url, PUBLIC_URL)
    admission = Admission(address, checks, checks, passes_by(secret), clock)

    def answer(handshake: Handshake) -> Answer:
        asked = asked_with(handshake)
        ids = {name: asked[name] for name in ("uuid", "conversation_uuid") if asked.get(name)}
        given = {**ids, **call_parameters(asked), **(parameters or {})}
        url = admission.with_pass(stream_url(handshake, address), handshake)
        return vonage_answer(url, given, rate_hz=rate_hz, signed=bool(secret))

    return StreamKind(
        "vonage",
        lambda _: VonageAdapter(rate_hz),
        admission if admission.checks else None,
        needs_key="VONAGE_SIGNATURE_SECRET",
        answer=answer,
    )
