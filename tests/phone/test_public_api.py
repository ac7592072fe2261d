"""Names that the packages export, and their settings as keyword arguments."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import qwen3tts_agent
import qwen3tts_phone
from qwen3tts_agent import Agent, AgentSettings
from qwen3tts_agent.chat.settings import ChatSettings
from qwen3tts_phone import Phone, PhoneSettings
from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.errors import BadRequest

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


async def parrot(messages: Any) -> Any:
    yield ""


def a_phone(**given: Any) -> Phone:
    return Phone(link=SpeechLink(""), **given)


def an_agent(**given: Any) -> Agent:
    return Agent(parrot, stt=None, **given)


CASES: list[tuple[Callable[..., Phone | Agent], Any]] = [
    (a_phone, PhoneSettings()),
    (an_agent, AgentSettings()),
]


@pytest.mark.parametrize(("make", "settings"), CASES)
def test_every_setting_is_a_keyword_argument(make: Any, settings: Any) -> None:
    values = {each.name: getattr(settings, each.name) for each in fields(settings)}
    assert make(**values).settings == settings
    for name, value in values.items():
        assert make(**{name: value}).settings == settings


@pytest.mark.parametrize(("made", "settings"), [(Phone, PhoneSettings), (Agent, AgentSettings)])
def test_arguments_beside_the_settings_have_names_of_their_own(made: Any, settings: Any) -> None:
    own = inspect.signature(made.__init__).parameters.keys()
    assert not own & {each.name for each in fields(settings)}


@pytest.mark.parametrize(
    ("make", "name", "hint"),
    [
        (a_phone, "prot", r"Phone\(\) .*'prot'; did you mean 'port'\?"),
        (a_phone, "anounce", r"Phone\(\) .*'anounce'; did you mean 'announce'\?"),
        (a_phone, "zzz", r"Phone\(\) .*'zzz'; see the fields of PhoneSettings"),
        (an_agent, "greting", r"Agent\(\) .*'greting'; did you mean 'greeting'\?"),
        (an_agent, "modle", r"Agent\(\) .*'modle'; did you mean 'model'\?"),
    ],
)
def test_an_unknown_keyword_is_refused_with_the_nearest_one(
    make: Any, name: str, hint: str
) -> None:
    with pytest.raises(TypeError, match=hint):
        make(**{name: 1})


def test_the_model_and_its_key_are_keywords_of_the_agent() -> None:
    agent = Agent("http://127.0.0.1:1/v1", model="llama3.2", api_key="k", stt=None)
    assert agent._chat == ChatSettings("http://127.0.0.1:1/v1", model="llama3.2", api_key="k")


@pytest.mark.parametrize("name", ["system", "greeting"])
def test_instructions_and_greeting_are_texts(name: str) -> None:
    with pytest.raises(BadRequest, match=f"{name} is a int"):
        an_agent(**{name: 3})
    agent = an_agent(settings=AgentSettings(system="Be brief.", greeting="Hello."))
    assert (agent.system, agent.greeting) == ("Be brief.", "Hello.")


def test_what_is_given_goes_over_the_settings() -> None:
    base = AgentSettings(reprompt="Hello?", goodbye="Until then.")
    agent = an_agent(settings=base, goodbye="", max_minutes=5)
    assert agent.settings == AgentSettings(reprompt="Hello?", goodbye="", max_minutes=5)
    with pytest.raises(ValueError, match=r"^reprompts"):
        an_agent(reprompts=-1)
    phone = Phone(PhoneSettings(port=5062), link=SpeechLink(""), voice=None, user="bob")
    assert phone.settings == PhoneSettings(port=5062, user="bob")
