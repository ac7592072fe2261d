"""The GPU kernels against plain torch, in a process where Triton interprets them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import require_package

CASES = Path(__file__).with_name("triton_cases.py")


def test_the_kernels_do_what_plain_torch_does() -> None:
    require_package("triton", "pip install --group kernels")
    root = CASES.parents[2]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)],
        cwd=root,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "passed" in run.stdout
