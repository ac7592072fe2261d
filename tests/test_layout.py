"""The rules of the tree, so that no one has to remember them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "qwen3tts_codecs": "codecs",
    "qwen3tts_pacer": "pacer",
    "qwen3tts_wire": "server",
    "qwen3tts_engine": "server",
    "qwen3tts_server": "server",
    "qwen3tts_speech": "phone",
    "qwen3tts_phone": "phone",
    "qwen3tts_cli": "cli",
}
SPEECH = {"qwen3tts_wire", "qwen3tts_pacer", "qwen3tts_codecs"}
MAY_IMPORT = {
    "qwen3tts_codecs": set[str](),
    "qwen3tts_pacer": set[str](),
    "qwen3tts_wire": set[str](),
    "qwen3tts_engine": {"qwen3tts_codecs", "qwen3tts_wire"},
    "qwen3tts_server": {"qwen3tts_engine", "qwen3tts_wire", "qwen3tts_codecs"},
    "qwen3tts_speech": SPEECH,
    "qwen3tts_phone": {"qwen3tts_speech", *SPEECH},
    "qwen3tts_cli": set(PACKAGES),
}
IMPORT_ROOTS = sorted(set(PACKAGES.values()))


def imported_names(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("folder", [".", *IMPORT_ROOTS])
def test_import_roots_are_not_packages(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()


@pytest.mark.parametrize("folder", IMPORT_ROOTS)
def test_an_import_root_holds_just_its_packages(folder: str) -> None:
    found = {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}
    assert found == {package for package, root in PACKAGES.items() if root == folder}
    assert not list((ROOT / folder).glob("*.py"))


@pytest.mark.parametrize("package", list(PACKAGES))
def test_imports_point_one_way(package: str) -> None:
    for path in (ROOT / PACKAGES[package] / package).rglob("*.py"):
        where = path.relative_to(ROOT).as_posix()
        names = imported_names(path)
        assert names & set(PACKAGES) - {package} <= MAY_IMPORT[package], where
        assert "torch" not in names or "qwen3tts_engine/qwen3/" in where, where
        assert "lib" not in names, where


@pytest.mark.parametrize("package", list(PACKAGES))
def test_every_package_is_typed_and_in_the_wheel(package: str) -> None:
    assert (ROOT / PACKAGES[package] / package / "py.typed").exists()
    assert f'"{PACKAGES[package]}/{package}"' in (ROOT / "pyproject.toml").read_text("utf-8")
