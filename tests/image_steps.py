"""The steps of a Dockerfile, done in a folder and an environment instead of an image.

What is copied goes through .dockerignore: a file that is missing there is missing here, too.
Steps that need root, or network beyond package installs, are left out.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

IMAGE_ENV = "/opt/mr-qwen3tts"
"""Where the image has its environment."""
LEFT_OUT = ("useradd", "apt-get", f"python -m venv {IMAGE_ENV}")
"""What RUN does that is left out."""


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Name and rest of each, lines that go on joined."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [
        (line.split(None, 1)[0], line.split(None, 1)[1]) for line in joined.splitlines() if line
    ]


class DockerIgnore:
    """Which files of a context the builder is given."""

    def __init__(self, text: str) -> None:
        lines = [line.strip() for line in text.splitlines()]
        self._rules = [
            (not line.startswith("!"), _pattern(line.removeprefix("!")))
            for line in lines
            if line and not line.startswith("#")
        ]

    def ignores(self, path: PurePosixPath) -> bool:
        """Whether a file is left out: the last line that fits it, or a folder above it, decides."""
        names = [str(path), *(str(each) for each in path.parents if str(each) != ".")]
        ignored = False
        for ignore, pattern in self._rules:
            if any(pattern.fullmatch(name) for name in names):
                ignored = ignore
        return ignored


def _pattern(line: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", line.strip("/"))
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(known.get(part) or re.escape(part) for part in parts))


def copy(context: Path, ignore: DockerIgnore, sources: list[str], to: Path) -> None:
    """Do a COPY; raises ``FileNotFoundError`` where nothing is left of a source."""
    for source in sources:
        found = context / source
        files = [each for each in found.rglob("*") if each.is_file()] if found.is_dir() else [found]
        kept = [each for each in files if not ignore.ignores(_relative(each, context))]
        if not kept:
            raise FileNotFoundError(f"COPY {source}: .dockerignore leaves nothing of it")
        for each in kept:
            below = each.relative_to(found if found.is_dir() else found.parent)
            (to / below).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(each, to / below)


def _relative(path: Path, context: Path) -> PurePosixPath:
    return PurePosixPath(path.relative_to(context).as_posix())


def replay(
    dockerfile: Path, context: Path, args: Mapping[str, str], root: Path, env: Path
) -> list[str]:
    """Do the steps in ``root``, with ``env`` in place of the image's environment.

    Returns the command that the image starts, as it can be run here.

    Raises:
        CalledProcessError: a RUN failed.
        FileNotFoundError: nothing is left of what a COPY names.
    """
    ignore = DockerIgnore((context / ".dockerignore").read_text("utf-8"))
    given: dict[str, str] = {}
    at = root
    command: list[str] = []
    for name, rest in instructions(dockerfile):
        if name == "ARG":
            variable, _, default = rest.partition("=")
            given[variable] = args.get(variable, default)
        elif name == "WORKDIR":
            at = root / rest.lstrip("/")
            at.mkdir(parents=True, exist_ok=True)
        elif name == "COPY" and not rest.startswith("--from"):
            *sources, to = rest.split()
            target = root / to.lstrip("/") if to.startswith("/") else at / to
            if not to.endswith("/") and to != "./" and (context / sources[0]).is_file():
                copy(context, ignore, sources, target.parent)
            else:
                copy(context, ignore, sources, target)
        elif name == "RUN" and not any(each in rest for each in LEFT_OUT):
            # The shell fills in the ARGs; nothing else of the environment has a part in it.
            there = {**os.environ, **given, "PATH": f"{env / 'bin'}:{os.environ['PATH']}"}
            line = rest.replace(IMAGE_ENV, shlex.quote(str(env)))
            subprocess.run(["sh", "-ec", line], cwd=at, env=there, check=True)
        elif name == "ENTRYPOINT":
            command = [
                str(root / each.lstrip("/")) if each.startswith("/") else each
                for each in json.loads(rest)
            ]
    return [str(env / "bin" / command[0]), *command[1:]]
