"""Modules of benchmarks/gpu, as a script in benchmarks/ sees them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def benchmark_module(name: str) -> Any:
    """The module ``name``, such as ``gpu.census``."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))
