"""Fixtures of the whole suite."""

from __future__ import annotations

import importlib
import os
import shutil
from typing import Any

import pytest
from hypothesis import settings

# A deadline is a timed assertion, and machines are noisy.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

NOTHING_LEFT_OUT = "QWEN3TTS_NOTHING_LEFT_OUT"
"""Set where a missing peer must fail the run instead of being skipped."""


def require_program(name: str, package: str) -> None:
    """Skip, or fail where nothing may be left out, unless ``name`` is installed."""
    if shutil.which(name) is None:
        reason = f"{name} is not installed (apt-get install {package})"
        if os.environ.get(NOTHING_LEFT_OUT):
            pytest.fail(reason)
        pytest.skip(reason)


def require_package(name: str, how: str) -> Any:
    """The Python package ``name``; without it skip, or fail where nothing may be left out."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        reason = f"the Python package {name} is not installed ({how})"
        if os.environ.get(NOTHING_LEFT_OUT):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture
def need_baresip() -> None:
    require_program("baresip", "baresip-core")


@pytest.fixture
def need_sipp() -> None:
    require_program("sipp", "sip-tester")
