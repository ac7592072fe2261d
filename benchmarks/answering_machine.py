"""Person or answering machine, and when does it beep: how often the detectors are right.

The greetings are eSpeak's in several languages and voices (greetings.py), on a line with noise of
four kinds 12 to 40 dB below the speech, from loud to faint, coded as PCMU and pushed in frames of
20 ms. The constants were chosen with the set *tuning*; the figures are those of *held out*: other
words, voices and noise. Real people and machines vary more; the figures compare versions of the
detectors, and tell what to expect at best.

- *precision*: of those that were said to be machines (or people), how many are, per cent.
- *recall*: of the machines (or people), how many were said to be, per cent.
  Both are of the first that was said; *in the end* counts what a later beep has corrected.
- *decided*: when it was known, seconds after the answer; median and 95th percentile. *after*: how
  long after a person's greeting ended.
- *beep recall*: of the beeps of ten kinds (400 to 2000 Hz, 80 ms to 1 s), those told; *beep
  precision*: of those told in all cases, those that there are. *false*: told per hour of plain
  speech, and per hour of music of single notes.
- *late*: delay of a beep's report after its end, ms.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from common import Bench
from greetings import BEEPS, RATE_HZ, Case, melodies, run
from numpy.typing import NDArray

from qwen3tts_phone.audio.answering import Answerer, AnsweringMachineDetector
from qwen3tts_phone.audio.tones import Tone, ToneDetector, ToneKind

FRAME = RATE_HZ // 50


@dataclass
class Tally:
    """Results of one set."""

    said: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(what it is, what was said first)."""
    at_last: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(what it is, what was said by the end of the case)."""
    decided_s: dict[str, list[float]] = field(default_factory=dict)
    beeps: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    late_ms: list[float] = field(default_factory=list)
    false_beeps: int = 0
    ready: Counter[bool] = field(default_factory=Counter)
    cpu_s: float = 0.0
    sound_s: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def precision(self, kind: str) -> float:
        """Per cent."""
        all_said = sum(n for (_, said), n in self.said.items() if said == kind)
        return 100 * self.said[kind, kind] / all_said if all_said else 100.0

    def recall(self, kind: str, said: Counter[tuple[str, str]] | None = None) -> float:
        """Per cent."""
        said = self.said if said is None else said
        there = sum(n for (is_, _), n in said.items() if is_ == kind)
        return 100 * said[kind, kind] / there if there else 100.0

    @property
    def beep_recall(self) -> float:
        """Per cent."""
        return 100 * self.told.total() / max(1, self.beeps.total())

    @property
    def beep_precision(self) -> float:
        """Per cent."""
        return 100 * self.told.total() / max(1, self.told.total() + self.false_beeps)


def listen(case: Case, tally: Tally) -> None:
    """One call, as it would be heard live."""
    detector = AnsweringMachineDetector(RATE_HZ)
    found: list[Tone] = []
    answerer: Answerer | None = None
    began = time.process_time()
    for at in range(0, len(case.samples) - FRAME + 1, FRAME):
        known = detector.push(case.samples[at : at + FRAME])
        answerer = answerer or known
        if detector.beep is not None and (not found or found[-1] is not detector.beep):
            found.append(detector.beep)
    tally.cpu_s += time.process_time() - began
    tally.sound_s += len(case.samples) / RATE_HZ
    said = answerer.kind if answerer is not None else "nothing"
    tally.said[case.kind, said] += 1
    last = detector.answerer
    tally.at_last[case.kind, last.kind if last is not None else "nothing"] += 1
    if said != case.kind:
        why = f": {answerer.words}" if answerer is not None else ""
        tally.wrong.append(f"{case.kind} taken for {said}{why} ({case.about})")
    elif answerer is not None:
        tally.decided_s.setdefault(case.kind, []).append(answerer.at_s)
    for begins, ends in case.beeps:
        tally.beeps[case.about] += 1
        hits = [one for one in found if begins - 0.1 <= one.began_s <= ends + 0.1]
        if hits:
            tally.told[case.about] += 1
            tally.late_ms.append(1000 * (hits[-1].at_s - ends))
        tally.ready[bool(hits) and detector.ready_s is not None] += 1
    inside = [(b - 0.1, e + 0.1) for b, e in case.beeps]
    tally.false_beeps += sum(not any(b <= one.began_s <= e for b, e in inside) for one in found)


def false_beeps(sounds: list[NDArray[np.int16]]) -> float:
    """Beeps told per hour of sound that has none."""
    told, seconds = 0, 0.0
    for sound in sounds:
        detector = ToneDetector(RATE_HZ)
        told += sum(tone.kind is ToneKind.BEEP for tone in detector.push(sound))
        seconds += len(sound) / RATE_HZ
    return 3600 * told / seconds


def main() -> None:
    """Both sets; the closing line is of the one held out."""
    bench = Bench("answering_machine", __doc__ or "")
    count = 60 if bench.quick else 400
    tallies = {}
    plains = {}
    for group, seed in (("tuning", 1), ("held out", 2)):
        cases, plain, _ = run(group, count, seed)
        tallies[group], plains[group] = Tally(), plain
        for case in cases:
            listen(case, tallies[group])
    rows = []
    for group, tally in tallies.items():
        for kind in ("human", "machine", "silence"):
            times = tally.decided_s.get(kind, [0.0])
            rows.append(
                [
                    f"{group}: {kind}",
                    sum(n for (is_, _), n in tally.said.items() if is_ == kind),
                    tally.precision(kind),
                    tally.recall(kind),
                    float(np.median(times)),
                    float(np.percentile(times, 95)),
                ]
            )
    columns = ["who", "calls", "precision %", "recall %", "decided p50 s", "p95 s"]
    bench.table("who answered", columns, rows)
    held = tallies["held out"]
    bench.table(
        "beeps (held out)",
        ["kind", "there", "told"],
        [[name, held.beeps[name], held.told[name]] for name, _ in BEEPS],
    )
    music = false_beeps(melodies(10 if bench.quick else 60, 3))
    speech = false_beeps(plains["held out"])
    minutes = sum(map(len, plains["held out"])) / RATE_HZ / 60
    bench.note(f"plain speech without beeps: {minutes:.0f} min")
    for group, tally in tallies.items():
        for words, times_ in Counter(tally.wrong).most_common(12):
            bench.note(f"{group}: {times_} x {words}")
    bench.figure(
        machine_precision=held.precision("machine"),
        machine_recall=held.recall("machine"),
        machine_recall_in_the_end=held.recall("machine", held.at_last),
        human_precision=held.precision("human"),
        human_recall=held.recall("human"),
        human_decided_p50_s=float(np.median(held.decided_s.get("human", [0.0]))),
        beep_precision=held.beep_precision,
        beep_recall=held.beep_recall,
        beep_late_p95_ms=float(np.percentile(held.late_ms or [0.0], 95)),
        false_per_hour_speech=speech,
        false_per_hour_music=music,
        cpu_pct=100 * held.cpu_s / held.sound_s,
    )


if __name__ == "__main__":
    main()
