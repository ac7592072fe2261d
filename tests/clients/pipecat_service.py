"""Pipecat's OpenAI service in a pipeline of its own, against a server: its frames, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys

from pipecat.frames.frames import (
    ErrorFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
)
from pipecat.pipeline.worker import PipelineParams
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.tests.utils import run_test

TEXTS = ("Good morning.", "The train to Vienna leaves at ten past nine from platform four.")


async def main(base: str) -> None:
    service = OpenAITTSService(
        api_key="unused", base_url=f"{base}/v1", settings=OpenAITTSService.Settings(voice="nova")
    )
    down, up = await run_test(
        service,
        frames_to_send=[TTSSpeakFrame(text) for text in TEXTS],
        pipeline_params=PipelineParams(audio_out_sample_rate=24000),
        start_timeout=30,
    )
    sound = [frame for frame in down if isinstance(frame, TTSAudioRawFrame)]
    data = b"".join(frame.audio for frame in sound)
    print(
        json.dumps(
            {
                "started": sum(isinstance(frame, TTSStartedFrame) for frame in down),
                "stopped": sum(isinstance(frame, TTSStoppedFrame) for frame in down),
                "chunks": len(sound),
                "rates": sorted({frame.sample_rate for frame in sound}),
                "bytes": len(data),
                "loud": max(data[1::2], default=0),
                "errors": [frame.error for frame in (*up, *down) if isinstance(frame, ErrorFrame)],
            }
        )
    )


asyncio.run(main(sys.argv[1]))
