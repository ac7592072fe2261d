"""Make the environment of the real MindRoot in .mindroot/, at the root of the tree.

The plugin is installed into it as MindRoot installs it: ``pip install -e``, with its base
dependencies only. A second run does nothing unless the requirements, this file, the interpreter, or
what the project's metadata says about installing have changed; changed sources need no new
installation.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MINDROOT = ROOT / ".mindroot"
REQUIREMENTS = HERE / "requirements.txt"
PYTHON = MINDROOT / "bin" / "python"
STAMP = MINDROOT / "made-from"
CHECKOUT = MINDROOT / "checkout" / "mr_qwen3tts"
"""The tree under the name that MindRoot asks for: it imports a plugin by its folder's name."""


def key() -> str:
    """What the environment was made from; another value means that it is made anew."""
    made_from = hashlib.sha256(sys.executable.encode() + sys.version.encode())
    made_from.update(str(ROOT).encode())
    for file in (REQUIREMENTS, HERE / "install.py"):
        made_from.update(file.read_bytes())
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    installing = [
        metadata["build-system"],
        metadata["project"]["name"],
        metadata["project"]["version"],
        metadata["project"]["dependencies"],
        metadata["tool"]["hatch"],
    ]
    made_from.update(json.dumps(installing, sort_keys=True).encode())
    return made_from.hexdigest()


def main() -> None:
    if STAMP.exists() and STAMP.read_text() == key():
        return
    shutil.rmtree(MINDROOT, ignore_errors=True)
    # With pip inside: the host calls its own interpreter's pip to install a plugin.
    subprocess.run([sys.executable, "-m", "venv", str(MINDROOT)], check=True)
    (MINDROOT / ".gitignore").write_text("*\n")
    CHECKOUT.parent.mkdir()
    CHECKOUT.symlink_to(ROOT, target_is_directory=True)
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    subprocess.run(
        [*pip, "--requirement", str(REQUIREMENTS), "--editable", str(CHECKOUT)], check=True
    )
    STAMP.write_text(key())


if __name__ == "__main__":
    main()
