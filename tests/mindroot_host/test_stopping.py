"""Whoever stops it and however: silence at once, and the next words are clean.

The four ways in which a host stops what is being said (facts of the host: each is seen differently
by a plugin), each while the command runs and while the model still writes it, in both modes.
"""

from __future__ import annotations

import pytest

from tests.mindroot_host.conftest import Since
from tests.mindroot_host.hearing import heard_start, heard_whole, words
from tests.mindroot_host.host import Call, Host, Stopped, chunk_times, speaking, xml
from tests.mindroot_host.playout import played

pytestmark = pytest.mark.network

WAYS = ["halt", "cancel_active_response", "cancel_and_wait", "page"]
LIST = (
    "I will read the list to you now. Apples are two euros. Bread is three euros. Cheese is four "
    "euros. Dates are five euros. Eggs are six euros. Flour is seven euros. Grapes are eight "
    "euros. Honey is nine euros. Jam is ten euros. Kale is eleven euros. Lemons are twelve euros."
)
AFTER = "You are right, and I have put two loaves of bread aside for you."
HEARD_FRAMES = 30
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


def reply_of(agent: str, text: str, **how: object) -> dict[str, object]:
    return speaking(text, **how) if agent == "json" else xml(text, **how)


async def check_stopped(call: Call, way: str, stopped: Stopped, said_now: Since) -> None:
    events = await call.record()
    late = [at - stopped.done for at in chunk_times(events) if at > stopped.done + LATE_S]
    assert not late, f"{len(late)} frames after the stop, the last after {late[-1]:.3f} s"
    playout = played(events)
    assert playout.refused <= 1, "it goes on offering what nobody takes"
    heard_start(playout, said_now(), LIST)
    asked = [word for each in said_now() for word in words(each.text)]
    assert len(asked) < len(words(LIST)), "the server has said all of it"


async def check_next(call: Call, agent: str, said_now: Since) -> None:
    """The next reply begins with its own first word and ends with its last."""
    before = len((await call.playout()).responses)
    await call.phone("resume")
    await call.say(reply_of(agent, AFTER))
    await call.finished()
    playout = await call.silence()
    playout.responses = playout.responses[before:]
    heard_whole(playout, said_now(), AFTER)


@pytest.mark.parametrize("agent", ["json", "xml"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_stop_while_the_command_runs(
    host: Host, said_now: Since, agent: str, way: str
) -> None:
    async with host.visit() as admin:
        call = await admin.call(agent)
        task_id = await call.say(reply_of(agent, LIST, token_ms=1))
        await call.told("running_command", command="speak")
        await call.frames(HEARD_FRAMES)
        stopped = await stop(call, way, task_id)
        await call.silence()
        await check_stopped(call, way, stopped, said_now)
        await check_next(call, agent, said_now)


@pytest.mark.parametrize("agent", ["json", "xml"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_stop_while_the_model_still_writes(
    host: Host, said_now: Since, agent: str, way: str
) -> None:
    async with host.visit() as admin:
        call = await admin.call(agent)
        # The model thinks for a while in the middle of its list.
        task_id = await call.say(reply_of(agent, LIST, token_ms=5, pause_ms={"30": 4000}))
        await call.frames(HEARD_FRAMES)
        assert not [name for name, _ in call.events if name == "running_command"]
        stopped = await stop(call, way, task_id)
        await call.silence()
        await check_stopped(call, way, stopped, said_now)
        if way in {"halt", "page"}:
            # Neither ends the host's turn while its model is silent; what it writes later must not
            # be heard either.
            await call.phone("cancel_and_wait")
        await check_next(call, agent, said_now)


async def test_the_callers_next_words_stop_the_reply_as_the_telephony_plugin_does_it(
    host: Host, said_now: Since
) -> None:
    async with host.visit() as admin:
        call = await admin.call()
        await call.say(speaking(LIST, token_ms=1))
        await call.frames(HEARD_FRAMES)
        await call.phone("halt")
        stopped = await call.phone("next_utterance")
        await check_stopped(call, "halt", stopped, said_now)
        await check_next(call, "json", said_now)


async def test_a_caller_who_hangs_up_is_not_spoken_to(host: Host, said_now: Since) -> None:
    async with host.visit() as admin:
        call = await admin.call()
        await call.say(speaking(LIST, token_ms=1))
        await call.frames(HEARD_FRAMES)
        stopped = await call.phone("gone")
        await call.finished()
        await check_stopped(call, "gone", stopped, said_now)
        # The host tells the agent, which may say something all the same.
        await call.say(speaking("Goodbye, whoever you were."))
        await call.finished()
        assert len((await call.playout()).responses) == 1


async def test_one_call_is_stopped_and_the_others_go_on(host: Host, said_now: Since) -> None:
    others = "While somebody else is being interrupted, this sentence is heard to its last word."
    async with host.visit() as admin:
        call, other = await admin.call(), await admin.call()
        await call.say(speaking(LIST, token_ms=1))
        await call.frames(HEARD_FRAMES)
        await other.say(speaking(others))
        await other.frames(5)
        await call.phone("cancel_and_wait")
        await other.finished()
        heard_whole(await other.silence(), said_now(), others)
