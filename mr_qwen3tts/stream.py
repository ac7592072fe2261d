"""Unpaced audio of ``stream_tts``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import aclosing
from dataclasses import dataclass

from qwen3tts_codecs.g711 import PCMA, PCMU
from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_speech.link import SpeechLink, VoiceOptions
from qwen3tts_wire.client import Audio, Context, SpeechClient
from qwen3tts_wire.errors import BadRequest, ConnectionLost
from qwen3tts_wire.events import Event
from qwen3tts_wire.formats import AudioFormat

from .partials import Growth
from .reply import MAX_CHARS, cut

Choose = Callable[[SpeechClient], Awaitable[VoiceOptions]]


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """Audio format."""

    audio: AudioFormat
    chunk_bytes: int
    """20 ms."""
    silence: bytes = b""
    """Last chunk's padding; empty: it may be short."""


FORMATS = {
    "ulaw_8000": OutputFormat(AudioFormat("mulaw", 8000), 160, PCMU.silence),
    "alaw_8000": OutputFormat(AudioFormat("alaw", 8000), 160, PCMA.silence),
    "pcm_8000": OutputFormat(AudioFormat("pcm_s16le", 8000), 320),
    "pcm_16000": OutputFormat(AudioFormat("pcm_s16le", 16000), 640),
    "pcm_24000": OutputFormat(AudioFormat("pcm_s16le", 24000), 960),
}
"""By ``stream_tts``'s names."""


class TtsStream:
    """Chunks of 20 ms, synthesised when iterated.

    Awaiting it gives itself: the host awaits services. Leaving the loop cancels.
    """

    def __init__(
        self,
        link: SpeechLink,
        words: str,
        choose: Choose,
        output_format: str,
        *,
        stall_s: float = 4.0,
        clock: Clock | None = None,
    ) -> None:
        """Prepare; nothing is requested yet.

        Args:
            link: connection.
            words: text, markup said as it is.
            choose: voice, once connected.
            output_format: of `FORMATS`.
            stall_s: watchdog timeout.
            clock: of the watchdog.

        Raises:
            BadRequest: unknown format.
        """
        found = FORMATS.get(str(output_format))
        if found is None:
            raise BadRequest(
                f"There is no output format {str(output_format)[:40]!r}.",
                remedy=f"Take one of {', '.join(FORMATS)}.",
            )
        self._format = found
        self._link = link
        self._words = Growth().finish(words)  # half emojis would be refused by the server
        self._choose = choose
        self._stall_s = stall_s
        self._clock: Clock = clock or LoopClock()

    def __await__(self) -> Generator[None, None, TtsStream]:
        return self._itself().__await__()

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Begin; raises ConnectionLost and other SpeechErrors."""
        # Kept nowhere here: so it is closed when the loop over it is left.
        return self._chunks()

    # --- inside

    async def _itself(self) -> TtsStream:
        return self

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        size, silence = self._format.chunk_bytes, self._format.silence
        rest, words = bytearray(), self._words
        while words:
            piece, words = cut(words, MAX_CHARS)
            if not piece.strip():
                continue
            async with aclosing(self._sound(piece)) as sound:
                async for data in sound:
                    rest += data
                    while len(rest) >= size:
                        yield bytes(rest[:size])
                        del rest[:size]
        if rest:
            yield bytes(rest) + silence * (size - len(rest))

    async def _sound(self, words: str) -> AsyncGenerator[bytes, None]:
        client = await self._link.client()
        options = await self._choose(client)
        context = await client.open(
            voice=options.voice,
            language=options.language,
            format=self._format.audio,
            **options.extra,
        )

        async def revoice() -> tuple[str | None, str | None]:
            other = await self._choose(client)
            return other.voice, other.language

        context.revoice = revoice
        complete = False
        try:
            await context.append(words)
            await context.end()
            while (event := await self._next(client, context)) is not None:
                if isinstance(event, Audio):
                    yield event.pcm
            complete = True
        finally:
            if not complete:
                context.cancel()

    async def _next(self, client: SpeechClient, context: Context) -> Event | None:
        until = self._clock.now() + self._stall_s
        coming = asyncio.ensure_future(anext(context, None))
        sleep = asyncio.ensure_future(self._clock.sleep_until(until))
        try:
            await asyncio.wait([coming, sleep], return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                return coming.result()
        finally:
            coming.cancel()
            sleep.cancel()
        self._link.stalled(client)
        raise ConnectionLost(
            f"The speech server has not answered for {self._stall_s:g} s.",
            remedy="See whether it is overloaded, or restart it.",
        )
