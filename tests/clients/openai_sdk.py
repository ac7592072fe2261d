"""The `openai` package against a server: what it received, as JSON."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import sys
import wave

import openai
from openai._streaming import SSEDecoder

TEXT = "Good morning. The train to Vienna leaves at ten past nine from platform four."


async def raw(client: openai.AsyncOpenAI, **extra: object) -> dict[str, object]:
    chunks: list[bytes] = []
    async with client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="alloy", input=TEXT, **extra
    ) as response:
        kind = response.headers["content-type"]
        async for chunk in response.iter_bytes():
            chunks.append(chunk)
    data = b"".join(chunks)
    return {
        "type": kind,
        "chunks": len(chunks),
        "bytes": len(data),
        "head": base64.b64encode(data[:16]).decode(),
        "loud": max(data[1::2]) if data else 0,
    }


async def events(client: openai.AsyncOpenAI) -> list[list[str | None]]:
    """The kinds of events as the SDK's own decoder reads them: its line and its data."""
    answer = await client.audio.speech.create(
        model="tts-1", voice="alloy", input=TEXT, response_format="pcm", stream_format="sse"
    )
    found = SSEDecoder().iter_bytes(iter([answer.content]))
    return [[each.event, each.json()["type"]] for each in found]


async def refused(client: openai.AsyncOpenAI, **extra: object) -> dict[str, object]:
    wanted = {"model": "tts-1", "voice": "alloy", "input": TEXT} | extra
    try:
        await client.audio.speech.create(**wanted)
    except openai.APIStatusError as error:
        return {
            "kind": type(error).__name__,
            "status": error.status_code,
            "body": error.body,
            "message": error.message,
        }
    return {"kind": "none"}


async def sounds(client: openai.AsyncOpenAI) -> dict[str, object]:
    result: dict[str, object] = {}
    for form in ("pcm", "wav", "mp3", "flac", "opus"):
        result[form] = await raw(client, response_format=form)
    result["default"] = await raw(client)
    result["8000"] = await raw(client, response_format="pcm", extra_body={"sample_rate": 8000})
    result["stream"] = await raw(client, response_format="pcm", extra_body={"stream": True})
    result["sse"] = await raw(client, response_format="pcm", stream_format="sse")
    result["events"] = await events(client)
    whole = await client.audio.speech.create(
        model="tts-1", voice="nova", input=TEXT, response_format="wav", speed=1.5
    )
    with wave.open(io.BytesIO(whole.content)) as sound:
        result["wave"] = [sound.getframerate(), sound.getnchannels(), sound.getnframes()]
    models = await client.models.list()
    result["models"] = [model.id async for model in models]
    # A caller who hangs up in the middle; the server goes on for the others.
    async with client.audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input=TEXT * 40, response_format="pcm"
    ) as response:
        async for _ in response.iter_bytes(4800):
            break
    result["after"] = await raw(client, response_format="pcm")
    return result


async def refusals(client: openai.AsyncOpenAI) -> dict[str, object]:
    errors = [
        await refused(client, voice="nobody"),
        await refused(client, input=""),
        await refused(client, response_format="tape"),
        await refused(client, speed=9),
        await refused(client, model="whisper-9"),
    ]
    return {"errors": errors}


async def main(base: str, what: str = "sounds") -> None:
    client = openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="unused", max_retries=0)
    result = await (sounds(client) if what == "sounds" else refusals(client))
    await client.close()
    print(json.dumps(result))


asyncio.run(main(*sys.argv[1:]))
