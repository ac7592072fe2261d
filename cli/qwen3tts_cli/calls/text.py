"""Text of a call: exactly one of ``--say``, ``--file``, ``--stdin``, ``--llm``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from qwen3tts_cli.options.common import (
    ByKey,
    LlmKeyEnv,
    LlmModel,
    LlmPrompt,
    LlmSystem,
    LlmUrl,
    SayFile,
    SayStdin,
    SayText,
    TokenMs,
)
from qwen3tts_cli.output.exits import require_extra

if TYPE_CHECKING:
    from qwen3tts_agent.chat.client import ChatSettings


DEFAULT_PROMPT = (
    "A telephone call has just been answered. Greet the person in one or two sentences."
)

KEY_ENV = "MR_QWEN3TTS_LLM_KEY"
"""Default variable of the model's key; local models need none."""


@dataclass(frozen=True, slots=True)
class TextSource:
    """Text source, opened once a call."""

    text: str | None = None
    token_ms: float = 0.0
    file: Path | None = None
    stdin: bool = False
    by_key: bool = False
    chat: ChatSettings | None = field(default=None, repr=False)
    system: str = ""
    prompt: str = DEFAULT_PROMPT

    @property
    def once(self) -> bool:
        return self.stdin

    def open(self) -> AsyncIterator[str]:
        """Return the text from its beginning, as deltas."""
        from qwen3tts_cli.output.keyboard import from_keyboard
        from qwen3tts_phone.call.text_sources import from_file, from_text, scripted

        if self.chat is not None:
            from qwen3tts_agent.chat.client import reply_to

            return reply_to(self.chat, prompt=self.prompt, system=self.system)
        if self.stdin:
            return from_keyboard(by_key=self.by_key)
        if self.file is not None:
            return from_file(self.file)
        assert self.text is not None
        if self.token_ms:
            from qwen3tts_pacer.clock import LoopClock

            return scripted(self.text, LoopClock(), ms_per_token=self.token_ms)
        return from_text(self.text)


@dataclass(frozen=True, slots=True)
class TextOptions:
    say: SayText = None
    token_ms: TokenMs = 0.0
    file: SayFile = None
    stdin: SayStdin = False
    by_key: ByKey = False
    llm: LlmUrl = None
    model: LlmModel = "default"
    system: LlmSystem = ""
    prompt: LlmPrompt = DEFAULT_PROMPT
    key_env: LlmKeyEnv = KEY_ENV

    def check(self) -> None:
        """Refuse no source, several, or empty text; raises ``typer.BadParameter``."""
        named = [self.say is not None, self.file is not None, self.stdin, self.llm is not None]
        if sum(named) != 1:
            raise typer.BadParameter("give exactly one of --say, --file, --stdin and --llm.")
        if self.say is not None and not self.say.strip():
            raise typer.BadParameter("--say is empty.")
        if self.file is not None and not self.file.is_file():
            raise typer.BadParameter(f"--file: {self.file} is not a file.")

    def words(self) -> TextSource:
        """Return the source; raises BadRequest for a model without URL."""
        if self.say is not None:
            return TextSource(text=self.say, token_ms=self.token_ms)
        if self.file is not None:
            return TextSource(file=self.file)
        if self.llm is not None:
            chat = chat_of(self.llm, self.model, self.key_env)
            return TextSource(chat=chat, system=self.system, prompt=self.prompt)
        return TextSource(stdin=True, by_key=self.by_key)


def chat_of(llm: str, model: str, key_env: str) -> ChatSettings:
    """Return the model of --llm, --model, --key-env; raises ``typer.BadParameter``, BadRequest."""
    with require_extra("phone"):
        from qwen3tts_agent.chat.client import ChatSettings, api_key_from

    key = api_key_from(key_env)
    if not key and key_env != KEY_ENV:
        raise typer.BadParameter(
            f"--key-env: the variable {key_env} is not set; it holds the model's key."
        )
    return ChatSettings(base_url=llm, model=model, api_key=key)


READ_AHEAD_CHARS = 2000
"""Read-ahead in characters; then backpressure to the source."""


class SourceReader:
    """Text being read from its source; `close` it."""

    def __init__(self, words: TextSource) -> None:
        from qwen3tts_agent.replayable_text import ReplayableText

        self.heard_chars = 0
        """Characters heard by the far end."""
        self._text = ReplayableText(READ_AHEAD_CHARS)
        self._reading = asyncio.create_task(self._read(words), name="words")

    async def _read(self, words: TextSource) -> None:
        try:
            async for delta in words.open():
                await self._text.write(delta)
        finally:
            self._text.end()

    async def rest(self) -> AsyncIterator[str]:
        """Yield the unheard text as it arrives; raises the source's errors."""
        async with aclosing(self._text.read_from(self.heard_chars)) as deltas:
            async for delta in deltas:
                yield delta
        await asyncio.shield(self._reading)

    def skip(self) -> None:
        self.heard_chars = len(self._text.text)

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
