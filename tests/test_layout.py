"""The rules of the tree, so that no one has to remember them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = "mr_qwen3tts"
PACKAGES = {
    PLUGIN: ".",
    "qwen3tts_codecs": "codecs",
    "qwen3tts_pacer": "pacer",
    "qwen3tts_text": "server",
    "qwen3tts_wire": "server",
    "qwen3tts_settings": "server",
    "qwen3tts_engine": "server",
    "qwen3tts_server": "server",
    "qwen3tts_speech": "phone",
    "qwen3tts_phone": "phone",
    "qwen3tts_agent": "phone",
    "qwen3tts_cli": "cli",
}
SPEECH = {"qwen3tts_text", "qwen3tts_wire", "qwen3tts_pacer", "qwen3tts_codecs"}
MAY_IMPORT = {
    PLUGIN: {"qwen3tts_speech", "qwen3tts_settings", *SPEECH},
    "qwen3tts_codecs": set[str](),
    "qwen3tts_pacer": set[str](),
    "qwen3tts_text": set[str](),
    "qwen3tts_wire": {"qwen3tts_text"},
    "qwen3tts_settings": {"qwen3tts_text", "qwen3tts_wire"},
    "qwen3tts_engine": {
        "qwen3tts_settings",
        "qwen3tts_text",
        "qwen3tts_codecs",
        "qwen3tts_wire",
    },
    "qwen3tts_server": {
        "qwen3tts_engine",
        "qwen3tts_settings",
        "qwen3tts_text",
        "qwen3tts_wire",
        "qwen3tts_codecs",
    },
    "qwen3tts_speech": {"qwen3tts_settings", *SPEECH},
    "qwen3tts_phone": {"qwen3tts_speech", "qwen3tts_settings", *SPEECH},
    "qwen3tts_agent": {"qwen3tts_phone", "qwen3tts_speech", "qwen3tts_settings", *SPEECH},
    "qwen3tts_cli": set(PACKAGES) - {PLUGIN},
}
IMPORT_ROOTS = sorted(set(PACKAGES.values()) - {"."})


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


@pytest.mark.parametrize("folder", [".", *IMPORT_ROOTS])
def test_an_import_root_holds_just_its_packages(folder: str) -> None:
    found = {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}
    assert found == {package for package, root in PACKAGES.items() if root == folder}
    assert not list((ROOT / folder).glob("*.py"))


@pytest.mark.parametrize("package", list(PACKAGES))
def test_imports_point_one_way(package: str) -> None:
    for path in (ROOT / PACKAGES[package] / package).rglob("*.py"):
        where = path.relative_to(ROOT).as_posix()
        names = imported_names(path)
        own_line = package == PLUGIN and path.name.startswith("desk")
        phone = {"qwen3tts_phone", "qwen3tts_agent"} if own_line else set[str]()
        assert names & set(PACKAGES) - {package} <= MAY_IMPORT[package] | phone, where
        assert "torch" not in names or "qwen3tts_engine/qwen3/" in where, where
        assert "lib" not in names or where == f"{PLUGIN}/mod.py", where


def test_only_the_plugins_page_needs_the_hosts_web_framework() -> None:
    for path in (ROOT / PLUGIN).rglob("*.py"):
        if path.name not in ("page.py", "mod.py"):
            assert not imported_names(path) & {"fastapi", "starlette", "jinja2"}, path.name


def test_the_plugins_functions_stand_where_the_host_takes_its_name_from() -> None:
    """The host calls a provider by the folder that holds the module with the decorators."""
    for path in (ROOT / PLUGIN).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        decorated = any(f"\n@{name}(" in text for name in ("command", "service", "hook", "pipe"))
        assert not decorated or path == ROOT / PLUGIN / "mod.py", path


def test_the_plugin_is_imported_with_the_base_dependencies_and_the_host_alone() -> None:
    hidden = ["sipmessage", "httpx", "uvicorn", "torch", "av", "qwen3tts_phone", "qwen3tts_server"]
    path = [str(ROOT / folder) for folder in (".", *IMPORT_ROOTS, "tests/mindroot")]
    lines = (
        "import sys",
        f"sys.path[:0] = {path}",
        f"sys.modules.update(dict.fromkeys({hidden}))",
        "import mr_qwen3tts",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, timeout=60)


def test_every_module_of_the_plugin_imports_its_neighbours_by_dots() -> None:
    for path in (ROOT / PLUGIN).rglob("*.py"):
        assert PLUGIN not in imported_names(path), path.name


def test_the_hosts_description_of_the_plugin_says_what_the_package_says() -> None:
    """The host reads ``plugin_info.json``; its name must be the folder's, its version ours."""
    said = json.loads((ROOT / "plugin_info.json").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert said["name"] == said["pypi_module"] == project["name"] == PLUGIN
    assert said["version"] == project["version"]
    functions = {
        node.name
        for node in ast.walk(ast.parse((ROOT / PLUGIN / "mod.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)
    }
    assert {*said["commands"], *said["services"]} <= functions


@pytest.mark.parametrize("package", list(PACKAGES))
def test_every_package_is_typed_and_in_the_wheel(package: str) -> None:
    place = (Path(PACKAGES[package]) / package).as_posix()
    assert (ROOT / place / "py.typed").exists()
    assert f'"{place}"' in (ROOT / "pyproject.toml").read_text("utf-8")
