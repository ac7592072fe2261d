"""Names that the packages export, and their settings as keyword arguments."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import qwen3tts_agent
import qwen3tts_phone
from qwen3tts_agent import Agent, AgentSettings
from qwen3tts_phone import Phone, PhoneSettings
from qwen3tts_settings.constraints import UNSET
from qwen3tts_speech.link import SpeechLink

PACKAGES = [qwen3tts_phone, qwen3tts_agent]
EXPORTS = [(package, name) for package in PACKAGES for name in package.__all__]


@pytest.mark.parametrize(("package", "name"), EXPORTS)
def test_every_name_is_there(package: ModuleType, name: str) -> None:
    assert getattr(package, name) is not None
    assert name in dir(package)


@pytest.mark.parametrize("package", PACKAGES)
def test_what_a_type_checker_sees_is_what_is_loaded(package: ModuleType) -> None:
    tree = ast.parse(Path(str(package.__file__)).read_text("utf-8"))
    [checking] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        (node.module, alias.name)
        for node in checking.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    loaded = {(module, name) for name, module in package._MODULE.items()}
    assert seen == loaded
    assert {name for _, name in seen} == set(package.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_none_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="no attribute 'Telephone'"):
        _ = package.Telephone


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_it_loads_nothing_of_it(package: ModuleType) -> None:
    name = package.__name__
    code = (
        f"import sys; before = set(sys.modules); import {name}; "
        "print(*[name for name in set(sys.modules) - before if '.' in name or 'numpy' in name])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    ).stdout.split()
    assert not [each for each in loaded if each.startswith((f"{name}.", "numpy"))]


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
