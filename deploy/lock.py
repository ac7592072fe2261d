"""Write constraints.txt: each version that the project is tested with, and its files' hashes.

    make lock                                    # after a change of pyproject.toml
    make lock LOCK_ARGS='--upgrade-package h11'  # or --upgrade: newer versions of all

Versions that stand in the file stay unless they are asked to change or no longer fit. The file
holds for Linux, macOS and Windows and for every Python that the project supports.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
HEADER = """\
# What the project is tested with: versions, and the SHA-256 of each file that may be installed.
# Written by `make lock`; pyproject.toml has the wide bounds. Install with deploy/locked_install.py.
"""
CPU_BUILDS = {
    # torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl
    "torch==2.13.0": "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",
}
"""Files of torch's own index of CPU builds, which the package index does not list."""


def with_cpu_builds(text: str) -> str:
    """Add the hashes of CPU_BUILDS to the pins that they belong to.

    Raises:
        ValueError: a pin is not in the text: its version changed, and CPU_BUILDS has to as well.
    """
    for pin, digest in CPU_BUILDS.items():
        line = f"\n{pin} \\\n"
        if line not in text:
            raise ValueError(f"{pin} is not locked; give CPU_BUILDS the build that is.")
        text = text.replace(line, f"{line}    --hash=sha256:{digest} \\\n")
    return text


def main() -> None:
    """Resolve with uv, which is in the dependency group ``lock``."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    command = [sys.executable, "-m", "uv", "--quiet", "pip", "compile", "pyproject.toml"]
    command += ["--all-extras", "--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-annotate", "--no-header", "--output-file", str(CONSTRAINTS)]
    for group in groups:
        command += ["--group", group]
    subprocess.run([*command, *sys.argv[1:]], cwd=ROOT, check=True)
    CONSTRAINTS.write_text(HEADER + with_cpu_builds(CONSTRAINTS.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
