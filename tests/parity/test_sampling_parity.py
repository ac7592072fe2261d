"""What may be drawn, and how likely it is, beside the official pipeline of logits processors.

The official side samples for real, from prescribed scores (the talker's) and from a model's own
(the predictor's), and says what its processors left of them. Ours draws by Gumbel noise, so the
noise can be chosen: a candidate wins against the best one exactly when its noise makes up for the
distance of their log-probabilities.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from qwen3tts_engine.qwen3.model import sampler, step
from qwen3tts_engine.qwen3.model.kv_cache import FRAME, KvCache
from qwen3tts_engine.qwen3.model.sampling import TOP_K_LIMIT, Sampling
from qwen3tts_engine.qwen3.model.talker import CodePredictor
from tests.parity.cases import EXACT_TIES, SAMPLED, Speech
from tests.parity.conftest import Oracle
from tests.parity.ours import Ours

PROBES = 12
"""Candidates of each draw that are tried, beside those around the border."""
CLOSE = 1e-5
"""In log-probability, so a probability of p is right within p / 100,000."""
NEVER = -1e30
"""Noise that no finite score makes up for, while it bars nothing."""

Draw = Callable[[Tensor], Tensor]
"""Chosen ids [B] for Gumbel noise [B, ranks]."""
CASES = [pytest.param(case, id=case.name) for case in SAMPLED]


@dataclass
class Noise:
    """Takes the place of the random noise in the step."""

    given: Tensor | None = None

    def __call__(self, uniforms: Tensor) -> Tensor:
        assert self.given is not None
        return self.given.clone()


def sampling_of(case: Speech) -> Sampling:
    given = case.sampling
    return Sampling(
        temperature=given.get("temperature", 0.9),
        top_k=given.get("top_k", 50),
        top_p=given.get("top_p", 1.0),
        repetition_penalty=1.05 if case.penalty is None else case.penalty,
        predictor_temperature=given.get("subtalker_temperature", 0.9),
        predictor_top_k=given.get("subtalker_top_k", 50),
        predictor_top_p=given.get("subtalker_top_p", 1.0),
    )


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> Noise:
    found = Noise()
    monkeypatch.setattr(sampler, "gumbel", found)
    # Nobody looks at the numbers that the noise would be made of.
    monkeypatch.setattr(sampler, "uniform", lambda *_: torch.zeros(()))
    return found


@pytest.fixture
def no_predictor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes 1 to 15 are all 0, at once."""

    def predict(predictor: CodePredictor, made: sampler.TorchSampler, *_: object) -> None:
        made.first(predictor.inputs[0])
        made.ids[1:].zero_()

    monkeypatch.setattr(CodePredictor, "predict", predict)


@pytest.mark.usefixtures("no_predictor")
@pytest.mark.parametrize("case", CASES)
def test_code_0_is_drawn_from_the_official_distribution(
    case: Speech, oracle: Oracle, ours: Callable[[str], Ours], noise: Noise
) -> None:
    model, sampling = ours(case.model).model, sampling_of(case)
    official, ties = oracle.arrays(case.name), case is SAMPLED[EXACT_TIES]
    rows = 2 * (PROBES + 8)
    kv_cache = KvCache(model.config, slots=rows, positions=2)
    slots, allowed = torch.arange(rows), torch.ones(rows, dtype=torch.bool)
    ranks = model.constants.ranks.shape[0] if sampling.needs_full_sort else TOP_K_LIMIT
    drawn = official["first_codes"][0]
    for frame in (0, 1, 2, 6, 11):
        logits, scores = official["logits"][frame, 0], official["scores"][frame, 0]
        for slot in range(rows):
            kv_cache.reset(slot, sampling, 0)
        kv_cache.logits[:] = torch.from_numpy(logits)
        kv_cache.seen[:, torch.from_numpy(drawn[:frame])] = True
        kv_cache.counters[:, FRAME] = frame

        def draw(given: Tensor) -> Tensor:
            full = torch.zeros(rows, model.config.talker.code_groups, ranks)
            full[:, 0] = given
            noise.given = full
            saved = [part.clone() for part in (kv_cache.logits, kv_cache.seen, kv_cache.counters)]
            text = torch.zeros(rows, dtype=torch.int64)
            full_sort = sampling.needs_full_sort
            codes = step.frame_step(model, kv_cache, slots, text, allowed, 2, full_sort=full_sort)
            for part, was in zip(
                (kv_cache.logits, kv_cache.seen, kv_cache.counters), saved, strict=True
            ):
                part.copy_(was)
            return codes[:, 0].clone()

        same_distribution(draw, scores, rows, ranks, ties=ties)


@pytest.mark.parametrize("case", CASES)
def test_codes_1_to_15_are_drawn_from_the_official_distribution(
    case: Speech, oracle: Oracle, ours: Callable[[str], Ours], noise: Noise
) -> None:
    model, sampling = ours(case.model).model, sampling_of(case)
    official = oracle.arrays(case.name)
    rows, groups = 2 * (PROBES + 8), model.config.talker.code_groups
    kv_cache = KvCache(model.config, slots=1, positions=2)
    kv_cache.reset(0, sampling, 0)
    counters, knobs = (part[:1].expand(rows, -1) for part in (kv_cache.counters, kv_cache.knobs))
    ranks = model.config.predictor.vocab if sampling.needs_full_sort else TOP_K_LIMIT
    for frame in (0, 7):
        for group in (1, 2, 8, 15):
            logits, scores = (
                official[name][frame, group - 1, 0] for name in ("group_logits", "group_scores")
            )

            def draw(given: Tensor, group: int, logits: NDArray[np.float32]) -> Tensor:
                width = model.constants.ranks.shape[0] if sampling.needs_full_sort else ranks
                noise.given = torch.zeros(rows, groups, width)
                noise.given[:, group, :ranks] = given
                inputs = sampler.sampling_inputs(
                    model.constants, counters, knobs, full_sort=sampling.needs_full_sort
                )
                out = torch.empty(rows, dtype=torch.int64)
                inputs.sample(group, torch.from_numpy(logits).expand(rows, -1).clone(), out)
                return out

            probe = functools.partial(draw, group=group, logits=logits)
            same_distribution(probe, scores, rows, ranks, ties=False)


def same_distribution(
    draw: Draw, scores: NDArray[np.float32], rows: int, ranks: int, *, ties: bool
) -> None:
    """Try candidates against the best: inside, at the border, and behind it.

    ``scores`` [vocab] is what the official processors left: minus infinity for what is barred.
    """
    order = np.argsort(-scores, kind="stable")
    kept = int(np.isfinite(scores).sum())
    best = float(scores[order[0]])
    last = kept
    if ties:
        # The official top-k keeps every score that equals the k-th; ours keeps k of them.
        border = scores[order[kept - 1]]
        last = int((scores > border).sum())
    inside = np.unique(np.linspace(1, max(last - 1, 1), min(PROBES, max(last - 1, 1)), dtype=int))
    inside = inside[inside < last]
    behind = [rank for rank in range(kept, kept + 4) if rank < ranks]
    given = torch.full((rows, ranks), NEVER)
    given[:, 0] = 0.0
    expected = np.full(rows, order[0])
    row = 0
    for rank in inside:
        needed = best - float(scores[order[rank]])
        for more in (-CLOSE, CLOSE):
            given[row, rank] = needed + more * max(1.0, needed)
            expected[row] = order[rank] if more > 0 else order[0]
            row += 1
    for rank in behind:
        given[row, rank] = 1e20  # it would win if it could
        row += 1
    chosen = draw(given).numpy()
    if ties:
        # Among equal scores either order is right.
        np.testing.assert_array_equal(scores[chosen], scores[expected])
    else:
        np.testing.assert_array_equal(chosen, expected)
