"""The SIP port as a whole: whatever comes to it, a good call still works."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qwen3tts_phone.errors import CallError, WrongState
from qwen3tts_phone.sip import SipCall, SipEndpoint, SipSettings
from qwen3tts_phone.sip.core.settings import GateSettings
from qwen3tts_phone.sip.gate import SourceGate
from tests.fuzz.table import TARGETS
from tests.sip.phones import QUICK, answer_one, good_call

pytestmark = pytest.mark.network


class Failures(logging.Handler):
    """Collects what was logged as an error: a message that the agent could not handle."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


HEADS = [
    b"INVITE sip:other@127.0.0.1 SIP/2.0",
    b"BYE sip:other@127.0.0.1 SIP/2.0",
    b"CANCEL sip:other@127.0.0.1 SIP/2.0",
    b"ACK sip:other@127.0.0.1 SIP/2.0",
    b"OPTIONS sip:other@127.0.0.1 SIP/2.0",
    b"REGISTER sip:127.0.0.1 SIP/2.0",
    b"BREW pot SIP/2.0",
    b"SIP/2.0 200 OK",
    b"SIP/2.0 180",
    b"\x00\xff",
]
LINES = [
    b"Via: SIP/2.0/UDP 127.0.0.1:9;branch=z9hG4bKfuzz;rport",
    b"Via: SIP/2.0/UDP 127.0.0.1:9;branch=old",
    b"v: SIP/2.0/TCP host;self",
    b"From: <sip:f@127.0.0.1>;tag=f",
    b"f: sip:f@127.0.0.1",
    b"To: <sip:other@127.0.0.1>",
    b"t: <sip:other@127.0.0.1>;tag=t",
    b"Call-ID: fuzz",
    b"CSeq: 1 INVITE",
    b"CSeq: 1 BYE",
    b"CSeq: 1 CANCEL",
    b"CSeq: 2147483648 INVITE",
    b"Contact: <sip:f@127.0.0.1:9>",
    b"m: <sips:no-host>",
    b"Record-Route: <sip:127.0.0.1:9>, <sip:127.0.0.1:9;lr>",
    b"Require: everything",
    b"Max-Forwards: 0",
    b"Content-Type: application/sdp",
    b"Content-Length: 5",
    b"l: 99999999",
    b" folded",
]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    datagrams=st.lists(
        st.one_of(
            st.binary(max_size=300),
            st.tuples(
                st.sampled_from(HEADS),
                st.lists(st.sampled_from(LINES), max_size=14, unique=True),
                st.binary(max_size=60),
            ).map(lambda t: b"\r\n".join([t[0], *t[1]]) + b"\r\n\r\n" + t[2]),
        ),
        max_size=20,
    ),
    replays=st.integers(1, 3),
)
def test_whatever_comes_to_the_port_a_good_call_still_works(
    datagrams: list[bytes], replays: int
) -> None:
    async def run() -> None:
        quick = SipSettings(timers=QUICK, user="other")
        async with SipEndpoint(SipSettings(timers=QUICK)) as caller, SipEndpoint(quick) as callee:
            task = asyncio.create_task(answer_good(callee))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                for data in datagrams * replays:
                    stranger.sendto(data, ("127.0.0.1", callee.port))
            _, writer = await asyncio.open_connection("127.0.0.1", callee.port)
            writer.write(b"".join(datagrams))
            await good_call(caller, callee.uri)
            writer.close()
            assert len(callee.agent.layer) <= 50 * replays
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def answer_good(endpoint: SipEndpoint) -> None:
        async with asyncio.TaskGroup() as group:
            async for call in endpoint.incoming:
                if call.call_id == "fuzz" or call.offer is None:
                    # A CANCEL may have come right behind.
                    with contextlib.suppress(WrongState):
                        await call.reject(486)
                else:
                    group.create_task(answer_one(call))

    failures = Failures()
    log = logging.getLogger("qwen3tts_phone")
    log.addHandler(failures)
    try:
        asyncio.run(run())
    finally:
        log.removeHandler(failures)
    assert not failures.records, failures.records[0].getMessage()


NAMES = ("sip_message", "sip_stream", "sip_agent", "sip_gate", "sdp", "rtp", "wire_server")
EVERYBODY = GateSettings(trusted=())
UNLIMITED = GateSettings()


def inputs(seed: int) -> list[bytes]:
    """Seeds, what is hard, and both with a few bytes changed."""
    chance = random.Random(seed)
    known = [data for name in NAMES for data in (*TARGETS[name].seeds, *TARGETS[name].hard)]
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


async def answer_all(endpoint: SipEndpoint) -> None:
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
            answering = asyncio.create_task(answer_all(endpoint))
            messages = inputs(1)
            for start in range(0, len(messages), 50):
                send_datagrams(endpoint.port, messages[start : start + 50])
                # What a burst left behind is read before the next one.
                await asyncio.sleep(0)
            await send_streams(endpoint.port, messages)
            # A stranger that has sent all that is banned.
            gate.trust("caller", ("127.0.0.1",))
            await good_call(caller, f"sip:agent@127.0.0.1:{endpoint.port}")
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
    assert not caplog.records
    assert len(gate) <= 2  # this machine, and what a tunnel on it has brought
