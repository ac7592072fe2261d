"""Call of a chat session; its events become messages to the agent."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any, cast

from qwen3tts_codecs.g711 import encode_ulaw
from qwen3tts_codecs.pcm import Framer
from qwen3tts_pacer.clock import Clock
from qwen3tts_wire.errors import SpeechError, log_text

from .options import CallHost, TurnAllowance, joined, key_turns
from .recognition import CallerTurns, CallRecogniser
from .rules import caller_shown

if TYPE_CHECKING:
    from qwen3tts_phone.call.phone_call import PhoneCall

log = logging.getLogger(__name__)

CALLED = (
    "SYSTEM: -- INCOMING CALL from {caller} --\n"
    "The caller is on the line now and hears what you speak. Greet the caller."
)
PRESSED = "SYSTEM: The caller pressed {keys} on the telephone."
TRANSFERRED = (
    "SYSTEM: -- CALL TRANSFERRED to {caller} --\n"
    "The other side has handed the call on. Another party is on the line now and hears what you"
    " speak."
)
DISCONNECTED = "SYSTEM: -- CALL DISCONNECTED --"
"""The host's telephone plugin's wording, named in agents' instructions."""
FRAME_SAMPLES = 160
"""20 ms at 8 kHz, as behind the host's pipe."""
CANCEL_S = 10.0
"""Timeout of a cancellation; the host's is 7.5 s."""
MAX_WAITING = 500
"""Messages waiting for the budget; older ones are dropped."""
SAY_S = 20.0
"""Timeout of our own sentence."""
LAST_WORDS_S = 3.0
"""Timeout of a call's last transcript."""
BYE_S = 2.0
"""Timeout of a BYE's answer."""


class CallLine:
    """Call with its chat session.

    Each message ends the turn under way; waiting ones are joined.
    """

    def __init__(
        self,
        call: PhoneCall,
        log_id: str,
        context: Any,
        host: CallHost,
        clock: Clock,
        over: Callable[[CallLine], None],
        allowance: TurnAllowance | None = None,
    ) -> None:
        self.call = call
        self.log_id = log_id
        self.context = context
        self.began_at = clock.now()
        self._host = host
        self._clock = clock
        self._over = over
        self._keys = key_turns()
        self._allowance = allowance or TurnAllowance()
        self._too_many_said = False
        self._collecting: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._sound_to_host = False
        self._turns: CallerTurns | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._waiting: asyncio.Queue[str | None] = asyncio.Queue()
        self._turn: asyncio.Task[None] | None = None
        self._heard: int | None = None
        """Characters heard of a cut turn, until reported."""
        self._left = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def caller(self) -> str:
        """The far end's address, where it may be shown."""
        return caller_shown(self.call.remote_uri)

    def begin(self, *, audio_in: bool, recogniser: CallRecogniser | None = None) -> None:
        """Follow the call; ``audio_in``: feed the host's pipe."""
        self._sound_to_host = audio_in
        if recogniser is not None and recogniser.hears:
            self._turns = CallerTurns(recogniser, self._host, self.context, self._said)
        self._start(self._events(), "events")
        self._start(self._messages(), "messages")

    def tell(self, message: str) -> None:
        self._waiting.put_nowait(message)

    async def barge_in(self, message: str = "") -> None:
        """Stop playback synchronously, then end the turn and send the message."""
        try:
            heard = await self._host.interrupt(self.log_id, self.context)
        except Exception as error:
            # The plugin's fault: the caller's message matters more.
            self._host.problem("telephone", error, self.log_id)
        else:
            self._heard = heard if heard is not None else self._heard
        self.tell(message)

    async def hang_up(self) -> None:
        """End the call; wait briefly for the answer."""
        self._left = True
        ending = self._start(self._hang_up(), "hangup")
        await asyncio.wait([ending], timeout=BYE_S)

    async def settled(self) -> None:
        """Wait for the end of messages and turn."""
        while others := self._tasks - {asyncio.current_task()}:
            await asyncio.wait(others)

    async def close(self) -> None:
        self._left = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=BYE_S)

    # --- inside

    def _start(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        # An empty context: a turn of another session must not be remembered in this one's tasks.
        task = asyncio.create_task(
            work, name=f"qwen3tts: {what} of {self.log_id}", context=Context()
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _hang_up(self) -> None:
        await self.call.hangup()

    async def _events(self) -> None:
        following: PhoneCall | None = self.call
        while following is not None:
            if following is not self.call:
                await self._go_on_with(following)
            following = await self._follow(self.call)
        self._over(self)
        if self._collecting is not None:
            self._collecting.cancel()
        if self._hearing is not None:  # words that were said before the end come before it
            await asyncio.wait([self._hearing], timeout=LAST_WORDS_S)
        if not self._left:
            await self.barge_in(DISCONNECTED)
        self._waiting.put_nowait(None)

    async def _follow(self, call: PhoneCall) -> PhoneCall | None:
        moving = asyncio.ensure_future(call.successor())
        events = asyncio.ensure_future(self._events_of(call))
        tasks: list[asyncio.Future[Any]] = [moving, events]
        if self._sound_to_host:
            self._start_listening(call)
        if self._turns is not None:
            self._hearing = self._start(self._hear(call, self._turns), "caller's words")
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if events.done():
                events.result()
            # A call that is over may have asked for a transfer that is not answered yet.
            return cast("PhoneCall | None", await moving)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _go_on_with(self, call: PhoneCall) -> None:
        self.call = call
        if self._left:
            await call.hangup()
            return
        log.info("%s: the far end has handed the call on", self.log_id)
        if pressed := self._keys.take(self._clock.now()):
            self.tell(PRESSED.format(keys=pressed.digits))  # they are of the party before
        await self.barge_in(TRANSFERRED.format(caller=self.caller))

    async def _events_of(self, call: PhoneCall) -> None:
        from qwen3tts_phone.audio.frames import KeyPressed
        from qwen3tts_phone.call.events import CallEnded, MediaSilent

        async for event in call.events:
            match event:
                case KeyPressed(digit=digit):
                    await self._pressed(digit)
                case MediaSilent(silent_s=silent_s):
                    log.warning("%s: nothing was heard for %.0f s", self.log_id, silent_s)
                case CallEnded(cause=cause):
                    log.info("%s: the call has ended: %s", self.log_id, log_text(cause))
                case _:
                    pass

    async def _pressed(self, digit: str) -> None:
        if self._left:
            return
        if not self._keys.waiting:
            await self.barge_in()
        if complete := self._keys.press(digit, self._clock.now()):
            self.tell(PRESSED.format(keys=complete.digits))
        elif self._collecting is None or self._collecting.done():
            self._collecting = self._start(self._collect(), "keys")

    async def _collect(self) -> None:
        while (deadline := self._keys.deadline) is not None:
            await self._clock.sleep_until(deadline)
            if complete := self._keys.due(self._clock.now()):
                self.tell(PRESSED.format(keys=complete.digits))

    async def _messages(self) -> None:
        while True:
            messages = [await self._waiting.get()]
            while not self._waiting.empty():
                messages.append(self._waiting.get_nowait())
            texts = [message for message in messages if message]
            over = None in messages
            if messages != [None] and not self._left:
                await self._end_turn()
                if not over:
                    over = await self._admitted(texts)
                if texts:
                    text, left_out = joined(texts)
                    if left_out:
                        log.warning("%s: %d messages were left out", self.log_id, left_out)
                    # A turn that was cut may have left no words of the agent, and the host writes
                    # two messages of a user in a row as one, without a space between.
                    cut = self._turn is not None and self._turn.cancelled()
                    message = f"\n\n{text}" if cut else text
                    self._turn = self._start(self._take_turn(message), "turn")
            if over:
                return

    async def _admitted(self, texts: list[str]) -> bool:
        """Wait for the budget, adding messages to ``texts``; True: the call has ended.

        Without budget the call is ended and ``texts`` emptied.
        """
        budget = self._allowance.budget
        while texts and budget is not None:
            now = self._clock.now()
            at = budget.take(len(joined(texts)[0]), now)
            if at <= now:
                self._too_many_said = False
                return False
            if math.isinf(at):
                log.warning("%s: the turns of this call are used up", self.log_id)
                texts.clear()
                await self._say(self._allowance.used_up)
                await self.hang_up()
                return False
            if not self._too_many_said:
                self._too_many_said = True
                log.warning("%s: the turns of this minute are used up", self.log_id)
                self._start(self._say(self._allowance.too_many), "sentence")
            if await self._wait_for_more(texts, at):
                return True
        return False

    async def _wait_for_more(self, texts: list[str], until: float) -> bool:
        message = asyncio.ensure_future(self._waiting.get())
        sleep = asyncio.ensure_future(self._clock.sleep_until(until))
        try:
            await asyncio.wait({message, sleep}, return_when=asyncio.FIRST_COMPLETED)
            if not message.done():
                return False
            found = message.result()
            if found:
                texts[:] = [*texts, found][-MAX_WAITING:]
            return found is None
        finally:
            message.cancel()
            sleep.cancel()

    async def _say(self, sentence: str) -> None:
        if not sentence:
            return
        try:
            async with asyncio.timeout(SAY_S):
                await self.call.say(sentence)
        except (SpeechError, TimeoutError) as error:
            # The caller has hung up, or there is no voice.
            log.info("%s: a sentence was not said: %s", self.log_id, log_text(error))

    async def _end_turn(self) -> None:
        try:
            async with asyncio.timeout(CANCEL_S):
                await self._host.cancel_and_wait(self.log_id, self.context)
            # Now the turn's words are in the chat, and can be cut there.
            if self._heard is not None:
                heard, self._heard = self._heard, None
                await self._host.truncate_last_assistant_speech(heard, self.context)
        except Exception as error:
            # The host's fault, or another plugin's: the caller's message matters more.
            self._host.problem("telephone", error, self.log_id)
        # The host knows a turn only once it has begun to work; ours may not have come so far.
        if self._turn is not None and not self._turn.done():
            self._turn.cancel()
            await asyncio.wait([self._turn], timeout=CANCEL_S)

    async def _take_turn(self, message: str) -> None:
        try:
            await self._host.backend_user_message(message, self.context)
            await self._host.send_message_to_agent(self.log_id, message, self.context)
        except Exception as error:
            # Where this task ends: the call goes on without this turn.
            log.debug("%s: a turn failed", self.log_id, exc_info=True)
            self._host.problem("telephone", error, self.log_id)

    async def _hear(self, call: PhoneCall, turns: CallerTurns) -> None:
        try:
            await turns.follow(call)
        except Exception as error:
            # Where this task ends: the call goes on without being understood.
            log.debug("%s: the caller is not understood", self.log_id, exc_info=True)
            self._host.problem("telephone", error, self.log_id)

    async def _said(self, words: str) -> None:
        if not self._left:
            await self.barge_in(words)

    def _start_listening(self, call: PhoneCall) -> None:
        if self._listening is not None:
            self._listening.cancel()
        self._listening = self._start(self._audio_in(call), "sound")

    async def _audio_in(self, call: PhoneCall) -> None:
        framer, told = Framer(FRAME_SAMPLES), False
        async for heard in call.audio():
            for samples in framer.push(heard.samples):
                data = {"audio_bytes": encode_ulaw(samples), "timestamp": heard.at}
                try:
                    await self._host.sip_audio_in(data, self.context)
                except Exception as error:
                    # Fifty a second: once is enough to know.
                    if not told:
                        self._host.problem("telephone", error, self.log_id)
                    told = True
