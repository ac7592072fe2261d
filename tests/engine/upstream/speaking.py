"""What the tests of an upstream say and hear."""

from __future__ import annotations

from typing import Any

from qwen3tts_engine.base import PcmChunk, SynthesisRequest
from qwen3tts_engine.upstream.engine import UpstreamEngine
from tests.engine.upstream.peers import sound_of

TEXT = "Good morning, this is the line."


async def chunks_of(engine: UpstreamEngine, text: str = TEXT, **fields: Any) -> list[PcmChunk]:
    fields.setdefault("final", True)  # no pause after it
    return [chunk async for chunk in engine.synthesize(SynthesisRequest(text, **fields))]


async def heard(engine: UpstreamEngine, text: str = TEXT, **fields: Any) -> bytes:
    return b"".join(chunk.pcm for chunk in await chunks_of(engine, text, **fields))


def is_said(pcm: bytes, text: str = TEXT) -> bool:
    """Whether all of it is there; of the first tone only the start below the threshold may lack."""
    whole = sound_of(text)
    return whole.endswith(pcm) and len(whole) - len(pcm) < 100


def change(engine: UpstreamEngine, **settings: float) -> None:
    """Set what its server is given from now on; so that only what is to fail has little time."""
    for name, value in settings.items():
        object.__setattr__(engine.settings, name, value)
