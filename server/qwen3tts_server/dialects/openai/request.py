"""OpenAI's speech request as an order; model names."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from qwen3tts_engine.base import MAX_FIRST_CHUNK, SPEED_MAX, SPEED_MIN
from qwen3tts_engine.playout import UNPACED_LEAD_MS
from qwen3tts_engine.wrapped import model_ids_of
from qwen3tts_server.dialects.encoding import rate_for
from qwen3tts_server.dialects.http_errors import FieldRefused, ModelNotFound, about, first_fault
from qwen3tts_server.dialects.qwen_fields import (
    MAX_EMBEDDING,
    MAX_SEED,
    check_embedding,
    check_task,
    first_chunk_of,
    language_tag,
    mode_of,
    seed_of,
)
from qwen3tts_server.service import Service
from qwen3tts_server.settings import OpenAISettings
from qwen3tts_server.voices.catalogue import VoiceCatalogue
from qwen3tts_wire.errors import BadRequest, BadText, LimitExceeded
from qwen3tts_wire.formats import RATE_MAX, RATE_MIN, AudioFormat
from qwen3tts_wire.messages import ContextOpen, Sampling

_DATE = re.compile(r"-\d{4}-\d{2}-\d{2}")


class Models:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._since = int(time.time())

    @property
    def own(self) -> str:
        return self._service.engine.model

    def names(self) -> list[str]:
        engine, aliases = self._service.engine, self._service.settings.openai.model_aliases
        return list(dict.fromkeys([self.own, *model_ids_of(engine), *aliases]))

    def find(self, name: str | None) -> str:
        """Return the listed name of a model; FieldRefused (404) without one."""
        if name is None:
            return self.own
        known = self.names()
        dated = _DATE.sub("", name) if _DATE.fullmatch(name[-11:]) else name
        for each in (name, dated):
            if each in known:
                return each
        with about("model"):
            raise ModelNotFound("There is no such model.", remedy="GET /v1/models lists them.")

    def list(self) -> dict[str, Any]:
        return {"object": "list", "data": [self.described(name) for name in self.names()]}

    def described(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._since, "owned_by": "qwen3tts"}


Delivery = Literal["whole", "raw", "sse"]
"""One file with its length; audio as it is made; server-sent events."""
SAMPLE_RATE = 24_000
"""Hertz, by default."""


def _int64(schema: dict[str, Any]) -> None:
    schema["anyOf"][0]["format"] = "int64"


class VoiceName(BaseModel):
    """A voice as OpenAI names those that were brought."""

    model_config = ConfigDict(strict=True)
    id: str = Field(min_length=1, max_length=256)


class SpeechFields(BaseModel):
    """How a text is to be said. null is as if left out; fields not named here are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")

    voice: Annotated[str, Field(max_length=256)] | VoiceName | None = Field(
        None,
        description="A voice of GET /v1/voices, one that was uploaded, or one of OpenAI's names;"
        " left out: the server's choice.",
    )
    speaker: str | None = Field(None, max_length=256, description="The same as voice.")
    instructions: str | None = Field(
        None, max_length=4096, description="How to speak, in words, where the model takes that."
    )
    response_format: Literal["wav", "pcm", "flac", "mp3", "opus", "aac"] | None = Field(
        None, description="Left out: as the server is set (mp3). pcm is s16le, mono."
    )
    sample_rate: int | None = Field(
        None,
        ge=RATE_MIN,
        le=RATE_MAX,
        description="Hertz; 24000 where left out. mp3, opus and aac take the next rate that they"
        " have; X-Sample-Rate tells it.",
    )
    speed: float | None = Field(
        None,
        ge=0.25,
        le=4.0,
        description=f"1 is as recorded. Engines do {SPEED_MIN} to {SPEED_MAX}.",
    )
    task_type: Literal["CustomVoice", "VoiceDesign", "Base"] | None = Field(
        None, description="What the model was made for; it must be the served model's."
    )
    language: str | None = Field(
        None, max_length=64, description="A BCP 47 tag, Qwen3-TTS's name of it, or Auto."
    )
    ref_audio: str | None = Field(
        None,
        min_length=1,
        description="A recording whose voice speaks: data URL, base64, or an address where the"
        " server is set to fetch.",
    )
    ref_text: str | None = Field(None, max_length=4096, description="What the recording says.")
    x_vector_only_mode: bool | None = Field(
        None, description="Take only the colour of the recording's voice; it needs no text then."
    )
    seed: int | None = Field(
        None,
        ge=-MAX_SEED,
        lt=MAX_SEED,
        description="Start of the random numbers: a whole number of 64 bits with its sign.",
        json_schema_extra=_int64,
    )
    initial_codec_chunk_frames: int | None = Field(
        None, ge=0, le=MAX_FIRST_CHUNK, description="Codec frames in the first piece; 0: any."
    )
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=0, le=10_000)
    repetition_penalty: float | None = Field(None, ge=0.5, le=2)
    word_timestamps: bool | None = Field(
        None,
        description="Times of the words: in the header X-Word-Timestamps of a whole file, in"
        " the last event of a stream of events.",
    )
    max_new_tokens: int | None = Field(None, ge=1, le=4096, description="Read, not used.")
    non_streaming_mode: bool | None = Field(
        None,
        description="All text in one generation: true, read before it is spoken; false, while it"
        " is. Left out: clause by clause.",
    )
    extra_params: dict[str, Any] | None = Field(None, description="Read, not used.")
    speaker_embedding: Annotated[list[float], Field(max_length=MAX_EMBEDDING)] | None = Field(
        None,
        description="Numbers of a speaker encoder in place of ref_audio, where a Base checkpoint is"
        " served: as many as its width.",
    )

    @property
    def named_voice(self) -> str | None:
        voice = self.voice.id if isinstance(self.voice, VoiceName) else self.voice
        return voice or self.speaker or None


class SpeechRequest(SpeechFields):
    """What is to be said, and how."""

    input: str = Field(description="The text; at most as long as the server is set to (4096).")
    model: str | None = Field(None, max_length=256, description="GET /v1/models lists them.")
    stream: bool | None = Field(
        None, description="true: as it is made. false: one file with its length."
    )
    stream_format: Literal["sse", "audio"] | None = Field(
        None, description="Server-sent events, or the sound itself, as it is made."
    )


@dataclass(frozen=True)
class SpeechOrder:
    """Parsed request; its reference is not loaded yet."""

    context: ContextOpen
    text: str
    form: str
    delivery: Delivery
    ref_audio: str | None = None
    ref_text: str | None = None
    x_vector_only: bool = False
    embedding: tuple[float, ...] | None = None
    word_timestamps: bool = False
    ignored: tuple[str, ...] = ()
    """Sent fields without effect."""


def parse(body: Mapping[str, Any]) -> SpeechRequest:
    try:
        return SpeechRequest.model_validate(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        message, param = first_fault(faults)
    raise FieldRefused(BadRequest(message, remedy="/docs describes the fields."), param or "body")


async def order(
    asked: SpeechRequest, voices: VoiceCatalogue, settings: OpenAISettings, accept: str
) -> SpeechOrder:
    """Return a request's order; ``accept``: its header.

    Raises:
        FieldRefused: unsupported here.
        ServerBusy: the store of voices is unavailable.
    """
    _check_text(asked.input, settings.max_input_chars)
    form = asked.response_format or settings.default_format
    speed = _speed(asked.speed, voices)
    reference = asked.ref_audio is not None
    embedding = asked.speaker_embedding
    recorded = reference or asked.ref_text is not None
    check_embedding(voices, embedding, recording=recorded)
    check_task(
        voices,
        asked.task_type,
        reference=recorded or embedding is not None or bool(asked.x_vector_only_mode),
    )
    delivery = _delivery(asked, settings, accept)
    if asked.word_timestamps:
        _check_word_timestamps(voices, delivery)
    language = language_tag(asked.language)
    voice = None if reference or embedding is not None else asked.named_voice
    if not recorded and embedding is None:
        await _check_voice(voice, language, voices)
    return SpeechOrder(
        ContextOpen(
            context_id="speech",
            context_no=1,
            voice=voice,
            language=language,
            instructions=asked.instructions or None,
            mode=mode_of(asked.non_streaming_mode, "auto"),
            format=_sound(asked.sample_rate, form),
            speed=speed,
            sampling=_sampling(asked),
            seed=seed_of(asked.seed),
            initial_codec_chunk_frames=first_chunk_of(asked.initial_codec_chunk_frames),
            lead_ms=UNPACED_LEAD_MS,
        ),
        text=asked.input,
        form=form,
        delivery=delivery,
        ref_audio=asked.ref_audio,
        ref_text=asked.ref_text,
        x_vector_only=bool(asked.x_vector_only_mode),
        embedding=None if embedding is None else tuple(embedding),
        word_timestamps=bool(asked.word_timestamps),
        ignored=_ignored(asked, voices.options),
    )


def _check_text(text: str, most: int) -> None:
    with about("input"):
        if not text.strip():
            raise BadText("There is no text.", remedy="Send what is to be said as input.")
        if len(text) > most:
            raise LimitExceeded(
                f"The text has {len(text)} characters; {most} are taken.",
                remedy="Send it in several requests, or use the WebSocket /v1/speech.",
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadText(
                "The text holds half a surrogate pair.", remedy="Send whole characters."
            ) from None


def _speed(speed: float | None, voices: VoiceCatalogue) -> float:
    if speed is None or speed == 1.0:
        return 1.0
    with about("speed"):
        if "speed" not in voices.options:
            raise BadRequest(
                "The model that is served speaks at its own speed only.",
                remedy="Leave speed out, or send 1.0.",
            )
        if not SPEED_MIN <= speed <= SPEED_MAX:
            raise BadRequest(
                f"speed={speed} is faster or slower than the engine speaks.",
                remedy=f"Choose a factor from {SPEED_MIN} to {SPEED_MAX}.",
            )
    return speed


def _sound(rate: int | None, form: str) -> AudioFormat:
    return AudioFormat("pcm_s16le", rate_for(form, rate or SAMPLE_RATE))


async def _check_voice(voice: str | None, language: str | None, voices: VoiceCatalogue) -> None:
    with about("voice"):
        # Another replica may have been given it just now.
        await voices.find(voice)
        voices.check(voice, None)
    with about("language"):
        voices.check(voice, language)


def _delivery(asked: SpeechRequest, settings: OpenAISettings, accept: str) -> Delivery:
    if asked.stream_format == "sse":
        return "sse"
    if asked.stream is False:
        return "whole"
    if asked.stream_format == "audio":
        return "raw"
    if asks_for_events(accept):
        return "sse"
    if asked.stream:
        return settings.stream_default
    # OpenAI sends everything as it is made. A WAV file's header states its length, though, and
    # programs that save it want it true.
    return "whole" if (asked.response_format or settings.default_format) == "wav" else "raw"


def asks_for_events(accept: str) -> bool:
    for each in accept.lower().split(","):
        kind, *params = (part.strip() for part in each.split(";"))
        if kind == "text/event-stream":
            return not any(
                param.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for param in params
            )
    return False


def _check_word_timestamps(voices: VoiceCatalogue, delivery: Delivery) -> None:
    with about("word_timestamps"):
        if voices.alignment == "none":
            raise BadRequest(
                "The model that is served does not know where its words sound.",
                remedy="Leave word_timestamps out.",
            )
        if delivery == "raw":
            raise BadRequest(
                "Times of words are known only when all is said.",
                remedy="Send stream false, or stream_format sse.",
            )


def _sampling(asked: SpeechRequest) -> Sampling | None:
    sampling = Sampling(
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.top_k,
        repetition_penalty=asked.repetition_penalty,
    )
    return None if sampling == Sampling() else sampling


def _ignored(asked: SpeechRequest, options: frozenset[str]) -> tuple[str, ...]:
    sampling = ("temperature", "top_p", "top_k", "repetition_penalty")
    taken = set(options) | (set(sampling) if "sampling" in options else set())
    optional = ("instructions", "seed", "initial_codec_chunk_frames", *sampling)
    layouts = () if "layout" in options else ("non_streaming_mode",)
    never = ("max_new_tokens", *layouts, "extra_params")
    return tuple(
        name
        for name in (*optional, *never)
        if getattr(asked, name) is not None and name not in taken
    )
