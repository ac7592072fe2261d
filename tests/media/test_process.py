"""The media process from outside: started, fed, held, hurt and ended as a call would."""

from __future__ import annotations

import asyncio
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from qwen3tts_pacer import Frame
from qwen3tts_pacer.memory import CONTEXTS
from qwen3tts_phone.errors import PortBusy
from qwen3tts_phone.media import process as process_module
from qwen3tts_phone.media import rtcp
from qwen3tts_phone.media.control import LegClosed, MediaLost, MediaRefused
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.process import MediaProcess
from qwen3tts_phone.media.types import ContextPlayed, LegSpec, MediaSettings
from tests.media.peer import (
    HEAD,
    PATIENCE_S,
    SILENCE,
    TAIL,
    Peer,
    event_of,
    jump,
    numbers,
    speech,
    until,
)

pytestmark = pytest.mark.network


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_frames_come_out_in_order_one_a_slot_without_a_hole(
    leg: MediaLeg, peer: Peer
) -> None:
    leg.begin(1)
    assert leg.write(speech(40)) == 40
    leg.finish(1)
    first = await peer.hear_speech()
    packets = [first, *await peer.hear_many(39)]
    assert numbers(packets) == list(range(40))
    assert [p.sequence for p in packets] == [(first.sequence + n) % 65536 for n in range(40)]
    for earlier, later in itertools.pairwise(packets):
        ticks = (later.timestamp - earlier.timestamp) % 2**32
        assert ticks % 160 == 0
        # RFC 3551 section 4.1: sent without a break no talkspurt begins; a slot that the machine
        # was too late for is a break.
        assert later.marker == (ticks != 160)
    assert not first.marker
    assert {p.ssrc for p in packets} == {first.ssrc}
    after = await peer.hear_many(2)
    assert after[0].payload[:1] == TAIL  # the last frame's fade
    assert after[1].payload == SILENCE


async def test_silence_flows_while_nobody_writes(leg: MediaLeg, peer: Peer) -> None:
    packets = await peer.hear_many(10)
    assert {p.payload for p in packets} == {SILENCE}
    assert {p.payload_type for p in packets} == {0}


async def test_a_stalled_parent_is_heard_as_a_fade_and_silence_then_speech_fades_in(
    leg: MediaLeg, peer: Peer
) -> None:
    leg.begin(1)
    leg.write(speech(5))
    await peer.hear_speech()
    before = await peer.hear_many(4)
    stalled = await peer.hear_many(5)
    assert numbers(before) == [1, 2, 3, 4]
    assert stalled[0].payload == TAIL + b"\x04" * 159
    assert {p.payload for p in stalled[1:]} == {SILENCE}
    leg.write(speech(10, first=5))
    back = await peer.hear_speech()
    assert back.payload == HEAD + b"\x05" * 159
    assert numbers(await peer.hear_many(3)) == [6, 7, 8]
    assert (await leg.measure()).starvations == 1


async def test_after_an_interrupt_no_speech_follows_the_fade(leg: MediaLeg, peer: Peer) -> None:
    leg.begin(7)
    leg.write(speech(300, context=7))
    await peer.hear_speech()
    await peer.hear_many(9)
    epoch = leg.interrupt()
    rest = await peer.hear_many(12)
    # What was on its way when the interrupt was called, then the fade, then nothing.
    fade = next(index for index, p in enumerate(rest) if p.payload[:1] == TAIL)
    assert fade <= 1
    assert {p.payload for p in rest[fade + 1 :]} == {SILENCE}
    dropped = await leg.dropped(epoch)
    (fact,) = dropped.contexts
    last = 10 + fade
    assert (fact.context, fact.frames, fact.samples, fact.played) == (
        7,
        300 - last,
        (300 - last) * 480,
        last * 480,
    )
    assert leg.position(7) == fact.played


async def test_what_is_written_after_an_interrupt_plays(leg: MediaLeg, peer: Peer) -> None:
    leg.begin(1)
    leg.write(speech(300))
    await peer.hear_speech()
    epoch = leg.interrupt()
    assert leg.write(speech(5, first=300)) == 5  # a producer that does not know yet
    assert leg.refused == 5
    leg.finish(1)
    leg.begin(2)
    leg.write(speech(5, context=2, first=100))
    leg.finish(2)
    seen: list[int] = []
    while 104 not in seen:
        seen += numbers([await peer.hear()])
    assert [number for number in seen if 100 <= number < 200] == [100, 101, 102, 103, 104]
    assert (await leg.dropped(epoch)).contexts[0].context == 1
    assert (await event_of(leg, ContextPlayed)).context == 2


async def test_an_utterance_interrupted_before_its_first_frame_was_not_heard(
    process: MediaProcess, peer: Peer
) -> None:
    leg = await process.open(LegSpec(pinned_s=1.0))
    await leg.start(peer.media())
    leg.begin(1)
    leg.write(speech(4))
    (fact,) = (await leg.dropped(leg.interrupt())).contexts
    assert (fact.frames, fact.samples, fact.played) == (4, 1920, 0)
    assert leg.first_sent(1) is None
    assert leg.position(1) == 0


async def test_two_interrupts_at_once_each_have_their_fact(leg: MediaLeg) -> None:
    leg.begin(1)
    leg.write(speech(50))
    first = leg.interrupt()
    leg.begin(2)
    leg.write(speech(30, context=2))
    second = leg.interrupt()
    async with asyncio.timeout(PATIENCE_S):
        facts = [await leg.dropped(first), await leg.dropped(second)]
    assert [fact.contexts[0].context for fact in facts] == [1, 2]
    second_fact = facts[1].contexts[0]  # on a busy machine a slot may fall between the two
    assert second_fact.frames + second_fact.played // 480 == 30
    with pytest.raises(ValueError, match="no interruption"):
        await leg.dropped(99)


async def test_the_first_frame_and_the_position_are_told_as_they_go_out(
    leg: MediaLeg, peer: Peer
) -> None:
    before = time.monotonic()
    assert leg.first_sent(1) is None
    leg.begin(1)
    assert leg.position(1) == 0
    leg.write(speech(10))
    leg.finish(1)
    await peer.hear_speech()
    await event_of(leg, ContextPlayed)
    first = leg.first_sent(1)
    assert first is not None
    assert before < first < time.monotonic()
    assert leg.position(1, now=first + 60.0) == 10 * 480
    sent = leg.sent(1)
    assert sent is not None
    assert (sent.frames, sent.end) == (10, 4800)
    assert leg.position(1, now=sent.last_ns / 1e9 + 0.01) == 9 * 480 + 240
    assert leg.sent(55) is None


async def test_a_full_ring_makes_the_writer_wait_and_loses_nothing(
    process: MediaProcess, peer: Peer
) -> None:
    leg = await process.open(LegSpec(pinned_s=0.0, ring_slots=128))
    await leg.start(peer.media())
    leg.begin(1)
    frames = speech(150)
    waits = 0
    async with asyncio.timeout(PATIENCE_S):
        while frames:
            del frames[: leg.write(frames)]
            if frames:
                waits += 1
                await leg.room()
    leg.finish(1)
    assert waits
    heard = [await peer.hear_speech(), *await peer.hear_many(149)]
    assert numbers(heard) == list(range(150))


async def test_hold_stops_the_sending_and_resume_goes_on_with_marker_and_elapsed_time(
    process: MediaProcess, leg: MediaLeg, peer: Peer, metronome: Peer
) -> None:
    leg.begin(1)
    leg.write(speech(150))
    heard = [await peer.hear_speech(), *await peer.hear_many(5)]
    await leg.update(peer.media(send=False))
    sent = (await leg.measure()).sent
    await metronome.ticks(8)
    assert (await leg.measure()).sent == sent
    await leg.update(peer.media())
    await peer.hear_jump(heard, 8)
    last, resumed = heard[-2:]
    assert jump(last, resumed).is_integer()
    assert resumed.marker
    assert resumed.sequence == (last.sequence + 1) % 65536
    assert resumed.ssrc == last.ssrc
    # Nothing of the speech was lost meanwhile; it fades in.
    assert resumed.payload[:1] == HEAD
    assert numbers([last, resumed]) == [last.payload[1], last.payload[1] + 1]


async def test_a_leg_that_does_not_send_silence_marks_each_utterance(
    process: MediaProcess, peer: Peer, metronome: Peer
) -> None:
    leg = await process.open(LegSpec(continuous=False, pinned_s=0.0))
    await leg.start(peer.media())
    for context in (1, 2):
        leg.begin(context)
        leg.write(speech(3, context=context))
        leg.finish(context)
        packets = await peer.hear_many(4)
        assert [p.marker for p in packets] == [True, False, False, False]
        assert packets[3].payload[:1] == TAIL
        await metronome.ticks(2)


@pytest.mark.parametrize("ptime_ms", [10, 30, 60])
async def test_other_packet_durations_have_their_own_rhythm(
    process: MediaProcess, peer: Peer, ptime_ms: int
) -> None:
    leg = await process.open(LegSpec(pinned_s=0.0))
    await leg.start(peer.media(ptime_ms=ptime_ms, payload_type=8, payload_name="PCMA"))
    leg.begin(1)
    ticks = 8 * ptime_ms
    leg.write([Frame(bytes([n]) * ticks, None, None, 1, n, n + 1) for n in range(5)])
    leg.finish(1)
    while (packet := await peer.hear()).payload == b"\xd5" * ticks:
        pass
    packets = [packet, *await peer.hear_many(4)]
    assert [each.payload for each in packets] == [bytes([n]) * ticks for n in range(5)]
    assert {each.payload_type for each in packets} == {8}
    assert (packets[1].timestamp - packet.timestamp) % 2**32 % ticks == 0


async def test_a_stalled_machine_skips_slots_and_never_sends_a_burst(
    process: MediaProcess, leg: MediaLeg, peer: Peer
) -> None:
    leg.begin(1)
    leg.write(speech(150))
    heard = [await peer.hear_speech(), *await peer.hear_many(4)]
    async with await MediaProcess.start() as other:  # it tells the time meanwhile
        metronome = Peer()
        await (await other.open()).start(metronome.media())
        await metronome.hear()
        os.kill(process.pid, signal.SIGSTOP)
        try:
            await metronome.ticks(15)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        metronome.hang_up()
    await peer.hear_jump(heard, 10)
    heard += await peer.hear_many(10)
    steps = [jump(earlier, later) for earlier, later in itertools.pairwise(heard)]
    for step, packet in zip(steps, heard[1:], strict=True):
        assert packet.marker == (step != 1)
    # Not one frame was lost, none came twice, and they come no faster than they are spoken.
    assert numbers(heard) == list(range(len(heard)))
    assert (await leg.measure()).skipped_slots >= 10


async def test_a_start_that_is_cancelled_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spawned: list[subprocess.Popen[bytes]] = []
    spawn = process_module._spawn

    def remembering(*arguments: Any) -> subprocess.Popen[bytes]:
        spawned.append(spawn(*arguments))
        return spawned[0]

    monkeypatch.setattr(process_module, "_spawn", remembering)
    starting = asyncio.create_task(MediaProcess.start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert spawned[0].returncode is not None


async def test_the_ports_are_a_pair_and_in_the_range(process: MediaProcess) -> None:
    leg = await process.open()
    assert leg.local_port % 2 == 0
    for port in (leg.local_port, leg.local_port + 1):
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
            pytest.raises(OSError, match="in use"),
        ):
            other.bind(("127.0.0.1", port))
    low = leg.local_port
    with pytest.raises(PortBusy, match=f"from {low} to {low + 1}"):
        await process.open(LegSpec(port_range=(low, low + 1)))
    await leg.close()
    again = await process.open(LegSpec(port_range=(low, low + 1)))
    assert again.local_port == low


async def test_an_address_that_is_not_ours_is_refused_with_a_remedy(process: MediaProcess) -> None:
    with pytest.raises(PortBusy, match="address of this machine"):
        await process.open(LegSpec(local_host="192.0.2.1"))


async def test_reports_go_to_the_port_agreed_and_name_the_stream(
    process: MediaProcess, peer: Peer
) -> None:
    leg = await process.open(LegSpec(rtcp_interval_s=0.5))
    peer.dial(leg)
    await leg.start(peer.media())
    ssrc = (await peer.hear()).ssrc
    for _ in range(3):
        peer.say()
    report, description = rtcp.parse(await peer.hear_report())
    assert isinstance(report, rtcp.SenderReport)
    assert report.ssrc == ssrc
    assert report.packets > 0
    assert [block.ssrc for block in report.blocks] == [peer.ssrc]
    assert isinstance(description, rtcp.Description)
    assert description.names[0][0] == ssrc
    peer.raw_report(
        rtcp.build(
            [
                rtcp.ReceiverReport(
                    peer.ssrc,
                    (rtcp.ReportBlock(ssrc, 64, 3, 0, 80, rtcp.middle(report.ntp), 0),),
                )
            ]
        )
    )
    stats = await until(leg, lambda stats: stats.rtcp_in > 0)
    assert (stats.remote_lost, stats.remote_fraction_lost) == (3, 0.25)
    assert stats.remote_jitter_ms == 10.0
    assert stats.round_trip_ms is not None
    assert 0 < stats.round_trip_ms < 5000
    await leg.close()
    last = rtcp.parse(await peer.hear_report())
    while not isinstance(last[-1], rtcp.Bye):
        last = rtcp.parse(await peer.hear_report())
    assert last[-1] == rtcp.Bye((ssrc,))


async def test_twenty_calls_at_once_each_hear_their_own(process: MediaProcess) -> None:
    peers = [Peer() for _ in range(20)]
    legs = []
    for index, peer in enumerate(peers):
        leg = await process.open(LegSpec(pinned_s=0.0))
        await leg.start(peer.media())
        leg.begin(1)
        leg.write(speech(20, first=index * 5))
        leg.finish(1)
        legs.append(leg)
    for index, peer in enumerate(peers):
        heard = [await peer.hear_speech(), *await peer.hear_many(19)]
        assert numbers(heard) == list(range(index * 5, index * 5 + 20))
        peer.hang_up()
    assert len({leg.local_port for leg in legs}) == 20


async def test_a_call_whose_port_refuses_does_not_disturb_another(
    process: MediaProcess, leg: MediaLeg, peer: Peer
) -> None:
    dead = Peer()
    refused = await process.open(LegSpec(pinned_s=0.0))
    await refused.start(dead.media())
    dead.hang_up()
    leg.begin(1)
    leg.write(speech(30))
    heard = [await peer.hear_speech(), *await peer.hear_many(29)]
    assert numbers(heard) == list(range(30))
    assert (await refused.measure()).sent > 10


async def test_a_destination_that_cannot_be_reached_is_counted_and_the_call_goes_on(
    process: MediaProcess, leg: MediaLeg, peer: Peer
) -> None:
    lost = await process.open(LegSpec(symmetric=False))
    await lost.start(peer.media().__class__("255.255.255.255", 9))
    await peer.hear_many(5)
    await until(lost, lambda stats: stats.send_errors > 0)
    assert (await peer.hear()).payload == SILENCE


async def test_misuse_is_refused_and_the_leg_goes_on(
    process: MediaProcess, leg: MediaLeg, peer: Peer
) -> None:
    with pytest.raises(ValueError, match="not begun"):
        leg.write(speech(1, context=5))
    leg.begin(5)
    with pytest.raises(ValueError, match="numbers must rise"):
        leg.begin(5)
    with pytest.raises(ValueError, match="several contexts"):
        leg.write([*speech(1, context=5), *speech(1, context=6)])
    leg.finish(5)
    with pytest.raises(ValueError, match="finished"):
        leg.finish(5)
    with pytest.raises(MediaRefused, match="use update"):
        await leg.start(peer.media())
    await leg.update(peer.media(ptime_ms=30))
    assert leg.remote is not None
    assert leg.remote.ptime_ms == 20
    fresh = await process.open()
    with pytest.raises(ValueError, match="not started"):
        fresh.begin(1)
    with pytest.raises(MediaRefused, match="not started"):
        await fresh.update(peer.media())
    assert (await peer.hear()).payload == SILENCE


async def test_a_closed_leg_says_so_and_keeps_its_figures(leg: MediaLeg, peer: Peer) -> None:
    leg.begin(1)
    leg.write(speech(5))
    await peer.hear_speech()
    await leg.close()
    await leg.close()
    assert leg.stats().speech_sent >= 1
    assert leg.position(1, now=time.monotonic() + 1) >= 480
    with pytest.raises(LegClosed):
        leg.write(speech(1))
    with pytest.raises(LegClosed):
        await leg.wait_inbound()
    assert [event async for event in leg.events] == []


async def test_a_process_that_dies_is_noticed_with_its_cause_by_all_who_wait(
    process: MediaProcess, leg: MediaLeg
) -> None:
    waiting = asyncio.create_task(leg.wait_inbound())
    await asyncio.sleep(0)
    os.kill(process.pid, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_S):
        await process.lost.wait()
        with pytest.raises(MediaLost, match="SIGKILL"):
            await waiting
    with pytest.raises(MediaLost, match="Start another one"):
        await process.open()
    with pytest.raises(MediaLost):
        leg.begin(1)
    await leg.close()


async def test_closing_ends_the_process(peer: Peer) -> None:
    process = await MediaProcess.start()
    leg = await process.open()
    await leg.start(peer.media())
    pid = process.pid
    await process.close()
    assert not alive(pid)
    assert not process.lost.is_set()
    with pytest.raises(MediaLost, match="closed"):
        await process.open()


def test_the_process_ends_with_its_parent() -> None:
    program = """
import asyncio, sys
from qwen3tts_phone.media.process import MediaProcess
async def main():
    process = await MediaProcess.start()
    print(process.pid, flush=True)
    sys.stdin.read(1)
asyncio.run(main())
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with parent:
        assert parent.stdout is not None
        watched = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    ended, _, _ = select.select([watched], [], [], PATIENCE_S)
    os.close(watched)
    assert ended


async def test_what_filling_has_learnt_goes_from_call_to_call(
    process: MediaProcess, peer: Peer
) -> None:
    leg = await process.open()
    await leg.start(peer.media())
    leg.begin(1, key="server/voice")
    leg.write(speech(5))
    leg.finish(1)
    await event_of(leg, ContextPlayed)
    await leg.close()
    assert len(process.learnt) == 1
    again = await process.open()
    await again.start(peer.media())
    await again.close()
    assert len(process.learnt) == 1


def test_it_can_be_started_outside_the_main_thread() -> None:
    ended: list[bool] = []

    async def start() -> None:
        async with await MediaProcess.start() as process:
            pid = process.pid
            await process.open()
        ended.append(not alive(pid))

    thread = threading.Thread(target=lambda: asyncio.run(start()))
    thread.start()
    thread.join(PATIENCE_S)
    assert ended == [True]


async def test_the_scheduling_asked_for_is_reported() -> None:
    async with await MediaProcess.start(MediaSettings(scheduling="plain")) as process:
        assert process.rt == "plain"
        assert os.sched_getscheduler(process.pid) == os.SCHED_OTHER


async def test_the_process_loads_nothing_heavy(process: MediaProcess) -> None:
    maps = Path(f"/proc/{process.pid}/maps").read_text("utf-8")
    assert "numpy" not in maps


async def test_a_process_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(MediaLost, match="cannot be started"):
        await MediaProcess.start()


async def test_a_process_that_ends_at_once_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(MediaLost, match="ended with status 1"):
        await MediaProcess.start()


async def test_a_call_given_up_while_it_is_opened_leaves_nothing_in_the_process(
    process: MediaProcess,
) -> None:
    before = len(os.listdir(f"/proc/{process.pid}/fd"))
    opening = asyncio.create_task(process.open())
    await asyncio.sleep(0)  # the command is on its way
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with asyncio.timeout(PATIENCE_S):
        while process._abandoning:
            await asyncio.wait(process._abandoning)
    assert len(os.listdir(f"/proc/{process.pid}/fd")) == before
    assert not process.legs


async def test_a_leg_is_closed_to_the_end_though_whoever_waits_is_cancelled(
    process: MediaProcess, leg: MediaLeg
) -> None:
    closing = asyncio.create_task(leg.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await leg.close()
    assert leg.over
    assert not process.legs


async def test_a_command_too_long_for_a_message_is_refused_and_the_process_lives(
    leg: MediaLeg, peer: Peer
) -> None:
    with pytest.raises(MediaRefused, match="bytes"):
        await leg.send_dtmf("1" * 100_000)
    with pytest.raises(MediaRefused, match="something else than the keys"):
        await leg.send_dtmf("x" * 60_000)
    assert (await peer.hear()).payload == SILENCE


async def test_what_is_learnt_of_many_voices_stays_small_enough_to_hand_on(
    process: MediaProcess, leg: MediaLeg, peer: Peer
) -> None:
    for number in range(2000):
        process.forget(leg, {f"{number:x}": {"seen": 9, "need": {"1": 0.5}, "rise": {"2": 0.5}}})
    assert "7cf" in process.learnt
    assert "0" not in process.learnt
    again = await process.open()
    await again.start(peer.media())


async def test_when_as_many_contexts_are_open_as_there_may_be_the_next_one_waits(
    leg: MediaLeg, peer: Peer
) -> None:
    for context in range(CONTEXTS):
        leg.begin(context)
        leg.write(speech(1, context=context))
    with pytest.raises(ValueError, match="are open"):
        leg.begin(CONTEXTS)
    waiting = asyncio.create_task(leg.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    leg.finish(0)
    async with asyncio.timeout(PATIENCE_S):
        await waiting
    leg.begin(CONTEXTS)
