"""Media over IPv6, over IPv4, and over sockets of both."""

from __future__ import annotations

import asyncio
import socket

import pytest

from qwen3tts_phone.errors import PortBusy
from qwen3tts_phone.media import rtcp
from qwen3tts_phone.media.control import MediaRefused
from qwen3tts_phone.media.process import MediaProcess, open_pair
from qwen3tts_phone.media.srtp import RtpTransport, canonical_host, plain_host
from qwen3tts_phone.media.types import LegSpec, MediaStarted, RemoteMedia, family
from qwen3tts_phone.sdp.crypto import SrtpKey
from tests.media.peer import PATIENCE_S, Peer, event_of, until

pytestmark = pytest.mark.network


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


six = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")


async def both_ways(process: MediaProcess, host: str, peer: Peer, **changes: object) -> None:
    leg = await process.open(LegSpec(local_host=host, pinned_s=0.0, rtcp_interval_s=0.1))
    peer.dial(leg)
    await leg.start(peer.media(**changes))
    await peer.hear_many(3)
    peer.say(b"\x07" * 160)
    async with asyncio.timeout(PATIENCE_S):
        await leg.wait_inbound()
    assert leg.read_inbound()[0].payload == b"\x07" * 160
    started = await event_of(leg, MediaStarted)
    assert started.source == (peer.host, peer.port)
    assert rtcp.parse(await peer.hear_report())
    peer.raw_report(rtcp.build([rtcp.ReceiverReport(peer.ssrc)]))
    stats = await until(leg, lambda stats: stats.rtcp_in == 1)
    assert (stats.strangers, stats.remote_address) == (0, (peer.host, peer.port))
    await leg.close()
    peer.hang_up()


@six
async def test_media_and_reports_go_both_ways_over_ipv6(process: MediaProcess) -> None:
    await both_ways(process, "::1", Peer("::1"))


@six
async def test_sockets_of_both_families_take_a_peer_of_either(process: MediaProcess) -> None:
    await both_ways(process, "::", Peer("::1"))
    await both_ways(process, "::", Peer("127.0.0.1"))


@six
async def test_encryption_works_over_ipv6(process: MediaProcess) -> None:
    ours, theirs = (SrtpKey.new("AES_CM_128_HMAC_SHA1_80") for _ in range(2))
    peer = Peer("::1", send=theirs, hear=ours)
    await both_ways(process, "::1", peer, srtp_send=ours, srtp_receive=theirs)


@six
async def test_an_address_in_another_writing_is_the_same_one(process: MediaProcess) -> None:
    peer = Peer("::1")
    leg = await process.open(LegSpec(local_host="::1"))
    peer.dial(leg)
    await leg.start(RemoteMedia("0:0::0:1", peer.port, rtcp_port=peer.rtcp_port))
    stranger = Peer("::1")
    stranger.dial(leg)
    peer.say()  # the announced one: believed at its first packet
    stranger.say()
    stats = await until(leg, lambda stats: stats.received + stats.strangers == 2)
    assert stats.remote_address == ("::1", peer.port)
    peer.hang_up()
    stranger.hang_up()


async def test_a_peer_of_the_other_family_is_refused_by_name(process: MediaProcess) -> None:
    leg = await process.open()
    with pytest.raises(MediaRefused, match=r"host='2001:db8::1' is of another family"):
        await leg.start(RemoteMedia("2001:db8::1", 4000))
    await leg.start(RemoteMedia("::", 0))  # nowhere yet
    assert (await leg.measure()).sent == 0


@six
def test_a_socket_of_ipv6_alone_does_not_reach_ipv4() -> None:
    rtp, rtcp_socket = open_pair("::1")
    with rtp, rtcp_socket:
        wire = RtpTransport(rtp, rtcp_socket)
        with pytest.raises(ValueError, match="family"):
            wire.target(("192.0.2.1", 4000))
        assert wire.target(("2001:db8::1", 4000)) == ("2001:db8::1", 4000)
        assert rtp.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS) == 0xB8


def test_an_address_that_is_not_ours_is_refused_in_either_family() -> None:
    for host in ("192.0.2.1", "2001:db8::1"):
        with pytest.raises(PortBusy):
            open_pair(host)


def test_addresses_are_compared_in_one_writing() -> None:
    assert canonical_host("2001:DB8:0::1") == "2001:db8::1"
    assert canonical_host("::ffff:192.0.2.1") == "192.0.2.1"
    assert plain_host("::ffff:192.0.2.1") == "192.0.2.1"
    assert plain_host("::ffff:c000") == "::ffff:c000"
    assert family("192.0.2.1") is socket.AF_INET
    assert family("::1") is socket.AF_INET6
    assert family("phone.example") is None
    assert family("") is None
