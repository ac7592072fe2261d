"""Make the official package's environment in .oracle/, at the root of the tree.

Run by the interpreter of .venv: torch and numpy are taken from there through a path file, so both
sides of a comparison compute with one and the same build, and nothing large is installed twice.
The official package's pins (an older transformers, tokenizers and huggingface_hub) lie before it
on the path. A second run does nothing unless the requirements, this file or the interpreter have
changed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
ORACLE = HERE.parent.parent / ".oracle"
REQUIREMENTS = HERE / "requirements.txt"
PYTHON = ORACLE / "bin" / "python"


def key() -> str:
    """What the environment was made from; another value means that it is made anew."""
    made_from = hashlib.sha256(sys.executable.encode() + sys.version.encode())
    for file in (REQUIREMENTS, HERE / "install.py"):
        made_from.update(file.read_bytes())
    return made_from.hexdigest()


def main() -> None:
    stamp = ORACLE / "made-from"
    if stamp.exists() and stamp.read_text() == key():
        return
    missing = [name for name in ("torch", "numpy") if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"{' and '.join(missing)} not found beside {sys.executable}; make install first")
    shutil.rmtree(ORACLE, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(ORACLE)], check=True)
    (ORACLE / ".gitignore").write_text("*\n")
    packages = sysconfig.get_path("purelib", vars={"base": str(ORACLE), "platbase": str(ORACLE)})
    Path(packages, "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(PYTHON)]
    subprocess.run(
        [*pip, "install", "-qq", "--no-deps", "--requirement", str(REQUIREMENTS)], check=True
    )
    subprocess.run(
        [str(PYTHON), "-W", "ignore", "-c", "import qwen_tts"],
        env={**os.environ, "PYTHONPATH": str(HERE / "stubs")},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    stamp.write_text(key())


if __name__ == "__main__":
    main()
