"""The figures of a call, as the parent reads them."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from qwen3tts_phone.media import rtcp
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.process import MediaProcess
from qwen3tts_phone.media.rtcp import ReceiverReport, ReportBlock
from qwen3tts_phone.media.types import LegSpec
from tests.media.peer import Peer, until

pytestmark = pytest.mark.network


async def test_before_anything_comes_or_goes_nothing_is_made_up(process: MediaProcess) -> None:
    leg = await process.open()
    stats = leg.stats()
    assert stats.first_sent_at is None
    assert stats.first_received_at is None
    assert stats.last_received_at is None
    assert stats.remote_address is None
    assert stats.round_trip_ms is None
    assert stats.round_trip_max_ms is None
    assert (stats.fraction_lost, stats.source_changes) == (0.0, 0)


async def test_the_first_and_the_last_packets_are_dated_and_bytes_counted(
    process: MediaProcess, peer: Peer
) -> None:
    began = time.monotonic()
    leg = await process.open()
    peer.dial(leg)
    await leg.start(peer.media())
    await peer.hear()
    for _ in range(4):
        peer.say(b"\x01" * 100)
    stats = await until(leg, lambda stats: stats.received == 4)
    assert stats.first_sent_at is not None
    assert stats.first_received_at is not None
    assert stats.last_received_at is not None
    assert began <= stats.first_sent_at <= time.monotonic()
    assert began <= stats.first_received_at <= stats.last_received_at <= time.monotonic()
    assert stats.octets_received == 400
    assert stats.octets_sent == 160 * stats.sent
    assert stats.remote_address == ("127.0.0.1", peer.port)
    await leg.close()
    assert leg.stats().remote_address == ("127.0.0.1", peer.port)


async def test_runs_of_lost_packets_are_counted_as_such(leg: MediaLeg, peer: Peer) -> None:
    for missing in (0, 1, 3, 0):
        peer.sequence = (peer.sequence + missing) % 2**16
        peer.timestamp = (peer.timestamp + 160 * missing) % 2**32
        peer.say()
    stats = await until(leg, lambda stats: stats.burst_lost == 4)
    assert (stats.loss_bursts, stats.lost, stats.concealed) == (2, 4, 4)
    assert stats.fraction_lost == 0.5


async def test_what_the_far_end_reports_is_kept_at_its_worst(leg: MediaLeg, peer: Peer) -> None:
    ssrc = (await peer.hear()).ssrc
    for fraction, lost in ((64, 5), (128, 9), (0, 9)):
        block = ReportBlock(ssrc, fraction, lost, 100, 80, 0, 0)
        peer.raw_report(rtcp.build([ReceiverReport(peer.ssrc, (block,))]))
    stats = await until(leg, lambda stats: stats.rtcp_in == 3)
    assert (stats.remote_fraction_lost, stats.remote_fraction_max) == (0.0, 0.5)
    assert (stats.remote_lost, stats.remote_jitter_ms) == (9, 10.0)


async def test_the_far_ends_jitter_is_read_in_the_clock_that_we_send_with(
    process: MediaProcess, peer: Peer
) -> None:
    leg = await process.open(LegSpec(rtcp_interval_s=0.0))
    peer.dial(leg)
    wide = peer.media(payload_type=111, payload_name="opus", clock_hz=48_000, silence="d8fffe")
    await leg.start(wide)
    ssrc = (await peer.hear()).ssrc
    report = ReceiverReport(peer.ssrc, (ReportBlock(ssrc, 0, 0, 100, 480, 0, 0),))
    peer.raw_report(rtcp.build([report]))
    stats = await until(leg, lambda stats: stats.rtcp_in == 1)
    assert stats.remote_jitter_ms == 10.0


async def test_another_source_is_a_change(leg: MediaLeg, peer: Peer) -> None:
    peer.say()
    await until(leg, lambda stats: stats.received == 1)
    other = Peer()
    other.dial(leg)
    await leg.update(other.media())
    other.say()
    stats = await until(leg, lambda stats: stats.received == 2)
    assert (stats.source_changes, stats.remote_address) == (1, ("127.0.0.1", other.port))
    other.hang_up()


async def test_comfort_noise_is_counted_both_ways(process: MediaProcess, peer: Peer) -> None:
    leg = await process.open()
    peer.dial(leg)
    await leg.start(peer.media(comfort_noise_pt=13))
    assert (await peer.hear()).payload_type == 13
    peer.say(b"\x40", payload_type=13)
    stats = await until(leg, lambda stats: stats.cn_in == 1)
    assert stats.cn_out >= 1
    assert stats.sent == stats.cn_out
    (frame,) = leg.read_inbound()
    assert (frame.payload_type, frame.payload) == (13, b"\x40")


async def test_a_strict_leg_sends_where_it_was_told_and_hears_that_host_alone(
    process: MediaProcess, peer: Peer
) -> None:
    leg = await process.open(LegSpec(symmetric=False))
    elsewhere = Peer()  # the same host, another port
    elsewhere.dial(leg)
    await leg.start(peer.media())
    for _ in range(3):
        elsewhere.say()
    stats = await until(leg, lambda stats: stats.received >= 2)
    assert stats.remote_address == ("127.0.0.1", elsewhere.port)
    await peer.ticks(3)  # what we send still goes to the announced port
    await leg.update(replace(peer.media(), host="127.0.0.9"))
    elsewhere.say()
    stats = await until(leg, lambda stats: stats.received + stats.strangers == 3)
    assert (stats.received, stats.strangers) == (2, 1)
    elsewhere.hang_up()
