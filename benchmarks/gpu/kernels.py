"""The Triton kernels as machine code for each kind of GPU, and the rules they keep; no GPU is used.

What is compiled is what the CUDA path of the published models launches at their real shapes
(trace.py), so a kernel that the path calls is checked without being named anywhere but in RULES,
which has its limits. A kernel that no default setting launches is called by a function in EXTRA::

    def persistent(trace: Trace) -> None:
        trace.run("predictor", lambda: my_kernel(...))  # tensors on the device "meta"

    EXTRA = (persistent,)

A launch with ``launch_pdl=True`` must have ``griddepcontrol`` in its PTX.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gpu import persistent
from gpu.trace import MODELS, Trace, compiling, meta_model

NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
SHARED_KIB = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
"""Shared memory that a block may have, by architecture (CUDA programming guide)."""
REGISTERS = 65536
"""Of a multiprocessor, and at most 255 for a thread."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Limits of a kernel on every architecture."""

    kernel: str
    registers: int
    """For a thread, at most."""
    shared_kib: int
    """For a block, at most."""
    products: bool = False
    """With 2-byte numbers its products are made by tensor cores."""
    copies: bool = False
    """With 2-byte numbers it reads into shared memory by asynchronous copies."""
    stack: int = 0
    """Bytes of local memory of a thread, at most: registers that did not fit;"""
    stack_fp32: int = 0
    """and with float32 numbers, which no GPU takes by default."""


RULES = (
    Rule("_attend", 128, 64, products=True, copies=True),
    Rule("_attend_first", 128, 1),
    Rule("_attend_prompt", 210, 64, products=True, copies=True),
    Rule("_linear", 128, 64, stack_fp32=8),
    Rule("_swiglu", 64, 1),
    Rule("_sample", 128, 33),
    Rule("_store_codes", 32, 1),
    Rule("_embed", 64, 1),
    Rule("_store", 64, 3),
    Rule("_depthwise", 128, 1),
    Rule("_attend_ring", 168, 64, products=True, copies=True),
    Rule("_convolve", 168, 80, products=True, copies=True),
    # All phases of a layer in one kernel: a few registers are spilled.
    Rule("_predict", 255, 99, products=True, copies=True, stack=48, stack_fp32=152),
)
EXTRA: tuple[Callable[[Trace], None], ...] = (persistent.launch,)
"""Launches that no default setting makes."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """One kernel for one architecture; of one name there are several, by shapes."""

    kernel: str
    architecture: int
    dtype: torch.dtype
    """Of the model; a kernel may have other numbers."""
    warps: int
    registers: int
    stack: int
    """Bytes of local memory: registers that did not fit."""
    shared: int
    """Bytes."""
    products: bool
    copies: bool
    dependent: bool
    """True if its launch may begin before the kernel in front has ended."""
    waits: bool
    """True if its code has ``griddepcontrol``."""

    def faults(self, rules: tuple[Rule, ...] = RULES) -> Iterator[str]:
        """What is wrong, one line each."""
        what = f"{self.kernel} sm_{self.architecture} {NAMES[self.dtype]}"
        rule = next((rule for rule in rules if rule.kernel == self.kernel), None)
        if rule is None:
            yield f"{what}: has no limits; add them to RULES of benchmarks/gpu/kernels.py"
            return
        shared_kib = min(rule.shared_kib, SHARED_KIB[self.architecture])
        if self.stack > (rule.stack_fp32 if self.dtype == torch.float32 else rule.stack):
            yield f"{what}: {self.stack} bytes of local memory a thread"
        if self.registers > rule.registers or self.registers * self.warps * 32 > REGISTERS:
            yield f"{what}: {self.registers} registers, {self.warps} warps"
        if self.shared > shared_kib << 10:
            yield f"{what}: {self.shared / 1024:.1f} KiB of shared memory of {shared_kib}"
        if self.dtype != torch.float32:
            if rule.products and not self.products:
                yield f"{what}: no product by tensor cores"
            if rule.copies and not self.copies:
                yield f"{what}: no asynchronous copy"
        if self.dependent and not self.waits:
            yield f"{what}: launched as a dependent, without griddepcontrol"


def compile_all(
    architecture: int,
    dtype: torch.dtype,
    *,
    models: tuple[str, ...] = MODELS,
    rows: tuple[int, ...] = (1, 16, 64),
    large: bool = True,
    most: int | None = None,
    cache: str | Path,
) -> list[Compiled]:
    """Compile what the models launch with so many rows, the codec in the same numbers.

    The codec is that of every model: of the first it is compiled. ``large``: prompts of 256
    positions and decodes of 8 frames too. ``most``: of each kernel only the first shapes, so many.
    Triton keeps its files in the folder ``cache``.
    """
    found: dict[str, Compiled] = {}
    count_of = Counter[str]()
    with compiling(architecture, cache) as build:

        def launched(kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            name = kernel.fn.__name__
            if most is not None and count_of[name] >= most:
                return
            made = build(kernel, grid, args, kwargs)
            if made.hash not in found:
                count_of[name] += 1
                found[made.hash] = _look(kernel, made, architecture, dtype)

        for name in models:
            model = meta_model(name, dtype, dtype)
            for count in rows:
                trace = Trace(model, count, launched=launched)
                trace.step()
                trace.prefill(16)
                if name == models[0]:
                    trace.decode(1)
                for extra in EXTRA:
                    extra(trace)
            if large:
                trace = Trace(model, 1, launched=launched)
                trace.prefill(256)
                if name == models[0]:
                    trace.decode(8)
    return list(found.values())


def _look(kernel: Any, made: Any, architecture: int, dtype: torch.dtype) -> Compiled:
    ptx, metadata = made.asm["ptx"], made.metadata
    registers, stack = _usage(made.asm["cubin"])
    return Compiled(
        kernel.fn.__name__,
        architecture,
        dtype,
        metadata.num_warps,
        registers,
        stack,
        metadata.shared,
        re.search(r"\b(mma\.sync|wgmma|tcgen05\.mma)", ptx) is not None,
        "cp.async" in ptx,
        bool(getattr(metadata, "launch_pdl", False)),
        "griddepcontrol" in ptx,
    )


def _usage(cubin: bytes) -> tuple[int, int]:
    """Registers of a thread and bytes of its stack, as the assembler gave them."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "-res-usage", file.name]
        said = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    used = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", said))
    return int(used["REG"]), int(used["STACK"]) + int(used["LOCAL"])
