"""Kernels of a frame on the CUDA path, and their bytes, by stage; counted without a GPU.

>>> stages = census("1.7b-custom_voice", rows=1)
>>> stages["talker"].nodes, stages["talker"].bytes, stages["talker"].names.most_common(3)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from gpu.trace import STAGES, StageName, Trace, meta_model

CODEC_FRAMES = 1
PROMPT = 16
"""Positions of the counted prefill."""
NODE_US, PRODUCT_US = 2.1, 2.5
"""A captured kernel of an H100, and a product less its bytes; measured by others."""
PRODUCTS = ("mm", "addmm", "addmm_", "_linear")


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage launches."""

    nodes: int
    """Kernels of the graph."""
    bytes: int
    """Read and written, with activations; see trace.Node."""
    names: Counter[str]
    """Nodes by kernel."""


def census(
    name: str = "1.7b-custom_voice",
    *,
    rows: int = 1,
    dtype: torch.dtype = torch.bfloat16,
    codec_dtype: torch.dtype = torch.float16,
) -> dict[StageName, Stage]:
    """Count a step, a decode of one frame and a prefill of ``rows`` rows of a published model."""
    trace = Trace(meta_model(name, dtype, codec_dtype), rows)
    trace.step()
    trace.decode(CODEC_FRAMES)
    trace.prefill(PROMPT)
    found = {}
    for stage in STAGES:
        nodes = [node for node in trace.nodes if node.stage == stage]
        found[stage] = Stage(
            len(nodes), sum(node.bytes for node in nodes), Counter(node.name for node in nodes)
        )
    return found


def step_nodes(stages: Mapping[StageName, Stage]) -> int:
    """Nodes of the language model's step."""
    return sum(stages[stage].nodes for stage in ("draw", "predictor", "talker"))
