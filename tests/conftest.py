"""Fixtures of the whole suite."""

from __future__ import annotations

import os
import shutil

import pytest

NOTHING_LEFT_OUT = "QWEN3TTS_NOTHING_LEFT_OUT"
"""Set where a missing peer must fail the run instead of being skipped."""


def require_program(name: str, package: str) -> None:
    """Skip, or fail where nothing may be left out, unless ``name`` is installed."""
    if shutil.which(name) is None:
        reason = f"{name} is not installed (apt-get install {package})"
        if os.environ.get(NOTHING_LEFT_OUT):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture
def need_baresip() -> None:
    require_program("baresip", "baresip-core")


@pytest.fixture
def need_sipp() -> None:
    require_program("sipp", "sip-tester")
