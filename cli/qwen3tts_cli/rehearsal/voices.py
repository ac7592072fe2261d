"""Voices of simulated callers: natural ones of a speech server, and eSpeak in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from qwen3tts_cli.output.console import note
from qwen3tts_cli.output.exits import require_extra
from qwen3tts_wire.errors import BadRequest

if TYPE_CHECKING:
    from qwen3tts_engine.embedded.engine import EmbeddedEngine
    from qwen3tts_wire.client import SpeechClient
    from qwen3tts_wire.messages import VoiceInfo

RATE_HZ = 24_000
ESPEAK = "espeak"
NATURAL = "natural"


class CallerVoices:
    """Synthesises callers' texts; what it needs is started on first use and ended by ``stack``.

    ``server``: gives the address of a speech server. ``speaks``: whether one of its voices speaks
    a language. A voice is ``natural``, ``espeak``,
    ``espeak:NAME``, or one of the server; empty = a natural
    voice that speaks the language, else eSpeak.
    """

    def __init__(
        self,
        stack: AsyncExitStack,
        server: Callable[[], AbstractAsyncContextManager[str]],
        speaks: Callable[[VoiceInfo, str], bool],
    ) -> None:
        self._stack = stack
        self._server = server
        self._speaks = speaks
        self._client: SpeechClient | None = None
        self._espeak: EmbeddedEngine | None = None
        self._starting = asyncio.Lock()
        self._noted: set[str] = set()

    async def __call__(self, text: str, voice: str, language: str) -> tuple[NDArray[np.int16], int]:
        """Return samples and rate. Raises SpeechError."""
        kind, _, name = voice.partition(":")
        if kind == ESPEAK:
            return await self._said_by_espeak(text, name, language)
        client = await self._connected()
        if voice in ("", NATURAL):
            fitting = [each.id for each in client.session.voices if self._speaks(each, language)]
            if not fitting and voice == NATURAL:
                raise BadRequest(
                    f"There is no natural voice for {language!r} here.",
                    remedy="`mr-qwen3tts voices` lists those there are; espeak speaks any.",
                )
            if not fitting:
                self._note(f"No natural voice speaks {language}: its callers speak by eSpeak.")
                return await self._said_by_espeak(text, "", language)
            voice = fitting[0]
        return await _said_by_server(client, text, voice, language)

    async def _connected(self) -> SpeechClient:
        from qwen3tts_wire.client import SpeechClient

        async with self._starting:
            if self._client is None:
                url = await self._stack.enter_async_context(self._server())
                self._client = await SpeechClient.connect(url)
                self._stack.push_async_callback(self._client.close)
        return self._client

    async def _said_by_espeak(
        self, text: str, name: str, language: str
    ) -> tuple[NDArray[np.int16], int]:
        with require_extra("embedded"):
            from qwen3tts_engine.base import SynthesisRequest
            from qwen3tts_engine.embedded.engine import EmbeddedEngine
        async with self._starting:
            if self._espeak is None:
                engine = EmbeddedEngine()
                await engine.start()
                self._stack.push_async_callback(engine.close)
                self._espeak = engine
        request = SynthesisRequest(text, voice=name or None, language=language, final=True)
        parts = [chunk.pcm async for chunk in self._espeak.synthesize(request)]
        return np.frombuffer(b"".join(parts), "<i2").astype(np.int16), RATE_HZ

    def _note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            note(text)


async def _said_by_server(
    client: SpeechClient, text: str, voice: str, language: str
) -> tuple[NDArray[np.int16], int]:
    from qwen3tts_wire.client import Audio
    from qwen3tts_wire.formats import AudioFormat

    context = await client.open(
        voice=voice, language=language, format=AudioFormat("pcm_s16le", RATE_HZ), mode="whole"
    )
    await context.append(text)
    await context.end()
    parts: list[bytes] = []
    taken = 0
    async for event in context:
        if isinstance(event, Audio):
            parts.append(event.pcm)
            taken += len(event.pcm) // 2
            await context.report(taken)
    return np.frombuffer(b"".join(parts), "<i2").astype(np.int16), RATE_HZ
