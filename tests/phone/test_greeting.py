"""Who takes a call of ours: when the words begin, and whom they are for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import numpy as np
import pytest

from qwen3tts_cli.output.exits import ExitCode, exit_code
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.call.dialogue import GreetedCall, OnMachine, await_greeting
from qwen3tts_phone.errors import MachineAnswered
from qwen3tts_phone.facts import CallFacts
from tests.phone.sounds import Pcm, quiet, speech, tone


class Greeting:
    """A call on which this is heard, in frames of 20 ms."""

    def __init__(self, *parts: Pcm) -> None:
        self.facts = CallFacts()
        self.heard_s = 0.0
        self._sound = np.concatenate(parts)

    async def audio(self, *, steady: bool = False) -> AsyncIterator[HeardFrame]:
        assert steady
        for at in range(0, len(self._sound), 160):
            self.heard_s = at / 8000
            yield HeardFrame(self._sound[at : at + 160], self.heard_s, concealed=False)


async def greeted(call: Greeting, wanted: OnMachine) -> None:
    await await_greeting(cast(GreetedCall, call), wanted)


@pytest.mark.parametrize("wanted", ["hang-up", "after-beep"])
async def test_with_a_person_the_words_begin_after_the_greeting(wanted: OnMachine) -> None:
    call = Greeting(quiet(0.3), speech(0.8), quiet(5.0))
    await greeted(call, wanted)
    assert 1.1 < call.heard_s < 3.0
    assert call.facts.answered_by == "human"


async def test_a_machine_is_hung_up_on_where_that_is_wanted() -> None:
    call = Greeting(quiet(0.3), speech(6.0), tone(1000.0, 0.4), quiet(3.0))
    with pytest.raises(MachineAnswered) as error:
        await greeted(call, "hang-up")
    assert call.heard_s < 5.0
    assert call.facts.answered_by == "machine"
    assert exit_code(error.value) is ExitCode.UNAVAILABLE
    assert "after-beep" in error.value.remedy


async def test_a_message_begins_after_the_beep() -> None:
    call = Greeting(quiet(0.3), speech(6.0), quiet(0.3), tone(1000.0, 0.4), quiet(3.0))
    await greeted(call, "after-beep")
    assert call.heard_s > 6.9
    assert call.facts.answered_by == "machine"


async def test_a_caller_who_says_nothing_is_spoken_to() -> None:
    call = Greeting(quiet(10.0))
    await greeted(call, "hang-up")
    assert call.heard_s < 5.0
    assert call.facts.answered_by == "silence"


async def test_a_call_that_ends_meanwhile_ends_the_wait() -> None:
    await greeted(Greeting(quiet(0.5)), "after-beep")
