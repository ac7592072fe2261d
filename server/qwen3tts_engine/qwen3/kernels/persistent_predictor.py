"""Code predictor as one cooperative kernel: launch, check against plain torch."""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import ModuleType

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.model.config import PredictorConfig
from qwen3tts_engine.qwen3.model.kv_cache import FRAME, KEY_HIGH, KEY_LOW, TOP_K, KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampler import FrameRows, Sampler, TorchSampler
from qwen3tts_engine.qwen3.model.sampling import TOP_K_LIMIT
from qwen3tts_engine.qwen3.model.talker import CodePredictor
from qwen3tts_engine.qwen3.model.transformer import TORCH_KERNELS, RmsNorm

log = logging.getLogger(__name__)

MOST_ROWS = 8
"""Rows of one launch: positions 0 and 1 of each are the 16 rows of a matrix product."""
WARPS = 4
"""Each sums a part of every product."""
STAGES = 3
REGISTERS = 255
"""Of a thread, at most: left to itself the assembler takes 168 for an A100, and local memory."""
CHUNK_BYTES = {2: 256, 4: 64}
"""Of a row of a matrix, read together by one warp; by bytes of a number. Larger ones of float32
need more registers than there are."""
TILES = (8, 16)
"""Rows of a matrix in one tile."""
SAME_BITS = {torch.bfloat16: 16, torch.float16: 13, torch.float32: 0}
"""Low bits of a float32 that are the same in all numbers of a type and sign."""
CAPABILITY = (8, 0)
"""Least compute capability of the kernel."""
CHECKED_ROWS = (1, 2, 4, MOST_ROWS)
"""Each is compiled on its own; others are padded."""
TOLERANCE = 1e-3
"""Relative error of logits, beside twice that of plain torch in the same type."""


def power_of_two(least: int) -> int:
    return 1 << max(0, least - 1).bit_length()


def tile_rows(rows: int, programs: int) -> int:
    """Return the rows of a tile that leave the busiest program least work."""
    return min(TILES, key=lambda tile: (math.ceil(rows / tile / programs) * tile, -tile))


def barriers(config: PredictorConfig) -> int:
    """Return the grid-wide barriers of one launch.

    Five a layer, the head's and that of the sampled codes; none behind the last codes.
    """
    return config.groups * (5 * config.layers.layers + 2) - 1


def constants_of(
    config: PredictorConfig, *, programs: int, dtype: torch.dtype, weighted: bool, compiled: bool
) -> dict[str, int | bool]:
    """Return the kernel's constants except M, the padded rows.

    ``weighted``: norms have weights of their own; ``compiled``: not for the interpreter.
    """
    layers = config.layers
    half = layers.head_dim // 2
    return {
        "GRID": programs,
        "STEPS": config.groups,
        "LAYERS": layers.layers,
        "HIDDEN": layers.hidden,
        "FFN": layers.ffn,
        "VOCAB": config.vocab,
        "GROUPS": layers.kv_heads,
        "QUERIES": layers.heads // layers.kv_heads,
        "HALF": half,
        "RANKS": TOP_K_LIMIT,
        "SHIFT": SAME_BITS[dtype],
        "BK": CHUNK_BYTES[dtype.itemsize] // dtype.itemsize,
        "SPLIT": WARPS,
        "BN_QKV": tile_rows((layers.heads + 2 * layers.kv_heads) * layers.head_dim, programs),
        "BN_HIDDEN": tile_rows(layers.hidden, programs),
        "BN_FFN": tile_rows(layers.ffn, programs),
        "BN_HEAD": tile_rows(config.vocab, programs),
        "BLOCK_HIDDEN": power_of_two(layers.hidden),
        "BLOCK_HALF": power_of_two(half),
        "BLOCK_VOCAB": power_of_two(config.vocab),
        "PLACES": power_of_two(config.groups + 1),
        "KEY_LOW": KEY_LOW,
        "KEY_HIGH": KEY_HIGH,
        "FRAME": FRAME,
        "TOP_K": TOP_K,
        "WEIGHTED": weighted,
        "COMPILED": compiled,
    }


@dataclass(frozen=True, slots=True, eq=False)
class PersistentPredictor:
    """A code predictor's weights as the kernel takes them; launched on one stream at a time.

    All programs of a launch must run together, which a cooperative launch promises or refuses:
    none can leave a barrier that another never reaches.
    """

    predictor: CodePredictor
    """Owns what the addresses point to."""
    table: Tensor
    """int64 addresses: of each layer qkv, out, gate and up, down, both norms; heads; embeddings
    of codes 1 to 14; the last norm. 0 for a norm without weight."""
    rotations: Tensor
    """[layers, 16, queries + 1, 2, 2, head_dim / 2] float32."""
    counter: Tensor
    """The barriers' counter, int64. Never reset."""
    constants: Mapping[str, int | bool]
    kernel: ModuleType

    @classmethod
    def build(
        cls, predictor: CodePredictor, config: PredictorConfig, *, programs: int
    ) -> PersistentPredictor:
        """Take the weights of ``predictor``; ``programs``: multiprocessors of the GPU.

        Raises:
            ValueError: weights that the kernel cannot read.
            ImportError: no Triton.
        """
        layers, last = predictor.stack.layers, predictor.norm
        device, dtype = predictor.inputs[0].device, predictor.inputs[0].dtype
        addresses: list[int] = []

        def add(matrix: object) -> None:
            if (
                not isinstance(matrix, Tensor)
                or not matrix.is_contiguous()
                or matrix.dtype != dtype
                or matrix.data_ptr() % 16
            ):
                raise ValueError("weights are not plain matrices")
            addresses.append(matrix.data_ptr())

        def add_norm(norm: RmsNorm) -> None:
            addresses.append(0 if norm.weight is None else norm.weight.data_ptr())

        for layer in layers:
            for matrix in (layer.qkv, layer.out, layer.gate_up, layer.down):
                add(matrix.t() if isinstance(matrix, Tensor) else matrix)
            add_norm(layer.before_attention)
            add_norm(layer.before_ffn)
        for head in predictor.heads:
            add(head.t() if isinstance(head, Tensor) else head)
        for table in predictor.inputs[1:]:
            add(table)
        add_norm(last)
        constants = constants_of(
            config,
            programs=programs,
            dtype=dtype,
            weighted=last.weight is not None,
            compiled=device.type != "cpu",
        )
        return cls(
            predictor,
            torch.tensor(addresses, device=device),
            torch.stack([torch.cat(one) for one in predictor.rotations]),
            torch.zeros(1, dtype=torch.int64, device=device),
            constants,
            importlib.import_module("qwen3tts_engine.qwen3.kernels.predictor_kernel"),
        )

    def __call__(self, x: Tensor, sampler: Sampler) -> bool:
        """Sample codes 1 to 15; False, and nothing done, where the plain path must.

        ``x`` [2, B, hidden], the inputs of positions 0 and 1, is overwritten.
        """
        if x.shape[1] > MOST_ROWS or sampler.rows.full_sort:
            return False
        self.launch(x, sampler)
        return True

    def launch(self, x: Tensor, sampler: Sampler) -> Tensor:
        """Sample codes 1 to 15 of at most MOST_ROWS rows; return logits [15, B, vocab]."""
        rows, slots, codes = x.shape[1], sampler.rows.slots, sampler.ids
        counters, knobs = sampler.rows.kv_cache.counters, sampler.rows.kv_cache.knobs
        config, norm = self.predictor.stack.config, self.predictor.norm
        heads = config.heads * config.head_dim
        width = heads + 2 * config.kv_heads * config.head_dim
        steps = len(self.predictor.heads)
        logits = x.new_empty(steps, rows, self.constants["VOCAB"])
        self.kernel._predict[(self.constants["GRID"],)](
            x,
            codes,
            slots,
            counters,
            knobs,
            self.table,
            self.rotations,
            x.new_empty(config.layers, steps + 1, rows, width),
            x.new_empty(2 * rows, heads),
            x.new_empty(2 * rows, config.ffn),
            logits,
            slots.new_empty(rows, TOP_K_LIMIT),
            self.counter,
            rows,
            counters.stride(0),
            knobs.stride(0),
            codes.stride(0),
            config.hidden * norm.eps,
            # What a norm that is not fused leaves to the weights behind it.
            math.sqrt(config.hidden) if norm.fused else 1.0,
            config.head_dim * norm.eps,
            math.sqrt(config.head_dim) if norm.fused else 1.0,
            1.0 / math.sqrt(config.head_dim),
            **self.constants,
            M=power_of_two(2 * rows),
            num_warps=WARPS,
            num_stages=STAGES,
            maxnreg=REGISTERS,
            launch_cooperative_grid=True,
        )
        return logits


class PredictorRefused(Exception):
    """The kernel cannot be used here; says why."""


def persistent_predictor(model: Qwen3Model) -> PersistentPredictor:
    """Return the kernel of a model, checked against plain torch.

    Raises:
        PredictorRefused: no such GPU, no Triton, a failed launch, or other codes.
    """
    device = model.device
    if device.type != "cuda":
        raise PredictorRefused("it needs a GPU")
    if torch.cuda.get_device_capability(device) < CAPABILITY:
        raise PredictorRefused("it needs compute capability 8.0")
    programs = torch.cuda.get_device_properties(device).multi_processor_count
    try:
        persistent = PersistentPredictor.build(
            model.predictor, model.config.predictor, programs=programs
        )
        check(model, persistent)
    except ImportError as error:
        raise PredictorRefused("Triton cannot be used") from error
    except (ArithmeticError, RuntimeError, ValueError, _triton_error()) as error:
        own = isinstance(error, (ArithmeticError, ValueError))
        raise PredictorRefused(str(error) if own else type(error).__name__) from error
    return persistent


def _triton_error() -> type[Exception]:
    errors: type[Exception] = importlib.import_module("triton.errors").TritonError
    return errors


class _Given(TorchSampler):
    def __init__(self, rows: FrameRows, codes: Tensor) -> None:
        super().__init__(rows)
        self.codes = codes
        self.logits: list[Tensor] = []

    def sample(self, codebook: int, logits: Tensor) -> None:
        self.logits.append(logits)
        self.ids[codebook].copy_(self.codes[codebook])


@torch.no_grad()
def check(model: Qwen3Model, persistent: PersistentPredictor) -> None:
    """Compare the kernel with plain torch on the model's weights, for all padded rows.

    In float32 (a copy of 0.5 GB at the published size) greedy codes must be equal. In the model's
    type, logits may differ from those of float32 by twice plain torch's error.

    Raises:
        ArithmeticError: they are not.
    """
    exact = in_float32(model.predictor)
    programs = int(persistent.constants["GRID"])
    copy = PersistentPredictor.build(exact, model.config.predictor, programs=programs)
    _compare(model, copy, exact, CHECKED_ROWS[1])
    frame = _frame(model, torch.float32, CHECKED_ROWS[1])
    plain, ours = TorchSampler(frame), TorchSampler(frame)
    exact.predict(plain, TORCH_KERNELS)
    exact.predict(ours, replace(TORCH_KERNELS, predict=copy))
    if not torch.equal(plain.ids[:-1], ours.ids[:-1]):
        raise ArithmeticError("it gives other codes than plain torch")
    for rows in CHECKED_ROWS:
        _compare(model, persistent, exact, rows)


def _frame(model: Qwen3Model, dtype: torch.dtype, rows: int) -> FrameRows:
    kv_cache = KvCache(model.config, slots=rows, positions=1, device=model.device, dtype=dtype)
    draw = torch.Generator().manual_seed(rows)
    for state in (kv_cache.hidden, kv_cache.logits):
        state.copy_(torch.randn(state.shape, generator=draw).to(state))
    for slot in range(rows):
        kv_cache.counters[slot, TOP_K:] = 1
        kv_cache.knobs[slot].zero_()
        kv_cache.knobs[slot, -1:] = 1.0
    slots = torch.arange(rows - 1, -1, -1, device=model.device)
    return FrameRows(model.constants, kv_cache, slots, torch.zeros_like(slots), False)


def _compare(
    model: Qwen3Model, persistent: PersistentPredictor, exact: CodePredictor, rows: int
) -> None:
    ours, plain = errors(model, persistent, exact, rows)
    # A NaN is no agreement either.
    if not ours <= 2 * plain + TOLERANCE:
        raise ArithmeticError("its logits are not those of plain torch")


@torch.no_grad()
def errors(
    model: Qwen3Model, persistent: PersistentPredictor, exact: CodePredictor, rows: int
) -> tuple[float, float]:
    """Return relative errors of greedy logits, the kernel's and plain torch's, against ``exact``.

    Raises:
        ArithmeticError: codes that do not exist, or are not greedy.
    """
    found: list[Tensor] = []

    def launch(x: Tensor, sampler: Sampler) -> bool:
        found.append(persistent.launch(x, sampler).float())
        return True

    predictor = persistent.predictor
    ours = TorchSampler(_frame(model, predictor.inputs[0].dtype, rows))
    predictor.predict(ours, replace(TORCH_KERNELS, predict=launch))
    ids = ours.ids[:-1]
    if not bool(((ids[1:] >= 0) & (ids[1:] < model.config.predictor.vocab)).all()):
        raise ArithmeticError("it gives codes that do not exist")
    # Of greedy rows, each code has the largest logit.
    if not torch.equal(found[0].gather(-1, ids[1:, :, None])[..., 0], found[0].amax(dim=-1)):
        raise ArithmeticError("it does not take the largest logit")

    def logits(one: CodePredictor) -> Tensor:
        given = _Given(_frame(model, one.inputs[0].dtype, rows), ours.ids)
        one.predict(given, TORCH_KERNELS)
        return torch.stack(given.logits).float()

    wanted = logits(exact)
    size = wanted.norm()
    return float((found[0] - wanted).norm() / size), float(
        (logits(predictor) - wanted).norm() / size
    )


def in_float32(predictor: CodePredictor) -> CodePredictor:
    def wide(matrix: object) -> Tensor:
        if not isinstance(matrix, Tensor):
            raise ValueError("weights are not plain matrices")
        return matrix.t().float().t() if matrix.dim() == 2 else matrix.float()

    def norm(one: RmsNorm) -> RmsNorm:
        return one if one.weight is None else replace(one, weight=one.weight.float())

    layers = tuple(
        replace(
            layer,
            before_attention=norm(layer.before_attention),
            qkv=wide(layer.qkv),
            out=wide(layer.out),
            before_ffn=norm(layer.before_ffn),
            gate_up=wide(layer.gate_up),
            down=wide(layer.down),
        )
        for layer in predictor.stack.layers
    )
    projection = predictor.projection
    return replace(
        predictor,
        inputs=tuple(table.float() for table in predictor.inputs),
        projection=None if projection is None else (wide(projection[0]), projection[1].float()),
        stack=replace(predictor.stack, layers=layers),
        norm=norm(predictor.norm),
        heads=tuple(map(wide, predictor.heads)),
    )
