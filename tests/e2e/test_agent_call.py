"""A whole agent on a call between two phones of ours: real SIP and RTP, real speech, real HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from qwen3tts_agent.settings import AgentSettings
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.records.record import CallRecord
from qwen3tts_wire.errors import SpeechError
from tests.agent.endpoint import Answer, Breaks, Uses, says, writes
from tests.e2e.agent_parties import talking
from tests.peers.baresip_runner import tone

pytestmark = pytest.mark.network

GREETING = "Bakery Miller, good morning."
QUESTION = "Do you have rye bread today?"
LONG = (
    "Yes, we have, and it is still warm. We also have spelt bread, bread with walnuts, white bread,"
    " pretzels, buns with poppy seed, buns with sesame, and cakes of many kinds, all of them made"
    " in this house this very morning."
)
QUIET = AgentSettings(quiet_s=0.0)


async def test_an_agent_greets_listens_and_answers(tmp_path: Path) -> None:
    log = tmp_path / "talks.jsonl"
    async with talking(
        says("We have rye bread."),
        understood=[QUESTION],
        greeting=GREETING,
        system="You sell bread.",
        settings=QUIET,
        log=log,
    ) as there:
        await there.turns(1)
        await there.caller.say(QUESTION)
        await there.turns(2)
        conversation = await there.ended()
        request = there.endpoint.requests[0]
        assert request.messages[0] == {"role": "system", "content": "You sell bread."}
        assert request.said[-2:] == [("assistant", GREETING), ("user", QUESTION)]
        assert conversation.heard.split() == f"{GREETING} We have rye bread.".split()
        asked = [each.times[stage] for each in conversation.turns[1:2] for stage in ORDER]
        assert asked == sorted(asked)
        assert there.ours.facts.turns == 1
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert [line["kind"] for line in lines] == ["greeting", "caller"]
    assert lines[1]["ms"]["first_audible"] > lines[1]["ms"]["turn_end"] > 0
    assert "rye" not in log.read_text("utf-8")
    assert log.stat().st_mode & 0o077 == 0


ORDER = ("caller_end", "turn_end", "transcript", "first_token", "first_clause", "first_audible")


async def test_the_model_is_told_just_what_was_heard_when_the_caller_cut_in() -> None:
    async with talking(
        writes(LONG, token_s=0.01),
        says("We close at six."),
        understood=[QUESTION, "When do you close?"],
        settings=QUIET,
    ) as there:
        await there.caller.say(QUESTION)
        await there.ear.sound(2.0)
        await there.caller.say("When do you close, please?")
        await there.turns(2)
        conversation = await there.ended()
        first, second = conversation.turns
        assert first.interrupted
        assert second.barge_in
        assert first.heard
        assert LONG.startswith(first.heard.strip())
        assert len(first.heard) < len(LONG)
        assert [*first.heard.split(), *first.unsaid.split()] == LONG.split()
        user, told, again = there.endpoint.requests[1].said
        assert user == ("user", QUESTION)
        assert told[0] == "assistant"
        assert told[1].startswith(first.heard.strip())
        assert first.unsaid.strip() not in told[1]
        assert again == ("user", "When do you close?")
        assert there.ours.facts.barge_ins == 1


async def test_what_was_not_heard_can_be_continued() -> None:
    async with talking(
        says(LONG), understood=[QUESTION], greeting=GREETING, settings=QUIET
    ) as there:
        await there.turns(1)
        assert there.conversation is not None
        await there.caller.say(QUESTION)
        await there.ear.sound(2.0)
        stopped = there.ours.interrupt()
        heard = [(await each.spoken()).heard for each in stopped]
        assert 0 < len(heard[0]) < len(LONG)
        assert await there.conversation.continue_()
        conversation = await there.ended()
        assert conversation.turns[-1].resumed == 1
        words = [*GREETING.split(), *LONG.split()]
        assert conversation.heard.split() == words


async def test_a_model_that_breaks_off_costs_an_apology_and_not_the_call() -> None:
    async with talking(
        Answer(["We have rye bread, and ", Breaks()], finish=None),
        says("Yes, until six."),
        understood=[QUESTION, "Are you open?"],
        settings=AgentSettings(quiet_s=0.0, apology="Sorry, say that again.", retries=0),
    ) as there:
        await there.caller.say(QUESTION)
        await there.turns(1)
        await there.caller.say("Are you open?")
        await there.turns(2)
        conversation = await there.ended()
        assert isinstance(conversation.turns[0].error, SpeechError)
        assert "Sorry, say that again." in conversation.turns[0].heard
        assert conversation.turns[1].heard.strip() == "Yes, until six."


async def test_the_model_can_end_the_call_and_is_heard_to_the_end() -> None:
    async with talking(
        Answer(["Good bye, and thank you.", Uses("hang_up")], finish="tool_calls"),
        understood=["That is all."],
        settings=AgentSettings(quiet_s=0.0, hang_up_tool=True),
    ) as there:
        await there.caller.say("That is all, thank you.")
        conversation = await there.conversing
        assert conversation.heard.strip() == "Good bye, and thank you."
        assert await there.caller.ended() == "the other side hung up"


async def test_a_caller_who_never_speaks_is_asked_and_then_hung_up_on() -> None:
    settings = AgentSettings(
        quiet_s=0.5, reprompts=1, reprompt="Hello?", hang_up_when_quiet=True, goodbye="Good bye."
    )
    async with talking(greeting=GREETING, settings=settings) as there:
        conversation = await there.conversing
        assert [each.kind for each in conversation.turns] == ["greeting", "quiet", "goodbye"]
        assert conversation.heard.split() == f"{GREETING} Hello? Good bye.".split()
        assert "nothing" in conversation.ended or "silen" in conversation.ended
        record = CallRecord.of(there.ours.facts).values
        assert record["turns"] == 0
        assert record["end"]["by"] == "local"


async def test_a_caller_who_never_stops_is_answered_bit_by_bit() -> None:
    async with talking(
        says("Aha."),
        understood=["one", "two"],
        listen=ListenSettings(max_turn_s=1.0, barge_in=False),
        settings=QUIET,
    ) as there:
        speaking = there.caller.speak(f"{LONG} {LONG}")
        request = await there.endpoint.asked(1)
        assert request.said[0] == ("user", "one")
        assert there.caller.speaking
        there.caller.interrupt()
        await speaking.spoken()
        conversation = await there.ended()
        assert conversation.turns[0].why == "too_long"


async def test_a_hum_is_nobody_and_does_not_stop_the_agent() -> None:
    async with talking(greeting=LONG, understood=["hum"], settings=QUIET) as there:
        humming = asyncio.create_task(there.caller.play(tone(100.0, 20.0) // 4, 8000))
        (greeted,) = await there.turns(1)
        conversation = await there.ended()
        await asyncio.gather(humming, return_exceptions=True)
        assert not greeted.interrupted
        assert greeted.heard.split() == LONG.split()
        assert there.endpoint.requests == []
        assert len(conversation.turns) == 1


async def test_keys_pressed_all_the_time_are_turns_of_keys_and_the_call_goes_on() -> None:
    async with talking(
        says("Thank you."),
        listen=ListenSettings(keys_pause_ms=200, max_keys=4),
        settings=QUIET,
    ) as there:
        await there.caller.send_dtmf("123456#99", duration_ms=60, gap_ms=40)
        request = await there.endpoint.asked(1)
        assert request.said[0] == ("user", "[keys: 1234]")
        last = await there.endpoint.asked(3)
        users = [text for role, text in last.said if role == "user"]
        assert "".join(users).count("[keys: 99]") == 1
        await there.ended()


async def test_a_caller_who_hangs_up_in_mid_sentence_ends_only_his_own_conversation() -> None:
    async with talking(says(LONG), greeting=LONG, settings=QUIET) as there:
        await there.ear.sound(0.5)
        conversation = await there.ended()
        assert conversation.ended == "the other side hung up"
        heard = conversation.heard
        seen = (there.ours.facts.media.stats, conversation.turns[0].times)
        assert 0 < len(heard) < len(LONG), seen
        assert np.abs(await there.ear.heard()).max() > 200
