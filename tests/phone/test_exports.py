"""Names that the packages export, without loading them before they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import qwen3tts_agent
import qwen3tts_phone

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
