"""Make the environment of the real clients in .clients/, at the root of the tree.

A second run does nothing unless the requirements, this file or the interpreter have changed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CLIENTS = HERE.parent.parent / ".clients"
REQUIREMENTS = HERE / "requirements.txt"
PYTHON = CLIENTS / "bin" / "python"
STAMP = CLIENTS / "made-from"


def key() -> str:
    """What the environment was made from; another value means that it is made anew."""
    made_from = hashlib.sha256(sys.executable.encode() + sys.version.encode())
    for file in (REQUIREMENTS, HERE / "install.py"):
        made_from.update(file.read_bytes())
    return made_from.hexdigest()


def main() -> None:
    if STAMP.exists() and STAMP.read_text() == key():
        return
    shutil.rmtree(CLIENTS, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(CLIENTS)], check=True)
    (CLIENTS / ".gitignore").write_text("*\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(PYTHON)]
    subprocess.run([*pip, "install", "-qq", "--requirement", str(REQUIREMENTS)], check=True)
    STAMP.write_text(key())


if __name__ == "__main__":
    main()
