"""What is known to be hard for the parsers, sent to an open port with its gate: calls go on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket

import pytest

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.sip import SipCall, SipEndpoint, SipSettings
from qwen3tts_phone.sip.gate import SourceGate
from qwen3tts_phone.sip.settings import GateSettings
from tests.fuzz.fuzz_targets import TARGETS
from tests.fuzz.test_fuzz_targets import HARD
from tests.sip.phones import answer_one, good_call

pytestmark = pytest.mark.network

NAMES = ("sip_message", "sip_stream", "sip_agent", "sip_gate", "sdp", "rtp", "wire_server")
EVERYBODY = GateSettings(trusted=())
UNLIMITED = GateSettings()


def inputs(seed: int) -> list[bytes]:
    """Seeds, what is hard, and both with a few bytes changed."""
    chance = random.Random(seed)
    known = [data for name in NAMES for data in (*TARGETS[name].seeds, *HARD.get(name, ()))]
    changed = []
    for data in known:
        if data:
            wrong = bytearray(data)
            for _ in range(chance.randint(1, 4)):
                wrong[chance.randrange(len(wrong))] = chance.randrange(256)
            changed.append(bytes(wrong))
    return [data[:60000] for data in (*known, *changed)]


def send_datagrams(port: int, messages: list[bytes]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for data in messages:
            sock.sendto(data, ("127.0.0.1", port))


async def send_streams(port: int, messages: list[bytes]) -> None:
    for data in messages[:: max(1, len(messages) // 40)]:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            await writer.drain()
            writer.close()


async def answer_whoever(endpoint: SipEndpoint) -> None:
    """Answer what can be answered, until cancelled."""
    async with asyncio.TaskGroup() as group:
        async for call in endpoint.incoming:
            group.create_task(_answer(call))


async def _answer(call: SipCall) -> None:
    with contextlib.suppress(CallError):
        if call.offer is None:
            await call.reject(488)
        else:
            await answer_one(call)


@pytest.mark.parametrize("settings", [EVERYBODY, UNLIMITED], ids=["strangers", "trusted"])
async def test_whatever_comes_to_the_port_a_good_call_works_and_nothing_is_kept(
    settings: GateSettings, caplog: pytest.LogCaptureFixture
) -> None:
    gate = SourceGate(settings, own=lambda host, port: True)
    with caplog.at_level(logging.ERROR):
        async with SipEndpoint(SipSettings(), gate=gate) as endpoint, SipEndpoint() as caller:
            answering = asyncio.create_task(answer_whoever(endpoint))
            messages = inputs(1)
            for start in range(0, len(messages), 50):
                send_datagrams(endpoint.port, messages[start : start + 50])
                # What a burst left behind is read before the next one.
                await asyncio.sleep(0)
            await send_streams(endpoint.port, messages)
            # Whoever has sent all that is no longer listened to, where he is a stranger.
            gate.trust("caller", ("127.0.0.1",))
            await good_call(caller, f"sip:agent@127.0.0.1:{endpoint.port}")
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
    assert not caplog.records
    assert len(gate) <= 2  # this machine, and what a tunnel on it has brought
