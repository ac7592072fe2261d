"""Every captured size, replayed as a graph would be, gives the codes and samples of eager work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from qwen3tts_engine.qwen3.kernels.runner import LaunchMode, Runner
from qwen3tts_engine.qwen3.kernels.step_runner import DecodeRow, PrefillRow, StepRow
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampling import Sampling
from tests.qwen3.kernels.strict_replay import NotCapturable, StrictReplay

GREEDY = Sampling(temperature=0.0, predictor_temperature=0.0)
SORTED = Sampling(temperature=0.7, top_k=0, top_p=0.9)


@pytest.fixture(scope="module")
def model(tiny: dict[str, Path]) -> Qwen3Model:
    return Qwen3Model.load(tiny["custom_voice"])


@pytest.fixture(scope="module")
def replayed(model: Qwen3Model) -> Runner:
    """A runner whose every size is a strict recording."""
    launch = LaunchMode(static=True, backend=StrictReplay())
    runner = Runner(model, slots=4, positions=96, launch=launch)
    runner.warmup()
    assert runner.notes == []
    return runner


def prompts(model: Qwen3Model, rows: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    table = model.talker.table
    return [
        table[torch.randint(0, len(table), (4 + 9 * row,), generator=draw)] for row in range(rows)
    ]


def same(model: Qwen3Model, replayed: Runner, rows: int, sampling: Sampling) -> None:
    """All rows speak twice, in slots that others used before, in chunks of 1, 2, 4 and 8."""
    plain = Runner(model, slots=replayed.slots, positions=replayed.positions)
    embeds, pad = prompts(model, rows), model.config.text_ids.tts_pad
    for turn in range(2):
        heard: list[tuple[np.ndarray, np.ndarray]] = []
        for runner in (plain, replayed):
            runner.prefill([PrefillRow(at, embeds[at], sampling, at + turn) for at in range(rows)])
            steps = [StepRow(at, pad, False) for at in range(rows)]
            codes = [runner.step(steps) for _ in range(15)]
            sound = [
                runner.decode([DecodeRow(at, first, count) for at in range(rows)])
                for first, count in ((0, 1), (1, 2), (3, 4), (7, 8))
            ]
            heard.append(
                (
                    np.stack([ticket.wait() for ticket in codes]),
                    np.concatenate([ticket.wait() for ticket in sound], axis=1),
                )
            )
            for at in range(rows):
                runner.free(at)
        (codes_plain, sound_plain), (codes_replayed, sound_replayed) = heard
        assert np.array_equal(codes_plain, codes_replayed)
        np.testing.assert_allclose(sound_replayed, sound_plain, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_replayed_codes_are_those_of_eager_work(
    model: Qwen3Model, replayed: Runner, rows: int
) -> None:
    same(model, replayed, rows, Sampling())


@pytest.mark.parametrize("sampling", [GREEDY, SORTED], ids=["greedy", "sorted"])
def test_so_are_greedy_ones_and_those_of_a_full_sort(
    model: Qwen3Model, replayed: Runner, sampling: Sampling
) -> None:
    same(model, replayed, 3, sampling)


def test_sound_of_a_full_batch_is_bit_equal(model: Qwen3Model, replayed: Runner) -> None:
    """With the static sizes run eagerly: the same shapes, so the same rounding."""
    eager = Runner(model, slots=4, positions=96, launch=LaunchMode(static=True))
    embeds, pad = prompts(model, 4), model.config.text_ids.tts_pad
    found = []
    for runner in (eager, replayed):
        runner.prefill([PrefillRow(at, embeds[at], Sampling(), at) for at in range(4)])
        for _ in range(8):
            runner.step([StepRow(at, pad, False) for at in range(4)])
        found.append(runner.decode([DecodeRow(at, 0, 8) for at in range(4)]).wait())
        for at in range(4):
            runner.free(at)
    plain, replayed_sound = found
    assert np.array_equal(plain, replayed_sound)


def test_a_restored_prompt_is_replayed_too(model: Qwen3Model) -> None:
    """Its sizes need a row of 512 positions."""
    backend = StrictReplay()
    runner = Runner(model, slots=1, positions=512, launch=LaunchMode(static=True, backend=backend))
    sizes = [size for size in runner._sizes() if size[0] is runner._prefills][-2:]
    runner._warmup.capture(sizes, lambda *_: None)
    (embeds,) = prompts(model, 1)
    embeds, pad = embeds.repeat(5, 1), model.config.text_ids.tts_pad
    plain = Runner(model, slots=1, positions=512)
    plain.prefill([PrefillRow(0, embeds, GREEDY, 0)])
    kept = runner.prefill_prefix(0, embeds[:12])
    before = backend.replays
    runner.prefill([PrefillRow(0, embeds[12:], GREEDY, 0, prefix=kept)])
    assert backend.replays == before + 1
    steps = [StepRow(0, pad, False)]
    for _ in range(4):
        assert np.array_equal(plain.step(steps).wait(), runner.step(steps).wait())


# --- what the backend itself finds ---


def capture_and_replay(work: Callable[[], None]) -> None:
    (replay,) = StrictReplay().capture([work], "frames")
    replay()


def test_a_number_read_from_python_stays_as_it_was() -> None:
    counter, total = [0], torch.zeros(())

    def work() -> None:
        counter[0] += 1
        total.add_(counter[0])

    (replay,) = StrictReplay().capture([work], "frames")
    total.zero_()
    replay()
    replay()
    # Three runs before: the third was recorded.
    assert total == 6
    assert counter == [3]


def test_memory_of_a_graph_does_not_outlive_its_replay() -> None:
    kept: list[torch.Tensor] = []
    source = torch.ones(3)

    def work() -> None:
        kept[:] = [source + 1]

    capture_and_replay(work)
    assert kept[0].isnan().all()


def test_memory_that_was_not_written_is_poison() -> None:
    to = torch.zeros(3)

    def work() -> None:
        fresh = torch.empty(3)
        fresh[:2] = 1
        to.copy_(fresh)

    capture_and_replay(work)
    assert to.isnan().tolist() == [False, False, True]


@pytest.mark.parametrize(
    "work",
    [
        lambda: torch.ones(()).item(),
        lambda: torch.ones(3).nonzero(),
        lambda: torch.ones(3)[torch.tensor([True, False, True])],
    ],
    ids=["item", "nonzero", "mask"],
)
def test_what_waits_for_the_device_is_refused(work: Callable[[], None]) -> None:
    with pytest.raises(NotCapturable):
        StrictReplay().capture([work], "frames")


def test_an_input_that_a_graph_overwrites_is_found() -> None:
    static, output = torch.ones(1, 4), torch.zeros(1, 4)

    def in_place() -> None:
        output.copy_(static.addmm_(torch.ones(1, 2), torch.ones(2, 4)))

    (replay,) = StrictReplay().capture([in_place], "frames")
    static.fill_(1)
    replay()
    first = output.clone()
    replay()
    assert not torch.equal(first, output)
