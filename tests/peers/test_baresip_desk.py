"""The plugin's desk and a real baresip: it calls, presses keys and hangs up; it is called."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from qwen3tts_server.run import running_server
from tests.audio import aligned, compare, reference_8k
from tests.peers.baresip_runner import baresip, tone
from tests.peers.recording_engine import RecordingEngine
from tests.plugin.desk_parties import Session, Wishes, WritingHost, desk

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("need_baresip")]

GREETING = "Good morning, this is the clinic. Please press the number of your appointment."


async def test_baresip_calls_is_greeted_presses_keys_and_hangs_up(tmp_path: Path) -> None:
    host, engine = WritingHost(), RecordingEngine()
    greeted = asyncio.Event()

    async def agent(log_id: str, message: str) -> None:
        if "INCOMING CALL" in message:
            speaker = there.speaker_of(log_id)
            assert speaker is not None
            await speaker.say(GREETING).spoken()
            greeted.set()

    host.turn = agent
    async with (
        running_server(engine, host="127.0.0.1", port=0) as server,
        desk(host, Wishes(sip_audio_in_pipeline=True), url=server.url) as there,
        baresip(tmp_path / "peer", speech=tone(523.0, 20.0)) as peer,
    ):
        await peer.dial(await there.ready())
        log_id, first = await host.message()
        assert first.startswith("SYSTEM: -- INCOMING CALL from sip:bob@127.0.0.1")
        async with asyncio.timeout(20):
            await greeted.wait()
        await peer.press("42#")
        assert await host.message() == (log_id, "SYSTEM: The caller pressed 42# on the telephone.")
        await peer.hangup()
        assert await host.message() == (log_id, "SYSTEM: -- CALL DISCONNECTED --")
        assert there.over(log_id)
    reference = reference_8k(engine.pcm())
    assert compare(reference, aligned(reference, peer.recording("dec"))).frames > 100
    assert host.frames.qsize() > 100
    assert {len(host.frames.get_nowait()["audio_bytes"]) for _ in range(100)} == {160}
    assert host.problems == []


async def test_an_agent_calls_baresip_presses_keys_and_hangs_up(tmp_path: Path) -> None:
    host, session = WritingHost(), Session("s1")
    async with (
        running_server(RecordingEngine(), host="127.0.0.1", port=0) as server,
        desk(host, Wishes(sip_agent=None), url=server.url) as there,
        baresip(tmp_path / "peer") as peer,
    ):
        assert await there.call(peer.uri, session) is None
        speaker = there.speaker_of("s1")
        assert speaker is not None
        spoken = await speaker.say("Good morning.").spoken()
        assert spoken.heard == "Good morning."
        assert await there.send_dtmf("159#", session) is None
        await peer.event("CALL_DTMF_START", seen=3)
        keys = [each["param"] for each in peer.events if each.get("type") == "CALL_DTMF_START"]
        assert "".join(map(str, keys)) == "159#"
        assert await there.hangup(session) is None
        await peer.event("CALL_CLOSED")
    assert host.messages.empty()
    assert np.abs(peer.recording("dec").astype(int)).max() > 1000


async def test_a_baresip_that_declines_is_told_to_the_model(tmp_path: Path) -> None:
    async with (
        desk(WritingHost()) as there,
        baresip(tmp_path / "peer", answer="manual") as peer,
    ):
        calling = asyncio.create_task(there.call(peer.uri, Session("s1")))
        await peer.event("CALL_INCOMING")
        await peer.hangup()
        async with asyncio.timeout(10):
            assert await calling == "The call was not answered: busy."


async def test_a_cancelled_call_stops_ringing_at_baresip(tmp_path: Path) -> None:
    async with (
        desk(WritingHost()) as there,
        baresip(tmp_path / "peer", answer="manual") as peer,
    ):
        calling = asyncio.create_task(there.call(peer.uri, Session("s1")))
        await peer.event("CALL_INCOMING")
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await peer.event("CALL_CLOSED")
