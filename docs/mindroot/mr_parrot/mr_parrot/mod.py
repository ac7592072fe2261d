"""The host's service ``stream_chat``, without a model behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from lib.providers.services import service

PIECE = 4
"""Characters in one piece, as in a token."""
PAUSE_S = 0.02
"""Between two pieces: the pace of a quick model."""


def last_words(messages: list[dict[str, Any]]) -> str:
    """What the user wrote last."""
    content = messages[-1]["content"] if messages else ""
    if isinstance(content, list):
        content = " ".join(str(part["text"]) for part in content if part.get("type") == "text")
    return str(content).strip()


@service()
async def stream_chat(
    model: str | None, messages: list[dict[str, Any]] | None = None, context: Any = None, **_: Any
) -> AsyncIterator[str]:
    """The reply, piece by piece: one ``speak`` with what was heard."""
    reply = json.dumps([{"speak": {"text": f"You said: {last_words(messages or [])}"}}])

    async def pieces() -> AsyncIterator[str]:
        for start in range(0, len(reply), PIECE):
            yield reply[start : start + PIECE]
            await asyncio.sleep(PAUSE_S)

    return pieces()


@service()
async def get_service_models(context: Any = None) -> dict[str, list[str]]:
    """What the host offers where a model is chosen."""
    return {"stream_chat": ["parrot"]}
