"""The official package's results, computed once a session in its own environment."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import leave_out
from tests.parity.cases import DECODE, LISTEN, OTHERS, PROMPTED, SAMPLED, SPEECH, VARIANTS
from tests.parity.inputs import make_inputs
from tests.parity.ours import Ours
from tests.parity.texts import TEXTS, random_texts
from tests.tiny_models.checkpoint import make_tiny

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = ROOT / ".oracle" / "bin" / "python"
ENOUGH = 600
"""Seconds after which the official side has hung; it takes about forty on two cores."""

Arrays = dict[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class Oracle:
    """Checkpoint folders, what both sides were given, and what the official side made of it."""

    folders: dict[str, Path]
    inputs: Arrays
    results: Path
    texts: tuple[str, ...]

    def arrays(self, name: str) -> Arrays:
        """The result of one case."""
        with np.load(self.results / f"{name}.npz") as stored:
            return dict(stored)

    def supported(self, model: str) -> dict[str, list[str]]:
        """Names of a checkpoint's ``languages`` and ``speakers``."""
        found: dict[str, list[str]] = json.loads(
            (self.results / f"supported_{model}.json").read_text()
        )
        return found

    def token_ids(self) -> list[dict[str, list[int]]]:
        """Ids of each of `texts`, by place in the prompt."""
        found: list[dict[str, list[int]]] = json.loads((self.results / "tokens.json").read_text())
        return found


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    if not (ROOT / ".oracle" / "made-from").exists():
        leave_out("the official package's environment is not there (make oracle)")
    base = tmp_path_factory.mktemp("parity")
    folders = make_tiny(base / "tiny")
    folders |= {variant.name: base / variant.name for variant in VARIANTS}
    results = base / "results"
    results.mkdir()
    inputs = make_inputs()
    np.savez(base / "inputs.npz", allow_pickle=False, **inputs)
    made = Oracle(folders, inputs, results, (*TEXTS, *random_texts(150)))
    jobs = {
        "inputs": str(base / "inputs.npz"),
        "folders": {name: str(folder) for name, folder in folders.items()},
        "variants": [dataclasses.asdict(variant) for variant in VARIANTS],
        "speech": [dataclasses.asdict(case) for case in (*SPEECH, *SAMPLED, *PROMPTED, *OTHERS)],
        "listen": [{"name": n, "model": m, "reference": r} for n, m, r in LISTEN],
        "decode": [{"name": n, "model": m, "codes": c} for n, m, c in DECODE],
        "tokens": {"model": "custom_voice", "texts": made.texts},
    }
    (base / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    run = subprocess.run(
        [str(PYTHON), "-m", "tests.parity.oracle", str(base / "jobs.json"), str(results)],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "tests" / "parity" / "stubs"),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        },
        capture_output=True,
        text=True,
        timeout=ENOUGH,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return made


@pytest.fixture(scope="session")
def ours(oracle: Oracle) -> Callable[[str], Ours]:
    """Our loader of the oracle's checkpoints, by name; each is loaded once."""
    return functools.cache(lambda name: Ours(oracle.folders[name]))
