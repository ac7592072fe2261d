"""What the package offers at its top, without loading it before it is asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import qwen3tts_phone

SOURCE = Path(qwen3tts_phone.__file__)


@pytest.mark.parametrize("name", qwen3tts_phone.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(qwen3tts_phone, name) is not None
    assert name in dir(qwen3tts_phone)


def test_what_a_type_checker_sees_is_what_is_loaded() -> None:
    tree = ast.parse(SOURCE.read_text("utf-8"))
    [checking] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        (node.module, alias.name)
        for node in checking.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    loaded = {(module, name) for name, module in qwen3tts_phone._MODULE.items()}
    assert seen == loaded
    assert {name for _, name in seen} == set(qwen3tts_phone.__all__)


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Telephone'"):
        _ = qwen3tts_phone.Telephone


def test_importing_it_loads_nothing_of_it() -> None:
    code = (
        "import sys; before = set(sys.modules); import qwen3tts_phone; "
        "print(*[name for name in set(sys.modules) - before if '.' in name or 'numpy' in name])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    ).stdout.split()
    assert not [name for name in loaded if name.startswith(("qwen3tts_phone.", "numpy"))]
