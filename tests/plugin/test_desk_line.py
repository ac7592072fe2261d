"""One call of a session, driven event by event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from mr_qwen3tts.calls.line import CallLine
from mr_qwen3tts.calls.options import TurnAllowance
from qwen3tts_agent.budget import CallBudget, RequestLimits
from qwen3tts_phone.audio.frames import KeyPressed
from qwen3tts_phone.call.events import CallEnded, CallHeld, MediaSilent
from tests.fakes import FakeClock, settle
from tests.plugin.desk_parties import Session, WritingHost


class ScriptedCall:
    """A call whose events a test brings about."""

    direction = "in"
    remote_uri = "sip:alice@192.0.2.7;tag=1"

    def __init__(self) -> None:
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self.hung_up = 0
        self.said: list[str] = []
        self.next: asyncio.Future[ScriptedCall | None] = asyncio.get_running_loop().create_future()

    async def successor(self) -> ScriptedCall | None:
        return await asyncio.shield(self.next)

    def happens(self, *events: object) -> None:
        for event in events:
            self._events.put_nowait(event)

    def presses(self, *keys: str) -> None:
        self.happens(*(KeyPressed(0.0, key, 100) for key in keys))

    def ends(self) -> None:
        self.happens(CallEnded(0.0, "the other side hung up"), None)
        if not self.next.done():
            self.next.set_result(None)

    def hands_on(self) -> ScriptedCall:
        new = ScriptedCall()
        new.remote_uri = "sip:carol@192.0.2.8"
        self.next.set_result(new)
        return new

    @property
    def events(self) -> AsyncIterator[Any]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Any]:
        while (event := await self._events.get()) is not None:
            yield event

    async def hangup(self) -> None:
        self.hung_up += 1
        self.ends()

    async def say(self, sentence: str) -> None:
        self.said.append(sentence)


class Party:
    """A line with all that is around it."""

    def __init__(self, allowance: TurnAllowance | None = None) -> None:
        self.call = ScriptedCall()
        self.host = WritingHost()
        self.clock = FakeClock()
        self.over: list[CallLine] = []
        self.line = CallLine(
            *(cast(Any, self.call), "s1", Session("s1"), self.host, self.clock, self.over.append),
            allowance=allowance,
        )

    async def messages(self) -> list[str]:
        await settle()
        await settle()
        return [self.host.messages.get_nowait()[1] for _ in range(self.host.messages.qsize())]


async def test_a_number_is_told_when_its_last_key_is_long_enough_ago() -> None:
    party = Party()
    party.line.begin(audio_in=False)
    party.call.presses("1")
    await settle()
    await party.clock.advance(1.5)
    party.call.presses("2")
    await settle()
    await party.clock.advance(1.9)
    assert await party.messages() == []
    await party.clock.advance(0.1)
    assert await party.messages() == ["SYSTEM: The caller pressed 12 on the telephone."]
    party.call.presses("3")
    await settle()
    await party.clock.advance(2.0)
    assert await party.messages() == ["SYSTEM: The caller pressed 3 on the telephone."]
    await party.line.close()


async def test_messages_that_wait_go_as_one() -> None:
    party = Party()
    party.line.tell("One.")
    party.line.tell("Two.")
    party.line.begin(audio_in=False)
    assert await party.messages() == ["One.\n\nTwo."]
    await party.line.close()


async def test_keys_that_the_end_of_the_call_cuts_off_are_not_told() -> None:
    party = Party()
    party.line.begin(audio_in=False)
    party.call.presses("1")
    party.call.ends()
    assert await party.messages() == ["SYSTEM: -- CALL DISCONNECTED --"]
    await party.clock.advance(5.0)
    assert await party.messages() == []
    assert party.over == [party.line]
    await party.line.settled()


async def test_what_a_caller_does_after_the_agent_has_hung_up_is_told_to_nobody() -> None:
    party = Party()
    party.line.begin(audio_in=False)
    await party.line.hang_up()
    assert party.call.hung_up == 1
    party.call.presses("1")
    party.line.tell("Hello?")
    party.call.ends()
    await party.line.settled()
    assert await party.messages() == []
    assert ("interrupt", "s1") not in party.host.asked


async def test_a_line_that_has_gone_quiet_is_noted_and_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    party = Party()
    party.line.begin(audio_in=False)
    party.call.happens(CallHeld(0.0), MediaSilent(0.0, 20.0))
    with caplog.at_level(logging.WARNING, logger="mr_qwen3tts"):
        assert await party.messages() == []
    assert caplog.messages == ["s1: nothing was heard for 20 s"]
    assert party.over == []
    await party.line.close()


async def test_a_turn_that_ends_by_itself_is_followed_by_the_message_as_it_is() -> None:
    party = Party()
    party.line.begin(audio_in=False)
    party.line.tell("One.")
    assert await party.messages() == ["One."]
    party.line.tell("Two.")
    assert await party.messages() == ["Two."]
    await party.line.close()


async def test_a_turn_that_does_not_let_itself_be_ended_does_not_hold_up_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    party, stubborn = Party(), asyncio.Event()

    async def turn(log_id: str, message: str) -> None:
        while not stubborn.is_set():
            try:
                await stubborn.wait()
            except asyncio.CancelledError:
                continue

    monkeypatch.setattr("mr_qwen3tts.calls.line.CANCEL_S", 0.0)
    party.host.turn = turn
    party.line.begin(audio_in=False)
    party.line.tell("One.")
    assert await party.messages() == ["One."]
    party.host.turn = None
    party.line.tell("Two.")
    async with asyncio.timeout(10):
        assert (await party.host.message())[1] == "Two."
    stubborn.set()
    await settle()
    await party.line.close()


def allowed(**limits: int) -> TurnAllowance:
    return TurnAllowance(CallBudget(RequestLimits(**limits)), "One moment.", "That is all.")


async def test_a_machine_that_presses_keys_gets_few_turns_and_then_a_sentence() -> None:
    party = Party(allowed(requests_minute=5))
    party.line.begin(audio_in=False)
    told: list[str] = []
    for number in range(1500):
        party.call.presses(str(number % 10), "#")
        await party.clock.advance(0.005)
        told += await party.messages()
    assert len(told) == 5
    assert party.call.said == ["One moment."]
    await party.clock.advance(60.0)
    (rest,) = await party.messages()
    assert rest.startswith("SYSTEM: The caller pressed"), "what waited goes as one message"
    assert party.call.hung_up == 0
    await party.line.close()


async def test_a_call_whose_turns_are_used_up_ends_with_a_sentence() -> None:
    party = Party(allowed(requests=2))
    party.line.begin(audio_in=False)
    for number in range(3):
        await party.line.barge_in(f"Words {number}.")
        await settle()
    assert await party.messages() == ["Words 0.", "Words 1."]
    assert party.call.said == ["That is all."]
    assert party.call.hung_up == 1
    await party.line.settled()


async def test_the_end_of_a_call_is_told_although_its_turns_wait() -> None:
    party = Party(allowed(requests_minute=1))
    party.line.begin(audio_in=False)
    party.line.tell("One.")
    await settle()
    party.line.tell("Two.")
    await settle()
    party.call.ends()
    assert await party.messages() == ["One.", "Two.\n\nSYSTEM: -- CALL DISCONNECTED --"]
    await party.line.settled()


async def test_nothing_is_left_to_close_where_nothing_was_begun() -> None:
    party = Party()
    await party.line.close()
    assert party.line.caller == "sip:alice@192.0.2.7"


HANDED_ON = (
    "SYSTEM: -- CALL TRANSFERRED to sip:carol@192.0.2.8 --\n"
    "The other side has handed the call on. Another party is on the line now and hears what you"
    " speak."
)


async def test_a_call_that_is_handed_on_goes_on_in_the_same_session() -> None:
    party = Party()
    party.line.begin(audio_in=False)
    party.call.presses("1")
    await settle()
    new = party.call.hands_on()
    assert await party.messages() == [
        f"SYSTEM: The caller pressed 1 on the telephone.\n\n{HANDED_ON}"
    ]
    assert cast(Any, party.line.call) is new
    assert party.line.caller == "sip:carol@192.0.2.8"
    party.call.ends()
    await settle()
    assert party.over == []
    new.presses("2")
    await settle()
    await party.clock.advance(2.0)
    assert await party.messages() == ["SYSTEM: The caller pressed 2 on the telephone."]
    new.ends()
    assert await party.messages() == ["SYSTEM: -- CALL DISCONNECTED --"]
    assert party.over == [party.line]
    await party.line.settled()


async def test_a_call_whose_end_comes_before_the_next_one_is_up_is_not_over_yet() -> None:
    party = Party()
    party.line.begin(audio_in=False)
    party.call.happens(CallEnded(0.0, "the other side hung up"), None)
    assert await party.messages() == []
    new = party.call.hands_on()
    assert await party.messages() == [HANDED_ON]
    await party.line.hang_up()
    assert (party.call.hung_up, new.hung_up) == (0, 1)
    await party.line.settled()


async def test_a_call_that_comes_up_after_the_agent_has_hung_up_is_hung_up() -> None:
    party = Party()
    party.line.begin(audio_in=False)
    await settle()
    new = party.call.hands_on()
    await party.line.hang_up()
    await settle()
    assert new.hung_up == 1
    assert await party.messages() == []
    await party.line.settled()


async def test_the_budget_of_a_call_is_the_one_of_those_that_take_its_place() -> None:
    budget = CallBudget(RequestLimits(0, 2, 0, 0))
    party = Party(TurnAllowance(budget, "One moment.", "That is all."))
    party.line.begin(audio_in=False)
    new = party.call.hands_on()
    assert await party.messages() == [HANDED_ON]
    again = new.hands_on()
    assert await party.messages() == [HANDED_ON]
    again.presses("1")
    await settle()
    await party.clock.advance(2.0)
    assert await party.messages() == []
    assert (again.said, again.hung_up) == (["That is all."], 1)
    await party.line.settled()
