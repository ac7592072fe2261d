"""Arrival traces: when the codec frames of an utterance reach the pacer, as seeded generators.

A codec frame is 80 ms of speech, four frames of 20 ms. Times are seconds from the request; the
media of an utterance has no pauses of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

PTIME_S = 0.02
CODEC_FRAME_S = 0.08
FRAMES_A_CODEC_FRAME = 4


class Chunk(NamedTuple):
    """Frames of 20 ms that arrive together."""

    at: float
    frames: int


Utterance = list[Chunk]
Gaps = Iterator[float]


def _utterance(
    rng: random.Random, gaps: Gaps, seconds: tuple[float, float] = (3.0, 10.0)
) -> Utterance:
    """Codec frames with these times between them; the first after 150 to 300 ms."""
    count = round(rng.uniform(*seconds) / CODEC_FRAME_S)
    at = rng.uniform(0.15, 0.3)
    chunks = []
    for _ in range(count):
        chunks.append(Chunk(at, FRAMES_A_CODEC_FRAME))
        at += next(gaps)
    return chunks


def _every(rng: random.Random, seconds: float, spread: float = 0.003) -> Gaps:
    while True:
        yield seconds + rng.uniform(-spread, spread)


def _uniform(rng: random.Random, low: float, high: float) -> Gaps:
    while True:
        yield rng.uniform(low, high)


def _clumps(rng: random.Random) -> Gaps:
    """Some slow codec frames in a row, then some quick ones."""
    while True:
        for _ in range(rng.randint(2, 5)):
            yield rng.uniform(0.09, 0.13)
        for _ in range(rng.randint(6, 12)):
            yield rng.uniform(0.02, 0.06)


def _stalled(chunks: Utterance, start: float, length: float) -> Utterance:
    """The network holds back what would arrive from ``start`` (after the first chunk) on."""
    begin = chunks[0].at + start
    end = begin + length
    return [Chunk(end if begin <= chunk.at < end else chunk.at, chunk.frames) for chunk in chunks]


def _radio(rng: random.Random, chunks: Utterance) -> Utterance:
    """Wi-Fi: some milliseconds of jitter and, twice a second, the air taken for 20 to 100 ms."""
    blocked: list[tuple[float, float]] = []
    at = 0.0
    while at < chunks[-1].at:
        at += rng.expovariate(2.0)
        blocked.append((at, at + rng.uniform(0.02, 0.1)))
        at = blocked[-1][1]
    arrived: Utterance = []
    last = 0.0
    for chunk in chunks:
        when = chunk.at + rng.expovariate(1 / 0.003)
        for begin, end in blocked:
            if begin <= when < end:
                when = end
        last = max(last, when)
        arrived.append(Chunk(last, chunk.frames))
    return arrived


def steady(rng: random.Random) -> Utterance:
    """A codec frame every 40 ms: real-time factor 0.5."""
    return _utterance(rng, _every(rng, 0.040))


def steady_tight(rng: random.Random) -> Utterance:
    """A codec frame every 76 ms: real-time factor 0.95."""
    return _utterance(rng, _every(rng, 0.076))


def steady_paced(rng: random.Random) -> Utterance:
    """A server that sends in real time: a codec frame every 80 ms exactly."""
    return _utterance(rng, _every(rng, 0.080, 0.0))


def hiccup_fast(rng: random.Random) -> Utterance:
    """10 to 60 ms between codec frames."""
    return _utterance(rng, _uniform(rng, 0.010, 0.060))


def hiccup(rng: random.Random) -> Utterance:
    """20 to 100 ms between codec frames."""
    return _utterance(rng, _uniform(rng, 0.020, 0.100))


def hiccup_cluster(rng: random.Random) -> Utterance:
    """The same in clumps: 2 to 5 slow codec frames, then 6 to 12 quick ones."""
    return _utterance(rng, _clumps(rng))


def stall_200_early(rng: random.Random) -> Utterance:
    """Real-time factor 0.6; 200 ms without arrivals within the first 300 ms."""
    return _stalled(_utterance(rng, _every(rng, 0.048)), rng.uniform(0.02, 0.1), 0.2)


def stall_200_mid(rng: random.Random) -> Utterance:
    """Real-time factor 0.6; 200 ms without arrivals after 1 to 2 s."""
    return _stalled(_utterance(rng, _every(rng, 0.048)), rng.uniform(1.0, 2.0), 0.2)


def stall_500_early(rng: random.Random) -> Utterance:
    """Real-time factor 0.6; 500 ms without arrivals within the first 600 ms."""
    return _stalled(_utterance(rng, _every(rng, 0.048)), rng.uniform(0.02, 0.1), 0.5)


def stall_500_mid(rng: random.Random) -> Utterance:
    """Real-time factor 0.6; 500 ms without arrivals after 1 to 2 s."""
    return _stalled(_utterance(rng, _every(rng, 0.048)), rng.uniform(1.0, 2.0), 0.5)


def stall_rare(rng: random.Random) -> Utterance:
    """Real-time factor 0.6; one utterance in ten has 200 ms without arrivals, early."""
    chunks = _utterance(rng, _every(rng, 0.048))
    if rng.random() >= 0.1:
        return chunks
    return _stalled(chunks, rng.uniform(0.02, 0.1), 0.2)


def wifi(rng: random.Random) -> Utterance:
    """Real-time factor 0.7 over a busy radio."""
    return _radio(rng, _utterance(rng, _every(rng, 0.056)))


def overload(rng: random.Random) -> Utterance:
    """Real-time factor 1.3: 85 to 123 ms between codec frames, 20 to 30 s of speech."""
    return _utterance(rng, _uniform(rng, 0.085, 0.123), (20.0, 30.0))


def short(rng: random.Random) -> Utterance:
    """One to four codec frames: yes, no, one moment."""
    return _utterance(rng, _uniform(rng, 0.030, 0.070), (0.08, 0.32))


def sentences(rng: random.Random) -> Utterance:
    """A reply whose next sentence is generated after a pause, 1 to 2 s of speech ahead."""
    chunks = _utterance(rng, _every(rng, 0.040))
    index = 0
    while (index := index + rng.randint(15, 30)) < len(chunks):
        pause = rng.uniform(0.2, 0.5)
        chunks[index:] = [Chunk(chunk.at + pause, chunk.frames) for chunk in chunks[index:]]
    return chunks


def text_pauses(rng: random.Random) -> Utterance:
    """Real-time factor 0.5; the text itself pauses for 1 to 2.5 s every 1 to 2 s of speech."""
    chunks = _utterance(rng, _every(rng, 0.040))
    index = 0
    while (index := index + rng.randint(12, 25)) < len(chunks):
        pause = rng.uniform(1.0, 2.5)
        chunks[index:] = [Chunk(chunk.at + pause, chunk.frames) for chunk in chunks[index:]]
    return chunks


def chunks_hiccup(rng: random.Random) -> Utterance:
    """Four codec frames together, every 192 ms; from one chunk on all come 200 to 500 ms later."""
    chunks = _utterance(rng, _every(rng, 0.048), (4.0, 10.0))
    begin = chunks[0].at
    together = [Chunk(begin + 4 * 0.048 * (n // 4), each.frames) for n, each in enumerate(chunks)]
    late, by = 4 * rng.randint(1, (len(chunks) - 1) // 4), rng.uniform(0.2, 0.5)
    return [
        Chunk(each.at + by if n >= late else each.at, each.frames)
        for n, each in enumerate(together)
    ]


def frame_hiccup(rng: random.Random) -> Utterance:
    """Real-time factor 0.9; of each four codec frames one comes up to 60 ms late."""
    chunks = _utterance(rng, _every(rng, 0.072))
    late = rng.randrange(4)
    arrived: Utterance = []
    for n, chunk in enumerate(chunks):
        at = chunk.at + (rng.uniform(0.0, 0.06) if n % 4 == late else 0.0)
        arrived.append(Chunk(max(at, arrived[-1].at if arrived else 0.0), chunk.frames))
    return arrived


def wifi_bunches(rng: random.Random) -> Utterance:
    """Real-time factor 0.7; a station that sleeps wakes every 102 ms, one time in ten after 307."""
    chunks = _utterance(rng, _every(rng, 0.056))
    wake = chunks[0].at
    arrived: Utterance = []
    for chunk in chunks:
        while wake < chunk.at:
            wake += 0.3072 if rng.random() < 0.1 else 0.1024
        arrived.append(Chunk(wake, chunk.frames))
    return arrived


def stall_mid_tight(rng: random.Random) -> Utterance:
    """Real-time factor 0.9; 150 to 350 ms without arrivals after 1 to 3 s."""
    chunks = _utterance(rng, _every(rng, 0.072), (4.0, 10.0))
    return _stalled(chunks, rng.uniform(1.0, 3.0), rng.uniform(0.15, 0.35))


TRACES: dict[str, Callable[[random.Random], Utterance]] = {
    each.__name__: each
    for each in (
        steady,
        steady_tight,
        steady_paced,
        short,
        hiccup_fast,
        hiccup,
        hiccup_cluster,
        sentences,
        chunks_hiccup,
        frame_hiccup,
        wifi,
        wifi_bunches,
        stall_rare,
        stall_200_early,
        stall_200_mid,
        stall_500_early,
        stall_500_mid,
        stall_mid_tight,
        overload,
        text_pauses,
    )
}
STEADY = ("steady", "steady_tight", "steady_paced", "hiccup_fast")


def least_wait(chunks: Utterance) -> float:
    """The least wait after the first arrival that never runs dry, seconds; hindsight."""
    sent = 0
    need = 0.0
    for chunk in chunks:
        need = max(need, chunk.at - chunks[0].at - sent * PTIME_S)
        sent += chunk.frames
    return need


def stalls(chunks: Utterance) -> int:
    """Number of stalls of a playout that began with the first frame, each longer than the last."""
    sent = count = 0
    most = 0.0
    falling_behind = False
    for chunk in chunks:
        late = chunk.at - chunks[0].at - sent * PTIME_S
        if late > most:
            count += not falling_behind
            most, falling_behind = late, True
        elif late < most - PTIME_S:
            falling_behind = False
        sent += chunk.frames
    return count
