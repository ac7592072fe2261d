"""The embedded engine, with a copy of every sample that it gave."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.base import PcmChunk, SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine


class RecordingEngine(EmbeddedEngine):
    """Real speech; its noise is unseeded, so the reference must be the very run."""

    def __init__(self) -> None:
        super().__init__()
        self.spoken: list[bytes] = []

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        async for chunk in super().synthesize(request):
            self.spoken.append(chunk.pcm)
            yield chunk

    def pcm(self, first: int = 0, last: int | None = None) -> NDArray[np.int16]:
        """What was said so far, 24 kHz, shape [n]; of it pieces ``first`` to ``last``."""
        return np.frombuffer(b"".join(self.spoken[first:last]), dtype="<i2").copy()
