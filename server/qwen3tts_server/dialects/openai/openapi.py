"""OpenAPI schemas of the routes that read their bodies themselves."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

from qwen3tts_server.dialects.encoding import FORMS, content_type
from qwen3tts_server.dialects.openai.batch import BatchRequest, Totals
from qwen3tts_server.dialects.openai.request import SpeechRequest


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str = Field(description="The cause, and what to do.")
    type: str = Field(description="The kind of error, in OpenAI's words.")
    param: str | None = Field(description="The field that is meant.")
    code: str = Field(description="The name of the error; stable.")


class ErrorAnswer(BaseModel):
    """Every error."""

    error: ErrorDetail


class InputTokens(BaseModel):
    """Parts of ``input_tokens``."""

    text_tokens: int = Field(description="Characters of the text.")
    audio_tokens: int = Field(description="0: a recording is not counted.")


class Usage(BaseModel):
    """What a text took."""

    input_tokens: int = Field(description="Characters of the text.")
    output_tokens: int = Field(description="Codec frames of 80 ms.")
    total_tokens: int
    input_token_details: InputTokens


class SpeechEvent(BaseModel):
    """The data of one event."""

    type: Literal["speech.audio.delta", "speech.audio.done", "speech.audio.error"]
    audio: str | None = Field(None, description="Base64; in each delta.")
    response_format: str | None = Field(None, description="Form of the sound; in each delta.")
    usage: Usage | None = Field(None, description="In the last event.")
    error: ErrorDetail | None = Field(None, description="Instead of usage.")


def _not_null(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def _file_not_null(schema: dict[str, Any]) -> None:
    _not_null(schema)
    schema |= {"format": "binary", "contentMediaType": "application/octet-stream"}


class Upload(BaseModel):
    """A recording or a speaker embedding that becomes a voice; one of the two."""

    name: str = Field(min_length=1)
    consent: str = Field(min_length=1, description="The speaker's consent, or a name of it.")
    # A form has no null: a field is sent or left out.
    audio_sample: str | SkipJsonSchema[None] = Field(
        None,
        description="The recording, as a file.",
        json_schema_extra=_file_not_null,
    )
    speaker_embedding: str | SkipJsonSchema[None] = Field(
        None,
        description="In its place: the numbers of a speaker encoder, a JSON list.",
        json_schema_extra=_not_null,
    )
    ref_text: str | SkipJsonSchema[None] = Field(
        None,
        description="What the recording says; left out: found out, where the server can.",
        json_schema_extra=_not_null,
    )
    speaker_description: str | SkipJsonSchema[None] = Field(None, json_schema_extra=_not_null)
    x_vector_only_mode: Literal["true", "false"] | SkipJsonSchema[None] = Field(
        None,
        description="true: take only the speaker embedding, no text is needed. Left out: true"
        " where the words are neither given nor found out.",
        json_schema_extra=_not_null,
    )
    overwrite: Literal["true", "false"] | SkipJsonSchema[None] = Field(
        None,
        description="true: an uploaded voice of that name is replaced.",
        json_schema_extra=_not_null,
    )


class Recording(BaseModel):
    """A recording that is to be written down."""

    file: str = Field(
        description="The recording, as a file.",
        json_schema_extra={"format": "binary", "contentMediaType": "application/octet-stream"},
    )
    model: str | SkipJsonSchema[None] = Field(
        None,
        description="whisper-1, another of OpenAI's names, or the model's own.",
        json_schema_extra=_not_null,
    )
    language: str | SkipJsonSchema[None] = Field(
        None,
        max_length=64,
        description="A tag (en) or a name; left out: found out.",
        json_schema_extra=_not_null,
    )
    response_format: Literal["json", "text", "verbose_json"] | SkipJsonSchema[None] = Field(
        None, description="Left out: json.", json_schema_extra=_not_null
    )
    prompt: str | SkipJsonSchema[None] = Field(
        None, description="Read, not used.", json_schema_extra=_not_null
    )
    temperature: str | SkipJsonSchema[None] = Field(
        None, description="0 to 1; read, not used.", json_schema_extra=_not_null
    )


class Duration(BaseModel):
    """What a recording took."""

    type: Literal["duration"]
    seconds: int


class Segment(BaseModel):
    """A stretch of a recording, some 20 to 30 s."""

    id: int
    start: float = Field(description="Seconds.")
    end: float
    text: str


class Transcript(BaseModel):
    """The words of a recording; all but text and usage with verbose_json."""

    text: str
    usage: Duration
    task: Literal["transcribe"] | SkipJsonSchema[None] = None
    language: str | None = Field(None, description="As it was asked for.")
    duration: float | SkipJsonSchema[None] = Field(None, description="Seconds.")
    segments: list[Segment] | SkipJsonSchema[None] = None


def _body(kind: str, model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    return {"requestBody": {"required": True, "content": {kind: {"schema": _inlined(schema)}}}}


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    definitions = schema.pop("$defs", {})

    def put(value: Any) -> Any:
        if isinstance(value, dict):
            name = value.get("$ref")
            if isinstance(name, str):
                return put(definitions[name.removeprefix("#/$defs/")])
            return {key: put(each) for key, each in value.items()}
        return [put(each) for each in value] if isinstance(value, list) else value

    inlined: dict[str, Any] = put(schema)
    return inlined


def exact_integers(app: FastAPI) -> None:
    """Write integer bounds into the OpenAPI page as integers.

    FastAPI keeps them as floats, and 9.223372036854776e+18 is not 2**63.
    """
    described = app.openapi

    def openapi() -> dict[str, Any]:
        page = described()
        _exact(page)
        return page

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to change the page


def _exact(value: Any) -> None:
    if isinstance(value, list):
        for each in value:
            _exact(each)
    elif isinstance(value, dict):
        if value.get("type") == "integer":
            for bound in _BOUNDS & value.keys():
                if isinstance(value[bound], float):
                    value[bound] = int(value[bound])
        for each in value.values():
            _exact(each)


_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
_SOUND = {content_type(form): {"schema": {"type": "string", "format": "binary"}} for form in FORMS}
_EVENTS = {
    "text/event-stream": {
        "schema": {
            "type": "object",
            "description": "One event.",
            "required": ["event", "data"],
            "properties": {
                "event": {"type": "string", "description": "The type in the data."},
                "data": {
                    "type": "string",
                    "contentMediaType": "application/json",
                    "contentSchema": _inlined(SpeechEvent.model_json_schema()),
                },
            },
        }
    }
}
_HEADERS = {
    "X-Sample-Rate": "Hertz.",
    "X-Request-Id": "The request's name; yours, where you sent one.",
    "X-Cache-Starter": "Whether the first sound came from memory: true or false.",
    "X-Ignored-Fields": "Fields that change nothing with the model that is served.",
    "X-VLLM-OMNI-Input-Tokens": "Characters of the text; of a whole file, as all of these.",
    "X-VLLM-OMNI-Output-Tokens": "Codec frames of 80 ms.",
    "X-VLLM-OMNI-Total-Tokens": "The sum of both.",
    "X-VLLM-OMNI-Input-Text-Tokens": "Characters of the text.",
    "X-VLLM-OMNI-Input-Audio-Tokens": "0: a recording is not counted.",
    "X-Word-Timestamps": "JSON: a list of {word, start_ms, end_ms}; at most 4 KiB.",
    "X-Word-Timestamps-Omitted": "Words at the end that found no room there.",
}


class ItemResult(BaseModel):
    """What became of one text of a batch."""

    index: int = Field(description="Its place among the items.")
    status: Literal["success", "error"]
    audio_data: str | SkipJsonSchema[None] = Field(None, description="The file, base64.")
    media_type: str | SkipJsonSchema[None] = Field(None, description="Its Content-Type.")
    sample_rate: int | SkipJsonSchema[None] = Field(None, description="Hertz.")
    usage: Usage | SkipJsonSchema[None] = None
    word_timestamps: list[dict[str, Any]] | SkipJsonSchema[None] = None
    error: str | SkipJsonSchema[None] = Field(None, description="The cause, and what to do.")
    error_details: ErrorDetail | SkipJsonSchema[None] = None


class BatchResults(BaseModel):
    """The results of a batch, in the order of its items."""

    id: str
    results: list[ItemResult]
    total: int
    succeeded: int
    failed: int
    usage: Totals


ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {"model": ErrorAnswer, "description": "Any error."}
}
"""Error responses of every route."""
SPEECH: dict[str, Any] = {
    "responses": {
        200: {
            "description": "The sound, in the form that was asked for.",
            "content": {**_SOUND, **_EVENTS},
            "headers": {
                name: {"description": text, "schema": {"type": "string"}}
                for name, text in _HEADERS.items()
            },
        }
    },
    "openapi_extra": _body("application/json", SpeechRequest),
}
BATCH: dict[str, Any] = {
    "responses": {
        200: {
            "description": "A result for each item.",
            "content": {"application/json": {"schema": _inlined(BatchResults.model_json_schema())}},
        }
    },
    "openapi_extra": _body("application/json", BatchRequest),
}
TRANSCRIPTION: dict[str, Any] = {
    "responses": {
        200: {
            "description": "The words, in the form that was asked for.",
            "content": {
                "application/json": {"schema": _inlined(Transcript.model_json_schema())},
                "text/plain": {"schema": {"type": "string"}},
            },
        }
    },
    "openapi_extra": _body("multipart/form-data", Recording),
}
UPLOAD: dict[str, Any] = {"openapi_extra": _body("multipart/form-data", Upload)}
