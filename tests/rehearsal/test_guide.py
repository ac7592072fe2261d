"""The guide's workflow is YAML whose commands have their options; what it links to is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from qwen3tts_cli.main import app
from qwen3tts_cli.rehearsal_page.page import MAX_CALLS, MAX_DRAWN, MAX_EMBEDDED_BYTES
from qwen3tts_rehearsal.carrier_dialects import DIALECTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "rehearsal.md").read_text("utf-8")


def commands() -> list[str]:
    """Each command of the page, in one line."""
    [workflow] = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    steps = yaml.safe_load(workflow)["jobs"]["rehearsal"]["steps"]
    lines = [line for step in steps for line in str(step.get("run", "")).splitlines()]
    lines += re.findall(r"(?m)^    (mr-qwen3tts .*)$", PAGE)
    return [line.strip() for line in lines if line.strip().startswith("mr-qwen3tts ")]


def test_its_commands_have_their_options() -> None:
    click: Any = typer.main.get_command(app)
    assert len(commands()) >= 4
    for line in commands():
        _, name, *rest = line.split()
        known = {option for each in click.commands[name].params for option in each.opts}
        assert {each for each in rest if each.startswith("--")} <= known, line


@pytest.mark.parametrize("carrier", DIALECTS)
def test_it_names_each_carrier(carrier: str) -> None:
    assert f"`{carrier}`" in PAGE


def test_its_bounds_are_the_codes() -> None:
    assert f"{MAX_EMBEDDED_BYTES // 1_000_000} MB" in PAGE
    assert f"draws {MAX_DRAWN} calls" in PAGE
    assert f"{MAX_CALLS:,}, failed ones" in PAGE
