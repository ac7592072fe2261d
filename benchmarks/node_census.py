"""Counts the kernels of a frame on the CUDA path: what bounds a large GPU at few rows.

No GPU is used: the published models are traced at their real shapes without numbers, with the
Triton kernels that a GPU would run (gpu/trace.py). The rule:

- An operation below autograd is one kernel, unless it makes only a view or only memory.
- ``rms_norm`` and ``scaled_dot_product_attention`` are one each.
- ``addmm`` copies a two-dimensional addend first, unless the sum is made in place; a convolution
  adds its bias by another kernel; ``masked_fill``, ``constant_pad_nd`` and ``topk`` are two.
- A launch of Triton is one.

What a library does within an operation (split products, changes of layout) is not seen. Bytes are
those read and written, each kernel by itself: what stays in a cache between kernels counts twice.
"""

from __future__ import annotations

import argparse

from common import Bench
from gpu.census import census, step_nodes
from gpu.trace import MODELS

AIMS = {"language model step": 600, "codec": 190}
"""Without the persistent predictor."""


def main() -> None:
    """Print nodes and bytes of the published models by stage."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1, help="rows of a batch")
    parser.add_argument("--kernels", action="store_true", help="each stage's kernels by name too")
    bench = Bench("node_census", "kernels of a frame on a GPU", parser)
    figures: dict[str, int] = {}
    for name in MODELS:
        stages = census(name, rows=bench.args.rows)
        step = step_nodes(stages)
        rows: list[list[object]] = [
            [stage, found.nodes, "", found.bytes / 1e6] for stage, found in stages.items()
        ]
        megabytes = sum(stages[stage].bytes for stage in ("draw", "predictor", "talker")) / 1e6
        rows.insert(3, ["language model step", step, "", megabytes])
        for row in rows:
            row[2] = AIMS.get(str(row[0]), "")
        bench.table(
            f"{name}, {bench.args.rows} row", ["stage", "nodes", "aim", "MB read and written"], rows
        )
        if bench.args.kernels:
            for stage, found in stages.items():
                bench.table(f"{name}: {stage}", ["kernel", "nodes"], found.names.most_common())
        short = name.split("-")[0].replace(".", "")
        figures[f"step_nodes_{short}"] = step
        figures[f"codec_nodes_{short}"] = stages["codec"].nodes
        figures[f"prefill_nodes_{short}"] = stages["prefill"].nodes
    bench.figure(**figures)


if __name__ == "__main__":
    main()
