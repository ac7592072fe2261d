"""One reply: asked for, spoken while it is written, with tools used beside it.

    request ── first word ──► a saying begins ── more words ──► it grows ── end ──► heard
        └─ nothing for a while: a filler      └─ tools: used while it is spoken; the next request

Each request's words are a saying of their own, and an entry of the history.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
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
from qwen3tts_agent.reply_player import ReplyContext, ReplyPlayer, SpokenReply
from qwen3tts_agent.turn_record import ToolUse, TurnRecord
from qwen3tts_phone.errors import traceback_without_message
from qwen3tts_wire.errors import ProtocolError, SpeechError, log_text

logger = logging.getLogger(__name__)

SETTLE_S = 0.3
"""A request waits no longer than this until it is known what was heard of the reply before."""
NOT_DONE = "Not done: the caller began to speak."
"""The result of a tool that was not used after all."""


class Reply:
    """It begins at once, in a task of its own, and ends when all was heard, or with `give_up`.

    No error leaves it: what goes wrong is told to the caller and noted in the record.
    """

    def __init__(
        self,
        kit: ReplyContext,
        record: TurnRecord,
        *,
        text: str | None = None,
        before: Reply | None = None,
        on_cut: Callable[[], None],
        on_end: Callable[[Reply], None],
        on_used_up: Callable[[], None],
    ) -> None:
        """Begin to reply to the history, or to say ``text``.

        Args:
            kit: what the replies of the call share.
            record: of the turn.
            text: what is said; None = the model is asked.
            before: the reply before, given up: it is waited for a moment until it is known what was
                heard of it.
            on_cut: called when what it says was interrupted.
            on_end: called when it is over by itself; not after `give_up`.
            on_used_up: called when the model may be asked no more in this call.
        """
        self.record = record
        self.given_up = False
        self.farewell = False
        """Whether the call is to end when all was heard."""
        self._kit = kit
        self._text = text
        self._before = before
        self._on_used_up = on_used_up
        self._mouth = ReplyPlayer(kit, record, on_cut)
        self._mouth.hush(False)
        self._unused: HistoryEntry | None = None
        """Whose tools wait for that."""
        self._task = asyncio.create_task(self._run(), name=f"reply {record.number}")
        self._task.add_done_callback(lambda _: None if self.given_up else on_end(self))

    @property
    def stopped(self) -> bool:
        """Whether what it says was interrupted."""
        return self._mouth.stopped

    @property
    def speaking(self) -> bool:
        """Whether it has begun to say something that has not ended."""
        return self._mouth.speaking

    @property
    def unsaid(self) -> str:
        """What the caller has not heard of it; fillers do not count."""
        return self._mouth.unsaid

    def hush(self, hushed: bool) -> None:
        """The caller speaks: nothing is begun to be said. Or they do not any more."""
        self._mouth.hush(hushed)

    def go_on(self) -> None:
        """Say what was interrupted from where it was; harmless where nothing was."""
        self._mouth.go_on()

    def give_up(self) -> None:
        """Say no more, and ask no more. What was not heard stays in the history's entries."""
        if self.given_up or self._task.done():
            return
        self.given_up = self.record.interrupted = True
        self._task.cancel()
        self._mouth.give_up()
        if self._unused is not None:
            for call in self._unused.calls:
                self._unused.results[call.id] = NOT_DONE
                self.record.tools.append(ToolUse(call.name))

    async def settled(self, most_s: float | None = None) -> None:
        """Wait, no longer than that, until it is over and known what was heard; never raises."""
        await asyncio.wait([self._task], timeout=most_s)
        await self._mouth.settled(most_s)

    def close(self) -> None:
        """All is settled: complete the record."""
        self._mouth.complete()

    # --- inside

    async def _run(self) -> None:
        try:
            if self._before is not None:
                await self._before.settled(SETTLE_S)
            if self._text is not None:
                await self._mouth.say("fixed", self._text)
            else:
                await self._ask()
            self.record.mark("answered", self._kit.clock.now())
            await self._mouth.heard_to_the_end()
        except SpeechError as error:
            # The call is over: nothing can be told to the caller.
            self.record.failed(error)
        except Exception as error:
            logger.error("a reply broke off\n%s", traceback_without_message(error))
            self.record.failed(SpeechError("the reply broke off; the log says why."))
        finally:
            self._mouth.give_up()  # what is left where the call ended meanwhile

    async def _ask(self) -> None:
        settings, record = self._kit.settings, self.record
        record.left_out = self._kit.history.left_out(settings.history_chars)
        self._mouth.begin_filling()
        try:
            for number in range(settings.max_tool_rounds + 1):
                must_speak = number == settings.max_tool_rounds
                calls = await self._round(must_speak=must_speak)
                if not calls:
                    return
                if must_speak:
                    raise ProtocolError("the language model uses tools for ever.")
                self._mouth.begin_filling()
                await self._use(calls)
                if self.farewell and self._mouth.has_replied:
                    return
        except BudgetSpent as error:
            await self._end_call(error)
        except SpeechError as error:
            await self._excuse(error)
        except Exception as error:
            # Whatever breaks in a source of the program's.
            logger.warning("the source of the replies failed\n%s", traceback_without_message(error))
            await self._excuse(
                ModelUnavailable(f"the source of the replies failed: {type(error).__name__}.")
            )

    async def _excuse(self, error: SpeechError) -> None:
        """The model has failed: what it had said is said, and then that something went wrong."""
        self.record.failed(error)
        self._mouth.stop_filling()
        if self._kit.call.over:
            raise error
        await self._mouth.say("fixed", self._kit.settings.apology)

    async def _end_call(self, error: BudgetSpent) -> None:
        """Say that no more can be answered; the second time in silence."""
        kit = self._kit
        self.record.failed(error)
        self._mouth.stop_filling()
        self._on_used_up()
        if not kit.used_up_said and not kit.call.over:
            kit.used_up_said = True
            await self._mouth.say("fixed", kit.settings.used_up)

    async def _admitted(self) -> tuple[list[ChatMessage], list[ToolSpec]]:
        """The next request, once the budget allows it.

        Raises:
            BudgetSpent: it never will again.
        """
        kit = self._kit
        while True:
            specs = [each.spec for each in kit.toolbox.tools.values()]
            messages = kit.history.messages(kit.settings.history_chars)
            now = kit.clock.now()
            at = kit.budget.take(prompt_chars(messages, specs), now)
            if at <= now:
                kit.too_many_said = False
                return messages, specs
            if at == NEVER:
                raise BudgetSpent(
                    "the requests to the language model are used up.",
                    remedy="Raise the budget in the agent's settings, if callers need that many.",
                )
            self._mouth.stop_filling()
            if not kit.too_many_said:
                kit.too_many_said = True
                logger.warning(
                    "call %s: the requests of this minute are used up; the next in %.0f s",
                    log_text(kit.call.id),
                    at - now,
                )
                await self._mouth.say("fixed", kit.settings.too_many)
            await kit.clock.sleep_until(at)

    async def _round(self, *, must_speak: bool) -> list[ToolCall]:
        """One request: what it says is said; the tools that it wants to use. Tried again where it
        failed before its first word."""
        settings = self._kit.settings
        for attempt in range(settings.retries + 1):
            try:
                return await self._request(must_speak=must_speak)
            except SpeechError as error:
                again = error.retryable and not isinstance(error, ModelStalled | _Began)
                if isinstance(error, _Began):
                    raise error.error from None
                if not again or attempt == settings.retries:
                    raise
            self.record.retries += 1
            clock = self._kit.clock
            await clock.sleep_until(clock.now() + settings.retry_wait_s)
        raise AssertionError("the last attempt returns or raises")

    async def _request(self, *, must_speak: bool) -> list[ToolCall]:
        kit, record = self._kit, self.record
        messages, specs = await self._admitted()
        record.requests += 1
        record.mark("asked", kit.clock.now())
        saying: SpokenReply | None = None
        blank = ""
        calls: list[ToolCall] = []
        try:
            async with aclosing(
                kit.source.stream(messages, specs, must_speak=must_speak)
            ) as events:
                async for event in events:
                    if isinstance(event, ToolCall):
                        calls.append(event)
                    elif isinstance(event, Finished):
                        if event.reason in ("length", "content_filter"):
                            record.cut_short = event.reason
                    elif saying is None:
                        blank += event
                        if blank.strip():
                            record.mark("first_token", kit.clock.now())
                            saying = await self._mouth.begin("reply", blank)
                    else:
                        saying.entry.written += event
                        await saying.words.write(event)
            if saying is None and not calls:
                raise ModelUnavailable(
                    "the language model had nothing to say.", remedy="Its own log may say why."
                )
        except SpeechError as error:
            if saying is not None:
                raise _Began(error) from None
            raise
        finally:
            if saying is not None:
                saying.words.end()
        if calls:
            calls = _numbered(calls)
            if saying is None:
                entry = kit.history.ours()
                entry.heard = ""
            else:
                entry = saying.entry
            entry.calls = tuple(calls)
        return calls

    # --- tools

    async def _use(self, calls: list[ToolCall]) -> None:
        """Use them side by side; returns when all have ended. They go on where it is cancelled."""
        entry = next(each for each in reversed(self._kit.history.entries) if each.calls)
        self._unused = entry
        await self._mouth.free()
        self._unused = None
        tasks = [asyncio.create_task(self._use_one(call, entry)) for call in calls]
        self._kit.running.update(tasks)
        for task in tasks:
            task.add_done_callback(self._kit.running.discard)
        await asyncio.wait(tasks)

    async def _use_one(self, call: ToolCall, entry: HistoryEntry) -> None:
        kit, use = self._kit, ToolUse(call.name)
        self.record.tools.append(use)
        found = kit.toolbox.tools.get(call.name)
        if found is not None and found.after_speech:
            await self._mouth.heard_to_the_end()
        if self.given_up:
            entry.results[call.id] = NOT_DONE
            return
        began = kit.clock.now()
        entry.results[call.id], use.ok = await kit.toolbox.use(call)
        use.ms = (kit.clock.now() - began) * 1000


class _Began(SpeechError):
    """A request broke after its first word: it is not made again."""

    def __init__(self, error: SpeechError) -> None:
        super().__init__(error.message)
        self.error = error


def _numbered(calls: list[ToolCall]) -> list[ToolCall]:
    """The calls with ids of their own: some servers give several the same."""
    known: set[str] = set()
    numbered = []
    for call in calls:
        identity = call.id
        while identity in known:
            identity += "_"
        known.add(identity)
        numbered.append(replace(call, id=identity))
    return numbered
