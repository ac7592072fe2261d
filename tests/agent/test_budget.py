"""The budget of requests to the model: of a call, of a process, and what the caller hears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_agent.budget import NEVER, WINDOW_S, CallBudget, RequestLimits, RequestMeter
from qwen3tts_agent.chat.messages import ChatMessage, ToolCall, ToolSpec, prompt_chars
from qwen3tts_agent.settings import AgentSettings
from tests.agent.parts import ScriptedCall, Session, agent_of, begin
from tests.fakes import FakeClock, settle

TIMES = st.lists(
    st.tuples(st.floats(0, 50), st.integers(0, 120)), max_size=120
)  # seconds since the request before, characters


@given(TIMES, st.integers(0, 8), st.integers(0, 30), st.integers(0, 500), st.integers(0, 2000))
def test_no_minute_and_no_call_holds_more_than_its_limit(
    steps: list[tuple[float, int]], minute: int, most: int, chars_minute: int, chars: int
) -> None:
    limits = RequestLimits(minute, most, chars_minute, chars)
    budget, now, made = CallBudget(limits), 0.0, list[tuple[float, int]]()
    for after, size in steps:
        now += after
        at = budget.take(size, now)
        if at != now:
            assert at > now
            if at == NEVER:
                continue
            now = at  # it waits until then
            assert budget.take(size, now) == now, "the time that was given is kept"
        made.append((now, size))
    for begins, _ in made:
        window = [size for at, size in made if begins <= at < begins + WINDOW_S]
        assert not minute or len(window) <= minute
        assert not chars_minute or sum(window) <= chars_minute
    assert not most or len(made) <= most
    assert not chars or sum(size for _, size in made) <= chars


def test_a_call_that_the_process_holds_up_spends_nothing_of_its_own() -> None:
    process = RequestMeter()
    first, second = (
        CallBudget(RequestLimits(requests=1), RequestLimits(requests_minute=1), process)
        for _ in range(2)
    )
    assert first.take(5, 0.0) == 0.0
    assert second.take(5, 10.0) == WINDOW_S
    assert second.take(5, WINDOW_S) == WINDOW_S
    assert first.take(5, 200.0) == NEVER


def test_a_clock_that_stands_still_or_goes_back_gives_no_further_requests() -> None:
    budget = CallBudget(RequestLimits(requests_minute=1))
    assert budget.take(1, 100.0) == 100.0
    assert budget.take(1, 90.0) == 160.0


def test_a_prompt_is_counted_with_its_tools() -> None:
    call = ToolCall("1", "look", "{}")
    messages = [ChatMessage("user", "Hello."), ChatMessage("assistant", "", (call,))]
    assert prompt_chars(messages, []) == 6 + 4 + 2
    assert prompt_chars([], [ToolSpec("look", "See.", {"type": "object"})]) == 4 + 4 + 18


@pytest.mark.parametrize("field", ["requests_minute", "process_prompt_chars"])
@pytest.mark.parametrize("value", [-1, 1.5, float("nan")])
def test_a_budget_that_cannot_be_meant_is_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        AgentSettings(**{field: value})  # type: ignore[arg-type]


def test_a_budget_in_which_no_long_conversation_fits_is_refused() -> None:
    with pytest.raises(ValueError, match="history_chars"):
        AgentSettings(prompt_chars_minute=1000)


# --- on a call


class Model:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, messages: Sequence[ChatMessage]) -> AsyncIterator[str]:
        self.asked.append(messages[-1].content)
        yield "Fine."


async def press(session: Session, turns: int) -> None:
    """Press so many numbers, one every 10 ms."""
    for number in range(turns):
        if session.call.over:
            return
        session.call.words("", keys=f"{number % 10}#", why="keys")
        await session.call.time.advance(0.01)
        await settle(10)


def said(session: Session, sentence: str) -> int:
    return [each.text for each in session.call.client.contexts].count(sentence)


async def test_a_machine_that_presses_keys_meets_the_budget_of_the_minute() -> None:
    model = Model()
    settings = AgentSettings(quiet_s=0, requests_minute=20)
    session = await begin(model.__call__, None, settings=settings)
    await press(session, 300)
    assert len(model.asked) == 20
    await settle(200)
    assert said(session, settings.too_many) == 1, "it is said once"
    await session.call.time.advance(WINDOW_S)
    await settle(200)
    assert len(model.asked) == 21, "what waited is answered, in one reply"
    assert "[keys: 9#]" in model.asked[-1]
    await press(session, 60)
    await settle(200)
    assert said(session, settings.too_many) == 2, "each time that it is met"
    await session.end()


async def test_a_call_whose_budget_is_used_up_ends_with_a_sentence() -> None:
    model = Model()
    settings = AgentSettings(quiet_s=0, requests_call=3)
    session = await begin(model.__call__, None, settings=settings)
    for _ in range(4):
        await session.call.says("Hello?")
        await session.call.sink.play_all()
        await settle(100)
    conversation = await session.task
    assert len(model.asked) == 3
    assert session.call.hung_up == 1
    assert said(session, settings.used_up) == 1
    assert conversation.ended == "its requests to the language model were used up"
    record = conversation.turns[-1]
    assert record.error is not None
    assert record.error.code == "budget_spent"


async def test_a_caller_who_cuts_in_on_the_last_sentence_does_not_keep_the_call() -> None:
    settings = AgentSettings(quiet_s=0, requests_call=1)
    session = await begin(Model().__call__, None, settings=settings)
    await session.call.says("Hello?")
    session.call.sink.at_once = False
    await session.call.says("Hello?")
    before = session.call.over
    await session.call.says("Hello?")
    assert (before, session.call.over) == (False, True)
    assert said(session, settings.used_up) == 1
    await session.task


async def test_calls_share_the_budget_of_the_process() -> None:
    model, clock = Model(), FakeClock()
    settings = AgentSettings(quiet_s=0, process_requests=3)
    agent, _ = agent_of(model.__call__, settings=settings)
    calls = [ScriptedCall(clock) for _ in range(4)]
    for number, call in enumerate(calls):
        call.facts.call_id = f"call-{number}"
    talks = [asyncio.create_task(agent.answer(call)) for call in calls]
    await settle(60)
    for call in calls:
        await call.says("Hello?")
        await settle(100)
    assert len(model.asked) == 3
    assert [call.over for call in calls] == [False, False, False, True]
    for call in calls:
        await call.over_now()
    await asyncio.gather(*talks)


async def test_retries_and_rounds_of_tools_count() -> None:
    asked = 0

    class Loops:
        async def stream(
            self, messages: object, tools: object = (), *, must_speak: bool = False
        ) -> AsyncIterator[ToolCall]:
            nonlocal asked
            asked += 1
            yield ToolCall(f"c{asked}", "none", "{}")

        async def close(self) -> None: ...

    settings = AgentSettings(quiet_s=0, requests_call=5, max_tool_rounds=50)
    session = await begin(Loops(), None, settings=settings)
    await session.call.says("Hello?")
    await settle(300)
    assert asked == 5
    assert session.call.over
    await session.task
