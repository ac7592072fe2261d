"""A check of the language model of a call, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qwen3tts_agent.chat.settings import ChatSettings

NAME = "Language model"


async def check_chat(settings: ChatSettings, limit_s: float) -> str:
    """Ask the model for one token; the finding in words. Raises as `check_model`."""
    from qwen3tts_agent.chat.check import check_model

    found = await check_model(settings, limit_s=limit_s)
    slow = "" if found.streams else ", but it does not stream: callers wait for whole replies"
    return f"{found.model} at {found.shown} is ready{slow}."
