"""A media process whose messages are not read, or that does not answer, is replaced or goes on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from dataclasses import replace

import pytest

from qwen3tts_phone.media import admission
from qwen3tts_phone.media.admission import GOOD_REPORTS, LONG_REPORTS
from qwen3tts_phone.media.control import Control, MediaLost, MediaRefused
from qwen3tts_phone.media.dtmf import KEYS_BURST, EventPacket, build
from qwen3tts_phone.media.leg import EVENTS_KEPT, MediaLeg
from qwen3tts_phone.media.loop import MESSAGE_MOST, REPLIES_MOST, MediaLoop
from qwen3tts_phone.media.process import MediaKeeper, MediaProcess
from qwen3tts_phone.media.reports import MediaLoad
from qwen3tts_phone.media.types import (
    ContextPlayed,
    KeysIgnored,
    LegSpec,
    MediaSettings,
)
from tests.media.peer import PATIENCE_S, Peer, event_of, speech, until

pytestmark = pytest.mark.network


def press(peer: Peer, keys: int) -> None:
    for _ in range(keys):
        payload = build(EventPacket(peer.sequence % 10, True, 10, 800))
        peer.say(payload, payload_type=101)


def until_free(ports: list[int]) -> None:
    until = time.monotonic() + PATIENCE_S
    while ports:
        assert time.monotonic() < until, "the legs were not closed"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(("127.0.0.1", ports[-1]))
            except OSError:
                continue
        ports.pop()


async def test_calls_that_flood_keys_and_hang_up_while_nothing_is_read_do_not_wedge_it(
    process: MediaProcess, metronome: Peer
) -> None:
    loop = asyncio.get_running_loop()
    pairs: list[tuple[MediaLeg, Peer]] = []
    for _ in range(10):
        peer = Peer()
        leg = await process.open(LegSpec(pinned_s=0.0))
        peer.dial(leg)
        await leg.start(peer.media())
        pairs.append((leg, peer))
    control = process._control
    loop.remove_reader(control._sock.fileno())  # this side does not read
    for leg, peer in pairs:
        for _ in range(5):
            press(peer, 60)
            await metronome.ticks(2)
        while leg.stats().received < 100:
            await metronome.ticks(1)
    closing = [asyncio.create_task(leg.close()) for leg in process.legs]
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.to_thread(until_free, [leg.local_port for leg, _ in pairs])
        loop.add_reader(control._sock.fileno(), control._readable)
        await asyncio.gather(*closing)
        again = await process.open()
        await again.start(pairs[0][1].media())
        await again.close()
    for _, peer in pairs:
        peer.hang_up()


def test_messages_that_wait_are_sent_though_no_call_is_on_the_wheel() -> None:
    parent, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with parent, control:
        parent.settimeout(PATIENCE_S)
        loop = MediaLoop(control, -1, 20, 0.002, report_every_s=3600.0)
        told = [
            loop.tell({"type": "event", "leg": leg, "name": "Dtmf", "text": "x" * 500})
            for leg in range(20)
            for _ in range(120)
        ]
        assert not all(told)  # what did not find room is known to be dropped
        for number in range(REPLIES_MOST + 50):
            assert loop.tell({"type": "reply", "to": number, "leg": 1})
        running = threading.Thread(target=loop.run)
        running.start()
        received = [json.loads(parent.recv(MESSAGE_MOST))]
        while len(received) < sum(told) + REPLIES_MOST + 50:
            received.append(json.loads(parent.recv(MESSAGE_MOST)))
        replies = [each["to"] for each in received if each["type"] == "reply"]
        assert replies == list(range(REPLIES_MOST + 50))
        # The replies overtook the events that the socket had no room for.
        assert received[-1]["type"] == "event"
        parent.send(json.dumps({"type": "close", "leg": 1, "id": 7}).encode())
        assert json.loads(parent.recv(MESSAGE_MOST))["error"] == "the leg is closed"
        parent.shutdown(socket.SHUT_RDWR)
        running.join(PATIENCE_S)
        assert not running.is_alive()


def test_commands_wait_while_their_answers_are_not_read_and_are_then_all_answered() -> None:
    parent, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    count = REPLIES_MOST + 500
    with parent, control:
        parent.settimeout(PATIENCE_S)
        loop = MediaLoop(control, -1, 20, 0.002, report_every_s=3600.0)
        running = threading.Thread(target=loop.run)
        running.start()

        def ask() -> None:
            for number in range(count):
                parent.send(json.dumps({"type": "close", "leg": 1, "id": number}).encode())

        asking = threading.Thread(target=ask)
        asking.start()
        answered = [json.loads(parent.recv(MESSAGE_MOST))["to"] for _ in range(count)]
        assert answered == list(range(count))
        asking.join(PATIENCE_S)
        parent.shutdown(socket.SHUT_RDWR)
        running.join(PATIENCE_S)
        assert not running.is_alive()


def test_an_answer_that_is_too_long_for_a_message_becomes_an_error() -> None:
    parent, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with parent, control:
        parent.settimeout(PATIENCE_S)
        loop = MediaLoop(control, -1, 20, 0.002)
        loop.tell({"type": "reply", "to": 3, "leg": 1, "learnt": {"x": "y" * MESSAGE_MOST}})
        told = json.loads(parent.recv(MESSAGE_MOST))
        assert (told["to"], told["refused"]) == (3, False)
        assert "bytes" in told["error"]
        loop._epoll.close()


async def test_keys_beyond_what_a_person_presses_are_counted_and_told_of_once(
    process: MediaProcess, leg: MediaLeg, peer: Peer
) -> None:
    peer.say()
    press(peer, KEYS_BURST + 60)
    stats = await until(leg, lambda stats: stats.received > KEYS_BURST + 60)
    assert stats.keys_ignored + stats.dtmf_in == KEYS_BURST + 60
    assert stats.keys_ignored > 0
    await event_of(leg, KeysIgnored)
    press(peer, 60)
    await until(leg, lambda later: later.keys_ignored > stats.keys_ignored + 20)
    await leg.close()
    assert KeysIgnored not in [type(event) async for event in leg.events]


async def test_a_reader_of_events_that_does_not_come_loses_no_fact_of_our_own(
    process: MediaProcess, leg: MediaLeg, peer: Peer
) -> None:
    for number in range(EVENTS_KEPT + 30):
        leg.message("event", {"name": "Dtmf", "digit": "1", "duration_ms": 80, "at": float(number)})
    leg.begin(1)
    leg.write(speech(2))
    leg.finish(1)
    assert (await event_of(leg, ContextPlayed)).context == 1
    assert leg.stats().events_dropped == 30


async def test_a_process_that_is_stuck_is_killed_and_all_who_wait_know_why() -> None:
    process = await MediaProcess.start(MediaSettings(answer_timeout_s=0.3))
    peer = Peer()
    leg = await process.open()
    await leg.start(peer.media())
    os.kill(process.pid, signal.SIGSTOP)
    async with asyncio.timeout(PATIENCE_S):
        waiting = asyncio.gather(
            process.open(), leg.close(), leg.send_dtmf("1"), return_exceptions=True
        )
        await process.lost.wait()
        opened, closed, pressed = await waiting
    assert isinstance(opened, MediaLost)
    assert "0.3 s" in str(opened)
    assert closed is None
    assert isinstance(pressed, MediaLost)
    assert process._process.returncode == -signal.SIGKILL
    await process.close()
    peer.hang_up()


async def test_closing_a_process_that_is_stuck_ends() -> None:
    process = await MediaProcess.start(MediaSettings(answer_timeout_s=0.3))
    await process.open()
    os.kill(process.pid, signal.SIGSTOP)
    async with asyncio.timeout(PATIENCE_S):
        await process.close()
    assert process._process.returncode == -signal.SIGKILL


async def test_a_stall_of_this_side_is_no_silence_of_the_other() -> None:
    hung: list[str] = []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        ours.setblocking(False)
        control = Control(
            ours, 60.0, message=lambda message: None, ended=lambda: None, hung=hung.append
        )
        control.watch()
        for _ in range(50):  # every look finds what came meanwhile
            theirs.send(b'{"type": "load"}')
            control._look()
        assert not hung
        for _ in range(11):
            control._look()
        assert hung == ["has sent nothing for 60 s"]
        control.close(MediaLost("over"))


async def test_a_command_without_an_answer_counts_as_stuck_though_reports_come() -> None:
    hung: list[str] = []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        ours.setblocking(False)
        control = Control(
            ours, 60.0, message=lambda message: None, ended=lambda: None, hung=hung.append
        )
        control.watch()
        asking = asyncio.create_task(control.request({"type": "close", "leg": 1}))
        patient = asyncio.create_task(control.request({"type": "dtmf"}, limited=False))
        await asyncio.sleep(0)
        for _ in range(11):
            theirs.send(b'{"type": "load"}')
            control._look()
        assert not hung
        control._look()
        assert hung == ["has not answered a command for 60 s"]
        control.close(MediaLost("over"))
        for task in (asking, patient):
            with pytest.raises(MediaLost, match="over"):
                await task


async def test_commands_wait_for_room_in_the_socket_and_one_given_up_is_not_sent() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        theirs.settimeout(PATIENCE_S)
        ours.setblocking(False)
        control = Control(
            ours, 60.0, message=lambda message: None, ended=lambda: None, hung=lambda why: None
        )
        asking = [
            asyncio.create_task(control.request({"type": "x", "pad": "p" * 10_000}))
            for _ in range(60)
        ]
        await asyncio.sleep(0)
        assert control._unsent
        given_up = asking[-1]
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        for _ in range(59):
            asked = json.loads(await asyncio.to_thread(theirs.recv, MESSAGE_MOST))
            theirs.send(json.dumps({"type": "reply", "to": asked["id"], "leg": 1}).encode())
        answers = await asyncio.gather(*asking[:-1])
        assert len(answers) == 59
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(MESSAGE_MOST)
        control.close(MediaLost("over"))


CALLS = 60


async def test_it_reports_its_load_and_refuses_calls_while_it_cannot_pace_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "LEAST_CALLS", 0)
    keeper = await MediaKeeper.start(MediaSettings(answer_timeout_s=60.0))
    try:
        load = MediaLoad(at_ns=1)
        report = keeper.process.on_load
        for second in range(1, 4):
            load = replace(load, at_ns=10**9 * second, cpu_ns=10**9 * second, calls=CALLS)
            report(load)
        with pytest.raises(MediaRefused, match=f"{CALLS} calls") as refused:
            await keeper.open(LegSpec())
        assert refused.value.remedy
        for _ in range(GOOD_REPORTS + LONG_REPORTS):
            load = replace(load, at_ns=load.at_ns + 10**9, calls=0)
            report(load)
        await (await keeper.open(LegSpec())).close()
    finally:
        await keeper.close()


async def test_a_process_that_is_lost_while_calls_were_refused_is_replaced_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "LEAST_CALLS", 0)
    keeper = await MediaKeeper.start(MediaSettings())
    try:
        for second in range(1, 4):
            keeper.process.on_load(
                MediaLoad(10**9 * second, 10**9 * second, CALLS, slots=1000 * second)
            )
        assert keeper.is_full
        lost = keeper.pid
        os.kill(lost, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            await keeper.process.lost.wait()
            leg = await keeper.open(LegSpec())
        assert keeper.pid != lost
        await leg.close()
    finally:
        await keeper.close()
