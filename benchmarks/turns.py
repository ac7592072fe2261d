"""Whole turns of a conversation on the telephone: what the caller waits for, and how he is let in.

A caller with a script phones an agent: real SIP and RTP, the whole line (listening, a recogniser
and a model that answer by the script, the speech server with the embedded voice in a process of its
own). He speaks with telephone sound: embedded speech in the telephone's band, at several levels,
with noise. He waits for the end of a reply, or cuts in. His side of the wire is a process of its
own that knows when each of his samples left and when each packet of the agent came.

*Onset to silence* is from his first voiced sample to the last packet with any sound. *Ours* is all
that is not the pause that ends a turn, the recogniser, the model or the engine. *Decided to frame*
is from the decision that a turn is over to the first audible frame of its reply, which may have
been prepared in the pause (`--preemptive off`: it is not); `_guessed` figures are of those that
were. Echo is what comes back of the agent's own sound, so many dB below, after 0 to 500 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import tempfile
from collections.abc import AsyncIterator, Coroutine, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from common import Bench
from line_sounds import babble_of, callers
from numpy.typing import NDArray
from server_process import ServerProcess
from turn_calls import BABBLE, Caller, Callers, Phrase, Place
from turn_figures import OURS, STAGES, Said, Seen, Talked, judge
from turn_model import LONG, REPLIES, Model, middles_of

from qwen3tts_agent.agent import Agent
from qwen3tts_agent.recognition.callback import CallbackRecogniser
from qwen3tts_agent.settings import AgentSettings
from qwen3tts_phone.detection.settings import DETECTORS, DetectorName, ListenSettings
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_speech.latency import read_log
from tests.agent.endpoint import ChatEndpoint
from tests.agent.test_prepared_property import runs

Sound = NDArray[np.float64]
LEVELS_DBFS = (-16.0, -22.0, -28.0, -34.0)
NOISES = (("", 0.0), ("white", 20.0), ("babble", 15.0), ("street", 15.0), ("hum", 20.0))
ECHO_DB = (20.0, 30.0)
ECHO_MS = (0.0, 20.0, 60.0, 120.0, 250.0, 500.0)
ANSWER_S = 10.0
"""A caller who has got no answer by then says the next thing."""
MOST_S = 60.0
"""Timeout of every stage of a turn."""


RUNS, QUICK_RUNS = 10_000, 200
"""Random calls of the property test."""
AT_ONCE = 4
"""Calls under way at a time."""


class Bureau:
    """Place where agents answer calls: the phone, the model, the recogniser's script."""

    def __init__(
        self, callers: Callers, endpoint: ChatEndpoint, detector: DetectorName, preemptive: str
    ) -> None:
        self._callers = callers
        self._endpoint = endpoint
        # The same pause for all turns: endpointing.py measures the adaptive one.
        self._listen = ListenSettings(detector=detector, adaptive_pause=False)
        self._settings = AgentSettings(quiet_s=0.0, preemptive=preemptive)

    @contextlib.asynccontextmanager
    async def talking(
        self, name: str, place: Place, seed: int
    ) -> AsyncIterator[tuple[Caller, Talked]]:
        """One call to an agent; the caller, and what is filled in at its end."""
        turns = iter(range(1 << 20))

        async def recognise(_: NDArray[np.int16], __: int) -> str:
            return f"{name} turn {next(turns)}"

        agent = Agent(
            self._endpoint.url,
            stt=CallbackRecogniser(recognise, early=True),
            listen=self._listen,
            settings=self._settings,
        )
        async with agent, self._callers.calling(place, seed) as caller:
            answering = asyncio.create_task(agent.answer(caller.call))
            await caller.call.answered()
            talked = Talked(caller)
            yield caller, talked
            await caller.call.hangup()
            talked.turns = (await answering).turns
            talked.runs = caller.runs()

    async def converse(
        self, name: str, place: Place, sounds: Sequence[NDArray[np.float64]], seed: int
    ) -> Talked:
        """A phrase for each sound; half of them are said while the agent speaks."""
        chance = random.Random(seed)
        async with self.talking(name, place, seed) as (caller, talked):
            await asyncio.sleep(0.5)
            for number, sound in enumerate(sounds):
                talked.over.append(bool(number % 2))
                async with asyncio.timeout(MOST_S):
                    phrase = await caller.say(sound)
                    begun = await answer_to(caller, phrase)
                    if begun is None:
                        continue
                    if number + 1 < len(sounds) and (number + 1) % 2:
                        await asyncio.sleep(chance.uniform(1.0, 4.0))
                    else:
                        await caller.hears_no_more(begun)
                        await asyncio.sleep(chance.uniform(0.1, 0.5))
        return talked

    async def echoes(
        self, name: str, place: Place, sounds: Sequence[NDArray[np.float64]], seconds: float
    ) -> Talked:
        """The agent reads on while its echo comes back; then the caller cuts in."""
        async with self.talking(name, place, 1) as (caller, talked):
            await asyncio.sleep(0.5)
            async with asyncio.timeout(MOST_S + seconds):
                phrase = await caller.say(sounds[0])
                begun = await caller.hears(phrase.end + 0.1)
                await asyncio.sleep(seconds)
                cut_in = await caller.say(sounds[1])
                await caller.hears_no_more(max(begun, cut_in.end))
            talked.over += [False, True]
        return talked


async def answer_to(caller: Caller, phrase: Phrase) -> float | None:
    """Begin of the agent's answer; None: it did not answer."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await caller.hears(phrase.end + 0.1)
    except TimeoutError:
        return None


def p95(values: Sequence[float]) -> float:
    """95 % are not above it."""
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.95))] if values else float("nan")


def ms(values: Sequence[float]) -> list[Any]:
    """Count, p50, p95 and largest, in milliseconds."""
    if not values:
        return [0, "-", "-", "-"]
    return [
        len(values),
        *(1000 * each for each in (statistics.median(values), p95(values), max(values))),
    ]


async def at_once(talks: Sequence[Coroutine[Any, Any, Talked]], bench: Bench) -> list[Talked]:
    """`AT_ONCE` calls at a time; one that breaks is left out and told."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(talk: Coroutine[Any, Any, Talked]) -> Talked | None:
        async with places:
            try:
                return await talk
            except Exception as error:
                bench.failed("a call", error)
                return None

    return [each for each in await asyncio.gather(*map(one, talks)) if each is not None]


def judge_guesses(bench: Bench) -> None:
    """Random calls with guesses, without sound: what a dropped one leaves."""
    outcome = runs(range(QUICK_RUNS if bench.quick else RUNS))
    bench.table(
        "random calls in which replies are prepared",
        ["calls", "used", "dropped", "tools that ran", "of dropped guesses", "other faults"],
        [
            [
                *(outcome.runs, outcome.used, outcome.dropped, outcome.tools),
                *(outcome.tools_of_dropped, len(outcome.faults)),
            ]
        ],
    )


async def measure(bench: Bench) -> tuple[Seen, dict[float, Seen]]:
    """The scripted turns, and the echoes by their loss."""
    calls, turns = (3, 3) if bench.quick else (20, 5)
    chance = np.random.default_rng(1)
    sounds = await callers(calls * turns + 8, chance)
    BABBLE.sound = babble_of(sounds, 60.0, chance)
    middles = {reply: await middles_of(reply) for reply in (*REPLIES, LONG)}
    model, seen = Model(), Seen()
    echoed = {down: Seen() for down in ECHO_DB}
    # Each level with each noise, as four and five have no common factor.
    places = cycle(Place(LEVELS_DBFS[n % 4], *NOISES[n % 5]) for n in range(20))
    delays = ECHO_MS[1::3] if bench.quick else ECHO_MS
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "latency.jsonl"
        async with (
            ServerProcess.running("embedded", "server") as server,
            ChatEndpoint(choose=model) as endpoint,
            Phone(
                PhoneSettings(server_url=f"ws://127.0.0.1:{server.port}/v1/speech", latency_log=log)
            ) as phone,
            Callers(phone) as callers_,
        ):
            bureau = Bureau(callers_, endpoint, bench.args.vad, bench.args.preemptive)
            talks = [
                bureau.converse(
                    f"short call {call}", next(places), sounds[call * turns :][:turns], call
                )
                for call in range(calls)
            ]
            talked = await at_once(talks, bench)
            echoes = [
                (
                    down,
                    bureau.echoes(
                        f"long call {int(down)}{at}",
                        Place(-22.0, "white", 35.0, (down, delay)),
                        sounds[-8 + at % 4 * 2 :][:2],
                        4.0 if bench.quick else 20.0,
                    ),
                )
                for down in ECHO_DB
                for at, delay in enumerate(delays)
            ]
            answered = await at_once([each for _, each in echoes], bench)
        records = list(read_log(log))
    for each in talked:
        judge(each, seen, records, model.requests, middles)
    for each in answered:
        echo = each.caller.place.echo
        assert echo is not None
        judge(each, echoed[echo[0]], records, model.requests, middles)
    return seen, echoed


def report(bench: Bench, seen: Seen, echoed: dict[float, Seen]) -> None:
    """The tables and the closing line."""
    done = [each.stages for each in seen.said if each.stages is not None]
    totals = [sum(each.values()) for each in done]
    ours = [sum(each[STAGES[index]] for index in OURS) for each in done]
    timed = [
        (each.decided_to_frame, each) for each in seen.said if each.decided_to_frame is not None
    ]
    decided = [waited for waited, _ in timed]
    guessed = [waited for waited, each in timed if each.guess_used]
    long = [
        waited
        for waited, each in timed
        if each.phrase.end - each.phrase.onset >= AgentSettings().guess_speech_s
    ]
    bench.table(
        "caller's last voiced sample to the agent's first audible packet at his end (ms)",
        ["until", "n", "p50", "p95", "max", "whose"],
        [
            *(
                [stage, *ms([each[stage] for each in done]), "ours" if at in OURS else WHOSE[at]]
                for at, stage in enumerate(STAGES)
            ),
            ["in all", *ms(totals), "aim: 680 (p50)"],
            ["of it ours", *ms(ours), "aim: 30"],
            ["decided to first audible frame", *ms(decided), "aim: 40 (p50), 80 (p95)"],
            ["the same, phrases of 0.5 s and more", *ms(long), "to others no reply is prepared"],
            ["the same, replies that were prepared", *ms(guessed), ""],
        ],
    )
    over = [each for each in seen.said if each.over_agent]
    silences = [each.onset_to_silence for each in over if each.onset_to_silence is not None]
    bench.table(
        "the caller cuts in: his first voiced sample to the agent's last packet with sound (ms)",
        ["how he sounds", "n", "p50", "p95", "max", "missed"],
        [
            *(
                _cut_ins(name, [each for each in over if each.place.name == name])
                for name in sorted({each.place.name for each in over})
            ),
            _cut_ins("all", over),
            [
                "of it the detector's onset",
                *ms([each.detector for each in over if each.detector is not None]),
                "",
            ],
            [
                "the rest",
                *ms(
                    [
                        each.onset_to_silence - each.detector
                        for each in over
                        if each.onset_to_silence is not None and each.detector is not None
                    ]
                ),
                "aim: 60",
            ],
        ],
    )
    off = [each.words_off for each in over if each.words_off is not None]
    bench.table(
        "the text heard of what he stopped, against the packets that came",
        ["n", "right", "off by one", "max off"],
        [[len(off), off.count(0), off.count(1), max(off, default=0)]],
    )
    bench.table(
        "echo of the agent, no caller; then a caller over it",
        [
            "echo",
            "agent heard (s)",
            "false interruptions",
            "false turns",
            "caller missed",
            "silence p50",
            "p95",
        ],
        [
            [
                f"-{down:g} dB",
                each.spoken_s,
                each.false_interrupts,
                each.false_turns,
                sum(one.over_agent and one.onset_to_silence is None for one in each.said),
                *ms(
                    [one.onset_to_silence for one in each.said if one.onset_to_silence is not None]
                )[1:3],
            ]
            for down, each in echoed.items()
        ],
    )
    bench.table(
        "requests to the model",
        ["turns", "a turn", "aim", "replies prepared", "used"],
        [
            [
                len(seen.requests),
                statistics.mean(seen.requests or [0]),
                1.3,
                seen.guesses,
                seen.guesses_used,
            ]
        ],
    )
    missed = sum(each.stages is None for each in seen.said)
    bench.note(
        f"{len(seen.said)} turns; {missed} without an answer that could be timed;"
        f" {seen.splits} times a turn was taken to be over in mid-phrase;"
        f" {seen.false_interrupts} interruptions and {seen.false_turns} turns by noise alone in"
        f" {seen.spoken_s:.0f} s of the agent's speech"
    )
    detector = [each.detector for each in over if each.detector is not None]
    bench.figure(
        onset_to_silence_ms_p95=1000 * p95(silences),
        detector_ms_p50=1000 * statistics.median(detector) if detector else float("nan"),
        false_interrupts=sum(each.false_interrupts for each in echoed.values()),
        ours_ms_p95=1000 * p95(ours),
        words_off_max=max(off, default=0),
        voice_to_voice_ms_p50=1000 * statistics.median(totals or [float("nan")]),
        decided_to_frame_ms_p50=1000 * statistics.median(decided or [float("nan")]),
        decided_to_frame_ms_p95=1000 * p95(decided),
        decided_to_frame_guessed_ms_p50=1000 * statistics.median(guessed or [float("nan")]),
        decided_to_frame_guessed_ms_p95=1000 * p95(guessed),
        turns_guessed_share=len(guessed) / len(timed) if timed else float("nan"),
        requests_a_turn=statistics.mean(seen.requests or [float("nan")]),
    )


WHOSE = {
    0: "the pause, and its detector",
    1: "the recogniser (by script)",
    3: "the model (by script)",
    5: "the engine",
}


def _cut_ins(name: str, over: Sequence[Said]) -> list[Any]:
    silences = [each.onset_to_silence for each in over if each.onset_to_silence is not None]
    return [name, *ms(silences), sum(each.onset_to_silence is None for each in over)]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vad", choices=DETECTORS, default=ListenSettings().detector)
    parser.add_argument("--preemptive", choices=("auto", "off"), default="auto")
    bench = Bench("turns", str(__doc__), parser)
    measured = asyncio.run(measure(bench))
    judge_guesses(bench)
    report(bench, *measured)


if __name__ == "__main__":
    main()
