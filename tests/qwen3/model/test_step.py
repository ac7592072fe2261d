"""Rows share an kv_cache and never notice each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from qwen3tts_engine.qwen3.model.config import MIN_FRAMES, NOT_FINITE
from qwen3tts_engine.qwen3.model.kv_cache import CODE_RING, KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.prompt import build_prompt
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.step import frame_step, prefill
from tests.qwen3.model.rows import GREEDY, Script, Spoken, Stage, alone, script

SLOTS, ROWS, FRAMES = 4, 6, 7


@pytest.fixture(scope="module")
def model(tiny: dict[str, Path]) -> Qwen3Model:
    return Qwen3Model.load(tiny["custom_voice"])


@pytest.fixture(scope="module")
def lonely(model: Qwen3Model) -> list[tuple[Script, Spoken]]:
    rows = [script(model, seed, FRAMES) for seed in range(ROWS)]
    return [(row, alone(model, row, FRAMES)) for row in rows]


def close(one: Spoken, other: Spoken) -> None:
    """The same codes, and scores that differ by rounding alone."""
    for mine, theirs in zip(one.codes, other.codes, strict=False):
        assert mine.tolist() == theirs.tolist()
    for mine, theirs in zip(one.logits, other.logits, strict=False):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-4)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=st.data())
def test_rows_that_are_admitted_skipped_and_finished_change_no_other_codes(
    model: Qwen3Model, lonely: list[tuple[Script, Spoken]], plan: st.DataObject
) -> None:
    stage = Stage(model, slots=SLOTS)
    waiting, running = list(range(ROWS)), dict[int, int]()
    for _ in range(3 * FRAMES):
        free = [slot for slot in range(SLOTS) if slot not in running]
        admitting = plan.draw(st.lists(st.sampled_from(free), unique=True)) if free else []
        admitted = {slot: waiting.pop(0) for slot in admitting if waiting}
        if admitted:
            pads = plan.draw(st.integers(0, 3)), plan.draw(st.integers(0, 2))
            rows = {slot: lonely[row][0] for slot, row in admitted.items()}
            stage.prefill(rows, pad=pads[0], padding_rows=pads[1])
            running |= admitted
        if not running:
            break
        order = plan.draw(st.permutations(sorted(running)))
        going = order[: plan.draw(st.integers(1, len(order)))]
        stage.step(going, padding_rows=plan.draw(st.integers(0, 2)))
        for slot in going:
            said = stage.spoken[slot]
            cancelled = plan.draw(st.integers(0, 9)) == 0
            if cancelled or len(said.codes) == FRAMES:
                close(said, lonely[running.pop(slot)][1])
    for slot, row in running.items():
        close(stage.spoken[slot], lonely[row][1])


def test_what_is_drawn_does_not_depend_on_place_neighbours_or_padding(model: Qwen3Model) -> None:
    rows = [
        script(model, seed, FRAMES, Sampling(top_k=20 + seed, predictor_top_k=10 + seed))
        for seed in range(4)
    ]
    expected = [torch.stack(alone(model, row, FRAMES).codes) for row in rows]
    stage = Stage(model, slots=5)
    stage.prefill({4: rows[0], 2: rows[1]}, pad=2, padding_rows=1)
    stage.step([2, 4], padding_rows=3)
    stage.prefill({0: rows[2], 3: rows[3]})
    for _ in range(FRAMES):
        going = [slot for slot in (3, 4, 0, 2) if len(stage.spoken[slot].codes) < FRAMES]
        stage.step(going)
    for slot, row in zip((4, 2, 0, 3), range(4), strict=True):
        assert stage.codes(slot).tolist() == expected[row].tolist()


def test_seeds_differ_and_repeat(model: Qwen3Model) -> None:
    one, other = (script(model, 1, FRAMES, Sampling()) for _ in range(2))
    other.seed = 2
    first = torch.stack(alone(model, one, FRAMES).codes)
    assert torch.equal(first, torch.stack(alone(model, one, FRAMES).codes))
    assert not torch.equal(first, torch.stack(alone(model, other, FRAMES).codes))


def test_late_text_is_early_text(model: Qwen3Model) -> None:
    """A row that waits for its text speaks as one that had it: nothing happens in between."""
    rows = {slot: script(model, 10 + slot, 12) for slot in range(3)}
    stage = Stage(model, slots=3)
    stage.prefill(rows)
    # Text comes every 1, 2 and 3 rounds.
    for turn in range(36):
        going = [
            slot for slot in rows if turn % (slot + 1) == 0 and len(stage.spoken[slot].codes) < 12
        ]
        if going:
            stage.step(going)
    for slot, row in rows.items():
        close(stage.spoken[slot], alone(model, row, 12))


def test_a_tiny_checkpoint_speaks_and_ends_by_itself(model: Qwen3Model) -> None:
    assert model.tokenizer is not None
    prompt = build_prompt(
        model.config,
        text_ids=model.tokenizer.encode("It ends by itself."),
        language="english",
        speaker=next(iter(model.config.talker.speakers)),
        layout="streaming",
    )
    kv_cache = KvCache(model.config, slots=1, positions=200)
    kv_cache.reset(0, GREEDY, 0)
    slot, length = torch.zeros(1, dtype=torch.int64), torch.tensor([len(prompt)])
    prefill(model, kv_cache, slot, model.embed(prompt)[None], length, torch.zeros_like(slot))
    text = [*prompt.trailing, *[model.config.text_ids.tts_pad] * 150]
    for token in text:
        codes = frame_step(
            model, kv_cache, slot, torch.tensor([token]), torch.ones(1, dtype=torch.bool), 200
        )
        if codes[0, 0] == model.config.talker.ids.eos:
            break
        assert int(codes.max()) < model.config.predictor.vocab
    else:
        pytest.fail("no end")
    assert int(kv_cache.frame[0]) > len(prompt.trailing)


def test_a_prefix_restored_is_a_prefix_computed(model: Qwen3Model) -> None:
    whole = script(model, 5, FRAMES)
    stage = Stage(model, slots=3)
    stage.prefill({0: Script(whole.embeds[:3], [0])})
    snapshot = stage.kv_cache.snapshot(0, 3)
    assert snapshot.length == 3
    assert snapshot.bytes == snapshot.kv.nbytes
    kv_cache = stage.kv_cache
    stage.scripts[2], stage.spoken[2] = whole, Spoken()
    kv_cache.reset(2, GREEDY, 0)
    kv_cache.restore(2, snapshot)
    rest = whole.embeds[3:]
    prefill(
        model,
        kv_cache,
        torch.tensor([2]),
        rest[None],
        torch.tensor([len(rest)]),
        torch.tensor([3]),
    )
    for _ in range(FRAMES):
        stage.step([2])
    close(stage.spoken[2], alone(model, whole, FRAMES))


@pytest.mark.parametrize("kv_len", [24, 32, 96])
def test_how_far_attention_looks_changes_nothing(model: Qwen3Model, kv_len: int) -> None:
    row = script(model, 8, FRAMES)
    stage = Stage(model, slots=1)
    stage.prefill({0: row})
    for _ in range(FRAMES):
        stage.step([0], kv_len=kv_len)
    close(stage.spoken[0], alone(model, row, FRAMES))


class TestEnd:
    def draw(self, model: Qwen3Model, *, frame: int, allowed: bool, first: float) -> int:
        """Code 0 where eos scores best by far."""
        kv_cache = KvCache(model.config, slots=1, positions=8)
        kv_cache.reset(0, GREEDY, 0)
        kv_cache.logits[0] = first
        kv_cache.logits[0, model.config.talker.ids.eos] = 100.0
        kv_cache.logits[0, 77] = 50.0
        kv_cache.logits[0, model.config.talker.ids.bos] = 200.0
        kv_cache.frame[0] = frame
        one = torch.zeros(1, dtype=torch.int64)
        codes = frame_step(model, kv_cache, one, one, torch.tensor([allowed]), 8)
        return int(codes[0, 0])

    @pytest.mark.parametrize("frame", range(4))
    @pytest.mark.parametrize("allowed", [False, True])
    def test_eos_is_barred_until_the_text_is_over_and_two_frames_are_made(
        self, model: Qwen3Model, frame: int, allowed: bool
    ) -> None:
        may = allowed and frame >= MIN_FRAMES
        code = self.draw(model, frame=frame, allowed=allowed, first=0.0)
        assert code == (model.config.talker.ids.eos if may else 77)

    @pytest.mark.parametrize("broken", [float("nan"), float("inf")])
    def test_scores_that_are_no_numbers_are_said(self, model: Qwen3Model, broken: float) -> None:
        assert self.draw(model, frame=5, allowed=True, first=broken) == NOT_FINITE


def test_a_broken_row_harms_no_other_and_its_slot_is_clean_afterwards(model: Qwen3Model) -> None:
    good, other = script(model, 20, FRAMES), script(model, 21, FRAMES)
    stage = Stage(model, slots=2)
    stage.prefill({0: good, 1: other})
    stage.step([0, 1])
    stage.kv_cache.logits[1] = torch.nan
    stage.kv_cache.kv[:, 1, 0] = torch.nan
    for _ in range(2):
        stage.step([1, 0])
    assert int(stage.spoken[1].codes[-1][0]) == NOT_FINITE
    stage.prefill({1: other})
    while len(stage.spoken[0].codes) < FRAMES:
        stage.step([0, 1])
    close(stage.spoken[0], alone(model, good, FRAMES))
    close(stage.spoken[1], alone(model, other, FRAMES))


def test_codes_stay_in_the_ring_and_state_keeps_its_place(model: Qwen3Model) -> None:
    frames = CODE_RING + 3
    row = script(model, 3, frames)
    stage = Stage(model, slots=2)
    kv_cache = stage.kv_cache
    parts = (
        *(kv_cache.kv, kv_cache.hidden, kv_cache.logits, kv_cache.seen),
        *(kv_cache.counters, kv_cache.knobs, kv_cache.codes),
    )
    places = [part.data_ptr() for part in parts]
    stage.prefill({1: row})
    for _ in range(frames):
        stage.step([1])
    said = stage.codes(1)
    for number in range(frames - CODE_RING, frames):
        assert kv_cache.codes[1, number % CODE_RING].tolist() == said[number].tolist()
    assert [part.data_ptr() for part in parts] == places
    assert kv_cache.frame.tolist() == [0, frames, 0]
    assert int(kv_cache.pos[1]) == len(row.embeds) + frames
    assert not kv_cache.kv[:, 0].any()
    assert set(kv_cache.seen[1].nonzero().flatten().tolist()) == set(said[:, 0].tolist())


def test_a_row_past_the_last_position_harms_no_other(model: Qwen3Model) -> None:
    row, other = script(model, 30, 40), script(model, 31, 40)
    stage = Stage(model, slots=2, positions=16)
    stage.prefill({0: row})
    stage.prefill({1: Script(other.embeds[:2], other.text)})
    before = stage.kv_cache.kv[:, 1].clone()
    for _ in range(30):
        stage.step([0], kv_len=16)
    assert torch.equal(stage.kv_cache.kv[:, 1], before)
    assert int(stage.kv_cache.pos[0]) == len(row.embeds) + 30


def test_the_full_way_to_draw_changes_nothing_for_rows_that_do_not_need_it(
    model: Qwen3Model,
) -> None:
    row = script(model, 40, FRAMES, Sampling())
    expected = torch.stack(alone(model, row, FRAMES).codes)
    kv_cache = KvCache(model.config, slots=2, positions=64)
    slots, rows = torch.tensor([0, 1]), (row, script(model, 41, FRAMES, Sampling(top_p=0.5)))
    for slot, each in enumerate(rows):
        kv_cache.reset(slot, each.sampling, each.seed)
        length = torch.tensor([len(each.embeds)])
        at = torch.tensor([slot])
        prefill(model, kv_cache, at, each.embeds[None], length, torch.zeros_like(at))
    for number in range(FRAMES):
        text = torch.tensor([each.text[number] for each in rows])
        never = torch.zeros(2, dtype=torch.bool)
        codes = frame_step(model, kv_cache, slots, text, never, 64, full_sort=True)
        assert codes[0].tolist() == expected[number].tolist()


class _Static(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses what would make the host wait for a value, or move a tensor."""

    refused = (
        "_local_scalar_dense",
        "item",
        "nonzero",
        "masked_select",
        "equal",
        "resize_",
        "set_",
    )

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = func.overloadpacket.__name__
        assert name not in self.refused, name
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("full_sort", [False, True])
def test_nothing_waits_for_a_value(model: Qwen3Model, full_sort: bool) -> None:
    row = script(model, 60, 1, Sampling())
    stage = Stage(model, slots=2)
    one, text = torch.tensor([0, 2]), torch.zeros(2, dtype=torch.int64)
    embeds = row.embeds.expand(2, -1, -1)
    lengths = torch.full((2,), len(row.embeds))
    stage.kv_cache.reset(0, row.sampling, 0)
    with _Static():  # type: ignore[no-untyped-call]
        prefill(model, stage.kv_cache, one, embeds, lengths, text)
        frame_step(model, stage.kv_cache, one, text, text > 0, 64, full_sort=full_sort)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_speaks(tiny: dict[str, Path], dtype: torch.dtype) -> None:
    model = Qwen3Model.load(tiny["voice_design"], dtype=dtype)
    exact = Qwen3Model.load(tiny["voice_design"])
    assert model.talker.table.dtype == dtype
    row = script(exact, 50, FRAMES)
    stage = Stage(model, slots=2)
    stage.prefill({0: row})
    spoken = alone(exact, row, 1)
    scale = float(spoken.logits[0].std())
    error = float((stage.kv_cache.logits[0] - spoken.logits[0]).std())
    assert error < 0.05 * scale
    for _ in range(FRAMES):
        stage.step([0])
    assert int(stage.codes(0).min()) >= 0
    assert int(stage.codes(0)[:, 1:].max()) < model.config.predictor.vocab
