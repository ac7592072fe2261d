"""Logs made up for tests and benchmarks: what an agent's calls look like, with known causes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qwen3tts_speech.latency import LatencyLog, Mark, UtteranceRecord


@dataclass(frozen=True, slots=True)
class Made:
    """How the utterances come out; times in milliseconds."""

    utterances: int = 100
    calls: int = 10
    engines: Sequence[str] = ("embedded", "qwen3")
    voices: Sequence[str] = ("en", "de")
    slower_ms: float = 0.0
    """Added to the engine's own time, in every utterance."""
    call_spread_ms: float = 15.0
    """Utterances of one call share a delay of this deviation: they are no independent draws."""
    gap_share: float = 0.02
    """Share of utterances with a gap."""
    interrupted_share: float = 0.1
    failed_share: float = 0.01
    """Share of utterances that end without a sound."""
    clock_error_ms: float = 0.4
    began_unix_s: float = 1_790_000_000.0
    every_s: float = 6.0
    """From one utterance to the next."""
    seed: int = 0
    text: str | None = None


def made_records(made: Made | None = None, /) -> Iterator[UtteranceRecord]:
    """The utterances, in the order of time."""
    made = made or Made()
    chance = random.Random(made.seed)
    shared = [chance.gauss(0, made.call_spread_ms) for _ in range(made.calls)]
    for number in range(made.utterances):
        call = number * made.calls // max(1, made.utterances)
        yield _record(made, chance, number, call, shared[call])


def _record(
    made: Made, chance: random.Random, number: int, call: int, shared_ms: float
) -> UtteranceRecord:
    record = UtteranceRecord(
        call_id=f"call-{call:04}",
        context=str(number),
        voice=made.voices[call % len(made.voices)],
        engine=made.engines[call // len(made.voices) % len(made.engines)],
        started_unix_s=made.began_unix_s + number * made.every_s,
        clock_error_ms=made.clock_error_ms,
        line="sip",
        codec="PCMU",
        text=made.text,
    )
    at = [1000.0 + number * made.every_s]

    def after(mark: Mark, milliseconds: float) -> None:
        at[0] += max(0.0, milliseconds) / 1000
        record.mark(mark, at[0])

    after(Mark.TEXT_IN, 0)
    after(Mark.FIRST_DELTA, chance.expovariate(1 / 8))
    after(Mark.REQUEST_SENT, chance.uniform(0.05, 0.3))
    after(Mark.REQUEST_RECEIVED, chance.uniform(0.2, 0.8))
    after(Mark.SEGMENT_READY, chance.lognormvariate(3.6, 0.4))
    after(Mark.SLOT, chance.expovariate(1 / 2))
    if chance.random() < made.failed_share:
        record.end("failed")
        return record
    after(Mark.FIRST_PCM, chance.lognormvariate(4.4, 0.3) + shared_ms + made.slower_ms)
    after(Mark.RECEIVED, chance.uniform(0.2, 0.8))
    after(Mark.RESAMPLED, 0.1)
    after(Mark.QUEUED, 0.05)
    after(Mark.FIRST_FRAME_WIRE, chance.uniform(0, 20))
    after(Mark.FIRST_AUDIBLE_WIRE, 20 * chance.randrange(3))
    spoken_s = chance.uniform(0.8, 5.0)
    if chance.random() < made.gap_share:
        record.starvations = chance.randint(1, 3)
        record.longest_gap_ms = chance.lognormvariate(4, 0.6)
        record.starved_ms = record.longest_gap_ms * record.starvations
    if chance.random() < made.interrupted_share:
        after(Mark.INTERRUPTED, spoken_s * 400)
        after(Mark.SILENT, chance.uniform(0, 20))
        record.end("interrupted")
    else:
        after(Mark.LAST_FRAME, spoken_s * 1000)
        record.end("text_end")
    record.heard_samples = record.generated_samples = int(spoken_s * record.rate_hz)
    return record


def made_log(path: Path, made: Made | None = None, /) -> Path:
    """Write them to a log; the path."""
    with LatencyLog(path, include_text=True) as log:
        for record in made_records(made):
            log.append(record)
    return path
