"""Whoever stops it and however: silence at once, and the next words are clean.

The four ways in which a host stops what is being said (a plugin sees each of them differently),
each while the command runs and while the model still writes it, in both modes. The four are stopped
at the same time, on four calls.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.mindroot_host.call import Call, Stopped, Visit, chunk_times
from tests.mindroot_host.conftest import Since
from tests.mindroot_host.hearing import by_voice, heard_start, heard_whole, words
from tests.mindroot_host.host import VOICES, Host
from tests.mindroot_host.playout import played
from tests.mindroot_host.speech_server import Said

pytestmark = pytest.mark.network

WAYS = ["halt", "cancel_active_response", "cancel_and_wait", "page"]
LIST = (
    "I will read the list to you now. Apples are two euros. Bread is three euros. Cheese is four "
    "euros. Dates are five euros. Eggs are six euros. Flour is seven euros. Grapes are eight "
    "euros. Honey is nine euros. Jam is ten euros. Kale is eleven euros. Lemons are twelve euros."
)
AFTER = "You are right, there is also bread."
HEARD_FRAMES = 25
LATE_S = 0.1
"""From the stop to the last frame that is handed over, at most: a frame may be under way, and the
machine that runs the tests is busy. The benchmark measures it."""


async def stop(call: Call, way: str, task_id: str) -> Stopped:
    if way != "page":
        return await call.phone(way)
    asked = await call.phone("nothing")
    await call.stop(task_id)
    done = await call.phone("nothing")
    return Stopped(asked.asked, done.done)


async def check_stopped(call: Call, stopped: Stopped, said_now: Since) -> None:
    """Nothing came after the stop, and what had come is the beginning."""
    await call.silence()
    events = await call.record()
    late = [at - stopped.done for at in chunk_times(events) if at > stopped.done + LATE_S]
    assert not late, f"{len(late)} frames after the stop, the last after {late[-1]:.3f} s"
    playout = played(events)
    assert playout.refused <= 1, "it goes on offering what nobody takes"
    heard_start(playout, said_now(), LIST)
    asked = [word for each in said_now() for word in words(each.text)]
    assert len(asked) < len(words(LIST)), "the server has said all of it"


async def check_next(call: Call, said_now: Since) -> None:
    """The next reply begins with its own first word and ends with its last."""
    resumed = await call.phone("resume")
    await call.speak(AFTER)
    await call.finished()
    heard_whole(await call.silence(after=resumed.done), said_now(), AFTER)


async def start_running(call: Call) -> str:
    """The command runs; the model is not even read on."""
    task_id = await call.speak(LIST, token_ms=1)
    await call.told("running_command", command="speak")
    await call.frames(HEARD_FRAMES)
    return task_id


async def start_writing(call: Call) -> str:
    """The model thinks for a while in the middle of its list."""
    task_id = await call.speak(LIST, token_ms=5, pause_ms={"40": 3000})
    await call.frames(HEARD_FRAMES)
    assert not [name for name, _ in call.events if name == "running_command"]
    return task_id


async def one_way(admin: Visit, mode: str, phase: str, way: str, voice: str, said: Since) -> None:
    def said_now() -> list[Said]:
        return by_voice(said(), voice)

    call = await admin.call(f"{mode} {voice}")
    begin = start_running if phase == "running" else start_writing
    stopped = await stop(call, way, await begin(call))
    await check_stopped(call, stopped, said_now)
    if phase == "writing" and way in {"halt", "page"}:
        # Neither ends the host's turn while its model is silent: what it writes later must not be
        # heard either.
        await call.told("finished_chat") if way == "halt" else await asyncio.sleep(3)
        await check_stopped(call, stopped, said_now)
    await check_next(call, said_now)


@pytest.mark.parametrize("mode", ["json", "xml"])
@pytest.mark.parametrize("phase", ["running", "writing"])
async def test_a_stop_is_silence_at_once_and_the_next_words_are_clean(
    host: Host, said_now: Since, mode: str, phase: str
) -> None:
    async with host.visit() as admin:
        outcomes = await asyncio.gather(
            *(
                one_way(admin, mode, phase, way, voice, said_now)
                for way, voice in zip(WAYS, VOICES, strict=True)
            ),
            return_exceptions=True,
        )
    for way, outcome in zip(WAYS, outcomes, strict=True):
        if outcome is not None:
            raise AssertionError(way) from outcome


async def test_the_callers_next_words_stop_the_reply_as_the_telephony_plugin_does_it(
    host: Host, said_now: Since
) -> None:
    async with host.visit() as admin:
        call = await admin.call()
        await start_running(call)
        await call.phone("halt")
        stopped = await call.phone("next_utterance")
        await check_stopped(call, stopped, said_now)
        await check_next(call, said_now)


async def test_a_caller_who_hangs_up_is_not_spoken_to(host: Host, said_now: Since) -> None:
    async with host.visit() as admin:
        call = await admin.call()
        await start_running(call)
        stopped = await call.phone("gone")
        await call.finished()
        await check_stopped(call, stopped, said_now)
        # The host tells the agent, which may say something all the same.
        await call.speak("Goodbye, whoever you were.")
        await call.finished()
        assert len((await call.playout()).responses) == 1


async def test_one_call_is_stopped_and_the_others_go_on(host: Host, said_now: Since) -> None:
    others = "While somebody else is being interrupted, this sentence is heard to its last word."
    async with host.visit() as admin:
        call, other = await admin.call(), await admin.call()
        await start_running(call)
        await other.speak(others)
        await other.frames(5)
        await call.phone("cancel_and_wait")
        await other.finished()
        heard_whole(await other.silence(), said_now(), others)
