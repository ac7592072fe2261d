"""One caller of the host: conversation, sink and speaker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_pacer.clock import Clock
from qwen3tts_speech.line import Speaker, Utterance, UtteranceLog
from qwen3tts_wire.errors import SpeechError, UnknownVoice

from .calls.calls import PluginCalls
from .connection import Connections
from .conversation import Conversation
from .host import Host
from .local_sink import LocalSink
from .records import Records
from .reply import Reply
from .response_sink import ResponseSink, SipSink
from .settings import Settings
from .voices.selection import VoiceSelection

SILENCE = PCMU.silent_frame(20)
"""20 ms of silence."""
TOLD_MOST = 3
"""Mistakes reported to a model in a session; each costs a turn."""


class Caller:
    """Conversation of one host session.

    Args:
        log_id: the session's name.
        context: the host's context; `met` brings later ones.
        settings_of: settings of a context, read at each reply.
        desk: our own telephone, if any.
    """

    def __init__(
        self,
        log_id: str,
        context: Any,
        *,
        host: Host,
        links: Connections,
        records: Records,
        clock: Clock,
        settings_of: Callable[[Any], Settings],
        desk: Callable[[], PluginCalls | None],
    ) -> None:
        self._log_id = log_id
        self._context = context
        self._host = host
        self._links = links
        self._records = records
        self._clock = clock
        self._settings_of = settings_of
        self._desk = desk
        self._sink: ResponseSink | None = None
        self._own: Speaker | None = None
        self._consoling: set[asyncio.Task[None]] = set()
        self._told: set[str] = set()
        self.conversation = Conversation(
            log_id,
            clock=clock,
            speaker=self._speaker,
            halted=host.halted,
            ended=self._ended,
            count=records.count,
            hold_open=self._hold_open,
            waiting=self._waiting,
        )

    def met(self, context: Any) -> None:
        self._context = context
        if self._sink is not None:
            self._sink.context = context

    def to_tell(self, error: SpeechError) -> bool:
        """Return whether the model gets this error: each once, few in all."""
        if error.message in self._told or len(self._told) >= TOLD_MOST:
            return False
        self._told.add(error.message)
        return True

    async def close(self) -> None:
        await self.conversation.close()
        if self._sink is not None:
            await self._sink.close()

    async def say_nothing(self) -> None:
        """Send a silent frame: the SIP side regenerates a turn without frames."""
        if self._host.has_sip and not (self._sink is not None and self._sink.open):
            # It opens a response by itself, or one is opened for it; and is the end of it.
            await self._host.chunk(self._context, SILENCE)
            await self._host.end_response(self._context)

    # --- for the conversation

    def _speaker(self) -> Speaker:
        desk = self._desk()
        if desk is not None and (calling := desk.speaker_of(self._log_id)) is not None:
            return calling
        settings = self._settings_of(self._context)
        link, stall_s = self._links.of(settings), settings.stall_ms / 1000
        if self._own is None:
            self._sink = self._make_sink(settings)
            self._own = Speaker(
                link,
                self._sink,
                PCMU,
                log=UtteranceLog(self._log_id),
                clock=self._clock,
                stall_s=stall_s,
            )
        self._own.link, self._own.stall_s = link, stall_s  # they may have been changed meanwhile
        return self._own

    def _make_sink(self, settings: Settings) -> ResponseSink:
        if self._host.has_sip:
            return SipSink(
                self._host,
                self._context,
                lead_ms=settings.lead_ms,
                linger_ms=settings.linger_ms,
                clock=self._clock,
                on_halted=self._halted,
            )
        return LocalSink(
            settings.local,
            settings.local_dir,
            name=self._log_id,
            linger_ms=settings.linger_ms,
            clock=self._clock,
            problem=self._records.problem,
        )

    def _halted(self) -> None:
        self._records.count("halts")
        if self._sink is not None and self._sink.error is not None:
            self._records.problem("sip", self._sink.error, self._log_id)
            self._sink.error = None
        self.conversation.stop("the SIP side wants no more sound")

    def _hold_open(self, held: bool) -> None:
        if self._sink is not None:
            self._sink.hold_open = held

    def _waiting(self) -> None:
        task = asyncio.create_task(self._console(), name="qwen3tts: a frame of silence")
        self._consoling.add(task)
        task.add_done_callback(self._consoling.discard)

    async def _console(self) -> None:
        try:
            await self.say_nothing()
        except Exception as error:
            # The SIP side's fault: the reply, if it comes, will meet it, too.
            self._records.problem("sip", error, self._log_id)

    def _ended(self, reply: Reply, utterance: Utterance, error: SpeechError | None) -> None:
        outcome = utterance.outcome()
        agent = getattr(reply.context, "agent_name", None) or ""
        self._records.utterance(
            self._log_id,
            str(agent),
            outcome.record,
            outcome="interrupted" if outcome.interrupted else error.code if error else "said",
            error=str(error) if error else "",
            heard=outcome.heard,
            remaining=outcome.remaining,
            choices=self._settings_of(reply.context),
        )
        if error is not None:
            self._records.problem("speech", error, self._log_id)
        if isinstance(error, UnknownVoice) and isinstance(reply.choose, VoiceSelection):
            reply.choose.refused()
