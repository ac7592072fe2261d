"""Verdicts on a call (pure): what was said and heard when, beside what is expected.

A limit of time is exceeded by more than `TOLERANCE_S`, the length of two frames: the times of the
wire are no finer than one, and speech begins and ends within one. What is nearer to its limit than
`CLOSE` of it says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from qwen3tts_rehearsal.lines import CallEnd
from qwen3tts_rehearsal.results import TurnSpan, Verdict
from qwen3tts_rehearsal.scenario import Expect, Webhook, Words
from qwen3tts_rehearsal.tracks import Segment
from qwen3tts_rehearsal.words import contains, digits_of, plain, repeated

TOLERANCE_S = 0.04
CLOSE = 0.1
STOP_PAUSE_S = 0.35
"""Silence of the agent after which it has stopped."""
LATEST_STOP_S = 0.9
"""A pause that begins later than this after a backchannel's end is not due to it."""
LONG_PAUSE_S = 0.8
"""A pause at a backchannel that is longer is not one between two sentences."""


@dataclass(frozen=True, slots=True)
class CallerTurn:
    """Something that the caller said or pressed; seconds since the answer."""

    kind: str
    """``turn``, ``barge_in``, ``backchannel`` or ``keys``."""
    start_s: float
    end_s: float
    text: str = ""
    answered: bool = False
    """True if the script waits for an answer."""


@dataclass(frozen=True, slots=True)
class Post:
    """What a tool of the agent has reported."""

    at_s: float
    path: str
    content: object
    """JSON value."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One call, as its verdicts need it; seconds since the answer."""

    duration_s: float
    turns: tuple[CallerTurn, ...]
    """In order."""
    speech: tuple[Segment, ...]
    """The agent's segments, in order."""
    spans: tuple[TurnSpan, ...] = ()
    """The agent's speech with its words, in longer stretches."""
    pauses: tuple[tuple[float, float], ...] = ()
    """Times in which the caller is silent on purpose."""
    gaps: tuple[float, ...] = ()
    keys: str = ""
    """Keys of the agent."""
    end: CallEnd | None = None
    """Its time is not used: ``duration_s``."""
    codec: str = ""
    posts: tuple[Post, ...] = ()
    problems: tuple[str, ...] = ()
    """Steps that did not go as the script has it."""
    steps_left: int = 0
    language: str = "en"
    words_known: bool = True
    """False: there was no recogniser."""

    @property
    def texts(self) -> list[str]:
        return [span.text for span in self.spans if span.text]


@dataclass(frozen=True, slots=True)
class Response:
    """Answer to a turn."""

    turn: CallerTurn
    wait_s: float | None
    """None = no answer before the next turn or the end."""


def judge(expect: Expect, seen: Observation) -> tuple[Verdict, ...]:
    """Return the verdicts: the script first, then each expectation that is set."""
    found = [_script(expect, seen)]
    for name, judged in JUDGES.items():
        limit = getattr(expect, name)
        if limit is not None:
            found.append(judged(limit, seen))
    found += [_words(number, each, seen) for number, each in enumerate(expect.heard)]
    if expect.keys is not None:
        found.append(_equal("keys", seen.keys, expect.keys))
    if expect.hang_up is not None:
        found += _ending(expect, seen)
    if expect.codec is not None:
        same = seen.codec.lower() == expect.codec.lower()
        found.append(Verdict("codec", same, seen.codec, expect.codec))
    found += [_posts(number, each, seen) for number, each in enumerate(expect.webhook)]
    return tuple(found)


def figures(seen: Observation) -> dict[str, float]:
    """Return what is measured whether it is judged or not."""
    waits = [each.wait_s for each in responses(seen) if each.wait_s is not None]
    found = {
        "agent_speech_s": sum(each.end_s - each.start_s for each in seen.speech),
        "caller_turns": float(len(seen.turns)),
        "agent_spans": float(len(seen.spans)),
        "gaps": float(len(seen.gaps)),
        "cut_offs": float(len(cut_offs(seen))),
        "dead_air_s": max((end - start for start, end in silences(seen)), default=0.0),
        "talk_over_s": max((length for _, length in overlaps(seen)), default=0.0),
    }
    if seen.speech:
        found["first_response_s"] = seen.speech[0].start_s
    if waits:
        found["response_max_s"] = max(waits)
        found["response_mean_s"] = sum(waits) / len(waits)
    if stops := [wait for _, wait in interruptions(seen) if wait is not None]:
        found["interruption_max_ms"] = 1000 * max(stops)
    return {name: round(value, 3) for name, value in found.items()}


# --- measures


def responses(seen: Observation) -> list[Response]:
    """Return the answer to each turn for which the script waits."""
    found = []
    for number, turn in enumerate(seen.turns):
        if not turn.answered or turn.kind == "backchannel":
            continue
        following = [each for each in seen.turns[number + 1 :] if each.kind != "backchannel"]
        until = following[0].start_s if following else seen.duration_s
        over = any(each.start_s < turn.end_s < each.end_s for each in seen.speech)
        if over and turn in cut_offs(seen):
            found.append(Response(turn, 0.0))
            continue
        # What was being said when the caller barged in is no answer.
        begun = [
            each.start_s
            for each in seen.speech
            if each.start_s >= turn.end_s - TOLERANCE_S and each.start_s < until
        ]
        wait_s = max(0.0, begun[0] - turn.end_s) if begun else None
        found.append(Response(turn, wait_s))
    return found


def cut_offs(seen: Observation) -> list[CallerTurn]:
    """Return the turns in which the agent began to speak before the caller had ended."""
    return [
        turn
        for turn in seen.turns
        if turn.kind == "turn"
        and any(
            turn.start_s + TOLERANCE_S < each.start_s < turn.end_s - TOLERANCE_S
            for each in seen.speech
        )
    ]


def silences(seen: Observation) -> list[tuple[float, float]]:
    """Return the silences for which the agent is to blame.

    A silence that the caller ends after the agent has spoken is the caller's own, and so is one in
    which it pauses on purpose.
    """
    talk = sorted(
        [(each.start_s, each.end_s, "agent") for each in seen.speech]
        + [(each.start_s, each.end_s, "caller") for each in seen.turns]
    )
    found = []
    last, last_side = 0.0, "caller"  # the answer asks the agent to speak
    for start, end, side in [*talk, (seen.duration_s, seen.duration_s, "end")]:
        own = last_side == "agent" and side in ("caller", "end")
        paused = any(begin < start and last < stop for begin, stop in seen.pauses)
        if start > last and not own and not paused:
            found.append((last, start))
        if end >= last:
            last, last_side = end, side
    return found


def overlaps(seen: Observation) -> list[tuple[float, float]]:
    """Return begin and length of the times in which both speak; backchannels are left out."""
    return [
        (
            max(turn.start_s, each.start_s),
            min(turn.end_s, each.end_s) - max(turn.start_s, each.start_s),
        )
        for turn in seen.turns
        if turn.kind in ("turn", "barge_in")
        for each in seen.speech
        if min(turn.end_s, each.end_s) > max(turn.start_s, each.start_s)
    ]


def interruptions(seen: Observation) -> list[tuple[CallerTurn, float | None]]:
    """Return each barge-in and the time until the agent was silent; None: it went on."""
    found: list[tuple[CallerTurn, float | None]] = []
    for number, turn in enumerate(seen.turns):
        if turn.kind != "barge_in":
            continue
        following = [each for each in seen.turns[number + 1 :] if each.kind != "backchannel"]
        until = following[0].start_s if following else seen.duration_s
        last = turn.start_s
        stopped = True
        for each in seen.speech:
            if each.end_s <= turn.start_s or each.start_s >= until:
                continue
            if each.start_s > turn.end_s and each.start_s - last > STOP_PAUSE_S:
                break  # the answer
            if each.start_s - last > STOP_PAUSE_S:
                break
            last = max(last, each.end_s)
            stopped = each.end_s < until
        found.append((turn, last - turn.start_s if stopped else None))
    return found


def stopped_backchannels(seen: Observation) -> list[CallerTurn]:
    """Return the backchannels at which the agent stopped what it was saying."""
    found = []
    for turn in seen.turns:
        if turn.kind != "backchannel":
            continue
        under = [each for each in seen.speech if each.start_s < turn.start_s < each.end_s]
        if not under:
            continue
        ends = under[-1].end_s
        later = [each.start_s for each in seen.speech if each.start_s >= ends]
        pause_s = later[0] - ends if later else seen.duration_s - ends
        stopped = pause_s > (STOP_PAUSE_S if under[-1].stopped else LONG_PAUSE_S)
        if stopped and ends <= turn.end_s + LATEST_STOP_S:
            found.append(turn)
    return found


# --- judging


def _script(expect: Expect, seen: Observation) -> Verdict:
    problems = list(seen.problems)
    ends_early = seen.end is not None and seen.end.by != "caller" and seen.steps_left > 0
    wanted = expect.hang_up is not None and expect.hang_up.by == "agent"
    if ends_early and not wanted and seen.end is not None:
        who = (
            "the agent hung up" if seen.end.by == "agent" else f"the line failed: {seen.end.cause}"
        )
        problems.append(f"{who} {seen.steps_left} steps before the end of the script")
    return Verdict("script", not problems, len(problems), 0, "; ".join(problems))


def _within(name: str, limit: float, measured: float | None, missing: str, where: str) -> Verdict:
    if measured is None:
        return Verdict(name, False, None, limit, missing)
    passed = measured <= limit + TOLERANCE_S
    close = abs(measured - limit) <= CLOSE * limit
    detail = where + (" (close to the limit)" if close and where else "")
    return Verdict(name, passed, round(measured, 3), limit, detail)


def _first_response(limit: float, seen: Observation) -> Verdict:
    measured = seen.speech[0].start_s if seen.speech else None
    return _within("first_response_s", limit, measured, "the agent never spoke", "after the answer")


def _response(limit: float, seen: Observation) -> Verdict:
    found = responses(seen)
    if not found:
        return Verdict("response_s", False, None, limit, "the script awaits no answer")
    missing = [each.turn for each in found if each.wait_s is None]
    if missing:
        return Verdict("response_s", False, None, limit, f"no answer to {_named(missing[0])}")
    longest = max(found, key=lambda each: each.wait_s or 0.0)
    return _within("response_s", limit, longest.wait_s, "", f"after {_named(longest.turn)}")


def _cut_offs(limit: float, seen: Observation) -> Verdict:
    found = cut_offs(seen)
    detail = f"in {_named(found[0])}" if found else ""
    return Verdict("cut_offs", len(found) <= limit, len(found), limit, detail)


def _dead_air(limit: float, seen: Observation) -> Verdict:
    found = max(silences(seen), key=lambda each: each[1] - each[0], default=(0.0, 0.0))
    where = f"from {found[0]:.1f} s on"
    return _within("dead_air_s", limit, found[1] - found[0], "", where)


def _talk_over(limit: float, seen: Observation) -> Verdict:
    begin, length = max(overlaps(seen), key=lambda each: each[1], default=(0.0, 0.0))
    return _within("talk_over_s", limit, length, "", f"from {begin:.1f} s on" if length else "")


def _interruption(limit: float, seen: Observation) -> Verdict:
    found = interruptions(seen)
    if not found:
        return Verdict("interruption_ms", False, None, limit, "no one barged in")
    lost = [turn for turn, wait in found if wait is None]
    if lost:
        detail = f"the agent went on after {_named(lost[0])}"
        return Verdict("interruption_ms", False, None, limit, detail)
    turn, wait = max(found, key=lambda each: each[1] or 0.0)
    judged = _within("interruption_ms", limit / 1000, wait, "", f"after {_named(turn)}")
    measured = round(1000 * (wait or 0.0))
    return Verdict("interruption_ms", judged.passed, measured, limit, judged.detail)


def _backchannels(limit: float, seen: Observation) -> Verdict:
    found = stopped_backchannels(seen)
    detail = f"at {_named(found[0])}" if found else ""
    return Verdict("backchannel_stops", len(found) <= limit, len(found), limit, detail)


def _repeats(limit: float, seen: Observation) -> Verdict:
    if not seen.words_known:
        return Verdict("repeats", False, None, limit, NO_WORDS)
    found = repeated(seen.texts)
    detail = f"“{found[0]}”" if found else ""
    return Verdict("repeats", len(found) <= limit, len(found), limit, detail)


def _gaps(limit: float, seen: Observation) -> Verdict:
    detail = f"the first at {seen.gaps[0]:.2f} s" if seen.gaps else ""
    return Verdict("gaps", len(seen.gaps) <= limit, len(seen.gaps), limit, detail)


JUDGES: dict[str, Callable[[float, Observation], Verdict]] = {
    "first_response_s": _first_response,
    "response_s": _response,
    "cut_offs": _cut_offs,
    "dead_air_s": _dead_air,
    "talk_over_s": _talk_over,
    "interruption_ms": _interruption,
    "backchannel_stops": _backchannels,
    "repeats": _repeats,
    "gaps": _gaps,
}
"""Judges of the expectations that are one figure, by their names."""
NO_WORDS = "there is no recogniser: name one with --stt"


def _words(number: int, wanted: Words, seen: Observation) -> Verdict:
    name = f"heard[{number}]"
    if not seen.words_known:
        return Verdict(name, False, None, _wanted(wanted), NO_WORDS)
    text = " ".join(seen.texts)
    if wanted.contains:
        passed = contains(text, wanted.contains, seen.language)
    elif wanted.digits:
        passed = wanted.digits in digits_of(text, seen.language)
    elif wanted.matches:
        passed = re.search(wanted.matches, plain(text)) is not None
    else:
        passed = re.search(wanted.excludes, plain(text)) is None
    return Verdict(name, passed, text, _wanted(wanted))


def _wanted(words: Words) -> str:
    kinds = ("contains", "matches", "excludes", "digits")
    return next(f"{kind} {value}" for kind in kinds if (value := getattr(words, kind)))


def _equal(name: str, measured: str, wanted: str) -> Verdict:
    return Verdict(name, measured == wanted, measured, wanted)


def _ending(expect: Expect, seen: Observation) -> Iterator[Verdict]:
    wanted, end = expect.hang_up, seen.end
    assert wanted is not None
    by = end.by if end is not None else "no one"
    cause = end.cause if end is not None else ""
    yield Verdict("hang_up.by", by == wanted.by, by, wanted.by, cause)
    if wanted.within_s is not None:
        last = max((turn.end_s for turn in seen.turns), default=0.0)
        waited = seen.duration_s - last
        yield _within(
            "hang_up.within_s", wanted.within_s, waited, "", "after the caller's last turn"
        )
    if wanted.after_s:
        passed = seen.duration_s >= wanted.after_s - TOLERANCE_S
        yield Verdict("hang_up.after_s", passed, round(seen.duration_s, 3), wanted.after_s)


def _posts(number: int, wanted: Webhook, seen: Observation) -> Verdict:
    name = f"webhook[{number}]"
    shown = f"{wanted.path} {wanted.where}" if wanted.where else wanted.path
    there = [each for each in seen.posts if each.path == wanted.path]
    found = [each for each in there if matches(each.content, wanted.where)]
    if wanted.count is not None:
        return Verdict(name, len(found) == wanted.count, len(found), wanted.count, shown)
    if not found:
        detail = f"{shown}: {len(there)} posts came to this path, none with these values"
        return Verdict(name, False, 0, 1, detail)
    if wanted.within_s is not None:
        before = [turn.end_s for turn in seen.turns if turn.end_s <= found[0].at_s]
        waited = found[0].at_s - (before[-1] if before else 0.0)
        return _within(name, wanted.within_s, waited, "", shown)
    return Verdict(name, True, len(found), 1, shown)


def matches(content: object, where: Mapping[str, object]) -> bool:
    """Return whether a JSON value has these values; names have dots for what lies deeper."""
    return all(_at(content, name.split(".")) == value for name, value in where.items())


def _at(content: object, path: Sequence[str]) -> object:
    for step in path:
        if isinstance(content, list) and step.isdecimal() and int(step) < len(content):
            content = content[int(step)]
        elif isinstance(content, dict) and step in content:
            content = content[step]
        else:
            return MISSING
    return content


MISSING = object()


def _named(turn: CallerTurn) -> str:
    what = {"keys": "the keys", "barge_in": "the barge-in", "backchannel": "the backchannel"}
    shown = turn.text if len(turn.text) <= 40 else turn.text[:39] + "…"
    return f"{what.get(turn.kind, 'the turn')} “{shown}” at {turn.start_s:.1f} s"
