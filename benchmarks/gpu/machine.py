"""What a figure belongs to: the GPU, its clocks and power, driver and libraries."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess

import torch

QUERY = {
    "driver": "driver_version",
    "SM clock": "clocks.sm",
    "highest SM clock": "clocks.max.sm",
    "memory clock": "clocks.mem",
    "power": "power.draw",
    "power limit": "power.limit",
    "temperature": "temperature.gpu",
    "persistence mode": "persistence_mode",
    "ECC": "ecc.mode.current",
    "MIG": "mig.mode.current",
}


def machine(device: torch.device) -> dict[str, str]:
    """Facts by name; those of the GPU only where there is one."""
    facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "CUDA of torch": str(torch.version.cuda),
    }
    if device.type != "cuda":
        return facts | {"device": str(device)}
    about = torch.cuda.get_device_properties(device)
    free, total = torch.cuda.mem_get_info(device)
    return {
        **facts,
        "device": about.name,
        "architecture": f"sm_{about.major}{about.minor}",
        "multiprocessors": str(about.multi_processor_count),
        "memory": f"{total / 2**30:.1f} GiB, {free / 2**30:.1f} free",
        "cuDNN": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
        "GPUs": str(torch.cuda.device_count()),
        **state(device),
    }


def state(device: torch.device) -> dict[str, str]:
    """Clocks, power and driver at this moment, as nvidia-smi says; nothing without it."""
    command = shutil.which("nvidia-smi")
    if device.type != "cuda" or command is None:
        return {}
    ask = f"--query-gpu={','.join(QUERY.values())}"
    # nvidia-smi counts all devices; torch those that are visible.
    chosen = str(torch.cuda.get_device_properties(device).uuid)
    try:
        done = subprocess.run(
            [command, f"--id=GPU-{chosen}", ask, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return dict(zip(QUERY, values, strict=False))


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
