"""A language model that says what it is told to, token by token.

The user's message is the script, as JSON in ASCII::

    {"turn": "<any name>", "replies": [{"text": "[{...", "token_ms": 20, "token_chars": 0}]}

With ``"pulled": true`` a token is written only when the host asks for it, and takes its time then:
nothing has come ahead while the host did not read.

Each time that the host asks the model within a turn, the next reply is streamed; when all have
been, the model asks for the command ``nothing`` (in XML mode: says nothing), and the turn ends.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, FastAPI

from lib.providers.commands import command
from lib.providers.services import service

router = APIRouter()
used: dict[tuple[str, str], int] = {}
"""How many replies of a turn were given, by log_id and turn."""
calls: dict[str, list[dict[str, Any]]] = {}
"""What was streamed, by log_id; times are seconds of time.perf_counter()."""


def script_of(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The last script that a user sent; the host joins messages that follow each other."""
    for message in reversed(messages):
        content = message.get("content")
        parts = [{"text": content}] if isinstance(content, str) else content or []
        for part in reversed(parts):
            text = part.get("text", "") if isinstance(part, dict) else ""
            begun = text.rfind('{"turn"')
            if message.get("role") == "user" and begun >= 0:
                script: dict[str, Any] = json.JSONDecoder().raw_decode(text[begun:])[0]
                return script
    return {"turn": "", "replies": []}


def tokens(text: str, chars: int) -> list[str]:
    """As a model writes: a word with the space before it at a time; or so many characters."""
    if chars:
        return [text[at : at + chars] for at in range(0, len(text), chars)]
    return re.findall(r"\s*\S{1,8}|\s+$", text)


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
    """The next reply of the script."""
    script = script_of(messages or [])
    key = (context.log_id, str(script["turn"]))
    number = used[key] = used.get(key, -1) + 1
    if number < len(script["replies"]):
        reply = script["replies"][number]
    else:
        xml = str(context.env.get("MR_XML_STREAMING", "")) == "1"
        reply = {"text": "" if xml else '[{"nothing": {}}]', "token_ms": 0}
    call: dict[str, Any] = {"asked": time.perf_counter(), "tokens": [], "ended": None}
    calls.setdefault(context.log_id, []).append(call)
    return _stream(reply, call)


async def _stream(reply: dict[str, Any], call: dict[str, Any]) -> AsyncIterator[str]:
    step_s = float(reply.get("token_ms", 20)) / 1000
    begun = time.perf_counter()
    try:
        for number, token in enumerate(tokens(reply["text"], int(reply.get("token_chars", 0)))):
            # A pause in the script: the model thinks, in the middle of its sentence.
            begun += float(reply.get("pause_ms", {}).get(str(number), 0)) / 1000
            if reply.get("pulled"):
                begun = time.perf_counter() - (number - 1) * step_s
            await asyncio.sleep(max(0.0, begun + number * step_s - time.perf_counter()))
            call["tokens"].append((time.perf_counter(), len(token)))
            yield token
    finally:
        call["ended"] = time.perf_counter()


@command()
async def nothing(context: Any = None) -> None:
    """Do nothing. Example: { "nothing": {} }"""


@router.get("/scripted_model/calls/{log_id}")
async def get_calls(log_id: str) -> list[dict[str, Any]]:
    return calls.get(log_id, [])


async def on_load(app: FastAPI) -> None:
    app.include_router(router)
