"""Voice activity detectors on telephone sound: how soon, how often wrong, and what it costs.

Speech is eSpeak's, in 14 voices and five languages (line_sounds.py), 300 to 3400 Hz, at -10 to
-40 dBFS through mu-law; alone, or in noise of a kind at some dB below the speech. Each call is 2 s
of noise, an utterance, 1.5 s of noise. The detectors stand behind the same rules
(`qwen3tts_phone.detection`), without an agent, so the figures are those of a call.

- *onset*: from the utterance's first sample that is not 20 dB below its level to the decision, ms,
  as a caller's frames of 20 ms arrive.
- *missed*: utterances without an onset by their end, per cent. *cut*: of those heard, how many were
  taken to be over before their end, per cent (no pause in an utterance is as long as pause_ms).
- *end*: from its last such sample to when the turn was said to be over, ms; pause_ms is part of it.
- *false a minute*: onsets in noise alone, at -30 dBFS (of the sounding part).
- *us*: processor time for 20 ms of sound: the detector alone, and the whole core.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from common import Bench
from line_sounds import (
    FRAME,
    NOISES,
    Samples,
    at_level,
    babble_of,
    callers,
    level_of,
    mix,
    noise,
    on_the_line,
    voiced_from_to,
)

from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.detection.core import SpeechDetectionCore
from qwen3tts_phone.detection.events import ListenEvent, OnsetHeard, TurnEnded
from qwen3tts_phone.detection.settings import DETECTORS, DetectorName, ListenSettings
from qwen3tts_phone.detection.vad import RATE_HZ, VoiceActivityDetector, make_detector

BEFORE_S, AFTER_S = 2.0, 1.5
LEVELS = (-10, -20, -30, -40)
SNRS = (30, 20, 10, 5, 0)
NOISE_DBFS = -30.0


@dataclass
class Tally:
    """Results of some calls."""

    onset_ms: list[float] = field(default_factory=list)
    end_ms: list[float] = field(default_factory=list)
    calls: int = 0
    missed: int = 0
    cut: int = 0
    early: int = 0
    """Onsets before the utterance."""

    def row(self) -> list[float]:
        """Onset p50, p95, missed, cut, end p50, p95, early."""
        onset, end = self.onset_ms or [float("nan")], self.end_ms or [float("nan")]
        return [
            float(np.percentile(onset, 50)),
            float(np.percentile(onset, 95)),
            100 * self.missed / max(1, self.calls),
            100 * self.cut / max(1, self.calls - self.missed),
            float(np.percentile(end, 50)),
            float(np.percentile(end, 95)),
            100 * self.early / max(1, self.calls),
        ]


def listen(
    sound: Samples, settings: ListenSettings, detector: VoiceActivityDetector | None = None
) -> list[ListenEvent]:
    """One call's sound, frame by frame; times are seconds of it."""
    core = SpeechDetectionCore(settings, 0.0, detector)
    events: list[ListenEvent] = []
    for number in range(len(sound) // FRAME):
        samples = sound[number * FRAME : (number + 1) * FRAME]
        at = (number + 1) * FRAME / RATE_HZ
        events += core.push(HeardFrame(samples, at, False, RATE_HZ, number * FRAME))
    return events


def judge(events: Sequence[ListenEvent], begins: float, ends: float, tally: Tally) -> None:
    """Count what was decided of an utterance from ``begins`` to ``ends`` seconds."""
    onsets = [event.at for event in events if isinstance(event, OnsetHeard)]
    tally.calls += 1
    tally.early += any(at < begins - 0.03 for at in onsets)
    heard = [at for at in onsets if begins - 0.03 <= at <= ends + 0.1]
    open_before = [
        event.at
        for event in events
        if isinstance(event, TurnEnded) and event.began_at < begins and event.at > begins
    ]
    if not heard and not open_before:
        tally.missed += 1
        return
    if heard:
        tally.onset_ms.append(1000 * (heard[0] - begins))
    over = [event.at for event in events if isinstance(event, TurnEnded) and event.at > begins]
    if over and over[0] < ends:
        tally.cut += 1
    later = [at for at in over if at >= ends]
    if later:
        tally.end_ms.append(1000 * (later[0] - ends))


def calls_of(
    bench: Bench, count: int
) -> tuple[list[tuple[Samples, float, float, str, str]], list[tuple[str, Samples]]]:
    """Sounds of calls with where the utterance is; and noises alone."""
    chance = np.random.default_rng(5)
    said = asyncio.run(callers(count, chance))
    babble = babble_of(said, 90, chance)
    calls = []
    for number, utterance in enumerate(said):
        begins, ends = voiced_from_to(utterance)
        quiet = np.zeros(round(BEFORE_S * RATE_HZ)), np.zeros(round(AFTER_S * RATE_HZ))
        line = chance.normal(size=len(utterance) + sum(map(len, quiet))) * 10 ** (-70 / 20)
        whole = np.concatenate((quiet[0], utterance, quiet[1]))
        at = BEFORE_S + begins / RATE_HZ, BEFORE_S + ends / RATE_HZ
        for dbfs in LEVELS:
            loud = at_level(utterance, dbfs)
            clean = np.concatenate((quiet[0], loud, quiet[1])) + line
            calls.append((on_the_line(clean), *at, "quiet line", f"{dbfs} dBFS"))
        for snr in SNRS:
            kinds = ("white", "pink", "babble", "street", "hum", "music")
            kind = kinds[(number + snr) % len(kinds)]
            around = noise(kind, len(whole) / RATE_HZ, chance, babble)
            loud = whole * 10 ** ((-22 - level_of(utterance)) / 20)
            calls.append((on_the_line(mix(loud, around, snr, -22)), *at, kind, f"{snr} dB SNR"))
    minutes = 0.5 if bench.quick else 2.0
    alone = [
        (
            kind,
            on_the_line(
                noise(kind, 60 * minutes, chance, np.tile(babble, 2)) * 10 ** (NOISE_DBFS / 20)
            ),
        )
        for kind in NOISES
    ]
    return calls, alone


def cost(name: DetectorName, sound: Samples) -> tuple[float, float]:
    """Processor time of 20 ms, us: the detector, and the core with it."""
    count = len(sound) // FRAME
    detector = make_detector(name)
    began = time.process_time()
    for number in range(count):
        detector.push(sound[number * FRAME : (number + 1) * FRAME])
    alone = time.process_time() - began
    began = time.process_time()
    listen(sound, ListenSettings(detector=name))
    return 1e6 * alone / count, 1e6 * (time.process_time() - began) / count


def main() -> None:
    """All detectors; the closing line is of the default."""
    bench = Bench("voice_activity", __doc__ or "")
    calls, alone = calls_of(bench, 14 if bench.quick else 112)
    columns = ["sound", "onset p50", "p95", "missed %", "cut %", "end p50", "p95", "early %"]
    figures: dict[str, tuple[Tally, float]] = {}
    costs = []
    for name in DETECTORS:
        settings = ListenSettings(detector=name)
        tallies: dict[str, Tally] = defaultdict(Tally)
        for sound, begins, ends, kind, how in calls:
            events = listen(sound, settings)
            for key in (how, kind, "all"):
                judge(events, begins, ends, tallies[key])
        rows: list[list[object]] = [[key, *tally.row()] for key, tally in tallies.items()]
        bench.table(f"{name}: speech (ms, per cent)", columns, rows)
        false = []
        for kind, sound in alone:
            onsets = [e for e in listen(sound, settings) if isinstance(e, OnsetHeard)]
            false.append([kind, len(onsets) / (len(sound) / RATE_HZ / 60)])
        bench.table(f"{name}: false onsets a minute", ["noise", "onsets"], false)
        mean = float(np.mean([each[1] for each in false]))
        figures[name] = tallies["all"], mean
        costs.append([name, *cost(name, np.concatenate([call[0] for call in calls[:40]]))])
    bench.table("processor time of 20 ms (us)", ["detector", "alone", "whole core"], costs)
    default = ListenSettings().detector
    tally, mean = figures[default]
    row = tally.row()
    bench.figure(
        detector=default,
        onset_ms_p50=row[0],
        onset_ms_p95=row[1],
        missed_pct=row[2],
        end_ms_p50=row[4],
        false_a_minute=mean,
        us_per_frame=next(each[2] for each in costs if each[0] == default),
    )


if __name__ == "__main__":
    main()
