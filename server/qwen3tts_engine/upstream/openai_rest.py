"""Client of OpenAI's ``POST /v1/audio/speech``, raw or server-sent events."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncGenerator
from email.message import Message
from typing import Any, Protocol

import httpx

from qwen3tts_engine.upstream.backend import DEFAULT, ResponseDeadline, SynthesisOrder, with_extra
from qwen3tts_engine.upstream.http import (
    AGAIN,
    beginning,
    content_type,
    fault,
    garbage,
    of_fields,
    of_status,
    printable,
)
from qwen3tts_engine.upstream.settings import ServerRoutes, UpstreamSettings
from qwen3tts_engine.upstream.sound import check_rate
from qwen3tts_wire.errors import EngineFailed, LimitExceeded
from qwen3tts_wire.sse import SseEvent, SseParser

RAW_TYPES = frozenset(
    {
        "",
        "application/octet-stream",
        "binary/octet-stream",
        "audio/pcm",
        "audio/x-pcm",
        "audio/raw",
        "audio/wav",
        "audio/x-wav",
        "audio/wave",
        "audio/vnd.wave",
    }
)
EVENTS = "text/event-stream"


class SpeechBody(Protocol):
    """Incremental reader of a body: bytes in, bytes of sound out."""

    def push(self, data: bytes) -> bytes: ...

    def end(self) -> None: ...


def body_for(content_type: str, sample_rate: str | None, max_event_chars: int) -> SpeechBody:
    """Return the reader for an answer's ``Content-Type`` and ``X-Sample-Rate``."""
    header = Message()
    header["content-type"] = content_type
    kind = header.get_content_type() if content_type.strip() else ""
    if kind == EVENTS:
        return EventBody(max_event_chars)
    if kind not in RAW_TYPES:
        what = "an HTML page" if "html" in kind else f"{printable(kind)[:40]}, not pcm as asked"
        raise garbage(what)
    rate = header.get_param("rate") if content_type.strip() else None
    for told in (rate, sample_rate):
        if isinstance(told, str):
            digits = told.strip()
            check_rate(int(digits) if digits.isdecimal() and len(digits) < 10 else None)
    return RawBody()


class RawBody:
    def push(self, data: bytes) -> bytes:
        return data

    def end(self) -> None:
        """Do nothing: HTTP says that it is whole."""


class EventBody:
    def __init__(self, max_event_chars: int) -> None:
        self._parser = SseParser(max_event_chars)
        self._most = max_event_chars
        self._done = False
        self._received = 0

    def push(self, data: bytes) -> bytes:
        try:
            events = self._parser.push(data)
        except LimitExceeded:
            raise garbage(f"an event of more than {self._most} characters") from None
        return b"".join(map(self._take, events))

    def end(self) -> None:
        if not self._done:
            raise EngineFailed(
                "The upstream server's events ended before the speech did.", remedy=AGAIN
            )

    def _take(self, event: SseEvent) -> bytes:
        if event.data.strip() == "[DONE]":
            self._done = True
            return b""
        try:
            fields = json.loads(event.data)
        except (ValueError, RecursionError):
            raise garbage("an event that is no JSON") from None
        if not isinstance(fields, dict):
            raise garbage("an event that is no JSON object")
        told = fields.get("type")
        kind = told if isinstance(told, str) else event.event
        if kind.endswith("error") or fields.get("error"):
            self._fail(fields)
        if kind.endswith("audio.done"):
            self._done = True
        elif kind.endswith("audio.delta"):
            return self._sound(fields.get("audio", fields.get("delta")))
        return b""

    def _sound(self, audio: object) -> bytes:
        if self._done:
            raise garbage("sound after its end")
        try:
            sound = base64.b64decode(audio if isinstance(audio, str) else b"!", validate=True)
        except (binascii.Error, ValueError):
            raise garbage("sound that is no base64") from None
        self._received += len(sound)
        return sound

    def _fail(self, fields: dict[str, Any]) -> None:
        inner = fields.get("error")
        if isinstance(inner, str):
            inner = {"message": inner}
        error = of_fields(inner if isinstance(inner, dict) else fields)
        if self._received and not isinstance(error, EngineFailed):
            # With half a sentence said, it is no longer the request that is wrong.
            error = EngineFailed(error.message, remedy=AGAIN)
        raise error


class OpenAIRest:
    options = frozenset({"instructions", "speed"})

    def __init__(
        self, address: ServerRoutes, settings: UpstreamSettings, client: httpx.AsyncClient
    ) -> None:
        self._url = address.speech
        self._settings = settings
        self._extra = settings.extra_fields()
        self._client = client

    async def probe(self) -> None:
        """Do nothing: a request may cost money."""

    async def close(self) -> None: ...

    def body(self, order: SynthesisOrder) -> dict[str, Any]:
        fields = {
            "model": self._settings.model or None,
            "input": order.text,
            "response_format": "pcm",
            **order.fields(),
        }
        # OpenAI's route asks for a voice; vLLM-Omni knows this name for none.
        fields.setdefault("voice", DEFAULT)
        if order.speed == 1.0:
            fields["stream"] = True
        else:
            # vLLM-Omni refuses to stream at another speed; then it comes as a whole.
            fields["speed"] = order.speed
        return with_extra(fields, self._extra)

    async def speak(self, order: SynthesisOrder) -> AsyncGenerator[bytes, None]:
        settings = self._settings
        patience = ResponseDeadline(settings.first_audio_s, settings.stall_s)
        accept = {"Accept": "audio/pcm, audio/*;q=0.9, */*;q=0.1"}
        request = self._client.build_request(
            "POST", self._url, json=self.body(order), headers=accept
        )
        try:
            async with patience.limit():
                response = await self._client.send(request, stream=True)
            try:
                async with patience.limit():
                    await self._check(response)
                body = body_for(
                    content_type(response),
                    response.headers.get("x-sample-rate"),
                    settings.max_message_bytes,
                )
                pieces = response.aiter_raw()
                while True:
                    async with patience.limit():
                        piece = await anext(pieces, None)
                    if piece is None:
                        break
                    sound = body.push(piece)
                    if sound:
                        yield sound
                        patience.sounded()
                body.end()
            finally:
                await response.aclose()
        except TimeoutError as error:
            raise patience.over() from error
        except httpx.HTTPError as error:
            raise fault(error) from error

    async def _check(self, response: httpx.Response) -> None:
        status = response.status_code
        kind = content_type(response)
        if status != 200:
            after = response.headers.get("retry-after")
            raise of_status(status, await beginning(response), kind, after)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise garbage("a compressed answer, which was not asked for")
        if "json" in kind.lower():
            # An error with the status of success.
            raise of_status(500, await beginning(response), kind)
