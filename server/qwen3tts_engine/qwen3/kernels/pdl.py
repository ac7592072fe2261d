"""Programmatic dependent launch of Triton kernels (compute capability 9.0 and newer).

A kernel is launched while the one before it still runs, and waits inside, before it reads or
writes anything but weights. It lets the next one go only behind that wait: when a kernel starts,
all but the kernel just before it are done.

Source: CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization"; PTX
``griddepcontrol``. In a captured graph these are programmatic edges (CUDA 12.3).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypedDict

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

CAPABILITY = (9, 0)
"""First compute capability with ``griddepcontrol``."""
DRIVER = 12030
"""First CUDA version of a driver with programmatic edges in graphs."""


class LaunchOptions(TypedDict, total=False):
    PDL: bool
    launch_pdl: bool


@triton.jit
def wait_for_inputs(PDL: tl.constexpr):
    """Wait for the kernel before; then let the one behind be launched."""
    if PDL:
        gdc_wait()
        gdc_launch_dependents()


@triton.jit
def prefetch(pointers):
    """Ask for cache lines in the level 2 cache."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [pointers],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@functools.cache
def has_pdl(device: torch.device) -> bool:
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < CAPABILITY:
        return False
    # Not of a torch for CPUs.
    driver: Callable[[], int] | None = getattr(torch._C, "_cuda_getDriverVersion", None)
    return driver is not None and driver() >= DRIVER


def launch_options(device: torch.device) -> LaunchOptions:
    return {"PDL": True, "launch_pdl": True} if has_pdl(device) else {"PDL": False}
