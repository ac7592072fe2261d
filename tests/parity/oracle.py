"""Run the official package over all cases, once: `python -m tests.parity.oracle JOBS.json OUT`.

Inside the oracle's environment only. One process for everything, because the import alone takes
seconds. Each job leaves OUT/NAME.npz (or .json).
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.parity.official import Official
from tests.parity.variants import build_variant


def run(jobs: dict[str, Any], out: Path) -> None:
    folders = {name: Path(folder) for name, folder in jobs["folders"].items()}
    for variant in jobs["variants"]:
        build_variant(folders[variant["like"]], folders[variant["name"]], variant)
    models = {name: Official(folder) for name, folder in folders.items()}
    inputs = np.load(jobs["inputs"])
    for case in jobs["speech"]:
        np.savez(
            out / f"{case['name']}.npz",
            allow_pickle=False,
            **models[case["model"]].speak(case, inputs),
        )
    for case in jobs["listen"]:
        heard = models[case["model"]].listen(inputs[case["reference"]])
        np.savez(out / f"{case['name']}.npz", allow_pickle=False, **heard)
    for case in jobs["decode"]:
        decoded = models[case["model"]].decode(inputs[case["codes"]])
        np.savez(out / f"{case['name']}.npz", allow_pickle=False, **decoded)
    for name, model in models.items():
        (out / f"supported_{name}.json").write_text(json.dumps(model.supported()))
    tokenizer = models[jobs["tokens"]["model"]]
    ids = [tokenizer.token_ids(text) for text in jobs["tokens"]["texts"]]
    (out / "tokens.json").write_text(json.dumps(ids))


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    jobs, out = Path(sys.argv[1]), Path(sys.argv[2])
    run(json.loads(jobs.read_text(encoding="utf-8")), out)


if __name__ == "__main__":
    main()
