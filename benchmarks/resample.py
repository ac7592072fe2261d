"""Resampling 24 to 8 kHz in 20 ms blocks: speed, delay, what is held, ripple and aliases.

Ours beside the standard library's ``audioop.ratecv`` (``audioop-lts`` from Python 3.13), soxr and
PyAV's swresample where they are installed. All take 16-bit samples and give 16-bit samples.

- *us*: microseconds for one 20 ms block in a steady stream: the least over rounds, and the median
  round. Rounds of all resamplers alternate, so that a busy moment of the machine hits all.
- *held*: audio taken and not given back when a push returns, as mean and maximum over the stream.
- *delay*: how late the samples that are given back show the input, by the phase of tones. What is
  heard is late by what is held and the delay together: resamplers that hold shift it back.
- *ripple*: the largest deviation in level of tones up to 3.4 kHz.
- *alias*: what is left in the output of tones that it cannot hold, the largest of 4.6 to 11 kHz,
  relative to their level; -120 stands for nothing, not a single bit.
"""

from __future__ import annotations

import cmath
import importlib
import math
import statistics
import time
import timeit
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from common import Bench
from numpy.typing import NDArray

from qwen3tts_codecs import PCMU, FrameEncoder, Pcm, Resampler, encode_alaw, encode_ulaw

FROM_HZ, TO_HZ = 24000, 8000
BLOCK = FROM_HZ // 50
PEAK = 29491  # 0.9 of full scale
NOTHING_DB = -120.0
PASS_HZ = [100, 300, 700, 1000, 1500, 2000, 2500, 3000, 3200, 3300, 3400]
STOP_HZ = [4600, 4700, 4800, 5000, 5300, 5700, 6100, 6700, 7300, 7900, 8700, 9500, 10300, 11000]

Push = Callable[[Pcm], Pcm]
Open = Callable[[], Push]
"""Starts a stream: returns what takes a block and gives back what is known then."""


def ours() -> Push:
    """Start a stream of ours."""
    return Resampler(FROM_HZ, TO_HZ).push


def ratecv() -> Open:
    """The standard library's, which interpolates and does not filter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        audioop = importlib.import_module("audioop")

    def start() -> Push:
        state: Any = None

        def push(pcm: Pcm) -> Pcm:
            nonlocal state
            data, state = audioop.ratecv(pcm.tobytes(), 2, 1, FROM_HZ, TO_HZ, state)
            return np.frombuffer(data, np.int16)

        return push

    return start


def soxr(quality: str) -> Open:
    """Soxr's stream of a quality."""
    module = importlib.import_module("soxr")

    def start() -> Push:
        stream = module.ResampleStream(FROM_HZ, TO_HZ, 1, dtype="int16", quality=quality)
        push: Push = stream.resample_chunk
        return push

    return start


def swresample() -> Open:
    """FFmpeg's, by PyAV."""
    av = importlib.import_module("av")

    def start() -> Push:
        stream = av.AudioResampler(format="s16", layout="mono", rate=TO_HZ)
        at = 0

        def push(pcm: Pcm) -> Pcm:
            nonlocal at
            frame = av.AudioFrame.from_ndarray(pcm.reshape(1, -1), format="s16", layout="mono")
            frame.sample_rate, frame.pts = FROM_HZ, at
            at += len(pcm)
            parts = [out.to_ndarray()[0] for out in stream.resample(frame)]
            return np.concatenate(parts) if parts else np.zeros(0, np.int16)

        return push

    return start


def peers() -> Iterator[tuple[str, Open]]:
    """Yield ours and those of the others that are installed."""
    yield "ours", ours
    for name, make in (
        ("audioop.ratecv", ratecv),
        ("soxr QQ", lambda: soxr("QQ")),
        ("soxr HQ", lambda: soxr("HQ")),
        ("soxr VHQ", lambda: soxr("VHQ")),
        ("PyAV swresample", swresample),
    ):
        with suppress(ImportError):
            yield name, make()


def blocks(pcm: Pcm) -> list[Pcm]:
    """Cut into blocks of 20 ms."""
    return [pcm[at : at + BLOCK] for at in range(0, len(pcm) - BLOCK + 1, BLOCK)]


def run(start: Open, pcm: Pcm) -> Pcm:
    """Return what a stream has given by the time all of ``pcm`` is pushed."""
    push = start()
    return np.concatenate([push(block) for block in blocks(pcm)])


def tone(hz: float, seconds: float) -> Pcm:
    """A sine at the rate of the input."""
    at = np.arange(round(FROM_HZ * seconds)) / FROM_HZ
    pcm: Pcm = np.rint(PEAK * np.sin(2 * np.pi * hz * at)).astype(np.int16)
    return pcm


def phasor(pcm: NDArray[np.float64], hz: float, begin: int) -> complex:
    """The tone's amplitude and phase in ``pcm``, whose first sample is output number ``begin``."""
    at = 2 * np.pi * hz * (begin + np.arange(len(pcm))) / TO_HZ
    basis = np.stack([np.sin(at), np.cos(at)], axis=1)
    (sine, cosine), *_ = np.linalg.lstsq(basis, pcm, rcond=None)
    return complex(sine, cosine)


def steady(start: Open, hz: float, seconds: float) -> tuple[NDArray[np.float64], int]:
    """The middle of a tone's output, and the number of its first sample."""
    out = run(start, tone(hz, seconds))
    begin, end = TO_HZ // 5, len(out) - 160
    return out[begin:end].astype(np.float64), begin


def passed(start: Open, seconds: float) -> tuple[float, float]:
    """Ripple in dB, and delay in ms as the median over tones."""
    levels, delays = [], []
    for hz in PASS_HZ:
        out, begin = steady(start, hz, seconds)
        found = phasor(out, hz, begin)
        levels.append(abs(20 * math.log10(abs(found) / PEAK)))
        # Within half a period of the tone: the lowest, 100 Hz, tells up to 5 ms.
        delays.append(-cmath.phase(found) / (2 * math.pi * hz) * 1e3)
    coarse = delays[0]
    for index, hz in enumerate(PASS_HZ):
        period = 1e3 / hz
        delays[index] += round((coarse - delays[index]) / period) * period
    return max(levels), round(statistics.median(delays), 6) + 0.0  # no minus zero


def stopped(start: Open, seconds: float) -> tuple[float, float]:
    """Level in dB of what a tone at 4.6 kHz leaves, and of the largest rest of all."""
    rests = []
    for hz in STOP_HZ:
        out, _ = steady(start, hz, seconds)
        level = float(np.sqrt(np.mean(out**2))) / (PEAK / math.sqrt(2))
        rests.append(max(NOTHING_DB, 20 * math.log10(level) if level else NOTHING_DB))
    return rests[0], max(rests)


def held_ms(start: Open, pcm: Pcm) -> tuple[float, float]:
    """Mean and maximum of what is taken and not given back, over all pushes."""
    push = start()
    taken = given = 0
    held = []
    for block in blocks(pcm):
        taken += len(block)
        given += len(push(block))
        held.append(max(0.0, (taken / FROM_HZ - given / TO_HZ) * 1e3))
    return statistics.fmean(held), max(held)


def speed(streams: Sequence[tuple[str, Open]], rounds: int) -> dict[str, tuple[float, float]]:
    """Microseconds a block: the least and the median round of each."""
    noise = np.random.default_rng(1).integers(-20000, 20000, 200 * BLOCK).astype(np.int16)
    portions = blocks(noise)
    pushes = [(name, start()) for name, start in streams]
    taken: dict[str, list[float]] = {name: [] for name, _ in pushes}
    for _ in range(rounds):
        for name, push in pushes:
            began = time.perf_counter()
            for portion in portions:
                push(portion)
            taken[name].append((time.perf_counter() - began) / len(portions) * 1e6)
    return {name: (min(times), statistics.median(times)) for name, times in taken.items()}


def quality(start: Open, long: Pcm, seconds: float) -> tuple[float, ...]:
    """Held ms, its maximum, delay ms, ripple dB, alias dB at 4.6 kHz, and the largest of all."""
    ripple, delay = passed(start, seconds)
    return *held_ms(start, long), delay, ripple, *stopped(start, seconds)


def steps(rounds: int) -> list[list[str | float]]:
    """Rows of what follows the resampler, and of the whole."""
    narrow = np.random.default_rng(3).integers(-20000, 20000, BLOCK // 3).astype(np.int16)
    one = np.resize(narrow, BLOCK).tobytes()
    single, many = FrameEncoder(FROM_HZ, PCMU), FrameEncoder(FROM_HZ, PCMU)
    todo: list[tuple[str, Callable[[], object], int]] = [
        ("PCMU encode", lambda: encode_ulaw(narrow), 1),
        ("PCMA encode", lambda: encode_alaw(narrow), 1),
        ("PCM to frames with fades, 20 ms at a time", lambda: single.push(one), 1),
        ("PCM to frames with fades, 80 ms at a time", lambda: many.push(one * 4), 4),
    ]
    rows: list[list[str | float]] = []
    for name, step, frames in todo:
        times = [
            value / 100 / frames * 1e6 for value in timeit.repeat(step, repeat=rounds, number=100)
        ]
        rows.append([name, min(times), statistics.median(times)])
    return rows


def filter_alias_db() -> float:
    """The largest gain of our filter above 4.6 kHz: what the rounding to 16 bits hides."""
    taps = Resampler(FROM_HZ, TO_HZ).taps
    gain = np.abs(np.fft.rfft(taps, 1 << 15))
    hz = np.arange(len(gain)) * FROM_HZ / (1 << 15)
    return float(20 * np.log10(gain[hz >= STOP_HZ[0]].max()))


def main() -> None:
    """Measure all, print the table and the figures."""
    bench = Bench("resample", "24 to 8 kHz in 20 ms blocks, beside other resamplers")
    seconds, rounds = (1.0, 100) if bench.quick else (3.0, 1000)
    streams = list(peers())
    speeds = speed(streams, rounds)
    long = np.random.default_rng(2).integers(-20000, 20000, 10 * FROM_HZ).astype(np.int16)
    qualities = {name: quality(start, long, seconds) for name, start in streams}
    rows = [
        [name, *speeds[name], 20_000 / speeds[name][1], *qualities[name]] for name, _ in streams
    ]
    columns = ["us", "us median", "x real time", "held ms", "max", "delay ms", "ripple dB"]
    columns += ["4.6 kHz dB", "alias dB"]
    bench.table("24 to 8 kHz, 20 ms blocks", ["resampler", *columns], rows)
    limit_db = filter_alias_db()
    bench.note(f"Our filter by itself, before the rounding to 16 bits: {limit_db:.1f} dB.")
    bench.table("to the wire, a 20 ms frame", ["step", "us", "us median"], steps(rounds // 2))
    name, _ = streams[0]
    _, _, delay_ms, ripple_db, _, tones_db = qualities[name]
    bench.figure(
        alias_db=round(max(tones_db, limit_db), 1),
        ripple_db=round(ripple_db, 4),
        delay_ms=round(delay_ms, 3),
        us_per_20ms=round(speeds[name][1], 2),
    )


if __name__ == "__main__":
    main()
