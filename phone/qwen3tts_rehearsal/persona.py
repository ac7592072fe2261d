"""Caller that a language model plays: what it says next, from what the agent has said."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from qwen3tts_agent.chat.messages import ChatMessage
from qwen3tts_agent.chat.source import ReplySource
from qwen3tts_rehearsal.scenario import Persona

REPLY_S = 60.0
"""Longest wait for the model."""
END = "[END]"
MAX_CHARS = 400
"""Longest turn of a caller."""
INSTRUCTIONS = (
    "You play a person who has phoned a company. The user's messages are what its agent says on the"
    " telephone; you answer as the caller, in plain spoken words, one or two short sentences at a"
    f" time, in the language {{language}}. When you have what you want, or it goes nowhere, say"
    f" your last words and write {END} after them. You are: {{persona}}"
)


@dataclass(frozen=True, slots=True)
class CallerTurnText:
    """Next words of the caller."""

    text: str
    """Empty = nothing more."""
    last: bool
    """True if the caller hangs up after them."""


class PersonaCaller:
    """One call's conversation with the model that plays the caller."""

    def __init__(self, settings: Persona, source: ReplySource, language: str) -> None:
        self._settings = settings
        self._source = source
        prompt = INSTRUCTIONS.format(persona=settings.persona, language=language)
        self._messages = [ChatMessage("system", prompt)]
        self._turns = 0

    async def next(self, agent_said: str) -> CallerTurnText:
        """Return what the caller says now. Raises SpeechError, TimeoutError."""
        if self._turns >= self._settings.max_turns:
            return CallerTurnText("", True)
        self._turns += 1
        self._messages.append(ChatMessage("user", agent_said or "(silence)"))
        parts: list[str] = []
        async with asyncio.timeout(REPLY_S):
            stream = self._source.stream(self._messages)
            try:
                async for event in stream:
                    if isinstance(event, str):
                        parts.append(event)
            finally:
                await stream.aclose()
        written = "".join(parts).strip()
        self._messages.append(ChatMessage("assistant", written))
        text, end, _ = written.partition(END)
        return CallerTurnText(" ".join(text.split())[:MAX_CHARS], bool(end) or not text.strip())
