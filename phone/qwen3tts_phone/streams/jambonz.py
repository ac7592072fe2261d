"""jambonz as a kind of stream: adapter, check, start answer."""

from __future__ import annotations

import time

from qwen3tts_phone.streams.adapter import Handshake, StreamKind
from qwen3tts_phone.streams.admission import (
    PUBLIC_URL,
    Admission,
    WallClock,
    key_of,
    passes_by,
)
from qwen3tts_phone.streams.carrier_request import RequestCheck
from qwen3tts_phone.streams.jambonz_adapter import RATES_HZ, SUBPROTOCOL, JambonzAdapter
from qwen3tts_phone.streams.signatures import BasicPassword, JambonzSignature
from qwen3tts_phone.streams.start_answers import Answer, jambonz_answer, stream_url
from qwen3tts_wire.errors import BadRequest


def jambonz(
    *,
    user: str | None = None,
    password: str | None = None,
    webhook_secret: str | None = None,
    rate_hz: int = 8000,
    plays_hz: int | None = None,
    public_url: str | None = None,
    clock: WallClock = time.time,
) -> StreamKind:
    """The ``listen`` verb of jambonz with ``bidirectionalAudio.streaming``.

    Args:
        user: ``wsAuth.username`` of the verb, and of the application's webhook if it has a
            password; ``JAMBONZ_USER``.
        password: ``wsAuth.password``; ``JAMBONZ_PASSWORD``.
        webhook_secret: checks ``Jambonz-Signature`` of the webhook; ``JAMBONZ_WEBHOOK_SECRET``.
        rate_hz: what the start answer asks for, both ways.
        plays_hz: ``bidirectionalAudio.sampleRate`` of a verb that is written elsewhere, where that
            is another rate than the caller's; None = the same.
        public_url: scheme and host of the ``listen`` verb's ``url``;
            ``MR_QWEN3TTS_PUBLIC_URL``.
        clock: where the time comes from.

    Raises:
        BadRequest: there is no such rate.
    """
    for each in (rate_hz, plays_hz or rate_hz):
        if each not in RATES_HZ:
            known = ", ".join(map(str, RATES_HZ))
            raise BadRequest(f"jambonz has no streams of {each} Hz.", remedy=f"Take {known}.")
    name, secret = key_of(user, "JAMBONZ_USER"), key_of(password, "JAMBONZ_PASSWORD")
    webhook = key_of(webhook_secret, "JAMBONZ_WEBHOOK_SECRET")
    basic: list[RequestCheck] = [BasicPassword(name, secret, "jambonz")] if name and secret else []
    signed: list[RequestCheck] = [JambonzSignature(webhook)] if webhook else []
    # The start answer holds the password: it is given only to who knows it, or has signed.
    address = key_of(public_url, PUBLIC_URL)
    admission = Admission(address, basic, [*signed, *basic], passes_by(secret, webhook), clock)

    def answer(handshake: Handshake) -> Answer:
        url = admission.with_pass(stream_url(handshake, address), handshake)
        return jambonz_answer(url, rate_hz=rate_hz, user=name, password=secret)

    return StreamKind(
        "jambonz",
        lambda _: JambonzAdapter(plays_hz),
        admission if admission.checks else None,
        needs_key="JAMBONZ_USER and JAMBONZ_PASSWORD",
        subprotocols=(SUBPROTOCOL,),
        answer=answer,
    )
