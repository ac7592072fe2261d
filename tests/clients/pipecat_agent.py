"""A Pipecat pipeline whose voice is our service, to a sound device that takes real time.

``pipecat_agent.py URL OPTIONS``, the options as JSON (``Options`` below); what happened, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from pipecat.frames.frames import (
    BotStoppedSpeakingFrame,
    EndFrame,
    ErrorFrame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMRunFrame,
    LLMTextFrame,
    MetricsFrame,
    StartFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSUpdateSettingsFrame,
)
from pipecat.metrics.metrics import TTFBMetricsData
from pipecat.observers.base_observer import BaseObserver
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.tts_service import TextAggregationMode
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner
from pipecat_qwen3tts import Qwen3TTSService

from qwen3tts_wire.events import Cancelled

ENOUGH_S = 30


@dataclass
class Options:
    reply: str = "Good morning."
    """What the language model writes, word by word; at ``|`` it stops until it is interrupted."""
    speak: list[str] = field(default_factory=list)
    """Said instead of a reply, each as an utterance of its own."""
    mode: str = "token"
    voice: str | None = None
    then_voice: str | None = None
    """The voice from the middle of the reply on."""
    cut_s: float | None = None
    """The listener interrupts after so much sound."""
    again: str | None = None
    """The reply after the interruption."""
    firm: bool = False
    """What is spoken may not be interrupted."""
    rate: int = 24000
    """The pipeline's, hertz."""


class Script(FrameProcessor):  # type: ignore[misc]
    """A language model that writes ``reply`` word by word."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        self.finished = False

    async def process_frame(self, frame: Any, direction: Any) -> None:
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        await self.push_frame(LLMFullResponseStartFrame())
        reply, self.options.reply = self.options.reply, self.options.again or ""
        words = reply.split(" ")
        for number, word in enumerate(words):
            if number == len(words) // 2 and (voice := self.options.then_voice):
                await self.push_frame(
                    TTSUpdateSettingsFrame(delta=Qwen3TTSService.Settings(voice=voice))
                )
            if word == "|":
                await asyncio.sleep(ENOUGH_S)
            await self.push_frame(LLMTextFrame(f" {word}" if number else word))
            await asyncio.sleep(0.01)
        await self.push_frame(LLMFullResponseEndFrame())
        self.finished = True


class Device(BaseOutputTransport):  # type: ignore[misc]
    """Plays in real time and in silence."""

    def __init__(self, cut_s: float | None) -> None:
        super().__init__(TransportParams(audio_out_enabled=True, audio_out_end_silence_secs=0))
        self.cut_s = cut_s
        self.played_s = 0.0
        self.reached = asyncio.Event()
        self.loud = 0
        self._due = 0.0

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: Any) -> bool:
        self._due = max(self._due, time.monotonic()) + frame.num_frames / frame.sample_rate
        await asyncio.sleep(self._due - time.monotonic())
        self.played_s += frame.num_frames / frame.sample_rate
        self.loud = max(self.loud, max(frame.audio[1::2]))
        if self.cut_s is not None and self.played_s >= self.cut_s:
            self.reached.set()
        return True


class Watch(BaseObserver):  # type: ignore[misc]
    """What left the voice, and when the device fell silent."""

    def __init__(self, voice: FrameProcessor) -> None:
        super().__init__()
        self.voice = voice
        self.counts: dict[str, int] = {}
        self.rates: set[int] = set()
        self.samples = 0
        self.last_samples = 0
        """Since the last utterance began."""
        self.errors: list[str] = []
        self.measured: set[str] = set()
        self.silent = asyncio.Event()

    async def on_push_frame(self, data: Any) -> None:
        frame = data.frame
        if isinstance(frame, BotStoppedSpeakingFrame):
            self.silent.set()
        if data.source is not self.voice:
            return
        if isinstance(frame, TTSAudioRawFrame):
            self.rates.add(frame.sample_rate)
            self.samples += frame.num_frames
            self.last_samples += frame.num_frames
        elif isinstance(frame, TTSStartedFrame | TTSStoppedFrame):
            name = type(frame).__name__
            if isinstance(frame, TTSStartedFrame):
                self.last_samples = 0
            self.counts[name] = self.counts.get(name, 0) + 1
        elif isinstance(frame, ErrorFrame):
            self.errors.append(f"{frame.category.value}: {frame.error}")
        elif isinstance(frame, MetricsFrame):
            self.measured |= {"ttfb" for each in frame.data if isinstance(each, TTFBMetricsData)}


async def main(url: str, given: str = "{}") -> None:
    options = Options(**json.loads(given))
    voice = Qwen3TTSService(
        url=url,
        text_aggregation_mode=TextAggregationMode(options.mode),
        settings=Qwen3TTSService.Settings(voice=options.voice),
    )
    llm, device, watch = Script(options), Device(options.cut_s), Watch(voice)
    context = LLMContext([{"role": "user", "content": "When does the train leave?"}])
    pair = LLMContextAggregatorPair(context)
    worker = PipelineWorker(
        Pipeline([pair.user(), llm, voice, device, pair.assistant()]),
        cancel_on_idle_timeout=False,
        enable_rtvi=False,
        observers=[watch],
        params=PipelineParams(audio_out_sample_rate=options.rate, enable_metrics=True),
    )
    ready, told = asyncio.Event(), asyncio.Event()
    heard: list[list[object]] = []
    events: list[str] = []
    cut_while_writing = None

    async def started(*_: object) -> None:
        ready.set()

    async def interrupted(_voice: object, _context_id: str, cancelled: Cancelled) -> None:
        heard.append([cancelled.text_heard, cancelled.text_remaining, cancelled.played])
        told.set()

    async def connected(*_: object) -> None:
        events.append("connected")

    async def disconnected(*_: object) -> None:
        events.append("disconnected")

    worker.add_event_handler("on_pipeline_started", started)
    voice.add_event_handler("on_interrupted", interrupted)
    voice.add_event_handler("on_connected", connected)
    voice.add_event_handler("on_disconnected", disconnected)

    async def converse() -> None:
        nonlocal cut_while_writing
        await asyncio.wait_for(ready.wait(), ENOUGH_S)
        if options.speak:
            for text in options.speak:
                frame = TTSSpeakFrame(text)
                frame.interruptible = not options.firm
                await worker.queue_frame(frame)
        else:
            await worker.queue_frame(LLMRunFrame())
        if options.cut_s is not None:
            await asyncio.wait_for(device.reached.wait(), ENOUGH_S)
            cut_while_writing = not llm.finished
            await worker.queue_frame(InterruptionFrame())
            if not options.firm:
                await asyncio.wait_for(told.wait(), ENOUGH_S)
                await asyncio.wait_for(watch.silent.wait(), ENOUGH_S)
        if options.again is not None:
            await worker.queue_frame(LLMRunFrame())
        await worker.queue_frame(EndFrame())

    runner = WorkerRunner()
    await runner.add_workers(worker)
    await asyncio.wait_for(asyncio.gather(runner.run(), converse()), 2 * ENOUGH_S)
    said = [each["content"] for each in context.messages if each["role"] == "assistant"]
    print(
        json.dumps(
            {
                "context": said,
                "heard": heard,
                "counts": watch.counts,
                "rates": sorted(watch.rates),
                "samples": watch.samples,
                "last_samples": watch.last_samples,
                "loud": device.loud,
                "errors": watch.errors,
                "events": events,
                "measured": sorted(watch.measured),
                "cut_while_writing": cut_while_writing,
                "usable": voice.is_usable,
            }
        )
    )


asyncio.run(main(*sys.argv[1:]))
