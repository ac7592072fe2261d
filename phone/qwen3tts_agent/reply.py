"""One reply: requested from the model, spoken while it is written, with tools used beside it.

request ── first word ──► a SpokenReply begins ── more words ──► it grows ── end ──► heard
    └─ nothing for a while: a filler      └─ tools: used while it is spoken; the next request

A prepared reply is the same, up to its adoption without sound, tools, fillers or a history entry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from qwen3tts_agent.budget import NEVER
from qwen3tts_agent.chat.messages import (
    BudgetSpent,
    ChatMessage,
    Finished,
    ModelStalled,
    ModelUnavailable,
    ToolCall,
    ToolSpec,
    prompt_chars,
)
from qwen3tts_agent.conversation import HistoryEntry
from qwen3tts_agent.guess import same_prompt
from qwen3tts_agent.reply_player import ReplyContext, ReplyPlayer, SpokenReply
from qwen3tts_agent.turn_record import ToolUse, TurnRecord
from qwen3tts_phone.errors import traceback_without_message
from qwen3tts_wire.errors import ProtocolError, SpeechError, log_text

logger = logging.getLogger(__name__)

SETTLE_S = 0.3
"""Longest wait of a request until it is known what was heard of the reply before."""
NOT_DONE = "Not done: the caller began to speak."
"""Result of a tool that was not used after all."""


class Reply:
    """One reply in its own task; it ends when heard, or with `give_up`.

    Failures are spoken to the caller and noted in the record; that of a prepared reply is noted
    in ``failed``.
    """

    def __init__(
        self,
        context: ReplyContext,
        record: TurnRecord,
        *,
        text: str | None = None,
        before: Sequence[Reply] = (),
        guess: str | None = None,
        on_interrupt: Callable[[], None],
        on_end: Callable[[Reply], None],
        on_exhausted: Callable[[], None],
    ) -> None:
        """Begin to reply to the history, or to speak ``text``.

        Args:
            context: of the call.
            record: of the turn.
            text: spoken as it is; None = the model is asked.
            before: of those given up the heard part is awaited shortly; of an interrupted one
                the end of its request.
            guess: prepare the reply to these words of the caller, until `adopt`.
            on_interrupt: called at an interruption.
            on_end: called at its end, not after `give_up`.
            on_exhausted: called when the budget is used up.
        """
        self.record = record
        self.given_up = False
        self.farewell = False
        """True if the call is to end when all was heard."""
        self._context = context
        self._text = text
        self._before = before
        self._on_exhausted = on_exhausted
        self._player = ReplyPlayer(context, record, on_interrupt, held=guess is not None)
        self._guess = guess
        """Words to which it is prepared; None = they were said."""
        self._prompt: list[ChatMessage] = []
        """Prompt of the prepared reply."""
        self.failed = False
        """True if the prepared reply cannot be adopted."""
        self._unused: HistoryEntry | None = None
        """Entry whose tools wait until the caller does not speak."""
        self._idle = asyncio.Event()
        """Set while it has no request at the model."""
        self._idle.set()
        self._task = asyncio.create_task(self._run(), name=f"reply {record.number}")
        self._task.add_done_callback(lambda _: None if self._unheard else on_end(self))

    @property
    def _unheard(self) -> bool:
        return self.given_up or self._guess is not None

    @property
    def prepared(self) -> bool:
        """True before the adoption."""
        return self._guess is not None

    def answers(self, messages: Sequence[ChatMessage]) -> bool:
        """Return whether it is prepared to what the caller has said after all."""
        return not (self.failed or self.given_up) and same_prompt(self._prompt, messages)

    def adopt(self) -> None:
        """Make a prepared reply the reply: it plays, and its tools may run."""
        self._guess, self._prompt = None, []
        self._player.release()

    @property
    def interrupted(self) -> bool:
        return self._player.interrupted

    @property
    def speaking(self) -> bool:
        return self._player.speaking

    @property
    def unsaid(self) -> str:
        return self._player.unsaid

    def hold_back(self, held: bool) -> None:
        self._player.hold_back(held)

    def resume(self) -> None:
        self._player.resume()

    @property
    def ended(self) -> bool:
        return self._task.done()

    def give_up(self) -> None:
        if self.given_up or self._task.done():
            return
        self.given_up = self.record.interrupted = True
        self._task.cancel()
        self._player.give_up()
        if self._unused is not None:
            for call in self._unused.calls:
                self._unused.results[call.id] = NOT_DONE
                self.record.tools.append(ToolUse(call.name))

    async def settled(self, most_s: float | None = None) -> None:
        """Wait, at most ``most_s``, for its end and heard part; never raises."""
        await asyncio.wait([self._task], timeout=most_s)
        await self._player.settled(most_s)

    async def idle(self) -> None:
        await self._idle.wait()

    def complete_record(self) -> None:
        self._player.complete_record()

    # --- inside

    async def _run(self) -> None:
        try:
            for each in self._before:
                if not each.given_up:
                    await each.idle()
                if each.given_up:
                    await each.settled(SETTLE_S)
            self._before = ()
            if self._text is not None:
                await self._player.say("fixed", self._text)
            else:
                await self._ask()
            self.record.mark("answered", self._context.clock.now())
            await self._player.played()
        except SpeechError as error:
            # The call is over: nothing can be told to the caller.
            self.record.failed(error)
        except Exception as error:
            logger.error("a reply broke off\n%s", traceback_without_message(error))
            self.record.failed(SpeechError("the reply broke off; the log says why."))
        finally:
            self._player.give_up()  # what is left where the call ended meanwhile

    async def _ask(self) -> None:
        settings, record = self._context.settings, self.record
        record.left_out = self._context.history.left_out(settings.history_chars)
        self._player.start_fillers()
        try:
            for number in range(settings.max_tool_rounds + 1):
                must_speak = number == settings.max_tool_rounds
                calls = await self._round(must_speak=must_speak)
                if not calls:
                    return
                if must_speak:
                    raise ProtocolError("the language model uses tools endlessly.")
                self._player.start_fillers()
                await self._use(calls)
                if self.farewell and self._player.has_replied:
                    return
        except BudgetSpent as error:
            await self._end_call(error)
        except SpeechError as error:
            await self._apologise(error)
        except Exception as error:
            # A source of the program's may raise anything.
            logger.warning("the source of the replies failed\n%s", traceback_without_message(error))
            await self._apologise(
                ModelUnavailable(f"the source of the replies failed: {type(error).__name__}.")
            )

    async def _apologise(self, error: SpeechError) -> None:
        if self.prepared:
            self.failed = True
            return
        self.record.failed(error)
        self._player.stop_fillers()
        if self._context.call.over:
            raise error
        await self._player.say("fixed", self._context.settings.apology)

    async def _end_call(self, error: BudgetSpent) -> None:
        context = self._context
        self.record.failed(error)
        self._player.stop_fillers()
        self._on_exhausted()
        if not context.exhaustion_told and not context.call.over:
            context.exhaustion_told = True
            await self._player.say("fixed", context.settings.used_up)

    async def _admitted(self) -> tuple[list[ChatMessage], list[ToolSpec]]:
        context = self._context
        while True:
            specs = [each.spec for each in context.toolbox.tools.values()]
            messages = context.history.messages(
                context.settings.history_chars, tentative=self._guess
            )
            now = context.clock.now()
            at = context.budget.take(prompt_chars(messages, specs), now)
            if self.prepared:
                self._prompt = messages
                if at > now:
                    raise ModelUnavailable("the budget admits no request ahead.")
                return messages, specs
            if at <= now:
                context.rate_limit_told = False
                return messages, specs
            if at == NEVER:
                raise BudgetSpent(
                    "the requests to the language model are used up.",
                    remedy="Raise the budget in the agent's settings, if callers need that many.",
                )
            self._player.stop_fillers()
            if not context.rate_limit_told:
                context.rate_limit_told = True
                logger.warning(
                    "call %s: the requests of this minute are used up; the next in %.0f s",
                    log_text(context.call.id),
                    at - now,
                )
                await self._player.say("fixed", context.settings.too_many)
            await context.clock.sleep_until(at)

    async def _round(self, *, must_speak: bool) -> list[ToolCall]:
        settings = self._context.settings
        for attempt in range(settings.retries + 1):
            try:
                return await self._request(must_speak=must_speak)
            except _BrokenOff as error:
                raise error.error from None
            except SpeechError as error:
                retryable = error.retryable and not isinstance(error, ModelStalled)
                if self.prepared or not retryable or attempt == settings.retries:
                    raise
            self.record.retries += 1
            clock = self._context.clock
            await clock.sleep_until(clock.now() + settings.retry_wait_s)
        raise AssertionError("the last attempt returns or raises")

    async def _request(self, *, must_speak: bool) -> list[ToolCall]:
        context, record = self._context, self.record
        messages, specs = await self._admitted()
        record.requests += 1
        record.mark("asked", context.clock.now())
        spoken: SpokenReply | None = None
        blank = ""
        calls: list[ToolCall] = []
        self._idle.clear()
        try:
            async with aclosing(
                context.source.stream(messages, specs, must_speak=must_speak)
            ) as events:
                async for event in events:
                    if isinstance(event, ToolCall):
                        calls.append(event)
                    elif isinstance(event, Finished):
                        if event.reason in ("length", "content_filter"):
                            record.cut_short = event.reason
                    elif spoken is None:
                        blank += event
                        if blank.strip():
                            record.mark("first_token", context.clock.now())
                            spoken = await self._player.begin("reply", blank)
                    else:
                        await spoken.write(event)
            if spoken is None and not calls:
                raise ModelUnavailable(
                    "the language model had nothing to say.", remedy="Its own log may say why."
                )
        except SpeechError as error:
            if spoken is not None:
                raise _BrokenOff(error) from None
            raise
        finally:
            self._idle.set()
            if spoken is not None:
                spoken.end()
        if calls:
            calls = _numbered(calls)
            entry = spoken.entry if spoken is not None else HistoryEntry(ours=True, heard="")
            entry.calls = tuple(calls)
            self._unused = None if must_speak else entry
            if self.prepared:
                await self._player.may_begin()
            if spoken is None:
                context.history.add(entry)
        return calls

    # --- tools

    async def _use(self, calls: list[ToolCall]) -> None:
        entry = self._unused
        assert entry is not None
        await self._player.may_begin()
        self._unused = None
        tasks = [asyncio.create_task(self._use_one(call, entry)) for call in calls]
        self._context.running.update(tasks)
        for task in tasks:
            task.add_done_callback(self._context.running.discard)
        await asyncio.wait(tasks)

    async def _use_one(self, call: ToolCall, entry: HistoryEntry) -> None:
        context, use = self._context, ToolUse(call.name)
        self.record.tools.append(use)
        found = context.toolbox.tools.get(call.name)
        if found is not None and found.after_speech:
            await self._player.played()
        if self.given_up:
            entry.results[call.id] = NOT_DONE
            return
        began = context.clock.now()
        entry.results[call.id], use.ok = await context.toolbox.use(call)
        use.ms = (context.clock.now() - began) * 1000


class _BrokenOff(SpeechError):
    """Failure after a request's first word: not retried."""

    def __init__(self, error: SpeechError) -> None:
        super().__init__(error.message)
        self.error = error


def _numbered(calls: list[ToolCall]) -> list[ToolCall]:
    known: set[str] = set()
    numbered = []
    for call in calls:
        identity = call.id
        while identity in known:
            identity += "_"
        known.add(identity)
        numbered.append(replace(call, id=identity))
    return numbered
