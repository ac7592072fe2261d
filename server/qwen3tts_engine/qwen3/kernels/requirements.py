"""What the Triton kernels need of a machine besides Triton itself. No torch.

Triton builds a launcher in C at its first use. Source: triton/runtime/build.py.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

LEAST_CAPABILITY = (8, 0)
"""Compute capability from which GPUs compute bfloat16 and the kernels are compiled and checked."""


class Missing(NamedTuple):
    what: str
    remedy: str


def missing(
    *,
    which: Callable[[str], str | None] = shutil.which,
    environment: Mapping[str, str] = os.environ,
    include: str | None = None,
) -> Missing | None:
    """Return what is missing; ``include``: folder of the headers."""
    if find_spec("triton") is None:
        return Missing("there is no Triton", "Install it: pip install triton.")
    compiler = environment.get("CC")
    if which(compiler) is None if compiler else which("gcc") is None and which("clang") is None:
        named = f" (CC={compiler})" if compiler else ""
        return Missing(
            f"there is no C compiler{named}", "Install gcc, such as apt-get install gcc."
        )
    folder = _headers() if include is None else include
    if not (Path(folder) / "Python.h").is_file():
        return Missing(
            "Python.h is missing",
            "Install the headers of this Python, such as apt-get install python3-dev.",
        )
    return None


def _headers() -> str:
    scheme = sysconfig.get_default_scheme()
    # Debian's own scheme lacks them; Triton does the same.
    return sysconfig.get_paths("posix_prefix" if scheme == "posix_local" else scheme)["include"]
