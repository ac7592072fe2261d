"""docs/rehearsal.md: its tables, its example and its commands are those of the code."""

from __future__ import annotations

import re
import textwrap

import typer.main

from qwen3tts_cli.main import app
from qwen3tts_rehearsal.scenario import scenario_of
from qwen3tts_settings.entries import from_yaml
from tests.rehearsal.scenario_tables import PAGE, written

TEXT = PAGE.read_text("utf-8")


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    assert written(TEXT) == TEXT, "run python -m tests.rehearsal.scenario_tables"


def test_the_example_of_the_page_is_a_scenario() -> None:
    found = re.search(r"    name: table_for_two\n(?:    .*\n)*", TEXT)
    assert found is not None
    scenario = scenario_of(from_yaml(textwrap.dedent(found[0]), "page"), "page")
    assert len(scenario.steps) == 10


def test_the_options_of_the_page_are_those_of_the_command() -> None:
    command = vars(typer.main.get_command(app))["commands"]["rehearse"]
    known = {name for each in command.params for name in each.opts}
    for option in set(re.findall(r"`(--[a-z-]+)", TEXT)):
        assert option in known, option
