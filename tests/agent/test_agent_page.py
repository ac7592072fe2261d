"""docs/agent.md says what the code does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from typer.main import get_command

import qwen3tts_agent
import qwen3tts_phone
from qwen3tts_agent import Agent
from qwen3tts_agent.turn_record import STAGES
from qwen3tts_cli.calls.lines import NAMES
from qwen3tts_cli.main import app
from tests.agent.agent_tables import PAGE, written

TEXT = PAGE.read_text("utf-8")


def options(name: str) -> set[str]:
    command: Any = get_command(app)
    return {
        each for one in command.commands[name].params for each in (*one.opts, *one.secondary_opts)
    }


def test_the_tables_of_settings_are_those_of_the_code() -> None:
    assert written(TEXT) == TEXT, "run: python -m tests.agent.agent_tables"


def test_every_option_on_the_page_is_one_of_answer_chat_or_doctor() -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT))
    assert named - options("answer") - options("chat") - options("doctor") == set()


def test_every_line_is_on_the_page() -> None:
    for name in NAMES:
        assert f"`{name}`" in TEXT


def test_the_stages_that_are_named_are_those_of_the_records() -> None:
    told = TEXT.partition("## Where the time goes")[2].partition("They stand")[0]
    assert set(re.findall(r"`(\w+)`", told)) <= set(STAGES)


def test_every_name_that_is_imported_is_there() -> None:
    packages = {"agent": qwen3tts_agent, "phone": qwen3tts_phone}
    for package, names in re.findall(r"from qwen3tts_(agent|phone) import (.*)", TEXT):
        for name in names.split(", "):
            assert hasattr(packages[package], name), name


async def test_the_agent_of_functions_is_made_as_it_is_printed() -> None:
    programs: Sequence[str] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    (program,) = [each for each in programs if "def parrot" in each]
    names: dict[str, Any] = {}
    exec(compile(program, "docs/agent.md", "exec"), names)
    agent = names["agent"]()
    assert isinstance(agent, Agent)
    await agent.close()
