"""Questions to a real name server on 127.0.0.1, and calls that follow its answers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from qwen3tts_phone.errors import CalleeUnreachable, CallError, PortBusy
from qwen3tts_phone.sdp.session import SdpSession
from qwen3tts_phone.sip import SipCall, SipEndpoint, SipSettings
from qwen3tts_phone.sip.core.settings import DnsSettings
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transport import stream
from qwen3tts_phone.sip.transport.dns import (
    KEPT_S,
    NEGATIVE_S,
    NaptrRecord,
    SrvRecord,
    SystemResolver,
)
from qwen3tts_phone.sip.transport.listeners import bind_sockets
from qwen3tts_phone.sip.transport.locator import Locator
from qwen3tts_phone.sip.transport.stream import Connection, StreamTransport
from qwen3tts_phone.sip.transport.udp import TransportCallbacks, UdpTransport
from tests.fakes import FakeClock, settle
from tests.sip.name_server import NameServer
from tests.sip.phones import QUICK, answer_all, good_call, session

pytestmark = pytest.mark.network

OPTIONS = (
    b"OPTIONS sip:a SIP/2.0\r\nVia: SIP/2.0/TCP x;branch=z9hG4bK1\r\nFrom: <sip:x>;tag=1\r\n"
    b"To: <sip:a>\r\nCall-ID: 1\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
)


def closed_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        return int(gone.getsockname()[1])


class Ends:
    """What a transport told its owner."""

    def __init__(self) -> None:
        self.received: list[tuple[bytes, Hop]] = []
        self.failed: list[Hop] = []
        self._changed = asyncio.Event()

    def on_receive(self, data: bytes, hop: Hop) -> None:
        self.received.append((data, hop))
        self._changed.set()

    def on_failed(self, hop: Hop, cause: CallError | None = None) -> None:
        self.failed.append(hop)
        self._changed.set()

    def callbacks(
        self, waited: Callable[[float, int], None] = lambda wait_s, lost: None
    ) -> TransportCallbacks:
        return TransportCallbacks(self.on_receive, self.on_failed, waited=waited)

    async def until(self, received: int = 0, failed: int = 0) -> None:
        """Wait until that many events have come."""
        async with asyncio.timeout(5):
            while len(self.received) < received or len(self.failed) < failed:
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def tcp() -> AsyncIterator[tuple[StreamTransport, Ends, int]]:
    ends = Ends()
    sock = bind_sockets("127.0.0.1", 0, ("tcp",))["tcp"]
    made = StreamTransport(sock, ends.callbacks())
    await made.start()
    yield made, ends, sock.getsockname()[1]
    await made.close()


@pytest.mark.parametrize("transports", [("udp",), ("tcp",), ("udp", "tcp")])
def test_a_port_that_is_taken_is_busy(transports: tuple[str, ...]) -> None:
    taken = bind_sockets("127.0.0.1", 0, transports)
    port = taken[transports[0]].getsockname()[1]
    try:
        with pytest.raises(PortBusy, match=f"127.0.0.1:{port}"):
            bind_sockets("127.0.0.1", port, transports)
    finally:
        for sock in taken.values():
            sock.close()


def test_a_port_whose_tcp_half_is_taken_is_busy_and_nothing_stays_bound() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortBusy):
            bind_sockets("127.0.0.1", port, ("udp", "tcp"))
        bind_sockets("127.0.0.1", port, ("udp",))["udp"].close()


async def test_a_refused_datagram_is_told_with_its_address_and_the_next_one_arrives() -> None:
    ends = Ends()
    sock = bind_sockets("127.0.0.1", 0, ("udp",))["udp"]
    udp = UdpTransport(sock, ends.callbacks())
    gone = closed_port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        there.bind(("127.0.0.1", 0))
        there.settimeout(5)
        here = Hop("udp", "127.0.0.1", there.getsockname()[1])
        for number in range(20):
            udp.send(b"lost", Hop("udp", "127.0.0.1", gone))
            udp.send(b"%d" % number, here)
        assert [there.recv(100) for _ in range(20)] == [b"%d" % n for n in range(20)]
        await ends.until(failed=1)
        assert set(ends.failed) == {Hop("udp", "127.0.0.1", gone)}
    udp.close()


async def test_blank_datagrams_are_keep_alives() -> None:
    ends = Ends()
    sock = bind_sockets("127.0.0.1", 0, ("udp",))["udp"]
    udp = UdpTransport(sock, ends.callbacks())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        for data in (b"", b"\r\n\r\n", b"\0", b"x"):
            there.sendto(data, sock.getsockname())
        await ends.until(received=1)
    assert [data for data, _ in ends.received] == [b"x"]
    udp.close()


async def test_datagrams_that_the_kernel_dropped_are_counted_with_the_next_one() -> None:
    ends = Ends()
    lost: list[int] = []
    sock = bind_sockets("127.0.0.1", 0, ("udp",))["udp"]
    udp = UdpTransport(sock, ends.callbacks(waited=lambda wait_s, more: lost.append(more)))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        for sent in (101, 202):  # the kernel's counter is of the whole time
            for _ in range(100):
                there.sendto(b"more than the buffer holds", sock.getsockname())
            await ends.until(received=len(ends.received) + 1)
            there.sendto(b"one after it was emptied", sock.getsockname())
            await ends.until(received=len(ends.received) + 1)
            assert len(ends.received) + sum(lost) == sent
    assert sum(lost) > 0
    udp.close()


async def test_a_connection_is_used_again(tcp: tuple[StreamTransport, Ends, int]) -> None:
    made, ends, port = tcp
    for _ in range(3):
        made.send(OPTIONS, Hop("tcp", "127.0.0.1", port))
    await ends.until(received=3)
    made.send(OPTIONS, Hop("tcp", "127.0.0.1", port))
    await ends.until(received=4)
    assert len({hop.port for _, hop in ends.received}) == 1


async def test_nobody_listening_on_tcp_is_told(tcp: tuple[StreamTransport, Ends, int]) -> None:
    made, ends, _ = tcp
    gone = Hop("tcp", "127.0.0.1", closed_port())
    made.send(OPTIONS, gone)
    await ends.until(failed=1)
    assert ends.failed == [gone]


async def test_an_answer_whose_connection_is_gone_goes_to_the_port_of_via(
    tcp: tuple[StreamTransport, Ends, int],
) -> None:
    made, ends, port = tcp
    made.send(OPTIONS, Hop("tcp", "127.0.0.1", port, flow=99, by_flow=True))
    await ends.until(received=1)


async def test_a_peer_that_does_not_read_is_closed(
    tcp: tuple[StreamTransport, Ends, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, ends, port = tcp
    monkeypatch.setattr(stream, "MAX_UNSENT_BYTES", 100_000)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(OPTIONS)
    await ends.until(received=1)
    (_, hop) = ends.received[0]
    async with asyncio.timeout(10):
        while made._connections:
            made.send(b"x" * 60_000, hop)
            await asyncio.sleep(0)
    writer.close()
    del reader


async def test_one_connection_too_many_ends_the_one_that_was_silent_for_longest(
    tcp: tuple[StreamTransport, Ends, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _, port = tcp
    monkeypatch.setattr(stream, "MAX_CONNECTIONS", 2)
    pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    pairs[0][1].write(b"\r\n\r\n")
    assert await asyncio.wait_for(pairs[0][0].readexactly(2), 5) == b"\r\n"
    pairs.append(await asyncio.open_connection("127.0.0.1", port))
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(pairs[1][0].read(), 5) == b""
    for reader, writer in (pairs[0], pairs[2]):
        writer.write(b"\r\n\r\n")
        assert await asyncio.wait_for(reader.readexactly(2), 5) == b"\r\n"
    assert len(made._connections) == 2
    for _, writer in pairs:
        writer.close()


async def test_a_crowd_from_one_address_ends_no_connection_of_another(
    tcp: tuple[StreamTransport, Ends, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A carrier's connection may be silent for minutes while its calls go on."""
    made, _, port = tcp
    monkeypatch.setattr(stream, "MAX_CONNECTIONS", 3)
    pairs = []
    for host in ("127.0.0.2", *["127.0.0.3"] * 5):
        local = (host, 0)
        pairs.append(await asyncio.open_connection("127.0.0.1", port, local_addr=local))
        pairs[-1][1].write(b"\r\n\r\n")
        assert await asyncio.wait_for(pairs[-1][0].readexactly(2), 5) == b"\r\n"
    assert sorted(each.host for each in made._connections.values()) == [
        "127.0.0.2",
        "127.0.0.3",
        "127.0.0.3",
    ]
    for _, writer in pairs:
        writer.close()


async def test_connections_that_have_brought_nothing_end_before_one_that_has(
    tcp: tuple[StreamTransport, Ends, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _, port = tcp
    monkeypatch.setattr(stream, "MAX_CONNECTIONS", 3)
    reader, carrier = await asyncio.open_connection("127.0.0.1", port)
    carrier.write(b"\r\n\r\n")
    await asyncio.wait_for(reader.readexactly(2), 5)
    crowd = []
    for number in range(2, 8):
        local = (f"127.0.0.{number}", 0)
        crowd.append(await asyncio.open_connection("127.0.0.1", port, local_addr=local))
        async with asyncio.timeout(5):
            while not any(each.host == local[0] for each in made._connections.values()):
                await settle(1)
    assert "127.0.0.1" in {each.host for each in made._connections.values()}
    for writer in (carrier, *(each for _, each in crowd)):
        writer.close()


async def test_connections_of_others_do_not_end_one_that_we_made(
    tcp: tuple[StreamTransport, Ends, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _, port = tcp
    monkeypatch.setattr(stream, "MAX_CONNECTIONS", 2)
    arrived: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    server = await asyncio.start_server(lambda _, w: arrived.put_nowait(w), "127.0.0.1", 0)
    registrar = Hop("tcp", "127.0.0.1", server.sockets[0].getsockname()[1])
    made.send(OPTIONS, registrar)
    away = await asyncio.wait_for(arrived.get(), 5)
    pairs = []
    for _ in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        pairs.append(writer)
        writer.write(b"\r\n\r\n")
        assert await asyncio.wait_for(reader.readexactly(2), 5) == b"\r\n"
    assert made.find(registrar) is not None
    for writer in (*pairs, away):
        writer.close()
    server.close()


async def test_a_flood_of_pings_is_answered_at_once(
    tcp: tuple[StreamTransport, Ends, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, port = tcp
    written: list[bytes] = []
    write = StreamTransport._write

    def writing(self: StreamTransport, connection: Connection, data: bytes) -> None:
        written.append(data)
        write(self, connection, data)

    monkeypatch.setattr(StreamTransport, "_write", writing)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\r\n\r\n" * 10_000)
    await asyncio.wait_for(reader.readexactly(20_000), 5)
    assert len(written) < 100
    writer.close()


async def test_a_silent_connection_is_closed_in_the_end(
    tcp: tuple[StreamTransport, Ends, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "IDLE_LIMIT_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", tcp[2])
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()


async def test_a_name_is_looked_up_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    locator = Locator(clock.now)
    answers = iter(["10.0.0.1", "10.0.0.2"])

    def look_up(*args: object, **kwargs: object) -> list[object]:
        try:
            return [(0, 0, 0, "", (next(answers), 0))]
        except StopIteration:
            raise socket.gaierror("no answer") from None

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    pbx = Hop("udp", "pbx.example.org", 5060)

    async def address() -> str:
        return (await locator.locate(pbx))[0].host

    assert locator.known(pbx) is None
    assert await address() == "10.0.0.1"
    current = locator.current(pbx)
    assert current is not None
    assert current.host == "10.0.0.1"
    await clock.advance(KEPT_S + 1)
    assert locator.current(pbx) is None
    assert await address() == "10.0.0.2"
    await clock.advance(KEPT_S + 1)
    assert await address() == "10.0.0.2"
    with pytest.raises(OSError, match="cannot be looked up"):
        await locator.locate(Hop("udp", "other.example.org", 5060))


@pytest.mark.parametrize("suffix", ["", ";transport=tcp"])
async def test_a_call_over_ipv6(suffix: str) -> None:
    probe = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    try:
        probe.bind(("::1", 0))
    except OSError:
        # Nothing to test on a machine without IPv6.
        return
    finally:
        probe.close()
    async with (
        SipEndpoint(SipSettings(host="::1")) as one,
        SipEndpoint(SipSettings(host="::1")) as two,
    ):
        call = await one.place(two.uri + suffix, SdpSession("::1", 40000).offer())
        theirs = await asyncio.wait_for(anext(two.incoming), 5)
        answer, agreed = SdpSession("::1", 50000).answer(theirs.offer or "")
        assert agreed.host == "::1"
        await theirs.answer(answer)
        await asyncio.wait_for(call.answered(), 5)
        await asyncio.wait_for(call.bye(), 5)


def settings(server: NameServer, **fields: object) -> SipSettings:
    dns = DnsSettings(nameservers=(server.address,), timeout_s=1.0)
    return SipSettings(timers=QUICK, dns=dns, **fields)  # type: ignore[arg-type]


@pytest.fixture
async def callee() -> AsyncIterator[SipEndpoint]:
    async with SipEndpoint(SipSettings(timers=QUICK, user="other")) as other:
        task = asyncio.create_task(answer_all(other, []))
        yield other
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_records_are_read_with_their_time_to_live() -> None:
    zone = (
        'example.org 300 NAPTR 10 20 "s" "SIP+D2U" "" _sip._udp.example.org.',
        "_sip._udp.example.org 120 SRV 1 2 5070 pbx.example.org.",
        "_sip._udp.none.example.org 60 SRV 0 0 0 .",
        "pbx.example.org 90 A 192.0.2.7",
        "pbx.example.org 90 A 192.0.2.8",
        "pbx.example.org 30 AAAA 2001:db8::7",
    )
    async with NameServer(*zone) as server:
        records = SystemResolver(DnsSettings(nameservers=(server.address,)))
        srv = await records.srv("_sip._udp.example.org")
        assert srv.records == (SrvRecord(1, 2, 5070, "pbx.example.org"),)
        assert srv.ttl_s == 120
        assert (await records.srv("_sip._udp.none.example.org")).records == (
            SrvRecord(0, 0, 0, ""),
        )
        naptr = await records.naptr("example.org")
        assert naptr.records == (NaptrRecord(10, 20, "s", "SIP+D2U", "_sip._udp.example.org"),)
        both = await records.addresses("pbx.example.org", (6, 4))
        assert both.records[0] == "2001:db8::7"
        assert set(both.records[1:]) == {"192.0.2.7", "192.0.2.8"}
        assert both.ttl_s == 30
        nothing = await records.srv("_sip._tcp.example.org")
        assert (nothing.records, nothing.ttl_s) == ((), NEGATIVE_S)


async def test_a_silent_name_server_is_an_error_within_its_time() -> None:
    async with NameServer() as server:
        server.silent = True
        records = SystemResolver(DnsSettings(nameservers=(server.address,), timeout_s=0.2))
        with pytest.raises(OSError, match="cannot be looked up"):
            await records.srv("_sip._udp.example.org")


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\xff" * 40, bytes(12)])
async def test_a_name_server_that_answers_garbage_is_one_that_does_not_answer(
    garbage: bytes,
) -> None:
    async with NameServer() as server:
        server.garbage = garbage
        records = SystemResolver(DnsSettings(nameservers=(server.address,), timeout_s=0.2))
        with pytest.raises(OSError, match="cannot be looked up"):
            await records.srv("_sip._udp.example.org")


@pytest.mark.parametrize("name", ["a" * 300 + ".org", "..", "-", "a..b", "\udcff.org", "x" * 64])
async def test_a_name_that_no_name_server_would_take_is_an_error_or_no_answer(name: str) -> None:
    async with NameServer() as server:
        records = SystemResolver(DnsSettings(nameservers=(server.address,), timeout_s=0.2))
        with contextlib.suppress(OSError):
            assert (await records.srv(name)).records == ()


async def test_a_call_follows_naptr_and_srv_to_port_and_transport(callee: SipEndpoint) -> None:
    zone = (
        'example.org 60 NAPTR 10 20 "s" "SIP+D2T" "" _sip._tcp.example.org.',
        f"_sip._tcp.example.org 60 SRV 0 0 {callee.port} pbx.example.org.",
        "pbx.example.org 60 A 127.0.0.1",
    )
    async with NameServer(*zone) as server, SipEndpoint(settings(server)) as endpoint:
        call = await endpoint.place("sip:other@example.org", session().offer())
        await asyncio.wait_for(call.answered(), 5)
        assert call.transport == "tcp"
        await asyncio.wait_for(call.bye(), 5)


@pytest.mark.parametrize("suffix", ["", ";transport=tcp"])
async def test_a_server_where_nobody_listens_gives_way_to_the_next(
    callee: SipEndpoint, suffix: str
) -> None:
    transport = "tcp" if suffix else "udp"
    zone = (
        f"_sip._{transport}.example.org 60 SRV 1 0 9 dead.example.org.",
        f"_sip._{transport}.example.org 60 SRV 2 0 {callee.port} pbx.example.org.",
        "dead.example.org 60 A 127.0.0.1",
        "pbx.example.org 60 A 127.0.0.1",
    )
    async with NameServer(*zone) as server, SipEndpoint(settings(server)) as endpoint:
        await good_call(endpoint, f"sip:other@example.org{suffix}")
        # The dead one is remembered: the next call does not begin with it.
        call = await endpoint.place(f"sip:other@example.org{suffix}", session().offer())
        assert call.core.hop.port == callee.port
        await call.cancel()


async def test_a_server_that_is_silent_gives_way_to_the_next(callee: SipEndpoint) -> None:
    loop = asyncio.get_running_loop()
    silent, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    )
    port = silent.get_extra_info("sockname")[1]
    zone = (
        f"_sip._udp.example.org 60 SRV 1 0 {port} pbx.example.org.",
        f"_sip._udp.example.org 60 SRV 2 0 {callee.port} pbx.example.org.",
        "pbx.example.org 60 A 127.0.0.1",
    )
    async with NameServer(*zone) as server, SipEndpoint(settings(server)) as endpoint:
        await good_call(endpoint, "sip:other@example.org")
    silent.close()


async def test_a_server_without_room_gives_way_to_the_next(callee: SipEndpoint) -> None:
    async with SipEndpoint(SipSettings(timers=QUICK)) as full:
        full.agent.draining = 30
        zone = (
            f"_sip._udp.example.org 60 SRV 1 0 {full.port} pbx.example.org.",
            f"_sip._udp.example.org 60 SRV 2 0 {callee.port} pbx.example.org.",
            "pbx.example.org 60 A 127.0.0.1",
        )
        async with NameServer(*zone) as server, SipEndpoint(settings(server)) as endpoint:
            await good_call(endpoint, "sip:other@example.org")


async def test_a_domain_that_nobody_knows_is_unreachable() -> None:
    async with NameServer() as server, SipEndpoint(settings(server)) as endpoint:
        with pytest.raises(CalleeUnreachable, match=r"example\.org.*no address") as error:
            await endpoint.place("sip:other@example.org", session().offer())
        assert error.value.why == "dns"


async def test_a_silent_name_server_does_not_hold_up_the_other_calls(
    callee: SipEndpoint,
) -> None:
    async with NameServer() as server, SipEndpoint(settings(server)) as endpoint:
        server.silent = True
        waiting = asyncio.create_task(endpoint.place("sip:x@example.org", session().offer()))
        await good_call(endpoint, callee.uri)
        with pytest.raises(CalleeUnreachable):
            await asyncio.wait_for(waiting, 10)


async def test_a_request_inside_a_call_finds_the_servers_of_a_contact_that_is_a_domain(
    callee: SipEndpoint,
) -> None:
    zone = (
        f"_sip._udp.example.org 60 SRV 0 0 {callee.port} pbx.example.org.",
        "pbx.example.org 60 A 127.0.0.1",
    )
    seen: list[SipCall] = []
    task = asyncio.create_task(answer_all(callee, seen))
    async with NameServer(*zone) as server, SipEndpoint(settings(server)) as endpoint:
        callee.agent.contact = lambda hop, *, user="": "<sip:other@example.org>"  # type: ignore[method-assign]
        call = await endpoint.place(f"sip:other@127.0.0.1:{callee.port}", session().offer())
        await asyncio.wait_for(call.answered(), 5)
        await asyncio.wait_for(call.bye(), 5)
        assert ("_sip._udp.example.org", "SRV") in server.asked
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
