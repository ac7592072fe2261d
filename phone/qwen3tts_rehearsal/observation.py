"""What a call looked like, from what its caller has sent and heard."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from qwen3tts_codecs.wav import wav_header
from qwen3tts_phone.detection.vad import VoiceActivityDetector
from qwen3tts_rehearsal.caller import ScriptedCaller
from qwen3tts_rehearsal.lines import CallEnd
from qwen3tts_rehearsal.recognition import Transcribe
from qwen3tts_rehearsal.results import TurnSpan
from qwen3tts_rehearsal.scenario import Scenario
from qwen3tts_rehearsal.tracks import (
    AgentTrack,
    Samples,
    agent_track,
    caller_track,
    merged,
    segments,
)
from qwen3tts_rehearsal.verdicts import CallerTurn, Observation, Post
from qwen3tts_rehearsal.webhook import Received

SPAN_PAUSE_S = 0.7
"""Pause that ends a stretch of speech whose words are looked for together."""
OWN_GAPS_S = 0.2
"""Silence within something that the caller says from which the call is no fair trial."""
AROUND_S = 0.1
"""Sound around a stretch that goes to the recogniser."""
LONGEST_SPAN_S = 120.0


@dataclass(frozen=True, slots=True)
class Tracks:
    """Both sides of a call at one rate, from the answer on."""

    agent: AgentTrack
    caller: Samples
    rate_hz: int
    seconds: float


def observe(
    scenario: Scenario,
    caller: ScriptedCaller,
    end: CallEnd,
    call: tuple[float, str, int],
    detector: VoiceActivityDetector,
    posts: Sequence[Received] = (),
) -> tuple[Observation, Tracks]:
    """Return what is known without words, and the tracks.

    ``call``: time of the answer, codec, rate in Hz. ``detector``: a fresh one.
    """
    answered_at, codec, rate_hz = call
    broken = own_gaps(caller)
    seconds = max(0.0, end.at - answered_at)
    line = scenario.line
    agent = agent_track(
        caller.heard_frames,
        answered_at,
        seconds,
        rate_hz,
        jitter_s=line.jitter_ms / 1000 if line.impaired == "both" else 0.0,
        lossless=not line.loss or line.impaired != "both",
    )
    found = segments(agent.samples, rate_hz, detector)
    spans = [TurnSpan("agent", each.start_s, each.end_s) for each in merged(found, SPAN_PAUSE_S)]
    seen = Observation(
        duration_s=seconds,
        turns=tuple(caller_turns(caller, answered_at, seconds)),
        speech=tuple(found),
        spans=tuple(spans),
        pauses=tuple((a - answered_at, b - answered_at) for a, b in caller.pauses),
        gaps=tuple(at for at in agent.gaps if at < seconds),
        keys="".join(key.digit for key in caller.keys),
        end=end,
        codec=codec,
        posts=tuple(Post(each.at - answered_at, each.path, each.content) for each in posts),
        problems=(*caller.problems, *broken),
        steps_left=caller.left,
        language=scenario.language,
    )
    tracks = Tracks(
        agent,
        caller_track(caller.sent_frames.frames, answered_at, seconds, rate_hz),
        rate_hz,
        seconds,
    )
    return seen, tracks


def caller_turns(caller: ScriptedCaller, answered_at: float, seconds: float) -> list[CallerTurn]:
    """Return what the caller did, in order; what never left is not there."""
    turns = []
    for mark in caller.marks:
        start = caller.sent_frames.time_of(mark.first)
        last = caller.sent_frames.time_of(mark.last - 1)
        if start is None:
            continue
        end_s = last - answered_at if last is not None else seconds
        answered = mark.answered and last is not None
        turns.append(CallerTurn(mark.kind, start - answered_at, end_s, mark.text, answered))
    turns += [
        CallerTurn("keys", begin - answered_at, end - answered_at, keys, answered)
        for begin, end, keys, answered in caller.pressed_spans
    ]
    return sorted(turns, key=lambda each: each.start_s)


def own_gaps(caller: ScriptedCaller) -> list[str]:
    """Return what is wrong with the caller's own sound: a machine that is too busy breaks it."""
    found = []
    for mark in caller.marks:
        gaps_s = caller.sent_frames.gaps_s(mark.first, mark.last)
        if gaps_s > OWN_GAPS_S:
            found.append(
                f"this machine was too busy: “{mark.text[:40]}” has gaps of {gaps_s:.1f} s"
            )
    return found


async def with_words(
    seen: Observation, tracks: Tracks, transcribe: Transcribe | None
) -> Observation:
    """Return it with the words of the agent's spans. Raises SpeechError."""
    if transcribe is None:
        return replace(seen, words_known=False)
    spans = []
    for span in seen.spans:
        samples = cut(tracks, span.start_s, min(span.end_s, span.start_s + LONGEST_SPAN_S))
        spans.append(replace(span, text=await transcribe(samples, tracks.rate_hz)))
    return replace(seen, spans=tuple(spans))


def cut(tracks: Tracks, start_s: float, end_s: float) -> Samples:
    """Return the agent's sound from and to these times, with a little around."""
    first = max(0, round((start_s - AROUND_S) * tracks.rate_hz))
    return tracks.agent.samples[first : round((end_s + AROUND_S) * tracks.rate_hz)]


def spans_of(seen: Observation) -> tuple[TurnSpan, ...]:
    """Return the spans of both sides for a report, in order of their start."""
    own = [
        TurnSpan(
            "caller",
            round(turn.start_s, 3),
            round(turn.end_s, 3),
            turn.text,
            "" if turn.kind == "turn" else turn.kind,
        )
        for turn in seen.turns
    ]
    theirs = [
        replace(each, start_s=round(each.start_s, 3), end_s=round(each.end_s, 3))
        for each in seen.spans
    ]
    return tuple(sorted([*own, *theirs], key=lambda each: each.start_s))


def write_recording(tracks: Tracks, path: Path) -> None:
    """Write both sides in stereo, the caller left; mode 0600. Raises OSError."""
    count = round(tracks.seconds * tracks.rate_hz)
    both = np.zeros((count, 2), "<i2")
    for channel, samples in enumerate((tracks.caller, tracks.agent.samples)):
        piece = samples[:count]
        both[: len(piece), channel] = piece
    data = both.tobytes()
    with open(path, "wb", opener=_private) as file:
        os.fchmod(file.fileno(), 0o600)  # of a file that was there
        file.write(wav_header(len(data), tracks.rate_hz, 2) + data)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
