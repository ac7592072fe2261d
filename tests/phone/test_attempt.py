from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest

from qwen3tts_phone.audio.answering import Answerer, MachineReady, who_answered
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.diagnosis.outcome import Outcome
from qwen3tts_phone.dialling.retries import attempt_call
from qwen3tts_phone.errors import (
    CalleeUnreachable,
    CallError,
    CallNotAllowed,
    CallRefused,
    WrongState,
)
from qwen3tts_phone.facts import CallFacts, EndFacts
from tests.phone.sounds import Pcm, quiet, speech, tone


class FakeCall:
    """Is answered, or is not."""

    def __init__(self, error: CallError | None = None, status: int | None = None) -> None:
        self.facts = CallFacts()
        self.error = error
        self.status = status
        self.hung_up = 0

    async def answered(self) -> None:
        if self.error is not None:
            raise self.error
        self.facts.answered_at = 1.0

    async def hangup(self) -> None:
        self.hung_up += 1
        if self.error is not None and self.status is not None:
            self.facts.end = EndFacts(by="remote", status=self.status, error=self.error)


async def nothing(_: FakeCall) -> None:
    """Nothing to say."""


async def outcome(call: FakeCall) -> Outcome:
    async def dial() -> FakeCall:
        return call

    return await attempt_call(dial, nothing)


async def test_a_call_that_is_answered_is_talked_on_and_hung_up() -> None:
    call, said = FakeCall(), []

    async def dial() -> FakeCall:
        return call

    async def talk(talked: FakeCall) -> None:
        said.append(talked)
        talked.facts.answered_by = "machine"

    assert await attempt_call(dial, talk) is Outcome.MACHINE
    assert said == [call]
    assert call.hung_up


async def test_a_refusal_is_an_outcome() -> None:
    call = FakeCall(CallRefused(486, "Busy Here"), 486)
    assert await outcome(call) is Outcome.BUSY
    assert call.hung_up
    assert await outcome(FakeCall(CalleeUnreachable("It rang.", why="no_answer"))) is (
        Outcome.NO_ANSWER
    )


async def test_a_call_that_cannot_even_be_dialled_is_an_outcome() -> None:
    async def forbidden() -> FakeCall:
        raise CallNotAllowed("It is an emergency number.", rule="emergency")

    assert await attempt_call(forbidden, nothing) is Outcome.NOT_ALLOWED


async def test_the_end_of_the_call_in_the_middle_of_talking_is_no_failure() -> None:
    async def dial() -> FakeCall:
        return FakeCall()

    async def cut(_: FakeCall) -> None:
        raise WrongState("The call is over: the other side hung up.")

    assert await attempt_call(dial, cut) is Outcome.ANSWERED


async def test_what_talking_raises_is_raised_after_hanging_up() -> None:
    call = FakeCall()

    async def dial() -> FakeCall:
        return call

    async def broken(_: FakeCall) -> None:
        raise RuntimeError("no words")

    with pytest.raises(RuntimeError, match="words"):
        await attempt_call(dial, broken)
    assert call.hung_up


async def frames(*parts: tuple[Pcm, int]) -> AsyncIterator[HeardFrame]:
    for sound, rate_hz in parts:
        step = rate_hz // 50
        for at in range(0, len(sound), step):
            yield HeardFrame(sound[at : at + step], at / rate_hz, False, rate_hz)


async def test_a_machine_is_told_and_then_that_it_records() -> None:
    sound = np.concatenate([quiet(0.5), speech(5.0), quiet(0.4), tone(1000.0, 0.3), quiet(1.0)])
    heard = [each async for each in who_answered(frames((sound, 8000)))]
    assert [type(each) for each in heard] == [Answerer, MachineReady]
    last = heard[-1]
    assert isinstance(last, MachineReady)
    assert last.beeped
    assert last.at_s == pytest.approx(6.45, abs=0.06)


async def test_a_person_is_told_once() -> None:
    sound = np.concatenate([quiet(0.5), speech(0.7), quiet(8.0)])
    heard = [each async for each in who_answered(frames((sound, 8000)))]
    assert [isinstance(each, Answerer) and each.kind for each in heard] == ["human"]


async def test_a_change_to_another_codec_forgets_nothing_that_was_known() -> None:
    wide = np.concatenate([quiet(1.0, 16_000), tone(1000.0, 0.3, 16_000), quiet(1.0, 16_000)])
    sound = np.concatenate([quiet(0.5), speech(5.0)])
    heard = [each async for each in who_answered(frames((sound, 8000), (wide, 16_000)))]
    assert [type(each) for each in heard] == [Answerer, MachineReady]
    assert heard[1].at_s == pytest.approx(5.5 + 1.3 + 0.25, abs=0.06)
