"""The table of engines: who reads it, and that one entry is all that a new engine needs there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import qwen3tts_engine
from qwen3tts_engine.table import ENGINES

ROOT = Path(__file__).resolve().parent.parent.parent

BEEP = """
from dataclasses import dataclass

from qwen3tts_engine.base import SAMPLE_RATE, PcmChunk, Voice


@dataclass(frozen=True, slots=True)
class BeepSettings:
    hertz: float = 440.0
    voice: str = "beep"


class BeepEngine:
    name = model = "beep"
    sample_rate = SAMPLE_RATE
    options = frozenset()
    alignment = "none"

    def __init__(self, settings):
        self.settings = settings

    def modes(self, voice):
        return ("clause",)

    async def start(self):
        pass

    async def close(self):
        pass

    def voices(self):
        return (Voice("beep", "Beep", "en"),)

    def check(self, voice, language):
        pass

    async def synthesize(self, request):
        half = round(SAMPLE_RATE / self.settings.hertz / 2)
        yield PcmChunk((b"\\x00\\x20" * half + b"\\x00\\xe0" * half) * len(request.text))
"""
ENTRY = """
        "beep": EngineEntry(
            "Beep",
            "qwen3tts_engine.beep:BeepEngine",
            "qwen3tts_engine.beep:BeepSettings",
            "beep",
            ("wave",),
        ),
"""
SPEAK = """
import asyncio, sys
from qwen3tts_cli.doctor.checks import EXTRAS
from qwen3tts_cli.voices import engine_label
from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_server.configuration import build_engine, load_configuration

async def main():
    engine = build_engine(load_configuration(sys.argv[1]))
    await engine.start()
    return [chunk.samples async for chunk in engine.synthesize(SynthesisRequest("hello"))]

print(asyncio.run(main()), engine_label("beep"), EXTRAS["beep"])
"""


@pytest.fixture
def beeping(tmp_path: Path) -> dict[str, str]:
    """The environment of a program whose engines have one more: a file, and an entry."""
    package = tmp_path / "qwen3tts_engine"
    ours = Path(qwen3tts_engine.__file__).parent
    shutil.copytree(ours, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "beep.py").write_text(BEEP, "utf-8")
    table = package / "table.py"
    before, line, after = table.read_text("utf-8").partition('        "embedded": EngineEntry(\n')
    table.write_text(before + ENTRY + line + after, "utf-8")
    (tmp_path / "beep.yaml").write_text("engine: {name: beep, beep: {hertz: 400}}\n", "utf-8")
    path = os.pathsep.join((str(tmp_path), *sys.path))
    unset = {key: value for key, value in os.environ.items() if not key.startswith("QWEN3TTS")}
    return {**unset, "PYTHONPATH": path, "BEEP": str(tmp_path / "beep.yaml")}


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_engine_is_one_file_and_one_entry(beeping: dict[str, str]) -> None:
    spoken = run(beeping, "-c", SPEAK, beeping["BEEP"])
    assert spoken.stdout.split("\n")[0] == "[300] Beep ('wave',)", spoken.stderr
    serve = ("-m", "qwen3tts_cli.main", "serve", "--print-config")
    shown = run(beeping, *serve, "--engine", "beep", "--set", "engine.beep.hertz=400")
    assert "  name: beep\n" in shown.stdout, shown.stderr
    assert "  beep:\n    hertz: 400\n    voice: beep\n" in shown.stdout
    refused = run(beeping, *serve, "--engine", "boop")
    assert refused.returncode == 2
    assert "'beep'" in refused.stderr
    refused = run(beeping, *serve, "--set", "engine.beep.herz=1")
    assert "Did you mean hertz?" in refused.stderr


@pytest.mark.parametrize("name", list(ENGINES))
def test_every_engine_stands_in_the_manual_and_has_its_extra(name: str) -> None:
    entry = ENGINES[name]
    manual = (ROOT / "docs" / "operations.md").read_text("utf-8")
    assert f"| `{name}` | `mr_qwen3tts[{entry.extras}]`" in manual
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert entry.extra in project["optional-dependencies"]
    assert entry.settings_class().__name__.endswith("Settings")
