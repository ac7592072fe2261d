"""The fake of the host's ``lib`` chooses as the real one does."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.conftest import leave_out
from tests.plugin.host_choices import ask

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = ROOT / ".mindroot" / "bin" / "python"
DATA = ("models", "providers", "preferred_models", "equivalent_flags")
"""Files that the host's managers read, below its working folder."""


def real_choices(folder: Path) -> dict[str, Any]:
    """What the managers of the installed MindRoot answer."""
    package = next((PYTHON.parent.parent / "lib").glob("python*/site-packages/mindroot"), None)
    if package is None:
        leave_out("MindRoot is not installed (make host)")
    (folder / "data").mkdir()
    for name in DATA:
        (folder / "data" / f"{name}.json").write_text("[]")
    done = subprocess.run(
        [PYTHON, ROOT / "tests" / "plugin" / "host_choices.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(package)},
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


async def test_the_fake_host_chooses_as_the_real_one_does(tmp_path: Path) -> None:
    assert json.loads(json.dumps(await ask())) == real_choices(tmp_path)
