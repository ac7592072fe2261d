"""Agents of a real MindRoot speak through the plugin, in JSON mode and in XML mode."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.audio import aligned, compare
from tests.mindroot_host.call import Call, Visit, commands, speaking, times, xml
from tests.mindroot_host.conftest import Since
from tests.mindroot_host.hearing import (
    EDGE,
    by_voice,
    decoded,
    heard_whole,
    reference_of,
    segments_of,
    words,
)
from tests.mindroot_host.host import VOICES, Host
from tests.mindroot_host.many import many_calls
from tests.mindroot_host.playout import FRAME, Playout
from tests.mindroot_host.speech_server import Said, SpeechServer

pytestmark = pytest.mark.network

FEW_TICKS = 8
"""Silent ticks of 20 ms that a busy machine may add: two hosts and their servers share it here."""
NEXT_COMMAND_TICKS = 6
"""Of these, between two commands of a turn. A gap of 151 ms, as it once was, is 7."""
HOURS = (
    "Our opening hours in Salzburg are from nine in the morning until half past five, on every "
    "working day of the week, and on Saturdays we close at noon."
)
FIRST = "The first train to Graz leaves at seven minutes past six."
SECOND = "The second one is an hour later, and has a dining car."


def silent_between(playout: Playout, said_here: Sequence[Said]) -> int:
    """Silent ticks where FIRST ends and SECOND begins."""
    return playout.silent_near(len(reference_of(segments_of(said_here, FIRST))), EDGE // FRAME)


async def in_both_modes(
    host: Host, said_now: Since, one: Callable[[Call, Since], Awaitable[None]]
) -> None:
    """The same in JSON mode and in XML mode, at the same time, by two voices."""

    async def talk(admin: Visit, agent: str, voice: str) -> None:
        await one(await admin.call(f"{agent} {voice}"), lambda: by_voice(said_now(), voice))

    async with host.visit() as admin:
        await asyncio.gather(talk(admin, "json", VOICES[0]), talk(admin, "xml", VOICES[1]))


async def test_words_are_heard_while_the_model_still_writes_them(
    host: Host, said_now: Since
) -> None:
    async def one(call: Call, said_here: Since) -> None:
        await call.speak(HOURS, token_ms=40)
        await call.finished()
        playout = await call.silence()
        [written, *_] = await call.model()
        # "and on Saturdays we close at noon" was not written yet.
        assert playout.frames[0][0] < written["tokens"][-9][0]
        assert playout.silent_ticks <= FEW_TICKS
        heard_whole(playout, said_here(), HOURS)

    await in_both_modes(host, said_now, one)


async def test_two_sentences_of_a_turn_follow_each_other_without_a_gap(
    host: Host, said_now: Since
) -> None:
    async def one(call: Call, said_here: Since) -> None:
        await call.speak(FIRST, SECOND)
        await call.finished()
        playout = await call.silence()
        assert len(playout.responses) == 1, "a new response would throw away the tail of the last"
        assert playout.silent_ticks <= FEW_TICKS
        assert silent_between(playout, said_here()) <= NEXT_COMMAND_TICKS
        assert playout.thrown_away == 0
        heard_whole(playout, said_here(), FIRST, SECOND)

    await in_both_modes(host, said_now, one)


# A clause engine had nothing to say until the model had written the next clause: 280 ms of silence.
async def test_nor_is_there_a_gap_where_the_model_writes_only_while_the_host_reads(
    host: Host, said_now: Since
) -> None:
    async def one(call: Call, said_here: Since) -> None:
        await call.speak(FIRST, SECOND, token_ms=40, pulled=True)
        await call.finished()
        playout = await call.silence()
        assert playout.silent_ticks <= FEW_TICKS
        assert silent_between(playout, said_here()) <= NEXT_COMMAND_TICKS
        heard_whole(playout, said_here(), FIRST, SECOND)

    await in_both_modes(host, said_now, one)


@pytest.mark.parametrize(
    ("command", "args", "tag", "event"),
    [
        ("hangup", {}, "<hangup/>", "hangup"),
        ("send_dtmf", {"digits": "1"}, '<send_dtmf digits="1"/>', "dtmf"),
    ],
)
async def test_a_command_after_the_words_waits_for_their_sound(
    host: Host, said_now: Since, command: str, args: dict[str, str], tag: str, event: str
) -> None:
    text = "Thank you for your call. I will do as you asked."

    async def one(call: Call, said_here: Since) -> None:
        in_json = commands({"speak": {"text": text}}, {command: args})
        await call.say(xml(text + tag) if call.xml else in_json)
        await call.finished()
        playout = await call.silence()
        [run] = times(await call.record(), event)
        assert run >= playout.frames[-1][0]
        assert playout.thrown_away == 0
        heard_whole(playout, said_here(), text)

    await in_both_modes(host, said_now, one)


async def test_the_model_is_not_asked_again_because_something_was_said(host: Host) -> None:
    async with host.visit() as admin:
        call = await admin.call()
        await call.say(speaking("Nothing comes back from these words."))
        await call.finished()
        assert (await call.told("command_result", command="speak"))["result"] is None
        assert len(await call.model()) == 1


async def test_a_turn_that_nobody_looks_at_is_heard_whole(host: Host, said_now: Since) -> None:
    text = " ".join(f"Point {each} of the list is short." for each in ("one", "two"))
    async with host.visit() as admin:
        call = await admin.call(watched=False)
        await call.say(speaking(text, token_ms=1))
        await call.frames(20)
        playout = await call.silence()
    assert playout.silent_ticks <= FEW_TICKS
    heard_whole(playout, said_now(), text)


async def test_ten_calls_hear_their_own_words_turn_after_turn(
    host: Host, speech: SpeechServer
) -> None:
    # benchmarks/plugin_latency.py --calls does it for a minute, and watches the memory.
    heard = await many_calls(host, speech, 10, 5.0)
    assert heard.turns >= 10
    assert not heard.wrong


async def test_a_command_that_is_given_another_calls_context_speaks_on_its_own_line(
    host: Host, said_now: Since
) -> None:
    mine = "Your balance is two hundred and forty euros and ninety cents."
    theirs = "The weather in Bregenz will be fair until the evening."

    async def one(call: Call, said_here: Since) -> None:
        voice = VOICES[3] if call.xml else VOICES[2]
        other = await call.visit.call(f"{'xml' if call.xml else 'json'} {voice}")
        await other.speak(theirs)
        await other.frames(5)
        await call.mix_up_with(other)
        await call.speak(mine)
        await asyncio.gather(call.finished(), other.finished())
        assert times(await call.record(), "mixed up"), "the test forced nothing"
        heard_whole(await call.silence(), said_here(), mine)
        heard_whole(await other.silence(), by_voice(said_now(), voice), theirs)

    await in_both_modes(host, said_now, one)


@pytest.mark.parametrize("output_format", ["ulaw_8000", "pcm_24000"])
async def test_another_plugin_takes_the_sound_from_stream_tts(
    host: Host, said_now: Since, output_format: str
) -> None:
    text = f"This sentence was asked for by another plugin as {output_format.replace('_', ' ')}."
    async with host.visit() as admin:
        call = await admin.call()
        answer = await admin.client.get(
            f"/recording_sip/stream_tts/{call.log_id}",
            params={"words": text, "output_format": output_format},
        )
        chunks = [base64.b64decode(each) for each in answer.json()["chunks"]]
        assert not (await call.playout()).frames, "the call hears nothing of it"
    segments = segments_of(said_now(), text)
    if output_format == "ulaw_8000":
        assert {len(each) for each in chunks} == {160}
        reference = reference_of(segments)
        assert compare(reference, aligned(reference, decoded(b"".join(chunks)))).missing == 0
    else:
        # What comes before its loss, the server may have cut nothing of.
        assert b"".join(chunks) == b"".join(each.pcm.tobytes() for each in segments)
    assert [word for each in segments for word in words(each.text)] == words(text)


async def test_another_plugin_may_stop_taking_sound(host: Host, said_now: Since) -> None:
    text = "This is one of many sentences that nobody wants to hear to its end. " * 30
    async with host.visit() as admin:
        call = await admin.call()
        answer = await admin.client.get(
            f"/recording_sip/stream_tts/{call.log_id}", params={"words": text, "most": 3}
        )
        assert len(answer.json()["chunks"]) == 3
    await asyncio.sleep(0.5)
    asked = len(said_now())
    await asyncio.sleep(1.0)
    assert len(said_now()) <= min(asked, 29), "the server goes on speaking"
