"""Codec products by oneDNN with weights packed at load, on x86 CPUs.

Faster for few rows; bias, addition and GELU are part of the product.
"""

from __future__ import annotations

import platform

import torch
from torch import Tensor

PACKED_ROWS = 32
"""Rows that a matrix is packed for; others use the same layout."""
PACKED_TIME = 256
"""Samples that a convolution is packed for."""


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    if device.type != "cpu" or platform.machine() not in ("x86_64", "AMD64"):
        return False
    library = torch.ops.mkldnn
    needed = ("_linear_pointwise", "_convolution_pointwise", "_reorder_linear_weight")
    if not torch._C._has_mkldnn or not all(hasattr(library, n) for n in needed):
        return False
    if dtype == torch.bfloat16:
        return bool(library._is_mkldnn_bf16_supported())
    return dtype == torch.float32


def pack_matrix(matrix: Tensor) -> Tensor:
    """Pack [in, out]."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(matrix.T.contiguous(), PACKED_ROWS)
    return packed


def pack_picture(weight: Tensor, dilation: int) -> Tensor:
    """Pack a convolution's [out, C, 1, k]."""
    time = PACKED_TIME + (weight.shape[3] - 1) * dilation
    packed: Tensor = torch.ops.mkldnn._reorder_convolution_weight(
        weight, [0, 0], [1, 1], [1, dilation], 1, [1, weight.shape[1], 1, time]
    )
    return packed


def packed_linear(x: Tensor, weight: Tensor, bias: Tensor | None, *, gelu: bool = False) -> Tensor:
    """[N, in] to [N, out]."""
    then = "gelu" if gelu else "none"
    made: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, then, [], "none")
    return made


def packed_convolution(x: Tensor, weight: Tensor, bias: Tensor, dilation: int) -> Tensor:
    """[B, rows + T, C] to [B, T, out]."""
    made: Tensor = torch.ops.mkldnn._convolution_pointwise(
        x.transpose(1, 2).unsqueeze(2), weight, bias, [0, 0], [1, 1], [1, dilation], 1,
        "none", [], "",
    )  # fmt: skip
    return made.squeeze(2).transpose(1, 2)
