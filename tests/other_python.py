"""Run the tests that need no extras on another Python: ``python3.13 tests/other_python.py``.

Or on several, beside each other: ``python3 tests/other_python.py python3.12 python3.13``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def beside(pythons: list[str]) -> int:
    """Run it on each, and print what each has said when it has ended; 0 = all is well.

    Not a shell's background jobs: those ignore SIGINT, and so would all that the tests start.
    """
    with contextlib.ExitStack() as stack:
        running = []
        for python in pythons:
            said = stack.enter_context(tempfile.TemporaryFile())
            running.append((said, subprocess.Popen([python, __file__], stdout=said, stderr=said)))
        failed = False
        for said, process in running:
            failed |= process.wait() != 0
            said.seek(0)
            sys.stdout.write(said.read().decode("utf-8", "replace"))
            sys.stdout.flush()
    return int(failed)


def main() -> None:
    if pythons := sys.argv[1:]:
        sys.exit(beside(pythons))
    with tempfile.TemporaryDirectory() as name:
        venv.create(Path(name) / "env", with_pip=True)
        python = str(Path(name) / "env" / "bin" / "python")
        subprocess.run(
            [
                *(sys.executable, str(ROOT / "deploy" / "locked_install.py"), "--editable"),
                *("--python", python, "--group", "dev"),
                *("--extras", "server,voice,phone,store,upstream,webrtc,plots,otel"),
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
