"""The README: its picture, its sound, its links, its extras, its commands; word error rates."""

from __future__ import annotations

import json
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import typer

from qwen3tts_cli.main import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text("utf-8")
SOUND = "docs/pictures/demo_call.opus"


def test_the_readme_opens_with_a_picture_a_sound_and_what_works_with_what() -> None:
    opening = PAGE.partition("\n## ")[0]
    picture = opening.index("](docs/pictures/softphone_light_1280.png)")
    sound = opening.index(f"]({SOUND})")
    table = opening.index("| works with nothing | needs a model | needs a GPU |")
    assert picture < sound < table
    assert len(PAGE.splitlines()) <= 220


def test_the_sound_is_a_short_call_in_opus() -> None:
    assert (ROOT / SOUND).stat().st_size <= 200_000
    with av.open(str(ROOT / SOUND)) as container:
        [stream] = container.streams
        assert stream.codec_context.name == "opus"
        sides = np.concatenate(
            [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
        )
        assert container.duration is not None
        assert 5 < container.duration / 1e6 < 30
    assert float(np.abs(sides).max()) > 0.1


@pytest.mark.parametrize("page", ["README.md", "benchmarks/results/README.md", "docs/docker.md"])
def test_what_a_page_links_to_is_there(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in link:
            assert (ROOT / page).parent.joinpath(link).exists(), link


def test_the_readme_names_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for each in project["optional-dependencies"]:
        assert f"`{each}`" in PAGE, each


def test_the_readmes_commands_have_their_options() -> None:
    click: Any = typer.main.get_command(app)
    for line in re.findall(r"(?m)^    (?:.*&& )?mr-qwen3tts (.*)$", PAGE):
        name, _, rest = line.partition("  #")[0].partition(" ")
        params = click.commands[name].params
        known = {option for each in params for option in (*each.opts, *each.secondary_opts)}
        unquoted = re.sub(r"\"[^\"]*\"|'[^']*'", "", rest)
        assert set(re.findall(r"(?<!\S)--[a-z][\w-]*", unquoted)) <= known, line


def test_word_error_rates_are_those_of_the_last_run() -> None:
    last = max(ROOT.glob("benchmarks/results/*-2-cores/voices.json"))
    found = {
        name: f"{value:.3g}" for name, value in json.loads(last.read_text())["figures"].items()
    }
    [row] = re.findall(r"(?m)^\| `voices`: .*$", PAGE)
    assert f"| {found['piper_wer_pcmu']}, {found['embedded_wer_pcmu']} % |" in row


def test_at_most_eight_figures_stand_in_the_readme_with_misses_among_them() -> None:
    part = PAGE.partition("\n## Measured\n")[2].partition("\n## ")[0]
    rows = re.findall(r"(?m)^\| `\w+`: .*$", part)
    assert 0 < len(rows) <= 8
    assert any("missed" in row for row in rows)


def test_the_page_of_results_is_made_from_the_result_files() -> None:
    table = runpy.run_path(str(ROOT / "benchmarks" / "results" / "table.py"))
    assert (ROOT / "benchmarks/results/README.md").read_text("utf-8") == table["page"]()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("twenty five", "25"),
        ("the twenty-fifth", "the 25th"),
        ("at three thirty", "At 3:30."),
        ("five five five, zero one four two", "555-0142"),
        ("five oh five", "505"),
        ("one hundred and forty two dollars", "$142"),
        ("nine a.m.", "9:00 AM"),
        ("Doctor Miller's", "Dr. Miller's"),
        ("I'm sorry", "I am sorry"),
        ("second", "2nd"),
    ],
)
def test_numbers_are_compared_whatever_way_they_are_written(one: str, other: str) -> None:
    counted = runpy.run_path(str(ROOT / "benchmarks" / "hearing" / "word_errors.py"))
    assert counted["words"](one) == counted["words"](other)


def test_errors_are_words_inserted_left_out_and_exchanged() -> None:
    errors = runpy.run_path(str(ROOT / "benchmarks" / "hearing" / "word_errors.py"))["errors"]
    said = ["we", "open", "at", "8"]
    assert errors(said, said) == 0
    assert errors(said, ["we", "opened", "at", "8"]) == 1
    assert errors(said, ["we", "at", "8", "now"]) == 2
    assert errors(said, []) == 4
