"""The unit and the Dockerfiles name what there is; the page of operations names all settings."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pytest
import typer

from qwen3tts_cli.main import app
from qwen3tts_server.configuration import load_configuration
from qwen3tts_server.logs import LogSettings
from qwen3tts_server.settings import AccessSettings, ServerSettings
from tests.image_steps import DockerIgnore, copy, instructions

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "deploy" / "systemd" / "mr-qwen3tts.service"
DOCKERFILES = [ROOT / "deploy" / "docker" / f"Dockerfile.{kind}" for kind in ("cpu", "cuda")]
PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")


def options() -> set[str]:
    command = cast(Any, typer.main.get_command(app)).commands["serve"]
    return {option for each in command.params for option in each.opts}


def given(command: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", command))


def test_the_unit_starts_the_server_with_options_that_there_are() -> None:
    entries = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line)
    command = entries["ExecStart"]
    assert re.search(r"/bin/mr-qwen3tts serve ", command)
    assert given(command)
    assert given(command) <= options()
    assert entries["KillMode"] == "mixed"
    assert entries["Type"] == "notify"
    drain_s = load_configuration(ROOT / "configs" / "server.yaml", {}).server.drain_timeout_s
    assert float(entries["TimeoutStopSec"]) > drain_s + 10


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_copies_what_there_is_and_starts_the_server(dockerfile: Path) -> None:
    steps = instructions(dockerfile)
    known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "LABEL"}
    assert {name for name, _ in steps} <= known | {"STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    copied = [rest.split()[:-1] for name, rest in steps if name == "COPY" and "--from" not in rest]
    for source in (each for sources in copied for each in sources):
        assert (ROOT / source).exists(), source
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    roots = {each.split("/")[0] for each in packages["targets"]["wheel"]["packages"]}
    assert roots <= {each for sources in copied for each in sources}
    command = " ".join(rest for name, rest in steps if name in ("ENTRYPOINT", "CMD"))
    assert '"mr-qwen3tts", "serve"' in command
    assert given(command) <= options()
    (user,) = (rest for name, rest in steps if name == "USER")
    assert user != "root"
    assert ("EXPOSE", str(ServerSettings().port)) in steps


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_sets_settings_and_extras_that_there_are(dockerfile: Path) -> None:
    text = dockerfile.read_text()
    variables = re.findall(r"(QWEN3TTS__\w+)=(\S+)", text)
    assert load_configuration(None, dict(variables)).server.host == "0.0.0.0"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.findall(r"EXTRAS=(\S+)", text) + re.findall(r"--extras ([\w,]+)", text)
    assert extras
    for each in extras:
        assert set(each.rstrip(",").split(",")) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_keeps_the_rules_of_the_trade(dockerfile: Path) -> None:
    steps = instructions(dockerfile)
    stages: list[str] = []
    for name, rest in steps:
        if name == "FROM":
            image, _, stage = rest.partition(" AS ")
            assert image in stages or re.fullmatch(r"[\w./-]+:(?!latest)[\w.${}-]+", image), image
            stages.append(stage)
        elif name == "ARG" and "=" in rest:
            assert not rest.endswith("=latest")
        elif name in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(each, str) for each in json.loads(rest)), "exec form"
        elif name == "HEALTHCHECK":
            assert json.loads(rest.partition("CMD ")[2]), "exec form"
        elif name == "WORKDIR":
            assert rest.startswith("/")
        elif name == "RUN":
            assert not re.search(r"\b(sudo|curl|wget|pip install)\b", rest), rest
            if "apt-get" in rest:
                assert "apt-get update && apt-get install" in rest
                assert "--no-install-recommends" in rest
                assert "rm -rf /var/lib/apt/lists/*" in rest
        if name in ("ARG", "ENV"):
            assert not re.search(r"(KEY|TOKEN|PASSWORD|SECRET)\w*=", rest), "a layer keeps it"
    last = max(at for at, (name, _) in enumerate(steps) if name == "FROM")
    final = [name for name, _ in steps[last:]]
    for once in ("USER", "HEALTHCHECK", "ENTRYPOINT"):
        assert final.count(once) == 1, once
    assert "RUN" not in final[final.index("USER") :], "it runs without rights, and is not built so"


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_what_a_dockerfile_copies_comes_through_dockerignore(
    dockerfile: Path, tmp_path: Path
) -> None:
    ignore = DockerIgnore((ROOT / ".dockerignore").read_text("utf-8"))
    for name, rest in instructions(dockerfile):
        if name == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split()
            copy(ROOT, ignore, sources, tmp_path)
    assert (tmp_path / "qwen3tts_cli" / "main.py").exists()
    assert (tmp_path / "locked_install.py").exists()
    assert not list(tmp_path.rglob("__pycache__"))


def test_a_line_of_dockerignore_is_undone_by_a_later_one_and_holds_for_what_is_below() -> None:
    ignore = DockerIgnore("# all\n*\n!kept\n!deploy/one.py\n**/cache\n")
    ignored = {
        path: ignore.ignores(PurePosixPath(path))
        for path in ("other", "kept/a/b.py", "kept/a/cache/b", "deploy/one.py", "deploy/two.py")
    }
    assert [path for path, left_out in ignored.items() if left_out] == [
        "other",
        "kept/a/cache/b",
        "deploy/two.py",
    ]


@pytest.mark.parametrize("settings", [AccessSettings, LogSettings])
def test_the_page_names_every_setting(settings: Any) -> None:
    for each in fields(settings):
        assert f"`{each.name}`" in PAGE or f"logging.{each.name}" in PAGE, each.name


def test_what_the_page_names_is_there() -> None:
    known = {each.name for each in fields(ServerSettings)}
    known_access = {each.name for each in fields(AccessSettings)}
    for section, name in re.findall(r"`server\.(\w+)(?:\.(\w+))?", PAGE):
        assert section in known or section == "draining", section
        assert section != "access" or not name or name in known_access, name
    for path in re.findall(r"`((?:deploy|configs|server)/[\w./-]+)`", PAGE):
        assert (ROOT / path).exists(), path
    assert given(re.sub(r"(?m)^(docker|openssl).*$", "", PAGE)) - options() <= {
        "--offline",
        "--rm",
        "--server-config",
    }
