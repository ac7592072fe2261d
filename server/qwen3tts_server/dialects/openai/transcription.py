"""OpenAI's transcriptions."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from qwen3tts_engine.recogniser import LanguageUnknown, Recogniser, TranscribedStretch
from qwen3tts_server.dialects.http_bodies import ClientStalled, Form, PacedSender, form, until_gone
from qwen3tts_server.dialects.http_errors import (
    BodyTooLarge,
    FieldRefused,
    ModelNotFound,
    NotConfigured,
    about,
    code_of,
)
from qwen3tts_server.dialects.openai.answer import DIALECT
from qwen3tts_server.dialects.qwen_fields import language_tag
from qwen3tts_server.service import Service
from qwen3tts_wire.errors import BadRequest, LimitExceeded, SpeechError

log = logging.getLogger(__name__)

MODELS = ("whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe")
"""OpenAI's names, besides the model's."""
FORMS = ("json", "text", "verbose_json")
MAX_FORM_BYTES = 1 << 18
"""Form size besides the recording."""
MAX_LANGUAGE = 64
IGNORED = ("prompt", "temperature")
TranscriptForm = Literal["json", "text", "verbose_json"]


@dataclass(frozen=True)
class TranscriptionRequest:
    recogniser: Recogniser
    audio: bytes
    language: str | None
    form: TranscriptForm
    ignored: tuple[str, ...]


async def understood_recording(service: Service, request: Request) -> TranscriptionRequest:
    recogniser = service.recognition.recogniser()
    if recogniser is None:
        raise NotConfigured(
            "This server has no recogniser.",
            remedy="Install one with it: pip install 'mr_qwen3tts[stt-offline]', or name a Whisper"
            " model in its setting openai.whisper (--whisper).",
        )
    most = service.settings.openai.max_recording_bytes
    return wanted(await form(request, most + MAX_FORM_BYTES), recogniser, most)


def wanted(sent: Form, recogniser: Recogniser, most: int) -> TranscriptionRequest:
    audio = sent.files.get("file", b"")
    with about("file"):
        if not audio:
            raise BadRequest("There is no recording.", remedy="Send it as a file in file.")
        if len(audio) > most:
            raise BodyTooLarge(
                f"The recording is longer than {most} bytes.", remedy="Send it in parts."
            )
    fields = {name: value.strip() for name, value in sent.fields.items() if value.strip()}
    with about("model"):
        name = recogniser.model
        if fields.get("model", MODELS[0]) not in (*MODELS, name, name.rpartition("/")[2]):
            raise ModelNotFound(
                "There is no such recogniser.", remedy=f"Send {MODELS[0]}, or leave it out."
            )
    shape = fields.get("response_format", FORMS[0])
    with about("response_format"):
        if shape not in FORMS:
            raise BadRequest(
                "Transcripts are not served in this form.", remedy=f"Send {', '.join(FORMS)}."
            )
    with about("language"):
        if len(fields.get("language", "")) > MAX_LANGUAGE:
            raise BadRequest("This is no language.", remedy="Send a tag such as en.")
    with about("stream"):
        if fields.get("stream", "false").lower() not in ("false", "0"):
            raise BadRequest("Transcripts are not streamed.", remedy="Leave stream out.")
    with about("timestamp_granularities[]"):
        if fields.get("timestamp_granularities[]", "segment") != "segment":
            raise BadRequest(
                "The recogniser tells the times of segments only.", remedy="Send segment."
            )
    with about("temperature"):
        _check_temperature(fields.get("temperature"))
    return TranscriptionRequest(
        recogniser,
        audio,
        language_tag(fields.get("language")),
        cast("TranscriptForm", shape),
        tuple(name for name in IGNORED if name in fields),
    )


def _check_temperature(text: str | None) -> None:
    try:
        good = text is None or 0 <= float(text) <= 1
    except ValueError:
        good = False
    if not good:
        raise BadRequest("The temperature is no number from 0 to 1.", remedy="Leave it out.")


class TranscriptAnswer(Response):
    """Transcription in turn, until the client leaves."""

    def __init__(self, service: Service, asked: TranscriptionRequest) -> None:
        super().__init__()
        self._service = service
        self._asked = asked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = PacedSender(send, self._service.settings.openai.send_timeout_s)
        await until_gone(receive, self._serve(sending))

    async def _serve(self, sending: PacedSender) -> None:
        service, asked = self._service, self._asked
        with service.serving(DIALECT):
            try:
                seconds, heard = await self._heard()
            except SpeechError as error:
                service.meter.dialect(DIALECT).errored(code_of(error))
                raise
            kind = "text/plain; charset=utf-8" if asked.form == "text" else "application/json"
            body = transcript(asked, seconds, heard)
            headers = {"Content-Length": str(len(body)), "Cache-Control": "no-store"}
            if asked.ignored:
                headers["X-Ignored-Fields"] = ", ".join(asked.ignored)
            try:
                await sending.start(kind, headers)
                await sending.body(body)
                await sending.end()
            except ClientStalled:
                log.info("a client took nothing for too long and was cut off")

    async def _heard(self) -> tuple[float, Sequence[TranscribedStretch]]:
        service, asked = self._service, self._asked
        most_s = service.settings.openai.max_recording_s
        try:
            return await service.recognition.hear(
                asked.recogniser, asked.audio, asked.language, most_s
            )
        except LanguageUnknown as error:
            raise FieldRefused(error, "language") from error
        except (BadRequest, LimitExceeded) as error:
            raise FieldRefused(error, "file") from error


def transcript(
    asked: TranscriptionRequest, seconds: float, heard: Sequence[TranscribedStretch]
) -> bytes:
    text = " ".join(each.text for each in heard)
    if asked.form == "text":
        return text.encode() + b"\n"
    body: dict[str, Any] = {"text": text}
    if asked.form == "verbose_json":
        segments = [
            {"id": number, "start": each.start_s, "end": each.end_s, "text": each.text}
            for number, each in enumerate(heard)
        ]
        known = {"language": asked.language, "duration": round(seconds, 3)}
        body = {"task": "transcribe", **known, **body, "segments": segments}
    body["usage"] = {"type": "duration", "seconds": math.ceil(seconds)}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
