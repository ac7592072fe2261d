"""One call's conversation: what is heard goes to `TurnTaking`; what it decides becomes replies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from qwen3tts_agent.chat.source import prepare
from qwen3tts_agent.conversation import Conversation, ConversationLog
from qwen3tts_agent.reply import Reply
from qwen3tts_agent.reply_player import ReplyContext
from qwen3tts_agent.turn_log import OnTurn, TurnLog, turn_text
from qwen3tts_agent.turn_record import TurnKind
from qwen3tts_agent.turn_taking import Phase, TurnAction, TurnEvent, TurnTaking
from qwen3tts_phone.call.events import CallHeld, CallResumed
from qwen3tts_phone.detection.events import (
    ListenEvent,
    OnsetHeard,
    SpeechPaused,
    SpeechResumed,
    Turn,
    TurnEnded,
)

if TYPE_CHECKING:
    from qwen3tts_phone.detection.listening import SpeechDetection


class AgentSession:
    """All but `run` happens in callbacks, at once: nothing lies between a turn and its reply.

    Args:
        kit: what the replies work with.
        conversation: what is said, for whoever looks at it.
        listening: the caller's turns.
        greeting: what we say first; empty = see ``AgentSettings.greeting_prompt``.
        log: where each turn is written.
        on_turn: told each turn when all of it is known.
        ends_at: when the conversation has lasted as long as it may; None = counted from now.
    """

    def __init__(
        self,
        kit: ReplyContext,
        conversation: Conversation,
        listening: SpeechDetection,
        *,
        greeting: str = "",
        log: ConversationLog | None = None,
        on_turn: OnTurn | None = None,
        ends_at: float | None = None,
    ) -> None:
        self._kit = kit
        self._conversation = conversation
        self._listening = listening
        self._greeting = greeting
        self._filing = TurnLog(conversation, log, on_turn)
        self._clock = kit.clock
        self._taking = TurnTaking(kit.settings, self._clock.now(), ends_at)
        self._reply: Reply | None = None
        self._given_up: Reply | None = None
        self._turn: Turn | None = None
        """What the next reply is to."""
        self._kept: list[Turn] = []
        """Turns that wait until we have finished, where the caller cannot interrupt us."""
        self._decided_at: float | None = None
        """When the last turn was over whose words are still to come."""
        self._caller_speaks = False
        self._continued: list[asyncio.Future[bool]] = []
        self._changed = asyncio.Event()
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Talk to the end of the call, or until another one goes on in its place; ends the call
        where the model, the caller's silence or the time says so.

        Raises:
            SpeechError: nothing can be heard on this machine, as where a package is missing.
        """
        self._listening.on_event = self._on_event
        self._conversation.go_on = self._continue
        self._begin()
        listening = asyncio.create_task(self._listen(), name="turns")
        timing = asyncio.create_task(self._keep_time(), name="turn times")
        following = asyncio.create_task(self._follow(), name="holds")
        ending = asyncio.create_task(self._over.wait())
        ended = asyncio.create_task(self._kit.call.ended())
        moving = asyncio.create_task(self._kit.call.successor())
        try:
            await asyncio.wait(
                {listening, timing, ending, ended, moving}, return_when=asyncio.FIRST_COMPLETED
            )
            if self._over.is_set():
                await self._kit.call.hangup()
            for task in (listening, timing, following):
                if task.done():
                    task.result()  # what broke in it is told
        finally:
            await self._clear_away([listening, timing, following, ending, moving], ended)

    async def _clear_away(self, tasks: list[asyncio.Task[Any]], ended: asyncio.Task[str]) -> None:
        self._conversation.go_on = None
        if self._reply is not None:
            self._drop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._listening.aclose()
        for turn in self._kept:
            self._kit.history.caller(turn_text(turn))
            self._filing.unanswered(turn, self._clock.now())
        for waiting in self._continued:
            if not waiting.done():
                waiting.set_result(False)
        # What a tool does is done, also for a caller who has gone; it has its own bound.
        if running := set(self._kit.running):
            await asyncio.wait(running)
        await self._filing.settled()
        if self._kit.call.over:
            self._conversation.ended = self._taking.why or await ended
        else:
            ended.cancel()

    # --- what happens

    def _begin(self) -> None:
        settings = self._kit.settings
        if self._kit.call.facts.continues and self._conversation.turns:
            self._take_up()
            return
        if not (self._greeting.strip() or settings.greeting_prompt.strip()):
            return
        self._taking.begin(self._clock.now())
        if self._greeting.strip():
            self._speak("greeting", self._greeting)
        else:
            self._kit.history.caller(settings.greeting_prompt)
            self._speak("greeting", None)

    def _take_up(self) -> None:
        """Go on with the conversation of the call that this one follows."""
        prompt = self._kit.settings.handed_on_prompt
        unsaid = self._conversation.unsaid
        if not (unsaid.strip() or prompt.strip()):
            return
        self._taking.begin(self._clock.now())
        if unsaid.strip():
            self._speak("continued", self._filing.continued())
        else:
            self._kit.history.caller(prompt)
            self._speak("greeting", None)

    async def _listen(self) -> None:
        async for turn in self._listening:
            self._heard(turn)

    def _heard(self, turn: Turn) -> None:
        """A turn of the caller is over, and its words are known."""
        if self._decided_at is not None and turn.decided_at >= self._decided_at:
            self._decided_at = None
        reply = self._reply
        if reply is not None and reply.stopped:
            self._happened(TurnEvent.CUT_IN)
        words = turn_text(turn)
        if turn.why == "call_over":
            if words:
                self._kit.history.caller(words)
            self._filing.unanswered(turn, self._clock.now())
        elif words and not turn.barge_in and self._must_wait(reply):
            self._kept.append(turn)
        elif words:
            self._turn = turn
            self._kit.history.caller(words)
            self._happened(TurnEvent.WORDS)
        elif turn.error is not None:
            self._turn = turn
            self._happened(TurnEvent.MISHEARD)
        else:
            self._happened(TurnEvent.NOISE)
        if self._turn is not None:  # it has had no reply
            self._filing.unanswered(turn, self._clock.now())
            self._turn = None
        self._hush()

    def _must_wait(self, reply: Reply | None) -> bool:
        """Whether what we say is not to be interrupted, so that the caller's words wait."""
        uninterrupted = not self._listening.settings.barge_in
        return uninterrupted and reply is not None and reply.speaking and not reply.stopped

    def _on_event(self, event: ListenEvent) -> None:
        """The caller begins or ends to speak."""
        if isinstance(event, OnsetHeard | SpeechResumed | SpeechPaused):
            prepare(self._kit.source)
        if isinstance(event, OnsetHeard | SpeechResumed):
            self._caller_speaks = True
        elif isinstance(event, TurnEnded):
            self._caller_speaks = self._listening.caller_speaking
            if event.why != "noise" or event.cut_in:
                self._decided_at = event.at
        else:
            return
        self._taking.voice(self._busy, self._clock.now())
        self._hush()
        self._changed.set()

    def _hush(self) -> None:
        """Nothing is begun to be said while the caller speaks, or their words are not known yet."""
        self._taking.caller_speaks = self._busy
        if self._reply is not None:
            stopped = self._taking.phase in (Phase.STOPPED, Phase.LEAVING_STOPPED)
            self._reply.hush(self._busy or stopped)

    @property
    def _busy(self) -> bool:
        """Whether the caller speaks, or has spoken and what they said is not known yet."""
        return self._caller_speaks or self._decided_at is not None

    def _cut(self) -> None:
        """What we say was interrupted: by the caller, or by the program."""
        if self._reply is not None:
            self._filing.stopped(self._reply)
        self._happened(TurnEvent.CUT_IN)
        self._hush()

    def _ended(self, reply: Reply) -> None:
        """A reply has come to its end by itself."""
        self._filing.ended(reply)
        if reply is not self._reply:
            return
        self._reply = None
        self._happened(TurnEvent.SAID)
        if self._kept and self._taking.phase is Phase.WAITING:
            kept, self._kept = self._kept, []
            for turn in kept:
                self._kit.history.caller(turn_text(turn))
            self._turn = kept[-1]
            self._happened(TurnEvent.WORDS)

    async def _keep_time(self) -> None:
        """Wake when somebody has said nothing for too long, and when the time is over."""
        while True:
            self._changed.clear()
            sleep = asyncio.ensure_future(self._sleep(self._taking.next_at))
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait({sleep, changed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleep.cancel()
                changed.cancel()
            self._do(self._taking.tick(self._clock.now()))

    async def _sleep(self, until: float) -> None:
        if until == float("inf"):
            await asyncio.Event().wait()
        await self._clock.sleep_until(until)

    async def _follow(self) -> None:
        async for event in self._kit.call.progress():
            if isinstance(event, CallHeld | CallResumed):
                self._taking.hold(isinstance(event, CallHeld), self._clock.now())
                self._changed.set()

    # --- what is done

    def _happened(self, happened: TurnEvent, why: str = "") -> None:
        self._do(self._taking.take(happened, self._clock.now(), why))
        self._changed.set()

    def _do(self, acts: tuple[TurnAction, ...]) -> None:
        settings = self._kit.settings
        for act in acts:
            match act:
                case TurnAction.ASK:
                    self._speak("caller", None)
                case TurnAction.DROP:
                    self._drop()
                case TurnAction.GO_ON:
                    if self._reply is not None:
                        self._reply.go_on()
                case TurnAction.EXCUSE:
                    self._speak("not_understood", settings.not_understood)
                case TurnAction.ASK_AGAIN:
                    self._speak("quiet", settings.reprompt)
                case TurnAction.GOODBYE:
                    self._speak("goodbye", settings.goodbye)
                case TurnAction.HANG_UP:
                    self._over.set()

    def _speak(self, kind: TurnKind, text: str | None) -> Reply:
        """Begin a reply: ``text``, or what the model says."""
        turn, self._turn = self._turn, None
        record = self._filing.begin(kind, turn, self._clock.now())
        before, self._given_up = self._given_up, None
        self._reply = Reply(
            self._kit,
            record,
            text=text,
            before=before,
            on_cut=self._cut,
            on_end=self._ended,
            on_used_up=self._used_up,
        )
        self._hush()
        return self._reply

    def _used_up(self) -> None:
        """The model may be asked no more: the call ends when the reply is over."""
        self._happened(TurnEvent.FAREWELL, "its requests to the language model were used up")

    def _drop(self) -> None:
        """Give the reply under way up; the rest of it can be continued."""
        reply, self._reply = self._reply, None
        if reply is None:
            return
        reply.give_up()
        self._given_up = reply
        self._filing.ended(reply)

    def _continue(self) -> Awaitable[bool]:
        """Say what the caller did not hear of the last reply."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        reply, text = self._reply, self._conversation.unsaid
        if self._taking.phase is Phase.OVER:
            done.set_result(False)
            return done
        if reply is not None and reply.stopped:
            self._happened(TurnEvent.CUT_IN)
            self._happened(TurnEvent.NOISE)
            self._hush()
        elif text.strip():
            self._drop()
            self._taking.begin(self._clock.now())
            reply = self._speak("continued", self._filing.continued())
        else:
            done.set_result(False)
            return done
        self._continued.append(done)

        async def wait(reply: Reply) -> None:
            await reply.settled()
            if not done.done():
                done.set_result(not reply.given_up)
            self._continued.remove(done)

        self._filing.start(wait(reply), "continued")
        return done

    # --- for the tools of ours

    def farewell(self) -> None:
        """The model ends the call: when all is heard."""
        if self._reply is not None:
            self._reply.farewell = True
        self._happened(TurnEvent.FAREWELL, "the model has ended it")
