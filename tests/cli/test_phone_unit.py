"""The phone's unit for systemd starts what there is, and stops it no sooner than it drains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import typer

from qwen3tts_cli.main import app
from qwen3tts_cli.output.exits import ExitCode

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "mr-qwen3tts-phone.service"


def test_the_unit_answers_with_options_that_there_are_and_waits_for_the_drain() -> None:
    entries = dict(
        line.split("=", 1) for line in UNIT.read_text("utf-8").splitlines() if "=" in line
    )
    command = entries["ExecStart"]
    assert re.search(r"/bin/mr-qwen3tts answer ", command)
    known = {
        option
        for each in cast(Any, typer.main.get_command(app)).commands["answer"].params
        for option in each.opts
    }
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", command)) <= known
    drain = re.search(r"--drain-seconds (\d+)", command)
    assert drain is not None
    assert int(entries["TimeoutStopSec"]) > int(drain[1]) + 10
    assert entries["KillMode"] == "mixed"
    assert int(entries["RestartPreventExitStatus"]) == ExitCode.USAGE
