"""Table of the Triton kernels of a decode step, and their trial at a model's real shapes.

A large GPU is bound by launches at few rows: each kernel is one launch, and replaces the function
of its name in transformer.py up to rounding. Triton's interpreter runs them without a GPU
(``TRITON_INTERPRET=1`` before the import).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.attention_kernels import (
    decode_attention,
    first_attention,
    frame_attention,
)
from qwen3tts_engine.qwen3.kernels.layer_kernels import (
    MOST_ROWS,
    add_linear,
    gated_linear,
    norm_linear,
)
from qwen3tts_engine.qwen3.kernels.prompt_kernels import prefill_attention
from qwen3tts_engine.qwen3.kernels.sampling_kernels import make_sampler
from qwen3tts_engine.qwen3.kernels.talker_kernels import embed, store
from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampler import FrameRows
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.transformer import (
    TORCH_KERNELS,
    DecoderStack,
    Kernels,
    length_mask,
    rotary_angles,
)

log = logging.getLogger(__name__)

TRITON = Kernels(
    norm_linear=norm_linear,
    gated_linear=gated_linear,
    add_linear=add_linear,
    decode_attention=decode_attention,
    prefill_attention=prefill_attention,
    frame_attention=frame_attention,
    first_attention=first_attention,
    sampler=make_sampler,
    embed=embed,
    store=store,
)
"""Kernels for NVIDIA GPUs."""

TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest difference from plain torch, in parts of the value and of the root mean square."""
LONG = 2048
"""Positions of a trial of attention, if the model has as many."""

Trial = tuple[str, Callable[[Kernels], tuple[Tensor, ...]]]
"""Kernel's name, and its results with a table's kernel."""


@torch.no_grad()
def usable(model: Qwen3Model) -> tuple[Kernels, dict[str, str]]:
    """Return kernels that compile and agree with torch (torch's for others), and failures by name.

    They are tried with the model's own weights and shapes.
    """
    draw = Draw(model.device, model.dtype)
    talker, predictor = model.talker, model.predictor
    trials = (
        *layer_trials(talker.stack, draw),
        *layer_trials(predictor.stack, draw),
        *head_trials(model, draw),
        *decode_trials(talker.stack, min(LONG, len(talker.angles)), draw),
        *prefill_trials(talker.stack, draw),
        *frame_trials(predictor.stack, len(predictor.heads), draw),
        *step_trials(model, draw),
    )
    found, failed = TRITON, dict[str, str]()
    for name, run in trials:
        if name in failed:
            continue
        try:
            for ours, plain in zip(run(TRITON), run(TORCH_KERNELS), strict=True):
                compare(name, ours, plain)
        except Exception as error:
            log.warning("the kernel %s cannot be used", name, exc_info=error)
            failed[name] = type(error).__name__
            found = replace(found, **{name: getattr(TORCH_KERNELS, name)})
    return found, failed


def compare(name: str, ours: Tensor, plain: Tensor) -> None:
    """Raise ArithmeticError where results differ by more than rounding."""
    tolerance = TOLERANCES[plain.dtype]
    mine, theirs = ours.float(), plain.float()
    scale = float(theirs.square().mean().sqrt())
    if not torch.allclose(mine, theirs, atol=tolerance * scale, rtol=tolerance):
        raise ArithmeticError(f"{name} does not do what plain torch does")


class Draw:
    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._generator = torch.Generator().manual_seed(1)
        self.device, self._dtype = device, dtype

    def __call__(self, *shape: int) -> Tensor:
        numbers = torch.randn(shape, generator=self._generator)
        return numbers.to(self.device, self._dtype)

    def order(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self._generator).to(self.device)

    def integers(self, *values: int) -> Tensor:
        return torch.tensor(values, device=self.device)


def layer_trials(stack: DecoderStack, draw: Draw) -> Iterator[Trial]:
    config, layer = stack.config, stack.layers[0]
    for rows in (1, MOST_ROWS):
        x = draw(rows, config.hidden)
        y, gated = draw(rows, config.heads * config.head_dim), draw(rows, config.ffn)

        def project(kernels: Kernels, x: Tensor = x) -> tuple[Tensor, ...]:
            return (layer.project(x, kernels),)

        def gate(kernels: Kernels, x: Tensor = x) -> tuple[Tensor, ...]:
            return (kernels.gated_linear(x, layer.before_ffn, layer.gate_up),)

        def add(
            kernels: Kernels, x: Tensor = x, y: Tensor = y, gated: Tensor = gated
        ) -> tuple[Tensor, ...]:
            return (
                kernels.add_linear(x.clone(), y, layer.out),
                kernels.add_linear(x.clone(), gated, layer.down),
            )

        yield "norm_linear", project
        yield "gated_linear", gate
        yield "add_linear", add


def head_trials(model: Qwen3Model, draw: Draw) -> Iterator[Trial]:
    talker, predictor = model.talker, model.predictor
    wide, narrow = (draw(1, part.stack.config.hidden) for part in (talker, predictor))

    def heads(kernels: Kernels) -> tuple[Tensor, ...]:
        return (
            kernels.norm_linear(wide, talker.norm, talker.head),
            kernels.norm_linear(narrow, predictor.norm, predictor.heads[-1]),
        )

    yield "norm_linear", heads


def plain_rotations(stack: DecoderStack, positions: int, device: torch.device) -> Tensor:
    """Return rotations [positions, 1, Q + 1, 2, 2, D / 2] without weights of the heads' norms.

    Those of a checkpoint make attention sharp, and rounding large.
    """
    scale = 1.0 if stack.head_norm.fused else math.sqrt(stack.config.head_dim)
    wide = (rotary_angles(stack.config, positions, device) * scale)[:, None, None].expand(
        -1, -1, stack.queries + 1, -1, -1, -1
    )
    return wide.contiguous()


def decode_trials(stack: DecoderStack, places: int, draw: Draw) -> Iterator[Trial]:
    config, width = stack.config, stack.queries + 2
    rotations = plain_rotations(stack, places, draw.device)
    for positions in ((places - 1,), (places // 2, 1, 0)):
        rows, pos = len(positions), draw.integers(*positions)
        slots = draw.integers(*reversed(range(rows)))
        cache = draw(rows + 1, places, config.kv_heads, 2, config.head_dim)
        heads = draw(rows, config.kv_heads, width, config.head_dim)
        rotation = rotations.index_select(0, pos)

        # What attention leaves for later steps counts as well as what it gives.
        def attend(
            kernels: Kernels,
            given: tuple[Tensor, ...] = (heads, rotation, cache, slots, pos),
        ) -> tuple[Tensor, ...]:
            heads, rotation, cache, slots, pos = given
            kept = cache.clone()
            y = kernels.decode_attention(
                heads.clone(), stack.head_norm, rotation, kept, slots, pos, places
            )
            return y, kept

        yield "decode_attention", attend


def prefill_trials(stack: DecoderStack, draw: Draw) -> Iterator[Trial]:
    """Yield a long row behind a restored prefix, with padding, and a short one."""
    config, prefix = stack.config, 37
    rows, length, kv_len = 2, 40, prefix + 40
    slots, lengths = draw.integers(1, 0), draw.integers(length, 3)
    steps = torch.arange(length, device=draw.device)
    positions = draw.integers(prefix, 0)[:, None] + steps
    places = torch.where(steps < lengths[:, None], slots[:, None], rows)
    valid = (steps < lengths[:, None]).flatten()
    mask = length_mask(
        positions, torch.arange(kv_len, device=draw.device), draw(1).zero_().squeeze()
    )
    cache = draw(rows + 1, kv_len, config.kv_heads, 2, config.head_dim)
    heads = draw(rows * length, config.kv_heads, stack.queries + 2, config.head_dim)
    rotation = plain_rotations(stack, kv_len, draw.device).index_select(0, positions.flatten())

    def attend(kernels: Kernels) -> tuple[Tensor, ...]:
        kept = cache.clone()
        y = kernels.prefill_attention(
            heads.clone(), stack.head_norm, rotation, kept, slots, places.flatten(),
            positions.flatten(), mask,
        )  # fmt: skip
        # Padding goes to the scratch slot; its outputs are not used.
        return y[valid], kept[:rows]

    yield "prefill_attention", attend


def frame_trials(stack: DecoderStack, last: int, draw: Draw) -> Iterator[Trial]:
    config, queries = stack.config, stack.queries
    work = draw(last + 1, 2, config.kv_heads, queries + 2, config.head_dim)
    rotations = plain_rotations(stack, last + 1, draw.device)

    def first(kernels: Kernels) -> tuple[Tensor, ...]:
        kept = work.clone()
        both = kernels.first_attention(kept, stack.head_norm, rotations[:2, None])
        one = kernels.first_attention(
            work.clone(), stack.head_norm, rotations[:2, None], only_last=True
        )
        return both, one, kept[..., queries:, :]

    def frame(kernels: Kernels) -> tuple[Tensor, ...]:
        kept = work.clone()
        y = kernels.frame_attention(kept, stack.head_norm, rotations[last:], last)
        return y, kept[..., queries:, :]

    yield "first_attention", first
    yield "frame_attention", frame


def step_trials(model: Qwen3Model, draw: Draw) -> Iterator[Trial]:
    config, talker, predictor = model.config, model.talker, model.predictor
    kv_cache = KvCache(config, slots=3, positions=1, device=draw.device, dtype=model.dtype)
    for slot, (temperature, top_k) in enumerate(((0.9, 50), (0.0, 1), (1.5, 64))):
        # No quotient by the penalty equals another logit.
        sampling = Sampling(temperature, top_k, 1.0, 1.37, temperature, top_k)
        kv_cache.reset(slot, sampling, slot)
    slots = draw.integers(2, 0, 1)

    def leading(*shape: int) -> Tensor:
        """Logits whose first 100 differ in every dtype: torch ranks equal ones in any order."""
        logits = draw(*shape)
        logits[:, draw.order(shape[1])[:100]] = 8 + torch.arange(100.0).to(logits) / 16
        return logits

    first, rest = leading(4, config.talker.vocab).float(), leading(3, config.predictor.vocab)
    hidden, tables = draw(*kv_cache.hidden.shape), predictor.inputs

    def sample(kernels: Kernels) -> tuple[Tensor, ...]:
        kv_cache.logits.copy_(first)
        kv_cache.hidden.copy_(hidden)
        kv_cache.seen.copy_(first > 12)
        made = kernels.sampler(FrameRows(model.constants, kv_cache, slots, slots, False))
        wide, x = made.first(tables[0])
        y = made.sample_input(1, rest, tables[1])
        made.sample(2, rest)
        codes, ids, pos = made.finish()
        found = (codes[:, :3], ids[:3], pos, kv_cache.seen, kv_cache.codes[:3, 0, :3])
        return wide, x[1], y, *(part.float() for part in found)

    ids = draw.integers(*range(51)).view(17, 3)

    def sum_embeddings(kernels: Kernels) -> tuple[Tensor, ...]:
        return (kernels.embed(ids.clone(), slots, talker.offsets, talker.table),)

    x = draw(3, talker.stack.config.hidden)

    def keep(kernels: Kernels) -> tuple[Tensor, ...]:
        kv_cache.counters[:, :2] = 1
        kernels.store(kv_cache, slots, x.clone(), talker.norm, talker.head, advance=True)
        return kv_cache.hidden[:3].clone(), kv_cache.logits[:3], kv_cache.counters[:3, :2].float()

    yield "sampler", sample
    yield "embed", sum_embeddings
    yield "store", keep
