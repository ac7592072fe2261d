"""A program adds a turn detector of its own, by what the package exports."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from qwen3tts_phone import ListenSettings, SpeechDetection, Turn, TurnDetector, TurnSoFar
from qwen3tts_phone.detection import core
from tests.fakes import settle
from tests.phone.detection.fake_call import FakeCall, FakeRecogniser, LoudDetector


@pytest.fixture(autouse=True)
def _loud_is_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "make_detector", lambda name: LoudDetector())


class LengthDetector:
    """Takes a turn of more than ``most_s`` for complete; the answer comes when ``gate`` is open."""

    def __init__(self, most_s: float = 1.0) -> None:
        self.most_s = most_s
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked: list[TurnSoFar] = []
        self.cancelled = 0

    async def finished(self, turn: TurnSoFar) -> bool | float | None:
        self.asked.append(turn)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return bool(turn.ended_at - turn.began_at > self.most_s)


class SureDetector(LengthDetector):
    """Has an opinion of its own on when to be believed."""

    thresholds = (0.2, 0.8)

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    async def finished(self, turn: TurnSoFar) -> float | None:
        await super().finished(turn)
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: float | None = self.answer
        return answer


@asynccontextmanager
async def heard(
    call: FakeCall, detector: TurnDetector, recogniser: FakeRecogniser | None = None
) -> AsyncIterator[list[Turn]]:
    """The turns of a call as they come."""
    turns: list[Turn] = []
    listening = SpeechDetection(
        call,
        ListenSettings(min_speech_ms=50, adaptive_pause=False),
        recogniser,
        turn_detector=detector,
    )

    async def read() -> None:
        async for turn in listening:
            turns.append(turn)

    reading = asyncio.create_task(read())
    await settle()
    try:
        yield turns
    finally:
        await call.hang_up()
        await reading


async def test_it_is_asked_once_in_a_pause_and_early() -> None:
    call, detector, recogniser = FakeCall(), LengthDetector(60), FakeRecogniser()
    async with heard(call, detector, recogniser):
        await call.rest(1.0)
        await call.say(0.5)
        await call.rest(0.5)
        (asked,) = detector.asked
    assert asked.now - asked.ended_at == pytest.approx(0.15, abs=0.021)
    assert asked.rate_hz == 8000
    # 0.3 s before the first voiced sample, and the silence after the last.
    assert len(asked.samples) / 8000 == pytest.approx(0.3 + 0.5 + 0.15, abs=0.03)
    assert int(np.abs(asked.samples[-800:]).max()) == 0
    assert "samples" not in repr(asked)


async def test_its_answer_ends_the_turn_or_lets_the_pause_last() -> None:
    call, detector = FakeCall(), LengthDetector(1.0)
    async with heard(call, detector) as turns:
        await call.say(1.5)
        await call.rest(0.4)
        (turn,) = turns
        assert (turn.why, turn.rule) == ("detector", "detector")
        assert turn.decided_at - turn.ended_at < 0.25
        await call.say(0.5)
        await call.rest(1.5)
        assert len(turns) == 1, "it is not over: 2.5 s are waited for"
        await call.rest(1.5)
        assert [each.why for each in turns] == ["detector", "pause"]


@pytest.mark.parametrize(
    ("answer", "after_s"),
    [(0.9, 0.25), (0.81, 0.25), (0.5, 0.6), (0.2, 0.6), (0.1, 1.2), (None, 0.6)],
)
async def test_one_with_thresholds_counts_only_where_it_is_sure(
    answer: float | None, after_s: float
) -> None:
    call = FakeCall()
    async with heard(call, SureDetector(answer)) as turns:
        await call.say(0.5)
        await call.rest(2.0)
    (turn,) = turns
    assert turn.decided_at - turn.ended_at == pytest.approx(after_s, abs=0.041)


async def test_a_caller_who_goes_on_cancels_the_question() -> None:
    call, detector = FakeCall(), LengthDetector(0.0)
    detector.gate.clear()
    async with heard(call, detector) as turns:
        await call.say(0.5)
        await call.rest(0.3)
        await call.say(0.5)
        assert detector.cancelled == 1
        detector.gate.set()
        await call.rest(0.4)
        (turn,) = turns
        assert turn.ended_at - turn.began_at == pytest.approx(1.3, abs=0.03)
        assert len(detector.asked) == 2


async def test_an_answer_that_does_not_come_leaves_it_to_the_pause() -> None:
    call, detector = FakeCall(), LengthDetector(0.0)
    detector.gate.clear()
    async with heard(call, detector) as turns:
        await call.say(0.5)
        await call.rest(0.8)
        (turn,) = turns
        assert (turn.why, turn.rule) == ("pause", "")
        assert turn.decided_at - turn.ended_at == pytest.approx(0.6, abs=0.021)
        assert detector.cancelled == 1
        detector.gate.set()
        await call.rest(0.5)
        assert len(turns) == 1, "what comes late ends no turn a second time"


@pytest.mark.parametrize("answer", [RuntimeError("my words"), math.nan, 7.0, -1.0, "yes"])
async def test_one_that_fails_costs_no_turn_and_one_line_of_the_log(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    call = FakeCall()
    async with heard(call, SureDetector(answer)) as turns:
        for _ in range(3):
            await call.say(0.5)
            await call.rest(0.8)
        assert [each.why for each in turns] == ["pause"] * 3
    (record,) = caplog.records
    assert "the turn detector failed; the pause decides" in record.getMessage()
    assert "my words" not in record.getMessage()
