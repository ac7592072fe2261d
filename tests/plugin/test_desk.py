"""The desk's calls over real SIP and media on loopback, with a host that writes down."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mr_qwen3tts.calls import calls as desk_module
from mr_qwen3tts.calls.calls import PluginCalls
from qwen3tts_codecs.g711 import decode_ulaw
from qwen3tts_codecs.table import payload_by_name
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_pacer.slot import Frame
from qwen3tts_phone.audio.frames import KeyPressed
from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.detection.endpointing import TURN_GAP_S
from qwen3tts_phone.errors import CallRefused, WrongState
from qwen3tts_phone.phone import Phone
from qwen3tts_server.run import running_server
from qwen3tts_speech.link import SpeechLink
from tests.e2e.parties import Ear
from tests.fakes import FakeClock, settle
from tests.plugin.desk_parties import (
    NO_SERVER,
    Session,
    Wishes,
    WritingHost,
    desk,
    person,
    reached,
    rung,
    until_ended,
)

pytestmark = pytest.mark.network


async def call_up(there: PluginCalls, whom: Phone, session: Session) -> PhoneCall:
    """The session's agent calls somebody, who answers; his side of the call."""
    calling = asyncio.create_task(there.call(whom.uri, session))
    theirs = await rung(whom)
    await theirs.answer()
    assert await calling is None
    return theirs


async def pressed(call: PhoneCall, count: int) -> str:
    keys = ""
    async with asyncio.timeout(10):
        async for event in call.events:
            if isinstance(event, KeyPressed):
                keys += event.digit
                if len(keys) == count:
                    break
    return keys


# --- calls of an agent


async def test_what_an_agent_says_in_its_call_is_heard_there() -> None:
    session = Session("s1")
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        desk(WritingHost(), url=server.url) as there,
        person() as bob,
    ):
        assert there.speaker_of("s1") is None
        theirs = await call_up(there, bob, session)
        ear = Ear(theirs)
        speaker = there.speaker_of("s1")
        assert speaker is not None
        spoken = await speaker.say("Good morning, Bob.").spoken()
        await ear.sound(0.5)
        assert spoken.heard.strip() == "Good morning, Bob."
        assert speaker.stall_s == 4.0
        assert await there.hangup(session) is None
        assert await until_ended(theirs) == "the other side hung up"
        assert there.speaker_of("s1") is None


async def test_hanging_up_is_told_to_nobody_and_the_session_is_over() -> None:
    host, session = WritingHost(), Session("s1")
    async with desk(host) as there, person() as bob:
        assert await there.hangup(session) == "There is no call to hang up."
        assert not there.over("s1")
        theirs = await call_up(there, bob, session)
        assert [each["remote"] for each in there.snapshot()["calls"]] == [bob.uri]
        assert not there.over("s1")
        assert await there.hangup(session) is None
        await until_ended(theirs)
        assert there.over("s1")
        assert await there.hangup(session) is None, "twice does not give the model another turn"
        assert there.snapshot()["calls"] == []
    assert host.messages.empty()
    assert host.problems == []


@pytest.mark.parametrize(
    ("status", "cause"), [(486, "busy"), (603, "declined"), (404, "there is no such number")]
)
async def test_a_call_that_is_refused_tells_the_model_why(status: int, cause: str) -> None:
    async with desk(WritingHost()) as there, person() as bob:
        calling = asyncio.create_task(there.call(bob.uri, Session("s1")))
        await (await rung(bob)).reject(status)
        assert await calling == f"The call was not answered: {cause}."
        assert there.speaker_of("s1") is None
        assert not there.over("s1")


async def test_nobody_is_rung_for_longer_than_the_settings_say() -> None:
    clock = FakeClock()
    wishes = Wishes(sip_answer_s=30)
    async with desk(WritingHost(), wishes, clock=clock) as there, person() as bob:
        calling = asyncio.create_task(there.call(bob.uri, Session("s1")))
        theirs = await rung(bob)
        theirs.ringing()
        await clock.advance(29)
        assert not calling.done()
        await clock.advance(1)
        assert await calling == "The call was not answered: no answer."
        await until_ended(theirs)


async def test_a_call_that_the_turn_no_longer_wants_stops_ringing() -> None:
    async with desk(WritingHost()) as there, person() as bob:
        calling = asyncio.create_task(there.call(bob.uri, Session("s1")))
        theirs = await rung(bob)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await until_ended(theirs)
        assert there.speaker_of("s1") is None
        again = await call_up(there, bob, Session("s1"))
        await there.hangup(Session("s1"))
        await until_ended(again)


async def test_one_session_has_one_call() -> None:
    session = Session("s1")
    async with desk(WritingHost()) as there, person() as bob:
        calling = asyncio.create_task(there.call(bob.uri, session))
        theirs = await rung(bob)
        twice = "There is a call already; hang up before you make another one."
        assert await there.call(bob.uri, session) == twice
        await theirs.answer()
        assert await calling is None
        assert await there.call(bob.uri, session) == twice
        assert await there.call(bob.uri, Session("")) == "A call needs a chat session."


@pytest.mark.parametrize("whom", ["911", "sip:112@127.0.0.1", "sip:eve@127.0.0.1", None])
async def test_who_must_not_be_called_is_not(whom: object) -> None:
    async with desk(WritingHost(), Wishes(sip_allow=("bob@*",), sip_server="127.0.0.1:1")) as there:
        refusal = await there.call(whom, Session("s1"))
    assert refusal is not None
    assert refusal.endswith(".")


async def test_a_number_is_not_called_over_and_over() -> None:
    async with desk(WritingHost()) as there, person() as bob:
        for _ in range(3):
            calling = asyncio.create_task(there.call(bob.uri, Session("s1")))
            await (await rung(bob)).reject(486)
            await calling
        refusal = await there.call(bob.uri, Session("s2"))
    assert refusal is not None
    assert "3 times in vain" in refusal


async def test_only_so_many_calls_are_made_at_once() -> None:
    async with desk(WritingHost(), Wishes(sip_max_calls=1)) as there, person() as bob:
        await call_up(there, bob, Session("s1"))
        busy = "The call was not answered: all our lines are busy."
        assert await there.call(bob.uri, Session("s2")) == busy
        call = await bob.dial(await there.ready())
        with pytest.raises(CallRefused, match="486"):
            await call.answered()


async def test_only_our_own_server_is_called_in_the_accounts_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dialled: list[tuple[str, bool]] = []

    async def dial(self: Phone, uri: str, *, with_account: bool) -> PhoneCall:
        dialled.append((uri, with_account))
        raise WrongState("not now")

    monkeypatch.setattr(Phone, "dial", dial)
    async with desk(WritingHost(), Wishes(sip_server="127.0.0.1:5070")) as there:
        for whom in ("030 123", "sip:bob@127.0.0.1:5070", "sip:eve@127.0.0.2"):
            await there.call(whom, Session("s1"))
    assert dialled == [
        ("sip:030123@127.0.0.1:5070", True),
        ("sip:bob@127.0.0.1:5070", True),
        ("sip:eve@127.0.0.2", False),
    ]


@pytest.mark.parametrize("whom", ["sips:bob@127.0.0.1", "sip:bob@no.such.host.invalid"])
async def test_what_cannot_be_dialled_is_told_in_a_sentence(whom: str) -> None:
    async with desk(WritingHost()) as there:
        refusal = await there.call(whom, Session("s1"))
    assert refusal is not None
    assert refusal.startswith("The call was not answered: ")


# --- keys


async def test_keys_reach_the_far_end() -> None:
    session = Session("s1")
    async with desk(WritingHost()) as there, person() as bob:
        theirs = await call_up(there, bob, session)
        listening = asyncio.create_task(pressed(theirs, 3))
        assert await there.send_dtmf("1 5#", session) is None
        assert await listening == "15#"
        refusal = await there.send_dtmf("12x", session)
        assert refusal == "'X' is no key of a phone; they are 0 to 9, * and #."


async def test_keys_need_a_call() -> None:
    async with desk(WritingHost()) as there:
        refusal = await there.send_dtmf("1", Session("s1"))
    assert refusal == "There is no call, so no keys can be pressed."


async def test_keys_of_a_call_that_ends_meanwhile_keep_nobody_waiting() -> None:
    session = Session("s1")
    async with desk(WritingHost()) as there, person() as bob:
        theirs = await call_up(there, bob, session)
        pressing = asyncio.create_task(there.send_dtmf("1" * 64, session))
        await pressed(theirs, 1)
        await theirs.hangup()
        async with asyncio.timeout(10):
            refusal = await pressing
    assert refusal is not None
    assert refusal.startswith("The keys were not pressed: ")


async def test_keys_of_the_caller_silence_the_agent_and_become_one_message() -> None:
    clock, host = FakeClock(), WritingHost(heard=12)
    async with desk(host, clock=clock) as there, person() as bob:
        theirs = await reached(bob, await there.ready())
        log_id, _ = await host.message()
        await settle()
        before = len(host.asked)
        await theirs.send_dtmf("42")
        assert host.asked[before:] == [("interrupt", log_id), ("cancel_and_wait", log_id)]
        assert host.truncated == [12]
        await clock.advance(2)
        assert await host.message() == (log_id, "SYSTEM: The caller pressed 42 on the telephone.")
        await clock.advance(TURN_GAP_S)
        await theirs.send_dtmf("7#")
        assert await host.message() == (log_id, "SYSTEM: The caller pressed 7# on the telephone.")


# --- calls that come in


async def test_a_caller_is_greeted_by_the_agent_and_his_hanging_up_is_told() -> None:
    host = WritingHost()
    greeting = "Good morning, how can I help you?"

    async def agent(log_id: str, message: str) -> None:
        if "INCOMING CALL" in message:
            speaker = there.speaker_of(log_id)
            assert speaker is not None
            await speaker.say(greeting).spoken()

    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        desk(host, url=server.url) as there,
        person(user="alice") as alice,
    ):
        host.turn = agent
        theirs = await reached(alice, await there.ready())
        ear = Ear(theirs)
        log_id, first = await host.message()
        assert first.startswith(f"SYSTEM: -- INCOMING CALL from {alice.uri} --\n")
        assert host.sessions[log_id] == host.sessions[log_id]
        assert host.sessions[log_id].username == "system"
        assert host.sessions[log_id].agent_name == "clerk"
        await ear.sound(0.5)
        await theirs.hangup()
        assert await host.message() == (log_id, "SYSTEM: -- CALL DISCONNECTED --")
        assert there.over(log_id)
    assert host.shown == [first, "SYSTEM: -- CALL DISCONNECTED --"]
    assert host.problems == []


async def test_without_an_agent_for_them_calls_are_refused() -> None:
    async with desk(WritingHost(), Wishes(sip_agent=None)) as there, person() as bob:
        call = await bob.dial(await there.ready())
        with pytest.raises(CallRefused, match="480"):
            await call.answered()


async def test_a_session_that_cannot_be_made_is_told_here_and_refused_there() -> None:
    host = WritingHost(broken={"init_chat_session"})
    async with desk(host) as there, person() as bob:
        call = await bob.dial(await there.ready())
        with pytest.raises(CallRefused, match="480"):
            await call.answered()
    assert host.problems == ["init_chat_session is broken"]


async def test_a_call_that_breaks_here_does_not_go_on_ringing_there() -> None:
    host = WritingHost(broken=set())
    wishes: list[Any] = [Wishes()]
    link = SpeechLink(NO_SERVER)
    there = PluginCalls(host, lambda context: link, lambda context: wishes[0])
    async with person() as bob:
        uri = await there.ready()
        wishes[0] = None
        call = await bob.dial(uri)
        with pytest.raises(CallRefused, match="480"):
            await call.answered()
        wishes[0] = Wishes(sip_max_calls=0)
        call = await bob.dial(uri)
        with pytest.raises(CallRefused, match="486"):
            await call.answered()
        await there.close()
    assert host.problems == ["'NoneType' object has no attribute 'sip_agent'"]


async def test_sessions_whose_call_is_over_are_not_remembered_without_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(desk_module, "REMEMBERED", 1)
    async with desk(WritingHost()) as there, person() as bob:
        for session in (Session("s1"), Session("s2")):
            theirs = await call_up(there, bob, session)
            await there.hangup(session)
            await until_ended(theirs)
        assert [there.over(each) for each in ("s1", "s2")] == [False, True]


async def test_a_call_that_ends_with_its_answer_is_a_call_that_was_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PhoneCall, "speaker", None)
    host = WritingHost()
    async with desk(host) as there, person() as bob:
        theirs = await call_up(there, bob, Session("s1"))
        assert there.speaker_of("s1") is None
        await theirs.hangup()
        assert await host.message() == ("s1", "SYSTEM: -- CALL DISCONNECTED --")


async def test_a_caller_who_gives_up_while_it_rings_leaves_nothing_behind() -> None:
    host, going_on = WritingHost(), asyncio.Event()
    begun = asyncio.Event()
    make = host.init_chat_session

    async def slowly(user: str, agent: str, log_id: str) -> Session:
        begun.set()
        await going_on.wait()
        return await make(user, agent, log_id)

    host.init_chat_session = slowly  # type: ignore[method-assign]
    async with desk(host) as there, person() as bob:
        call = await bob.dial(await there.ready())
        await begun.wait()
        await call.hangup()
        going_on.set()
        await settle()
        again = await reached(bob, await there.ready())
        await host.message()
        await again.hangup()
        await host.message()
        assert there.snapshot()["calls"] == []
    assert host.messages.empty()
    assert host.problems == []


async def test_calls_at_once_are_kept_apart() -> None:
    host, session = WritingHost(), Session("s1")
    async with desk(host) as there, person(user="bob") as bob, person(user="carol") as carol:
        with_bob = await call_up(there, bob, session)
        theirs = await reached(carol, await there.ready())
        log_id, first = await host.message()
        assert "carol@" in first
        assert there.speaker_of(log_id) is not there.speaker_of("s1")
        await theirs.hangup()
        assert await host.message() == (log_id, "SYSTEM: -- CALL DISCONNECTED --")
        assert there.over(log_id)
        assert not there.over("s1")
        assert there.speaker_of("s1") is not None
        await with_bob.hangup()
        assert await host.message() == ("s1", "SYSTEM: -- CALL DISCONNECTED --")


# --- what the caller says


@pytest.mark.parametrize("codec", ["PCMU", "PCMA"])
async def test_the_callers_sound_goes_to_the_hosts_pipe_in_frames_of_pcmu(codec: str) -> None:
    host = WritingHost(broken={"sip_audio_in"})
    tone = (8000 * np.sin(2 * np.pi * 440 * np.arange(8000) / 8000)).astype(np.int16)
    async with (
        desk(host, Wishes(sip_audio_in_pipeline=True)) as there,
        person(codecs=(codec,), ptime_ms=30) as bob,
    ):
        session = Session("s1")
        theirs = await call_up(there, bob, session)
        play(theirs, tone, codec)
        frames: list[dict[str, Any]] = []
        async with asyncio.timeout(10):
            while len(frames) < 40:
                frames.append(await host.frames.get())
        await there.hangup(session)
    assert {len(each["audio_bytes"]) for each in frames} == {160}
    assert {each["log_id"] for each in frames} == {"s1"}
    stamps = [each["timestamp"] for each in frames]
    assert stamps == sorted(stamps)
    heard = np.concatenate([decode_ulaw(each["audio_bytes"]) for each in frames])
    spectrum = np.abs(np.fft.rfft(heard.astype(float)))
    assert round(int(spectrum.argmax()) * 8000 / len(heard)) == pytest.approx(440, abs=10)
    assert host.problems == ["sip_audio_in is broken"], "told once, and the sound goes on"


def play(call: PhoneCall, samples: NDArray[np.int16], codec: str) -> None:
    """Send samples into a call, as a phone with a microphone does."""
    payload, size = payload_by_name(codec), 240
    leg = call._leg
    leg.begin(1)
    frames = [
        Frame(payload.encode(part), b"", b"", 1, at, at + size, False)
        for at in range(0, len(samples) - size + 1, size)
        for part in [samples[at : at + size]]
    ]
    leg.write(frames)
    leg.finish(1)


async def test_what_a_recogniser_understands_silences_the_agent_and_is_its_next_message() -> None:
    host = WritingHost(heard=7)
    speaking = asyncio.Event()

    async def agent(log_id: str, message: str) -> None:
        speaking.set()
        await asyncio.Event().wait()

    async with desk(host) as there, person() as bob:
        host.turn = agent
        await reached(bob, await there.ready())
        log_id, first = await host.message()
        await speaking.wait()
        before = len(host.asked)
        assert await there.caller_said("  I want to order. ", Session(log_id))
        assert host.asked[before:] == [("interrupt", log_id)], "silence, before anything waits"
        assert await host.message() == (log_id, "\n\nI want to order."), "the host would glue them"
        assert host.asked[before + 1 :] == [
            ("cancel_and_wait", log_id),
            ("send_message_to_agent", log_id),
        ]
        assert host.cancelled == [first], "the turn before has ended"
        assert host.truncated == [7], "and the chat knows how much of it was heard"
        for nothing in ("", "  ", None, 7):
            assert not await there.caller_said(nothing, Session(log_id))
        assert not await there.caller_said("Hello?", Session("another"))


async def test_a_host_that_fails_loses_no_message() -> None:
    host = WritingHost(broken={"interrupt", "cancel_and_wait", "send_message_to_agent"})
    async with desk(host) as there, person() as bob:
        await reached(bob, await there.ready())
        await host.service("send_message_to_agent")
        (log_id,) = host.sessions
        assert await there.caller_said("Hello?", Session(log_id))
        await host.service("send_message_to_agent", times=2)
        await settle()
    assert set(host.problems) == {f"{service} is broken" for service in host.broken}


async def test_an_agent_that_hangs_up_is_not_told_of_keys_any_more() -> None:
    host, session = WritingHost(), Session("s1")
    async with desk(host) as there, person() as bob:
        theirs = await call_up(there, bob, session)
        pressing = asyncio.create_task(theirs.send_dtmf("1#"))
        await there.hangup(session)
        with contextlib.suppress(Exception):
            await pressing
        await until_ended(theirs)
        await settle()
    assert host.messages.empty()


# --- the phone behind it


async def test_a_phone_that_cannot_come_up_says_why_and_is_tried_again() -> None:
    clock, host = FakeClock(), WritingHost()
    async with person() as bob, contextlib.AsyncExitStack() as stack:
        other = await stack.enter_async_context(person())
        wishes = Wishes(sip_listen=f"127.0.0.1:{other.port}")
        there = await stack.enter_async_context(desk(host, wishes, clock=clock))
        refusal = await there.call(bob.uri, Session("s1"))
        assert refusal is not None
        assert refusal.startswith("The call was not answered: our telephone is not ready (")
        assert str(other.port) in refusal
        assert there.snapshot()["trouble"]
        await clock.advance(3.0)
        assert len(host.problems) == 1, "told once, tried twice"


async def test_a_desk_that_nobody_has_set_up_opens_nothing_before_the_first_call() -> None:
    host = WritingHost()
    async with desk(host, Wishes(sip_listen=None, sip_agent=None)) as there, person() as bob:
        await settle()
        assert there.snapshot()["uri"] == ""
        theirs = await call_up(there, bob, Session("s1"))
        assert there.snapshot()["uri"]
        assert there.snapshot()["trouble"] == ""
        await there.hangup(Session("s1"))
        await until_ended(theirs)


async def test_closing_the_desk_hangs_up_and_cuts_the_agents_turns() -> None:
    host = WritingHost()
    speaking = asyncio.Event()

    async def agent(log_id: str, message: str) -> None:
        speaking.set()
        await asyncio.Event().wait()

    async with person() as bob:
        async with desk(host) as there:
            host.turn = agent
            theirs = await reached(bob, await there.ready())
            await speaking.wait()
        assert await until_ended(theirs) == "the other side hung up"
    assert len(host.cancelled) == 1
    assert host.messages.qsize() == 1, "no farewell to the agent: the host stops"


async def test_closing_the_desk_ends_calls_that_are_not_up_yet() -> None:
    host, begun = WritingHost(), asyncio.Event()

    async def never(user: str, agent: str, log_id: str) -> Session:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    host.init_chat_session = never  # type: ignore[method-assign]
    async with person() as bob, person() as carol:
        async with desk(host) as there:
            arriving = await bob.dial(await there.ready())
            await begun.wait()
            calling = asyncio.create_task(there.call(carol.uri, Session("s1")))
            ringing = await rung(carol)
        with pytest.raises(CallRefused, match="480"):
            await arriving.answered()
        await until_ended(ringing)
        assert (await calling or "").startswith("The call was not answered: ")


async def test_settings_are_asked_for_at_each_use() -> None:
    host = WritingHost()
    settings = [Wishes(sip_allow=("nobody@*",))]
    link = SpeechLink(NO_SERVER)
    there = PluginCalls(host, lambda context: link, lambda context: settings[0])
    async with person() as bob:
        assert "not among" in (await there.call(bob.uri, Session("s1")) or "")
        settings[0] = replace(settings[0], sip_allow=())
        await call_up(there, bob, Session("s1"))
        settings[0] = replace(settings[0], stall_ms=500)
        speaker = there.speaker_of("s1")
        assert speaker is not None
        assert speaker.stall_s == 0.5
        await there.close()
