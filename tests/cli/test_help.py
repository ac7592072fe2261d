"""Every subcommand's help as a newcomer sees it, in 80 columns."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from rich.cells import cell_len
from typer.main import get_command

from qwen3tts_cli import main, say
from qwen3tts_cli.main import app, run
from qwen3tts_cli.output.help import SHORT_PAGE_OPTIONS, CommandList, first_options

COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
FIRST = {
    module.__name__.removesuffix(".command").rpartition(".")[2]: module.FIRST_OPTIONS
    for module in main.COMMANDS
    if hasattr(module, "FIRST_OPTIONS")
}
MANY = [
    name for name, each in COMMANDS.items() if "--help-all" in str([p.opts for p in each.params])
]


def page(*arguments: str, width: int = 80) -> str:
    answer = typer.testing.CliRunner().invoke(
        app, [*arguments], env={"COLUMNS": str(width), "TERM": "dumb", "NO_COLOR": "1"}
    )
    assert answer.exit_code == 0, answer.output
    return answer.output


def shown_options(text: str) -> set[str]:
    """Options that begin a row of a panel."""
    rows = [line.strip("│ ") for line in text.splitlines() if line.startswith("│ -")]
    return {re.sub(r"^-\w, ", "", row).split()[0].rstrip(",") for row in rows}


def own(name: str) -> list[Any]:
    options = [each for each in COMMANDS[name].params if each.param_type_name == "option"]
    return [each for each in options if "--help-all" not in each.opts]


def test_all_commands_with_many_options_have_a_first_page() -> None:
    assert (
        set(FIRST)
        == set(MANY)
        == {name for name in COMMANDS if len(own(name)) > SHORT_PAGE_OPTIONS}
    )
    for names in FIRST.values():
        assert len(names) == len(set(names)) == SHORT_PAGE_OPTIONS


@pytest.mark.parametrize("name", MANY)
def test_help_shows_the_first_options_and_says_where_the_rest_is(name: str) -> None:
    text = page(name, "--help")
    assert shown_options(text) == {*FIRST[name], "--help-all", "--help"}
    assert (
        f"{len(own(name)) - SHORT_PAGE_OPTIONS} more options: mr-qwen3tts {name} --help-all"
        in " ".join(text.replace("root", "mr-qwen3tts").split())
    )


@pytest.mark.parametrize("name", MANY)
def test_help_all_shows_every_option_in_panels(name: str) -> None:
    text = page(name, "--help-all")
    whole = {next(o for o in each.opts if o.startswith("--")) for each in own(name)}
    assert whole <= shown_options(text)
    panels = {each.rich_help_panel for each in own(name)} - {None}
    for panel in panels:
        assert f"─ {panel} ─" in text


@pytest.mark.parametrize("name", ["", *COMMANDS])
@pytest.mark.parametrize("flag", ["--help", "--help-all"])
@pytest.mark.parametrize("width", [80, 60])
def test_nothing_is_cut_and_no_type_is_shown(name: str, flag: str, width: int) -> None:
    if flag == "--help-all" and name not in MANY:
        return
    text = page(*filter(None, [name]), flag, width=width)
    framed = [line for line in text.splitlines() if line.startswith(("│", "╭", "╰"))]
    assert all(cell_len(line) == width for line in framed)
    assert not re.search(r"\w… *│", text)
    assert "<bool>" not in text
    for each in [each for each in COMMANDS[name].params if name] if name else []:
        for option in [*each.opts, *each.secondary_opts] if flag == "--help-all" else []:
            if each.param_type_name == "option":
                assert re.search(rf"(?<![\w-]){option}(?![\w-])", text), option


def test_a_new_option_lands_on_the_second_page() -> None:
    new = type("New", (), {"opts": ["--new"], "param_type_name": "option"})()
    options = [*COMMANDS["say"].params, new]
    assert new not in first_options(
        say.FIRST_OPTIONS, [o for o in options if o.param_type_name == "option"]
    )


def test_an_example_is_one_line_that_can_be_copied() -> None:
    text = page("call", "--help")
    examples = [line for line in text.splitlines() if line.startswith("   mr-qwen3tts")]
    assert len(examples) >= 4
    assert any(len(line) > 100 for line in examples)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("call", "sip:bob@127.0.0.1", "--transfr", "x"), "--transfer"),
        (("serve", "--dry-timout-s", "1"), "--dry-timeout-s"),
        (("say", "x", "--x-vector-onl"), "--x-vector-only"),
    ],
)
def test_an_error_names_options_of_the_second_page(
    arguments: tuple[str, ...], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert meant in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "begun", "found"), [("call", "--srt", "--srtp"), ("say", "--se", "--seed")]
)
def test_completion_knows_options_of_the_second_page(
    name: str,
    begun: str,
    found: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("_MR_QWEN3TTS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"mr-qwen3tts {name} {begun}")
    monkeypatch.setenv("COMP_CWORD", "2")
    run([])
    assert found in capsys.readouterr().out.split()


NEW_COMMAND = """
import typer
from typing import Annotated


def add_to(app):
    app.command()(greet)


def greet(
    name: str,
    loudly: Annotated[bool, typer.Option(help="In capitals.")] = False,
) -> None:
    \"\"\"Greet somebody.\"\"\"
    typer.echo(name.upper() if loudly else name)
"""


def test_a_command_is_one_file_and_one_line_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "greeting_for_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "greet.py").write_text(NEW_COMMAND)
    monkeypatch.syspath_prepend(str(tmp_path))
    extended = typer.Typer(cls=CommandList)
    greet = importlib.import_module("greeting_for_a_test.greet")
    main.add_commands(extended, (*main.COMMANDS, greet))
    runner = typer.testing.CliRunner()
    assert "Greet somebody." in runner.invoke(extended, ["--help"]).output
    assert "--loudly" in runner.invoke(extended, ["greet", "--help"]).output
    assert runner.invoke(extended, ["greet", "Bob", "--loudly"]).output == "BOB\n"
