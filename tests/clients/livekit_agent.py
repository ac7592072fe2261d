"""A LiveKit agent session, without a room, whose voice is our plugin.

``livekit_agent.py URL OPTIONS``, the options as JSON (``Options`` below); what happened, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

from livekit.agents import Agent, AgentSession, APIConnectOptions, io, llm
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS
from livekit.agents.voice.transcription.synchronizer import TranscriptSynchronizer
from livekit.plugins import qwen3tts

ENOUGH_S = 30


@dataclass
class Options:
    reply: str
    """What the language model writes, word by word; at ``|`` it stops until it is interrupted."""
    voice: str | None = None
    cut_s: float | None = None
    """The listener interrupts after so much sound."""
    again: str | None = None
    """Said after that."""


class Script(llm.LLM):  # type: ignore[misc]
    """A language model that writes the reply word by word."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        self.finished = False

    def chat(
        self,
        *,
        chat_ctx: llm.ChatContext,
        tools: Any = None,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
        **_: object,
    ) -> ScriptStream:
        return ScriptStream(self, chat_ctx=chat_ctx, tools=tools or [], conn_options=conn_options)


class ScriptStream(llm.LLMStream):  # type: ignore[misc]
    async def _run(self) -> None:
        for number, word in enumerate(self._llm.options.reply.split(" ")):
            if word == "|":
                await asyncio.sleep(ENOUGH_S)
            delta = llm.ChoiceDelta(role="assistant", content=f" {word}" if number else word)
            self._event_ch.send_nowait(llm.ChatChunk(id="reply", delta=delta))
            await asyncio.sleep(0.01)
        self._llm.finished = True


class Speaker(io.AudioOutput):  # type: ignore[misc]
    """Plays in real time and in silence."""

    def __init__(self) -> None:
        super().__init__(
            label="speaker", capabilities=io.AudioOutputCapabilities(pause=False), sample_rate=None
        )
        self.loud = 0
        self._captured_s = 0.0
        self._until: float | None = None
        """When what was captured will have been played; None between two segments."""
        self._end: asyncio.Task[None] | None = None

    async def capture_frame(self, frame: Any) -> None:
        await super().capture_frame(frame)
        self.loud = max(self.loud, max(bytes(frame.data)[1::2]))
        now = time.time()
        if self._until is None:
            self.on_playback_started(created_at=now)
        self._captured_s += frame.duration
        self._until = max(now, self._until or 0.0) + frame.duration

    @property
    def played_s(self) -> float:
        """Of the segment."""
        return self._captured_s - max(0.0, (self._until or 0.0) - time.time())

    async def has_played(self, seconds: float) -> None:
        left = seconds
        while left > 0:
            await asyncio.sleep(max(left, 0.02))
            left = seconds - self.played_s

    def flush(self) -> None:
        super().flush()
        if self._until is not None and self._end is None:
            self._end = asyncio.create_task(self._play_out(self._until))

    async def _play_out(self, until: float) -> None:
        await asyncio.sleep(max(0.0, until - time.time()))
        self._finish(interrupted=False)

    def clear_buffer(self) -> None:
        if self._until is not None:
            if self._end is not None:
                self._end.cancel()
            self._finish(interrupted=True)

    def _finish(self, *, interrupted: bool) -> None:
        position = self.played_s if interrupted else self._captured_s
        self._until, self._end, self._captured_s = None, None, 0.0
        self.on_playback_finished(playback_position=position, interrupted=interrupted)


class Captions(io.TextOutput):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(label="captions", next_in_chain=None)
        self.text = ""

    async def capture_text(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


async def main(url: str, given: str) -> None:
    options = Options(**json.loads(given))
    voice = qwen3tts.TTS(url=url, voice=options.voice)
    script = Script(options)
    voice.prewarm()
    speaker, captions = Speaker(), Captions()
    synchronizer = TranscriptSynchronizer(next_in_chain_audio=speaker, next_in_chain_text=captions)
    session = AgentSession(
        llm=script,
        tts=voice,
        vad=None,
        turn_handling={"turn_detection": "manual"},
        use_tts_aligned_transcript=True,
    )
    session.output.audio = synchronizer.audio_output
    session.output.transcription = synchronizer.text_output
    played: list[io.PlaybackFinishedEvent] = []
    speaker.on("playback_finished", played.append)
    errors: list[str] = []
    session.on("error", lambda event: errors.append(str(event.error)))
    await session.start(Agent(instructions="Say when the train leaves."), record=False)
    session.output.audio = qwen3tts.HeardOutput(session.output.audio)
    speech = session.generate_reply(user_input="When does the train leave?")
    cut_while_writing = None
    if options.cut_s is not None:
        await asyncio.wait_for(speaker.has_played(options.cut_s), ENOUGH_S)
        cut_while_writing = not script.finished
        await session.interrupt()
    await asyncio.wait_for(speech.wait_for_playout(), ENOUGH_S)
    position = played[-1].playback_position
    known = voice.heard(position)
    said = [each for each in session.history.items if each.type == "message"][-1]
    then = None
    if options.again is not None:
        await asyncio.wait_for(session.say(options.again).wait_for_playout(), ENOUGH_S)
        then = [each for each in session.history.items if each.type == "message"][-1].text_content
    await session.aclose()
    await synchronizer.aclose()
    print(
        json.dumps(
            {
                "errors": errors,
                "history": said.text_content,
                "interrupted": said.interrupted,
                "captions": captions.text,
                "position": position,
                "loud": speaker.loud,
                "heard": known.text_heard,
                "then": then,
                "then_s": played[-1].playback_position,
                "cut_while_writing": cut_while_writing,
                "remaining": known.text_remaining,
                "model": voice.model,
                "connected": voice.is_connected,
            }
        )
    )
    await voice.aclose()


asyncio.run(main(*sys.argv[1:]))
