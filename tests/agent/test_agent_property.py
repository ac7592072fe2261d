"""Whatever caller, model and program do, in any order: nothing is lost, nothing is left over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise

from hypothesis import given, note, settings
from hypothesis import strategies as st

from qwen3tts_agent.chat.messages import (
    ChatEvent,
    ChatMessage,
    ModelRefused,
    ModelUnavailable,
    ToolCall,
    ToolSpec,
)
from qwen3tts_agent.conversation import RUNNING
from qwen3tts_agent.settings import AgentSettings
from qwen3tts_agent.tools import tool
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_wire.errors import EngineFailed
from tests.agent.parts import ScriptedCall, begin
from tests.fakes import FakeClock, settle

WRITES = (
    "words and ",
    "more of them. ",
    " ",
    "tool",
    "two tools",
    "hang_up",
    "fails",
    "breaks",
    "end",
)


class AnyModel:
    """Writes what the script says; it is asked for as often as it is."""

    def __init__(self, script: Sequence[str]) -> None:
        self._script = list(script)
        self.written: list[str] = []
        self.messages: list[list[ChatMessage]] = []
        self.permits = asyncio.Semaphore(0)
        self._calls = 0

    async def stream(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        must_speak: bool = False,
    ) -> AsyncGenerator[ChatEvent, None]:
        self.messages.append(list(messages))
        calls: list[ToolCall] = []
        while True:
            await self.permits.acquire()
            step = self._script.pop(0) if self._script else "end"
            match step:
                case "end":
                    break
                case "fails":
                    raise ModelUnavailable("down")
                case "breaks":
                    raise ModelRefused("no")
                case "tool" | "two tools" | "hang_up":
                    for _ in range(1 + (step == "two tools")):
                        self._calls += 1
                        name = "hang_up" if step == "hang_up" else "look"
                        calls.append(ToolCall(f"c{self._calls}", name, "{}"))
                    break
                case _:
                    self.written.append(step)
                    yield step
        for call in calls:
            yield call

    async def close(self) -> None:
        """Nothing is open."""


DOES = (
    "writes",
    "writes",
    "writes a lot",
    "plays",
    "plays all",
    "onset",
    "words",
    "noise",
    "misheard",
    "keys",
    "interrupt",
    "continue",
    "time",
    "long time",
    "hold",
    "resume",
    "tool ends",
    "voice fails",
)


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from(WRITES), max_size=20),
    st.lists(st.sampled_from(DOES), max_size=30),
    st.booleans(),
)
def test_anything_may_happen_at_any_time(
    writes: list[str], does: list[str], barge_in: bool
) -> None:
    asyncio.run(run(writes, does, barge_in))


async def run(writes: list[str], does: list[str], barge_in: bool) -> None:
    note(f"{writes} {does} {barge_in}")
    broken: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: broken.append(what))
    model, free = AnyModel(writes), asyncio.Event()

    async def look() -> str:
        await free.wait()
        return "seen"

    call = ScriptedCall(FakeClock())
    call.sink.at_once = False
    session = await begin(
        model,
        call,
        greeting="Hello there.",
        tools=[tool(look)],
        listen=ListenSettings(barge_in=barge_in),
        settings=AgentSettings(
            filler=("One moment.",),
            hang_up_tool=True,
            hang_up_when_quiet=True,
            goodbye="Goodbye to you.",
            retries=1,
            queue_chars=12,
        ),
    )
    heard_before = ""
    others: list[asyncio.Future[bool]] = []
    for step in does:
        if call.over:
            break
        await do(step, call, model, session.conversation.continue_, free, others)
        await settle(30)
        heard = session.conversation.heard
        assert heard.startswith(heard_before), "what was heard is never taken back"
        heard_before = heard
    free.set()
    conversation = await session.end()
    await asyncio.gather(*others, return_exceptions=True)
    assert not broken
    assert all(record.done for record in conversation.turns)
    written = "".join(model.written)
    ours = [entry for entry in conversation.history.entries if entry.ours]
    assert all(entry.heard is not None for entry in ours)
    for entry in ours:
        assert entry.written.startswith(entry.heard or ""), "heard is the beginning of the text"
    told = "".join(entry.written for entry in ours) + "".join(
        record.unsaid for record in conversation.turns
    )
    for word in written.split():
        assert word in told, "what the model wrote was said, or is kept"
    for sent in model.messages:
        check(sent)
    assert RUNNING not in [each.content for each in conversation.messages()]
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, "nothing is left over"


async def do(
    step: str,
    call: ScriptedCall,
    model: AnyModel,
    continue_: object,
    free: asyncio.Event,
    others: list[asyncio.Future[bool]],
) -> None:
    match step:
        case "writes":
            model.permits.release()
        case "writes a lot":
            for _ in range(6):
                model.permits.release()
        case "plays":
            await call.sink.play_words(1)
        case "plays all":
            await call.sink.play_all()
        case "onset":
            call.onset()
        case "words" | "noise" | "misheard":
            if not call.listening.caller_speaking:
                call.onset()
                await settle(20)
            call.decided("noise" if step == "noise" else "pause")
            error = EngineFailed("deaf") if step == "misheard" else None
            if step != "noise" or call._stopped:
                call.words("something" if step == "words" else "", error=error)
        case "keys":
            call.words("", keys="5", why="keys")
        case "interrupt":
            call.interrupt()
        case "continue":
            others.append(asyncio.ensure_future(continue_()))  # type: ignore[operator]
        case "time":
            await call.time.advance(2)
        case "long time":
            await call.time.advance(31)
        case "hold" | "resume":
            call.hold(step == "hold")
        case "tool ends":
            free.set()
        case "voice fails":
            call.client.failures = [EngineFailed("no voice")]


def check(messages: list[ChatMessage]) -> None:
    """That every endpoint takes it."""
    for before, after in pairwise(messages):
        if after.role == "tool":
            assert before.role == "tool" or before.tool_calls
        elif before.role == after.role:
            assert before.tool_calls
    asked = [call.id for message in messages for call in message.tool_calls]
    assert asked == [message.tool_call_id for message in messages if message.role == "tool"]
    assert messages[0].role == "user"
