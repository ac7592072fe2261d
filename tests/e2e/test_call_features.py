"""What a call can do besides speaking, between phones of ours."""

from __future__ import annotations

import asyncio
import json
import stat
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_phone.audio.frames import KeyPressed
from qwen3tts_phone.call.call import CallEvent, CallTransferred, TransferAsked
from qwen3tts_phone.call.events import (
    CallEarlyMedia,
    CallEnded,
    CallForwarded,
    CallQueued,
    CallRinging,
    InfoHeard,
    MediaBegan,
    MediaSilent,
    TransferProgress,
)
from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.dialling.guard import GuardSettings
from qwen3tts_phone.errors import (
    BadSip,
    CallNotAllowed,
    CallRefused,
    TransferFailed,
    WrongState,
)
from qwen3tts_phone.phone import Account, Phone
from qwen3tts_phone.sdp.session import SdpSession
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.sip.core.settings import SipSettings
from qwen3tts_phone.sip.endpoint import SipEndpoint
from qwen3tts_phone.sip.transaction.state_machine import Timers
from qwen3tts_server.run import running_server
from tests.cli.sip_server import Registrar
from tests.e2e.parties import Ear, connected, phone
from tests.peers.baresip_runner import free_port
from tests.peers.recording_engine import RecordingEngine

pytestmark = pytest.mark.network

TEXT = "This is said to whoever is on the line."
NO_SERVER = "ws://127.0.0.1:1/v1/speech"


def silent(**settings: Any) -> Phone:
    """A phone that has nothing to say, and needs no server for it."""
    from qwen3tts_speech.link import SpeechLink

    made = phone(NO_SERVER, **settings)
    return Phone(made.settings, link=SpeechLink(NO_SERVER))


async def next_call(called: Phone) -> PhoneCall:
    async with asyncio.timeout(10):
        return await anext(called.incoming())


async def all_events(call: PhoneCall) -> list[CallEvent]:
    return [event async for event in call.events]


async def event_of(call: PhoneCall, kind: type[CallEvent]) -> Any:
    async with asyncio.timeout(20):
        return await anext(event async for event in call.events if isinstance(event, kind))


async def answer_next(called: Phone) -> PhoneCall:
    call = await next_call(called)
    await call.answer()
    return call


# --- transfers


async def test_a_call_is_handed_on_and_both_sides_are_told_how_it_goes() -> None:
    async with (
        silent() as agent,
        silent(transfers="accept") as caller,
        silent() as third,
        connected(agent, caller) as (ours, theirs),
    ):
        answering = asyncio.create_task(answer_next(third))
        await ours.transfer(third.uri)
        taken = await answering
        moved = await event_of(theirs, CallTransferred)
        await theirs.ended()
        assert taken.headers["Referred-By"].startswith("<sip:")
        assert moved.call.remote_uri == third.uri
        assert theirs.facts.transferred_to == ours.facts.transferred_to == third.uri
        assert (await ours.ended()) == "we hung up"
        told = [e.status for e in await all_events(ours) if isinstance(e, TransferProgress)]
        assert told[0] == 100
        assert told[-1] == 200
        await moved.call.hangup()
        await taken.ended()


async def test_two_calls_are_joined_and_the_second_one_is_replaced() -> None:
    async with (
        silent() as agent,
        silent(transfers="accept") as caller,
        silent() as third,
        connected(agent, caller) as (first, theirs),
    ):
        answering = asyncio.create_task(answer_next(third))
        second = await agent.dial(third.uri)
        await second.answered()
        asked_before = await answering
        taking = asyncio.create_task(next_call(third))
        joining = asyncio.create_task(first.transfer_to(second))
        taken = await taking
        assert taken.replaces is asked_before
        await taken.answer()
        await joining
        await asked_before.ended()
        await theirs.ended()
        assert not agent.calls
        await taken.hangup()


async def test_a_transfer_is_refused_unless_the_settings_allow_it() -> None:
    async with silent() as agent, silent() as caller, connected(agent, caller) as (ours, theirs):
        with pytest.raises(CallRefused) as refused:
            await ours.transfer("sip:elsewhere@127.0.0.1:1")
        assert refused.value.status == 603
        assert not theirs.facts.transferred_to
        await theirs.send_dtmf("1")  # the call goes on
        assert (await event_of(ours, KeyPressed)).digit == "1"


@pytest.mark.parametrize("target", ["sip:911@127.0.0.1", "sip:112@elsewhere.example"])
async def test_no_transfer_goes_to_an_emergency_number_from_either_side(target: str) -> None:
    rules = GuardSettings()
    async with (
        silent(guard=rules) as agent,
        silent(guard=rules, transfers="accept") as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        with pytest.raises(CallNotAllowed):
            await ours.transfer(target)
        transfer = ours.sip.refer(target)
        with pytest.raises(CallRefused) as refused:
            await transfer
        assert refused.value.status == 403
        assert len(caller.calls) == 1
        del theirs


async def test_a_program_may_decide_about_a_transfer_itself() -> None:
    async with (
        silent() as agent,
        silent(transfers="ask") as caller,
        silent() as third,
        connected(agent, caller) as (ours, theirs),
    ):
        handing = asyncio.create_task(ours.transfer(third.uri))
        asked = await event_of(theirs, TransferAsked)
        assert asked.target == third.uri
        assert asked.referred_by.startswith("sip:")
        asked.refuse()
        with pytest.raises(CallRefused):
            await handing
        with pytest.raises(WrongState):  # it is decided: nobody is called
            await asked.accept()
        handing = asyncio.create_task(ours.transfer(third.uri))
        asked = await event_of(theirs, TransferAsked)
        answering = asyncio.create_task(answer_next(third))
        new = await asked.accept()
        await handing
        await answering
        await new.hangup()


async def test_a_target_that_refuses_leaves_the_call_as_it_was() -> None:
    async with (
        silent() as agent,
        silent(transfers="accept") as caller,
        silent() as third,
        connected(agent, caller) as (ours, theirs),
    ):
        handing = asyncio.create_task(ours.transfer(third.uri))
        await (await next_call(third)).reject(486)
        with pytest.raises(TransferFailed) as failed:
            await handing
        assert failed.value.status == 486
        assert ours in agent.calls
        await theirs.send_dtmf("7")
        assert (await event_of(ours, KeyPressed)).digit == "7"


# --- keys


async def test_keys_go_by_info_where_it_is_asked_for() -> None:
    async with (
        silent(dtmf="info") as agent,
        silent() as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        await ours.send_dtmf("1#", duration_ms=100)
        keys = [await event_of(theirs, KeyPressed) for _ in range(2)]
        assert [(key.digit, key.by, key.duration_ms) for key in keys] == [
            ("1", "info", 100),
            ("#", "info", 100),
        ]
        await theirs.send_dtmf("5", method="rfc4733")
        assert (await event_of(ours, KeyPressed)).by == "rfc4733"
    assert (theirs.facts.keys_in, ours.facts.keys_out) == ("1#", "1#")
    assert not any(name in repr(ours.facts) for name in ("keys_in=", "keys_out=", "1#"))


async def test_other_infos_are_told_as_they_are() -> None:
    async with silent() as agent, silent() as caller, connected(agent, caller) as (ours, theirs):
        await ours.send_info("application/x-note", b"a word")
        told = await event_of(theirs, InfoHeard)
    assert (told.content_type, told.body) == ("application/x-note", "a word")


# --- taking and placing


async def test_what_happens_before_the_answer_is_told() -> None:
    async with silent() as agent, silent() as caller:
        theirs = await caller.dial(agent.uri)
        ours = await next_call(agent)
        for status, kind in ((180, CallRinging), (181, CallForwarded), (182, CallQueued)):
            ours.sip.ringing(status=status)
            await event_of(theirs, kind)
        await ours.answer()
        await theirs.answered()
        await theirs.hangup()
    assert theirs.facts.ringing_at is not None
    assert theirs.facts.provisional_status == 182
    assert isinstance((await all_events(theirs))[-1], CallEnded)


async def test_something_is_said_before_the_answer() -> None:
    engine = RecordingEngine()
    async with (
        running_server(engine, host="127.0.0.1", port=0) as server,
        phone(server.url) as agent,
        silent() as caller,
    ):
        theirs = await caller.dial(agent.uri)
        ours = await next_call(agent)
        ear = Ear(theirs)
        with pytest.raises(WrongState):
            ours.speak(TEXT)
        await ours.ringing(early_media=True)
        assert (await ours.say(TEXT)).heard == TEXT
        await ear.sound(0.5)
        assert theirs.facts.answered_at is None
        await ours.answer()
        await theirs.answered()
        assert (await ours.say(TEXT)).heard == TEXT
        await ours.hangup()
        kinds = [type(event) for event in await all_events(theirs)]
    assert CallEarlyMedia in kinds
    assert kinds.index(CallEarlyMedia) < kinds.index(MediaBegan)
    assert theirs.facts.early_media_at is not None


async def test_headers_go_with_the_invitation_the_answer_and_the_farewell() -> None:
    async with silent() as agent, silent() as caller:
        theirs = await caller.dial(agent.uri, {"X-Order": "17"})
        ours = await next_call(agent)
        assert ours.headers["x-order"] == "17"
        await ours.answer({"X-Desk": "3"})
        await theirs.answered()
        assert theirs.answer_headers["X-DESK"] == "3"
        with pytest.raises(BadSip):
            await caller.dial(agent.uri, {"X-Evil": "1\r\nContact: <sip:me@127.0.0.1>"})
        await ours.hangup({"Reason": 'Q.850;cause=16;text="done"'})
        assert await theirs.ended() == "the other side hung up (done)"
    assert not caller.calls


async def test_a_calls_account_is_known_on_both_sides() -> None:
    trunk = Account("sip:127.0.0.1", "desk", name="trunk", register=False)
    other = Account("sip:127.0.0.1:1", "spare", name="spare", register=False)
    async with silent(accounts=(other, trunk)) as agent, silent() as caller:
        outgoing = await agent.dial(caller.uri, account="trunk")
        incoming = await next_call(caller)
        assert incoming.remote_uri.startswith("sip:desk@")
        assert (outgoing.account, incoming.account) == ("trunk", "")
        await incoming.reject()
        await outgoing.ended()
        with pytest.raises(BadSip, match="no account named 'nobody'"):
            await agent.dial(caller.uri, account="nobody")
        assert set(agent.registrations) == {"trunk", "spare"}


async def test_the_guard_stands_before_every_call() -> None:
    rules = GuardSettings(denied=("bob@*",), max_concurrent=1)
    async with silent(guard=rules) as agent, silent() as caller:
        for target in ("sip:911@127.0.0.1", "sip:bob@127.0.0.1:1"):
            with pytest.raises(CallNotAllowed):
                await agent.dial(target)
        call = await agent.dial(caller.uri)
        with pytest.raises(CallNotAllowed, match="concurrent"):
            await agent.dial(caller.uri)
        await (await next_call(caller)).reject()
        await call.ended()
        again = await agent.dial(caller.uri)
        await again.hangup()


async def test_a_draining_phone_takes_no_more_calls_and_lets_the_others_end() -> None:
    async with silent() as agent, silent() as caller, connected(agent, caller) as (ours, theirs):
        await agent.drain()
        late = await caller.dial(agent.uri)
        with pytest.raises(CallRefused) as refused:
            await late.answered()
        assert refused.value.status == 503
        draining = asyncio.create_task(agent.drained())
        await theirs.send_dtmf("4")
        assert (await event_of(ours, KeyPressed)).digit == "4"
        await ours.hangup()
        await draining


# --- records


async def test_each_call_leaves_its_record_and_its_recording(tmp_path: Path) -> None:
    records = RecordSettings(
        log=tmp_path / "calls.jsonl", audio=tmp_path / "audio", consent="announcement"
    )
    async with (
        running_server(RecordingEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url, records=records) as agent,
        phone(server.url) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        # What is said follows the whole notice, its tone as well, and is recorded.
        assert (await ours.say(TEXT)).heard == TEXT
        await theirs.hangup()
        await ours.ended()
        assert ours.detail_record is not None
        (path,) = ours.facts.recording
    (line,) = (tmp_path / "calls.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert told["direction"] == "in"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with wave.open(str(path), "rb") as file:
        assert file.getnchannels() == 2
        both = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, 2)
    assert np.abs(both[:, 1].astype(int)).max() > 1000


async def test_a_call_that_is_refused_leaves_a_record_with_the_cause(tmp_path: Path) -> None:
    records = RecordSettings(log=tmp_path / "calls.jsonl")
    async with silent(records=records) as agent:
        call = await agent.dial(f"sip:nobody@127.0.0.1:{free_port()}")
        cause = await call.ended()
        assert call.detail_record is not None
        (ended,) = [e for e in await all_events(call) if isinstance(e, CallEnded)]
    assert "Nothing listens" in cause
    assert ended.code == "callee_unreachable"
    assert ended.remedy
    assert "Nothing listens" in (tmp_path / "calls.jsonl").read_text()


# --- sound


async def test_a_sound_is_played_among_what_is_said() -> None:
    tone = (8000 * np.sin(2 * np.pi * 700 * np.arange(8000) / 8000)).astype(np.int16)
    async with silent() as agent, silent() as caller, connected(agent, caller) as (ours, theirs):
        ear = Ear(theirs)
        assert await ours.play(tone, 8000)
        playing = asyncio.create_task(ours.play(np.tile(tone, 10), 8000))
        await ear.sound(1.5)
        assert ours.interrupt() == []
        assert not await playing
        await ours.hangup()
        heard = await ear.heard()
    spectrum = np.abs(np.fft.rfft(heard[:8000].astype(float)))
    assert abs(int(spectrum.argmax()) - 700) <= 1


async def test_steady_sound_comes_once_for_each_packet_time() -> None:
    tone = (8000 * np.sin(2 * np.pi * 700 * np.arange(16000) / 8000)).astype(np.int16)
    async with silent() as agent, silent() as caller, connected(agent, caller) as (ours, theirs):
        frames = []

        async def listen() -> None:
            async for frame in theirs.audio(steady=True):
                frames.append(frame)

        listening = asyncio.create_task(listen())
        await ours.play(tone, 8000)
        await ours.hangup()
        await listening
    steps = np.diff([frame.at for frame in frames])
    assert np.allclose(steps, 0.02, atol=1e-6)
    assert {len(frame.samples) for frame in frames} == {160}


QUICK = SipSettings(timers=Timers(t1=0.02))
"""No answer within 1.3 s is none."""


async def mute_caller(agent: Phone) -> tuple[SipEndpoint, PhoneCall]:
    """A call from somebody who sends no media, answered."""
    endpoint = SipEndpoint(QUICK)
    await endpoint.start()
    await endpoint.place(agent.uri, SdpSession("127.0.0.1", free_port()).offer())
    return endpoint, await answer_next(agent)


async def test_a_far_end_that_never_sends_is_told_of_and_stays_while_it_answers() -> None:
    async with silent(media_silent_s=0.2, vanished_s=0.3, sip=QUICK) as agent:
        endpoint, ours = await mute_caller(agent)
        told = await event_of(ours, MediaSilent)
        assert told.ever is False
        probe = asyncio.create_task(ours.sip.probe())
        assert await probe
        assert ours in agent.calls
        await ours.hangup()
        await endpoint.close()
    assert ours.facts.first_rtp_in_at is None


async def test_a_far_end_that_has_vanished_ends_the_call() -> None:
    async with silent(media_silent_s=0.2, vanished_s=0.3, sip=QUICK) as agent:
        endpoint, ours = await mute_caller(agent)
        endpoint.agent.receive = lambda *message: None  # type: ignore[method-assign]
        async with asyncio.timeout(30):
            cause = await ours.ended()
        assert "vanished" in cause
        ended = (await all_events(ours))[-1]
        assert isinstance(ended, CallEnded)
        assert ended.code == "callee_unreachable"
        await endpoint.close()


async def test_a_registration_that_a_draining_phone_gave_back_is_no_fault_of_its_last_call(
    tmp_path: Path,
) -> None:
    records = RecordSettings(log=tmp_path / "calls.jsonl")
    async with Registrar("pbx.test", {"200": "right"}) as server:
        account = Account(f"sip:127.0.0.1:{server.port}", "200", "right", name="office")
        async with (
            silent(records=records, accounts=(account,)) as agent,
            silent() as caller,
        ):
            theirs = await caller.dial(f"sip:200@127.0.0.1:{agent.sip.port}")
            ours = await next_call(agent)
            await ours.answer()
            await theirs.answered()
            await agent.drain()
            await ours.hangup()
            await ours.ended()
    (line,) = (tmp_path / "calls.jsonl").read_text().splitlines()
    assert "registering" not in json.loads(line)["findings"]
    assert "not registered" not in json.loads(line)["diagnosis"]
