"""A text as one file, and what it took: for single answers and for batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from qwen3tts_server.dialects.http_errors import about, code_of
from qwen3tts_server.dialects.openai_request import Order
from qwen3tts_server.dialects.qwen_fields import embedded_voice, reference_voice
from qwen3tts_server.service import Service
from qwen3tts_server.speaking import Speaking
from qwen3tts_server.utterance import Sound, Utterance
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.messages import ContextOpen

DIALECT = "openai"
SILENCE_MS = 100
"""What a text without anything to say sounds like: players and SDKs take an empty file for an
error."""
FRAME_MS = 80
"""A codec frame: what ``output_tokens`` counts."""


async def with_reference(service: Service, order: Order) -> ContextOpen:
    """The order's context with the voice of its recording or embedding, made ready.

    Raises:
        FieldRefused: it cannot be had or used; counted.
    """
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
    service: Service, order: Order, context: ContextOpen
) -> tuple[bytes, Utterance]:
    """Say an order as ``context``; returns its file and what is known of the speech.

    The engine is free before the sound is encoded. Raises what Speaking and the encoder raise.
    """
    rate = context.format.sample_rate
    pcm = bytearray()
    async with service.speaking(context, DIALECT) as speaking:
        say(speaking, order.text)
        async for item in speaking:
            if isinstance(item, Sound):
                pcm += item.data
    file = await service.encoding.whole(order.form, rate, bytes(pcm) or silence(rate))
    return file, speaking.utterance


def say(speaking: Speaking, text: str) -> None:
    """Hand over the whole text."""
    speaking.append(text)
    speaking.end()


def silence(rate: int) -> bytes:
    """SILENCE_MS of it."""
    return bytes(2 * (rate * SILENCE_MS // 1000))


def usage(utterance: Utterance) -> dict[str, Any]:
    """What was used: characters in, codec frames of FRAME_MS out; there are no other tokens."""
    samples = utterance.opened.format.samples(FRAME_MS)
    chars, frames = utterance.chars, -(-utterance.sent // samples)
    return {
        "input_tokens": chars,
        "output_tokens": frames,
        "total_tokens": chars + frames,
        "input_token_details": {"text_tokens": chars, "audio_tokens": 0},
    }


def usage_headers(utterance: Utterance) -> dict[str, str]:
    """``usage`` in the headers of a whole file, by vLLM-Omni's names."""
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
    """The words and their places in the sound, in milliseconds."""
    rate = utterance.opened.format.sample_rate
    return [
        {
            "word": word.text,
            "start_ms": round(1000 * word.start / rate),
            "end_ms": round(1000 * word.end / rate),
        }
        for word in utterance.words
    ]
