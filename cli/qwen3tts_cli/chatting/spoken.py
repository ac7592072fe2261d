"""What an agent has said in a chat, spoken into a file of sound."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3tts_cli.output import note
from qwen3tts_cli.speech import speech_server

if TYPE_CHECKING:
    from qwen3tts_cli.manner import Manner

RATE_HZ = 24_000


class SpokenReplies:
    """One text after the other, as they are put in.

    Args:
        path: of the file; it is made with the first sound.
        manner: the voice.
        server: the speech server; None = one of its own.
    """

    def __init__(self, path: Path, manner: Manner, server: str | None) -> None:
        self._path = path
        self._manner = manner
        self._server = server
        self._texts: asyncio.Queue[str | None] = asyncio.Queue()

    def put(self, text: str) -> None:
        """Say this, too; nothing where it is blank."""
        if text.strip():
            self._texts.put_nowait(text)

    def end(self) -> None:
        """No more comes."""
        self._texts.put_nowait(None)

    async def run(self) -> None:
        """Say all of it, to the end; raises what the voice raises."""
        from qwen3tts_cli.files.sinks import FileSink
        from qwen3tts_wire.client import Audio, SpeechClient
        from qwen3tts_wire.formats import AudioFormat

        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(speech_server(self._server))
            client = await SpeechClient.connect(url)
            stack.push_async_callback(client.close)
            manner = await self._manner.voiced(client)
            sink = FileSink(self._path, RATE_HZ)
            stack.callback(sink.close)
            samples = 0
            while (text := await self._texts.get()) is not None:
                context = await client.open(
                    voice=manner.voice,
                    language=manner.language,
                    format=AudioFormat("pcm_s16le", RATE_HZ),
                    **manner.options,
                )
                await context.append(text)
                await context.end()
                async for event in context:
                    if not isinstance(event, Audio):
                        continue
                    await sink.write(event.pcm)
                    samples += len(event.pcm) // 2
                    await context.report(samples)
        if samples:
            note(f"{self._path}: {samples / RATE_HZ:.1f} s at {RATE_HZ} Hz.")
