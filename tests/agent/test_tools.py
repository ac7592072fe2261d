from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any, Literal

import pytest

from qwen3tts_agent.chat.messages import ToolCall
from qwen3tts_agent.tools import MOST_ERROR_CHARS, Tool, Toolbox, ToolError, tool, tools_of
from qwen3tts_wire.errors import BadRequest


async def opening_hours(day: Literal["Mo", "Tu"], week: int = 1, call: Any = None) -> str:
    """When the shop is open."""
    return f"{day} {week} {call}"


def toolbox(*tools: Any, timeout_s: float = 5, most_chars: int = 1000) -> Toolbox:
    return Toolbox(
        tools_of(tools),
        {"call": "the call", "conversation": None},
        timeout_s=timeout_s,
        most_chars=most_chars,
    )


async def use(box: Toolbox, name: str, arguments: str = "{}") -> tuple[str, bool]:
    return await box.use(ToolCall("a", name, arguments))


def test_a_function_becomes_a_tool_with_its_docstring_and_its_types() -> None:
    assert tool(opening_hours).spec.to_json() == {
        "type": "function",
        "function": {
            "name": "opening_hours",
            "description": "When the shop is open.",
            "parameters": {
                "type": "object",
                "properties": {"day": {"enum": ["Mo", "Tu"]}, "week": {"type": "integer"}},
                "required": ["day"],
                "additionalProperties": False,
            },
        },
    }


def test_types_become_a_schema() -> None:
    def book(
        names: list[str],
        when: str | None = None,
        how: int | str = 1,
        more: Any = None,
        x: bool = True,
    ) -> None: ...

    properties = tool(book).parameters["properties"]
    assert properties == {
        "names": {"type": "array", "items": {"type": "string"}},
        "when": {"type": "string"},
        "how": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "more": {},
        "x": {"type": "boolean"},
    }


def test_what_no_model_can_use_is_refused() -> None:
    def positional(*names: str) -> None: ...
    def strange(when: bytes) -> None: ...

    with pytest.raises(BadRequest, match="by its name"):
        tool(positional)
    with pytest.raises(BadRequest, match="cannot come as JSON"):
        tool(strange)
    with pytest.raises(BadRequest, match="two tools"):
        tools_of([opening_hours, opening_hours])
    with pytest.raises(BadRequest, match="cannot be called"):
        Tool("ä b", "", print)
    with pytest.raises(BadRequest, match="cannot be called"):
        tool(lambda day: day)


async def test_a_tool_gets_its_arguments_and_the_call() -> None:
    box = toolbox(opening_hours)
    assert await use(box, "opening_hours", '{"day": "Mo"}') == ("Mo 1 the call", True)


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("hours", "{}", "no tool 'hours'. Tools: opening_hours."),
        ("opening_hours", '{"day":', "no JSON"),
        ("opening_hours", '["Mo"]', "no JSON object"),
        ("opening_hours", "{}", "missing: day"),
        ("opening_hours", '{"day": "We"}', 'day is not ["Mo", "Tu"]'),
        ("opening_hours", '{"day": "Mo", "week": "two"}', 'week is not "integer"'),
        ("opening_hours", '{"day": "Mo", "call": "mine"}', "unknown: call"),
        ("opening_hours", "[" * 100_000, "no JSON"),
    ],
)
async def test_a_wrong_use_is_told_to_the_model(name: str, arguments: str, says: str) -> None:
    text, ok = await use(toolbox(opening_hours), name, arguments)
    assert not ok
    assert says in text


async def test_a_tool_that_breaks_or_hangs_is_told_to_the_model(
    caplog: pytest.LogCaptureFixture,
) -> None:
    address = "postgres://user:password@10.0.0.7/bookings: no such table"

    async def breaks() -> str:
        raise KeyError(address)

    async def hangs() -> str:
        await asyncio.Event().wait()
        return ""

    async def refuses() -> str:
        raise ToolError("There is no table for eight. " * 100)

    box = toolbox(breaks, hangs, refuses, timeout_s=0.01)
    with caplog.at_level(logging.DEBUG):
        assert await use(box, "breaks") == ("Error: the tool failed (KeyError).", False)
    assert "in breaks" in caplog.text, "the log says where"
    assert "password" not in caplog.text
    text, ok = await use(box, "refuses")
    assert (ok, len(text)) == (False, len("Error: ") + MOST_ERROR_CHARS)
    assert text.startswith("Error: There is no table for eight.")
    assert await use(box, "hangs") == ("Error: the tool did not answer within 0.01 seconds.", False)


async def test_functions_that_block_run_in_a_thread_and_the_voice_goes_on() -> None:
    free, names = threading.Event(), list[str]()

    def blocks() -> str:
        names.append(threading.current_thread().name)
        free.wait(10)
        return "done"

    using = asyncio.create_task(use(toolbox(blocks), "blocks"))
    await asyncio.sleep(0)
    free.set()
    assert await using == ("done", True)
    assert names == ["tool"]


async def test_a_thread_that_hangs_is_not_waited_for() -> None:
    free = threading.Event()
    text, ok = await use(toolbox(lambda_named(free.wait), timeout_s=0.01), "waits")
    free.set()
    assert (ok, "did not answer" in text) == (False, True)


def lambda_named(run: Any) -> Tool:
    return Tool("waits", "", lambda: run(10))


async def test_results_are_text_or_json_and_bounded() -> None:
    async def gives(what: int) -> object:
        return [None, {"open": "ö"}, "x" * 2000, {1, 2}, float("nan")][what]

    box = toolbox(gives)
    assert (await use(box, "gives", '{"what": 0}'))[0] == "Done."
    assert (await use(box, "gives", '{"what": 1}'))[0] == '{"open": "ö"}'
    text = (await use(box, "gives", '{"what": 2}'))[0]
    assert text == "x" * 1000 + "… (cut off here; 2000 characters in all)"
    assert (await use(box, "gives", '{"what": 3}'))[1]


def test_a_tool_may_be_made_with_other_names_and_bounds() -> None:
    @tool(name="hours", description="D", timeout_s=3)
    def function() -> None: ...

    assert (function.name, function.description, function.timeout_s) == ("hours", "D", 3)


def test_hints_that_are_none_are_refused_and_names_for_the_checker_alone_are_not() -> None:
    def broken(day: str) -> str:
        """When it is open."""
        return day

    broken.__annotations__["day"] = "1 +"
    with pytest.raises(BadRequest, match="type hints"):
        tool(broken)
    broken.__annotations__["day"] = "OnlyForTheChecker"
    assert tool(broken).name == "broken"
