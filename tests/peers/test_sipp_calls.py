"""Whole calls with a real SIPp: speech and hold, and fifty callers at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.call.call import Call
from qwen3tts_phone.call.events import CallAnswered, CallEnded, CallHeld, CallResumed
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_server.run import running_server
from qwen3tts_speech.line import Spoken
from tests.peers.sipp_runner import sipp

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("need_sipp")]

CALLS = 50


async def test_fifty_callers_at_once_hear_each_their_own_sentence(tmp_path: Path) -> None:
    async def attend(call: Call, number: int) -> Spoken:
        await call.answer()
        spoken = await call.say(f"You are caller number {number}, and this is your own sentence.")
        await call.hangup()
        return spoken

    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        Phone(PhoneSettings(server_url=server.url)) as phone,
        sipp("uac_is_hung_up_on", tmp_path, call=phone.port, calls=CALLS, rate=25) as peer,
    ):
        attending: list[asyncio.Task[Spoken]] = []
        async for call in phone.incoming():
            attending.append(asyncio.create_task(attend(call, len(attending))))
            if len(attending) == CALLS:
                break
        outcomes = await asyncio.gather(*attending)
        await peer.succeeded()
        assert not phone.calls
    for number, spoken in enumerate(outcomes):
        assert spoken.heard == f"You are caller number {number}, and this is your own sentence."
        assert spoken.record.end_reason == "text_end"


async def test_while_we_are_held_speech_waits_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        Phone(PhoneSettings(server_url=server.url)) as phone,
        sipp("uac_holds", tmp_path, call=phone.port) as peer,
    ):
        async with asyncio.timeout(10):
            call = await anext(phone.incoming())
        await call.answer()
        utterance = call.speak("A long sentence, which goes on and on and on.")
        positions: list[int] = []
        kinds = []
        async for event in call.events:
            kinds.append(type(event))
            if isinstance(event, CallHeld | CallResumed):
                positions.append(utterance.position)
        await peer.succeeded()
        spoken = await utterance.spoken()
    assert kinds == [CallAnswered, CallHeld, CallResumed, CallEnded]
    held, resumed = positions
    assert held > 0, "it had begun"
    assert resumed - held <= 480, "not more than the frame that was out already"
    assert spoken.position > resumed, "and it went on"
    assert spoken.interrupted, "the caller hung up in mid-sentence"


async def test_a_caller_without_an_offer_gets_ours_and_hears_us(tmp_path: Path) -> None:
    """RFC 3261 section 13.2.1: the offer is in the 200, the answer in the ACK."""
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        Phone(PhoneSettings(server_url=server.url)) as phone,
        sipp("uac_answers_in_the_ack", tmp_path, call=phone.port) as peer,
    ):
        async with asyncio.timeout(10):
            call = await anext(phone.incoming())
        await call.answer()
        spoken = await call.say("Good morning.")
        await call.hangup()
        await peer.succeeded()
    assert spoken.heard == "Good morning."
