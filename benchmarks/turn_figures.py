"""Figures of the calls of `turns.py`: each phrase's silence, stages and words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from turn_calls import Caller, Phrase, Place, Run
from turn_model import NAME, reply_to

from qwen3tts_agent.turn_record import TurnRecord
from qwen3tts_speech.latency import Mark, UtteranceRecord
from tests.agent.endpoint import Request

Middles = dict[tuple[str, str], list[int]]
"""Middle of each word of each reply, samples at 24 kHz."""


@dataclass
class Said:
    """One phrase of the caller, and what became of it."""

    place: Place
    phrase: Phrase
    over_agent: bool
    """True while the agent was speaking."""
    onset_to_silence: float | None = None
    detector: float | None = None
    """From his first voiced sample to the decision."""
    stages: dict[str, float] | None = None
    """Seconds, of the turn that it made."""
    decided_to_frame: float | None = None
    """From the decision that the turn is over to the first audible frame."""
    guess_used: bool = False
    """True if its reply was prepared in the pause."""
    words_off: int | None = None
    """Word error of the reply that it stopped."""


@dataclass
class Talked:
    """One call; complete when it is over."""

    caller: Caller
    over: list[bool] = field(default_factory=list)
    """By phrase, whether it is meant to cut in."""
    turns: list[TurnRecord] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)


@dataclass
class Seen:
    """All that was measured."""

    said: list[Said] = field(default_factory=list)
    false_interrupts: int = 0
    false_turns: int = 0
    requests: list[int] = field(default_factory=list)
    """Requests to the model, turn by turn."""
    guesses: int = 0
    guesses_used: int = 0
    splits: int = 0
    """Turns more than there were phrases: a phrase's pause was taken for its end."""
    spoken_s: float = 0.0
    """Seconds of agents' speech."""


STAGES = (
    "the turn is decided",
    "its words are there",
    "the model is asked",
    "the model writes",
    "the clause is at the server",
    "the engine's first sound",
    "it lies in the ring, as frames",
    "the first audible frame leaves",
    "and is at the caller's",
)
OURS = (2, 4, 6, 7, 8)
"""Our own stages."""


def judge(
    talked: Talked,
    seen: Seen,
    records: Sequence[UtteranceRecord],
    requests: dict[str, Request],
    middles: Middles,
) -> None:
    """Put what one call showed into ``seen``."""
    caller = talked.caller
    records = [each for each in records if each.call_id == caller.call.id]
    turns = [each for each in talked.turns if each.kind == "caller"]
    every = tuple(turns)
    seen.requests += [each.requests for each in turns]
    seen.guesses += sum(each.guesses for each in turns)
    seen.guesses_used += sum(each.guess_used for each in turns)
    seen.spoken_s += sum(run.end - run.begin for run in talked.runs)
    cuts = {each.marks[Mark.INTERRUPTED] for each in records if Mark.INTERRUPTED in each.marks}
    last = talked.runs[-1].end if talked.runs else 0.0
    for phrase, over in zip(caller.phrases, talked.over, strict=True):
        said = Said(caller.place, phrase, over)
        seen.said.append(said)
        mine = {at for at in cuts if phrase.onset - 0.02 <= at <= phrase.end + 0.3}
        cuts -= mine
        run = next((each for each in talked.runs if each.begin < phrase.onset < each.end), None)
        said.over_agent = over and run is not None  # it may have finished just before
        if over and run is not None and mine:
            said.onset_to_silence = run.end - phrase.onset
            said.detector = min(mine) - phrase.onset
            said.words_off = words_off(run, every, records, middles)
        turn = next((each for each in turns if _belongs(each, phrase)), None)
        if turn is not None:
            said.stages = stages_of(turn, phrase, talked.runs, requests, records)
            if said.stages is not None:
                times = turn.times
                said.decided_to_frame = times["first_audible"] - times["turn_end"]
                said.guess_used = turn.guess_used
            turns.remove(turn)
    # A call that is hung up while the agent speaks interrupts it, too.
    seen.false_interrupts += sum(at < last for at in cuts)
    within = [each for each in turns if any(_belongs(each, one) for one in caller.phrases)]
    seen.splits += len(within)
    seen.false_turns += len(turns) - len(within)


def _belongs(turn: TurnRecord, phrase: Phrase) -> bool:
    end = turn.times.get("caller_end")
    return end is not None and phrase.onset < end < phrase.end + 0.5


def stages_of(
    turn: TurnRecord,
    phrase: Phrase,
    runs: Sequence[Run],
    requests: dict[str, Request],
    records: Sequence[UtteranceRecord],
) -> dict[str, float] | None:
    """Duration of each stage of a turn; None where its reply was not heard.

    What was prepared in the pause has taken none of the caller's time after it.
    """
    times = turn.times
    names = re.findall(NAME, turn.text)
    request = requests.get(names[-1]) if names else None
    wanted = {"turn_end", "transcript", "asked", "first_clause", "first_pcm", "first_audible"}
    if request is None or request.first_at is None or not wanted <= set(times):
        return None
    run = next((each for each in runs if abs(each.begin - times["first_audible"]) < 0.2), None)
    record = _spoken(records, times["first_audible"])
    if run is None or record is None or Mark.QUEUED not in record.marks:
        return None
    points = accumulate(
        (
            phrase.end,
            times["turn_end"],
            times["transcript"],
            request.at,
            request.first_at,
            times["first_clause"],
            times["first_pcm"],
            record.marks[Mark.QUEUED],
            times["first_audible"],
            run.begin,
        ),
        max,
    )
    steps = [after - before for before, after in pairwise(points)]
    return dict(zip(STAGES, steps, strict=True))


def _spoken(records: Sequence[UtteranceRecord], audible: float) -> UtteranceRecord | None:
    """The utterance whose first audible frame left then; the log has rounded times."""
    left = ((one.marks.get(Mark.FIRST_AUDIBLE_WIRE, 0.0), one) for one in records)
    return next((one for at, one in left if abs(at - audible) < 0.002), None)


def words_off(
    run: Run,
    turns: Sequence[TurnRecord],
    records: Sequence[UtteranceRecord],
    middles: Middles,
) -> int | None:
    """By how many words the text heard differs from what the packets held."""
    for turn in turns:
        audible = turn.times.get("first_audible")
        if audible is None or abs(audible - run.begin) > 0.2:
            continue
        record = _spoken(records, audible)
        names = re.findall(NAME, turn.text)
        if turn.resumed:
            return None  # a noise had stopped it: what was heard came in two runs
        if not names or (record is not None and record.starvations):
            return None  # the packets' count holds the silence of a dry spell
        samples = run.frames * 480 - 72  # the resampler's delay is 3 ms
        heard = sum(middle <= samples for middle in middles[reply_to(names[-1])])
        return abs(heard - len(turn.heard.split()))
    return None
