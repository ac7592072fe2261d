"""The whole server half with the voice that comes with it."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from qwen3tts_codecs.pcm import from_bytes
from qwen3tts_server.run import running_server
from qwen3tts_wire.client import Alignment, Audio, Done, SpeechClient
from qwen3tts_wire.formats import AudioFormat

pytestmark = pytest.mark.network
pytest.importorskip("espeakng_loader", reason="the extra 'embedded' is not installed")

TEXT = "Good **morning**. It is half past nine, and Dr. Smith is waiting for you."


async def test_words_written_in_pieces_are_spoken_aligned_and_cut_at_what_was_heard() -> None:
    from qwen3tts_engine.embedded.engine import EmbeddedEngine

    async with (
        asyncio.timeout(60),
        running_server(EmbeddedEngine()) as server,
        await SpeechClient.connect(server.url) as client,
    ):
        context = await client.open()
        phone = await client.open(format=AudioFormat("mulaw", 8000))
        for piece in (TEXT[i : i + 4] for i in range(0, len(TEXT), 4)):
            await context.append(piece)
            await phone.append(piece)
        await context.end()
        await phone.end()
        events = [event async for event in context]
        narrow = [event async for event in phone]

        done = events[-1]
        assert isinstance(done, Done)
        pcm = b"".join(event.pcm for event in events if isinstance(event, Audio))
        assert len(pcm) // 2 == done.samples > 24_000
        assert abs(from_bytes(pcm)).max() > 3000
        words = [w for event in events if isinstance(event, Alignment) for w in event.words]
        assert [TEXT[w.char_start : w.char_end] for w in words][:2] == ["Good", "morning"]
        assert all(a.start <= b.start for a, b in itertools.pairwise(words))
        assert all(0 <= w.start <= w.end <= done.samples for w in words)

        end = narrow[-1]
        assert isinstance(end, Done)
        assert abs(end.samples - done.samples / 3) <= 2

        answer = await context.cancel(words[1].end)
        assert answer.confirmed
        assert answer.text_heard + answer.text_remaining == TEXT
        assert answer.text_heard in ("Good **morning**.", "Good **morning")
