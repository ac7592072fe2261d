"""Session of a ``qwen3tts.speech.v1`` connection: contexts between protocol and engine. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import fields

from qwen3tts_engine.base import Engine, LoadedVoice, PcmChunk
from qwen3tts_engine.wrapped import cloning
from qwen3tts_server.connection import (
    RESTART,
    STOPPING,
    Close,
    ConnectionBounds,
    ConnectionSession,
)
from qwen3tts_server.dialects.native.commands import (
    Command,
    LoadVoice,
    PauseSynthesis,
    ResumeSynthesis,
    StartSynthesis,
    StopSynthesis,
)
from qwen3tts_server.dialects.native.greeting import Greeting
from qwen3tts_server.settings import ServerSettings
from qwen3tts_server.speech_stream import NullObserver, UtteranceObserver, utterance_for
from qwen3tts_server.utterance import AlignedWords, AudioPiece, Done, Failed, Item, Utterance
from qwen3tts_text.segmenter import SegmenterSettings
from qwen3tts_wire.endpoint import ContextBroken, Data, ServerEvent
from qwen3tts_wire.errors import BadRequest, ServerBusy, SpeechError
from qwen3tts_wire.messages import (
    AudioCredit,
    ContextCancel,
    ContextCancelled,
    ContextDone,
    ContextOpen,
    ContextStarted,
    Ping,
    PlayoutReport,
    TextAppend,
    TextEnd,
    TextFlush,
    VoiceLoad,
    VoiceReady,
    WordInfo,
)
from qwen3tts_wire.server_end import ServerProtocol


class VoiceLoads:
    """Pending ``voice.load`` requests, at most ``most``."""

    def __init__(self, engine: Engine, most: int) -> None:
        self._engine = engine
        self._most = most
        self._open: dict[str, None] = {}

    def begin(self, message: VoiceLoad) -> None:
        if cloning(self._engine) is None:
            raise BadRequest(
                "This engine cannot clone: it makes no voices of recordings.",
                remedy="Name a voice that it lists, or serve a Qwen3-TTS Base checkpoint.",
            )
        if message.request_id in self._open:
            raise BadRequest("voice.load.request_id is that of a request under way.")
        if (message.voice_id is None) == (message.ref_audio is None):
            raise BadRequest("voice.load needs voice_id or ref_audio, one of the two.")
        if len(self._open) >= self._most:
            raise ServerBusy(
                f"{len(self._open)} voices are being loaded on this connection.",
                remedy="Wait for one of them.",
            )
        self._open[message.request_id] = None

    @property
    def under_way(self) -> int:
        return len(self._open)

    def end(self, request_id: str) -> bool:
        return self._open.pop(request_id, 0) is None

    def end_all(self) -> list[str]:
        ended = list(self._open)
        self._open.clear()
        return ended


_OPTIONS = ("instructions", "speed", "sampling", "seed", "initial_codec_chunk_frames")
"""Options of ``context.open`` for engines; ``lead_ms`` is handled here."""


class NativeSession(ConnectionSession[Command]):
    """Contexts of one connection."""

    def __init__(
        self,
        engine: Engine,
        settings: ServerSettings,
        segmenter: SegmenterSettings | None = None,
        *,
        observer: UtteranceObserver | None = None,
        now: float | None = None,
        greeting: Greeting | None = None,
    ) -> None:
        bounds = ConnectionBounds(
            message=settings.limits.max_message_bytes,
            in_bytes=True,
            backlog=settings.backlog_bytes,
            first_message_s=settings.first_message_s,
            idle_s=settings.idle_s,
        )
        super().__init__(bounds, now)
        self._engine = engine
        self._settings = settings
        self._observer = observer or NullObserver()
        self._segmenter = segmenter or SegmenterSettings()
        self._protocol = ServerProtocol(settings.limits, self._observer.errored)
        self._live: dict[int, Utterance] = {}
        self._done: dict[int, Utterance] = {}
        self._done_chars = 0
        """Characters of all their texts."""
        self._numbers: dict[str, int] = {}
        self._turn: deque[int] = deque()
        self._touched: dict[int, Utterance] = {}
        """Contexts changed since the last commands."""
        self._waiting: dict[int, Utterance] = {}
        """Contexts with text that may need a flush."""
        self._loads = VoiceLoads(engine, settings.max_voice_loads)
        greeting = greeting or Greeting(engine, settings.limits)
        self._protocol.send_greeting(greeting.text())

    # --- the client ---

    def _handle(self, data: Data, now: float) -> None:
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            self._act_on(event, now)

    @property
    def backlog(self) -> int:
        return self._protocol.outbox.size

    def data_to_send(self, now: float) -> list[Data]:
        data = self._protocol.data_to_send()
        if not data and not self._closed:
            self._send_one(now)
            data = self._protocol.data_to_send()
        return data

    def _act_on(self, event: ServerEvent, now: float) -> None:
        if isinstance(event, Ping):
            self._protocol.send_pong(event, now * 1000, now * 1000)
            return
        if isinstance(event, VoiceLoad):
            self._load(event)
            return
        if isinstance(event, ContextOpen):
            self._open(event, now)
            return
        number = self._numbers[event.context_id]
        utterance = self._live.get(number) or self._done[number]
        _HANDLERS[type(event)](self, utterance, event, now)
        self._touched[number] = utterance

    def _open(self, event: ContextOpen, now: float) -> None:
        try:
            self._refuse_when_draining()
            event.format.checked()
            self._engine.check(event.voice, event.language)
        except SpeechError as error:
            self._protocol.send_failure(event.context_id, error)
            return
        utterance = utterance_for(self._engine, event, self._settings, self._segmenter, now)
        self._observer.opened(utterance)
        self._live[utterance.no] = utterance
        self._numbers[event.context_id] = utterance.no
        self._turn.append(utterance.no)
        voice = event.voice
        if voice is None and event.language is None:
            voice = next((each.id for each in self._engine.voices()), None)
        self._protocol.send_started(
            ContextStarted(
                context_id=event.context_id,
                context_no=event.context_no,
                mode=utterance.mode,
                format=event.format,
                voice=voice,
                language=event.language,
                ignored=self._ignored(event),
                marks=dict(utterance.marks),
            )
        )

    def _ignored(self, event: ContextOpen) -> tuple[str, ...]:
        given = (name for name in _OPTIONS if getattr(event, name) != _DEFAULTS[name])
        return tuple(name for name in given if name not in self._engine.options)

    def _append(self, utterance: Utterance, event: TextAppend, now: float) -> None:
        utterance.append(event.text, now)

    def _flush(self, utterance: Utterance, event: TextFlush, now: float) -> None:
        utterance.flush(now)

    def _end(self, utterance: Utterance, event: TextEnd, now: float) -> None:
        utterance.end(now)

    def _report(self, utterance: Utterance, event: PlayoutReport, now: float) -> None:
        utterance.report(event, now)
        self._observer.reported(utterance, event, now)

    def _credit(self, utterance: Utterance, event: AudioCredit, now: float) -> None:
        utterance.credit(event.window_ms)

    def _cancel(self, utterance: Utterance, event: ContextCancel, now: float) -> None:
        self._stop(utterance)
        utterance.mark("cancelled", now)
        self._observer.ended(utterance, "cancelled", now)
        position, cut = utterance.cut(event.played)
        self._protocol.send_cancelled(
            ContextCancelled(
                context_id=utterance.context_id,
                sent=utterance.sent,
                generated=utterance.generated,
                played=position,
                text_heard=cut.text_heard,
                text_remaining=cut.text_remaining,
                marks=dict(utterance.marks),
            )
        )

    def _broken(self, utterance: Utterance, event: ContextBroken, now: float) -> None:
        self._observer.ended(utterance, event.error.code, now)
        self._stop(utterance)

    def _stop(self, utterance: Utterance) -> None:
        if utterance.speaking:
            self._commands.append(StopSynthesis(utterance.no))
        self._touched[utterance.no] = utterance
        self._live.pop(utterance.no, None)
        if self._done.pop(utterance.no, None) is not None:
            self._done_chars -= utterance.chars
        self._numbers.pop(utterance.context_id, None)

    # --- voices ---

    def _load(self, event: VoiceLoad) -> None:
        try:
            self._refuse_when_draining()
            self._loads.begin(event)
        except SpeechError as error:
            self._protocol.send_error(error, request_id=event.request_id)
        else:
            self._commands.append(LoadVoice(event))

    def voice_loaded(self, request_id: str, voice: LoadedVoice, now: float) -> list[Command]:
        if self._loads.end(request_id):
            self._protocol.send_voice_ready(
                VoiceReady(request_id, voice.voice_id, voice.cached, voice.ref_text)
            )
        return self._take_commands()

    def voice_failed(self, request_id: str, error: SpeechError, now: float) -> list[Command]:
        if self._loads.end(request_id):
            self._protocol.send_error(error, request_id=request_id)
        return self._take_commands()

    # --- the engine ---

    def began(self, context_no: int, now: float) -> None:
        if utterance := self._live.get(context_no):
            utterance.mark("slot", now)

    def produced(self, context_no: int, chunk: PcmChunk, now: float) -> list[Command]:
        if utterance := self._live.get(context_no):
            utterance.produced(chunk, now)
            self._touched[context_no] = utterance
        return self._take_commands()

    def generated(self, context_no: int, now: float) -> list[Command]:
        if utterance := self._live.get(context_no):
            utterance.generated_clause(now)
            self._touched[context_no] = utterance
        return self._take_commands()

    def failed(self, context_no: int, error: SpeechError, now: float) -> list[Command]:
        if utterance := self._live.get(context_no):
            utterance.failed(error)
            self._touched[context_no] = utterance
        return self._take_commands()

    def gone(self, now: float) -> None:
        for utterance in self._live.values():
            self._observer.ended(utterance, "gone", now)
        self._live.clear()

    # --- time ---

    def _deadlines(self, now: float) -> list[float | None]:
        return [
            self._draining_until,
            *(each.flush_deadline(now) for each in self._waiting.values()),
        ]

    def tick(self, now: float) -> list[Command]:
        for utterance in self._waiting.values():
            due = utterance.flush_deadline(now)
            if due is not None and due <= now:
                utterance.flush(now)
                self._touched[utterance.no] = utterance
        return super().tick(now)

    def _drain_expired(self, now: float) -> None:
        for utterance in list(self._live.values()):
            self._stop(utterance)
            error = ServerBusy("The server stopped before the end of the text.")
            self._observer.ended(utterance, error.code, now)
            self._protocol.send_failure(utterance.context_id, error)

    @property
    def busy(self) -> bool:
        speaking = any(each.speaking and not each.paused for each in self._live.values())
        return bool(self._loads.under_way) or speaking

    # --- the end ---

    def _drain_announced(self, within_s: float) -> None:
        self._protocol.send_draining(within_s * 1000)

    def _close(self, code: int, reason: str) -> None:
        self._closed = True
        self._commands.append(Close(code, reason))

    # --- within ---

    def _take_commands(self) -> list[Command]:
        for utterance in self._touched.values():
            if utterance.no not in self._live:
                self._waiting.pop(utterance.no, None)
                continue
            if utterance.waiting:
                self._waiting[utterance.no] = utterance
            else:
                self._waiting.pop(utterance.no, None)
            if utterance.paused and utterance.drained:
                utterance.paused = False
                if utterance.speaking:
                    self._commands.append(ResumeSynthesis(utterance.no))
            elif not utterance.paused and utterance.full:
                utterance.paused = True
                if utterance.speaking:
                    self._commands.append(PauseSynthesis(utterance.no))
            request = utterance.next_request()
            if request is not None:
                self._commands.append(StartSynthesis(utterance.no, request))
        self._touched.clear()
        if self._draining_until is not None and not self._live and not self._closed:
            for request_id in self._loads.end_all():
                stopped = ServerBusy("The server stopped before the voice was ready.")
                self._protocol.send_error(stopped, request_id=request_id)
            self._close(RESTART, STOPPING)
        return super()._take_commands()

    def _send_one(self, now: float) -> None:
        for _ in range(len(self._turn)):
            number = self._turn.popleft()
            utterance = self._live.get(number)
            if utterance is None:
                continue
            self._turn.append(number)
            item = utterance.take(now)
            if item is not None:
                self._note_activity(now)
                self._touched[number] = utterance
                self._send(utterance, item, now)
                return

    def _send(self, utterance: Utterance, item: Item, now: float) -> None:
        if isinstance(item, AlignedWords):
            self._protocol.send_alignment(
                utterance.context_id,
                [
                    WordInfo(
                        each.text,
                        each.start,
                        each.end,
                        each.char_start,
                        each.char_end,
                        each.precision,
                        each.precision_ms,
                    )
                    for each in item.words
                ],
            )
        elif isinstance(item, AudioPiece):
            self._protocol.send_audio(utterance.context_id, item.data, flags=item.flags)
        elif isinstance(item, Failed):
            self._stop(utterance)
            self._observer.ended(utterance, item.error.code, now)
            self._protocol.send_failure(utterance.context_id, item.error)
        elif isinstance(item, Done):
            self._finish(utterance, now)

    def _finish(self, utterance: Utterance, now: float) -> None:
        utterance.mark("done", now)
        self._observer.ended(utterance, "done", now)
        self._protocol.send_done(
            ContextDone(
                context_id=utterance.context_id,
                samples=utterance.sent,
                chars=utterance.chars,
                clauses=utterance.clauses,
                reason=utterance.reason,
                marks=dict(utterance.marks),
            )
        )
        utterance.release()
        del self._live[utterance.no]
        self._done[utterance.no] = utterance
        self._done_chars += utterance.chars
        while len(self._done) > self._settings.done_kept or (
            len(self._done) > 1 and self._done_chars > self._settings.done_kept_chars
        ):
            oldest = self._done.pop(next(iter(self._done)))
            self._done_chars -= oldest.chars
            self._numbers.pop(oldest.context_id, None)
            self._protocol.forget(oldest.context_id)


_DEFAULTS = {each.name: each.default for each in fields(ContextOpen) if each.name in _OPTIONS}

_HANDLERS: dict[type, Callable[..., None]] = {
    TextAppend: NativeSession._append,
    TextFlush: NativeSession._flush,
    TextEnd: NativeSession._end,
    PlayoutReport: NativeSession._report,
    AudioCredit: NativeSession._credit,
    ContextCancel: NativeSession._cancel,
    ContextBroken: NativeSession._broken,
}
