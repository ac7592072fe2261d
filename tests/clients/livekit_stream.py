"""Our LiveKit plugin's streams, one after the other: what came out of each, as JSON.

``livekit_stream.py URL OPTIONS...``, each the options of one stream as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from livekit.agents import APIConnectOptions, APIError, APIStatusError
from livekit.plugins import qwen3tts


async def stream(voice: qwen3tts.TTS, options: dict[str, Any]) -> dict[str, object]:
    """``text`` in pieces at its spaces; ``leave`` after the first sound; ``whole`` at one go."""
    errors: list[bool] = []
    voice.on("error", lambda event: errors.append(event.recoverable))
    connect = APIConnectOptions(max_retry=1, retry_interval=0, timeout=options.get("timeout", 10))
    frames, words = [], []
    result: dict[str, object] = {"was_connected": voice.is_connected}
    try:
        if options.get("whole"):
            speech = voice.synthesize(options["text"], conn_options=connect)
        else:
            speech = voice.stream(conn_options=connect)
            for number, piece in enumerate(options["text"].split(" ")):
                speech.push_text(f" {piece}" if number else piece)
            if not options.get("leave"):
                speech.end_input()
        async with speech:
            async for event in speech:
                frames.append(event.frame)
                words += event.frame.userdata["lk.timed_transcripts"]
                if options.get("leave"):
                    break
    except APIError as error:
        result["error"] = type(error).__name__
        result["retryable"] = error.retryable
        result["message"] = str(error)
        if isinstance(error, APIStatusError):
            result["status"] = error.status_code
    data = b"".join(bytes(frame.data) for frame in frames)
    timed = [each for each in words if isinstance(each.start_time, float)]
    return {
        **result,
        "errors": errors,
        "rates": sorted({frame.sample_rate for frame in frames}),
        "samples": len(data) // 2,
        "loud": max(data[1::2], default=0),
        "pieces": [str(each) for each in words],
        "times": [[each.start_time, each.end_time] for each in timed],
        "aligned": voice.capabilities.aligned_transcript,
    }


async def main(url: str, *several: str) -> None:
    results = []
    for each in several:
        options = json.loads(each)
        voice = qwen3tts.TTS(
            url=url,
            voice=options.get("voice"),
            sample_rate=options.get("sample_rate", 24000),
            speed=options.get("speed", 1.0),
        )
        if options.get("prewarm"):
            voice.prewarm()
            await voice.connected(10)
        if "then_voice" in options:
            voice.update_options(voice=options["then_voice"])
        results.append(await stream(voice, options))
        await voice.aclose()
    print(json.dumps(results))


asyncio.run(main(*sys.argv[1:]))
