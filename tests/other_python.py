"""Run the tests that need no torch on other Pythons: ``python3 tests/other_python.py python3.13``.

Several run beside each other. The last one named runs all tests without sockets; the others, which
stand between Pythons that run all, run those of the pure parts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PURE = ("codecs", "pacer", "text", "wire", "speech", "media", "sip", "streams", "fuzz")
NEED_TORCH_OR_PEERS = ("peers", "e2e", "qwen3", "parity", "regression", "mindroot_host")
ONE_VERSION = "--one-version"


def run_beside(pythons: list[str]) -> int:
    """Run each Python, and print its output when it has ended; 0 = all passed."""
    # A shell's background job ignores SIGINT, and so would every command that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.ExitStack() as stack:
        running = []
        for python in pythons:
            output = stack.enter_context(tempfile.TemporaryFile())
            parts = "all" if python == pythons[-1] else "pure"
            command = [python, __file__, ONE_VERSION, parts]
            running.append((output, subprocess.Popen(command, stdout=output, stderr=output)))
        failed = False
        for output, process in running:
            failed |= process.wait() != 0
            output.seek(0)
            sys.stdout.write(output.read().decode("utf-8", "replace"))
            sys.stdout.flush()
    return int(failed)


def run_this_python(parts: str) -> None:
    """Install into a fresh environment of this Python and run the tests there."""
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
        print(f"Python {'.'.join(map(str, sys.version_info[:3]))}, {parts} parts", flush=True)
        selected = (
            ["-n", "2", "--dist", "loadfile", *(f"--ignore=tests/{p}" for p in NEED_TORCH_OR_PEERS)]
            if parts == "all"
            else [f"tests/{part}" for part in PURE]
        )
        subprocess.run(
            [
                *(python, "-m", "pytest", "-q", "-m", "not network and not gpu"),
                *("-p", "no:cacheprovider", *selected),
            ],
            cwd=ROOT,
            # torch is left out here, and what needs it.
            env={k: v for k, v in os.environ.items() if k != "QWEN3TTS_NOTHING_LEFT_OUT"},
            check=True,
        )


def main() -> int:
    """Run the Pythons named in the arguments."""
    if len(sys.argv) == 3 and sys.argv[1] == ONE_VERSION:
        run_this_python(sys.argv[2])
        return 0
    return run_beside(sys.argv[1:] or [sys.executable])


if __name__ == "__main__":
    sys.exit(main())
