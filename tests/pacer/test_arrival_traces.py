"""The policy on each kind of arrival trace of the benchmark, against an oracle with hindsight."""

from __future__ import annotations

import importlib
import random
from pathlib import Path
from typing import Any

import pytest

from qwen3tts_pacer.policy import FillingPolicy, FillingSettings

BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")
UTTERANCES = 60
WARM_AFTER = 10


@pytest.fixture
def pacer_traces(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark's module, whose own imports are from beside it."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("pacer_traces")


KINDS = (
    *("steady", "steady_tight", "steady_paced", "short", "hiccup_fast", "hiccup", "hiccup_cluster"),
    *("sentences", "chunks_hiccup", "frame_hiccup", "wifi", "wifi_bunches", "stall_rare"),
    *("stall_200_early", "stall_200_mid", "stall_500_early", "stall_500_mid", "stall_mid_tight"),
    *("overload", "text_pauses"),
)


def test_every_kind_of_trace_is_tried(pacer_traces: Any) -> None:
    assert tuple(pacer_traces.TRACES) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_nearly_all_wait_sixty_milliseconds_above_the_oracle_at_most_and_a_stall_is_one_dry_spell(
    kind: str, pacer_traces: Any
) -> None:
    make = pacer_traces.TRACES[kind]
    utterances = [make(random.Random(f"test {kind} {n}")) for n in range(UTTERANCES)]
    ours = pacer_traces.play(utterances, FillingPolicy(), random.Random(1))
    oracles = pacer_traces.oracle(utterances, random.Random(1))
    above = [
        mine.wait - best.wait
        for mine, best in zip(ours.results[WARM_AFTER:], oracles.results[WARM_AFTER:], strict=True)
    ]
    settings = FillingSettings()
    more = sum(each > settings.excess_s + 1e-6 for each in above)
    assert more <= 2 * settings.spared * len(above)  # the share is estimated from some thirty
    assert max(above) <= settings.excess_s + 2 * pacer_traces.PTIME_S + 1e-6
    assert sum(above) / len(above) <= settings.excess_s
    assert pacer_traces.dry_a_stall(ours, utterances) <= 1
    assert ours.bursts == ours.faults == 0
