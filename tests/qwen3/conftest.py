"""Tiny checkpoints for all tests of the engine, made once a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.config_reader import read_config
from tests.tiny_models.checkpoint import make_tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folder of the tiny checkpoint for each task; not to be written to."""
    return make_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_config(tiny: dict[str, Path]) -> Callable[[str], ModelConfig]:
    """The configuration of the tiny checkpoint for a task."""
    configs = {task: read_config(folder) for task, folder in tiny.items()}
    return configs.__getitem__
