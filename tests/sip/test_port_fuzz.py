"""The SIP port as a whole: whatever comes to it, a good call still works."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qwen3tts_phone.errors import (
    WrongState,
)
from qwen3tts_phone.sip import (
    SipEndpoint,
    SipSettings,
)
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
    b"m: <sips:nobody>",
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
