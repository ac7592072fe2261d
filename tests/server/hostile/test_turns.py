"""A burst is taken a little at a time, in order, and no more is read meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_server.sockets import TURN_BYTES, ReadGate, TurnedProtocol


class Wire:
    """A transport."""

    def __init__(self) -> None:
        self.reading = True
        self.closing = False
        self.protocol: Any = None

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def get_protocol(self) -> Any:
        return self.protocol


class Reader(asyncio.Protocol):
    """Keeps what it gets, each piece of it."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.transport: Any = None
        self.lost = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Patient(TurnedProtocol, Reader):
    """In turns."""


def connected() -> tuple[Patient, Wire]:
    protocol, wire = Patient(), Wire()
    wire.protocol = protocol
    protocol.connection_made(wire)
    return protocol, wire


async def turn() -> None:
    await asyncio.sleep(0)


async def test_little_is_taken_at_once_and_much_in_turns() -> None:
    protocol, wire = connected()
    protocol.data_received(b"a")
    assert protocol.pieces == [b"a"]
    protocol.data_received(b"b" * (2 * TURN_BYTES + 1))
    assert protocol.pieces == [b"a"]
    assert not wire.reading
    for turns in range(1, 4):
        await turn()
        assert [len(each) for each in protocol.pieces[1:]] == [TURN_BYTES, TURN_BYTES, 1][:turns]
    assert wire.reading


async def test_a_protocol_that_wants_no_more_gets_no_more_until_it_does() -> None:
    protocol, wire = connected()
    protocol.data_received(bytes(3 * TURN_BYTES))
    await turn()
    protocol.transport.pause_reading()
    for _ in range(3):
        await turn()
    assert len(protocol.pieces) == 1
    protocol.transport.resume_reading()
    assert not wire.reading
    for _ in range(3):
        await turn()
    assert len(protocol.pieces) == 3
    states = [wire.reading]
    protocol.transport.pause_reading()
    states.append(wire.reading)
    assert states == [True, False]


async def test_a_connection_that_ends_takes_what_it_held_with_it() -> None:
    protocol, wire = connected()
    protocol.data_received(bytes(3 * TURN_BYTES))
    wire.closing = True
    await turn()
    assert not protocol.pieces
    other, _ = connected()
    other.data_received(bytes(3 * TURN_BYTES))
    other.connection_lost(None)
    await turn()
    assert not other.pieces
    assert other.lost


async def test_what_is_held_goes_to_the_protocol_that_comes_after() -> None:
    protocol, wire = connected()
    heir = Patient()

    def become(data: bytes) -> None:
        Reader.data_received(protocol, data)
        wire.protocol = heir
        heir.connection_made(protocol.transport)

    protocol.take = become  # type: ignore[method-assign]
    protocol.data_received(b"a" * TURN_BYTES + b"b" * TURN_BYTES + b"c")
    for _ in range(4):
        await turn()
    assert heir.pieces == [b"b" * TURN_BYTES, b"c"]
    assert wire.reading
    assert isinstance(heir.transport, ReadGate)
    assert heir.transport.inner is wire


@given(st.lists(st.tuples(st.integers(0, 3 * TURN_BYTES), st.integers(0, 3), st.booleans())))
def test_all_comes_in_order_however_it_is_cut(script: list[tuple[int, int, bool]]) -> None:
    async def play() -> None:
        protocol, wire = connected()
        sent = b""
        for size, turns, pause in script:
            if wire.reading:
                data = bytes(at % 251 for at in range(len(sent), len(sent) + size))
                sent += data
                protocol.data_received(data)
            if pause:
                protocol.transport.pause_reading()
            for _ in range(turns):
                await turn()
            if pause and turns != 1:
                protocol.transport.resume_reading()
        protocol.transport.resume_reading()
        while not wire.reading:
            await turn()
        assert b"".join(protocol.pieces) == sent
        assert all(0 <= len(each) <= TURN_BYTES for each in protocol.pieces)

    asyncio.run(play())
