"""The speech server that a subcommand talks to: the one that is named, or one of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from qwen3tts_cli.exits import needs
from qwen3tts_cli.output import note, notes


@asynccontextmanager
async def speech_server(url: str | None) -> AsyncIterator[str]:
    """The URL of a server that runs while the context lasts.

    Raises:
        MissingExtra: the embedded voice is not installed.
        EngineUnavailable: it cannot start.
    """
    if url is not None:
        yield url
        return
    with needs("server,embedded"):
        from qwen3tts_engine.embedded.engine import EmbeddedEngine
        from qwen3tts_server.run import running_server
    note("The voice is the embedded one, eSpeak NG.")
    async with AsyncExitStack() as stack:
        with notes().status("Starting the embedded voice …"):
            running = await stack.enter_async_context(
                running_server(EmbeddedEngine(), host="127.0.0.1", port=0)
            )
        yield running.url
