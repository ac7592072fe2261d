"""The sampling kernel and those around the talker, run by Triton's interpreter, against torch.

Run by test_triton_kernels.py in a process of its own, like triton_cases.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from qwen3tts_engine.qwen3.kernels import sampling_kernels, talker_kernels, triton_kernels
from qwen3tts_engine.qwen3.kernels.sampling_kernels import TritonSampler, make_sampler
from qwen3tts_engine.qwen3.model import transformer
from qwen3tts_engine.qwen3.model.config import MIN_FRAMES, NOT_FINITE
from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampler import (
    FrameRows,
    MakeSampler,
    SampledCodes,
    Sampler,
    TorchSampler,
)
from qwen3tts_engine.qwen3.model.sampling import Sampling, SamplingConstants
from qwen3tts_engine.qwen3.model.transformer import RmsNorm
from tests.qwen3.model.rows import Stage, script
from tests.qwen3.model.small import small_config, small_weights

CONFIG = small_config(projection=True)
CPU = torch.device("cpu")
CONSTANTS = SamplingConstants.build(CONFIG, CPU)
VOCAB, CODES, EOS = CONFIG.talker.vocab, CONFIG.predictor.vocab, CONFIG.talker.ids.eos
TOP_K = (50, 1, 64, 50, 7)
TEMPERATURE = (0.9, 0.0, 2.0, 0.2)

pytestmark = [
    pytest.mark.filterwarnings("ignore:invalid value"),
    pytest.mark.filterwarnings("ignore:divide by zero"),
]


@pytest.fixture(autouse=True)
def ties_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch leaves the order of equal logits open."""
    topk = Tensor.topk

    def stable(logits: Tensor, count: int, dim: int) -> tuple[Tensor, Tensor]:
        values, ids = logits.sort(dim=dim, descending=True, stable=True)
        assert torch.equal(values[:, :count].nan_to_num(), topk(logits, count, dim)[0].nan_to_num())
        return values[:, :count], ids[:, :count]

    monkeypatch.setattr(Tensor, "topk", stable)


class Frame:
    """Rows of a KV cache with random state, and what a sampler makes of them."""

    def __init__(self, rows: int, dtype: torch.dtype, seed: int, padding: int = 1) -> None:
        self.draw = torch.Generator().manual_seed(seed)
        self.rows, self.dtype = rows, dtype
        self.kv_cache = KvCache(CONFIG, slots=rows, positions=9, dtype=dtype)
        for slot in range(rows):
            temperature, top_k = TEMPERATURE[slot % 4], TOP_K[slot % 5]
            sampling = Sampling(
                temperature=temperature,
                top_k=top_k,
                repetition_penalty=1.0 + 0.3 * (slot % 3),
                predictor_temperature=temperature,
                predictor_top_k=top_k,
            )
            self.kv_cache.reset(slot, sampling, 7919 * slot + seed)
        self.kv_cache.frame[:rows] = torch.tensor([0, 1, 2, 70, 2**20] * rows)[:rows]
        self.kv_cache.pos[:rows] = torch.arange(rows) * 3
        self.kv_cache.seen.copy_(self.random(*self.kv_cache.seen.shape) > 1.5)
        self.kv_cache.logits.copy_(4 * self.random(*self.kv_cache.logits.shape))
        self.kv_cache.hidden.copy_(self.random(*self.kv_cache.hidden.shape))
        order = torch.randperm(rows, generator=self.draw)
        self.slots = torch.cat((order, torch.full((padding,), rows)))
        self.eos_allowed = torch.arange(len(self.slots)) % 2
        self.tables = [
            self.random(vocab, 24).to(dtype) for vocab in (VOCAB, *[CODES] * 14)
        ]  # fmt: skip
        logits = 4 * self.random(15, len(self.slots), CODES)
        # Many equal ones, as bfloat16 has.
        self.logits = (logits.round() if seed % 2 else logits).to(dtype)

    def random(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.draw)

    def sampled(self, make: MakeSampler, *, books: Sequence[int] = range(1, 16)) -> list[Tensor]:
        """All that a sampler returns and writes, padding's left out."""
        kept = [part.clone() for part in (self.kv_cache.seen, self.kv_cache.codes)]
        rows = FrameRows(CONSTANTS, self.kv_cache, self.slots, self.eos_allowed, False)
        made = make(rows)
        hidden, x = made.first(self.tables[0])
        inputs = [hidden[: self.rows], x[1, : self.rows]]
        for book in books:
            logits = self.logits[book - 1]
            if book < 15:
                inputs.append(made.sample_input(book, logits, self.tables[book])[: self.rows])
            else:
                made.sample(book, logits)
        made.ids[len(books) + 1 : 16] = torch.arange(len(books) + 1, 16)[:, None]
        codes, ids, pos = made.finish()
        found = [
            codes[: self.rows], ids[:16, : self.rows], pos[: self.rows],
            self.kv_cache.seen[: self.rows].clone(), self.kv_cache.codes[: self.rows].clone(),
        ]  # fmt: skip
        self.kv_cache.seen.copy_(kept[0])
        self.kv_cache.codes.copy_(kept[1])
        return found + inputs


def same(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize(
    ("dtype", "seed"),
    [(torch.float32, 0), (torch.float32, 1), (torch.float16, 1), (torch.bfloat16, 2)],
)
def test_a_frame_of_the_real_vocabularies(dtype: torch.dtype, seed: int) -> None:
    frame = Frame(5, dtype, seed)
    books = range(1, 16) if seed == 0 else (1, 15)[:1]
    ours = frame.sampled(TritonSampler, books=books)
    same(ours, frame.sampled(TorchSampler, books=books))
    codes, ids = ours[:2]
    assert torch.equal(codes, ids.t())
    assert len(set(codes.flatten().tolist())) > 10


def test_codes_that_another_kernel_sampled_are_stored_too() -> None:
    frame = Frame(2, torch.float32, 3)
    same(frame.sampled(TritonSampler, books=()), frame.sampled(TorchSampler, books=()))


def test_logits_that_are_no_numbers_and_barred_ones() -> None:
    frame = Frame(8, torch.float32, 4)
    logits = frame.kv_cache.logits
    logits[0, 3] = torch.nan
    logits[1, 3] = torch.inf
    logits[2, CODES + 5] = torch.nan  # barred, and still found
    logits[3, EOS] = torch.nan  # too early or not allowed: not looked at
    logits[4] = -torch.inf
    logits[4, 9] = 0.0
    logits[5] = 0.0
    logits[5, ::2] = -0.0
    logits[6, EOS] = 1e30
    logits[7, VOCAB - 1] = 1e30
    # EOS is barred in the first MIN_FRAMES.
    logits[5, EOS] = 1e30
    frame.kv_cache.frame[:8] = torch.tensor([5, 5, 5, 1, 5, MIN_FRAMES - 1, MIN_FRAMES, 5])
    for allowed in (0, 1):
        frame.eos_allowed = torch.full((9,), allowed)
        ours, theirs = (frame.sampled(make, books=()) for make in (TritonSampler, TorchSampler))
        same(ours, theirs)
        codes = torch.empty(8, dtype=torch.int64)
        codes[frame.slots[:8]] = ours[0][:, 0]
        assert codes[:3].tolist() == [NOT_FINITE] * 3
        assert codes[4] == 9
        assert (codes[6] == EOS) == bool(allowed)
        assert codes[5] != EOS
        assert int(codes[3:].min()) >= 0


floats = st.one_of(
    st.floats(width=16, allow_nan=False, min_value=-60, max_value=60),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, float("-inf")]),
)


@settings(max_examples=40, deadline=None)
@given(
    logits=st.lists(floats, min_size=1, max_size=140),
    spread=st.sampled_from([1, 2, 50]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    top_k=st.integers(1, 64),
    temperature=st.sampled_from([0.0, 0.1, 1.0, 30.0]),
    seed=st.integers(0, 2**63 - 1),
    frame=st.integers(0, 2**40),
    book=st.integers(1, 15),
    odd=st.sampled_from([None, float("nan"), float("inf")]),
)
@example(
    logits=[float("-inf")] * 5, spread=1, dtype=torch.float32, top_k=5, temperature=1.0, seed=1,
    frame=3, book=2, odd=None,
)  # fmt: skip
def test_any_logits(
    logits: list[float], spread: int, dtype: torch.dtype, top_k: int, temperature: float,
    seed: int, frame: int, book: int, odd: float | None,
) -> None:  # fmt: skip
    kv_cache = KvCache(CONFIG, slots=1, positions=1, dtype=dtype)
    sampling = Sampling(predictor_temperature=temperature, predictor_top_k=top_k)
    kv_cache.reset(0, sampling, seed)
    kv_cache.frame[0] = frame
    x = torch.tensor(logits * spread)[:300].to(dtype)[None]
    if odd is not None:
        x[0, len(logits) // 2] = odd
    found = []
    for make in (TritonSampler, TorchSampler):
        slot = torch.zeros(1, dtype=torch.int64)
        made = make(FrameRows(CONSTANTS, kv_cache, slot, slot, False))
        table = torch.arange(float(x.shape[1]))[:, None]
        if book < 15:
            made.sample_input(book, x, table)
        else:
            made.sample(book, x)
        found.append(int(made.ids[book, 0]))
    assert found[0] == found[1]


def test_the_noise_is_that_of_torch_at_every_rank() -> None:
    """What wins shows the noise: two logits so far apart that only one rank's noise bridges it."""
    frame = Frame(3, torch.float32, 5, padding=0)
    rows = FrameRows(CONSTANTS, frame.kv_cache, frame.slots, frame.eos_allowed, False)
    made = TorchSampler(rows)
    for book in (1, 9):
        noise = made._inputs.noise[:, book, :]
        for rank in (1, 30, 63):
            # Equal but for what lets exactly this rank win, by a little.
            order = torch.arange(64.0)
            logits = torch.full((3, 64), -1e6)
            logits[:, : rank + 1] = -1e-3 * order[: rank + 1]
            cool = frame.kv_cache.knobs[frame.slots, book][:, None]
            drawn = noise + logits * cool
            theirs, ours = TorchSampler(rows), TritonSampler(rows)
            theirs.sample(book, logits)
            ours.sample(book, logits)
            assert torch.equal(ours.ids[book], theirs.ids[book])
            greedy = cool[:, 0] == 0
            assert torch.equal(ours.ids[book][~greedy], drawn.argmax(1)[~greedy])


def test_a_full_sort_and_large_vocabularies_are_left_to_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame = Frame(1, torch.float32, 6)
    rows = FrameRows(CONSTANTS, frame.kv_cache, frame.slots, frame.eos_allowed, True)
    assert isinstance(make_sampler(rows), TorchSampler)
    rows = rows._replace(full_sort=False)
    assert isinstance(make_sampler(rows), TritonSampler)
    monkeypatch.setattr(sampling_kernels, "MOST_IDS", VOCAB - 1)
    assert isinstance(make_sampler(rows), TorchSampler)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_embed(dtype: torch.dtype) -> None:
    table = torch.randn(300, 700).to(dtype)
    ids, text = torch.randint(0, 10, (17, 3)), torch.tensor([0, 7, 9])
    offsets = (torch.arange(17) * 15)[:, None]
    ours = talker_kernels.embed(ids.clone(), text, offsets, table)
    theirs = transformer.embed(ids.clone(), text, offsets, table.float())
    close = 1e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(ours, theirs.to(dtype), rtol=close, atol=1e-5)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("advance", [False, True])
def test_store(fused: bool, advance: bool) -> None:
    width = CONFIG.talker.layers.hidden
    norm = RmsNorm.build(width, 1e-6, torch.rand(width) + 0.5, device=CPU, fused=fused)
    head, x = torch.randn(VOCAB, width).t(), torch.randn(3, 2 * width)[:, :width].contiguous()
    slots, caches = torch.tensor([2, 0, 4]), []
    for function in (talker_kernels.store, transformer.store):
        kv_cache = KvCache(CONFIG, slots=4, positions=2)
        kv_cache.counters[:4] = torch.arange(4)[:, None] + torch.arange(20)
        function(kv_cache, slots, x.clone(), norm, head, advance=advance)
        caches.append(kv_cache)
    ours, theirs = caches
    torch.testing.assert_close(ours.hidden, theirs.hidden, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.logits, theirs.logits, rtol=1e-4, atol=1e-4)
    assert torch.equal(ours.counters, theirs.counters)
    assert bool((ours.counters[2, :2] == torch.tensor([2, 3]) + advance).all())
    assert not ours.counters[4].any()


def test_whole_frames_have_the_codes_of_torch() -> None:
    names = ("sampler", "embed")
    ours = {name: getattr(triton_kernels.TRITON, name) for name in names}
    model = Qwen3Model.from_weights(CONFIG, *small_weights(CONFIG), fused_norm=True)
    spoken = []
    for kernels in (ours, {}):
        model.kernels = replace(transformer.TORCH_KERNELS, **kernels)
        stage = Stage(model, slots=2)
        stage.prefill({1: script(model, 2, 2, Sampling(top_k=9))})
        for _ in range(2):
            stage.step([1])
        assert stage.kv_cache.frame.tolist() == [0, 2, 0]
        spoken.append(stage.codes(1))
    assert torch.equal(*spoken)


def sampled_without_seen(rows: FrameRows) -> Sampler:
    """Does not tell the next frame which codes occurred."""
    seen = rows.kv_cache.seen.clone()
    made = TorchSampler(rows)
    finish = made.finish

    def forgets() -> SampledCodes:
        codes = finish()
        rows.kv_cache.seen.copy_(seen)
        return codes

    made.finish = forgets  # type: ignore[method-assign]
    return made


def sampled_of_another_frame(rows: FrameRows) -> Sampler:
    """Other random numbers."""
    counters = rows.kv_cache.counters.clone()
    rows.kv_cache.counters[:, 2] += 1
    made = TorchSampler(rows)
    rows.kv_cache.counters.copy_(counters)
    return made


def embedded_without_text(ids: Tensor, text: Tensor, offsets: Tensor, table: Tensor) -> Tensor:
    return transformer.embed(ids, text * 0, offsets, table)


def stored_without_count(*given: Any, advance: bool) -> None:
    transformer.store(*given, advance=False)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("sampler", sampled_without_seen),
        ("sampler", sampled_of_another_frame),
        ("embed", embedded_without_text),
        ("store", stored_without_count),
    ],
)
def test_a_kernel_that_is_wrong_is_not_used(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: Any
) -> None:
    model = Qwen3Model.from_weights(CONFIG, *small_weights(CONFIG), fused_norm=True)
    monkeypatch.setattr(
        triton_kernels, "TRITON", replace(transformer.TORCH_KERNELS, **{name: wrong})
    )
    found, failed = triton_kernels.usable(model)
    assert (found, failed) == (transformer.TORCH_KERNELS, {name: "ArithmeticError"})
