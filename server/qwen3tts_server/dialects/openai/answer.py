"""OpenAI's answers for speech: stream, events, file."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from dataclasses import replace
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from qwen3tts_server.dialects.encoding import JOB_BYTES, SoundEncoder, content_type
from qwen3tts_server.dialects.http_bodies import ClientStalled, PacedSender, until_gone
from qwen3tts_server.dialects.http_errors import about, code_of, speech_error_body
from qwen3tts_server.dialects.openai.request import SpeechOrder
from qwen3tts_server.dialects.qwen_fields import embedded_voice, reference_voice
from qwen3tts_server.service import Service
from qwen3tts_server.speech_stream import SpeechStream
from qwen3tts_server.utterance import AudioPiece, Utterance
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.messages import ContextOpen

DIALECT = "openai"
SILENCE_MS = 100
"""Silence for a text without speech: clients reject an empty file."""
FRAME_MS = 80
"""Codec frame, the unit of ``output_tokens``."""


async def with_reference(service: Service, order: SpeechOrder) -> ContextOpen:
    """Return the context with its reference voice loaded; FieldRefused is counted."""
    if order.ref_audio is None and order.ref_text is None and order.embedding is None:
        return order.context
    voices = service.voices
    try:
        if order.embedding is not None:
            voice: str | None = await embedded_voice(voices, order.embedding)
        else:
            voice = await reference_voice(
                voices, order.ref_audio, order.ref_text, x_vector_only=order.x_vector_only
            )
        with about("language"):
            voices.check(voice, order.context.language)
    except SpeechError as error:
        service.meter.dialect(DIALECT).errored(code_of(error))
        raise
    return replace(order.context, voice=voice)


async def spoken_whole(
    service: Service, order: SpeechOrder, context: ContextOpen
) -> tuple[bytes, Utterance]:
    """Speak an order; return file and utterance.

    The engine is free before encoding. Raises as SpeechStream and the encoder.
    """
    rate = context.format.sample_rate
    pcm = bytearray()
    async with service.speaking(context, DIALECT) as speaking:
        say(speaking, order.text)
        async for item in speaking:
            if isinstance(item, AudioPiece):
                pcm += item.data
    file = await service.encoding.whole(order.form, rate, bytes(pcm) or silence(rate))
    return file, speaking.utterance


def say(speaking: SpeechStream, text: str) -> None:
    speaking.append(text)
    speaking.end()


def silence(rate: int) -> bytes:
    return bytes(2 * (rate * SILENCE_MS // 1000))


def usage(utterance: Utterance) -> dict[str, Any]:
    samples = utterance.opened.format.samples(FRAME_MS)
    chars, frames = utterance.chars, -(-utterance.sent // samples)
    return {
        "input_tokens": chars,
        "output_tokens": frames,
        "total_tokens": chars + frames,
        "input_token_details": {"text_tokens": chars, "audio_tokens": 0},
    }


def usage_headers(utterance: Utterance) -> dict[str, str]:
    used = usage(utterance)
    details = used["input_token_details"]
    numbers = {
        "Input-Tokens": used["input_tokens"],
        "Output-Tokens": used["output_tokens"],
        "Total-Tokens": used["total_tokens"],
        "Input-Text-Tokens": details["text_tokens"],
        "Input-Audio-Tokens": details["audio_tokens"],
    }
    return {f"X-VLLM-OMNI-{name}": str(number) for name, number in numbers.items()}


def word_times(utterance: Utterance) -> list[dict[str, Any]]:
    rate = utterance.opened.format.sample_rate
    return [
        {
            "word": word.text,
            "start_ms": round(1000 * word.start / rate),
            "end_ms": round(1000 * word.end / rate),
        }
        for word in utterance.words
    ]


log = logging.getLogger(__name__)

EVENTS = "text/event-stream"
MOST_WORDS_BYTES = 4096
"""Header size of word times; clients refuse longer ones."""


class SpeechAnswer(Response):
    """Answer that speaks an order.

    An error before audio is an HTTP status; later it cuts a raw stream off, or is an event. A
    client that leaves stops the engine.
    """

    def __init__(self, service: Service, order: SpeechOrder) -> None:
        super().__init__()
        self._service = service
        self._order = order

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = PacedSender(send, self._service.settings.openai.send_timeout_s)
        await until_gone(receive, self._serve(sending))

    async def _serve(self, sending: PacedSender) -> None:
        order = self._order
        with self._service.serving(DIALECT):
            context = await with_reference(self._service, order)
            try:
                if order.delivery == "whole":
                    await self._send_whole(sending, context)
                else:
                    await self._send_stream(sending, context)
            except ClientStalled:
                log.info("a client took nothing for too long and was cut off")

    async def _send_whole(self, sending: PacedSender, context: ContextOpen) -> None:
        order = self._order
        body, utterance = await spoken_whole(self._service, order, context)
        headers = self._own_headers(utterance) | {"Content-Length": str(len(body))}
        headers |= usage_headers(utterance)
        if order.word_timestamps:
            headers |= words_headers(word_times(utterance))
        await sending.start(content_type(order.form), headers)
        await sending.body(body)
        await sending.end()

    async def _send_stream(self, sending: PacedSender, context: ContextOpen) -> None:
        order, rate = self._order, context.format.sample_rate
        async with self._service.speaking(context, DIALECT) as speaking:
            say(speaking, order.text)
            await asyncio.sleep(0)  # The engine begins; to open an encoder takes some milliseconds.
            encoding = self._service.encoding
            encoder = await encoding.open(order.form, rate)
            utterance = speaking.utterance
            pcm = bytearray()
            try:
                async for item in speaking:
                    if not isinstance(item, AudioPiece):
                        continue
                    pcm += item.data
                    if utterance.queued and len(pcm) < JOB_BYTES:
                        continue  # one message, and one job on a thread, for what lies there
                    data = await encoding.push(encoder, bytes(pcm))
                    pcm.clear()
                    await self._send_piece(sending, encoder, utterance, data)
            except SpeechError as error:
                if not sending.started:
                    raise
                await self._send_error(sending, error)
                return
        rest = b"" if utterance.sent else await encoding.push(encoder, silence(rate))
        rest += await encoding.flush(encoder)
        await self._send_piece(sending, encoder, utterance, rest)
        if order.delivery == "sse":
            await sending.body(event(self._done(utterance)))
        await sending.end()

    async def _send_piece(
        self, sending: PacedSender, encoder: SoundEncoder, utterance: Utterance, data: bytes
    ) -> None:
        if not data:
            return
        events = self._order.delivery == "sse"
        if not sending.started:
            kind = EVENTS if events else encoder.content_type
            await sending.start(kind, self._own_headers(utterance))
        if events:
            sound = base64.b64encode(data).decode("ascii")
            delta = {"audio": sound, "response_format": self._order.form}
            data = event({"type": "speech.audio.delta", **delta})
        await sending.body(data)

    async def _send_error(self, sending: PacedSender, error: SpeechError) -> None:
        if self._order.delivery == "sse":
            body = {"type": "speech.audio.error", **speech_error_body(error)}
            await sending.body(event(body))
            await sending.end()

    def _own_headers(self, utterance: Utterance) -> dict[str, str]:
        order = self._order
        headers = {
            "X-Sample-Rate": str(order.context.format.sample_rate),
            "X-Cache-Starter": str(utterance.from_cache).lower(),
            "Cache-Control": "no-store",
            # A proxy that collects the sound would undo the streaming.
            "X-Accel-Buffering": "no",
        }
        if order.ignored:
            headers["X-Ignored-Fields"] = ", ".join(order.ignored)
        return headers

    def _done(self, utterance: Utterance) -> dict[str, Any]:
        done: dict[str, Any] = {"type": "speech.audio.done", "usage": usage(utterance)}
        if self._order.word_timestamps:
            done["word_timestamps"] = word_times(utterance)
        return done


def event(body: dict[str, Any]) -> bytes:
    """Return a server-sent event, typed in ``event:`` (vLLM-Omni) and data (OpenAI)."""
    data = json.dumps(body, separators=(",", ":")).encode()
    return b"event: %b\ndata: %b\n\n" % (body["type"].encode(), data)


def words_headers(words: list[dict[str, Any]]) -> dict[str, str]:
    """Return headers of word times within MOST_WORDS_BYTES, and the number left out."""
    kept, size = 0, 2
    texts = [json.dumps(word, separators=(",", ":")) for word in words]
    for text in texts:
        size += len(text) + 1
        if size > MOST_WORDS_BYTES:
            break
        kept += 1
    headers = {"X-Word-Timestamps": f"[{','.join(texts[:kept])}]"}
    if kept < len(words):
        headers["X-Word-Timestamps-Omitted"] = str(len(words) - kept)
    return headers
