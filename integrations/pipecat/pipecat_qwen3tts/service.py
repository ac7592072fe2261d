"""Pipecat's ``TTSService`` over ``qwen3tts.speech.v1``.

The base class keeps one *audio context* a turn, cuts text into sentences, and gives each word to
the conversation at its time. This class gives the text on as it is written, and ties each audio
context to one context of the server, so that an interruption stops exactly that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from loguru import logger
from pipecat.frames.frames import (
    AggregatedTextFrame,
    CancelFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    InterruptionFrame,
    TextFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessorSetup
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TextAggregationMode, TTSService
from pipecat.transcriptions.language import Language
from pipecat.utils.tracing.service_decorators import traced_tts
from pipecat.utils.types import assert_given

from qwen3tts_wire.client import (
    Alignment,
    Audio,
    Cancelled,
    Done,
    Resume,
    SpeechClient,
)
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.formats import FORMATS, AudioFormat

from .faults import category
from .settings import Qwen3TTSSettings
from .utterance import SECOND_NS, Utterance

URL = "ws://127.0.0.1:8765/v1/speech"
STILL_S = 0.2
"""A text that has not grown for so long ends at a whole word, as the server takes it to."""
RATES = frozenset(each.sample_rate for each in FORMATS if each.encoding == "pcm_s16le")
NOTHING_SAID_MS = 20
"""Silence for a text with nothing to say (an emoji), which Pipecat would take for a fault."""


class Qwen3TTSService(TTSService):
    """Speech from a Qwen3-TTS server, made while the text is being written.

    Event handlers, besides those of ``TTSService``:
        on_interrupted: an utterance was cut off. Called with the audio context's id and a
            ``Cancelled``: ``text_heard``, ``text_remaining``, ``played`` (samples).

    Example::

        tts = Qwen3TTSService(settings=Qwen3TTSService.Settings(voice="Ryan"))
        pipeline = Pipeline([..., llm, tts, transport.output(), context.assistant()])
    """

    Settings = Qwen3TTSSettings
    _settings: Qwen3TTSSettings

    def __init__(
        self,
        *,
        url: str = URL,
        api_key: str | None = None,
        sample_rate: int | None = None,
        text_aggregation_mode: TextAggregationMode | None = TextAggregationMode.TOKEN,
        settings: Qwen3TTSSettings | None = None,
        options: Mapping[str, Any] | None = None,
        resume: Resume | None = None,
        **kwargs: Any,
    ) -> None:
        """Initialize the service; ``setup`` connects it.

        Args:
            url: Where the server is, ``ws://`` or ``wss://``.
            api_key: What the server asks for; None is the environment's ``QWEN3TTS_API_KEY``.
            sample_rate: Hertz, 8000, 16000 or 24000; None is the pipeline's, where it is one of
                these, else 24000 (the transport converts).
            text_aggregation_mode: ``TOKEN`` gives the text on as it is written, and the server
                cuts it; ``SENTENCE`` waits for whole sentences.
            settings: Voice, language, speed, instructions. None leaves each to the server.
            options: Further fields of ``context.open``: ``mode``, ``sampling``, ``seed``,
                ``pause_flush_ms`` and others (docs/protocol.md).
            resume: What to do about a lost connection: utterances go on at the same place.
            **kwargs: For ``TTSService``.
        """
        known = self.Settings(model=None, voice=None, language=None, speed=1.0, instructions=None)
        if settings is not None:
            known.apply_update(settings)
        kwargs.setdefault("stop_frame_timeout_s", 10.0)  # the server says when an utterance ends
        super().__init__(
            text_aggregation_mode=text_aggregation_mode,
            push_text_frames=False,
            push_start_frame=True,
            append_trailing_space=True,
            sample_rate=sample_rate,
            settings=known,
            **kwargs,
        )
        self._url = url
        self._api_key = api_key
        self._options = dict(options or {})
        self._resume = resume or Resume()
        self._client: SpeechClient | None = None
        self._connecting = asyncio.Lock()
        self._utterances: dict[str, Utterance] = {}
        self._refused: str | None = None
        """The last audio context that no server took; the rest of its text is passed over."""
        self._busy_until_ns = 0
        """When all sound given to the pipeline will have been heard."""
        self._register_event_handler("on_interrupted")

    # --- the base class's questions ---

    def can_generate_metrics(self) -> bool:
        """Times to the first byte and the first audible sample are measured."""
        return True

    @property
    def supports_processing_metrics(self) -> bool:
        """``run_tts`` only hands text over; the sound comes later."""
        return False

    def language_to_service_language(self, language: Language) -> str | None:
        """The server takes BCP 47 tags."""
        return str(language.value)

    # --- the connection ---

    async def setup(self, setup: FrameProcessorSetup) -> None:
        """Connect before the first text comes."""
        await super().setup(setup)
        if self._sample_rate not in RATES:
            self._sample_rate = max(RATES)
        try:
            await self._connected()
        except SpeechError as error:
            await self._report(error)

    async def stop(self, frame: EndFrame) -> None:
        """Leave when all has been said."""
        await super().stop(frame)
        await self._disconnect()

    async def cancel(self, frame: CancelFrame) -> None:
        """Leave now."""
        await super().cancel(frame)
        await self._disconnect()

    async def cleanup(self) -> None:
        """Leave, if that was not done."""
        await super().cleanup()
        await self._disconnect()

    async def _connected(self) -> SpeechClient:
        async with self._connecting:
            if self._client is None or self._client.closed:
                self._client = await SpeechClient.connect(
                    self._url, resume=self._resume, api_key=self._api_key
                )
                features = set(self._client.session.features)
                # Without word times a sentence enters the conversation behind its sound.
                self._push_text_frames = not features & {"alignment", "estimated_alignment"}
                await self._call_event_handler("on_connected")
            return self._client

    async def _disconnect(self) -> None:
        utterances, self._utterances = self._utterances, {}
        for each in utterances.values():
            for task in (each.reader, each.watch):
                if task is not None:
                    await self.cancel_task(task)
        client, self._client = self._client, None
        if client is not None:
            await client.close()
            await self._call_event_handler("on_disconnected")

    # --- text to sound ---

    @traced_tts
    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Give ``text`` to the server; its sound comes by the utterance's reader.

        Args:
            text: The next piece of the utterance.
            context_id: Its audio context.

        Yields:
            None, or the error for which the utterance cannot begin.
        """
        utterance = self._utterances.get(context_id)
        try:
            if utterance is None and context_id != self._refused:
                utterance = await self._open(context_id)
            if utterance is not None and not utterance.failed:
                await utterance.context.append(text)
                if not self._is_streaming_tokens:
                    await utterance.context.flush()
                await self.start_tts_usage_metrics(text)
            yield None
        except SpeechError as error:
            if utterance is None:
                self._refused = context_id
                yield self._error_frame(error)
            elif not utterance.failed:
                utterance.failed = True
                utterance.context.cancel()
                yield self._error_frame(error)

    async def _open(self, context_id: str) -> Utterance:
        client = await self._connected()
        settings = self._settings
        context = await client.open(
            voice=assert_given(settings.voice),
            language=assert_given(settings.language),
            format=AudioFormat("pcm_s16le", self.sample_rate),
            **{"speed": settings.speed, "instructions": settings.instructions, **self._options},
        )
        self._forget_finished()
        said_by = self._tts_contexts.get(context_id)
        utterance = self._utterances[context_id] = Utterance(
            context, interruptible=said_by is None or said_by.interruptible
        )
        utterance.reader = self.create_task(
            self._read(context_id, utterance), name=f"utterance {context.context_no}"
        )
        return utterance

    async def flush_audio(self, context_id: str | None = None) -> None:
        """The text of an utterance is complete."""
        context_id = context_id or self.get_active_audio_context_id()
        utterance = self._utterances.get(context_id) if context_id else None
        if utterance is None or utterance.failed:
            await self._end_of(context_id, failed=True)
        elif not utterance.ended:
            utterance.ended = True
            try:
                await utterance.context.end()
            except SpeechError:
                logger.debug(f"{self}: an utterance broke before its end")  # its reader tells why

    async def _read(self, context_id: str, utterance: Utterance) -> None:
        try:
            async for event in utterance.context:
                if isinstance(event, Audio):
                    await self._sound(context_id, event.pcm)
                elif isinstance(event, Alignment):
                    now_ns = self.get_clock().get_time()
                    for word, heard_s, unspaced in utterance.spoken(event.words, now_ns):
                        await self.add_word_timestamps(
                            [(word, heard_s)], context_id, includes_inter_frame_spaces=unspaced
                        )
                    if self._is_streaming_tokens and utterance.watch is None:
                        utterance.watch = self.create_task(
                            self._watch(utterance), name="words of an unfinished sentence"
                        )
                elif isinstance(event, Done) and event.samples == 0:
                    await self._sound(context_id, bytes(self.sample_rate * NOTHING_SAID_MS // 500))
        except SpeechError as error:
            utterance.failed = True
            await self.append_to_audio_context(context_id, self._error_frame(error))
        if utterance.ended and not utterance.context.cancelling:
            await self._end_of(context_id, failed=utterance.failed)

    async def _sound(self, context_id: str, pcm: bytes) -> None:
        await self.append_to_audio_context(
            context_id, TTSAudioRawFrame(pcm, self.sample_rate, 1, context_id=context_id)
        )

    async def _end_of(self, context_id: str | None, *, failed: bool) -> None:
        if context_id and self.audio_context_available(context_id):
            if failed:
                # Else the base class would give the conversation what was never heard.
                others = {*self._tts_contexts, *self.get_audio_contexts()} - {context_id}
                self._aggregated_frame_sequencer.clear(keep_contexts=others)
            await self.append_to_audio_context(context_id, TTSStoppedFrame(context_id=context_id))
            await self.remove_audio_context(context_id)

    # --- where the listener is ---

    async def start_word_timestamps(self) -> None:
        """Time an utterance's words from when its sound is heard: behind all that was given."""
        tracker = self._word_timestamp_tracker
        if not tracker.started:
            tracker.last_pts = max(tracker.last_pts, self._busy_until_ns)
        await super().start_word_timestamps()

    async def push_frame(
        self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM
    ) -> None:
        """Count the sound and the text that go down the pipeline."""
        await super().push_frame(frame, direction)
        utterance = self._utterances.get(getattr(frame, "context_id", None) or "")
        if utterance is None:
            return
        if isinstance(frame, TTSAudioRawFrame):
            # Played in real time, one utterance after the other.
            now_ns = self.get_clock().get_time()
            length_ns = frame.num_frames * SECOND_NS // frame.sample_rate
            self._busy_until_ns = max(now_ns, self._busy_until_ns) + length_ns
            utterance.given(frame.num_frames, self._busy_until_ns)
        elif isinstance(frame, AggregatedTextFrame) and not isinstance(frame, TTSTextFrame):
            utterance.announced += len(frame.text)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Process a frame; an interruption also ends what is made already and still played."""
        if isinstance(frame, TextFrame) and not frame.skip_tts and frame.text[:1].isspace():
            await self._release_words()
        await super().process_frame(frame, direction)
        if isinstance(frame, InterruptionFrame):
            now_ns = self.get_clock().get_time()
            for context_id, each in list(self._utterances.items()):
                if each.interruptible and each.context.done and not each.over(now_ns):
                    await self._interrupt(context_id)
            self._forget_finished()
            left = [each.until_ns for each in self._utterances.values()]
            self._busy_until_ns = max(left, default=now_ns)

    async def _release_words(self) -> None:
        """Let words into the conversation whose sentence is still being written.

        The base class holds them until the sentence is complete, so that what was heard of it
        would be lost with an interruption. A space is where a sentence may be cut.
        """
        utterance = self._utterances.get(self._turn_context_id or "")
        if self._is_streaming_tokens and utterance and utterance.told > utterance.announced:
            await self._push_sequencer_frames(
                await self._aggregated_frame_sequencer.finalize(self._turn_context_id),
                self._turn_context_id,
            )

    async def _watch(self, utterance: Utterance) -> None:
        """Release words when the text stands still in the middle of a sentence."""
        written = -1
        while len(utterance.context.text) > written:
            written = len(utterance.context.text)
            await asyncio.sleep(STILL_S)
        utterance.watch = None
        if utterance is self._utterances.get(self._turn_context_id or ""):
            await self._release_words()

    # --- interruption ---

    async def on_audio_context_interrupted(self, context_id: str) -> None:
        """Stop the utterance where the listener is."""
        await self.stop_all_metrics()
        await self._interrupt(context_id)
        await super().on_audio_context_interrupted(context_id)

    async def on_audio_context_completed(self, context_id: str) -> None:
        """Stop an utterance that Pipecat gave up waiting for, unless more text may come."""
        await super().on_audio_context_completed(context_id)
        utterance = self._utterances.get(context_id)
        if utterance is None or utterance.context.over:
            return
        if context_id == self._turn_context_id:
            utterance.restart()
        else:
            await self._interrupt(context_id)

    async def _interrupt(self, context_id: str) -> None:
        utterance = self._utterances.pop(context_id, None)
        if utterance is None or utterance.failed:
            return
        answer = utterance.cancel(self.get_clock().get_time())
        self.create_task(self._tell(context_id, answer), name="what was heard")

    async def _tell(self, context_id: str, answer: asyncio.Future[Cancelled]) -> None:
        await self._call_event_handler("on_interrupted", context_id, await answer)

    def _forget_finished(self) -> None:
        now_ns = self.get_clock().get_time()
        self._utterances = {
            name: each for name, each in self._utterances.items() if not each.over(now_ns)
        }

    # --- settings and errors ---

    async def _update_settings(self, delta: TTSSettings) -> dict[str, Any]:
        """Apply changed settings: the rest of a turn under way becomes another utterance."""
        changed = await super()._update_settings(delta)
        turn = self._turn_context_id
        if changed and turn:
            await self._push_sequencer_frames(
                await self._aggregated_frame_sequencer.finalize(turn), turn
            )
            if self.audio_context_available(turn):
                await self.flush_audio(context_id=turn)
            self._turn_context_id = None
            self._turn_context_id = self.create_context_id()
        return changed

    def _error_frame(self, error: SpeechError) -> ErrorFrame:
        return ErrorFrame(error=str(error), exception=error, category=category(error))

    async def _report(self, error: SpeechError) -> None:
        await self._call_event_handler("on_connection_error", str(error))
        await self.push_error(str(error), exception=error, category=category(error))
