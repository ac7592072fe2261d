"""A language model for the telephone: its agent's script says what it writes to which message.

``TELEPHONE_SCRIPT`` in the agent's ``env`` is a JSON list of [what the message holds, reply]; the
first that fits counts, and to any other message the model asks for the command ``nothing``. Its
routes, for the tests: what the model was asked, what came through the pipe ``sip_audio_in``, and
what a recogniser would say.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, FastAPI, Request

from lib.chatcontext import get_context
from lib.pipelines.pipe import pipe
from lib.providers.services import service, service_manager

router = APIRouter(prefix="/telephone_model")
asked: list[tuple[str, str, str]] = []
"""Session, last message, and what the agent said before it, of each time the model was asked."""
heard: dict[str, list[int]] = {}
"""Sizes of the frames of each session's caller."""


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [] if isinstance(part, dict))


@service()
async def stream_chat(
    model: str,
    messages: list[dict[str, Any]] | None = None,
    context: Any = None,
    num_ctx: int = 0,
    temperature: float = 0.0,
    max_tokens: int = 0,
    num_gpu_layers: int = 0,
) -> AsyncIterator[str]:
    """What the script has for the last message."""
    given = messages or [{}]
    last = text_of(given[-1])
    before = [text_of(each) for each in given if each.get("role") == "assistant"]
    asked.append((context.log_id, last, before[-1] if before else ""))
    script = json.loads(context.env.get("TELEPHONE_SCRIPT", "[]"))
    reply = next((reply for part, reply in script if part in last), '[{"nothing": {}}]')
    return _stream(reply)


async def _stream(reply: str) -> AsyncIterator[str]:
    for token in re.findall(r"\s*\S{1,8}|\s+$", reply):
        await asyncio.sleep(0.001)
        yield token


@pipe(name="sip_audio_in", priority=5)
async def listen(data: dict[str, Any], context: Any = None) -> dict[str, Any]:
    heard.setdefault(context.log_id, []).append(len(data["audio_bytes"]))
    return data


@router.get("/asked")
async def get_asked() -> dict[str, Any]:
    return {"asked": asked, "heard": heard}


@router.post("/said/{log_id}")
async def post_said(log_id: str, request: Request) -> dict[str, bool]:
    """A recogniser has understood something."""
    text = (await request.json())["text"]
    context = await get_context(log_id, "system")
    taken = await service_manager.qwen3tts_caller_said(text=text, context=context)
    return {"taken": bool(taken)}


async def on_load(app: FastAPI) -> None:
    app.include_router(router)
