"""Matrices of 8 and 4 bits for a CPU, by torch's packed kernels.

8 bits: a scale for each output; inputs of 14 bits, as two of 8 (FBGEMM). Sums of integers are
exact: a row's result depends on no other row, thread or instruction set. 4 bits: scale and zero for
each 32 inputs, bfloat16.

Shapes: M rows; a matrix [N, K] maps K inputs to N outputs.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

import torch
from torch import Tensor

Quantization = Literal["int8", "int4"]
GROUP = 32
"""Inputs that share a scale at 4 bits."""
OUTPUTS = 16
"""The kernel of 4 bits takes multiples."""
LEVELS = 64
"""Coarse levels of an input on each side of 0: its bytes, 0 to 128, times weights of 8 bits never
overflow the 16-bit pairs of sums that processors without VNNI form."""
FINE = 128
"""Fine levels in a coarse one; a power of two is exact in any order of rounding."""
SMALLEST = 1e-30
"""Least scale of a row of zeros."""

log = logging.getLogger(__name__)
_engine_lock = threading.Lock()


class PackedMatrix(Protocol):
    @property
    def bytes(self) -> int: ...

    def multiply(self, x: Tensor) -> Tensor:
        """Return the product [M, N] of ``x`` [M, K], in float32 or bfloat16."""
        ...


Matrix: TypeAlias = Tensor | PackedMatrix
"""A tensor [K, N], or packed."""


def plain(matrix: Matrix) -> Tensor:
    if not isinstance(matrix, Tensor):
        raise ValueError("a packed matrix where a tensor is needed")
    return matrix


def multiply(x: Tensor, matrix: Matrix, out: Tensor | None = None) -> Tensor:
    """[M, K] to [M, N], in the dtype of ``x``."""
    if isinstance(matrix, Tensor):
        return torch.mm(x, matrix, out=out)
    product = matrix.multiply(x)
    if out is not None:
        return out.copy_(product)
    return product if product.dtype == x.dtype else product.to(x.dtype)


def add_product(x: Tensor, y: Tensor, matrix: Matrix) -> Tensor:
    """Add the product of ``y`` [M, K] to ``x`` [M, N] in place."""
    # In place: with a matrix to add to, addmm first copies it on CUDA.
    return x.addmm_(y, matrix) if isinstance(matrix, Tensor) else x.add_(matrix.multiply(y))


@dataclass(frozen=True, slots=True)
class Int8Matrix:
    packed: object
    """FBGEMM's ``LinearPackedParamsBase``."""
    bytes: int
    halves: bool
    """The second half of the outputs adds to the first: 16 bits."""

    def multiply(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        x = x.float()
        scale = x.abs().amax(-1, keepdim=True).clamp_min_(SMALLEST).mul_(1 / LEVELS)
        parts = x.new_empty(2, *x.shape)
        fine, coarse = parts.unbind(0)
        torch.div(x, scale, out=fine)
        torch.round(fine, out=coarse)
        fine.sub_(coarse).mul_(FINE)
        # Float to byte is exact here: all values are whole numbers, the fine ones rounded.
        both = _int8_product(parts.view(2 * rows, -1), 1.0, LEVELS, self.packed)
        product = both[rows:].add_(both[:rows], alpha=1 / FINE).mul_(scale)
        if self.halves:
            first, second = product.chunk(2, dim=-1)
            product = first + second
        return product


@dataclass(frozen=True, slots=True)
class Int4Matrix:
    packed: Tensor
    """[N, K / 2] uint8, in the order of the processor's instruction set."""
    scales: Tensor
    """[K / GROUP, N, 2] bfloat16: scale and zero."""

    @property
    def bytes(self) -> int:
        return self.packed.nbytes + self.scales.nbytes

    def multiply(self, x: Tensor) -> Tensor:
        product: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x.to(torch.bfloat16), self.packed, GROUP, self.scales
        )
        return product


def _int8_product(x: Tensor, scale: float, zero: int, packed: object) -> Tensor:
    product: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
        x, scale, zero, packed
    )
    return product


# --- quantization ---


def quantize_int8(matrix: Tensor) -> dict[str, Tensor]:
    """Round [N, K] float32 to ``values`` int8 and ``scales`` [N] float32."""
    scales = matrix.abs().amax(1).clamp_min_(SMALLEST).div_(127)
    return {"values": (matrix / scales[:, None]).round_().to(torch.int8), "scales": scales}


def quantize_int16(matrix: Tensor) -> dict[str, Tensor]:
    """Round [N, K] float32 to two matrices of 8 bits: coarse above fine."""
    coarse = quantize_int8(matrix)
    left = matrix - coarse["values"].float() * coarse["scales"][:, None]
    fine = coarse["scales"] / 254
    values = (left / fine[:, None]).round_().clamp_(-127, 127).to(torch.int8)
    return {
        "values": torch.cat([coarse["values"], values]),
        "scales": torch.cat([coarse["scales"], fine]),
    }


def quantize_int4(matrix: Tensor) -> dict[str, Tensor]:
    """Round [N, K] float32 to ``values`` of 0 to 15, uint8, and ``scales`` [K / GROUP, N, 2]."""
    groups = matrix.view(len(matrix), -1, GROUP)
    least, most = groups.aminmax(dim=-1, keepdim=True)
    # Values are rounded by the scale and zero that the kernel is going to use.
    scale = (most - least).div_(15).clamp_min_(SMALLEST).to(torch.bfloat16)
    zero = (least + 8 * scale.float()).to(torch.bfloat16)
    values = groups.sub(zero.float()).div_(scale.float()).round_().add_(8).clamp_(0, 15)
    scales = torch.cat([scale, zero], dim=-1).transpose(0, 1).contiguous()
    return {"values": values.view(matrix.shape).to(torch.uint8), "scales": scales}


def restore(parts: Mapping[str, Tensor], bits: int) -> Tensor:
    values, scales = parts["values"].float(), parts["scales"].float()
    if bits == 4:
        scale, zero = scales.transpose(0, 1).unsqueeze(2).unbind(-1)
        groups = values.view(len(values), -1, GROUP)
        return ((groups - 8) * scale + zero).view(values.shape)
    product = values * scales[:, None]
    return product if bits == 8 else product[: len(product) // 2] + product[len(product) // 2 :]


QUANTIZE: Mapping[int, Callable[[Tensor], dict[str, Tensor]]] = {
    4: quantize_int4,
    8: quantize_int8,
    16: quantize_int16,
}


def fits_int4(rows: int, columns: int) -> bool:
    return rows % OUTPUTS == 0 and columns % GROUP == 0


def stored_form(parts: Mapping[str, Tensor], bits: int) -> dict[str, Tensor]:
    """Return what a cache keeps: values of 4 bits in the kernel's order."""
    if bits != 4:
        return dict(parts)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(parts["values"].to(torch.int32), 2)
    return {"values": packed, "scales": parts["scales"]}


def pack(parts: Mapping[str, Tensor], bits: int) -> PackedMatrix:
    if bits == 4:
        return Int4Matrix(parts["values"], parts["scales"])
    values, scales = parts["values"], parts["scales"]
    with warnings.catch_warnings(), _engine_lock:
        warnings.filterwarnings("ignore", message=".*quantized tensor creation.*")
        quantized = torch._make_per_channel_quantized_tensor(
            values, scales.double(), torch.zeros(len(values), dtype=torch.int64), 0
        )
        engine = torch.backends.quantized.engine
        torch.backends.quantized.engine = "fbgemm"
        try:
            packed = torch.ops.quantized.linear_prepack(quantized, None)
        finally:
            torch.backends.quantized.engine = engine
    return Int8Matrix(packed, values.nbytes + scales.nbytes, bits == 16)


# --- loading ---


class TensorStore(Protocol):
    @property
    def is_whole(self) -> bool: ...

    def get(self, name: str, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]: ...


class MemoryStore:
    is_whole = False

    def get(self, name: str, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        return make()


def bits_of(quantization: Quantization, name: str) -> int:
    """Return the bits of a matrix's weights, by its name.

    The code predictor has 8 at ``int4``, too: in a processor's cache 4 bits are no faster. Matrices
    outside the layers, small and next to the codes, have 16, but for the predictor's heads.
    """
    if "layers." in name:
        return 4 if quantization == "int4" and name.startswith("talker.model.") else 8
    return 8 if "lm_head." in name else 16


@dataclass(frozen=True)
class Packing:
    quantization: Quantization
    store: TensorStore
    prefix: str = ""

    def under(self, prefix: str) -> Packing:
        return replace(self, prefix=self.prefix + prefix)

    def matrix(self, name: str, make: Callable[[], Tensor]) -> Matrix:
        name = self.prefix + name

        def quantized() -> dict[str, Tensor]:
            matrix, bits = make().float(), bits_of(self.quantization, name)
            bits = 8 if bits == 4 and not fits_int4(*matrix.shape) else bits
            parts = QUANTIZE[bits](matrix)
            kept = stored_form(parts, bits) if usable(bits) else parts
            return kept | {"bits": torch.tensor(bits)}

        parts = self.store.get(name, quantized)
        bits = int(parts["bits"])
        return pack(parts, bits) if usable(bits) else restore(parts, bits).t()

    def table(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        return self.store.get(self.prefix + name, lambda: {"values": make()})["values"]


_usable: dict[int, bool] = {}


def usable(bits: int) -> bool:
    """True if this torch and processor have the kernel, and it computes rightly."""
    kind = 4 if bits == 4 else 8
    if kind not in _usable:
        _usable[kind] = _is_right(kind)
    return _usable[kind]


def _is_right(bits: int) -> bool:
    if bits == 4 and torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        return False
    noise = torch.Generator().manual_seed(0)
    matrix, x = (torch.randn(size, 256, generator=noise) for size in (128, 3))
    # The largest products of all: sums in 16 bits would overflow.
    matrix[0], x[0] = 3.0, 3.0
    parts = QUANTIZE[bits](matrix)
    try:
        made = pack(stored_form(parts, bits), bits).multiply(x).float()
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        log.warning("no product of %d bits", bits, exc_info=error)
        return False
    right = x @ restore(parts, bits).t()
    return bool((made - right).norm() < (2e-2 if bits == 4 else 1e-3) * right.norm())
