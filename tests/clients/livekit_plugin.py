"""LiveKit's OpenAI plugin against a server: the frames that it decoded, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys

import openai as sdk
from livekit.agents import APIStatusError
from livekit.plugins import openai

TEXT = "Good morning. The train to Vienna leaves at ten past nine from platform four."


async def heard(base: str, **options: object) -> dict[str, object]:
    service = openai.TTS(base_url=f"{base}/v1", api_key="unused", **options)
    frames = []
    async with service.synthesize(TEXT) as stream:
        async for event in stream:
            frames.append(event.frame)
    await service.aclose()
    data = b"".join(bytes(frame.data) for frame in frames)
    return {
        "frames": len(frames),
        "rates": sorted({frame.sample_rate for frame in frames}),
        "seconds": sum(frame.duration for frame in frames),
        "loud": max(data[1::2], default=0),
    }


async def main(base: str) -> None:
    result: dict[str, object] = {"sdk": sdk.__version__}
    # mp3 and events by default; the plugin decides by the content type.
    result["default"] = await heard(base)
    for form in ("pcm", "wav", "opus", "flac"):
        result[form] = await heard(base, response_format=form)
    result["tts-1"] = await heard(base, model="tts-1", voice="alloy", response_format="pcm")
    try:
        await heard(base, voice="nobody")
    except APIStatusError as error:
        result["refused"] = error.status_code
    print(json.dumps(result))


asyncio.run(main(sys.argv[1]))
