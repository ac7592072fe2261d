"""Session descriptions that real phones send, and some that none should."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator

import pytest

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.errors import CallError, CallRefused
from qwen3tts_phone.phone import Phone
from qwen3tts_phone.sip.core.settings import SipSettings
from qwen3tts_phone.sip.endpoint import SipEndpoint
from qwen3tts_server.run import running_server
from tests.e2e.parties import phone

pytestmark = pytest.mark.network


def described(media: str, host: str = "IP4 127.0.0.1") -> str:
    return f"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN {host}\r\nt=0 0\r\n{media}"


@pytest.fixture
async def agent() -> AsyncIterator[Phone]:
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url) as answering,
    ):
        yield answering


@pytest.mark.parametrize(
    ("offer", "cause"),
    [
        (described("m=audio 4000 RTP/AVP 18\r\n"), "codec"),
        (described("m=video 4000 RTP/AVP 96\r\na=rtpmap:96 VP8/90000\r\n"), "audio"),
        (described("m=audio 0 RTP/AVP 0\r\n"), "audio"),
        (described("m=audio 4000 RTP/AVP 0\r\n", "IP6 2001:db8::1"), "IPv4"),
        (described("m=audio 4000 RTP/AVP 0\r\n", "IP4 phone.example"), "address"),
        (described("m=audio 99999 RTP/AVP 0\r\n"), "port"),
        ("this is no session description", "Line 1"),
    ],
)
async def test_what_cannot_be_spoken_to_is_refused_with_488(
    agent: Phone, offer: str, cause: str
) -> None:
    async with SipEndpoint(SipSettings()) as caller:
        call = await caller.place(agent.uri, offer)
        async with asyncio.timeout(10):
            incoming = await anext(agent.incoming())
        with pytest.raises(CallError, match=cause):
            await incoming.answer()
        with pytest.raises(CallRefused) as refused:
            await call.answered()
        assert refused.value.status == 488
        await incoming.ended()
    assert not agent.calls


@pytest.mark.parametrize(
    ("offer", "expected"),
    [
        (described("m=audio 4000 RTP/AVP 8 0\r\n"), "m=audio \\d+ RTP/AVP 8"),
        (
            described(
                "m=audio 4000 RTP/AVP 0 99\r\na=rtpmap:99 telephone-event/8000\r\n"
                "m=video 4002 RTP/AVP 96\r\na=rtpmap:96 VP8/90000\r\n"
            ),
            "(?s)RTP/AVP 0 99.*m=video 0 RTP/AVP",
        ),
        (described("m=audio 4000 RTP/AVP 0\r\na=ptime:30\r\n"), "RTP/AVP 0"),
    ],
)
async def test_what_can_be_spoken_to_is_answered(agent: Phone, offer: str, expected: str) -> None:
    async with SipEndpoint(SipSettings()) as caller:
        call = await caller.place(agent.uri, offer)
        async with asyncio.timeout(10):
            incoming = await anext(agent.incoming())
        await incoming.answer()
        answer = await call.answered()
        assert answer is not None
        assert re.search(expected, answer)
        assert (await incoming.say("Good.")).heard == "Good."
        await call.bye()
        await incoming.ended()


async def test_ipv6_media_over_ipv4_signalling_is_answered_with_ipv6(agent: Phone) -> None:
    """Linphone's default: its media has an IPv6 address, its SIP goes over IPv4."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as ours:
        ours.bind(("::1", 0))
        ours.setblocking(False)
        offer = described(f"m=audio {ours.getsockname()[1]} RTP/AVP 0\r\n", "IP6 ::1")
        async with SipEndpoint(SipSettings()) as caller:
            call = await caller.place(agent.uri, offer)
            async with asyncio.timeout(10):
                incoming = await anext(agent.incoming())
                await incoming.answer()
                sdp = await call.answered()
                packet = await asyncio.get_running_loop().sock_recv(ours, 2048)
            assert sdp is not None
            assert "c=IN IP6 ::1\r\n" in sdp
            assert packet[0] == 0x80
            await call.bye()
            await incoming.ended()


async def test_an_ipv4_candidate_of_an_ipv6_offer_is_sent_to(agent: Phone) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.bind(("127.0.0.1", 0))
        ours.setblocking(False)
        port = ours.getsockname()[1]
        offer = described(
            "m=audio 7078 RTP/AVP 0\r\n"
            f"a=candidate:2 1 UDP 2130706175 127.0.0.1 {port} typ host\r\n",
            "IP6 2001:db8::5",
        )
        async with SipEndpoint(SipSettings()) as caller:
            call = await caller.place(agent.uri, offer)
            async with asyncio.timeout(10):
                incoming = await anext(agent.incoming())
                await incoming.answer()
                sdp = await call.answered()
                packet = await asyncio.get_running_loop().sock_recv(ours, 2048)
            assert sdp is not None
            assert "c=IN IP4 127.0.0.1\r\n" in sdp
            assert packet[0] == 0x80
            await call.bye()
            await incoming.ended()


@pytest.mark.parametrize(
    ("offer", "warning"),
    [
        (described("m=audio 4000 RTP/AVP 0\r\n", "IP6 2001:db8::1"), "301"),
        (described("m=audio 4000 RTP/AVP 18\r\n"), "305"),
    ],
)
async def test_a_488_says_in_its_warning_what_is_not_common(
    agent: Phone, offer: str, warning: str
) -> None:
    async with SipEndpoint(SipSettings()) as caller:
        call = await caller.place(agent.uri, offer)
        async with asyncio.timeout(10):
            incoming = await anext(agent.incoming())
            with pytest.raises(CallError):
                await incoming.answer()
            with pytest.raises(CallRefused):
                await call.answered()
        assert call.ended is not None
        assert call.ended.headers["Warning"].startswith(f"{warning} 127.0.0.1 ")
        await incoming.ended()
