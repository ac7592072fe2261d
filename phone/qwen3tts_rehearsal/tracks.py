"""Tracks of a call on one time axis, as its listeners have them (pure).

The caller's samples count from when they were spoken, which is one frame before they leave; the
agent's from when they can be heard at the earliest, which is their arrival. Positions are samples
since the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.audio.frames import HeardFrame, SentFrame
from qwen3tts_phone.detection.vad import RATE_HZ, VoiceActivityDetector

Samples = NDArray[np.int16]

LATE_S = 0.06
"""Jitter buffer of the listener: a frame later than this leaves a gap."""
SILENT_DBFS = -50.0
"""Frames below this level are silence, which a listener's buffer may shorten."""
THRESHOLD = 0.5
JOIN_S = 0.25
"""Pause within a segment of speech."""
LEAST_S = 0.06
"""Shortest segment."""
CUT_BLOCKS = 4
CUT_LEVEL_DB = 20.0
CUT_DROP_DB = 35.0
"""Sound that falls by this much within 20 to 40 ms, from no less than 20 dB below its level, is cut
off.
"""
SEARCH_S = 0.12
"""Range in which the level moves a segment's beginning or end."""
BELOW_DB = 25.0
LONGEST_HOLE_S = 0.2
"""Longer silence is a pause."""
EDGE_S = 0.002
LOUD_DBFS = -40.0
SILENT_PEAK = 8
"""Idle code words of G.711 and their neighbours."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Speech without a pause of more than `JOIN_S`, seconds since the answer."""

    start_s: float
    end_s: float
    stopped: bool = False
    """True if it ends abruptly, as speech does not."""


@dataclass(slots=True)
class AgentTrack:
    """The agent's sound as a listener with a short jitter buffer has it."""

    rate_hz: int
    samples: Samples = field(repr=False)
    gaps: list[float] = field(default_factory=list)
    """Times of frames that came too late, or not at all, while it spoke."""
    lost: int = 0
    """Frames that were concealed."""


def agent_track(
    frames: Sequence[HeardFrame],
    answered_at: float,
    seconds: float,
    rate_hz: int,
    *,
    jitter_s: float = 0.0,
    lossless: bool = True,
) -> AgentTrack:
    """Place what came on the time axis.

    ``jitter_s``: jitter that the line adds, which is no fault of the agent. ``lossless``: the line
    loses nothing, so that a missing frame is the agent's.
    """
    made = np.zeros(round(seconds * rate_hz) + rate_hz, np.int16)
    track = AgentTrack(rate_hz, made)
    written = 0
    """Position up to which it is known."""
    allowed = round((LATE_S + jitter_s) * rate_hz)
    was_loud = False
    placed: list[Samples] = []
    starts: list[int] = []
    for frame in frames:
        samples = frame.samples
        if frame.rate_hz != rate_hz:
            samples = Resampler(frame.rate_hz, rate_hz, aligned=True).push(samples)
        came = round((frame.at - answered_at) * rate_hz)
        loud = not frame.noise and _dbfs(samples) > SILENT_DBFS
        track.lost += frame.concealed
        if frame.concealed and lossless and was_loud:
            _gap(track.gaps, written / rate_hz)
        if came - written > allowed:
            if was_loud and loud and came - written < rate_hz // 2:
                _gap(track.gaps, written / rate_hz)
            written = came
        elif came > written and not was_loud:
            written = came
        elif not loud and written - came >= len(samples):
            was_loud = loud
            continue  # the buffer becomes shorter in a pause
        first = max(0, -written)
        end = min(len(made), written + len(samples))
        if end > written + first:
            made[written + first : end] = samples[first : end - written]
        placed.append(samples)
        starts.append(written)
        written += len(samples)
        was_loud = loud
    track.gaps += holes(placed, starts, rate_hz)
    track.gaps.sort()
    return track


def caller_track(
    frames: Sequence[SentFrame], answered_at: float, seconds: float, rate_hz: int
) -> Samples:
    made = np.zeros(round(seconds * rate_hz) + rate_hz, np.int16)
    for frame in frames:
        at = round((frame.at - frame.duration_s - answered_at) * rate_hz)
        first, end = max(0, -at), min(len(frame.samples), len(made) - at)
        if end > first:
            made[at + first : at + end] = frame.samples[first:end]
    return made


def holes(frames: Sequence[Samples], starts: Sequence[int], rate_hz: int) -> list[float]:
    """Return the times (s) of whole frames of digital silence between loud sound.

    Speech fades into its pauses; sound with a frame cut out of it does not.

    Args:
        frames: samples of each frame, in order.
        starts: their positions.
        rate_hz: of the frames.
    """
    found = []
    run = 0
    edge = max(1, round(EDGE_S * rate_hz))
    for number, frame in enumerate(frames):
        if len(frame) and not np.any(np.abs(frame.astype(np.int32)) > SILENT_PEAK):
            run += 1
            continue
        before = number - run - 1
        length_s = sum(len(each) for each in frames[number - run : number]) / rate_hz
        if run and before >= 0 and length_s <= LONGEST_HOLE_S:
            edges = (_audible(frames[before])[-edge:], _audible(frame)[:edge])
            if min(map(_dbfs, edges)) > LOUD_DBFS:
                found.append(starts[number - run] / rate_hz)
        run = 0
    return found


def _audible(frame: Samples) -> Samples:
    """Return a frame without the digital silence at its ends: a hole need not begin with one."""
    loud = np.flatnonzero(np.abs(frame.astype(np.int32)) > SILENT_PEAK)
    return frame[loud[0] : loud[-1] + 1] if len(loud) else frame


def segments(samples: Samples, rate_hz: int, detector: VoiceActivityDetector) -> list[Segment]:
    at_8k = samples
    if rate_hz != RATE_HZ:
        resampler = Resampler(rate_hz, RATE_HZ, aligned=True)
        at_8k = np.concatenate((resampler.push(samples), resampler.flush()))
    window_s = detector.window / RATE_HZ
    voiced = np.array(detector.push(at_8k)) >= THRESHOLD
    found: list[list[float]] = []
    for index in np.flatnonzero(voiced):
        start, end = index * window_s, (index + 1) * window_s
        if found and start - found[-1][1] <= JOIN_S:
            found[-1][1] = end
        else:
            found.append([start, end])
    made = [_refined(at_8k, start, end) for start, end in found if end - start >= LEAST_S]
    return made


def _refined(samples: Samples, start: float, end: float) -> Segment:
    """Move beginning and end to where the sound begins and ends."""
    step = RATE_HZ // 200
    first = max(0, round((start - SEARCH_S) * RATE_HZ)) // step
    last = min(len(samples), round((end + SEARCH_S) * RATE_HZ)) // step
    blocks = samples[first * step : last * step].astype(np.float64).reshape(-1, step)
    power = 10 * np.log10(np.mean(blocks**2, axis=1) / 32768.0**2 + 1e-12)
    if not len(power):
        return Segment(start, end)
    loud = np.flatnonzero(power > max(SILENT_DBFS, float(np.percentile(power, 90)) - BELOW_DB))
    if not len(loud):
        return Segment(start, end)
    final = int(loud[-1])
    return Segment(
        (first + int(loud[0])) * step / RATE_HZ,
        (first + final + 1) * step / RATE_HZ,
        _is_cut(power, final),
    )


def _is_cut(power: NDArray[np.float64], final: int) -> bool:
    """Return whether sound ends faster than a voice does: powers of 5 ms blocks, dB."""
    after = power[final + 1 : final + 1 + CUT_BLOCKS]
    if final < CUT_BLOCKS or len(after) < CUT_BLOCKS:
        return False
    last = float(power[final - CUT_BLOCKS : final + 1].max())
    speech = float(np.percentile(power, 90))
    return last > speech - CUT_LEVEL_DB and float(after[-1]) < last - CUT_DROP_DB


def merged(found: Sequence[Segment], pause_s: float) -> list[Segment]:
    made: list[Segment] = []
    for each in found:
        if made and each.start_s - made[-1].end_s < pause_s:
            made[-1] = Segment(made[-1].start_s, each.end_s, each.stopped)
        else:
            made.append(each)
    return made


def _gap(gaps: list[float], at_s: float) -> None:
    if not gaps or at_s - gaps[-1] > 0.1:  # a run of late frames is one
        gaps.append(at_s)


def _dbfs(samples: Samples) -> float:
    if not len(samples):
        return -120.0
    power = float(np.mean(samples.astype(np.float64) ** 2))
    return 10 * float(np.log10(power / 32768.0**2 + 1e-12))
