"""Fixtures of the whole suite."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

# A deadline and a slow strategy are timed assertions, and machines are noisy.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# Commands that start a voice of their own start the one that is ready soonest; tests of the default
# say so.
os.environ.setdefault("QWEN3TTS__ENGINE__NAME", "embedded")
# It takes some seconds; tests of it say so.
os.environ.setdefault("MR_QWEN3TTS_FORECAST", "0")

NOTHING_LEFT_OUT = "QWEN3TTS_NOTHING_LEFT_OUT"
"""Set where a missing peer must fail the run instead of being skipped."""


def leave_out(reason: str) -> NoReturn:
    """Skip, or fail where nothing may be left out; ``reason`` says how to add what is missing."""
    if os.environ.get(NOTHING_LEFT_OUT):
        pytest.fail(reason)
    pytest.skip(reason)


def require_program(name: str, package: str) -> None:
    """Leave the test out unless the program ``name`` is installed."""
    if shutil.which(name) is None:
        leave_out(f"{name} is not installed (apt-get install {package})")


def require_package(name: str, how: str) -> Any:
    """The Python package ``name``; without it the test is left out."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        leave_out(f"the Python package {name} is not installed ({how})")


@pytest.fixture
def need_baresip() -> None:
    require_program("baresip", "baresip-core")


@pytest.fixture
def need_sipp() -> None:
    require_program("sipp", "sip-tester")


@pytest.fixture
def need_kamailio() -> None:
    require_program("kamailio", "kamailio")


@pytest.fixture(autouse=True)
def _loggers() -> Iterator[None]:
    """Keep what a test configures of logging from the tests after it."""
    root, plugin = logging.getLogger(), logging.getLogger("mr_qwen3tts")
    level, plugin_level, handlers = root.level, plugin.level, list(root.handlers)
    yield
    root.setLevel(level)
    plugin.setLevel(plugin_level)
    for handler in [each for each in root.handlers if each not in handlers]:
        root.removeHandler(handler)
