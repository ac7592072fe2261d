"""Connections that never become calls: bounded, timed, and in no caller's way."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.limits import MAX_CLOSING, ConnectionLimiter, PendingConnections, PendingLimits
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.streams.server import LATER_S, UNBEGUN_BURST, UNBEGUN_PER_S
from tests.fakes import FakeClock, settle
from tests.sip.certificates import Authority
from tests.streams.asterisk_side import audiosocket, media
from tests.streams.test_server import serving

HALF = b"GET /asterisk HTTP/1.1\r\nHost: x\r\n"


# --- the core


def test_an_address_that_stands_for_many_may_have_all_places_and_no_other_may() -> None:
    limits = PendingLimits(total=6, per_host=3, wait_s=10.0, is_proxy=lambda host: host == "proxy")
    pending = PendingConnections(limits)
    assert [pending.accepted(number, "proxy", 0.0) for number in range(4)] == [None] * 4
    assert [pending.accepted(number, "other", 0.0) for number in range(4, 6)] == [None] * 2
    assert pending.accepted(6, "other", 0.0) == 0, "the address with the most makes room"


@given(
    st.lists(
        st.tuples(st.sampled_from(["accept", "begin", "time"]), st.integers(0, 4)), max_size=120
    )
)
def test_no_more_wait_than_the_limits_say_and_none_longer(steps: list[tuple[str, int]]) -> None:
    limits = PendingLimits(total=6, per_host=3, wait_s=10.0)
    pending, now = PendingConnections(limits), 0.0
    waiting: dict[int, tuple[str, float]] = {}
    for number, (what, which) in enumerate(steps):
        if what == "accept":
            victim = pending.accepted(number, f"host {which}", now)
            if victim is not None:
                assert isinstance(victim, int)
                host, _ = waiting.pop(victim)
                assert all(each > victim for each, (other, _) in waiting.items() if other == host)
            waiting[number] = (f"host {which}", now)
        elif what == "begin" and waiting:
            key = sorted(waiting)[which % len(waiting)]
            pending.left(key)
            del waiting[key]
        elif what == "time":
            now += which
            for late in pending.overdue(now):
                assert isinstance(late, int)
                assert now - waiting.pop(late)[1] >= limits.wait_s
        assert len(pending) == len(waiting) <= limits.total
        assert max(Counter(host for host, _ in waiting.values()).values(), default=0) <= 3
    assert len(pending.overdue(now + 10.0)) == len(waiting)


def test_a_crowd_from_one_address_makes_room_for_another() -> None:
    pending = PendingConnections(PendingLimits(total=4, per_host=4, wait_s=10.0))
    for number in range(4):
        pending.accepted(number, "crowd", 0.0)
    assert pending.accepted("caller", "other", 0.0) == 0
    assert pending.accepted(5, "crowd", 0.0) == 1, "the caller stays"


# --- on sockets


@pytest.mark.network
async def test_half_requests_neither_use_up_descriptors_nor_keep_callers_out() -> None:
    async with serving("audiosocket", "asterisk") as here:
        door: ConnectionLimiter = here.streams._door
        writers: list[asyncio.StreamWriter] = []
        most = 0
        try:
            for number in range(500):
                port = (here.streams.port, here.streams.audiosocket_port)[number % 2]
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writers.append(writer)
                writer.write(HALF if number % 2 == 0 else b"")
                await settle(3)
                most = max(most, door.open_sockets)
            settings = here.streams.settings
            assert most <= settings.max_pending_per_address + MAX_CLOSING
            async with audiosocket(here.streams.audiosocket_port) as far:
                far.start()
                far.speak()
                assert (await here.call()).id == str(far.id)
            async with media(here.streams.port) as web:
                await web.start()
                assert (await here.call()).id == "pbx-1.7"
        finally:
            for writer in writers:
                writer.transport.abort()


@pytest.mark.network
async def test_peers_that_say_nothing_take_no_calls_place() -> None:
    async with serving("audiosocket", max_calls=1) as here:
        port = here.streams.audiosocket_port
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        await settle()
        async with audiosocket(port) as far:
            far.start()
            far.speak()
            assert (await here.call()).id == str(far.id)
            async with audiosocket(port) as further:
                further.start()
                further.speak()
                await further.until(further.closed.is_set)
            assert len(here.streams._begun) == 1
        for _, writer in idle:
            writer.transport.abort()


@pytest.mark.network
@pytest.mark.parametrize("sent", [b"", HALF])
@pytest.mark.parametrize("tls", [False, True])
async def test_what_has_not_begun_a_call_in_time_is_closed(
    sent: bytes, tls: bool, tmp_path: Path
) -> None:
    clock = FakeClock()
    more: dict[str, object] = {}
    if tls:
        pair = Authority(tmp_path).sign("streams", "127.0.0.1")
        more = {"certificate": pair.certificate, "key": pair.key}
    async with serving("asterisk", clock=clock, **more) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.streams.port)
        writer.write(sent)
        async with asyncio.timeout(20):
            while not here.streams._door.waiting:
                await settle(1)
            await clock.advance(here.streams.settings.start_s + LATER_S + 1.0)
            assert not [each for each in await _all(reader) if each == b"101"]
            while here.streams._door.open_sockets:
                await settle(1)
        writer.transport.abort()


@pytest.mark.network
async def test_a_call_that_has_begun_has_no_deadline() -> None:
    clock = FakeClock()
    async with serving("asterisk", clock=clock) as here, media(here.streams.port) as far:
        await far.start()
        call = await here.call()
        await clock.advance(30.0)
        await far.speak(1)
        assert here.streams._door.open_sockets == 1
        assert not call.over


async def _all(reader: asyncio.StreamReader) -> list[bytes]:
    try:
        return (await reader.read()).split()
    except (ConnectionError, ssl.SSLError):
        return []


@pytest.mark.network
def test_a_name_is_bound_at_each_of_its_addresses_that_the_machine_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def addresses(*_: object, **__: object) -> list[object]:
        kind = socket.SOCK_STREAM
        lacking = (socket.AF_INET, kind, 6, "", ("192.0.2.77", 0))
        return [lacking, (socket.AF_INET, kind, 6, "", ("127.0.0.1", 0)), lacking]

    door = ConnectionLimiter(PendingLimits(4, 4, 1.0), FakeClock())
    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    (listener,) = door.listen("localhost", 0)
    port = listener.getsockname()[1]
    with pytest.raises(OSError, match="in use"):
        door.listen("localhost", port)
    listener.close()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses()[:1])
    with pytest.raises(OSError, match="assign"):
        door.listen("elsewhere", 0)


@pytest.mark.network
async def test_of_streams_that_never_begin_few_leave_a_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, clock = tmp_path / "records.jsonl", FakeClock()
    records = RecordSettings(log=log)
    async with serving("audiosocket", clock=clock, records=records) as here:

        async def connected(count: int, unlogged: int) -> None:
            for _ in range(count):
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", here.streams.audiosocket_port
                )
                writer.transport.abort()
            async with asyncio.timeout(20):
                while here.streams._unlogged != unlogged:
                    await settle(1)

        await connected(UNBEGUN_BURST + 30, unlogged=30)
        await clock.advance(1 / UNBEGUN_PER_S + 1.0)
        await connected(1, unlogged=0)
    assert len(log.read_text().splitlines()) == UNBEGUN_BURST + 1
    assert "30 streams that never started have no record" in caplog.text
