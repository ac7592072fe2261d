"""What breaks in mid-call: a clear error, the other calls undisturbed, nothing lost silently."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import time
from pathlib import Path

import pytest

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_pacer.memory import CallMemory
from qwen3tts_phone.errors import CalleeUnreachable, CallError, CallRefused, PortBusy, WrongState
from qwen3tts_phone.media.types import MediaSettings
from qwen3tts_phone.phone import Phone
from qwen3tts_server.run import running_server
from qwen3tts_speech.line import VoiceOptions
from qwen3tts_wire.errors import ConnectionLost, UnknownVoice
from tests.audio import aligned, compare, reference_8k
from tests.e2e.parties import Ear, connected, phone, server_process
from tests.peers.recording_engine import RecordingEngine

pytestmark = pytest.mark.network

LONG = "One two three four five six seven eight nine ten. " * 60
SHORT = "This call goes on as if nothing had happened, to its very last word."


async def test_a_server_that_vanishes_ends_its_sentence_with_an_error_and_no_other_call() -> None:
    engine = RecordingEngine()
    async with (
        running_server(engine, host="127.0.0.1", port=0) as steady,
        server_process() as doomed,
        phone(doomed.url) as victim,
        phone(steady.url) as other,
        phone(steady.url) as caller,
        connected(victim, caller) as (ours, theirs),
        connected(other, caller) as (others, their_other),
    ):
        ear, other_ear = Ear(theirs), Ear(their_other)
        utterance = ours.speak(LONG)
        await ear.sound()
        undisturbed = others.speak(SHORT)
        await doomed.kill()
        with pytest.raises(ConnectionLost) as lost:
            await utterance.spoken()
        assert lost.value.remedy
        outcome = utterance.outcome()
        assert outcome.heard, "what had arrived was played"
        assert outcome.heard + outcome.remaining == LONG
        assert (await undisturbed.spoken()).heard == SHORT
        with pytest.raises(ConnectionLost, match="No speech server answers"):
            await ours.say("Nobody hears this.")

        # A server that comes back is found by the next words, on the same call.
        async with server_process(doomed.port):
            spoken = await ours.say("Here I am again.")
        assert spoken.heard == "Here I am again."
        await ours.hangup()
        await others.hangup()
        heard = await other_ear.heard()
        await ear.heard()
    reference = reference_8k(engine.pcm())
    assert compare(reference, aligned(reference, heard)).missing == 0


async def test_a_stalled_agent_process_is_not_heard() -> None:
    engine = RecordingEngine()
    async with (
        running_server(engine, host="127.0.0.1", port=0) as server,
        phone(server.url) as agent,
        phone(server.url) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        ear = Ear(theirs)
        utterance = ours.speak(SHORT)
        await ear.sound(0.2)
        time.sleep(1.0)  # noqa: ASYNC251 - the whole Python process hangs: that is the test
        assert (await utterance.spoken()).heard == SHORT
        await ours.hangup()
        heard = await ear.heard()
    reference = reference_8k(engine.pcm())
    assert compare(reference, aligned(reference, heard)).missing == 0


async def test_a_media_process_that_dies_ends_its_calls_with_the_cause() -> None:
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url) as agent,
        phone(server.url) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        ear = Ear(theirs)
        utterance = ours.speak(LONG)
        await ear.sound()
        os.kill(agent._media.pid, signal.SIGKILL)
        with pytest.raises(CallError, match="media process"):
            await utterance.spoken()
        async with asyncio.timeout(10):
            assert "other side" in await theirs.ended()
            await ours.ended()
        with pytest.raises(WrongState):
            ours.speak("More.")
        # The phone itself goes on, with another media process.
        async with connected(caller, agent) as (_, again):
            assert (await again.say("Back again.")).heard == "Back again."


async def test_a_media_process_that_is_stuck_is_replaced_and_the_next_caller_is_answered() -> None:
    quick = MediaSettings(answer_timeout_s=0.5)
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url, media=quick) as agent,
        phone(server.url) as caller,
        connected(agent, caller) as (ours, _),
    ):
        stuck = agent.media_pid
        os.kill(stuck, signal.SIGSTOP)
        async with asyncio.timeout(10), connected(caller, agent) as (_, again):
            assert (await again.say("Here I am.")).heard == "Here I am."
            await ours.ended()
        assert agent.media_pid != stuck


async def test_a_call_for_which_no_descriptor_is_free_is_refused_and_the_next_one_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url) as agent,
        phone(server.url) as caller,
    ):
        coming = agent.incoming()
        waiting = asyncio.ensure_future(anext(coming))
        await asyncio.sleep(0)
        refused = await caller.dial(agent.uri)
        create = CallMemory.create
        monkeypatch.setattr(CallMemory, "create", _no_descriptors)
        with pytest.raises(CallRefused) as error:
            await refused.answered()
        assert error.value.status == 503
        monkeypatch.setattr(CallMemory, "create", create)
        ours = await caller.dial(agent.uri)
        theirs = await waiting
        await theirs.answer()
        await ours.hangup()


def _no_descriptors(**_: int) -> CallMemory:
    raise OSError(errno.EMFILE, "Too many open files")


async def test_an_unknown_voice_is_an_error_of_the_words_and_not_of_the_call() -> None:
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url) as agent,
        phone(server.url) as caller,
        connected(agent, caller) as (ours, _),
    ):
        with pytest.raises(UnknownVoice, match="nobody"):
            await ours.say("Hello.", VoiceOptions(voice="nobody"))
        assert not ours.speaking
        assert (await ours.say("Hello.")).heard == "Hello."


async def test_a_phone_whose_voice_the_server_does_not_have_does_not_start() -> None:
    async with running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server:
        with pytest.raises(UnknownVoice, match="nobody"):
            async with phone(server.url, voice="nobody") as nothing:
                assert isinstance(nothing, Phone)
        async with phone(server.url, voice="en-us+f4", language="en"):
            pass


async def test_the_far_end_hangs_up_in_the_middle_of_a_sentence() -> None:
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url) as agent,
        phone(server.url) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        ear = Ear(theirs)
        utterance = ours.speak(LONG)
        await ear.sound(1.0)
        await theirs.hangup()
        spoken = await utterance.spoken()
        assert spoken.interrupted
        assert spoken.heard
        assert spoken.heard + spoken.remaining == LONG
        assert await ours.ended() == "the other side hung up"
        assert not agent.calls


async def test_a_refused_call_and_an_unreachable_one_say_why() -> None:
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url) as agent,
        phone(server.url) as caller,
    ):
        call = await caller.dial(agent.uri)
        async with asyncio.timeout(10):
            incoming = await anext(agent.incoming())
        incoming.ringing()
        await incoming.reject(486)
        with pytest.raises(CallRefused) as refused:
            await call.answered()
        assert refused.value.status == 486
        assert refused.value.remedy
        await call.ended()
        nobody = await caller.dial("sip:bob@127.0.0.1:9")
        with pytest.raises(CalleeUnreachable) as unreachable:
            await nobody.answered()
        assert unreachable.value.remedy
        assert not caller.calls


async def test_a_call_that_is_not_up_says_so_whatever_is_asked_of_it() -> None:
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url) as agent,
        phone(server.url) as caller,
    ):
        theirs = await caller.dial(agent.uri)
        async with asyncio.timeout(10):
            ours = await anext(agent.incoming())
        for call in (ours, theirs):
            with pytest.raises(WrongState, match="not answered yet"):
                call.speak("Too early.")
            assert call.interrupt() == []
            with pytest.raises(CallError):
                await call.send_dtmf("1")
            with pytest.raises(CallError):
                await call.hold()
        await theirs.hangup()
        await ours.ended()
        for call in (ours, theirs):
            with pytest.raises(WrongState, match="The call is over"):
                call.speak("Too late.")
            with pytest.raises(WrongState):
                await call.answer()
            assert call.interrupt() == []
            for late in (call.send_dtmf("1"), call.hold(), call.resume()):
                with pytest.raises(CallError):
                    await late
            await call.hangup()


async def test_a_recording_that_cannot_be_written_is_no_reason_to_hang_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url, record_path=tmp_path / "missing" / "call.wav") as agent,
        phone(server.url) as caller,
        connected(agent, caller) as (ours, _),
    ):
        assert (await ours.say("Hello.")).heard == "Hello."
    assert "is not recorded" in caplog.text


async def test_what_breaks_while_a_call_is_set_up_hangs_up_on_the_far_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url) as agent,
        phone(server.url) as caller,
    ):
        theirs = await caller.dial(agent.uri)
        monkeypatch.setattr(theirs._media, "begin", lambda agreed: 1 / 0)
        async with asyncio.timeout(10):
            ours = await anext(agent.incoming())
            await ours.answer()
            assert "broke" in await theirs.ended()
            assert await ours.ended() == "the other side hung up"
    assert "ZeroDivisionError" in caplog.text


async def test_a_busy_port_is_named_before_anything_rings() -> None:
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url) as first,
    ):
        second = phone(server.url, port=first.port)
        with pytest.raises(PortBusy, match=str(first.port)):
            await second.__aenter__()


async def test_without_a_speech_server_no_phone_starts() -> None:
    with pytest.raises(ConnectionLost, match="No speech server answers"):
        async with phone("ws://127.0.0.1:9/v1/speech") as nothing:
            assert isinstance(nothing, Phone)


async def test_no_common_codec_is_refused_with_488_on_both_sides() -> None:
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url, codecs=("PCMA",)) as agent,
        phone(server.url, codecs=("PCMU",)) as caller,
    ):
        call = await caller.dial(agent.uri)
        async with asyncio.timeout(10):
            incoming = await anext(agent.incoming())
        with pytest.raises(CallError, match="codec"):
            await incoming.answer()
        with pytest.raises(CallRefused) as refused:
            await call.answered()
        assert refused.value.status == 488
