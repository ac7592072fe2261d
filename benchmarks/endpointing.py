"""End of a caller's turn: how many people are cut off, and how long those wait who have finished.

The turns are of endpointing_calls.py (people, ten kinds, five languages, mu-law, -22 dBFS), heard
by the call's own detection, which says where the silences are. Rules are compared on these:

- *cut*: share of the pauses of 200 ms and more within turns in which the turn was ended; also of
  the pauses between groups of digits alone. The readers' own pauses within prompts count.
- *wait*: from the last voiced sample, as the detector has it, to the decision, of turns that are
  over. *from sound*: from the end of the recording's sound.

*ours* has the words of the script, as they are at that pause, when a recogniser has them: normal,
220 ms after the last voiced sample, sigma 25 ms (``python benchmarks/recognition.py``: 220 p50,
267 p95), and not before notice_ms. *ours, no recogniser*: the melody alone. *ours, words after
450 ms*: a slow recogniser. *ours, Whisper*: what tiny.en writes of the English turns, 100 ms after
the last voiced sample and the processor time that it took. *with Smart Turn*: its opinion 60 ms
after it was asked. *Smart Turn at 0.5*: it decides alone, as shipped: 2.5 s where it says no.

Rules are chosen on prompts that do not judge: weights and thresholds of the melody were fitted on
the half of the prompts with an even checksum, and the table of pauses was chosen with ``--fit``,
which shows that half. Both halves have the same five speakers; ``--fit`` also shows the melody
fitted without a speaker and judged on this one. Words of the tables come from grammars, not from
the prompts.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from common import Bench
from endpointing_calls import LANGUAGES, SpokenTurn, calls
from line_sounds import FRAME
from numpy.typing import NDArray

from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.detection.adaptive_pause import HIGH, LOW, AdaptivePause, PauseCues
from qwen3tts_phone.detection.core import SpeechDetectionCore
from qwen3tts_phone.detection.events import SpeechPaused, SpeechResumed
from qwen3tts_phone.detection.prosody import LastSound, last_sound
from qwen3tts_phone.detection.settings import PRESETS, ListenSettings
from qwen3tts_phone.detection.vad import RATE_HZ

LISTENING: Final = ListenSettings(
    pause_ms=5000, notice_ms=150, longest_pause_ms=5000, max_turn_s=120.0, barge_in=False
)
"""Settings by which the silences are found: no turn ends."""
PIECE_S: Final = 0.032
"""Silero's window: a pause is over at the end of one."""
WORDS_S, WORDS_SIGMA_S = 0.22, 0.025
SLOW_WORDS_S: Final = 0.45
ANSWER_S: Final = 0.06
"""From the question to Smart Turn's answer."""
LEAST_PAUSE_S: Final = 0.2
FIXED_MS: Final = (300, 400, 500, 600, 700, 800)
TOLD: Final = ("400 ms", "500 ms", "600 ms")
PROSE: Final = ("complete", "short", "cut", "phrase", "lead", "conjunction", "own")


@dataclass
class Silence:
    """A silence after speech, as the detector has it."""

    call: int
    kind: str
    """Of the turn; ``own`` = a pause of the reader that was not drawn."""
    language: str
    asked: str
    until_s: float | None
    """Its length until speech was heard again; None = the turn is over."""
    speech_s: float
    text: str
    sound: LastSound | None
    late_s: float
    """From the end of the recording's sound to the last voiced sample."""
    words_s: float
    """Time when a recogniser has the text."""
    samples: NDArray[np.int16] = field(repr=False)
    """Of the turn until it was asked."""
    smart: float | None = None
    whisper: tuple[float, str] | None = None
    """Time and text of a real recogniser."""

    @property
    def counted(self) -> bool:
        """Whether it is an end, or a pause that is long enough to count."""
        return self.until_s is None or self.until_s >= LEAST_PAUSE_S


def heard(turn: SpokenTurn, chance: np.random.Generator) -> list[Silence]:
    """The silences of a turn."""
    core = SpeechDetectionCore(LISTENING, 0.0)
    found: list[Silence] = []
    for number in range(len(turn.samples) // FRAME):
        at = (number + 1) * FRAME / RATE_HZ
        frame = turn.samples[number * FRAME : (number + 1) * FRAME]
        for event in core.push(HeardFrame(frame, at, False, RATE_HZ, number * FRAME)):
            if isinstance(event, SpeechPaused):
                samples = turn.samples[: round(at * RATE_HZ)]
                planned = [begin for begin, _ in turn.pauses if abs(begin - event.ended_at) < 0.3]
                true_end = min((*planned, turn.ends_s), key=lambda end: abs(end - event.ended_at))
                found.append(
                    Silence(
                        turn.call,
                        turn.kind if planned else "own",
                        turn.language,
                        turn.asked,
                        None,
                        core.turns.speech_s,
                        turn.text_until(event.ended_at),
                        last_sound(samples, RATE_HZ),
                        event.ended_at - true_end,
                        max(0.2, WORDS_S + WORDS_SIGMA_S * chance.normal()),
                        samples,
                    )
                )
            elif isinstance(event, SpeechResumed):
                found[-1].until_s = core.turns.last_pause_s
    if found and found[-1].until_s is None:
        found[-1].kind = turn.kind
    return found


# --- rules


Rule = Callable[[Sequence[Silence]], list[float]]
"""Returns when each silence of one call, in order, is ended, seconds."""


def fixed(pause_ms: int) -> Rule:
    """A pause that is always the same."""
    return lambda silences: [_at_piece(pause_ms / 1000)] * len(silences)


def smart_alone(silences: Sequence[Silence]) -> list[float]:
    """Smart Turn at 0.5."""
    asked = _at_piece(0.15) + ANSWER_S
    return [asked if (each.smart or 0.0) >= 0.5 else 2.5 for each in silences]


@dataclass(frozen=True)
class Ours:
    """Ours, with what it may know."""

    settings: ListenSettings
    words: str = "script"
    """``script``, ``late``, ``whisper`` or ``none``."""
    network: bool = False
    seen: dict[str, int] = field(default_factory=lambda: defaultdict(int), compare=False)
    """Rules that ended turns which were over, and how often."""

    def __call__(self, silences: Sequence[Silence]) -> list[float]:
        """When each is ended."""
        rules = AdaptivePause(self.settings)
        ends = []
        for each in silences:
            rules.expect(each.asked)
            end, rule = self._end(rules, each)
            ends.append(end)
            if each.until_s is None:
                self.seen[rule or "pause_ms"] += 1
            else:
                rules.note_pause(each.until_s)
        return ends

    def _end(self, rules: AdaptivePause, each: Silence) -> tuple[float, str]:
        cues = PauseCues(
            language=each.language,
            words_expected=self.words != "none",
            speech_s=each.speech_s,
            sound=each.sound,
            thresholds=(LOW, HIGH),
        )
        changes: list[tuple[float, dict[str, Any]]] = [(0.15, {})]
        words = self._words(each)
        if words is not None:
            changes.append((words[0], {"text": words[1]}))
        if self.network:
            changes.append((_at_piece(0.15) + ANSWER_S, {"probability": each.smart}))
        changes.sort(key=lambda change: change[0])
        pause, last = rules.default, 0.0
        for number, (at, known) in enumerate(changes):
            if at >= _at_piece(pause.pause_s) and number:
                break
            cues = replace(cues, **known)
            pause = rules.choose(cues)
            last = at
        over = _at_piece(pause.pause_s)
        return max(over, last) if pause.pause_s > last else last, pause.rule

    def _words(self, each: Silence) -> tuple[float, str] | None:
        if self.words == "none":
            return None
        if self.words == "whisper":
            return each.whisper
        return (SLOW_WORDS_S if self.words == "late" else each.words_s), each.text


def _at_piece(pause_s: float) -> float:
    return math.ceil(pause_s / PIECE_S - 1e-6) * PIECE_S


# --- figures


@dataclass
class Outcome:
    """What a rule does."""

    cut: float
    digits_cut: float
    mean_ms: float
    p50_ms: float
    p95_ms: float
    from_sound_ms: float
    by_kind: dict[str, float]
    wait_by_kind: dict[str, float]

    def row(self) -> list[float]:
        """Its cells."""
        return [
            100 * self.cut,
            100 * self.digits_cut,
            self.mean_ms,
            self.p50_ms,
            self.p95_ms,
            self.from_sound_ms,
        ]


COLUMNS: Final = ["rule", "cut %", "digits cut %", "wait mean", "p50", "p95", "from sound mean"]


def judged(rule: Rule, silences: Sequence[Silence]) -> Outcome:
    """Let a rule decide all silences, call by call."""
    by_call: dict[int, list[Silence]] = defaultdict(list)
    for each in silences:
        by_call[each.call].append(each)
    cuts: dict[str, list[bool]] = defaultdict(list)
    waits: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for some in by_call.values():
        for each, end in zip(some, rule(some), strict=True):
            if each.until_s is None:
                waits[each.kind].append((1000 * end, 1000 * (end + each.late_s)))
            elif each.counted:
                cuts[each.kind].append(end < each.until_s)
    everyone = [cut for some in cuts.values() for cut in some]
    every_wait = np.array([wait for some in waits.values() for wait in some])
    return Outcome(
        float(np.mean(everyone)),
        float(np.mean(cuts["digits"])) if "digits" in cuts else float("nan"),
        float(every_wait[:, 0].mean()),
        float(np.percentile(every_wait[:, 0], 50)),
        float(np.percentile(every_wait[:, 0], 95)),
        float(every_wait[:, 1].mean()),
        {kind: 100 * float(np.mean(some)) for kind, some in cuts.items()},
        {kind: float(np.mean([wait for wait, _ in some])) for kind, some in waits.items()},
    )


def curve(silences: Sequence[Silence], words: str, network: bool) -> list[tuple[float, float]]:
    """Cut share and mean wait at some pause_ms of ours."""
    points = []
    for pause_ms in (350, 450, 600, 800, 1000):
        outcome = judged(Ours(_settings(pause_ms), words, network), silences)
        points.append((100 * outcome.cut, outcome.mean_ms))
    return points


def _settings(pause_ms: int = 600) -> ListenSettings:
    return ListenSettings(
        adaptive_pause=True, pause_ms=pause_ms, longest_pause_ms=max(2500, pause_ms)
    )


def ask_smart(silences: Sequence[Silence], path: str) -> bool:
    """Ask Smart Turn about every silence; False if it is not here."""
    from qwen3tts_phone.detection.events import MissingDetector
    from qwen3tts_phone.detection.smart_turn import SmartTurn

    try:
        smart = SmartTurn(path)
        smart.check()
    except MissingDetector as error:
        print(f"without Smart Turn: {error}")
        return False
    for each in silences:
        each.smart = smart._network.probability(each.samples[-8 * RATE_HZ :], RATE_HZ)
    return True


def ask_whisper(silences: Sequence[Silence]) -> bool:
    """Let Whisper write the English turns until each silence; False if it is not here."""
    if importlib.util.find_spec("faster_whisper") is None:
        return False
    from qwen3tts_wire.whisper.model import WhisperModel
    from qwen3tts_wire.whisper.models import ModelMissing

    try:
        model = WhisperModel.load("tiny.en", ("en",), device="cpu", threads=1, offline=True)
    except ModelMissing as error:
        print(f"without Whisper: {error}")
        return False
    for each in silences:
        resampler = Resampler(RATE_HZ, 16_000)
        samples = np.concatenate([resampler.push(each.samples), resampler.flush()])
        began = time.process_time()
        decoded = model.hear(samples)
        took = time.process_time() - began
        each.whisper = (max(0.2, 0.1 + took), decoded.text if decoded is not None else "")
    return True


def plot(
    path: Path, points: dict[str, list[tuple[float, float]]], aim: tuple[float, float]
) -> None:
    """Draw cut share against mean wait, a web page."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for name, some in points.items():
        figure.add_trace(
            go.Scatter(
                x=[wait for _, wait in some],
                y=[cut for cut, _ in some],
                name=name,
                mode="lines+markers" if len(some) > 1 else "markers",
            )
        )
    figure.add_shape(type="line", x0=0, x1=1000, y0=aim[0], y1=aim[0], line_dash="dot")
    figure.add_shape(type="line", x0=aim[1], x1=aim[1], y0=0, y1=aim[0], line_dash="dot")
    figure.update_layout(
        title="End of turn: pauses cut off against the wait of who has finished",
        xaxis_title="mean wait, ms",
        yaxis_title="pauses within turns that were cut off, %",
        xaxis_range=[0, 1000],
        yaxis_rangemode="tozero",
    )
    figure.write_html(path, include_plotlyjs=True)


def fit(silences: Sequence[Silence]) -> list[list[object]]:
    """The melody's weights, and its area under the curve on a speaker who was left out."""
    from scipy.optimize import minimize

    data = [
        (each.language, each.until_s is None, each.sound)
        for each in silences
        if each.sound is not None and each.kind in ("complete", "cut", "phrase", "own")
    ]

    def weights(without: str) -> NDArray[np.float64]:
        some = [each for each in data if each[0] != without]
        cues = np.array([[1.0, each[2].pitch_st, each[2].level_db] for each in some])
        over = np.where([each[1] for each in some], 1.0, -1.0)
        share = np.where(over > 0, 1 / (over > 0).mean(), 1 / (over < 0).mean())
        loss = minimize(
            lambda w: float((share * np.logaddexp(0, -over * (cues @ w))).mean()), np.zeros(3)
        )
        return np.asarray(loss.x)

    rows: list[list[object]] = []
    for language in ("", *LANGUAGES):
        found = weights(language)
        judged_on = [each for each in data if not language or each[0] == language]
        score = [(float(found @ [1.0, s.pitch_st, s.level_db]), over) for _, over, s in judged_on]
        ends = np.array([each for each, over in score if over])
        others = np.array([each for each, over in score if not over])
        area = float((ends[:, None] > others[None]).mean())
        rows.append([language or "all", *map(float, found), area, len(ends), len(others)])
    return rows


def main() -> None:
    """All rules on the same silences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it as a web page (plotly)")
    parser.add_argument("--fit", action="store_true", help="the half of the prompts for choosing")
    parser.add_argument("--smart-turn", default="auto", metavar="FILE", help="the network's file")
    parser.add_argument("--calls", type=int, metavar="N", help="callers, of 13 turns each")
    bench = Bench("endpointing", __doc__ or "", parser)
    count = bench.args.calls or (10 if bench.quick else 60)
    chance = np.random.default_rng(3)
    silences = [each for turn in calls(count, not bench.args.fit) for each in heard(turn, chance)]
    network = ask_smart(silences, bench.args.smart_turn)
    english = [each for each in silences if each.language == "en"]
    english = english[:60] if bench.quick else english
    whisper = ask_whisper(english)

    named: dict[str, Rule] = {f"{pause_ms} ms": fixed(pause_ms) for pause_ms in FIXED_MS}
    named["ours"] = ours = Ours(_settings())
    named["ours, no recogniser"] = Ours(_settings(), "none")
    named["ours, words after 450 ms"] = Ours(_settings(), "late")
    for name, figures in PRESETS.items():
        if figures:
            named[f"ours, {name}"] = Ours(ListenSettings(**figures | {"adaptive_pause": True}))
    if network:
        named["ours with Smart Turn"] = Ours(_settings(), network=True)
        named["ours with Smart Turn, no recogniser"] = Ours(_settings(), "none", network=True)
        named["Smart Turn at 0.5"] = smart_alone
    outcomes = {name: judged(rule, silences) for name, rule in named.items()}
    bench.table("all", COLUMNS, [[name, *each.row()] for name, each in outcomes.items()])
    spoken = [each for each in silences if each.kind in PROSE]
    rows = [[name, *judged(named[name], spoken).row()] for name in (*TOLD, "ours")]
    bench.table("sentences and short answers alone", COLUMNS, rows)
    if whisper:
        real: dict[str, Rule] = {
            "600 ms, English": fixed(600),
            "ours, English": Ours(_settings()),
            "ours, Whisper, English": Ours(_settings(), "whisper"),
        }
        rows = [[name, *judged(rule, english).row()] for name, rule in real.items()]
        bench.table("a real recogniser", COLUMNS, rows)
        late = [1000 * each.whisper[0] for each in english if each.whisper is not None]
        bench.note(
            f"Whisper's words after the last sound: {np.percentile(late, 50):.0f} ms p50,"
            f" {np.percentile(late, 95):.0f} p95"
        )
    kinds = ["complete", "short", "cut", "phrase", "lead", "conjunction", "digits"]
    kinds += ["spelled", "email", "list", "own"]
    shown = ["600 ms", "ours", "ours, no recogniser"]
    shown += ["ours with Smart Turn"] if network else []
    bench.table(
        "by kind: cut % | wait ms",
        ["rule", *kinds],
        [
            [
                name,
                *(
                    f"{outcomes[name].by_kind.get(kind, float('nan')):.0f} |"
                    f" {outcomes[name].wait_by_kind.get(kind, float('nan')):.0f}"
                    for kind in kinds
                ),
            ]
            for name in shown
        ],
    )
    total = sum(ours.seen.values())
    bench.table(
        "rules of ours that ended a turn which was over",
        ["rule", "turns %"],
        [[n, 100 * c / total] for n, c in sorted(ours.seen.items(), key=lambda e: -e[1])],
    )
    if bench.args.fit:
        columns = ["without", "bias", "pitch", "level", "area", "ends", "others"]
        bench.table("melody", columns, fit(silences))
    if bench.args.plot is not None:
        fixed_points = [
            (100 * outcomes[f"{p} ms"].cut, outcomes[f"{p} ms"].mean_ms) for p in FIXED_MS
        ]
        points = {
            "fixed pause": fixed_points,
            "ours": curve(silences, "script", False),
            "ours, no recogniser": curve(silences, "none", False),
        }
        if network:
            points["ours with Smart Turn"] = curve(silences, "script", True)
            alone = outcomes["Smart Turn at 0.5"]
            points["Smart Turn at 0.5"] = [(100 * alone.cut, alone.mean_ms)]
        plot(bench.args.plot, points, (100 * outcomes["600 ms"].cut, 420.0))
    best = outcomes["ours"]
    bench.figure(
        cut_share=best.cut,
        wait_ms_mean=best.mean_ms,
        wait_ms_p50=best.p50_ms,
        digits_cut_pct=100 * best.digits_cut,
        pause600_cut_share=outcomes["600 ms"].cut,
        ends=sum(each.until_s is None for each in silences),
        pauses=sum(each.until_s is not None and each.counted for each in silences),
    )


if __name__ == "__main__":
    main()
