"""The other telephony plugins, and none."""

from __future__ import annotations

import asyncio
import wave
from collections.abc import Callable

import numpy as np
import pytest

from tests.mindroot_host.call import Call, commands, speaking, times
from tests.mindroot_host.conftest import Since
from tests.mindroot_host.hearing import heard_whole
from tests.mindroot_host.host import Host
from tests.mindroot_host.speech_server import SpeechServer
from tests.mindroot_host.test_speaking import FEW_TICKS, FIRST, SECOND, in_both_modes
from tests.mindroot_host.test_stopping import check_next, check_stopped, start_running

pytestmark = pytest.mark.network


@pytest.fixture(scope="session")
def old(speech: SpeechServer, another_host: Callable[..., Host]) -> Host:
    """Its telephony plugin has one service only, without a time stamp."""
    return another_host("old", MR_QWEN3TTS_URL=speech.url, RECORDING_SIP="old")


@pytest.fixture(scope="session")
def without_sip(speech: SpeechServer, another_host: Callable[..., Host]) -> Host:
    """It has no telephony plugin."""
    return another_host("without_sip", MR_QWEN3TTS_URL=speech.url, RECORDING_SIP="none")


async def test_with_the_older_telephony_plugin_all_is_heard(old: Host, said_now: Since) -> None:
    async def one(call: Call, said_here: Since) -> None:
        await call.speak(FIRST, SECOND)
        await call.finished()
        playout = await call.silence()
        assert playout.silent_ticks <= FEW_TICKS
        heard_whole(playout, said_here(), FIRST, SECOND)

    await in_both_modes(old, said_now, one)


async def test_with_the_older_telephony_plugin_a_hangup_waits_for_the_sound(
    old: Host, said_now: Since
) -> None:
    async with old.visit() as admin:
        call = await admin.call()
        await call.say(commands({"speak": {"text": FIRST}}, {"hangup": {}}))
        await call.finished()
        playout = await call.silence()
        [run] = times(await call.record(), "hangup")
    assert run >= playout.frames[-1][0]
    heard_whole(playout, said_now(), FIRST)


async def test_with_the_older_telephony_plugin_a_stop_is_a_stop(old: Host, said_now: Since) -> None:
    async def one(call: Call, said_here: Since) -> None:
        way = "halt" if call.xml else "cancel_active_response"
        await start_running(call)
        await check_stopped(call, await call.phone(way), said_here)
        await check_next(call, said_here)

    await in_both_modes(old, said_now, one)


async def test_without_telephony_each_turn_becomes_a_wav_file(
    without_sip: Host, said_now: Since
) -> None:
    folder = without_sip.folder / "data" / "qwen3tts"
    async with without_sip.visit() as admin:
        call = await admin.call()
        await call.say(speaking(FIRST, SECOND))
        await call.finished()
        assert (await call.told("command_result", command="speak"))["result"] is None
        async with asyncio.timeout(30):
            while not (files := list(folder.glob("*.wav"))):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.5)  # it may still be writing
    [file] = files
    with wave.open(str(file), "rb") as sound:
        assert (sound.getnchannels(), sound.getsampwidth(), sound.getframerate()) == (1, 2, 8000)
        samples = np.frombuffer(sound.readframes(sound.getnframes()), dtype="<i2")
    heard_whole(samples, said_now(), FIRST, SECOND)
