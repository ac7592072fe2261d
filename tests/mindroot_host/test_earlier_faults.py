"""What only the real host shows of the faults and traps listed in tests/plugin/test_earlier_faults.

The other tests of this folder show most of them; the table there says which.
"""

from __future__ import annotations

import pytest

from tests.mindroot_host.call import speaking, xml
from tests.mindroot_host.conftest import Since
from tests.mindroot_host.hearing import heard_start, heard_whole, segments_of
from tests.mindroot_host.host import Host

pytestmark = pytest.mark.network

LIST = (
    "Here are the rooms that are free. The first has a view of the lake. The second has a balcony. "
    "The third is on the ground floor. The fourth has a kitchen, and the fifth has two beds."
)
LATER = "Shall I book the one with the balcony for you?"
AFTER = "Of course, the room on the ground floor it is."


@pytest.mark.parametrize("agent", ["json", "xml"])
async def test_an_interrupted_turn_says_nothing_more_though_the_host_goes_on_with_it(
    host: Host, said_now: Since, agent: str
) -> None:
    # In JSON mode the host takes its own flag away at the next token, and runs what follows.
    how = {"token_ms": 5, "pause_ms": {"30": 1500}}
    reply = (
        speaking(LIST, LATER, **how) if agent == "json" else xml(f"{LIST}<nothing/>{LATER}", **how)
    )
    async with host.visit() as admin:
        call = await admin.call(agent)
        await call.say(reply)
        await call.frames(20)
        await call.phone("cancel_active_response")
        await call.finished()
        playout = await call.silence()
        heard_start(playout, said_now(), LIST)
        assert not segments_of(said_now(), LATER)
        goes_on = [data for name, data in call.events if name == "running_command"]
        assert bool(goes_on) is (agent == "json"), "the host is another one"
        before = len(playout.responses)
        await call.say(speaking(AFTER) if agent == "json" else xml(AFTER))
        await call.finished()
        playout = await call.silence()
        playout.responses = playout.responses[before:]
        heard_whole(playout, said_now(), AFTER)


async def test_a_plugin_without_any_setting_of_a_voice_speaks(host: Host, said_now: Since) -> None:
    text = "Nobody has chosen a voice, and yet you can hear me."
    host.add_agent("older", env={"MR_QWEN3TTS_VOICE": "Vivian", "MR_QWEN3TTS_SPEED": "2"})
    async with host.visit() as admin:
        call = await admin.call("older")
        await call.say(speaking(text))
        await call.finished()
        assert (await call.told("command_result", command="speak"))["result"] is None
        heard_whole(await call.silence(), said_now(), text)
        assert len(await call.model()) == 1
