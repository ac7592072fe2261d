"""The device that a checkpoint runs on."""

from __future__ import annotations

import gc

import torch

from qwen3tts_wire.errors import EngineUnavailable


def find_device(name: str) -> torch.device:
    """The device that a setting names.

    Raises:
        EngineUnavailable: it is not there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise EngineUnavailable(
                f"There is no device {name}: PyTorch {torch.__version__} sees {count} GPUs.",
                remedy="Use device auto or cpu, or check the driver; `mr-qwen3tts doctor` helps.",
            )
    return device


def free_device_memory() -> None:
    """Give back to the device what nothing holds any more, for other programs."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()
