"""Random numbers that depend on their key alone, and draws from the right distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from qwen3tts_engine.qwen3.model.sampling import (
    ALL,
    FRAME_STEP,
    MASK32,
    NO_TOP_P,
    TOP_K_LIMIT,
    Sampling,
    apply_repetition_penalty,
    gumbel,
    sample,
    seed_key,
    stream_keys,
    uniform,
)
from qwen3tts_wire.errors import BadRequest

CPU = torch.device("cpu")


def numbers(
    seeds: list[int], frames: int, codebooks: int = 16, lanes: int = 4
) -> NDArray[np.float64]:
    """[seeds, frames, codebooks, lanes]."""
    keys = torch.tensor([seed_key(seed) for seed in seeds])[:, :, None, None, None]
    at = torch.arange(frames)[:, None, None]
    return uniform(keys[:, 0], keys[:, 1], at, stream_keys(codebooks, lanes, CPU)).double().numpy()


class TestUniform:
    def test_seed_keys_are_those_of_splitmix64(self) -> None:
        low, high = seed_key(0)
        assert (high << 32) + low == 0xE220A8397B1DCDAF
        assert seed_key(-1) == seed_key((1 << 64) - 1)

    def test_it_is_the_same_in_plain_integers(self) -> None:
        """In a language of unbounded integers: no product wraps, so every device agrees."""
        largest = 0

        def product(x: int, factor: int) -> int:
            nonlocal largest
            largest = max(largest, x * factor)
            return x * factor & MASK32

        def half_mix(x: int) -> int:
            return product((x := product(x ^ x >> 16, 0x21F0AAAD)) ^ x >> 15, 0x735A2D97)

        def mix(x: int) -> int:
            return (x := half_mix(x)) ^ x >> 15

        found = numbers([0, 7, 2**63 - 1], 5)
        for row, seed in enumerate((0, 7, 2**63 - 1)):
            low, high = seed_key(seed)
            for frame in range(5):
                here = half_mix(low + product(frame, FRAME_STEP) & MASK32)
                for codebook in range(16):
                    for lane in range(4):
                        stream = mix(mix((codebook << 16) + lane + 1) ^ 0x5BD1E995)
                        bits = mix(here ^ high ^ stream) >> 9
                        assert found[row, frame, codebook, lane] == (bits + 0.5) / (1 << 23)
        assert largest < 1 << 63

    def test_frames_up_to_the_limit_stay_within_63_bits(self) -> None:
        assert MASK32 + 32_768 * FRAME_STEP < 1 << 63

    def test_its_bounds_are_never_reached(self) -> None:
        found = numbers(list(range(40)), 50)
        assert 0.0 < found.min() < 1e-4
        assert 1 - 1e-4 < found.max() < 1.0
        assert np.isfinite(gumbel(torch.tensor([2.0**-24, 1 - 2.0**-24])).numpy()).all()

    def test_it_is_even(self) -> None:
        """Chi-square over 256 bins, for all numbers and by codebook: 5 deviations from 255."""
        found = numbers(list(range(64)), 64)
        for part in (found, *np.moveaxis(found, 2, 0)):
            expected = part.size / 256
            counts = np.bincount((part * 256).astype(int).ravel(), minlength=256)
            chi = ((counts - expected) ** 2 / expected).sum()
            assert abs(chi - 255) < 5 * math.sqrt(2 * 255)

    @pytest.mark.parametrize("axis", range(4))
    @pytest.mark.parametrize("apart", [1, 2, 3])
    def test_neighbours_know_nothing_of_each_other(self, axis: int, apart: int) -> None:
        """Seeds, frames, codebooks, lanes: pairs are even over 16 x 16 bins, and uncorrelated."""
        found = np.moveaxis(numbers(list(range(32)), 48, lanes=8), axis, 0)
        one, other = found[apart:].ravel(), found[:-apart].ravel()
        cells = np.bincount((one * 16).astype(int) * 16 + (other * 16).astype(int), minlength=256)
        expected = one.size / 256
        chi = ((cells - expected) ** 2 / expected).sum()
        assert abs(chi - 255) < 5 * math.sqrt(2 * 255)
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(one.size)

    def test_a_bit_of_the_seed_changes_everything(self) -> None:
        """Half of the bits of a number, whichever bit of the seed is turned."""
        base = numbers([12345], 64)[0]
        for bit in range(0, 63, 7):
            other = numbers([12345 ^ (1 << bit)], 64)[0]
            changed = (base * 2**23).astype(int) ^ (other * 2**23).astype(int)
            share = np.unpackbits(changed.astype(">u4").view(np.uint8)).sum() / (base.size * 23)
            assert abs(share - 0.5) < 0.01

    def test_every_place_has_a_stream_of_its_own(self) -> None:
        found = stream_keys(16, 3072, CPU)
        assert len(set(found.flatten().tolist())) == 16 * 3072
        assert int(found.min()) >= 0
        assert int(found.max()) <= MASK32


def draw(
    logits: Tensor, rows: int, *, ranks: int, top_k: int = 0, top_p: float = 1.0, cool: float = 1.0
) -> NDArray[np.int64]:
    """Ids [rows] of as many frames with the same logits [V]."""
    low, high = seed_key(99)
    at = torch.arange(rows)[:, None, None]
    uniforms = uniform(torch.tensor(low), torch.tensor(high), at, stream_keys(1, ranks, CPU))
    noise = gumbel(uniforms)[:, 0]
    noise[:, (top_k or ranks) :] = -torch.inf
    out = torch.empty(rows, 1, dtype=torch.int64)
    no = torch.zeros(rows, 1, dtype=torch.bool)
    share = None if top_p >= 1 else torch.full((rows, 1), top_p)
    sample(logits.expand(rows, -1), noise, torch.full((rows, 1), cool), no, out, share)
    drawn: NDArray[np.int64] = out[:, 0].numpy()
    return drawn


class TestChoose:
    @pytest.mark.parametrize(
        ("ranks", "top_k", "top_p", "cool"),
        [
            (8, 5, 1.0, 1.0),
            (8, 8, 1.0, 0.5),
            (40, 0, 1.0, 1.0),
            (40, 6, 0.8, 2.0),
            (40, 0, 0.9, 1.1),
        ],
    )
    def test_it_draws_from_the_softmax_of_what_is_kept(
        self, ranks: int, top_k: int, top_p: float, cool: float
    ) -> None:
        logits = torch.randn(40, generator=torch.Generator().manual_seed(3)) * 1.5
        rows = 40_000
        drawn = draw(logits, rows, ranks=ranks, top_k=top_k, top_p=top_p, cool=cool)
        best = np.sort(logits.numpy().astype(np.float64))[::-1]
        order = np.argsort(-logits.numpy(), kind="stable")
        kept = best[: min(top_k or 40, ranks)] * cool
        shares = np.exp(kept - kept[0])
        shares /= shares.sum()
        count = int((shares.cumsum() - shares < top_p).sum())
        expected = shares[:count] / shares[:count].sum() * rows
        counts = np.bincount(drawn, minlength=40)[order]
        assert counts[count:].sum() == 0
        chi = ((counts[:count] - expected) ** 2 / expected).sum()
        assert chi < count - 1 + 5 * math.sqrt(2 * count)

    def test_greedy_takes_the_first_of_equals(self) -> None:
        logits = torch.zeros(3, 100)
        logits[0, [70, 71, 20]] = 4.0
        logits[1, [99, 98]] = 1.0
        expected = [20, 98, 0]
        assert logits.argmax(dim=-1).tolist() == expected
        noise = gumbel(torch.rand(3, 64, generator=torch.Generator().manual_seed(1)))
        out, one = torch.empty(3, 1, dtype=torch.int64), torch.ones(3, 1)
        best = sample(logits, noise, one, one > 0, out)
        assert out[:, 0].tolist() == expected
        assert best[:, 0].tolist() == [4.0, 1.0, 0.0]

    def test_rows_have_their_own_ways(self) -> None:
        logits = torch.arange(50.0).flip(0).expand(3, -1)
        noise = torch.zeros(3, 10)
        noise[1, 4], noise[2, 9] = 1e3, 1e3
        noise[0, 1:] = -torch.inf
        greedy = torch.tensor([[False], [False], [True]])
        out = torch.empty(3, 1, dtype=torch.int64)
        sample(logits, noise, torch.ones(3, 1), greedy, out)
        assert out[:, 0].tolist() == [0, 4, 0]

    def test_barred_ids_are_never_drawn(self) -> None:
        logits = torch.full((40,), -torch.inf)
        logits[[5, 17]] = 0.0
        assert set(draw(logits, 500, ranks=40).tolist()) == {5, 17}
        assert set(draw(logits, 500, ranks=40, top_p=0.9).tolist()) == {5, 17}

    @pytest.mark.parametrize("broken", [float("nan"), float("inf")])
    def test_scores_that_are_no_numbers_show(self, broken: float) -> None:
        logits = torch.zeros(2, 20)
        logits[1, 13] = broken
        out, one = torch.empty(2, 1, dtype=torch.int64), torch.ones(2, 1)
        best = sample(logits, torch.zeros(2, 8), one, one > 0, out)
        assert (best[:, 0] < torch.inf).tolist() == [True, False]


def test_the_penalty_divides_what_is_positive_and_multiplies_the_rest() -> None:
    logits = torch.tensor([[2.0, -2.0, 2.0, -2.0, 0.0], [2.0, -2.0, 2.0, -2.0, -torch.inf]])
    seen = torch.tensor([[True, True, False, False, True]] * 2)
    found = apply_repetition_penalty(logits, seen, torch.tensor([[2.0], [0.5]]))
    assert found.tolist() == [[1.0, -4.0, 2.0, -2.0, 0.0], [4.0, -1.0, 2.0, -2.0, -math.inf]]


class TestSampling:
    @pytest.mark.parametrize(
        ("given", "full"),
        [
            ({}, False),
            ({"top_k": 0}, True),
            ({"top_k": TOP_K_LIMIT}, False),
            ({"top_k": TOP_K_LIMIT + 1}, True),
            ({"top_p": 0.9}, True),
            ({"top_p": 0.9, "temperature": 0.0}, False),
            ({"predictor_top_k": 0}, True),
            ({"predictor_top_p": 0.5}, True),
            ({"predictor_top_p": 0.5, "predictor_temperature": 0.0}, False),
        ],
    )
    def test_which_rows_need_the_full_way(self, given: dict[str, float], full: bool) -> None:
        assert Sampling(**given).needs_full_sort == full  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("temperature", -0.1),
            ("temperature", float("nan")),
            ("top_k", -1),
            ("top_p", 0.0),
            ("top_p", 1.1),
            ("repetition_penalty", 0.0),
            ("predictor_temperature", float("inf")),
            ("predictor_top_k", ALL + 1),
            ("predictor_top_p", NO_TOP_P),
        ],
    )
    def test_senseless_values_are_refused_by_name(self, name: str, value: float) -> None:
        with pytest.raises(BadRequest, match=f"^{name}=") as caught:
            Sampling(**{name: value})  # type: ignore[arg-type]
        assert name in caught.value.remedy
