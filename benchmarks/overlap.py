"""A caller speaks while the agent does: does "mhm" stop it, is who interrupts heard, and how soon.

Scenes of overlap_scenes.py at four levels, with the agent's echo 20 dB below it, through the echo
guard, Silero and Whisper (English tiny.en, else base). All times are of a simulated clock: frames
of 20 ms, and the recogniser answers after the processor time that it took. Beside it, in the same
calls, ``overlap: stop``: the agent is silenced at the onset.

- *stopped*: of the backchannels, those that silenced the agent, per cent.
- *lost*: interruptions that neither silenced the agent nor became a turn. *unheard*: speech without
  an onset.
- *duck*, *silence*: from the caller's first voiced sample to the agent's first quieter, or missing,
  frame, ms. *decided*: to the verdict.
- *onset*: to the decision that the caller speaks, ms, by level; the same without an echo
  (``onset_ms_p95_quiet``: at -34 dBFS).
- *the right words*: in place of Whisper, what a recogniser would give that understands everything.
- *frames*: from the onset's decision to the first quieter frame, in frames of 20 ms, at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from common import Bench
from overlap_scenes import (
    FRAME_S,
    LEVELS,
    Heard,
    Said,
    SimulatedCall,
    agent_speech,
    call_of,
    scenes,
)
from recognition import CountedModel, settle

from qwen3tts_agent.recognition.queue import RecognitionQueue
from qwen3tts_agent.recognition.settings import WhisperSettings
from qwen3tts_agent.recognition.whisper import WhisperRecogniser
from qwen3tts_phone.detection.events import (
    CallerCutIn,
    ListenEvent,
    OverlapBegan,
    OverlapEnded,
)
from qwen3tts_phone.detection.recogniser import Recogniser, Transcript
from qwen3tts_phone.detection.settings import ListenSettings, OverlapMode
from qwen3tts_phone.detection.speech_detection import SpeechDetection
from qwen3tts_wire.whisper.guards import Decoding
from qwen3tts_wire.whisper.model import WhisperModel

KNOWN_AFTER_S = 0.25
Row = list[Any]
Pairs = Sequence[tuple[Said, Heard]]


@dataclass
class Models:
    """Whisper by language, loaded once."""

    loaded: dict[str, WhisperModel] = field(default_factory=dict)

    def of(self, language: str) -> WhisperModel:
        """The language's own model."""
        if language not in self.loaded:
            name = "tiny.en" if language == "en" else "base"
            model = WhisperModel.load(name, (language,), device="cpu", threads=1)
            model.hear(np.zeros(16_000, np.int16))
            self.loaded[language] = model
        return self.loaded[language]


class KnownWords:
    """In place of a model: gives the right words after a time, as a good recogniser might."""

    def __init__(self, said: Said, call: SimulatedCall) -> None:
        self.on_gone: Callable[[], None] = lambda: None
        self.alive = True
        self._said = said
        self._call = call

    async def hear(self, samples: np.ndarray[Any, Any]) -> Decoding:
        """The text, whole."""
        await self._call.clock.sleep_until(self._call.clock.now() + KNOWN_AFTER_S)
        return Decoding(self._said.text, self._said.language, -0.1, 0.0)

    def ring(self) -> None:
        """Nothing."""

    async def idle(self) -> None:
        """Nothing."""

    async def close(self) -> None:
        """Nothing."""


Worker = CountedModel | KnownWords


async def recogniser_of(worker: Worker, call: SimulatedCall) -> Recogniser:
    """A recogniser that answers by the call's clock."""

    async def start() -> Worker:
        return worker

    recogniser = WhisperRecogniser(WhisperSettings("auto", timeout_s=600.0), clock=call.clock)
    recogniser._queue = RecognitionQueue(start, call.clock, most_waiting=64)
    await recogniser.warm()
    return recogniser


async def run(
    said: Said,
    agent: list[np.ndarray[Any, Any]],
    number: int,
    mode: OverlapMode,
    models: Models | None,
) -> Heard:
    """One call; without models the words are known."""
    call, heard = call_of(said, agent, number)
    worker: Worker = KnownWords(said, call)
    if models is not None:
        worker = CountedModel(models.of(said.language), call.clock)  # type: ignore[arg-type]
    recogniser = await recogniser_of(worker, call)

    def note(event: ListenEvent) -> None:
        if event.at < heard.begins:
            return
        match event:
            case OverlapBegan() | CallerCutIn() if heard.began is None:
                heard.began = event.at
            case OverlapEnded(verdict=verdict, rule=rule) if not heard.verdict:
                heard.verdict, heard.rule, heard.decided = verdict, rule, event.at
            case _:
                pass

    listening = SpeechDetection(call, ListenSettings(overlap=mode), recogniser, on_event=note)

    judge = listening._hearer.on_words
    assert judge is not None

    def words(text: Transcript, paused: bool) -> None:
        if not heard.verdict:
            heard.words.append(text.text)
        judge(text, paused)

    listening._hearer.on_words = words

    async def read() -> None:
        async for turn in listening:
            if turn.text.strip() and turn.ended_at > heard.begins:
                heard.turns.append(turn.text)

    reading = asyncio.create_task(read())
    await settle()
    while await call.step():
        worker.ring()
        await settle()
    while not reading.done():
        await call.clock.advance(FRAME_S)
        worker.ring()
        await settle()
    await reading
    heard.silent, heard.played = call.silent_at, call.played
    ducks = [at for at, db in call.ducked if db and at >= heard.begins]
    heard.ducked = ducks[0] if ducks else None
    return heard


def ms(values: Sequence[float]) -> list[Any]:
    """p50 and p95."""
    if not values:
        return ["-", "-"]
    return [float(each) for each in np.percentile(np.asarray(values) * 1000, (50, 95))]


def took(found: Sequence[Heard], name: str) -> list[float]:
    """Seconds from the first voiced sample to something."""
    return [at - each.begins for each in found if (at := getattr(each, name)) is not None]


def row(name: str, pairs: Pairs) -> Row:
    """Summary of one kind of speech."""
    found = [heard for _, heard in pairs]
    stopped = sum(each.silent is not None for each in found)
    lost = sum(each.silent is None and not each.turns for each in found)
    return [
        name,
        len(found),
        100 * stopped / max(1, len(found)),
        lost if pairs and pairs[0][0].interrupts else "",
        sum(each.began is None for each in found),
        *ms(took(found, "decided")),
        *ms(took(found, "ducked")),
        *ms(took(found, "silent")),
    ]


COLUMNS = [
    *("speech", "n", "stopped %", "lost", "unheard", "decided p50", "decided p95"),
    *("duck p50", "duck p95", "silence p50", "silence p95"),
]


def report(bench: Bench, mode: str, pairs: Pairs) -> None:
    """Tables of one mode."""
    rows = [
        row(kind, [each for each in pairs if each[0].kind == kind])
        for kind in ("backchannel", "command", "prompt")
    ]
    rows += [
        row(f"{language}, backchannels", [p for p in chosen if not p[0].interrupts])
        for language in sorted({said.language for said, _ in pairs})
        if (chosen := [p for p in pairs if p[0].language == language])
        and any(not p[0].interrupts for p in chosen)
    ]
    bench.table(f"overlap: {mode}", COLUMNS, rows)


def main() -> None:
    """Both modes; the closing line is of ``duck``."""
    bench = Bench("overlap", __doc__ or "")
    said = scenes(24 if bench.quick else 200)
    agent = agent_speech()
    models = Models()
    pairs: dict[str, list[tuple[Said, Heard]]] = {}
    modes: dict[str, tuple[OverlapMode, Models | None]] = {
        "duck": ("duck", models),
        "duck, the right words after 250 ms": ("duck", None),
        "stop": ("stop", None),
    }
    for name, (mode, heard_by) in modes.items():
        pairs[name] = [
            (each, asyncio.run(run(each, agent, number, mode, heard_by)))
            for number, each in enumerate(said)
        ]
        report(bench, name, pairs[name])
    duck, known, stop = pairs.values()
    by_level: list[Row] = []
    for place, dbfs in enumerate(LEVELS):
        found = [heard for number, (_, heard) in enumerate(duck) if number % len(LEVELS) == place]
        by_level.append(
            [
                f"{dbfs:g} dBFS",
                len(found),
                sum(each.began is None for each in found),
                *ms(took(found, "began")),
                *ms(took(found, "ducked")),
                *ms(took(found, "silent")),
            ]
        )
    bench.table(
        "by level, echo at -20 dB",
        [
            *("caller", "n", "unheard", "onset p50", "onset p95", "duck p50", "duck p95"),
            *("silence p50", "silence p95"),
        ],
        by_level,
    )
    silent_line = onsets(said[:: 2 if not bench.quick else 4], agent)
    bench.table(
        "onset by level, no echo", ["caller", "n", "unheard", "onset p50", "p95"], silent_line
    )
    rules = Counter(
        ("backchannel" if not each.interrupts else "interruption", heard.verdict, heard.rule)
        for each, heard in duck
    )
    bench.table(
        "verdicts",
        ["said", "verdict", "rule", "n"],
        [[*key, n] for key, n in sorted(rules.items())],
    )
    bench.table(
        "verdicts that were wrong",
        ["said", "language", "text", "dBFS", "words", "rule", "heard as"],
        [
            [
                *(each.kind, each.language, each.text, LEVELS[number % len(LEVELS)]),
                *(" | ".join(heard.words), heard.rule or "unheard", heard.verdict),
            ]
            for number, (each, heard) in enumerate(duck)
            if each.interrupts != (heard.verdict == "interruption")
        ],
    )
    backchannels = [heard for each, heard in duck if not each.interrupts]
    interruptions = [heard for each, heard in duck if each.interrupts]
    decided_b, decided_i = took(backchannels, "decided"), took(interruptions, "decided")
    frames = [
        (each.ducked - each.began) / FRAME_S for _, each in duck if each.ducked and each.began
    ]
    bench.table(
        "aims",
        ["figure", "ours", "words known", "stop", "aim"],
        [
            ["backchannels that stopped the agent, %", *map(_stopped, (duck, known, stop)), 35],
            ["of them English, %", *(_stopped(each, "en") for each in (duck, known, stop)), 35],
            ["interruptions lost", *map(_lost, (duck, known, stop)), 0],
            [
                "of them at -28 dBFS or more",
                *(_lost(each, loud=True) for each in (duck, known, stop)),
                0,
            ],
            ["decided, backchannels, p95 ms", ms(decided_b)[1], "", "", 1100],
            ["decided, interruptions, p95 ms", ms(decided_i)[1], "", "", 700],
            ["duck after the onset, frames at most", max(frames, default=float("nan")), "", "", 1],
        ],
    )
    bench.figure(
        backchannel_stops_pct=_stopped(duck),
        interruptions_lost=_lost(duck),
        duck_ms_p95=ms(took([heard for _, heard in duck], "ducked"))[1],
        stop_ms_p95=ms(took(interruptions, "silent"))[1],
        onset_ms_p95_quiet=silent_line[-1][4],
        onset_ms_p95_quiet_echo=by_level[-1][4],
        decided_backchannel_ms_p95=ms(decided_b)[1],
        decided_interruption_ms_p95=ms(decided_i)[1],
        known_backchannel_stops_pct=_stopped(known),
        known_interruptions_lost=_lost(known),
        stop_backchannel_stops_pct=_stopped(stop),
        stop_interruptions_lost=_lost(stop),
    )


def _stopped(pairs: Pairs, language: str = "") -> float:
    found = [
        heard for said, heard in pairs if not said.interrupts and language in ("", said.language)
    ]
    return 100 * sum(each.silent is not None for each in found) / max(1, len(found))


def _lost(pairs: Pairs, *, loud: bool = False) -> int:
    return sum(
        heard.silent is None and not heard.turns
        for number, (said, heard) in enumerate(pairs)
        if said.interrupts and not (loud and LEVELS[number % len(LEVELS)] < -28)
    )


def onsets(said: Sequence[Said], agent: list[np.ndarray[Any, Any]]) -> list[Row]:
    """Onset by level on a line without an echo, while the agent speaks."""
    rows: list[Row] = []
    for dbfs in LEVELS:
        began: list[float] = []
        unheard = 0
        for number, each in enumerate(said):
            call, heard = call_of(each, agent, number, dbfs=dbfs, echo=False)
            at = asyncio.run(_onset(call, heard.begins))
            began += [at - heard.begins] if at is not None else []
            unheard += at is None
        rows.append([f"{dbfs:g} dBFS", len(said), unheard, *ms(began)])
    return rows


async def _onset(call: SimulatedCall, begins: float) -> float | None:
    found: list[float] = []

    def note(event: ListenEvent) -> None:
        if isinstance(event, CallerCutIn) and event.at >= begins:
            found.append(event.at)

    listening = SpeechDetection(call, on_event=note)
    listening.start()
    await settle()
    while not found and await call.step():
        await settle()
    await listening.aclose()
    return found[0] if found else None


if __name__ == "__main__":
    main()
