"""A call as a program has it in the hand, over real loopback SIP calls."""

from __future__ import annotations

import asyncio
import stat
import wave
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_pacer.clock import LoopClock
from qwen3tts_phone import (
    Call,
    CallError,
    CallRefused,
    HeardFrame,
    NotPossible,
    Phone,
    PhoneCall,
    PhoneSettings,
    RecordSettings,
    SpeechError,
    WrongState,
)
from qwen3tts_phone.call.core import CallCore, CallVoice
from qwen3tts_phone.call.events import CallEnded
from qwen3tts_phone.facts import CallFacts, EndFacts
from qwen3tts_phone.records.store import CallStore
from qwen3tts_server.run import running_server
from qwen3tts_speech.link import SpeechLink, VoiceOptions
from qwen3tts_wire.errors import BadRequest

pytestmark = pytest.mark.network

TEXT = "Good morning, this is the call."
LONG = "One two three four five six seven eight nine ten. " * 8
NO_SERVER = "ws://127.0.0.1:1/v1/speech"
TONE: NDArray[np.int16] = (8000 * np.sin(2 * np.pi * 700 * np.arange(4000) / 8000)).astype(np.int16)
"""Half a second at 8 kHz."""


@pytest.fixture
async def server() -> AsyncIterator[str]:
    async with running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as running:
        yield running.url


def mute(**settings: Any) -> Phone:
    """A phone that needs no speech server."""
    return Phone(link=SpeechLink(NO_SERVER), **settings)


async def coming(phone: Phone) -> PhoneCall:
    async with asyncio.timeout(10):
        return await anext(aiter(phone))


@asynccontextmanager
async def between(ours: Phone, theirs: Phone) -> AsyncIterator[tuple[PhoneCall, PhoneCall]]:
    """A call of ours to theirs: both ends of it."""
    call = await ours.dial(theirs.uri)
    far = await coming(theirs)
    async with asyncio.timeout(20):
        await far.answer()
        await call.answered()
        async with call, far:
            yield call, far


async def loud(call: Call, seconds: float = 0.1) -> None:
    """Return when so much sound has come."""
    heard_s = 0.0
    async for frame in call.audio:
        if np.abs(frame.samples.astype(int)).max() > 1000:
            heard_s += frame.duration_s
        if heard_s >= seconds:
            return


def tracks_of(path: Path) -> tuple[NDArray[np.int16], NDArray[np.int16], int]:
    with wave.open(str(path), "rb") as file:
        both = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, 2)
        return both[:, 0], both[:, 1], file.getframerate()


def loud_s(track: NDArray[np.int16], rate_hz: int) -> float:
    frames = track[: len(track) // 160 * 160].reshape(-1, 160).astype(int)
    return float((np.abs(frames).max(axis=1) > 1000).sum() * 160 / rate_hz)


# --- the way in


async def test_a_call_is_made_and_taken_with_the_fewest_words(server: str) -> None:
    async def agent(phone: Phone) -> str:
        async for call in phone:
            await call.answer()
            return (await call.say(TEXT)).heard
        return ""

    async with Phone(server_url=server) as ours, mute(user="caller") as theirs:
        answering = asyncio.create_task(agent(ours))
        async with asyncio.timeout(20), await theirs.dial(ours.uri) as call:
            await call.answered()
            await loud(call)
            assert await answering == TEXT
        assert call.over
        assert await call.ended() == "we hung up"


def test_settings_are_given_by_their_names_and_wrong_ones_are_told() -> None:
    base = PhoneSettings(user="bob", port=5062)
    assert Phone(base, user="alice").settings == PhoneSettings(user="alice", port=5062)
    assert Phone(server_url=NO_SERVER).settings.server_url == NO_SERVER
    wrong: dict[str, Any] = {"server_ulr": NO_SERVER}
    with pytest.raises(TypeError, match="'server_ulr'"):
        Phone(**wrong)
    with pytest.raises(ValueError, match=r"^ptime_ms"):
        Phone(ptime_ms=17)


# --- saying


async def test_what_is_said_to_a_phone_that_still_rings_waits_for_the_answer(server: str) -> None:
    async with Phone(server_url=server) as ours, mute() as theirs:
        call = await ours.dial(theirs.uri)
        saying = asyncio.create_task(call.say(TEXT))
        far = await coming(theirs)
        far.ringing()
        assert not saying.done()
        async with asyncio.timeout(20):
            await far.answer()
            spoken = await saying
            assert (spoken.heard, spoken.remaining, spoken.interrupted) == (TEXT, "", False)
            await call.hangup()


async def test_what_was_to_be_said_to_somebody_who_declines_raises_why(server: str) -> None:
    async with Phone(server_url=server) as ours, mute() as theirs:
        call = await ours.dial(theirs.uri)
        saying = asyncio.create_task(call.say(TEXT))
        playing = asyncio.create_task(call.play(TONE, 8000))
        await (await coming(theirs)).reject(603)
        async with asyncio.timeout(20):
            for each in (saying, playing):
                with pytest.raises(CallRefused) as refused:
                    await each
                assert refused.value.status == 603
        with pytest.raises(WrongState, match="The call is over"):
            await call.say(TEXT)
        await call.ended()


async def test_speak_says_once_what_to_wait_for_while_our_call_rings() -> None:
    async with mute() as ours, mute() as theirs:
        call = await theirs.dial(ours.uri)
        with pytest.raises(WrongState, match=r"not answered yet") as ringing:
            call.speak(TEXT)
        remedy = ringing.value.remedy
        assert "call.answered() for one of ours" in remedy
        assert str(ringing.value).count(remedy) == 1
        assert remedy not in ringing.value.message
        await call.hangup()


async def test_a_call_that_came_in_must_be_answered_before_it_is_spoken_to() -> None:
    async with mute() as ours, mute() as theirs:
        call = await theirs.dial(ours.uri)
        came = await coming(ours)
        for attempt in (came.say(TEXT), came.play(TONE, 8000)):
            with pytest.raises(WrongState, match=r"not answered yet.*Await call.answer"):
                await attempt
        with pytest.raises(WrongState):
            came.speak(TEXT)
        assert came.speaker is None
        await came.reject()
        await call.ended()


async def test_an_interruption_gives_what_was_heard_and_what_remains(server: str) -> None:
    async with (
        Phone(server_url=server) as ours,
        mute() as theirs,
        between(ours, theirs) as (us, far),
    ):
        assert us.interrupt() == []
        saying = asyncio.create_task(us.say(LONG))
        await loud(far, 0.5)
        assert us.speaking
        (utterance,) = us.interrupt()
        spoken = await saying
        assert spoken.interrupted
        assert LONG.startswith(spoken.heard)
        assert 0 < len(spoken.heard) < len(LONG)
        assert spoken.heard + spoken.remaining == LONG
        assert (await utterance.spoken()).heard == spoken.heard


async def test_a_cancelled_say_stops_waiting_and_not_the_speech(server: str) -> None:
    async with (
        Phone(server_url=server) as ours,
        mute() as theirs,
        between(ours, theirs) as (us, far),
    ):
        saying = asyncio.create_task(us.say(LONG))
        await loud(far)
        saying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saying
        assert us.speaking
        await loud(far, 0.5)
        us.interrupt()


# --- hearing


async def test_sound_is_had_by_iterating_over_the_call_or_by_asking_for_a_steady_flow() -> None:
    async with mute() as ours, mute() as theirs, between(ours, theirs) as (us, far):
        frames: dict[str, list[HeardFrame]] = {"as it comes": [], "by a call": [], "steady": []}

        async def take(name: str, audio: AsyncIterator[HeardFrame]) -> None:
            async for frame in audio:
                frames[name].append(frame)

        readers = [
            asyncio.create_task(take("as it comes", aiter(us.audio))),
            asyncio.create_task(take("by a call", us.audio())),
            asyncio.create_task(take("steady", us.audio(steady=True))),
        ]
        await far.play(TONE, 8000)
        await far.hangup()
        await asyncio.gather(*readers)
        for name, heard in frames.items():
            assert any(np.abs(each.samples.astype(int)).max() > 5000 for each in heard), name


async def test_keys_are_collected_also_those_pressed_before_the_question() -> None:
    async with mute() as ours, mute() as theirs, between(ours, theirs) as (us, far):
        await far.send_dtmf("12#", duration_ms=60, gap_ms=40)
        assert await us.dtmf.collect(most=4) == "12"
        typing = asyncio.create_task(far.send_dtmf("9876", duration_ms=60, gap_ms=40))
        assert await us.dtmf.collect(most=4) == "9876"
        await typing
        await far.send_dtmf("*", duration_ms=60)
        assert (await anext(aiter(us.dtmf))).digit == "*"
        assert us.facts.keys_in == "12#9876*"


async def test_a_phone_that_is_drained_ends_the_loop_over_its_calls_and_keeps_those_it_has() -> (
    None
):
    async with mute() as ours, mute() as theirs, asyncio.timeout(20):
        taken: list[PhoneCall] = []

        async def serve() -> None:
            async for call in ours:
                await call.answer()
                taken.append(call)

        serving = asyncio.create_task(serve())
        far = await theirs.dial(ours.uri)
        await far.answered()
        await ours.drain()
        await serving
        assert not taken[0].over
        with pytest.raises(CallRefused, match="503"):
            await (await theirs.dial(ours.uri)).answered()
        await far.hangup()
        await ours.drained()


async def test_keys_are_pressed_while_the_call_is_up_and_only_those_of_a_telephone() -> None:
    async with mute() as ours, mute() as theirs:
        us = await ours.dial(theirs.uri)
        with pytest.raises(WrongState, match="once the call is up"):
            await us.send_dtmf("1")
        far = await anext(theirs.incoming())
        await far.answer()
        await us.answered()
        for wrong, says in (("1x", "'X' is no key"), ("", "No keys were given")):
            with pytest.raises(CallError, match=says) as refused:
                await us.send_dtmf(wrong)
            assert refused.value.remedy
        await us.hangup()
        with pytest.raises(WrongState, match="The call is over: we hung up"):
            await us.send_dtmf("1")
        assert us.facts.keys_out == ""


async def test_what_has_gone_out_is_had_as_samples(server: str) -> None:
    async with Phone(server_url=server) as ours, mute() as theirs, between(ours, theirs) as (us, _):
        began = us.clock.now()
        with us.sent_audio() as sent:
            assert sent.take() == []
            assert await us.play(TONE, 8000)
            frames = sent.take()
        samples = np.concatenate([frame.samples for frame in frames])
        assert np.abs(samples.astype(int)).max() == pytest.approx(8000, rel=0.05)
        assert len(samples) == pytest.approx(4000, abs=320)
        steps = np.diff([frame.at for frame in frames])
        assert steps == pytest.approx(0.02, abs=0.005)
        assert began <= frames[0].at <= us.clock.now()


# --- recording


async def test_a_part_of_a_call_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "part.wav"
    async with mute() as ours, mute() as theirs, between(ours, theirs) as (us, far):
        await far.play(TONE, 8000)
        async with us.record(path) as recording:
            assert (await recording) is recording
            assert Path(recording) == path
            await us.play(TONE, 8000)
            with pytest.raises(ValueError, match="recorded into that file already"):
                us.record(path)
        assert await recording.stop() == path
        caller, agent, rate = tracks_of(path)
        assert loud_s(caller, rate) < 0.3  # what came before it is not in it
        assert loud_s(agent, rate) == pytest.approx(0.5, abs=0.1)
        size = path.stat().st_size
        await us.play(TONE, 8000)
        assert path.stat().st_size == size
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert us.facts.recording == (path,)


async def test_a_recording_begun_while_it_rings_begins_with_the_answer_and_ends_with_the_call(
    tmp_path: Path,
) -> None:
    path = tmp_path / "whole.wav"
    async with mute() as ours, mute() as theirs:
        call = await ours.dial(theirs.uri)
        recording = call.record(str(path))
        assert recording.began_at is None
        far = await coming(theirs)
        async with asyncio.timeout(20):
            await far.answer()
            await recording
            await far.play(TONE, 8000)
            await call.hangup()
        assert call.detail_record is not None
        assert call.detail_record.values["recording"] == [str(path)]
        caller, _, rate = tracks_of(path)
        assert loud_s(caller, rate) == pytest.approx(0.5, abs=0.15)
        assert await recording.stop() == path  # harmless
        with pytest.raises(WrongState):
            call.record(tmp_path / "late.wav")


async def test_a_recording_of_a_call_that_nobody_takes_says_so(tmp_path: Path) -> None:
    async with mute() as ours, mute() as theirs:
        call = await ours.dial(theirs.uri)
        recording = call.record(tmp_path / "none.wav")
        await (await coming(theirs)).reject()
        await call.ended()
        with pytest.raises(SpeechError, match="the call ended before"):
            await recording
    assert list(tmp_path.iterdir()) == []


async def test_a_recording_that_is_stopped_before_it_begins_says_so(tmp_path: Path) -> None:
    async with mute() as ours, mute() as theirs:
        call = await ours.dial(theirs.uri)
        recording = call.record(tmp_path / "none.wav")
        for attempt in (recording.stop(), recording):
            with pytest.raises(SpeechError, match="stopped before it had begun"):
                await attempt
        far = await coming(theirs)
        await far.answer()
        await call.answered()
        await call.hangup()
    assert list(tmp_path.iterdir()) == []


async def test_the_notice_of_a_recording_begun_while_it_rings_comes_before_the_first_words(
    tmp_path: Path,
) -> None:
    async with mute(records=RecordSettings(consent="tone")) as ours, mute() as theirs:
        call = await theirs.dial(ours.uri)
        came = await coming(ours)
        recording = came.record(tmp_path / "call.wav")
        async with asyncio.timeout(20):
            await came.answer()
            assert await came.play(TONE, 8000)
            await came.hangup()
        assert recording.began_at is not None
        assert loud_s(tracks_of(tmp_path / "call.wav")[1], 8000) == pytest.approx(0.5, abs=0.1)
        await call.ended()


async def test_an_encoded_file_is_there_when_the_recording_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "part.opus"
    async with mute() as ours, mute() as theirs, between(ours, theirs) as (us, _):
        recording = await us.record(path)
        await us.play(TONE, 8000)
        assert await recording.stop() == path
        assert path.read_bytes().startswith(b"OggS")
    assert [each.name for each in tmp_path.iterdir()] == ["part.opus"]


async def test_two_recordings_beside_that_of_the_settings(tmp_path: Path) -> None:
    records = RecordSettings(audio=tmp_path / "all")
    async with (
        mute(records=records) as ours,
        mute() as theirs,
        between(ours, theirs) as (us, _),
    ):
        first, second = us.record(tmp_path / "1.wav"), us.record(tmp_path / "2.wav")
        await us.play(TONE, 8000)
        await us.hangup()
    (whole,) = (tmp_path / "all").iterdir()
    assert set(us.facts.recording) == {whole, first.path, second.path}
    for path in us.facts.recording:
        assert loud_s(tracks_of(path)[1], 8000) == pytest.approx(0.5, abs=0.1)


async def test_the_notice_that_the_settings_ask_for_comes_before_a_recording(
    tmp_path: Path,
) -> None:
    async with (
        mute(records=RecordSettings(consent="tone")) as ours,
        mute() as theirs,
        between(ours, theirs) as (us, _),
    ):
        told, silent = us.record(tmp_path / "told.wav"), us.record(tmp_path / "s.wav", notice=False)
        assert told.began_at is None
        assert silent.began_at is not None
        await told
        # The beep has been heard: it is in the recording that had no notice, and not in the other.
        await told.stop()
        await silent.stop()
    assert loud_s(tracks_of(tmp_path / "s.wav")[1], 8000) == pytest.approx(0.2, abs=0.08)
    assert loud_s(tracks_of(tmp_path / "told.wav")[1], 8000) < 0.05


async def test_the_record_says_when_a_notice_was_cut_and_nothing_was_recorded(
    tmp_path: Path,
) -> None:
    records = RecordSettings(consent="tone", audio=tmp_path / "all")
    async with (
        mute(records=records) as ours,
        mute() as theirs,
        between(ours, theirs) as (us, _),
    ):
        async with asyncio.timeout(5):
            while not us.speaking:  # noqa: ASYNC110 - a moment, until the notice is queued
                await asyncio.sleep(0)
        us.interrupt()
        await us.play(TONE, 8000)
        await us.hangup()
    assert us.detail_record is not None
    assert "not_recorded" in us.detail_record.values["findings"]


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("call.aiff", ValueError, "ends in .wav, .opus, .ogg, .mp3, .flac"),
        ("nowhere/call.wav", FileNotFoundError, "There is no folder"),
        ("folder.wav", IsADirectoryError, "is a folder"),
    ],
)
async def test_a_file_that_cannot_be_recorded_into_is_refused_at_once(
    tmp_path: Path, name: str, error: type[Exception], says: str
) -> None:
    (tmp_path / "folder.wav").mkdir()
    async with mute() as ours, mute() as theirs, between(ours, theirs) as (us, _):
        with pytest.raises(error, match=says):
            us.record(tmp_path / name)


# --- what a line cannot do


class PlainCall(Call):
    """A call over a line that has nothing but sound."""

    async def answer(self, headers: Mapping[str, str] | None = None) -> None:
        """It is answered already."""

    async def hangup(self, headers: Mapping[str, str] | None = None) -> None:
        await self._core.finish(EndFacts(by="local"), "we hung up")


async def test_a_line_that_cannot_do_something_says_which_line_and_what_to_do() -> None:
    clock = LoopClock()
    facts = CallFacts(call_id="1", line="twilio", direction="in", remote_uri="+15550100")
    body = CallCore(
        facts,
        clock,
        CallVoice(SpeechLink(NO_SERVER), VoiceOptions()),
        CallStore(RecordSettings(), None, clock),
    )
    call = PlainCall(body)
    for attempt in (
        call.hold(),
        call.resume(),
        call.transfer("+15550101"),
        call.send_dtmf("1"),
        call.reject(),
    ):
        with pytest.raises(NotPossible, match="not possible on a call over twilio") as refused:
            await attempt
        assert refused.value.line == "twilio"
        assert refused.value.remedy
    assert (call.line, call.identity, call.codec, call.encrypted) == (
        "twilio",
        "+15550100",
        "",
        False,
    )
    assert repr(call) == "PlainCall(twilio, in, '1')"
    await call.hangup()
    assert await call.ended() == "we hung up"
    assert call.detail_record is not None
    (event,) = [event async for event in call.events]
    assert isinstance(event, CallEnded)


# --- turns


async def length_s(samples: NDArray[np.int16], rate_hz: int) -> str:
    """A recogniser that knows only how long somebody spoke."""
    return f"{len(samples) / rate_hz:.0f} seconds"


async def test_what_the_far_end_says_comes_turn_by_turn_with_its_text(server: str) -> None:
    async with (
        mute() as ours,
        Phone(server_url=server) as theirs,
        between(ours, theirs) as (us, far),
    ):
        saying = asyncio.create_task(far.say(TEXT))
        async with asyncio.timeout(20):
            async for turn in us.hear(recogniser=length_s):
                assert turn.text.endswith("seconds")
                assert 1.0 < turn.ended_at - turn.began_at < 5.0
                assert turn.ended_at < turn.decided_at <= turn.transcribed_at <= us.clock.now()
                assert not turn.barge_in
                break
        await saying
        await us.hangup()
        assert us.detail_record is not None
        assert us.detail_record.values["turns"] == 1
        assert us.detail_record.values["barge_ins"] == 0


async def test_a_far_end_that_cuts_in_silences_the_call_and_the_words_heard_are_known(
    server: str,
) -> None:
    async with (
        Phone(server_url=server) as ours,
        Phone(server_url=server) as theirs,
        between(ours, theirs) as (us, far),
    ):
        saying = asyncio.create_task(us.say(LONG))
        turns = us.hear()
        async with turns, asyncio.timeout(20):
            await loud(far, 1.0)
            await far.say("Stop, please stop, I have another question for you.")
            turn = await anext(turns)
            spoken = await saying
        assert turn.barge_in
        assert turn.text == ""
        (stopped,) = turn.interrupted
        assert stopped.outcome().heard == spoken.heard
        assert spoken.interrupted
        assert 0 < len(spoken.heard) < len(LONG)
        assert us.facts.barge_ins == 1


async def test_a_call_is_listened_to_once_at_a_time() -> None:
    async with mute() as ours, mute() as theirs, between(ours, theirs) as (us, _):
        first = us.hear()
        waiting = asyncio.create_task(anext(first, None))
        await asyncio.sleep(0)
        second = us.hear()
        assert await waiting is None
        async with second:
            assert not us.over


async def test_a_recogniser_that_there_is_not_is_told_at_once() -> None:
    async with mute() as ours, mute() as theirs, between(ours, theirs) as (us, _):
        with pytest.raises(BadRequest, match="names no recogniser"):
            us.hear(recogniser="wisper")
        with pytest.raises(BadRequest, match="A int is not a recogniser"):
            us.hear(recogniser=7)  # type: ignore[arg-type]
