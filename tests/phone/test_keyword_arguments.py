"""What `Phone` and `Agent` are given by name: every setting, with its type, and nothing else."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest

from qwen3tts_agent import Agent, AgentSettings
from qwen3tts_phone import Phone, PhoneSettings
from qwen3tts_settings.constraints import UNSET
from qwen3tts_speech.link import SpeechLink

OWN = {
    Phone: {"self", "settings", "clock", "link", "on_account", "announce"},
    Agent: {
        *("self", "llm", "model", "api_key", "system", "greeting", "stt", "listen"),
        *("turn_detector", "tools", "settings", "log", "on_turn"),
    },
}
CASES = [(Phone, PhoneSettings), (Agent, AgentSettings)]


@pytest.mark.parametrize(("made", "settings"), CASES)
def test_every_setting_is_a_typed_keyword_argument(made: Any, settings: Any) -> None:
    parameters = inspect.signature(made.__init__).parameters
    assert all(each.kind is not each.VAR_KEYWORD for each in parameters.values())
    named = {name: each for name, each in parameters.items() if name not in OWN[made]}
    assert all(each.default is UNSET for each in named.values())
    assert [(name, each.annotation) for name, each in named.items()] == [
        (each.name, each.type) for each in fields(settings)
    ]


def test_what_is_given_goes_over_the_settings() -> None:
    async def llm(messages: Any) -> Any:
        yield ""

    base = AgentSettings(reprompt="Hello?", goodbye="Until then.")
    agent = Agent(llm, stt=None, settings=base, goodbye="", max_minutes=5)
    assert agent.settings == AgentSettings(reprompt="Hello?", goodbye="", max_minutes=5)
    with pytest.raises(ValueError, match=r"^reprompts"):
        Agent(llm, stt=None, reprompts=-1)
    phone = Phone(PhoneSettings(port=5062), link=SpeechLink(""), voice=None, user="bob")
    assert phone.settings == PhoneSettings(port=5062, user="bob")
