"""One call's conversation: from detected turns by `TurnTaking` to replies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from qwen3tts_agent.chat.source import guessable, prepare
from qwen3tts_agent.conversation import Conversation, ConversationLog
from qwen3tts_agent.prepared_reply import PreparedReply
from qwen3tts_agent.reply import Reply
from qwen3tts_agent.reply_player import ReplyContext
from qwen3tts_agent.turn_log import OnTurn, TurnLog, turn_text
from qwen3tts_agent.turn_record import OverlapRecord, TurnKind, TurnRecord
from qwen3tts_agent.turn_taking import Phase, TurnAction, TurnEvent, TurnTaking
from qwen3tts_phone.audio.frames import KeyPressed
from qwen3tts_phone.call.events import CallHeld, CallResumed
from qwen3tts_phone.detection.events import (
    ListenEvent,
    OnsetHeard,
    OverlapBegan,
    OverlapEnded,
    SpeechPaused,
    SpeechResumed,
    Turn,
    TurnEnded,
    WordsGuessed,
)

if TYPE_CHECKING:
    from qwen3tts_phone.detection.speech_detection import SpeechDetection


class AgentSession:
    """Session of an agent on one call.

    All but `run` is synchronous: nothing lies between a turn and its reply.

    Args:
        context: for the replies.
        conversation: receives what is said.
        listening: yields the caller's turns.
        greeting: spoken first.
        log: of the turns.
        on_turn: called with each complete turn.
        ends_at: time limit; None = counted from now.
    """

    def __init__(
        self,
        context: ReplyContext,
        conversation: Conversation,
        listening: SpeechDetection,
        *,
        greeting: str = "",
        log: ConversationLog | None = None,
        on_turn: OnTurn | None = None,
        ends_at: float | None = None,
    ) -> None:
        self._context = context
        self._conversation = conversation
        self._listening = listening
        self._greeting = greeting
        self._log = TurnLog(conversation, log, on_turn)
        self._clock = context.clock
        self._turns = TurnTaking(context.settings, self._clock.now(), ends_at)
        self._reply: Reply | None = None
        self._given_up: list[Reply] = []
        self._overlapped: TurnRecord | None = None
        """Of the reply that the last overlap began over."""
        self._prepared = PreparedReply(context.settings, self._prepare, self._log)
        self._turn: Turn | None = None
        """Turn that the next reply answers."""
        self._deferred: list[Turn] = []
        """Turns that wait for the end of a reply which the caller cannot interrupt."""
        self._decided_at: float | None = None
        """End of the last turn whose text is still being recognised."""
        self._caller_speaks = False
        self._continued: list[asyncio.Future[bool]] = []
        self._changed = asyncio.Event()
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Talk to the call's end or replacement.

        The model, the caller's silence or the time limit may end it.

        Raises SpeechError.
        """
        self._listening.on_event = self._on_event
        self._listening.overlaps.more_follows = self._more_follows
        self._conversation.go_on = self._continue
        self._begin()
        listening = asyncio.create_task(self._listen(), name="turns")
        timing = asyncio.create_task(self._keep_time(), name="turn times")
        following = asyncio.create_task(self._follow(), name="holds")
        ending = asyncio.create_task(self._over.wait())
        ended = asyncio.create_task(self._context.call.ended())
        moving = asyncio.create_task(self._context.call.successor())
        try:
            await asyncio.wait(
                {listening, timing, ending, ended, moving}, return_when=asyncio.FIRST_COMPLETED
            )
            if self._over.is_set():
                await self._context.call.hangup()
            for task in (listening, timing, following):
                if task.done():
                    task.result()  # raises what it failed with
        finally:
            await self._close([listening, timing, following, ending, moving], ended)

    async def _close(self, tasks: list[asyncio.Task[Any]], ended: asyncio.Task[str]) -> None:
        self._conversation.go_on = None
        self._listening.on_event = None  # no guess may follow
        self._prepared.over()
        if self._reply is not None:
            self._drop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._listening.aclose()
        for turn in self._deferred:
            self._context.history.caller(turn_text(turn))
            self._log.unanswered(turn, self._clock.now())
        for waiting in self._continued:
            if not waiting.done():
                waiting.set_result(False)
        # A tool finishes its work also for a caller who has hung up; it has its own time limit.
        if running := set(self._context.running):
            await asyncio.wait(running)
        await self._log.settled()
        if self._context.call.over:
            self._conversation.ended = self._turns.why or await ended
        else:
            ended.cancel()

    # --- events

    def _begin(self) -> None:
        settings = self._context.settings
        if self._context.call.facts.continues and self._conversation.turns:
            self._take_over()
            return
        if not (self._greeting.strip() or settings.greeting_prompt.strip()):
            return
        self._turns.begin(self._clock.now())
        if self._greeting.strip():
            self._speak("greeting", self._greeting)
        else:
            self._context.history.caller(settings.greeting_prompt)
            self._speak("greeting", None)

    def _take_over(self) -> None:
        prompt = self._context.settings.handed_on_prompt
        unsaid = self._conversation.unsaid
        if not (unsaid.strip() or prompt.strip()):
            return
        self._turns.begin(self._clock.now())
        if unsaid.strip():
            self._speak("continued", self._log.take_unsaid())
        else:
            self._context.history.caller(prompt)
            self._speak("greeting", None)

    async def _listen(self) -> None:
        async for turn in self._listening:
            self._turn_ended(turn)

    def _turn_ended(self, turn: Turn) -> None:
        if self._decided_at is not None and turn.decided_at >= self._decided_at:
            self._decided_at = None
        reply = self._reply
        if reply is not None and reply.interrupted:
            self._handle(TurnEvent.BARGE_IN)
        text = turn_text(turn)
        if turn.why == "call_over":
            if text:
                self._context.history.caller(text)
            self._log.unanswered(turn, self._clock.now())
        elif text and not turn.barge_in and self._must_wait(reply):
            self._deferred.append(turn)
        elif text:
            self._turn = turn
            self._context.history.caller(text)
            self._handle(TurnEvent.WORDS)
        elif turn.error is not None:
            self._turn = turn
            self._handle(TurnEvent.NOT_UNDERSTOOD)
        else:
            self._handle(TurnEvent.NOISE)
        self._prepared.over()  # it answers no other turn
        if self._turn is not None:  # no reply was begun
            self._log.unanswered(turn, self._clock.now())
            self._turn = None
        self._hold_back()

    def _must_wait(self, reply: Reply | None) -> bool:
        uninterruptible = not self._listening.settings.barge_in
        return uninterruptible and reply is not None and reply.speaking and not reply.interrupted

    def _on_event(self, event: ListenEvent) -> None:
        if isinstance(event, OnsetHeard | SpeechResumed | SpeechPaused):
            prepare(self._context.source)
            self._prepared.spoke(event)
        if isinstance(event, WordsGuessed):
            if self._may_prepare:
                self._prepared.guessed(event)
            return
        if isinstance(event, OverlapBegan):
            self._overlapped = None if self._reply is None else self._reply.record
        if isinstance(event, OverlapEnded) and self._overlapped is not None:
            self._overlapped.overlaps.append(OverlapRecord.of(event))
        if isinstance(event, OnsetHeard):
            self._listening.expect(self._context.history.last_said)
        if isinstance(event, OnsetHeard | SpeechResumed):
            self._caller_speaks = True
        elif isinstance(event, TurnEnded):
            self._caller_speaks = self._listening.caller_speaking
            if event.why != "noise" or event.cut_in:
                self._decided_at = event.at
            elif self._decided_at is None:
                self._prepared.over()
        else:
            return
        self._turns.voice(self._busy, self._clock.now())
        self._hold_back()
        self._changed.set()

    def _more_follows(self) -> bool:
        return self._reply is not None and "answered" not in self._reply.record.times

    def _hold_back(self) -> None:
        self._turns.caller_speaks = self._busy
        if self._reply is not None:
            interrupted = self._turns.phase in (Phase.INTERRUPTED, Phase.LEAVING_INTERRUPTED)
            self._reply.hold_back(self._busy or interrupted)

    @property
    def _may_prepare(self) -> bool:
        context, phase = self._context, self._turns.phase
        allowed = context.settings.preemptive == "always" or (
            context.settings.preemptive == "auto" and guessable(context.source)
        )
        return (
            allowed
            and phase in (Phase.WAITING, Phase.INTERRUPTED)
            and self._decided_at is None
            and not (self._deferred or self._turns.on_hold)
            and context.history.settled
        )

    @property
    def _busy(self) -> bool:
        return self._caller_speaks or self._decided_at is not None

    def _interrupted(self) -> None:
        if self._reply is not None:
            self._log.keep_unsaid(self._reply)
        self._handle(TurnEvent.BARGE_IN)
        self._hold_back()

    def _reply_ended(self, reply: Reply) -> None:
        self._log.end(reply)
        if reply is not self._reply:
            return
        self._reply = None
        self._handle(TurnEvent.REPLIED)
        if self._deferred and self._turns.phase is Phase.WAITING:
            deferred, self._deferred = self._deferred, []
            for turn in deferred:
                self._context.history.caller(turn_text(turn))
            self._turn = deferred[-1]
            self._handle(TurnEvent.WORDS)

    async def _keep_time(self) -> None:
        while True:
            self._changed.clear()
            sleep = asyncio.ensure_future(self._sleep(self._turns.next_at))
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait({sleep, changed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleep.cancel()
                changed.cancel()
            self._do(self._turns.tick(self._clock.now()))

    async def _sleep(self, until: float) -> None:
        if until == float("inf"):
            await asyncio.Event().wait()
        await self._clock.sleep_until(until)

    async def _follow(self) -> None:
        async for event in self._context.call.progress():
            if isinstance(event, CallHeld | KeyPressed):
                self._prepared.drop()
            if isinstance(event, CallHeld | CallResumed):
                self._turns.hold(isinstance(event, CallHeld), self._clock.now())
                self._changed.set()

    # --- actions

    def _handle(self, event: TurnEvent, why: str = "") -> None:
        self._do(self._turns.take(event, self._clock.now(), why))
        self._changed.set()

    def _do(self, actions: tuple[TurnAction, ...]) -> None:
        settings = self._context.settings
        for action in actions:
            match action:
                case TurnAction.ASK:
                    self._ask()
                case TurnAction.DROP:
                    self._drop()
                case TurnAction.RESUME:
                    if self._reply is not None:
                        self._reply.resume()
                case TurnAction.APOLOGISE:
                    self._speak("not_understood", settings.not_understood)
                case TurnAction.REPROMPT:
                    self._speak("quiet", settings.reprompt)
                case TurnAction.GOODBYE:
                    self._speak("goodbye", settings.goodbye)
                case TurnAction.HANG_UP:
                    self._over.set()

    def _ask(self) -> None:
        context = self._context
        messages = context.history.messages(context.settings.history_chars)
        reply = self._prepared.adopted(messages)
        if reply is None:
            self._speak("caller", None)
            return
        turn, self._turn = self._turn, None
        self._log.begin("caller", turn, self._clock.now(), reply.record)
        self._prepared.count(reply.record, used=True)
        self._reply = reply
        self._hold_back()
        reply.adopt()

    def _speak(self, kind: TurnKind, text: str | None) -> Reply:
        self._prepared.drop()
        turn, self._turn = self._turn, None
        record = self._log.begin(kind, turn, self._clock.now())
        self._prepared.count(record, used=False)
        self._reply = self._new_reply(record, text=text)
        self._given_up.clear()
        self._hold_back()
        return self._reply

    def _prepare(self, words: str, record: TurnRecord) -> Reply:
        return self._new_reply(record, guess=words)

    def _new_reply(
        self, record: TurnRecord, *, text: str | None = None, guess: str | None = None
    ) -> Reply:
        before = [*self._given_up, *self._prepared.closing()]
        if guess is not None and self._reply is not None:
            before.append(self._reply)  # interrupted, and still asking perhaps
        return Reply(
            self._context,
            record,
            text=text,
            before=before,
            guess=guess,
            on_interrupt=self._interrupted,
            on_end=self._reply_ended,
            on_exhausted=self._exhausted,
        )

    def _exhausted(self) -> None:
        self._handle(TurnEvent.FAREWELL, "its requests to the language model were used up")

    def _drop(self) -> None:
        reply, self._reply = self._reply, None
        if reply is None:
            return
        reply.give_up()
        self._given_up.append(reply)
        self._log.end(reply)

    def _continue(self) -> Awaitable[bool]:
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        reply, text = self._reply, self._conversation.unsaid
        if self._turns.phase is Phase.OVER:
            done.set_result(False)
            return done
        if reply is not None and reply.interrupted:
            self._handle(TurnEvent.BARGE_IN)
            self._handle(TurnEvent.NOISE)
            self._hold_back()
        elif text.strip():
            self._drop()
            self._turns.begin(self._clock.now())
            reply = self._speak("continued", self._log.take_unsaid())
        else:
            done.set_result(False)
            return done
        self._continued.append(done)

        async def wait(reply: Reply) -> None:
            await reply.settled()
            if not done.done():
                done.set_result(not reply.given_up)
            self._continued.remove(done)

        self._log.start(wait(reply), "continued")
        return done

    def farewell(self) -> None:
        if self._reply is not None:
            self._reply.farewell = True
        self._handle(TurnEvent.FAREWELL, "the model has ended it")
