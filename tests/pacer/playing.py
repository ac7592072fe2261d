"""Helpers that speak of frames and slots."""

from __future__ import annotations

from collections.abc import Mapping

from qwen3tts_pacer.core import PacerCore
from qwen3tts_pacer.sender_core import SenderCore
from qwen3tts_pacer.slot import Frame, Kind, Slot
from qwen3tts_pacer.states import State

PTIME = 0.02
SAMPLES = 480
SILENCE = b"silence"


def frames(context: int, first: int, count: int, *, last: int = SAMPLES) -> list[Frame]:
    """Frames ``first`` and after of a context; ``last`` is how many samples the last one has."""
    made = []
    for index in range(first, first + count):
        start = index * SAMPLES
        samples = last if index == first + count - 1 else SAMPLES
        name = f"{context}/{index}"
        made.append(
            Frame(
                f"{name} speech".encode(),
                f"{name} tail".encode(),
                f"{name} head".encode(),
                context,
                start,
                start + samples,
            )
        )
    return made


class At:
    """A policy that starts and resumes at fixed times after the first frame."""

    def __init__(self, start: float = 0.0, resume: float = 0.0) -> None:
        self.start, self.resume = start, resume
        self.first: dict[int, float] = {}
        self.starved_contexts: list[int] = []

    def begin(self, context: int, key: str) -> None:
        self.key = key

    def arrived(self, context: int, first: int, count: int, now: float) -> None:
        self.first.setdefault(context, now)

    def start_at(self, context: int) -> float:
        return self.first[context] + self.start

    def starved(self, context: int) -> None:
        self.starved_contexts.append(context)

    def resume_at(self, context: int, queued_s: float, now: float) -> float:
        return now + self.resume

    def end(self, context: int) -> None:
        self.first.pop(context, None)


def core(
    *,
    continuous: bool = True,
    start: float = 0.0,
    resume: float = 0.0,
    capacity: int = 3000,
    lead_s: float = 0.0,
    rephase: bool = False,
) -> PacerCore:
    """A core whose grid begins at 0, not yet asked for anything."""
    made = PacerCore(
        PTIME,
        At(start, resume),
        silence=SILENCE,
        continuous=continuous,
        capacity=capacity,
        lead_s=lead_s,
        rephase=rephase,
    )
    made.start(0.0)
    return made


def sender_core() -> SenderCore:
    """The core of a sender with an unbroken stream, not yet asked for anything."""
    made = SenderCore(PTIME, At(), silence=SILENCE)
    made.start(0.0)
    return made


def play(pacer: PacerCore, until: float, since: float = 0.0) -> list[Slot]:
    """Ask exactly on time up to and with ``until``; the slots in order."""
    slots = []
    now = since
    while (deadline := pacer.next_deadline()) is not None:
        now = max(now, deadline)
        if now > until + 1e-9:
            break
        slot = pacer.due(now)
        if slot is not None:
            slots.append(slot)
    return slots


def payloads(slots: list[Slot]) -> list[str]:
    """What was sent, as text."""
    return [slot.payload.decode() for slot in slots]


def spoken(slots: list[Slot]) -> list[str]:
    """The speech that was sent, as text, faded or not."""
    return [
        f"{slot.frame.context}/{slot.frame.start // SAMPLES}"
        for slot in slots
        if slot.kind is Kind.SPEECH and slot.frame is not None
    ]


def dropped(contexts: Mapping[int, tuple[int, int]], pacer: PacerCore, now: float) -> None:
    """Interrupt, and compare {context: (frames dropped, position played)}."""
    got = pacer.interrupt(now)
    assert {each.context: (each.frames, each.played) for each in got.contexts} == contexts


def state(pacer: PacerCore) -> State:
    """The state at this call."""
    return pacer.state
