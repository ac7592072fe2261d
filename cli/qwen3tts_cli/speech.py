"""The speech server that a subcommand talks to: the one that is named, or one of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from qwen3tts_cli.output import note, notes


@asynccontextmanager
async def speech_server(url: str | None) -> AsyncIterator[str]:
    """The URL of a server that runs while the context lasts; one of its own is a child process.

    Raises:
        EngineUnavailable: the voice cannot start, as where a package is not installed.
    """
    if url is not None:
        yield url
        return
    from qwen3tts_speech.voice_process import VoiceProcess

    async with AsyncExitStack() as stack:
        with notes().status("Starting the voice …"):
            voice = await stack.enter_async_context(VoiceProcess())
        note(voice.engine)
        yield voice.url
