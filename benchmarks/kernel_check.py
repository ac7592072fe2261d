"""Compiles every Triton kernel for six kinds of GPU and three number types; needs no GPU.

    PYTHONPATH=.:server:codecs python benchmarks/kernel_check.py            # minutes
    PYTHONPATH=.:server:codecs python benchmarks/kernel_check.py --arch 90 --dtype bf16 --parity

For each kernel at the shapes of the published models: registers, shared memory, local memory, and
whether tensor cores, asynchronous copies and dependent launches are in its code. What breaks a rule
of gpu/kernels.py is listed, and the exit status is 1. ``--parity`` runs layers of the published
widths by Triton's interpreter beside plain torch as well (gpu/parity.py).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from itertools import groupby

from common import Bench
from gpu.kernels import NAMES, Compiled, compile_all
from gpu.trace import ARCHITECTURES, MODELS

DTYPES = {name: dtype for dtype, name in NAMES.items()}


def lines(found: list[Compiled]) -> list[list[object]]:
    """One line for each kernel: the most of its variants."""
    table: list[list[object]] = []
    for kernel, group in groupby(sorted(found, key=lambda one: one.kernel), lambda one: one.kernel):
        some = list(group)

        def yes(name: str, some: list[Compiled] = some) -> str:
            return "yes" if any(getattr(one, name) for one in some) else ""

        table.append(
            [
                *(kernel, f"sm_{some[0].architecture}", NAMES[some[0].dtype], len(some)),
                *(max(one.registers for one in some), max(one.stack for one in some)),
                max(one.shared for one in some) / 1024,
                *(yes("products"), yes("copies"), yes("waits")),
            ]
        )
    return table


def main() -> None:
    """Compile, print and judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--arch", action="append", type=int, choices=ARCHITECTURES, help="only this; repeatable")
    add("--dtype", action="append", choices=tuple(DTYPES), help="only this; repeatable")
    add("--model", action="append", choices=MODELS, help="only this; repeatable")
    add("--parity", action="store_true", help="interpreter beside torch at the real widths too")
    bench = Bench("kernel_check", "the Triton kernels for each kind of GPU", parser)
    args = bench.args
    architectures = args.arch or ((90,) if bench.quick else ARCHITECTURES)
    dtypes = args.dtype or (("bf16",) if bench.quick else tuple(DTYPES))
    rows: list[list[object]] = []
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for architecture in architectures:
            for name in dtypes:
                found = compile_all(
                    architecture,
                    DTYPES[name],
                    models=tuple(args.model or (MODELS[-1:] if bench.quick else MODELS)),
                    rows=(1,) if bench.quick else (1, 16, 64),
                    large=not bench.quick,
                    cache=folder,
                )
                rows += lines(found)
                faults += [fault for one in found for fault in one.faults()]
                bench.note(f"sm_{architecture} {name}: {len(found)} kernels")
    bench.table(
        "kernels: the most of all variants",
        ["kernel", "for", "numbers", "variants", "registers", "local B", "shared KiB",
         "tensor cores", "async copies", "griddepcontrol"],
        rows,
    )  # fmt: skip
    figures: dict[str, float | int | str] = {"kernels": len(rows), "faults": len(faults)}
    if args.parity:
        from gpu.parity import interpreted

        said = interpreted(narrow=bench.quick)
        bench.note(said.text)
        figures["parity_error"] = said.worst
        faults += said.faults
    for fault in faults:
        bench.note(f"FAULT {fault}")
    bench.figure(**figures)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
