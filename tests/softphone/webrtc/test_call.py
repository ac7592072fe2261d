from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_pacer.clock import LoopClock
from qwen3tts_phone import CallAnswered, CallEnded, CallError, WrongState
from qwen3tts_phone.softphone.webrtc.call import ArrivalHistory, WebCall
from qwen3tts_phone.softphone.webrtc.offer import CodecChoice
from qwen3tts_phone.softphone.webrtc.report import Report
from qwen3tts_server.run import running_server
from qwen3tts_speech.link import SpeechLink
from tests.e2e.far_ends import speech
from tests.softphone.far_browser import far_browser
from tests.softphone.sound import Likeness, likeness
from tests.softphone.webrtc.calls import new_body, web_call

pytestmark = pytest.mark.network

SERVERS: dict[EmbeddedEngine, str] = {}
"""Where each engine is served."""
WORDS = "Good morning, this is a test."
LONG = "This sentence goes through the line as it was spoken, and the line takes nothing of it."


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[EmbeddedEngine]:
    engine = EmbeddedEngine()
    async with asyncio.timeout(60), running_server(engine, host="127.0.0.1", port=0) as server:
        SERVERS[engine] = server.url
        yield engine
        del SERVERS[engine]


@pytest_asyncio.fixture
async def link(engine: EmbeddedEngine) -> AsyncIterator[SpeechLink]:
    link = SpeechLink(SERVERS[engine])
    yield link
    await link.close()


def hidden(offer: str, host: str) -> str:
    """As of a browser without a microphone: its addresses are names, or there are none."""
    lines = []
    for line in offer.splitlines():
        if line.startswith("a=candidate:"):
            parts = line.split(" ")
            parts[4] = host
            line = " ".join(parts)
        if host or not line.startswith("a=candidate:"):
            lines.append(line)
    assert "a=end-of-candidates" in lines
    return "\r\n".join([*lines, ""])


@pytest.mark.parametrize("host", ["6f1c0a52-1111-2222-3333-444455556666.local", ""])
async def test_a_browser_that_hides_its_addresses_is_found_by_its_packets(
    link: SpeechLink, host: str
) -> None:
    async with far_browser() as far:
        sdp = hidden(await far.offer(), host)
        call, answer = await WebCall.made(new_body(LoopClock(), link), sdp)
        far.call = call
        await far.connect(answer)
        async with call:
            await call.answer()
            assert (await call.say(WORDS)).heard == WORDS


@pytest.mark.parametrize("codec", ["opus", "PCMU"])
async def test_packets_hold_the_frames_of_the_pacer_as_they_are(
    link: SpeechLink, codec: CodecChoice
) -> None:
    sent: list[bytes] = []
    async with web_call(link, codec=codec) as (call, far):
        await call.answer()
        call.sink.tap(lambda payload, at: sent.append(payload))
        await call.say(WORDS)
        await far.until(call.sink.sent_packets)
        assert call.codec == codec
        payloads = [packet.payload for packet in far.packets]
        first = payloads.index(sent[0])
        assert payloads[first : first + len(sent)] == sent
        step = 960 if codec == "opus" else 160
        origin = far.packets[0]
        for packet in far.packets:
            ticks, rest = divmod(packet.timestamp - origin.timestamp, step)
            assert (packet.ssrc, rest) == (origin.ssrc, 0)
            # One packet a slot; a place that was missed is missing in both.
            assert ticks >= packet.sequence_number - origin.sequence_number
        await call.hangup()


async def test_what_is_said_is_heard_as_it_was_made(
    link: SpeechLink, engine: EmbeddedEngine
) -> None:
    made = await speech(engine, LONG)
    tries: list[Likeness] = []
    async with web_call(link, codec="PCMU") as (call, far):
        await call.answer()
        # On a machine that is busy a place may be missed; one sentence of three is whole.
        while len(tries) < 3 and not (tries and tries[-1].whole):
            before = len(far.frames)
            spoken = await call.say(LONG)
            assert (spoken.heard, spoken.remaining) == (LONG, "")
            await far.until(len(far.packets) + 10)  # aiortc keeps the last ones to itself
            tries.append(likeness(made, 8000, far.heard(before), 8000))
        await call.hangup()
        await far.over()
    assert tries[-1].whole, tries


async def test_the_browser_is_heard_and_cuts_in(link: SpeechLink, engine: EmbeddedEngine) -> None:
    stop = await speech(engine, "Stop, I have a question.")
    async with web_call(link) as (call, far):
        await call.answer()
        utterance = call.speak("One two three four five six seven eight nine ten. " * 8)
        async with call.hear() as turns:
            talking = asyncio.create_task(far.say(stop))
            turn = await anext(turns)
            await talking
        spoken = await utterance.spoken()
        assert turn.barge_in
        assert spoken.interrupted
        assert spoken.remaining
        await call.hangup()


async def test_a_call_ends_on_our_side_and_leaves_nothing_behind(link: SpeechLink) -> None:
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    async with web_call(link) as (call, far):
        await call.answer()
        # Nothing of the receiving side decodes in a thread of its own.
        ours = [each.name for each in set(threading.enumerate()) - threads]
        assert ours.count("audio-decoder") <= 1
        await call.say("Goodbye.")
        await call.hangup()
        await far.over()
        assert await call.ended() == "we hung up"
    left = {task for task in asyncio.all_tasks() - tasks if not task.done()}
    names = {task.get_name() for task in left}
    # The connection to the speech server stays for the next call.
    assert not [name for name in names if "call" in name or "pacer" in name], names
    assert not [each for each in set(threading.enumerate()) - threads if "decoder" in each.name]
    assert not [each for each in left if "aiortc" in repr(each) or "aioice" in repr(each)]
    events = [event async for event in call.events]
    assert isinstance(events[0], CallAnswered)
    assert isinstance(events[-1], CallEnded)


async def test_the_browser_hangs_up(link: SpeechLink) -> None:
    async with web_call(link) as (call, far):
        await call.answer()
        utterance = call.speak("One two three four five six seven. " * 5)
        await far.until(40)
        await far.connection.close()
        assert await call.ended() == "the browser hung up"
        assert (await utterance.spoken()).interrupted
        with pytest.raises(WrongState):
            await call.say("Are you there?")
        assert call.state == "ended"


async def test_a_call_that_is_ended_before_the_connection_closes_at_once(link: SpeechLink) -> None:
    async with web_call(link) as (call, _):
        await call.hangup()
        with pytest.raises(WrongState):
            await call.answer()
    assert call.detail_record is not None


async def test_a_refused_call_is_never_heard(link: SpeechLink) -> None:
    async with web_call(link) as (call, _):
        await call.reject()
        with pytest.raises(CallError):
            await call.answered()
    assert call.detail_record is not None
    assert call.detail_record.values["answered_s"] is None


async def test_who_has_no_microphone_hears_and_types(link: SpeechLink) -> None:
    async with web_call(link, microphone=False) as (call, far):
        await call.answer()
        await call.say("You can hear me.")
        await far.until(30)
        await call.hangup()
    assert call.detail_record is not None
    # Where the tests run beside others, a frame may go out late.
    assert set(call.detail_record.values["findings"]) <= {"machine_late"}
    assert call.detail_record.values["quality"]["in"]["packets"] == 0


async def test_keys_of_the_page_are_keys_of_the_call(link: SpeechLink) -> None:
    async with web_call(link) as (call, far):
        await call.answer()
        await far.press("47*")
        assert await call.dtmf.collect(most=3) == "47*"
        with pytest.raises(CallError):
            call.pressed("x")


async def test_the_figures_show_the_line_and_what_the_browser_says(link: SpeechLink) -> None:
    async with web_call(link) as (call, far):
        assert call.statistics().state == "connecting"
        await call.answer()
        call.report(Report(jitter_buffer_ms=40.0, rtt_ms=20.0, lost=0, concealed=0))
        assert call.sink.queued_s == pytest.approx(0.05)
        utterance = call.speak(WORDS)
        await far.until(40)
        figures = call.statistics()
        assert figures.state == "up"
        assert figures.frames > 0
        assert figures.first_sound_ms is not None
        assert figures.first_sound_ms > 0
        assert (figures.report.jitter_buffer_ms, figures.rtt_ms) == (40.0, 20.0)
        call.interrupt()
        await utterance.spoken()
        await call.hangup()
        assert call.statistics().state == "ended"


async def test_what_was_learnt_of_arrivals_is_kept_for_the_next_call(link: SpeechLink) -> None:
    learnt = ArrivalHistory()
    async with web_call(link, learnt=learnt) as (call, _):
        await call.answer()
        await call.say("One.")
        await call.hangup()
    assert learnt.policy(0.02).export()


async def test_two_calls_at_once_do_not_know_of_each_other(link: SpeechLink) -> None:
    async with web_call(link) as (one, far_one), web_call(link, codec="PCMU") as (two, far_two):
        await asyncio.gather(one.answer(), two.answer())
        both = await asyncio.gather(one.say("One."), two.say("Two."))
        assert [spoken.heard for spoken in both] == ["One.", "Two."]
        await one.hangup()
        assert (await two.say("Still here.")).heard == "Still here."
        await two.hangup()
        await asyncio.gather(far_one.over(), far_two.over())
