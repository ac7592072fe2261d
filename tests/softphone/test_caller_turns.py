"""Typed turns of a caller on a page's call, before and while somebody listens."""

from __future__ import annotations

from typing import Any, cast

import pytest

from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.speech_detection import SpeechDetection
from qwen3tts_phone.errors import WrongState
from qwen3tts_phone.softphone.page_call import MAX_EARLY_TURNS, CallerTurns
from qwen3tts_wire.errors import LimitExceeded
from tests.phone.detection.fake_call import FakeCall


async def test_a_typed_turn_waits_for_who_listens_and_interrupts_like_a_voice() -> None:
    told: list[Any] = []
    turns = CallerTurns(told.append, ListenSettings())
    turns.say("one")
    call = FakeCall()
    listening = SpeechDetection(call, ListenSettings(detector="level"))
    turns.follow(listening)
    assert (await anext(listening)).text == "one"
    call.speaking = True
    turns.say("  two ")
    turns.say("   ")
    turn = await anext(listening)
    assert (turn.text, turn.why, turn.barge_in) == ("two", "typed", True)
    assert turn.interrupted == (call.utterance,)
    await listening.aclose()
    with pytest.raises(WrongState):
        turns.say("three")


async def test_no_more_than_a_few_wait() -> None:
    turns = CallerTurns(lambda message: None, ListenSettings())
    for _ in range(MAX_EARLY_TURNS):
        turns.say("again")
    with pytest.raises(LimitExceeded):
        turns.say("again")


async def test_where_the_caller_may_not_interrupt_the_turn_waits() -> None:
    call = FakeCall()
    call.speaking = True
    listening = SpeechDetection(cast(Any, call), ListenSettings(detector="level", barge_in=False))
    listening.typed("later")
    assert not (await anext(listening)).barge_in
    assert call.speaking
    await listening.aclose()
