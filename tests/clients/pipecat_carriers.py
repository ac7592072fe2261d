"""Pipecat's serializers of carriers' streams, as they come: what they write, and what they read.

pipecat_carriers.py formats FILE      what each of them writes for one frame, and reads from a
                                      carrier's messages (JSON in the file)
pipecat_carriers.py call LINE URL FILE   the carrier's end of a call: the caller's sound and what is
                                      played go through the serializer; marks come back
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import math
import struct
import sys
from pathlib import Path
from typing import Any

import websockets
from pipecat.frames.frames import (
    InputAudioRawFrame,
    InputDTMFFrame,
    InterruptionFrame,
    OutputAudioRawFrame,
)
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.serializers.base_serializer import FrameSerializer
from pipecat.serializers.exotel import ExotelFrameSerializer
from pipecat.serializers.plivo import PlivoFrameSerializer
from pipecat.serializers.telnyx import TelnyxFrameSerializer
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.serializers.vonage import VonageFrameSerializer

RATES_HZ = {"twilio": 8000, "telnyx": 8000, "plivo": 8000, "exotel": 8000, "vonage": 16000}
PLAYED = {"playAudio": "media"}
"""Plivo's name for sound that is played; its serializer reads only the caller's."""
CALL_S = 3.0


async def serializer_of(line: str, stream_id: str, callers: str = "PCMU") -> FrameSerializer:
    """With the rate of the line on both sides, so that nothing is resampled.

    ``callers``: what Telnyx' serializer writes; it always reads PCMU.
    """
    rate = RATES_HZ[line]
    quiet: dict[str, Any] = {"sample_rate": rate}
    made: FrameSerializer
    if line == "twilio":
        params = TwilioFrameSerializer.InputParams(auto_hang_up=False, **quiet)
        made = TwilioFrameSerializer(stream_id, params=params)
    elif line == "telnyx":
        params = TelnyxFrameSerializer.InputParams(auto_hang_up=False, **quiet)
        made = TelnyxFrameSerializer(stream_id, "PCMU", callers, params=params)
    elif line == "plivo":
        params = PlivoFrameSerializer.InputParams(auto_hang_up=False, **quiet)
        made = PlivoFrameSerializer(stream_id, params=params)
    elif line == "exotel":
        made = ExotelFrameSerializer(stream_id, params=ExotelFrameSerializer.InputParams(**quiet))
    else:
        made = VonageFrameSerializer(VonageFrameSerializer.InputParams(**quiet))
    await made.setup(
        FrameProcessorSetup(
            clock=None, task_manager=None, pipeline_worker=None, audio_in_sample_rate=rate
        )
    )
    return made


def tone(rate: int, seconds: float, hz: float = 400.0) -> bytes:
    count = round(rate * seconds)
    return struct.pack(
        f"<{count}h",
        *(round(8000 * math.sin(2 * math.pi * hz * n / rate)) for n in range(count)),
    )


async def formats(given: dict[str, Any]) -> dict[str, Any]:
    """``given``: the stream's id and messages of each line."""
    out: dict[str, Any] = {}
    for line, rate in RATES_HZ.items():
        serializer = await serializer_of(line, given[line]["stream_id"])
        frame = OutputAudioRawFrame(audio=tone(rate, 0.02), sample_rate=rate, num_channels=1)
        media = await serializer.serialize(frame)
        read = []
        for message in given[line]["messages"]:
            frame = await serializer.deserialize(message)
            if isinstance(frame, InputAudioRawFrame):
                read.append({"pcm": base64.b64encode(frame.audio).decode()})
            elif isinstance(frame, InputDTMFFrame):
                read.append({"key": frame.button.value})
            else:
                read.append({})
        out[line] = {
            "pcm": base64.b64encode(tone(rate, 0.02)).decode(),
            "media": media if isinstance(media, str) else base64.b64encode(media).decode(),
            "clear": await serializer.serialize(InterruptionFrame()),
            "read": read,
        }
    return out


class Call:
    """The carrier's end of one call."""

    def __init__(self, line: str, serializer: FrameSerializer, fixture: dict[str, Any]) -> None:
        self.line, self.serializer, self.rate = line, serializer, RATES_HZ[line]
        self.steps = fixture["steps"]
        self.sound = bytearray()
        self.clears = 0
        self.after_clear = 0
        self.marks = 0
        self.unread = 0

    async def caller(self, socket: Any) -> None:
        """What the caller says, in real time."""
        for step in self.steps:
            await socket.send(step["from"])
            if any("started" in each for each in step["events"]):
                break
        loop = asyncio.get_running_loop()
        origin = loop.time()
        speech = tone(self.rate, 0.02)
        for number in range(1, round(CALL_S / 0.02) + 1):
            frame = OutputAudioRawFrame(audio=speech, sample_rate=self.rate, num_channels=1)
            message = await self.serializer.serialize(frame)
            if isinstance(message, str):
                found = json.loads(message)
                found["event"] = PLAYED.get(found["event"], found["event"])
                found["media"]["chunk"] = str(number)
                message = json.dumps(found)
            await socket.send(message)
            await asyncio.sleep(max(0.0, origin + number * 0.02 - loop.time()))

    async def listen(self, socket: Any) -> None:
        """What is played to him: read by the serializer; marks come back at once."""
        async for message in socket:
            if isinstance(message, str):
                found = json.loads(message)
                if self.is_clear(found):
                    self.clears += 1
                    self.after_clear = 0
                    continue
                if back := self.mark_back(found):
                    self.marks += 1
                    await socket.send(back)
                    continue
                if found.get("event") in PLAYED:
                    found["event"] = PLAYED[found["event"]]
                message = json.dumps(found)
            frame = await self.serializer.deserialize(message)
            if isinstance(frame, InputAudioRawFrame):
                self.sound += frame.audio
                self.after_clear += len(frame.audio)
            else:
                self.unread += 1

    def is_clear(self, found: dict[str, Any]) -> bool:
        return found.get("event") in ("clear", "clearAudio") or found.get("action") == "clear"

    def mark_back(self, found: dict[str, Any]) -> str:
        """The fixture's answer to a mark, with its name."""
        if found.get("action") == "notify":
            name = found["payload"]["name"]
        elif found.get("event") in ("mark", "checkpoint"):
            name = found["mark"]["name"] if "mark" in found else found["name"]
        else:
            return ""
        answer = next(
            step["from"]
            for step in self.steps
            if any("mark" in each for each in step.get("events", ()))
        )
        return str(answer).replace('"q1"', json.dumps(name))


async def call(line: str, url: str, fixture: dict[str, Any]) -> dict[str, Any]:
    started = next(
        each["started"]
        for step in fixture["steps"]
        for each in step.get("events", ())
        if "started" in each
    )
    callers = started["sends"].partition("/")[0]
    serializer = await serializer_of(line, started["stream_id"], callers)
    end = Call(line, serializer, fixture)
    async with websockets.connect(url, compression=None) as socket:
        listening = asyncio.create_task(end.listen(socket))
        with contextlib.suppress(websockets.ConnectionClosedOK):
            await end.caller(socket)
        await asyncio.wait_for(listening, 30)  # the agent hangs up
    samples = struct.unpack(f"<{len(end.sound) // 2}h", bytes(end.sound))
    return {
        "seconds": len(samples) / end.rate,
        "peak": max(map(abs, samples), default=0),
        "crossings": sum(a < 0 <= b for a, b in itertools.pairwise(samples)),
        "clears": end.clears,
        "after_clear_s": end.after_clear / 2 / end.rate,
        "marks": end.marks,
        "unread": end.unread,
    }


def main() -> None:
    what, *rest = sys.argv[1:]
    given = json.loads(Path(rest[-1]).read_text(encoding="utf-8"))
    done = formats(given) if what == "formats" else call(rest[0], rest[1], given)
    print(json.dumps(asyncio.run(done)))


main()
