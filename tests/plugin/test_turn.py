from __future__ import annotations

import asyncio
from types import SimpleNamespace

from mr_qwen3tts.host_turn import Turn, enter, log_id_of, take

SPEAK = frozenset({"speak"})


async def test_a_command_finds_what_the_pipe_of_its_own_task_left() -> None:
    found: dict[str, str | None] = {}

    async def command(name: str) -> None:
        told = take(SPEAK)
        found[name] = None if told is None else told.cmd_id

    async def model(name: str) -> None:
        enter(Turn(SimpleNamespace(log_id=name), "speak", name))
        await asyncio.sleep(0)
        await asyncio.create_task(command(name))

    await asyncio.gather(*(model(name) for name in "abc"))
    assert found == {"a": "a", "b": "b", "c": "c"}


async def test_it_counts_once_and_for_its_own_command() -> None:
    enter(Turn(None, "hangup", "a"))
    assert take(SPEAK) is None
    told = Turn(None, "speak", "b")
    enter(told)
    assert take(SPEAK) is told
    assert take(SPEAK) is None, "what speaks now is another plugin"


def test_another_plugins_words_are_not_the_commands() -> None:
    told = Turn(None, "speak", "a", words="Good morning to you")
    enter(told)
    assert take(SPEAK, "One moment please.") is None
    assert take(SPEAK, "Good  morning to you all.") is told
    enter(Turn(None, "speak", "a"))
    assert take(SPEAK, "One moment please.") is None
    assert take(SPEAK, "  ") is not None


def test_a_call_without_a_name_has_none() -> None:
    assert log_id_of(SimpleNamespace(log_id="x")) == "x"
    assert log_id_of(SimpleNamespace(log_id=None)) == ""
    assert log_id_of(None) == ""
