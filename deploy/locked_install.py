"""Install the project with exactly the files that constraints.txt names, by version and hash.

    python deploy/locked_install.py --extras server,embedded --python .venv/bin/python

pip can check hashes of what comes from an index only, not of a folder. So first comes pip itself,
then the requirements of the extras and groups that were asked for, and what builds the project, all
checked; then the project itself, without its requirements and without fetching anything.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
_OF_OURSELVES = re.compile(r"mr_qwen3tts\[(?P<extras>[^\]]*)\]")


def requirements(metadata: dict[str, Any], extras: Iterable[str]) -> list[str]:
    """Return the requirements of the project with its extras, those of ``all`` and the like too.

    Raises:
        ValueError: there is no such extra.
    """
    project = metadata["project"]
    known: dict[str, list[str]] = project["optional-dependencies"]
    found: list[str] = list(project["dependencies"])
    todo, seen = list(extras), set[str]()
    while todo:
        extra = todo.pop()
        if extra in seen:
            continue
        seen.add(extra)
        if extra not in known:
            raise ValueError(f"There is no extra {extra!r}; there are {', '.join(sorted(known))}.")
        for requirement in known[extra]:
            if ours := _OF_OURSELVES.fullmatch(requirement):
                todo += [each.strip() for each in ours["extras"].split(",")]
            else:
                found.append(requirement)
    return list(dict.fromkeys(found))


def upgrade_pip(python: str) -> None:
    """Install the locked pip: older ones take no hashes from constraints.

    Raises:
        subprocess.CalledProcessError: pip refused; it has printed why.
    """
    pin = re.search(r"(?m)^pip==[^\\]*(?:\\\n[^\\\n]*)*\n", CONSTRAINTS.read_text(encoding="utf-8"))
    if pin is None:
        raise ValueError(f"{CONSTRAINTS} does not name pip: make lock")
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(pin[0])
        file.flush()
        options = ["--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps"]
        command = [python, "-m", "pip", "install", *options, "--requirement", file.name]
        subprocess.run(command, check=True)


def install(
    python: str,
    extras: Sequence[str],
    groups: Sequence[str] = (),
    *,
    editable: bool = False,
    options: Sequence[str] = (),
) -> None:
    """Install into the environment of ``python``; ``options`` are pip's, for what it fetches.

    Raises:
        subprocess.CalledProcessError: pip refused; it has printed why.
    """
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    upgrade_pip(python)
    wanted = requirements(metadata, extras)
    if any(re.match(r"torch\b", requirement) for requirement in wanted):
        # A CPU build in a folder of find-links, if its hash is known, is preferred to the index's
        # CUDA build with its gigabytes; without one nothing happens.
        local = ["--no-index", "--no-deps", "--constraint", str(CONSTRAINTS), "torch"]
        subprocess.run([*pip, *local], stderr=subprocess.DEVNULL, check=False)
    for group in ("build", *groups):
        wanted += ["--group", f"{ROOT / 'pyproject.toml'}:{group}"]
    subprocess.run([*pip, "--constraint", str(CONSTRAINTS), *options, *wanted], check=True)
    project = ["--editable", str(ROOT)] if editable else [str(ROOT)]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--no-index", *project], check=True)


def main() -> None:
    """Read the command line and install."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="the environment's interpreter")
    parser.add_argument("--extras", default="", help="separated by commas")
    parser.add_argument("--group", action="append", default=[], help="a dependency group")
    parser.add_argument("--editable", action="store_true", help="install the checkout in place")
    parser.add_argument("--pip-only", action="store_true", help="install the locked pip, no more")
    parser.add_argument("--pip-options", default="", help="more options for pip, one string")
    args = parser.parse_args()
    extras = [extra for extra in args.extras.split(",") if extra]
    try:
        if args.pip_only:
            upgrade_pip(args.python)
            return
        install(
            args.python,
            extras,
            args.group,
            editable=args.editable,
            options=args.pip_options.split(),
        )
    except (ValueError, subprocess.CalledProcessError) as error:
        sys.exit(f"locked_install: {error}")


if __name__ == "__main__":
    main()
