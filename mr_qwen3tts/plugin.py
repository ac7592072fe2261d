"""The plugin: connections, voices, callers; driven by ``mod.py``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_speech.link import Connect
from qwen3tts_text.plain_text import PlainText
from qwen3tts_wire.errors import BadRequest, SpeechError
from qwen3tts_wire.process import heap

from . import host_turn as turn
from .caller import Caller
from .calls.calls import PluginCalls
from .calls.options import CallHost
from .calls.phone import phone_extra_missing
from .connection import Connections, LinkState, ServerLink
from .conversation import Conversation
from .host import Host
from .partials import words_of
from .records import Records
from .settings import Settings
from .stream import TtsStream
from .voices.book import PluginVoices, requested_voice
from .voices.request import refusal_of
from .voices.selection import VoiceSelection

log = logging.getLogger(__name__)

NOBODY = "local"
"""Caller id without a session."""
SWEEP_AFTER_S = 2.0
"""Silence before a garbage collection."""
SAID_OTHERWISE = "Your words were said, in the agent's own voice: do not repeat them."
"""Prefix of a voice's refusal."""


class Plugin:
    """Speech of the agents of one host."""

    def __init__(
        self, host: Host, *, clock: Clock | None = None, connect: Connect | None = None
    ) -> None:
        self.host = host
        self.clock: Clock = clock or LoopClock()
        self.records = Records(lambda: self.settings_of(None))
        host.problem = self.records.problem
        self.voices = PluginVoices(problem=self.records.problem)
        self.links = Connections(self.clock, self._link_changed, connect)
        self.callers: dict[str, Caller] = {}
        """By ``log_id``."""
        self.desk: PluginCalls | None = None
        """Our own telephone."""
        self._starting = False
        self._warming: asyncio.Task[None] | None = None
        self._warm_since = 0.0
        """Wall clock of the connection with warmed voices."""
        self._leaving: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.Task[None] | None = None
        self._holds_heap = False
        self._heap = contextlib.ExitStack()

    # --- what the host calls

    async def partial(self, data: Mapping[str, Any], context: Any) -> None:
        """Run the ``partial_command`` pipe."""
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
        params = data.get("params")
        words = words_of(params)
        turn.enter(turn.Turn(context, command, cmd_id, task, words))
        log_id = turn.log_id_of(context)
        if not log_id:
            return
        settings = self.settings_of(context)
        conversation = self._known(log_id)
        if command not in settings.commands:
            if conversation is not None:
                waits = "*" in settings.barrier or command in settings.barrier
                await conversation.other(
                    cmd_id, task, settings.barrier_ms / 1000 if waits else None
                )
            return
        if cmd_id is None or not settings.live or not self.host.speaks_here(context, command):
            return
        if self.desk is not None and self.desk.over(log_id):
            return
        if not words and conversation is None:
            return
        choose = self._chooser(context, _voice_in(params), settings)
        conversation = self._caller(context, settings).conversation
        await conversation.partial(cmd_id, words, context, choose, settings, task)

    async def speak(
        self, text: object, voice_id: object, context: Any, more: Mapping[str, object]
    ) -> str | None:
        """Run ``speak`` until at most ``return_ahead_ms`` are unplayed.

        Returns:
            None; or once a caller and voice, why ``voice_id`` is ignored.

        Raises:
            asyncio.CancelledError: the host cancelled; playback has stopped.
        """
        try:
            return await self._speak(text, voice_id, context, more)
        except Exception as error:
            # A result, or an error, would make the host run the model again.
            log.exception("speak failed")
            self.records.problem("speak", error, turn.log_id_of(context))
            return None
        finally:
            self._rest()

    async def _speak(
        self, text: object, voice_id: object, context: Any, more: Mapping[str, object]
    ) -> str | None:
        words = words_of(text, more)
        context, told = self._rightly(context, self.settings_of(context).commands, words)
        settings = self.settings_of(context)
        cmd_id, task = (None, None) if told is None else (told.cmd_id, told.task)
        if self.desk is not None and self.desk.over(turn.log_id_of(context)):
            # The line has ended; the text was for it alone.
            self.records.count("no_call")
            return None
        choose = self._chooser(context, voice_id, settings)
        caller = self._caller(context, settings)
        conversation = caller.conversation
        something = await conversation.speak(cmd_id, words, context, choose, settings, task)
        if not something and not conversation.speaking:
            await caller.say_nothing()
        refusal = self._refusal(voice_id, settings)
        if refusal is None or not caller.to_tell(refusal):
            return None
        self.records.count("voices_refused")
        return f"{SAID_OTHERWISE} {refusal}"

    async def interrupt(self, context: Any) -> None:
        """Run the ``on_interrupt`` hook."""
        try:
            if turn.log_id_of(context):
                # A call may have no words yet: those of its turn must not come later.
                caller = self._caller(context, self.settings_of(context))
                caller.conversation.interrupt(context)
            elif (default := self._known(NOBODY)) is not None:
                default.interrupt(context)
        except Exception as error:
            # The hooks of other plugins would not run.
            log.exception("on_interrupt failed")
            self.records.problem("interrupt", error, turn.log_id_of(context))

    def cut_short(self, context: Any) -> int | None:
        """Stop; return the turn's heard characters, None: all."""
        conversation = self._known(turn.log_id_of(context))
        if conversation is None:
            return None
        conversation.stop("the caller has cut in")
        return conversation.cut_chars()

    def hold(self, context: Any, *, cut_in: bool) -> None:
        """Hold new speech; ``cut_in``: current too."""
        if turn.log_id_of(context):
            caller = self._caller(context, self.settings_of(context))
            caller.conversation.hold(cut_in=cut_in)

    def go_on(self, context: Any) -> None:
        if (conversation := self._known(turn.log_id_of(context))) is not None:
            conversation.go_on()

    def heard_text(self, context: Any) -> str:
        conversation = self._known(turn.log_id_of(context))
        return "" if conversation is None else conversation.heard_text()

    def open_desk(self, host: CallHost) -> bool:
        """Start a telephone if the host has none; False: no telephone."""
        if self.host.has_sip:
            return False
        settings = self.settings_of(None)
        try:
            missing = phone_extra_missing()
            if missing is None:
                self.desk = PluginCalls(
                    host,
                    lambda context: self.links.of(self.settings_of(context)),
                    self.settings_of,
                    clock=self.clock,
                )
                self.desk.start()
                return True
        except Exception as error:
            log.exception("there is no telephone")
            self.records.problem("telephone", error)
            return False
        if settings.sip_agent or settings.sip_server or settings.sip_listen:
            self.records.problem(
                "telephone",
                f"Calls need the phone extra, of which {missing} is missing. "
                "pip install 'mr_qwen3tts[phone]'",
            )
        return False

    async def at_desk(self, command: str, what: object, context: Any) -> str | None:
        """Run ``call``, ``hangup`` or ``send_dtmf``; return a failure."""
        if self.desk is None:
            return "There is no telephone here."
        context, _ = self._rightly(context, frozenset({command}))
        if command == "call":
            return await self.desk.call(what, context)
        if command == "hangup":
            return await self.desk.hangup(context)
        return await self.desk.send_dtmf(what, context)

    def stream(self, text: object, voice_id: object, output_format: str, context: Any) -> TtsStream:
        """Run ``stream_tts``, unpaced.

        Raises:
            BadRequest: unknown format, or ``voice_id`` is a path or address.
        """
        settings = self.settings_of(context)
        if (refusal := self._refusal(voice_id, settings)) is not None:
            raise refusal
        words = words_of(text, {})
        if settings.markup:
            plain = PlainText()
            words = plain.push(words) + plain.finish()
        return TtsStream(
            self.links.of(settings),
            words,
            self._chooser(context, voice_id, settings),
            output_format,
            stall_s=settings.stall_ms / 1000,
        )

    def heard(self, context: Any) -> dict[str, Any] | None:
        """Return the last turn's text heard, or None."""
        conversation = self._known(turn.log_id_of(context))
        if conversation is None or (last := conversation.last) is None:
            return None
        return {
            "heard": last.heard,
            "remaining": last.remaining,
            "interrupted": last.interrupted,
        }

    def expect(self, context: Any) -> None:
        """Prepare the connection: text will follow."""
        if (conversation := self._known(turn.log_id_of(context))) is not None:
            conversation.answered()
        self.links.of(self.settings_of(context)).keep()

    def start(self) -> None:
        """Connect, warm voices, freeze the loaded heap."""
        self._starting = True
        self._hold_heap(collect=True)
        self.links.of(self.settings_of(None))

    async def shutdown(self) -> None:
        background = [each for each in (self._warming, self._sweeping) if each is not None]
        for each in background:
            each.cancel()
        if background:
            await asyncio.wait(background)
        if self._holds_heap:
            self._holds_heap = False
            self._heap.close()
        await _leave(self._take_out(list(self.callers)))
        if self.desk is not None:
            await self.desk.close()
        await self.links.close()
        self.records.close()

    # --- for the admin page

    @property
    def conversations(self) -> dict[str, Conversation]:
        """Open ones by ``log_id``."""
        return {log_id: each.conversation for log_id, each in self.callers.items()}

    @property
    def link(self) -> ServerLink:
        return self.links.of(self.settings_of(None))

    def settings_of(self, context: Any) -> Settings:
        """Return the current settings; invalid ones are defaults, reported."""
        settings, wrong = Settings.usable(context)
        for error in wrong:
            self.records.problem("settings", error, turn.log_id_of(context))
        return settings

    # --- inside

    def _rightly(
        self, context: Any, commands: frozenset[str], words: str | None = None
    ) -> tuple[Any, turn.Turn | None]:
        told = turn.take(commands, words)
        if told is None or not turn.log_id_of(told.context):
            return context, None
        if turn.log_id_of(context) != turn.log_id_of(told.context):
            # The host's global context was another call's.
            self.records.count("mixups")
            context = told.context
        return context, told

    def _refusal(self, voice_id: object, settings: Settings) -> BadRequest | None:
        if refusal_of(voice_id) is None:
            return None
        return refusal_of(voice_id, self.links.of(settings).state.voices)

    def _known(self, log_id: str) -> Conversation | None:
        caller = self.callers.get(log_id)
        return None if caller is None else caller.conversation

    def _caller(self, context: Any, settings: Settings) -> Caller:
        log_id = turn.log_id_of(context) or NOBODY
        caller = self.callers.get(log_id)
        if caller is None:
            self._forget_idle(settings.idle_s)
            # An error in another plugin's start hook keeps the host from calling ours.
            self._hold_heap(collect=False)
            caller = self.callers[log_id] = Caller(
                log_id,
                context,
                host=self.host,
                links=self.links,
                records=self.records,
                clock=self.clock,
                settings_of=self.settings_of,
                desk=lambda: self.desk,
            )
        caller.met(context)
        return caller

    def _chooser(self, context: Any, voice_id: object, settings: Settings) -> VoiceSelection:
        return VoiceSelection(
            context,
            voice_id,
            settings,
            host=self.host,
            links=self.links,
            voices=self.voices,
            records=self.records,
        )

    def _link_changed(self, settings: Settings, state: LinkState) -> None:
        if state.url != self.settings_of(None).url:
            return  # one that is not used any more, or only by some agent
        if not state.up and state.last_error is not None:
            self.records.problem("server", state.last_error)
        if not self._starting or not state.up or state.since == self._warm_since:
            return
        self._warm_since = state.since
        if self._warming is not None:
            self._warming.cancel()
        self._warming = asyncio.create_task(self._warm(settings), name="qwen3tts: warm up")

    async def _warm(self, settings: Settings) -> None:
        try:
            client = await self.links.of(settings).client()
            personas: Iterable[Mapping[str, Any]] = await self.host.personas()
            requests = [requested_voice(None, each, settings) for each in personas]
            await self.voices.warm(client, requests, settings)
        except SpeechError as error:
            self.records.problem("server", error)
        except Exception as error:
            # A failure here occurs again, and is reported, at the next utterance.
            log.exception("voices could not be made ready")
            self.records.problem("warm-up", error)

    def _rest(self) -> None:
        if self._holds_heap and heap.due and (self._sweeping is None or self._sweeping.done()):
            self._sweeping = asyncio.create_task(self._sweep(), name="qwen3tts: sweep the heap")

    async def _sweep(self) -> None:
        await self.clock.sleep_until(self.clock.now() + SWEEP_AFTER_S)
        heap.sweep_if_idle()

    def _hold_heap(self, *, collect: bool) -> None:
        if not self._holds_heap and self.settings_of(None).freeze_heap:
            self._holds_heap = True
            self._heap.enter_context(heap.held_by(self._speaks, collect=collect))

    def _speaks(self) -> bool:
        return any(each.busy for each in self.conversations.values())

    def _forget_idle(self, idle_s: float) -> None:
        before = self.clock.now() - idle_s
        idle = [
            log_id
            for log_id, each in self.callers.items()
            if not each.conversation.busy and each.conversation.used_at < before
        ]
        if idle:
            # Removed first: speech before its close starts a new one.
            left = self._take_out(idle)
            leaving = asyncio.create_task(_leave(left), name="qwen3tts: forget callers")
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    def _take_out(self, log_ids: list[str]) -> list[Caller]:
        return [self.callers.pop(each) for each in log_ids]


async def _leave(left: list[Caller]) -> None:
    for caller in left:
        await caller.close()


def _voice_in(params: object) -> object:
    if not isinstance(params, Mapping):
        return None
    names = list(params)
    if "voice_id" not in names or names[-1] == "voice_id":
        return None
    return params["voice_id"]
