"""Overlaps in an agent's session: recorded; a backchannel leaves the reply as it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from qwen3tts_agent.chat.messages import ChatMessage
from qwen3tts_agent.settings import AgentSettings
from qwen3tts_phone.detection.events import (
    OnsetHeard,
    OverlapBegan,
    OverlapEnded,
    TurnEnded,
    Verdict,
)
from tests.agent.parts import Session, begin
from tests.fakes import settle

QUIET = AgentSettings(quiet_s=0)


class Model:
    """A model that writes what it is made with; it waits at each bar while it is held."""

    def __init__(self, reply: str) -> None:
        self.asked = 0
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self._reply = reply

    async def __call__(self, messages: Sequence[ChatMessage]) -> AsyncIterator[str]:
        self.asked += 1
        for delta in self._reply.split("|"):
            yield delta
            await self.goes_on.wait()


async def started(model: Model, **more: Any) -> Session:
    return await begin(model.__call__, None, settings=QUIET, **more)


async def backchannel(session: Session, verdict: Verdict = "backchannel") -> None:
    """The caller says "mhm" over the agent, as speech detection tells it."""
    listening, now = session.call.listening, session.call.time.now()
    listening.caller_speaking = True
    listening.tell(OnsetHeard(now, now - 0.06))
    listening.tell(OverlapBegan(now, now - 0.06))
    await session.call.time.advance(0.8)
    now = session.call.time.now()
    listening.tell(OverlapEnded(now, now - 0.86, verdict, "words"))
    listening.caller_speaking = False
    listening.tell(TurnEnded(now, now - 0.86, now - 0.5, "noise", False, 0.3, verdict))
    await settle(30)


async def test_a_backchannel_leaves_the_reply_going_and_is_no_turn() -> None:
    model = Model("one two |three four")
    session = await started(model)
    session.call.sink.at_once = False
    await session.call.says("Count.")
    await session.call.sink.play_words(1)
    await backchannel(session)
    session.call.sink.at_once = True
    await session.call.sink.play_all()
    record = await session.turns.of(1)
    assert (record.heard, record.interrupted, record.resumed) == ("one two three four", False, 0)
    assert [(each.verdict, each.rule) for each in record.overlaps] == [("backchannel", "words")]
    assert record.overlaps[0].ms == pytest.approx(860)
    assert session.said == [("user", "Count."), ("assistant", "one two three four")]
    assert model.asked == 1
    line = json.loads(record.to_json("call-1"))
    assert line["overlaps"] == [{"verdict": "backchannel", "rule": "words", "ms": 860.0}]
    assert len((await session.end()).turns) == 1


async def test_a_reply_that_waits_for_the_caller_begins_after_a_backchannel() -> None:
    session = await started(Model("Fine."), greeting="Hello there.")
    session.call.sink.at_once = False
    listening, now = session.call.listening, session.call.time.now()
    listening.tell(OnsetHeard(now, now - 0.06))
    await backchannel(session)
    await session.call.says("How are you?")
    assert session.said[-2:] == [("user", "How are you?"), ("assistant", "Fine.")]
    await session.end()


async def test_detection_learns_whether_the_model_still_writes() -> None:
    model = Model("One moment. |Here it is.")
    session = await started(model)
    more_follows = session.call.listening.overlaps.more_follows
    assert not more_follows()
    session.call.sink.at_once = False
    model.goes_on.clear()
    await session.call.says("Look.")
    assert more_follows()
    model.goes_on.set()
    await settle(60)
    assert not more_follows()  # all is written, though not spoken yet
    await session.end()


async def test_an_interruption_is_recorded_with_the_reply_that_it_ended() -> None:
    model = Model("one two |three four")
    session = await started(model)
    session.call.sink.at_once = False
    await session.call.says("Count.")
    await session.call.sink.play_words(2)
    call, now = session.call, session.call.time.now()
    call.listening.tell(OverlapBegan(now, now - 0.06))
    await call.time.advance(0.5)
    now = call.time.now()
    call.onset()
    call.listening.tell(OverlapEnded(now, now - 0.56, "interruption", "stop_word"))
    call.decided()
    call.words("Stop.")
    await settle(60)
    record = await session.turns.of(1)
    assert record.interrupted
    assert (record.heard, record.unsaid) == ("one two", "three four")
    assert [(each.verdict, each.rule) for each in record.overlaps] == [
        ("interruption", "stop_word")
    ]
    session.call.sink.at_once = True
    await session.end()


async def test_a_verdict_that_comes_after_the_reply_is_in_its_record() -> None:
    session = await started(Model("one two"))
    session.call.sink.at_once = False
    await session.call.says("Count.")
    await session.call.sink.play_words(1)
    listening, now = session.call.listening, session.call.time.now()
    listening.tell(OverlapBegan(now, now - 0.06))
    session.call.sink.at_once = True
    await session.call.sink.play_all()
    await settle(60)
    listening.tell(OverlapEnded(now + 0.1, now - 0.06, "interruption", "agent_ended"))
    record = await session.turns.of(1)
    assert [each.rule for each in record.overlaps] == ["agent_ended"]
    await session.end()
