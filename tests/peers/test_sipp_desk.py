"""Many callers at once at the plugin's desk: each session speaks into its own call and ends it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_server.run import running_server
from qwen3tts_speech.line import Speaker, Spoken
from tests.peers.sipp_runner import sipp
from tests.plugin.desk_parties import WritingHost, desk

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("need_sipp")]

CALLS = 20


async def test_twenty_callers_at_once_have_each_a_session_and_a_voice_of_their_own(
    tmp_path: Path,
) -> None:
    host = WritingHost()
    outcomes: dict[str, Spoken] = {}
    speakers: set[Speaker] = set()

    async def agent(log_id: str, message: str) -> None:
        if "INCOMING CALL" not in message:
            return
        speaker = there.speaker_of(log_id)
        assert speaker is not None
        speakers.add(speaker)
        outcomes[log_id] = await speaker.say(f"This is the session {log_id}.").spoken()
        assert await there.hangup(host.sessions[log_id]) is None

    host.turn = agent
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        desk(host, url=server.url) as there,
    ):
        port = int((await there.ready()).rpartition(":")[2])
        async with sipp("uac_is_hung_up_on", tmp_path, call=port, calls=CALLS, rate=20) as peer:
            await peer.succeeded()
        assert there.snapshot()["calls"] == []
    assert host.problems == []
    assert len(outcomes) == len(speakers) == len(host.sessions) == CALLS
    for log_id, spoken in outcomes.items():
        assert spoken.heard == f"This is the session {log_id}."
    assert host.messages.qsize() == CALLS, "no message beyond the greeting: the agents hung up"


async def test_the_desk_keeps_nothing_of_calls_that_are_over(tmp_path: Path) -> None:
    host = WritingHost()

    async def agent(log_id: str, message: str) -> None:
        await there.hangup(host.sessions[log_id])

    host.turn = agent
    async with desk(host) as there:
        port = int((await there.ready()).rpartition(":")[2])
        async with sipp("uac_is_hung_up_on", tmp_path, call=port, calls=CALLS, rate=20) as peer:
            await peer.succeeded()
        async with asyncio.timeout(10):
            # SIPp is through with the BYE; that the line has ended is known here a moment later.
            while there._all:
                look_again = asyncio.ensure_future(asyncio.sleep(0.01))
                await asyncio.wait([*there._tasks, look_again], return_when=asyncio.FIRST_COMPLETED)
        assert (there._lines, there._dialling, there._arriving) == ({}, set(), 0)
    assert len(host.sessions) == CALLS
    assert host.problems == []
