"""Ten agents with one planted fault each, and one without: real SIP, RTP and speech.

    python -m tests.rehearsal.faulty_agents [WEBHOOK]

prints its SIP address; ``sip:FAULT@…`` calls the agent with that fault, any other user the sound
one, and what follows a dot in the user tells calls apart; ``.hours`` is asked for its hours. The
agent is a clerk of a bakery: its model and its recogniser are scripts, all else is ours. Two more
understand by Whisper and repeat what they understood: ``adaptive`` prepares its replies, chooses
its pauses and ducks under a caller who speaks, ``fixed`` does none of it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from qwen3tts_agent.agent import Agent
from qwen3tts_agent.chat.messages import ChatEvent, ChatMessage, Finished, ToolCall, ToolSpec
from qwen3tts_agent.recognition.callback import CallbackRecogniser
from qwen3tts_agent.recognition.settings import WhisperSettings
from qwen3tts_agent.recognition.whisper import WhisperRecogniser
from qwen3tts_agent.settings import AgentSettings
from qwen3tts_agent.tools import Tool
from qwen3tts_codecs.g711 import decode_ulaw, encode_alaw
from qwen3tts_codecs.resample import Resampler
from qwen3tts_engine.base import PcmChunk, SynthesisRequest
from qwen3tts_engine.piper.engine import PiperEngine, PiperSettings
from qwen3tts_phone.call.call import Call
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_phone.streams.server import Streams
from qwen3tts_phone.streams.settings import StreamSettings
from qwen3tts_server.run import running_server
from qwen3tts_speech.link import VoiceOptions
from qwen3tts_text.segmenter import Segmenter

SOUND = "sound"
FAULTS = (
    "late",
    "choppy",
    "deaf",
    "self_interrupting",
    "repeating",
    "dropping_digits",
    "talking_over",
    "hanging_up_early",
    "silent_after_tool",
    "wrong_codec",
)
ADAPTIVE, FIXED = "adaptive", "fixed"
GREETING = "Good morning, this is the bakery. What is your order number?"
NUMBER = "Your number is four seven one one. Shall I send it to you?"
SENT = "It is on its way, and you will have it tomorrow."
HOURS = (
    "We open at eight in the morning from Monday to Friday, and at nine on Saturday. On Sunday we"
    " are closed all day long. In summer we stay open until seven in the evening, and we have a"
    " small garden behind the house where you can sit and drink your coffee."
)
CLOSING = "Of course. Is there anything else that I can do for you?"
OVER = "Yes, yes, I see."
MODEL_S, LATE_S = 0.3, 4.0
"""From the request to the first word; of the late agent so much more."""
SPEED, CHOPPY_SPEED, MISCODED_SPEED = 1.0, 1.001, 1.002
"""Speeds of the voice, by which the engine knows whose sound it spoils."""
HOLE_S, HOLE_EVERY_S = 0.06, 0.3
SHORT_S = 1.0
"""A turn shorter than this is understood as a backchannel."""
RATE_HZ = 24_000
LOUD = 0.01
"""Of full scale: the caller speaks."""
TALKS_OVER_S, INTERRUPTS_AFTER_S = 0.4, 0.8


class SpoilingEngine(PiperEngine):
    """The natural voice, choppy or in the wrong law for two of its speeds.

    What has been said once is kept: an agent's voice must not wait for a busy machine.
    """

    def __init__(self) -> None:
        super().__init__(PiperSettings(workers=2))
        self._kept: dict[tuple[object, ...], list[PcmChunk]] = {}

    async def prepare(self) -> None:
        """Say all that the agents say."""
        for text in (GREETING, NUMBER, SENT, HOURS, CLOSING, OVER, NUMBER.replace("seven ", "")):
            segmenter = Segmenter()
            pieces = [*segmenter.push(text), *segmenter.end()]
            for number, piece in enumerate(pieces):
                for final in (False, True):
                    request = SynthesisRequest(
                        piece.text, final=final, continued=number > 0, seed=1, speed=SPEED
                    )
                    async for _ in self.synthesize(request):
                        pass

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        key = (request.text, request.final, request.continued)
        if key not in self._kept:
            plain = replace(request, speed=SPEED)
            self._kept[key] = [chunk async for chunk in super().synthesize(plain)]
        done = 0
        down, up = Resampler(RATE_HZ, 8000), Resampler(8000, RATE_HZ)
        left = np.zeros(0, np.int16)
        for chunk in self._kept[key]:
            samples = np.frombuffer(chunk.pcm, "<i2")
            if request.speed == CHOPPY_SPEED:
                at = (done + np.arange(len(samples))) % round(HOLE_EVERY_S * RATE_HZ)
                samples = np.where(at < round(HOLE_S * RATE_HZ), 0, samples).astype(np.int16)
            elif request.speed == MISCODED_SPEED:
                # A-law that is taken for mu-law.
                left = np.concatenate([left, up.push(decode_ulaw(encode_alaw(down.push(samples))))])
                short = np.zeros(max(0, len(samples) - len(left)), np.int16)
                samples = np.concatenate([short, left])[: len(samples)]
                left = left[len(samples) - len(short) :]
            done += len(samples)
            yield replace(chunk, pcm=samples.astype("<i2").tobytes())


class Clerk:
    """The model: what it writes depends on the number of turns alone."""

    guessable = True

    def __init__(self, fault: str, hours: bool) -> None:
        self._fault = fault
        self._hours = hours

    async def stream(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        must_speak: bool = False,
    ) -> AsyncGenerator[ChatEvent, None]:
        await asyncio.sleep(MODEL_S + (LATE_S if self._fault == "late" else 0.0))
        for event in self._events(messages):
            yield event

    async def close(self) -> None: ...

    def _events(self, messages: Sequence[ChatMessage]) -> list[ChatEvent]:
        if self._fault in (ADAPTIVE, FIXED):
            said = [each.content for each in messages if each.role == "user"][-1]
            return [HOURS if "each day" in said else f"You said {said}", Finished("stop")]
        turns = sum(each.role == "user" and each.content[0] != "[" for each in messages)
        if self._hours:
            return [HOURS if turns == 1 else CLOSING, Finished("stop")]
        if messages[-1].role == "tool" and messages[-1].tool_call_id == "send":
            if self._fault == "silent_after_tool":
                return [Finished("stop")]
            return [SENT, ToolCall("bye", "hang_up", "{}"), Finished("tool_calls")]
        if turns == 1 and self._fault == "hanging_up_early":
            return [NUMBER, ToolCall("bye", "hang_up", "{}"), Finished("tool_calls")]
        if turns == 1:
            return [self._read_back(), Finished("stop")]
        if turns == 2:
            return [ToolCall("send", "send_order", '{"number": "4711"}'), Finished("tool_calls")]
        return [CLOSING, Finished("stop")]

    def _read_back(self) -> str:
        if self._fault == "dropping_digits":
            return NUMBER.replace("seven ", "")
        return f"{NUMBER} {NUMBER}" if self._fault == "repeating" else NUMBER


class Bakery:
    """Answers calls; the user of the address that was called names the fault.

    ``webhook``: address that the tool posts to, with that user as its path.
    """

    def __init__(self, calls: AsyncIterable[Call], webhook: str = "") -> None:
        self._calls = calls
        self._webhook = webhook
        self._tasks: set[asyncio.Task[None]] = set()
        self._whisper = WhisperRecogniser(WhisperSettings("auto"))

    async def close(self) -> None:
        await self._whisper.close()

    async def serve(self) -> None:
        async for call in self._calls:
            task = asyncio.create_task(self._answer(call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, call: Call) -> None:
        name = call.facts.local_uri.removeprefix("sip:").partition("@")[0]
        fault, _, topic = name.partition(".")
        heard = CallbackRecogniser(understand(fault), early=True)
        agent = Agent(
            Clerk(fault, topic.startswith("hours")),
            stt=self._whisper if fault in (ADAPTIVE, FIXED) else heard,
            listen=listen_of(fault),
            tools=[self._tool(name)],
            settings=AgentSettings(
                voice=VoiceOptions(extra={"seed": 1, "speed": speed_of(fault)}),
                quiet_s=0.0,
                hang_up_tool=True,
                apology="",
                preemptive="off" if fault == FIXED else "always",
            ),
            greeting=GREETING,
        )
        async with agent:
            spoiling = asyncio.create_task(spoil(fault, call))
            try:
                await agent.answer(call)
            finally:
                spoiling.cancel()
                await asyncio.gather(spoiling, return_exceptions=True)

    def _tool(self, name: str) -> Tool:
        async def send_order(number: str) -> str:
            if self._webhook:
                await post_json(f"{self._webhook}/{name}", {"order": number, "state": "sent"})
            return "sent"

        schema = {"type": "object", "properties": {"number": {"type": "string"}}}
        return Tool("send_order", "Send an order.", send_order, schema)


def listen_of(fault: str) -> ListenSettings:
    return ListenSettings(
        overlap="stop" if fault == FIXED else "duck",
        adaptive_pause=fault == ADAPTIVE,
        language="en",
    )


def speed_of(fault: str) -> float:
    return {"choppy": CHOPPY_SPEED, "wrong_codec": MISCODED_SPEED}.get(fault, SPEED)


def understand(fault: str) -> Any:
    """The recogniser: short turns are backchannels, the deaf agent understands nothing."""

    async def recognise(samples: NDArray[np.int16], rate_hz: int) -> str:
        if fault == "deaf":
            return ""
        return "mhm" if len(samples) < SHORT_S * rate_hz else "My number is 4711, please send it."

    return recognise


async def spoil(fault: str, call: Call) -> None:
    """Do what a fault does to a call as it goes on."""
    if fault not in ("self_interrupting", "talking_over"):
        return
    loud_s = speaking_s = 0.0
    greeted = False
    async for frame in call.audio():
        level = float(np.sqrt(np.mean(np.square(frame.samples.astype(np.float64))))) / 32768
        loud_s = loud_s + frame.duration_s if level > LOUD else 0.0
        greeted = greeted or loud_s > TALKS_OVER_S
        speaking_s = speaking_s + frame.duration_s if call.speaking else 0.0
        if fault == "talking_over" and loud_s > TALKS_OVER_S and not call.speaking:
            call.speak(OVER)
            loud_s = -2.0
        elif fault == "self_interrupting" and greeted and speaking_s > INTERRUPTS_AFTER_S:
            call.interrupt()
            speaking_s = 0.0


async def post_json(url: str, content: dict[str, str]) -> None:
    """HTTP POST of a JSON object."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    body = json.dumps(content).encode()
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {len(body)}"
    writer.write(f"{head}\r\nContent-Type: application/json\r\n\r\n".encode() + body)
    await reader.read()
    writer.close()
    await writer.wait_closed()


@asynccontextmanager
async def bakery(webhook: str = "") -> AsyncIterator[Phone]:
    """A phone at which all the agents answer."""
    engine = SpoilingEngine()
    async with (
        running_server(engine, host="127.0.0.1", port=0) as voice,
        Phone(PhoneSettings(server_url=voice.url), announce=None) as phone,
        serving(phone, webhook),
    ):
        await engine.prepare()
        yield phone


@asynccontextmanager
async def streamed_bakery(
    voice_url: str | None, webhook: str = "", carrier: str = "twilio"
) -> AsyncIterator[Streams]:
    """A media stream at which the sound agent answers, with the voice of a `bakery`."""
    settings = StreamSettings(kinds=(carrier,), server_url=voice_url, insecure=True)
    async with Streams(settings, announce=None) as streams, serving(streams, webhook):
        yield streams


@asynccontextmanager
async def serving(calls: AsyncIterable[Call], webhook: str) -> AsyncIterator[None]:
    agents = Bakery(calls, webhook)
    serving = asyncio.create_task(agents.serve())
    try:
        yield
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await agents.close()


async def main(webhook: str) -> None:
    async with bakery(webhook) as phone:
        print(phone.uri, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else ""))
