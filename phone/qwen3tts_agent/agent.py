"""Agent: a language model that talks on telephone calls.

    agent = Agent("http://127.0.0.1:11434/v1", model="llama3.2", greeting="Hello, how can I help?")
    async with Phone(port=5060) as phone:
        await agent.serve(phone)

It speaks the first clause while the model still writes, falls silent at a barge-in, and the model
is sent just the text that was heard.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from qwen3tts_agent.budget import CallBudget, RequestMeter
from qwen3tts_agent.chat.check import CHECK_S, check_model
from qwen3tts_agent.chat.client import ChatClient, certificates
from qwen3tts_agent.chat.messages import ModelUnavailable
from qwen3tts_agent.chat.settings import ChatSettings
from qwen3tts_agent.chat.source import ReplyFunction, ReplySource, prepare, source_of
from qwen3tts_agent.conversation import Conversation, ConversationLog, History
from qwen3tts_agent.reply_player import ReplyContext
from qwen3tts_agent.session import AgentSession
from qwen3tts_agent.settings import AgentSettings
from qwen3tts_agent.tools import Tool, Toolbox, call_tools, check_tool_names, tools_of
from qwen3tts_agent.turn_log import OnTurn
from qwen3tts_phone.detection.endpointing import LoadedTurnDetector, TurnDetector
from qwen3tts_phone.detection.recogniser import Recognise, Recogniser, RecogniserPool
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.smart_turn import turn_detector_of
from qwen3tts_phone.detection.vad import make_detector
from qwen3tts_phone.errors import traceback_without_message
from qwen3tts_settings.constraints import with_changes
from qwen3tts_wire.errors import BadRequest, SpeechError, log_text

if TYPE_CHECKING:
    from qwen3tts_phone.call.call import Call


@contextmanager
def end_on_interrupt() -> Iterator[None]:
    """End the block at the first Ctrl-C, in the task of `asyncio.run`."""
    current = asyncio.current_task()
    assert current is not None
    task: asyncio.Task[Any] = current
    before = signal.getsignal(signal.SIGINT)
    # asyncio.Runner's handler is a partial that names its task.
    if getattr(before, "keywords", {}).get("main_task") is not task:
        yield
        return
    loop = asyncio.get_running_loop()
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True
        task.cancel()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    except asyncio.CancelledError:
        if not interrupted or task.uncancel() > 0:
            raise
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


logger = logging.getLogger(__name__)

_process_meters: WeakKeyDictionary[asyncio.AbstractEventLoop, RequestMeter] = WeakKeyDictionary()
"""Meters of all agents' requests, one for each event loop."""


class Agent:
    """Agent for any number of calls, each with a conversation of its own.

    Args:
        llm: address of an OpenAI-compatible endpoint, up to its ``/v1``; `ChatSettings`; an
            asynchronous generator function that replies to a list of `ChatMessage`; or a
            `ReplySource`.
        stt: recogniser: ``whisper``, ``whisper:MODEL``, ``ws://…`` (`recogniser_named`); a function
            of a turn's samples and their rate; or a `Recogniser`. None: keys alone.
        listen: settings of endpointing and barge-in.
        turn_detector: may end a caller's turn before its pause does, or let it wait.
        tools: functions, or `Tool` (`qwen3tts_agent.tools`), that the model may use.
        settings: instructions, greeting, sentences, waits and bounds.
        log: file for one JSON line a turn; with texts only if ``settings.log_words``.
        on_turn: called with each turn when all of it is known.
        changes: fields of `AgentSettings` by name, which prevail: ``system="Be brief."``; for an
            address also ``model``, its name there, and ``api_key`` (see `api_key_from`).

    Raises:
        TypeError: a keyword that is no field; the text names the nearest one.
        BadRequest: an address, a tool or a recogniser's name is wrong.
        ValueError: a setting is wrong; the text begins with its name.
        OSError: the log cannot be opened.
    """

    def __init__(
        self,
        llm: str | ChatSettings | ReplySource | ReplyFunction,
        *,
        stt: str | Recogniser | Recognise | None = "whisper",
        listen: ListenSettings | None = None,
        turn_detector: TurnDetector | None = None,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        settings: AgentSettings | None = None,
        log: str | os.PathLike[str] | None = None,
        on_turn: OnTurn | None = None,
        **changes: Any,
    ) -> None:
        # Any, as a TypedDict would be a second list of the fields: for a type checker's help,
        # give `AgentSettings` and `ChatSettings`.
        access = {name: changes.pop(name) for name in ("model", "api_key") if name in changes}
        settings = settings or AgentSettings()
        self.settings = with_changes(settings, changes, Agent, also=("model", "api_key"))
        self.system, self.greeting = self.settings.system, self.settings.greeting
        texts: dict[str, object] = {"system": self.system, "greeting": self.greeting}
        for name, text in texts.items():
            if not isinstance(text, str):
                raise BadRequest(f"{name} is a {type(text).__name__}.", remedy="Give a text.")
        if self.greeting and not any(map(str.isalnum, self.greeting)):
            raise BadRequest(
                "greeting holds nothing that can be spoken.", remedy="Give letters or digits."
            )
        if isinstance(llm, str):
            llm = ChatSettings(llm, **access)
        self._chat = llm if isinstance(llm, ChatSettings) else None
        if self._chat is not None and self._chat.base_url.lower().startswith("https"):
            certificates()
        self._source = None if isinstance(llm, ChatSettings) else source_of(llm)
        self.listen = listen or ListenSettings()
        self._tools = tools_of(tools)
        check_tool_names(self._tools, self.settings)
        self._recognisers = RecogniserPool()
        self._recogniser = self._recognisers.chosen(stt)
        self._warm = False
        self._warming = asyncio.Lock()
        self._turn_detector = turn_detector
        self._log = None if log is None else ConversationLog(log, words=self.settings.log_words)
        self._on_turn = on_turn
        self._talks: set[asyncio.Task[Conversation]] = set()
        self.conversations: dict[str, Conversation] = {}
        """Conversations of the present calls, by `Call.id`."""

    @property
    def calls(self) -> int:
        return len(self._talks)

    async def warm(self) -> None:
        """Load or reach the recogniser before calls; raises SpeechError.

        May take minutes; no effect once successful. `answer` and `serve` do it, too.
        """
        if self._warm:
            return
        async with self._warming:
            if not self._warm:
                make_detector(self.listen.detector)
                detector = self._turn_detector or turn_detector_of(self.listen)
                if isinstance(detector, LoadedTurnDetector):
                    await detector.warm()
                if self._recogniser is not None:
                    await self._recogniser.warm()
                self._warm = True

    async def check(self, limit_s: float = CHECK_S) -> None:
        """Request one token within ``limit_s``, and `warm`; raises SpeechError.

        `serve` does it, too. A program's own source is not asked.
        """
        work: list[Awaitable[object]] = [self.warm()]
        if self._chat is not None:
            work.append(check_model(self._chat, limit_s=limit_s))
        for result in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def answer(self, call: Call) -> Conversation:
        """Answer an inbound call, talk to its end and return the conversation.

        It rings while the recogniser is loaded; on failure each turn carries the error. Raises as
        :meth:`talk`.
        """
        try:
            await self.warm()
        except SpeechError as error:
            logger.warning("the recogniser is not ready: %s", log_text(error))
        await call.answer()
        return await self.talk(call)

    async def talk(self, call: Call) -> Conversation:
        """Talk on a call to its end, after the answer of an outbound one.

        After a transfer or replacement the conversation goes on there (`Call.successor`).
        Cancelled, it leaves the call as it is.

        Raises:
            CallError: the call was not answered.
            SpeechError: nothing can be heard on this machine; the call is ended.
        """
        source = ChatClient(self._chat) if self._chat is not None else self._source
        assert source is not None
        try:
            prepare(source)
            return await self._talk(call, source)
        finally:
            if self._chat is not None:
                await source.close()

    async def _talk(self, call: Call, source: ReplySource) -> Conversation:
        call = await call.up()
        history = History(self.system)
        conversation = Conversation(call.id, history, self.settings.history_chars)
        meter = _process_meters.setdefault(asyncio.get_running_loop(), RequestMeter())
        # Calls that follow one another in a conversation have one budget and one time.
        budget = CallBudget(self.settings.call_limits, self.settings.process_limits, meter)
        ends_at = call.clock.now() + 60 * self.settings.max_minutes
        following: Call | None = call
        while following is not None:
            call = following
            conversation.call_id, conversation.ended = call.id, ""
            await self._talk_on(call, source, conversation, budget, ends_at)
            following = await call.successor()
        return conversation

    async def _talk_on(
        self,
        call: Call,
        source: ReplySource,
        conversation: Conversation,
        budget: CallBudget,
        ends_at: float,
    ) -> None:
        history = conversation.history
        listening = call.hear(self.listen, self._recogniser, turn_detector=self._turn_detector)
        toolbox = Toolbox(
            self._tools,
            {"call": call, "conversation": conversation},
            timeout_s=self.settings.tool_timeout_s,
            most_chars=self.settings.max_result_chars,
        )
        context = ReplyContext(call, source, toolbox, history, self.settings, budget)
        session = AgentSession(
            context,
            conversation,
            listening,
            greeting=self.greeting,
            log=self._log,
            on_turn=self._on_turn,
            ends_at=ends_at,
        )
        toolbox.tools.update(call_tools(self.settings, call, session.farewell))
        self.conversations[call.id] = conversation
        try:
            await session.run()
        except Exception:  # the caller would hear nothing any more
            await call.hangup()
            raise
        finally:
            self.conversations.pop(call.id, None)

    async def serve(self, lines: AsyncIterable[Call]) -> None:
        """Answer every call of ``lines``, concurrently, until they are closed.

        In the main task of `asyncio.run` Ctrl-C ends it. A failure ends its own call alone.
        Cancelled, it answers no more; calls under way go on. Raises as :meth:`check`, but takes
        calls while the model is unavailable.
        """
        with end_on_interrupt():
            await self._serve(lines)

    async def _serve(self, lines: AsyncIterable[Call]) -> None:
        try:
            await self.check()
        except ModelUnavailable as error:
            logger.warning(
                "the language model is not ready, and calls are taken nevertheless: %s",
                log_text(error),
            )
        async for call in lines:
            task = asyncio.create_task(self.answer(call), name=f"agent on {call.id}")
            self._talks.add(task)
            task.add_done_callback(self._ended)
        if self._talks:
            await asyncio.wait(set(self._talks))

    def _ended(self, task: asyncio.Task[Conversation]) -> None:
        self._talks.discard(task)
        if task.cancelled() or task.exception() is None:
            return
        error = task.exception()
        assert error is not None
        if isinstance(error, SpeechError):
            logger.warning("%s: %s", log_text(task.get_name()), log_text(error))
        else:
            logger.error(
                "%s broke off\n%s", log_text(task.get_name()), traceback_without_message(error)
            )

    async def close(self) -> None:
        """Close the log and the agent's own recogniser, after all calls."""
        await self._recognisers.close()
        if self._log is not None:
            self._log.close()

    async def __aenter__(self) -> Agent:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
