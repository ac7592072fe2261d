"""The plugin as one object: the server's connection, the voices, and every caller.

``mod.py`` gives it to the host; everything that the host calls ends in a method here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from qwen3tts_codecs.payload import payload_by_name
from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_speech.line import Speaker, Utterance, VoiceOptions
from qwen3tts_speech.link import Connect
from qwen3tts_speech.sink import FrameSink
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.errors import SpeechError, UnknownVoice

from . import turn
from .conversation import Conversation
from .desk import Desk
from .desk_phone import phone_extra_missing
from .desk_wishes import DeskHost
from .host import Host
from .local_sink import LocalSink
from .partials import words_of
from .plain import PlainText
from .records import Records
from .reply import Reply
from .response_sink import ResponseSink
from .server_link import LinkState, ServerLink
from .settings import Settings
from .sip_sink import SipSink
from .stream import TtsStream
from .voices import VoiceBook, wish_of

log = logging.getLogger(__name__)

SILENCE = b"\xff" * 160
"""20 ms of PCMU that is nothing to hear."""
PCMU = payload_by_name("PCMU")


class Chooser:
    """Finds the voice of one command, as soon as there is a server to ask."""

    def __init__(self, plugin: Plugin, context: Any, voice_id: object, settings: Settings) -> None:
        self._plugin = plugin
        self._context = context
        self._voice_id = voice_id
        self._settings = settings
        self._asked: tuple[SpeechClient, str | None] | None = None

    async def __call__(self, client: SpeechClient) -> VoiceOptions:
        """How to speak on this connection."""
        plugin, settings = self._plugin, self._settings
        link = plugin._link(settings)
        if isinstance(link, ServerLink) and link.state.using_fallback:
            plugin.records.count("fallbacks")
        persona = await plugin.host.persona(self._context)
        wish = wish_of(self._voice_id, persona, settings)
        options = await plugin.voices.options(client, wish, settings)
        self._asked = (client, options.voice)
        return options

    def refused(self) -> None:
        """The server does not know the voice (any more): it is looked for again next time."""
        if self._asked is not None and self._asked[1] is not None:
            self._plugin.voices.refused(self._asked[0], self._asked[1])


class Plugin:
    """Speaks for the agents of one host."""

    def __init__(
        self, host: Host, *, clock: Clock | None = None, connect: Connect | None = None
    ) -> None:
        self.host = host
        self._connect: dict[str, Any] = {} if connect is None else {"connect": connect}
        self.clock: Clock = clock or LoopClock()
        self.records = Records(lambda: self.settings_of(None))
        self.voices = VoiceBook(problem=self.records.problem)
        self.conversations: dict[str, Conversation] = {}
        """Callers by the host's ``log_id``."""
        self.desk: Desk | None = None
        """Our own telephone, where the host has none (`desk.Desk`)."""
        self._sinks: dict[str, FrameSink] = {}
        self._links: dict[tuple[str | None, ...], ServerLink] = {}
        self._starting = False
        self._warming: asyncio.Task[None] | None = None
        self._warm_since = 0.0
        """When the connection came for which voices were made ready, wall clock."""
        self._leaving: set[asyncio.Task[None]] = set()

    # --- what the host calls

    async def partial(self, data: Mapping[str, Any], context: Any) -> None:
        """A command as far as the model has written it (the ``partial_command`` pipe)."""
        try:
            await self._partial(data, context)
        except Exception as error:
            # The host would print it at each token.
            log.exception("a partial command was not taken")
            self.records.problem("partial", error, turn.log_id_of(context))

    async def _partial(self, data: Mapping[str, Any], context: Any) -> None:
        command, cmd_id = str(data.get("command")), data.get("cmd_id")
        cmd_id = cmd_id if isinstance(cmd_id, str) and cmd_id else None
        task = asyncio.current_task()
        turn.enter(turn.Turn(context, command, cmd_id, task))
        log_id = turn.log_id_of(context)
        if not log_id:
            return
        settings = self.settings_of(context)
        conversation = self.conversations.get(log_id)
        if command not in settings.commands:
            if conversation is not None:
                waits = "*" in settings.barrier or command in settings.barrier
                await conversation.other(task, settings.barrier_ms / 1000 if waits else None)
            return
        if cmd_id is None or not settings.live or not self.host.speaks_here(context, command):
            return
        if self.desk is not None and self.desk.over(log_id):
            return
        params = data.get("params")
        words = words_of(params)
        if not words and conversation is None:
            return
        choose = self._chooser(context, _voice_in(params), settings)
        conversation = self._conversation(context, settings)
        await conversation.partial(cmd_id, words, context, choose, settings, task)

    async def speak(
        self, text: object, voice_id: object, context: Any, more: Mapping[str, object]
    ) -> None:
        """The ``speak`` command; returns when at most ``return_ahead_ms`` have not been heard.

        Raises:
            asyncio.CancelledError: the host cancelled it; the line is silent.
        """
        try:
            await self._speak(text, voice_id, context, more)
        except Exception as error:
            # A result, or an error, would make the host run the model again.
            log.exception("speak failed")
            self.records.problem("speak", error, turn.log_id_of(context))

    async def _speak(
        self, text: object, voice_id: object, context: Any, more: Mapping[str, object]
    ) -> None:
        context, told = self._rightly(context, self.settings_of(context).commands)
        settings = self.settings_of(context)
        cmd_id, task = (None, None) if told is None else (told.cmd_id, told.task)
        if self.desk is not None and self.desk.over(turn.log_id_of(context)):
            # There is no line any more, and the words were for nobody else.
            self.records.count("no_call")
            return
        words = words_of(text, more)
        choose = self._chooser(context, voice_id, settings)
        conversation = self._conversation(context, settings)
        something = await conversation.speak(cmd_id, words, context, choose, settings, task)
        if not something and self.host.has_sip and not conversation.speaking:
            # Text without a word in it. A turn that brings no frame at all would be generated
            # again by the SIP side, which takes it for a failure.
            await self.host.chunk(context, SILENCE)

    async def interrupt(self, context: Any) -> None:
        """The ``on_interrupt`` hook."""
        conversation = self.conversations.get(turn.log_id_of(context))
        if conversation is not None:
            conversation.stop("the host's on_interrupt")

    def cut_short(self, context: Any) -> int | None:
        """Silence now; the characters of the turn's words that were heard, None for all of them."""
        conversation = self.conversations.get(turn.log_id_of(context))
        if conversation is None or not conversation.stop("the caller has cut in"):
            return None
        return conversation.heard_chars()

    def heard_text(self, context: Any) -> str:
        """What the caller has heard of the last turn."""
        conversation = self.conversations.get(turn.log_id_of(context))
        return "" if conversation is None else conversation.heard_text()

    def open_desk(self, host: DeskHost) -> bool:
        """Have a telephone of our own, where the host has none; whether there is one now."""
        if self.host.has_sip:
            return False
        settings = self.settings_of(None)
        missing = phone_extra_missing()
        if missing is not None:
            if settings.sip_agent or settings.sip_server or settings.sip_listen:
                self.records.problem(
                    "telephone",
                    f"Calls need the phone extra, of which {missing} is missing. "
                    "pip install 'mr_qwen3tts[phone]'",
                )
            return False
        self.desk = Desk(
            host, lambda c: self._link(self.settings_of(c)), self.settings_of, clock=self.clock
        )
        self.desk.start()
        return True

    async def at_desk(self, command: str, what: object, context: Any) -> str | None:
        """``call``, ``hangup`` or ``send_dtmf``; a sentence for the model where it did not work."""
        if self.desk is None:
            return "There is no telephone here."
        context, _ = self._rightly(context, frozenset({command}))
        if command == "call":
            return await self.desk.call(what, context)
        if command == "hangup":
            return await self.desk.hangup(context)
        return await self.desk.send_dtmf(what, context)

    def stream(self, text: object, voice_id: object, output_format: str, context: Any) -> TtsStream:
        """The ``stream_tts`` service: sound for whoever takes it, paced by nobody."""
        settings = self.settings_of(context)
        words = words_of(text, {})
        if settings.markup:
            plain = PlainText()
            words = plain.push(words) + plain.finish()
        return TtsStream(
            self._link(settings),
            words,
            self._chooser(context, voice_id, settings),
            output_format,
            stall_s=settings.stall_ms / 1000,
        )

    def heard(self, context: Any) -> dict[str, Any] | None:
        """What the caller has heard of what was said last; None where nothing was."""
        conversation = self.conversations.get(turn.log_id_of(context))
        if conversation is None or (last := conversation.last) is None:
            return None
        return {
            "heard": last.heard,
            "remaining": last.remaining,
            "interrupted": last.interrupted,
        }

    def expect(self, context: Any) -> None:
        """Words will come soon: the connection had better be there."""
        self._link(self.settings_of(context)).keep()

    def start(self) -> None:
        """Connect, and whenever that has succeeded make the personas' voices ready; at once."""
        self._starting = True
        self._link(self.settings_of(None))

    async def shutdown(self) -> None:
        """Fall silent and leave the server."""
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.wait([self._warming])
        await self._leave(list(self.conversations))
        if self.desk is not None:
            await self.desk.close()
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(each.close() for each in links))
        self.records.close()

    # --- for the admin page

    @property
    def link(self) -> ServerLink:
        """The connection that agents without settings of their own use."""
        return self._link(self.settings_of(None))

    def settings_of(self, context: Any) -> Settings:
        """The settings now; where somebody has written nonsense, the default, and a problem."""
        settings, wrong = Settings.usable(context)
        for error in wrong:
            self.records.problem("settings", error, turn.log_id_of(context))
        return settings

    # --- inside

    def _rightly(self, context: Any, commands: frozenset[str]) -> tuple[Any, turn.Turn | None]:
        """The context that the command belongs to, and what the pipe told of it."""
        told = turn.take(commands)
        if told is None or not turn.log_id_of(told.context):
            return context, None
        if turn.log_id_of(context) != turn.log_id_of(told.context):
            # The host's global context was another call's.
            self.records.count("mixups")
            context = told.context
        return context, told

    def _link(self, settings: Settings) -> ServerLink:
        key = (settings.url, settings.api_key, settings.fallback_url)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = ServerLink(
                settings.url,
                api_key=settings.api_key,
                fallback_url=settings.fallback_url,
                wait_s=settings.wait_ms / 1000,
                resume_s=settings.resume_ms / 1000,
                clock=self.clock,
                on_state=lambda state: self._link_changed(settings, state),
                **self._connect,
            )
        link.keep()
        return link

    def _conversation(self, context: Any, settings: Settings) -> Conversation:
        log_id = turn.log_id_of(context) or "local"
        conversation = self.conversations.get(log_id)
        if conversation is None:
            self._forget_idle(settings.idle_s)
            conversation = self.conversations[log_id] = self._new(log_id, context, settings)
        sink = self._sinks.get(log_id)
        if isinstance(sink, ResponseSink):
            sink.context = context
        return conversation

    def _new(self, log_id: str, context: Any, settings: Settings) -> Conversation:
        speakers: dict[int, Speaker] = {}

        def speaker() -> Speaker:
            if self.desk is not None and (own := self.desk.speaker_of(log_id)) is not None:
                return own
            sink = self._sinks.get(log_id)
            if sink is None:
                sink = self._sinks[log_id] = self._sink(context, settings, halted, log_id)
            if id(sink) not in speakers:
                speakers[id(sink)] = Speaker(
                    self._link(settings),
                    sink,
                    PCMU,
                    call_id=log_id,
                    clock=self.clock,
                    stall_s=settings.stall_ms / 1000,
                )
            return speakers[id(sink)]

        def halted() -> None:
            self.records.count("halts")
            sink = self._sinks.get(log_id)
            if isinstance(sink, ResponseSink) and sink.error is not None:
                self.records.problem("sip", sink.error, log_id)
            conversation.stop("the SIP side wants no more sound")

        def hold_open(held: bool) -> None:
            sink = self._sinks.get(log_id)
            if isinstance(sink, ResponseSink):
                sink.hold_open = held

        def ended(reply: Reply, utterance: Utterance, error: SpeechError | None) -> None:
            self._ended(log_id, reply, utterance, error)

        conversation = Conversation(
            log_id,
            clock=self.clock,
            speaker=speaker,
            halted=self.host.halted,
            ended=ended,
            count=self.records.count,
            hold_open=hold_open,
        )
        return conversation

    def _sink(self, context: Any, settings: Settings, halted: Any, log_id: str) -> FrameSink:
        if self.host.has_sip:
            return SipSink(
                self.host,
                context,
                lead_ms=settings.lead_ms,
                linger_ms=settings.linger_ms,
                clock=self.clock,
                on_halted=halted,
            )
        return LocalSink(
            settings.local,
            settings.local_dir,
            name=log_id,
            linger_ms=settings.linger_ms,
            clock=self.clock,
            problem=self.records.problem,
        )

    def _chooser(self, context: Any, voice_id: object, settings: Settings) -> Chooser:
        return Chooser(self, context, voice_id, settings)

    def _ended(
        self, log_id: str, reply: Reply, utterance: Utterance, error: SpeechError | None
    ) -> None:
        outcome = utterance.outcome()
        agent = getattr(reply.context, "agent_name", None) or ""
        self.records.utterance(
            log_id,
            str(agent),
            outcome.record,
            outcome="interrupted" if outcome.interrupted else error.code if error else "said",
            error=str(error) if error else "",
            heard=outcome.heard,
            remaining=outcome.remaining,
            choices=self.settings_of(reply.context),
        )
        if error is not None:
            self.records.problem("speech", error, log_id)
        if isinstance(error, UnknownVoice) and isinstance(reply.choose, Chooser):
            reply.choose.refused()

    def _link_changed(self, settings: Settings, state: LinkState) -> None:
        """A server that has come does not know the voices of before."""
        if not state.up and state.last_error is not None:
            self.records.problem("server", state.last_error)
        again = state.up and state.since != self._warm_since
        if not self._starting or not again or state.url != self.settings_of(None).url:
            return
        self._warm_since = state.since
        if self._warming is not None:
            self._warming.cancel()
        self._warming = asyncio.create_task(self._warm(settings), name="qwen3tts: warm up")

    async def _warm(self, settings: Settings) -> None:
        try:
            client = await self._link(settings).client()
            personas: Iterable[Mapping[str, Any]] = await self.host.personas()
            wishes = [wish_of(None, each, settings) for each in personas]
            await self.voices.warm(client, wishes, settings)
        except SpeechError as error:
            self.records.problem("server", error)
        except Exception as error:
            # Warming is a favour: whatever breaks in it comes again, and is told, when one speaks.
            log.exception("voices could not be made ready")
            self.records.problem("warm-up", error)

    def _forget_idle(self, idle_s: float) -> None:
        before = self.clock.now() - idle_s
        idle = [
            log_id
            for log_id, each in self.conversations.items()
            if not each.busy and each.used_at < before
        ]
        if idle:
            leaving = asyncio.create_task(self._leave(idle), name="qwen3tts: forget callers")
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _leave(self, log_ids: list[str]) -> None:
        for log_id in log_ids:
            conversation = self.conversations.pop(log_id, None)
            sink = self._sinks.pop(log_id, None)
            if conversation is not None:
                await conversation.close()
            if isinstance(sink, ResponseSink):
                await sink.close()


def _voice_in(params: object) -> object:
    """The voice of a command whose text has begun: only one that was written before the text."""
    if not isinstance(params, Mapping):
        return None
    names = list(params)
    if "voice_id" not in names or names[-1] == "voice_id":
        return None
    return params["voice_id"]
