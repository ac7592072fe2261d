"""The CUDA path of a published model at its real shapes, traced without a GPU.

Weights and state are meta tensors: shapes without numbers. Work is built and run as on a GPU, with
the Triton kernels; what would be launched goes to an observer, and nothing is launched. Kernels
of Triton are compiled for a chosen architecture where the observer asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeGuard
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from qwen3tts_engine.qwen3.kernels.stages import DecodeKey, PrefillKey, StepKey, WorkBuilder
from qwen3tts_engine.qwen3.model import codec_decoder, transformer
from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.talker import CodePredictor
from tests.tiny_models.published import PUBLISHED
from tests.tiny_models.weights import random_weights

StageName = Literal["draw", "predictor", "talker", "codec", "prefill"]
STAGES: tuple[StageName, ...] = ("draw", "predictor", "talker", "codec", "prefill")
"""``draw``: code 0 and the sampling inputs of all codebooks."""
MODELS = ("0.6b-custom_voice", "1.7b-custom_voice")
ARCHITECTURES = (80, 86, 89, 90, 100, 120)
"""Compute capabilities times ten: A100, RTX 30, RTX 40 and L4, H100 and H200, B200, RTX 50."""
NO_NODE = ("empty", "new_empty", "empty_like", "empty_strided", "_unsafe_view", "detach", "alias",
           "lift_fresh")  # fmt: skip
"""Operations that make memory or a view, though their schema does not say so."""
WHOLE = ("rms_norm", "scaled_dot_product_attention")
"""Functions that are one kernel on CUDA and several operations on meta."""
MORE_NODES: Mapping[str, int] = {"masked_fill": 1, "constant_pad_nd": 1, "topk": 1}
"""Further kernels of an operation on CUDA: a clone or a fill before it; topk sorts what it found
by another kernel."""
LOOKS_UP = ("embedding", "index_select", "index", "gather")
"""Operations that read of their first tensor only what they give."""
WRITES_PART = ("index_put_", "index_copy_", "index_add_", "scatter_")
"""Operations that touch of their first tensor only what their last one holds."""


@dataclass(frozen=True, slots=True)
class Node:
    """One kernel of a graph."""

    stage: StageName
    name: str
    bytes: int
    """Read and written. Of a Triton kernel: of all its tensors, as far as they are views;
    the KV cache counts up to the traced position."""
    triton: bool = False


@dataclass
class Trace:
    """A model on a GPU's path, and what it launched."""

    model: Qwen3Model
    rows: int
    position: int = 150
    """Positions that attention is taken to read."""
    nodes: list[Node] = field(default_factory=list)
    launched: Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], object] | None = None
    """Called with each Triton kernel, its grid and arguments, instead of launching it."""

    def __post_init__(self) -> None:
        self._stage: StageName = "draw"
        self._hidden = 0
        model = self.model
        self.kv_cache = KvCache(
            model.config, slots=self.rows, positions=1024, device="meta", dtype=model.dtype
        )
        self.codec = model.decoder.new_state(self.rows)
        self.builder = WorkBuilder(model, self.kv_cache, self.codec)
        self._cached = {self.kv_cache.kv.untyped_storage()._cdata}
        tables = (model.talker.table, *model.predictor.inputs)
        self._tables = {table.untyped_storage()._cdata for table in tables}

    # --- what runs ---

    def step(self, *, full_sort: bool = False) -> None:
        """A frame step: the stages draw, predictor and talker."""
        codes, talker = self.builder.step(StepKey(self.rows, 64, full_sort)).works
        self.run("draw", codes)
        self.run("talker", talker)

    def decode(self, frames: int = 1) -> None:
        """Decode so many frames of every row."""
        self.run("codec", *self.builder.decode(DecodeKey(self.rows, frames)).works)

    def prefill(self, length: int = 16) -> None:
        """Prefill every row with so many positions."""
        key = PrefillKey(self.rows, length, length)
        self.run("prefill", *self.builder.prefill(key).works)

    def run(self, stage: StageName, *works: Callable[[], object]) -> None:
        """Trace works as those of a stage."""
        predict = CodePredictor.predict

        def predicted(predictor: CodePredictor, *args: Any, **kwargs: Any) -> None:
            before, self._stage = self._stage, "predictor"
            try:
                predict(predictor, *args, **kwargs)
            finally:
                self._stage = before

        self._stage = stage
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(CodePredictor, "predict", predicted))
            stack.enter_context(_launches(self._launch))
            stack.enter_context(torch.no_grad())
            stack.enter_context(_Operations(self))
            stack.enter_context(_Functions(self))
            for work in works:
                work()

    # --- what it saw ---

    def add(self, name: str, size: int, *, triton: bool = False) -> None:
        """Add a node to the stage that runs."""
        if not self._hidden:
            self.nodes.append(Node(self._stage, name, size, triton))

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """What runs within is part of a node that was added."""
        self._hidden += 1
        try:
            yield
        finally:
            self._hidden -= 1

    def size(self, tensor: Tensor) -> int:
        """Bytes behind a view."""
        if tensor.untyped_storage()._cdata in self._cached:
            layers = self.model.config.talker.layers
            row = 2 * layers.kv_heads * layers.head_dim * tensor.element_size()
            return self.rows * self.position * row
        if tensor.untyped_storage()._cdata in self._tables:
            # Of embeddings a kernel reads one for each row.
            return self.rows * tensor.shape[-1] * tensor.element_size()
        spread = 1
        for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
            spread *= length if stride else 1
        return spread * tensor.element_size()

    def _launch(self, kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        size = sum(self.size(each) for each in (*args, *kwargs.values()) if _is_tensor(each))
        self.add(kernel.fn.__name__, size, triton=True)
        return None if self.launched is None else self.launched(kernel, grid, args, kwargs)


def _is_tensor(thing: object) -> TypeGuard[Tensor]:
    return isinstance(thing, Tensor)


class _Operations(TorchDispatchMode):
    """Adds each operation that launches a kernel."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._trace = trace

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Add one operation and run it."""
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        result = func(*args, **kwargs)
        views = any(
            each.alias_info is not None and not each.alias_info.is_write
            for each in func._schema.returns
        )
        if views or name in NO_NODE:
            return result
        trace = self._trace
        given = [each for each in pytree.tree_leaves((args, kwargs)) if _is_tensor(each)]
        made = [each for each in pytree.tree_leaves(result) if _is_tensor(each)]
        written = sum(map(trace.size, made))
        if name in LOOKS_UP:
            size = 2 * written
        elif name in WRITES_PART:
            size = 2 * trace.size(given[-1])
        else:
            size = written + sum(map(trace.size, given))
        trace.add(name, size)
        if name == "addmm" and args[0].dim() == 2 and _copies(args[0], kwargs.get("out")):
            trace.add("addmm's copy", 2 * written)
        if name == "convolution" and args[2] is not None:
            trace.add("convolution's bias", 2 * written)
        for _ in range(MORE_NODES.get(name, 0)):
            trace.add(f"{name}'s second", 2 * written)
        return result


def _copies(addend: Tensor, out: Tensor | None) -> bool:
    """True unless the sum goes into its addend."""
    if out is None or addend.shape != out.shape:
        return True
    same = addend.untyped_storage()._cdata == out.untyped_storage()._cdata
    return not same or addend.storage_offset() != out.storage_offset()


class _Functions(TorchFunctionMode):
    """Adds functions that are one kernel on CUDA."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Add one call, and run what it is made of unseen."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name not in WHOLE:
            return func(*args, **kwargs)
        with self._trace.hidden():
            result = func(*args, **kwargs)
        given = [each for each in pytree.tree_leaves((args, kwargs)) if _is_tensor(each)]
        self._trace.add(name, sum(map(self._trace.size, [*given, result])))
        return result


# --- Triton without a GPU ---


class Target:
    """Stands in for Triton's driver: a device of one architecture."""

    def __init__(self, architecture: int) -> None:
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget("cuda", architecture, 32)

    def get_current_target(self) -> Any:
        """See triton.backends.driver.DriverBase."""
        return self._target

    def get_current_device(self) -> int:
        """A number of its own for each architecture: Triton keeps compiled kernels by it."""
        return int(self._target.arch)

    def get_current_stream(self, device: int) -> int:
        """See triton.backends.driver.DriverBase."""
        return 0


@contextmanager
def _launches(launch: Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]) -> Iterator[None]:
    from triton.runtime.jit import JITFunction

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        return launch(kernel, grid, args, kwargs)

    with mock.patch.object(JITFunction, "run", run):
        yield


@contextmanager
def compiling(architecture: int, cache: str | Path) -> Iterator[Callable[..., Any]]:
    """Give a function that compiles a launch: to be called as ``Trace.launched``.

    Triton keeps its files in the folder ``cache``.
    """
    from triton import knobs
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    from qwen3tts_engine.qwen3.kernels import pdl

    run = JITFunction.run

    def compiled(kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return run(kernel, *args, grid=grid, warmup=True, **kwargs)

    with knobs.cache.scope():
        knobs.cache.dir = str(cache)
        with (
            mock.patch.object(driver, "_active", Target(architecture)),
            mock.patch.object(pdl, "has_pdl", return_value=architecture >= 90),
        ):
            yield compiled


@lru_cache
def meta_model(name: str, dtype: torch.dtype, codec_dtype: torch.dtype) -> Qwen3Model:
    """A published model without numbers, with the kernels of a GPU."""
    from qwen3tts_engine.qwen3.kernels.codec_kernels import TRITON_CODEC
    from qwen3tts_engine.qwen3.kernels.triton_kernels import TRITON

    config = PUBLISHED[name]
    weights, codec = random_weights(config, device="meta", dtype=dtype)
    with _meta_numbers():
        model = Qwen3Model.from_weights(
            config, weights, codec, device="meta", dtype=dtype, codec_dtype=codec_dtype,
            fused_norm=True,
        )  # fmt: skip
    model.kernels, model.decoder.kernels = TRITON, TRITON_CODEC
    return model


@contextmanager
def _meta_numbers() -> Iterator[None]:
    """Loading may look at numbers: a meta tensor's are 1, and what is asked of them holds."""
    to_cpu, item = Tensor.cpu, Tensor.item
    truth, number = Tensor.__bool__, Tensor.__float__

    def stay(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        # The codec is folded on the CPU.
        return tensor if tensor.is_meta else to_cpu(tensor, *args, **kwargs)

    with ExitStack() as stack:
        for name, function in {
            "cpu": stay,
            "item": lambda tensor: 1.0 if tensor.is_meta else item(tensor),
            "__bool__": lambda tensor: tensor.is_meta or truth(tensor),
            "__float__": lambda tensor: 1.0 if tensor.is_meta else number(tensor),
        }.items():
            stack.enter_context(mock.patch.object(Tensor, name, function))
        for module in (transformer, codec_decoder):
            if hasattr(module, "has_fused_norm"):
                stack.enter_context(mock.patch.object(module, "has_fused_norm", return_value=True))
        yield
