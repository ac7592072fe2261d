"""A real baresip puts us on hold and is put on hold, hands us on and is handed on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_phone.call.call import CallEvent, CallTransferred
from qwen3tts_phone.call.events import CallHeld, CallResumed, TransferProgress
from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.errors import TransferFailed
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_server.run import running_server
from tests.peers.baresip_runner import Baresip, baresip, free_port, tone
from tests.peers.recording_engine import RecordingEngine

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("need_baresip")]

TEXT = "This is said before the change, and this is said after it, and nothing of it is lost."


@asynccontextmanager
async def phones(
    folder: Path, *tones_hz: float, **settings: Any
) -> AsyncIterator[tuple[Phone, list[Baresip]]]:
    """A phone of ours and a baresip for each tone."""
    async with (
        running_server(RecordingEngine(), host="127.0.0.1", port=0) as server,
        Phone(PhoneSettings(server_url=server.url, **settings)) as phone,
        asyncio.timeout(100),
    ):
        peers = [baresip(folder / f"{hz:.0f}", speech=tone(hz, 30.0)) for hz in tones_hz]
        opened = []
        try:
            for peer in peers:
                opened.append(await peer.__aenter__())
            yield phone, opened
        finally:
            for peer in peers[: len(opened)]:
                await peer.__aexit__(None, None, None)


async def called(phone: Phone, peer: Baresip) -> PhoneCall:
    call = await phone.dial(peer.uri)
    await call.answered()
    return call


async def event_of(call: PhoneCall, kind: type[CallEvent]) -> Any:
    """The next event of a kind."""
    async with asyncio.timeout(15):
        return await anext(event async for event in call.progress() if isinstance(event, kind))


async def hz_of(call: PhoneCall) -> int:
    """The loudest frequency of the next second that comes."""
    heard: list[Any] = []
    async with asyncio.timeout(15):
        async for frame in call.audio():
            heard.append(frame.samples)
            if sum(map(len, heard)) >= 8000:
                break
    second = np.concatenate(heard)[:8000].astype(float)
    return int(np.abs(np.fft.rfft(second)).argmax())


async def test_baresip_puts_us_on_hold_and_takes_us_back(tmp_path: Path) -> None:
    async with phones(tmp_path, 523.0) as (phone, (bob,)):
        call = await called(phone, bob)
        utterance = call.speak(TEXT)
        held = asyncio.create_task(event_of(call, CallHeld))
        await asyncio.sleep(0)
        await bob.command("hold")
        await held
        seen = [call.held]
        resumed = asyncio.create_task(event_of(call, CallResumed))
        await asyncio.sleep(0)
        await bob.command("resume")
        await resumed
        assert [*seen, call.held] == [True, False]
        assert (await utterance.spoken()).heard == TEXT
        assert await hz_of(call) == 523
        await call.hangup()
    assert call.facts.media.held_s > 0


async def test_we_put_baresip_on_hold_and_take_it_back(tmp_path: Path) -> None:
    async with phones(tmp_path, 523.0) as (phone, (bob,)):
        call = await called(phone, bob)
        assert await hz_of(call) == 523
        await call.hold()
        await bob.event("CALL_REMOTE_SDP", seen=1)
        await call.resume()
        await bob.event("CALL_REMOTE_SDP", seen=2)
        assert await hz_of(call) == 523
        assert (await call.say(TEXT)).heard == TEXT
        await call.hangup()
    assert call.facts.media.holding_s > 0


async def test_a_call_is_handed_on_from_one_baresip_to_another(tmp_path: Path) -> None:
    async with phones(tmp_path, 440.0, 660.0) as (phone, (bob, carol)):
        call = await called(phone, bob)
        events = asyncio.create_task(all_events(call))
        await call.transfer(carol.uri)
        assert await call.ended() == "we hung up"
        await carol.event("CALL_ESTABLISHED")
        assert call.facts.transferred_to == carol.uri
        told = [each.status for each in await events if isinstance(each, TransferProgress)]
        assert told[-1] == 200


async def all_events(call: PhoneCall) -> list[CallEvent]:
    return [event async for event in call.events]


async def test_a_target_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with phones(tmp_path, 440.0) as (phone, (bob,)):
        call = await called(phone, bob)
        with pytest.raises(TransferFailed) as failed:
            await call.transfer(f"sip:nobody@127.0.0.1:{free_port()}")
        assert failed.value.status >= 400
        assert failed.value.remedy
        # This baresip hangs up then.
        await call.ended()


async def test_two_calls_of_ours_are_joined(tmp_path: Path) -> None:
    async with phones(tmp_path, 440.0, 660.0) as (phone, (bob, carol)):
        first, second = await called(phone, bob), await called(phone, carol)
        await second.say("Bob is on the line for you.")
        await first.transfer_to(second)
        assert await first.ended() == "we hung up"
        await second.ended()
        assert not phone.calls
        # Each has had a call with us, and has one with the other.
        await bob.event("CALL_ESTABLISHED", seen=1)
        await carol.event("CALL_ESTABLISHED", seen=1)


async def test_baresip_hands_us_on(tmp_path: Path) -> None:
    async with phones(tmp_path, 440.0, 660.0, transfers="accept") as (phone, (bob, carol)):
        call = await called(phone, bob)
        handed = asyncio.create_task(event_of(call, CallTransferred))
        await asyncio.sleep(0)
        await bob.command("transfer", carol.uri)
        new = (await handed).call
        assert new.remote_uri == carol.uri
        assert await hz_of(new) == 660
        assert (await new.say(TEXT)).heard == TEXT
        await call.ended()
        assert call.facts.transferred_to == carol.uri
        await new.hangup()


async def test_baresip_does_not_hand_us_on_unless_that_is_allowed(tmp_path: Path) -> None:
    async with phones(tmp_path, 440.0, 660.0) as (phone, (bob, carol)):
        call = await called(phone, bob)
        await bob.command("transfer", carol.uri)
        failed = await bob.event("TRANSFER_FAILED")
        assert "603" in failed["param"]
        assert phone.calls <= {call}
        await call.ended()  # this baresip hangs up then
        assert not carol.events
