"""What the log shows of values from the network: bounded, and on one line."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mr_qwen3tts
import qwen3tts_agent
import qwen3tts_phone
from qwen3tts_phone.errors import CallRefused
from qwen3tts_wire.errors import MOST_CHARS, MOST_SENTENCE_CHARS, log_text

LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
FROM_OUTSIDE = {
    "id",
    "_id",
    "call_id",
    "error",
    "message",
    "reason",
    "words",
    "realm",
    "uri",
    "cause",
}
"""Names of values that a far end has part in, wherever a log line of a call has them."""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("abc@host", "abc@host"),
        ("a\r\nFAKE line", "a\\r\\nFAKE line"),
        ("\x1b[2J\x9b1m", "\\x1b[2J\\x9b1m"),
        ("\u202egnp.exe\u2028", "\\u202egnp.exe\\u2028"),
        ("half \ud800", "half \\ud800"),
        ("\\n", "\\\\n"),
        ("Grüße", "Grüße"),
        ("", ""),
    ],
)
def test_what_would_break_a_line_is_escaped(value: str, shown: str) -> None:
    assert log_text(value) == shown


def test_what_is_long_is_cut_an_error_later_than_a_name() -> None:
    assert log_text("a" * MOST_CHARS) == "a" * MOST_CHARS
    assert log_text("a" * 5000) == "a" * MOST_CHARS + "…"
    assert log_text("a" * 5000, 10) == "a" * 10 + "…"
    error = CallRefused(486, "Busy " * 5000)
    assert len(log_text(error)) == MOST_SENTENCE_CHARS + 1


@given(st.text())
def test_any_text_is_one_printable_line_of_bounded_length(value: str) -> None:
    shown = log_text(value)
    assert shown.isprintable()
    assert len(shown) <= 10 * MOST_CHARS + 1
    shown.encode("utf-8")


def _bare_arguments(path: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        target = node.func.value
        if node.func.attr not in LEVELS or not isinstance(target, ast.Name):
            continue
        if target.id not in ("log", "logger"):
            continue
        for argument in node.args:
            cut = argument.value if isinstance(argument, ast.Subscript) else argument
            name = cut.attr if isinstance(cut, ast.Attribute) else ""
            name = cut.id if isinstance(cut, ast.Name) else name
            if name in FROM_OUTSIDE:
                found.append(f"{path.name}:{argument.lineno} {ast.unparse(argument)}")
    return found


PACKAGES = [qwen3tts_phone, qwen3tts_agent]


def _modules(package: ModuleType) -> list[Path]:
    """Modules of a package, without those that log errors of their own processes and services."""
    files = sorted(Path(str(package.__file__)).parent.rglob("*.py"))
    return [path for path in files if path.parent.name not in ("recognition", "media")]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_log_line_of_a_call_has_a_value_of_the_far_end_as_it_came(package: ModuleType) -> None:
    files = _modules(package)
    assert files
    assert not [each for path in files for each in _bare_arguments(path)]


def test_no_log_line_of_the_plugins_desk_has_a_value_of_the_far_end_as_it_came() -> None:
    files = sorted((Path(mr_qwen3tts.__file__).parent / "calls").rglob("*.py"))
    assert files
    assert not [each for path in files for each in _bare_arguments(path)]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_log_line_of_a_call_has_the_text_of_an_unexpected_exception(package: ModuleType) -> None:
    """It may hold what came by the network; ``traceback_without_message`` leaves it out."""
    for path in _modules(package):
        text = path.read_text("utf-8")
        assert "log.exception(" not in text, path
        assert "logger.exception(" not in text, path
