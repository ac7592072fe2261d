"""Run the tests that need no extras on another Python: ``python3.13 tests/other_python.py``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        venv.create(Path(name) / "env", with_pip=True)
        python = str(Path(name) / "env" / "bin" / "python")
        install = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        constraints = ["--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([*install, "--upgrade", "pip>=25.1"], check=True)
        subprocess.run(
            [
                *install,
                *constraints,
                "--editable",
                f"{ROOT}[server,embedded,phone,store,upstream]",
                "--group",
                f"{ROOT}/pyproject.toml:dev",
            ],
            check=True,
        )
        version = ".".join(map(str, sys.version_info[:3]))
        print(f"Python {version}", flush=True)
        subprocess.run(
            [
                python,
                "-m",
                "pytest",
                "-q",
                "-m",
                "not network and not gpu",
                "--ignore=tests/peers",
                "--ignore=tests/e2e",
                "--ignore=tests/qwen3",
                "--ignore=tests/parity",
                "--ignore=tests/regression",
                "--ignore=tests/mindroot_host",
                "-p",
                "no:cacheprovider",
            ],
            cwd=ROOT,
            # torch is left out here, and what needs it.
            env={k: v for k, v in os.environ.items() if k != "QWEN3TTS_NOTHING_LEFT_OUT"},
            check=True,
        )


if __name__ == "__main__":
    main()
