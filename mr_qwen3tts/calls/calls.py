"""Calls of chat sessions, where the host has no telephone plugin.

Agents use ``call``, ``hangup`` and ``send_dtmf``; an incoming call begins a session. Speech goes
into the session's call (:meth:`PluginCalls.speaker_of`). ``sip_stt`` makes the caller's speech
the agent's turns, as does a recogniser behind the host's pipe ``sip_audio_in``
(:meth:`PluginCalls.caller_said`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any, cast

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_speech.line import Speaker
from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.errors import SpeechError, log_text

from ..host_turn import log_id_of
from .line import CALLED, CallLine
from .options import CallHost, CallSettings, allowance, process_meter
from .phone import NotReady, PhoneSupervisor
from .recognition import CallRecogniser
from .rules import (
    NO_ANSWER,
    Destination,
    Redials,
    Refused,
    caller_shown,
    cause_of,
    check,
    destination,
    failed_call,
    keys_of,
)

if TYPE_CHECKING:
    from qwen3tts_phone.call.phone_call import PhoneCall

log = logging.getLogger(__name__)

READY_S = 15.0
"""Timeout of the phone's start: a registrar may challenge."""
SESSION_S = 15.0
"""Timeout of a chat session's creation while ringing."""
REMEMBERED = 1000
"""Sessions with an ended call."""
UNAVAILABLE = 480
"""Temporarily unavailable (RFC 3261 section 21.4.18)."""
BUSY = 486

SettingsOf = Callable[[Any], CallSettings]
LinkOf = Callable[[Any], SpeechLink]


class PluginCalls:
    """Calls of chat sessions, one each.

    Args:
        host: the host's services.
        link_of: shared speech connection of a context's agent.
        settings_of: settings of a context, read at use; None: the process's.
        clock: of timeouts; the phone itself runs in real time.
    """

    def __init__(
        self,
        host: CallHost,
        link_of: LinkOf,
        settings_of: SettingsOf,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._host = host
        self._link_of = link_of
        self._settings_of = settings_of
        self._clock: Clock = clock or LoopClock()
        self._lines: dict[str, CallLine] = {}
        self._dialling: set[str] = set()
        self._arriving = 0
        self._past: OrderedDict[str, None] = OrderedDict()
        self._redials = Redials()
        self._turns = process_meter()
        """Turns of all calls."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._all: set[CallLine] = set()
        """Ended calls too, until their last message is read."""
        self._recogniser = CallRecogniser(lambda: settings_of(None), host.problem)
        self._keeper = PhoneSupervisor(
            lambda: settings_of(None),
            lambda: link_of(None),
            self._clock,
            lambda call: self._begin(self._take(call), "incoming call"),
            host.problem,
        )

    # --- its life

    def start(self) -> None:
        """Start phone and recogniser in the background, if used."""
        settings = self._settings_of(None)
        self._recogniser.start()
        if settings.sip_agent or settings.sip_listen or (settings.sip_server and settings.sip_user):
            self._keeper.start()

    async def ready(self, most_s: float = READY_S) -> str:
        """Wait for the phone; return its address. Raises NotReady."""
        return (await self._keeper.phone(most_s)).uri

    async def close(self) -> None:
        """Hang up all, without messages to agents."""
        lines, self._all = self._all, set()
        self._lines.clear()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        await asyncio.gather(*(line.close() for line in lines))
        await self._keeper.close()
        await self._recogniser.close()

    # --- for the agent

    async def call(self, target: object, context: Any) -> str | None:
        """Place a call and wait for its answer.

        Returns:
            None once answered, else the cause for the model.
        """
        log_id = log_id_of(context)
        settings = self._settings_of(context)
        if not log_id:
            return "A call needs a chat session."
        if log_id in self._lines or log_id in self._dialling:
            return "There is a call already; hang up before you make another one."
        try:
            there = destination(target, settings.sip_server)
            check(there, settings.sip_allow)
            self._redials.check(there, self._clock.now())
        except Refused as refusal:
            return str(refusal)
        if self._busy >= settings.sip_max_calls:
            return failed_call("all our lines are busy")
        self._dialling.add(log_id)
        try:
            cause = await self._dial(there, log_id, context, settings)
        finally:
            self._dialling.discard(log_id)
        if cause is None:
            self._redials.answered(there)
            return None
        return failed_call(cause)

    async def hangup(self, context: Any) -> str | None:
        """End the session's call.

        Returns:
            None (a result would give the model a turn), or a sentence without any call.
        """
        log_id = log_id_of(context)
        line = self._lines.get(log_id)
        if line is None:
            return None if self.over(log_id) else "There is no call to hang up."
        self._forget(line)
        await line.hang_up()
        return None

    async def send_dtmf(self, digits: object, context: Any) -> str | None:
        """Press keys (RFC 4733) until the last is sent.

        Returns:
            None, or the cause for the model.
        """
        line = self._lines.get(log_id_of(context))
        if line is None:
            return "There is no call, so no keys can be pressed."
        try:
            await line.call.send_dtmf(keys_of(digits))
        except Refused as refusal:
            return str(refusal)
        except SpeechError as error:
            return f"The keys were not pressed: {cause_of(error)}."
        return None

    # --- for the plugin

    async def caller_said(self, text: object, context: Any) -> bool:
        """Interrupt with recognised text; False without text or call."""
        line = self._lines.get(log_id_of(context))
        if line is None or not isinstance(text, str) or not text.strip():
            return False
        await line.barge_in(text.strip())
        return True

    def speaker_of(self, log_id: str) -> Speaker | None:
        """Return the speaker of the session's call, or None."""
        line = self._lines.get(log_id)
        speaker = line.call.speaker if line is not None else None
        if line is None or speaker is None:
            return None
        speaker.link = self._link_of(line.context)
        speaker.stall_s = self._settings_of(line.context).stall_ms / 1000
        return speaker

    def over(self, log_id: str) -> bool:
        return log_id in self._past and log_id not in self._lines

    def snapshot(self) -> dict[str, Any]:
        now = self._clock.now()
        return {
            "uri": self._keeper.uri,
            "trouble": self._keeper.trouble,
            "hears": self._recogniser.hears,
            "hearing_trouble": self._recogniser.trouble,
            "calls": [
                {
                    "log_id": line.log_id,
                    "direction": line.call.direction,
                    "remote": line.caller,
                    "seconds": round(now - line.began_at),
                }
                for line in self._lines.values()
            ],
        }

    # --- inside

    @property
    def _busy(self) -> int:
        return len(self._lines) + len(self._dialling) + self._arriving

    async def _dial(
        self, there: Destination, log_id: str, context: Any, settings: CallSettings
    ) -> str | None:
        try:
            phone = await self._keeper.phone(READY_S)
            # Another host than our server could learn our password from the answer to a challenge.
            call = await phone.dial(there.uri, with_account=there.at_home)
        except NotReady as error:
            return f"our telephone is not ready ({str(error).rstrip('.')})"
        except (SpeechError, ValueError) as error:
            return cause_of(error)
        answered = asyncio.ensure_future(call.up())
        # A cancelled turn does not ask for it.
        answered.add_done_callback(lambda it: it.cancelled() or it.exception())
        limit = asyncio.ensure_future(
            self._clock.sleep_until(self._clock.now() + settings.sip_answer_s)
        )
        try:
            await asyncio.wait({answered, limit}, return_when=asyncio.FIRST_COMPLETED)
            if not answered.done():
                self._redials.failed(there, self._clock.now())
                self._begin(_hang_up(call), "hangup")
                return NO_ANSWER
            taken = cast("PhoneCall", answered.result())
        except SpeechError as error:
            self._redials.failed(there, self._clock.now())
            return cause_of(error)
        except BaseException:
            # The turn was cancelled, and the call with it.
            self._begin(_hang_up(call), "hangup")
            raise
        finally:
            limit.cancel()
            answered.cancel()
        self._open(taken, log_id, context)
        return None

    async def _take(self, call: PhoneCall) -> None:
        self._arriving += 1
        try:
            await self._receive(call)
        except SpeechError as error:
            # The caller has hung up meanwhile, or offers no sound that we have.
            log.info("a call was not taken: %s", log_text(error))
        except Exception as error:
            # Where this task ends: the caller must not be left ringing.
            self._host.problem("telephone", error)
            self._begin(_hang_up(call), "hangup")
        finally:
            self._arriving -= 1

    async def _receive(self, call: PhoneCall) -> None:
        settings = self._settings_of(None)
        if not settings.sip_agent:
            await call.reject(UNAVAILABLE)
            return
        if self._busy > settings.sip_max_calls:
            await call.reject(BUSY)
            return
        call.ringing()
        log_id = f"call-{secrets.token_hex(8)}"
        try:
            async with asyncio.timeout(SESSION_S):
                context = await self._host.init_chat_session("system", settings.sip_agent, log_id)
        except Exception as error:
            # Whatever the host or a plugin of it raises: the caller gets a refusal.
            self._host.problem("telephone", error, log_id)
            await call.reject(UNAVAILABLE)
            return
        await call.answer()
        line = self._open(call, log_id, context)
        line.tell(CALLED.format(caller=caller_shown(call.remote_uri)))

    def _open(self, call: PhoneCall, log_id: str, context: Any) -> CallLine:
        settings = self._settings_of(context)
        line = CallLine(
            *(call, log_id, context, self._host, self._clock, self._ended),
            allowance=allowance(settings, self._turns),
        )
        self._lines[log_id] = line
        self._all.add(line)
        line.begin(audio_in=settings.sip_audio_in_pipeline, recogniser=self._recogniser)
        return line

    def _ended(self, line: CallLine) -> None:
        self._forget(line)
        self._begin(self._see_off(line), "end of a call")

    async def _see_off(self, line: CallLine) -> None:
        await line.settled()
        self._all.discard(line)

    def _forget(self, line: CallLine) -> None:
        if self._lines.get(line.log_id) is line:
            del self._lines[line.log_id]
        self._past[line.log_id] = None
        while len(self._past) > REMEMBERED:
            self._past.popitem(last=False)

    def _begin(self, work: Coroutine[Any, Any, None], what: str) -> None:
        # An empty context: an agent's turn must not be remembered by what outlives it.
        task = asyncio.create_task(work, name=f"qwen3tts: {what}", context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _hang_up(call: PhoneCall) -> None:
    await call.hangup()
