"""Batch of texts in a request, each with a result, as in vLLM-Omni.

Results are in order; texts begin at most ``batch_slots`` ahead of the last written one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from qwen3tts_server.dialects.encoding import content_type
from qwen3tts_server.dialects.http_bodies import PIECE_BYTES, ClientStalled, PacedSender, until_gone
from qwen3tts_server.dialects.http_errors import FieldRefused, about, code_of, speech_error_body
from qwen3tts_server.dialects.openai.answer import (
    DIALECT,
    spoken_whole,
    usage,
    with_reference,
    word_times,
)
from qwen3tts_server.dialects.openai.request import SpeechFields, SpeechOrder, order, parse
from qwen3tts_server.service import Service
from qwen3tts_server.settings import OpenAISettings
from qwen3tts_wire.errors import BadRequest, LimitExceeded, SpeechError
from qwen3tts_wire.messages import ContextOpen

log = logging.getLogger(__name__)

FORM = "wav"
"""Default format of vLLM-Omni, whatever ``default_format``."""
FILE_PIECE_BYTES = PIECE_BYTES // 4 * 3
"""Bytes of a base64 piece; a multiple of 3, without padding."""
_VOICES = ("voice", "speaker")
_REFERENCES = ("ref_audio", "ref_text", "x_vector_only_mode", "speaker_embedding")
_ONE_AT_A_TIME = ("input", "items", "model", "stream", "stream_format")
"""Fields that are not defaults of items, or not of batches."""


class BatchItem(SpeechFields):
    """One text; defaults are the batch's."""

    input: str = Field(description="The text.")


class BatchRequest(SpeechFields):
    """Several texts with defaults."""

    items: list[BatchItem] = Field(min_length=1, description="The texts; at most 32.")
    model: str | None = Field(None, max_length=256, description="GET /v1/models lists them.")


class Totals(BaseModel):
    input_tokens: int
    output_tokens: int
    total_tokens: int


@dataclass(frozen=True)
class Batch:
    """Parsed batch with unparsed items."""

    model: str | None
    defaults: Mapping[str, Any]
    items: tuple[object, ...]


def read_batch(body: Mapping[str, Any], settings: OpenAISettings) -> Batch:
    items = body.get("items")
    with about("items"):
        if not isinstance(items, list) or not items:
            raise BadRequest(
                "items is not a list of texts.", remedy='Send {"items": [{"input": "..."}]}.'
            )
        if len(items) > settings.max_batch_items:
            raise LimitExceeded(
                f"The batch has {len(items)} items; {settings.max_batch_items} are taken.",
                remedy="Send several batches.",
            )
        texts = [each.get("input") for each in items if isinstance(each, dict)]
        chars = sum(len(each) for each in texts if isinstance(each, str))
        if chars > settings.max_batch_chars:
            raise LimitExceeded(
                f"The texts have {chars} characters; {settings.max_batch_chars} are taken.",
                remedy="Send several batches.",
            )
    defaults = _given(body)
    checked = parse({"input": "-", "model": body.get("model"), **defaults})
    return Batch(checked.model, defaults, tuple(items))


def merged(defaults: Mapping[str, Any], item: object) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise BadRequest("The item is not an object.", remedy='Send {"input": "..."}.')
    own = _given(item)
    inherited = dict(defaults)
    if any(name in own for name in (*_VOICES, *_REFERENCES)):
        for name in _VOICES:
            inherited.pop(name, None)
    if any(name in own for name in _VOICES):
        # An item that names a voice is not said with the recording of the others.
        for name in _REFERENCES:
            inherited.pop(name, None)
    fields = {"response_format": FORM, **inherited, **own, "stream": False}
    return fields | ({"input": item["input"]} if "input" in item else {})


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in fields.items()
        if value is not None and name not in _ONE_AT_A_TIME
    }


class BatchAnswer(Response):
    """Speaker of a batch; ``room`` bounds all batches."""

    def __init__(self, service: Service, batch: Batch, room: asyncio.Semaphore) -> None:
        super().__init__()
        self._service = service
        self._batch = batch
        self._room = room
        self._contexts: dict[object, ContextOpen | SpeechError] = {}
        """Context by reference, fetched once."""
        self._preparing = asyncio.Lock()
        self._spent = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        self._failed = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = PacedSender(send, self._service.settings.openai.send_timeout_s)
        await until_gone(receive, self._serve(sending))

    async def _serve(self, sending: PacedSender) -> None:
        with self._service.serving(DIALECT):
            try:
                await self._send(sending)
            except ClientStalled:
                log.info("a client took nothing for too long and was cut off")

    async def _send(self, sending: PacedSender) -> None:
        waiting = deque(enumerate(self._batch.items))
        under_way: deque[asyncio.Task[tuple[dict[str, Any], bytes]]] = deque()
        most = self._service.settings.openai.batch_slots
        separator = b"{" + _member("id", f"speech-batch-{uuid.uuid4().hex}") + b',"results":['
        try:
            while waiting or under_way:
                while waiting and len(under_way) < most:
                    under_way.append(asyncio.create_task(self._result(*waiting.popleft())))
                result = await under_way[0]
                under_way.popleft()
                if not sending.started:
                    await sending.start("application/json", {"Cache-Control": "no-store"})
                await sending.body(separator)
                await _send_result(sending, *result)
                separator = b","
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
        total = len(self._batch.items)
        numbers = {"total": total, "succeeded": total - self._failed, "failed": self._failed}
        ends = [_member(name, value) for name, value in {**numbers, "usage": self._spent}.items()]
        await sending.body(b"]," + b",".join(ends) + b"}")
        await sending.end()

    async def _result(self, index: int, item: object) -> tuple[dict[str, Any], bytes]:
        try:
            said, file = await self._said(item)
            return {"index": index, **said}, file
        except SpeechError as error:
            self._failed += 1
            within = f".{error.param}" if isinstance(error, FieldRefused) else ""
            cause = error.error if isinstance(error, FieldRefused) else error
            details = speech_error_body(FieldRefused(cause, f"items[{index}]{within}"))["error"]
            failed = {"status": "error", "error": details["message"], "error_details": details}
            return {"index": index, **failed}, b""

    async def _said(self, item: object) -> tuple[dict[str, Any], bytes]:
        service = self._service
        try:
            asked = parse(merged(self._batch.defaults, item))
            meant = await order(asked, service.voices, service.settings.openai, "")
        except SpeechError as error:
            service.meter.dialect(DIALECT).errored(code_of(error))
            raise
        async with self._room:
            context = await self._context(meant)
            file, utterance = await spoken_whole(service, meant, context)
        used = usage(utterance)
        for name in self._spent:
            self._spent[name] += used[name]
        result: dict[str, Any] = {
            "status": "success",
            "media_type": content_type(meant.form),
            "sample_rate": context.format.sample_rate,
            "usage": used,
        }
        if meant.word_timestamps:
            result["word_timestamps"] = word_times(utterance)
        return result, file

    async def _context(self, meant: SpeechOrder) -> ContextOpen:
        reference = (meant.ref_audio, meant.ref_text, meant.embedding)
        if reference == (None, None, None):
            return meant.context
        key = (*reference, meant.x_vector_only, meant.context.language)
        async with self._preparing:
            found = self._contexts.get(key)
            if found is None:
                try:
                    found = await with_reference(self._service, meant)
                except SpeechError as error:
                    found = error
                self._contexts[key] = found
        if isinstance(found, SpeechError):
            raise found
        return replace(meant.context, voice=found.voice)


async def _send_result(sending: PacedSender, members: Mapping[str, Any], file: bytes) -> None:
    """Write a result in pieces: 17 MB of base64 block the loop for 38 ms."""
    text = _json(members)
    if not file:
        await sending.body(text)
        return
    await sending.body(text[:-1] + b',"audio_data":"')
    for at in range(0, len(file), FILE_PIECE_BYTES):
        await sending.body(base64.b64encode(file[at : at + FILE_PIECE_BYTES]))
        await asyncio.sleep(0)  # a client that reads fast would have it all in one turn of the loop
    await sending.body(b'"}')


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _member(name: str, value: object) -> bytes:
    return _json(name) + b":" + _json(value)
