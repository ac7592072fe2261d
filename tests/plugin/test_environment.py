"""Where variables are looked for, in a host that replaces ``os.environ``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, MutableMapping
from types import SimpleNamespace
from typing import Any

import pytest

from mr_qwen3tts.settings import Settings
from mr_qwen3tts.variables import environment

VOICE = "MR_QWEN3TTS_VOICE"


class HostsEnvironment(MutableMapping[str, str]):
    """As the host's lib/context_environ.py has it: a single look-up asks the callers' ``context``,
    ten frames back; the whole does not."""

    def __init__(self, original: MutableMapping[str, str]) -> None:
        self._original = original

    def _of_callers(self, key: str) -> Any:
        frame: Any = sys._getframe(2)
        for _ in range(10):
            if frame is None:
                break
            context = frame.f_locals.get("context")
            if key in (getattr(context, "env", None) or {}):
                return context.env[key]
            frame = frame.f_back
        return None

    def get(self, key: str, default: Any = None) -> Any:
        return self._of_callers(key) or self._original.get(key, default)

    def __getitem__(self, key: str) -> str:
        return self._of_callers(key) or self._original[key]

    def __setitem__(self, key: str, value: str) -> None:
        self._original[key] = value

    def __delitem__(self, key: str) -> None:
        del self._original[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._original)

    def __len__(self) -> int:
        return len(self._original)

    def items(self) -> Any:
        return self._original.items()

    def copy(self) -> dict[str, str]:
        return dict(self._original)


def call_of(env: dict[str, object]) -> Any:
    return SimpleNamespace(env=env)


@pytest.fixture
def _in_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", HostsEnvironment(os.environ))


def somewhere_in_the_host(context: Any, ours: Any) -> str | None:
    """A caller's frame holds one context, and the plugin was handed another."""
    assert os.environ.get(VOICE) == context.env[VOICE]
    return Settings.read(ours).voice


@pytest.mark.usefixtures("_in_the_host")
def test_another_calls_context_further_out_is_not_asked() -> None:
    other = call_of({VOICE: "Other"})
    assert somewhere_in_the_host(other, call_of({})) is None
    assert somewhere_in_the_host(other, call_of({VOICE: "Ours"})) == "Ours"
    assert somewhere_in_the_host(other, None) is None


@pytest.mark.usefixtures("_in_the_host")
def test_the_process_is_read_behind_the_hosts_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, VOICE, "Process")
    assert Settings.read(call_of({})).voice == "Process"
    assert Settings.read(call_of({VOICE: "Agent"})).voice == "Agent"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "1"),
        (False, "0"),
        (60, "60"),
        (1.5, "1.5"),
        (["hangup", "wait"], "hangup,wait"),
        (" x ", "x"),
    ],
)
def test_an_agents_file_may_have_numbers_and_lists(value: object, text: str) -> None:
    assert environment(call_of({VOICE: value}))[VOICE] == text


@pytest.mark.parametrize("context", [None, object(), call_of({}), {}, SimpleNamespace(env=None), 7])
def test_what_has_no_variables_is_no_error(
    context: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VOICE, "Process")
    assert environment(context)[VOICE] == "Process"


def test_other_peoples_variables_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    names = environment({"SECRET": "s", 5: "x", VOICE: "v"})
    assert "OPENAI_API_KEY" not in names
    assert "SECRET" not in names
    assert names[VOICE] == "v"
