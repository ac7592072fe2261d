"""One utterance of LiveKit Agents: a context on the shared connection."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from livekit.agents import APIConnectOptions, APITimeoutError, tts, utils

from qwen3tts_wire.client import Alignment, Audio, Context, Done
from qwen3tts_wire.errors import SpeechError

from .faults import api_error
from .timed import TimedText

if TYPE_CHECKING:
    from .tts import TTS

NOTHING_SAID_MS = 20
"""Silence for a text with nothing to say (an emoji), which LiveKit would take for a fault."""


class SynthesizeStream(tts.SynthesizeStream):
    """Text goes in while it is written, sound and timed words come out."""

    def __init__(self, *, tts: TTS, conn_options: APIConnectOptions) -> None:
        """``TTS.stream`` makes one."""
        self._voice = tts
        self._opts = tts.options
        super().__init__(tts=tts, conn_options=conn_options)

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        form = self._voice.format
        output_emitter.initialize(
            request_id=utils.shortuuid(),
            sample_rate=form.sample_rate,
            num_channels=1,
            mime_type="audio/pcm",
            stream=True,
        )
        try:
            asked, self._connection_reused = time.perf_counter(), self._voice.is_connected
            client = await self._voice.connected(self._conn_options.timeout)
            self._acquire_time = time.perf_counter() - asked
            context = await client.open(format=form, **self._opts.fields())
            self._voice.began(context)
            output_emitter.start_segment(segment_id=context.context_id)
            await self._converse(context, output_emitter)
            output_emitter.end_segment()
        except SpeechError as error:
            raise api_error(error) from error
        except TimeoutError:
            raise APITimeoutError() from None

    async def _converse(self, context: Context, output_emitter: tts.AudioEmitter) -> None:
        """Both directions at once; an interruption cancels this, and with it the context."""
        async with asyncio.timeout(None) as patience:
            saying = asyncio.create_task(self._say(context, patience), name="text of an utterance")
            try:
                await self._hear(context, output_emitter, patience)
                await saying
            finally:
                if not context.over:
                    context.cancel()
                await utils.aio.cancel_and_wait(saying)

    async def _say(self, context: Context, patience: asyncio.Timeout) -> None:
        try:
            async for piece in self._input_ch:
                if isinstance(piece, self._FlushSentinel):
                    await context.flush()
                else:
                    self._mark_started()
                    await context.append(piece)
            await context.end()
        except SpeechError:
            context.cancel()  # ends the listening; the error comes out of this task
            raise
        if not context.received:
            # A server that is there but brings nothing is given up.
            patience.reschedule(asyncio.get_running_loop().time() + self._conn_options.timeout)

    async def _hear(
        self, context: Context, output_emitter: tts.AudioEmitter, patience: asyncio.Timeout
    ) -> None:
        timed = TimedText(context.format.sample_rate)
        async for event in context:
            if isinstance(event, Audio):
                patience.reschedule(None)
                output_emitter.push(event.pcm)
            elif isinstance(event, Alignment):
                output_emitter.push_timed_transcript(timed.pieces(context.text, event.words))
            elif isinstance(event, Done):
                if event.samples == 0 and context.text.strip():
                    output_emitter.push(bytes(2 * context.format.samples(NOTHING_SAID_MS)))
                output_emitter.push_timed_transcript(timed.rest(context.text))
