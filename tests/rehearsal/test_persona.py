"""A caller that a language model plays."""

from __future__ import annotations

import pytest

from qwen3tts_agent.chat.messages import ChatMessage
from qwen3tts_agent.chat.source import FunctionSource
from qwen3tts_rehearsal.persona import CallerTurnText, PersonaCaller
from qwen3tts_rehearsal.scenario import Persona

PERSONA = Persona("http://127.0.0.1:1/v1", "You are Ann.", max_turns=3)


class Model:
    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)
        self.asked: list[list[ChatMessage]] = []

    async def answer(self, messages: list[ChatMessage]) -> str:
        self.asked.append(list(messages))
        return self._answers.pop(0)


def caller(model: Model) -> PersonaCaller:
    return PersonaCaller(PERSONA, FunctionSource(model.answer), "de")


async def test_the_model_hears_the_agent_and_speaks_for_the_caller() -> None:
    model = Model("Guten Tag!", "Danke.  Auf\nWiederhören. [END] (hangs up)")
    ann = caller(model)
    assert await ann.next("Bäckerei Müller.") == CallerTurnText("Guten Tag!", False)
    assert await ann.next("") == CallerTurnText("Danke. Auf Wiederhören.", True)
    assert "You are Ann." in model.asked[0][0].content
    assert "language de" in model.asked[0][0].content
    said = [(each.role, each.content) for each in model.asked[1][1:]]
    assert said == [
        ("user", "Bäckerei Müller."),
        ("assistant", "Guten Tag!"),
        ("user", "(silence)"),
    ]


@pytest.mark.parametrize("written", ["[END]", "", "   "])
async def test_a_model_that_says_nothing_ends_the_call(written: str) -> None:
    assert await caller(Model(written)).next("Hello.") == CallerTurnText("", True)


async def test_after_its_last_turn_the_caller_hangs_up() -> None:
    ann = caller(Model("one", "two", "three"))
    said = [await ann.next("x") for _ in range(4)]
    assert [each.last for each in said] == [False, False, False, True]


async def test_a_model_that_writes_without_end_is_cut_short() -> None:
    assert len((await caller(Model("word " * 1000)).next("x")).text) <= 400
