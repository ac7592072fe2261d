"""A phone of ours as a process, in a network namespace: it calls or answers, and both speak.

``python -m tests.peers.far_phone HOST [URI]``; without a URI it prints its own and waits for a
call. The caller hangs up. At the end it prints, as JSON, what it said and what its record tells of
the sound, and the frequency that it heard loudest.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_phone.records.record import CallRecord
from qwen3tts_server.run import running_server

SENTENCE = "Good morning, this is the clinic. Your appointment is on Friday at half past eight."
TONES_HZ = {"out": 440, "in": 660}
"""What each side plays before it speaks."""


async def heard_hz(call: PhoneCall) -> int:
    """The loudest frequency of the first second of sound, on our clock."""
    pieces: list[Any] = []
    async for frame in call.audio(steady=True):
        if pieces or np.abs(frame.samples.astype(int)).max() > 200:
            pieces.append(frame.samples)
        if sum(map(len, pieces)) >= 8000:
            break
    return int(np.abs(np.fft.rfft(np.concatenate(pieces)[:8000].astype(float))).argmax())


async def converse(call: PhoneCall) -> dict[str, Any]:
    """Play a tone, speak, press a key; the end of the call is its own."""
    listening = asyncio.create_task(heard_hz(call))
    wave = 8000 * np.sin(2 * np.pi * TONES_HZ[call.direction] * np.arange(12000) / 8000)
    await call.play(wave.astype(np.int16), 8000)
    spoken = await call.say(SENTENCE)
    await call.send_dtmf("5")
    if call.direction == "out":
        async for _ in call.audio():
            if call.stats().rtcp_in >= 2:
                break
        await call.hangup()
    await call.ended()
    values = CallRecord.of(call.facts).values
    return {
        "heard": spoken.heard,
        "hz": await listening,
        "keys": call.facts.keys_in,
        "quality": values["quality"],
    }


async def main(host: str, uri: str = "") -> None:
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        Phone(PhoneSettings(server_url=server.url, host=host)) as phone,
        asyncio.timeout(60),
    ):
        if uri:
            call = await phone.dial(uri)
            await call.answered()
        else:
            print(phone.uri, flush=True)
            call = await anext(phone.incoming())
            await call.answer()
        print(json.dumps(await converse(call)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
