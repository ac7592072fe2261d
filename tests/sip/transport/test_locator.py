"""Names of strangers: slow ones keep neither the event loop's threads nor our own names waiting."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.errors import CalleeUnreachable
from qwen3tts_phone.sip.core.settings import DnsSettings, split_nameserver
from qwen3tts_phone.sip.endpoint import SipEndpoint
from qwen3tts_phone.sip.message.network import DnsLookup, Hop
from qwen3tts_phone.sip.transport.dns import (
    NEGATIVE_S,
    THREADS,
    Family,
    NaptrRecord,
    ResolverThreads,
    SrvRecord,
)
from qwen3tts_phone.sip.transport.locator import MAX_ASKED, MAX_HOPS, MAX_KEPT, Locator, order_srv
from tests.fakes import FakeClock
from tests.sip.name_server import Domains


class Names:
    """The system's resolver: names that begin with "slow" wait until they are let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.asked: Counter[str] = Counter()

    def look_up(self, name: str, *args: object, **kwargs: object) -> list[object]:
        self.asked[name] += 1
        if name.startswith("slow"):
            self.let_go.wait(30)
        return [(0, 0, 0, "", ("10.0.0.7", 0))]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    made = Names()
    monkeypatch.setattr(socket, "getaddrinfo", made.look_up)
    yield made
    made.let_go.set()


def named_hop(name: str) -> Hop:
    return Hop("udp", name, 5060)


def asking(locator: Locator, *named: str) -> list[asyncio.Task[tuple[Hop, ...]]]:
    return [asyncio.ensure_future(locator.locate(named_hop(each), theirs=True)) for each in named]


async def begun() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_slow_names_of_strangers_hold_up_no_other_thread_and_no_name_of_ours(
    names: Names,
) -> None:
    locator = Locator(lambda: 0.0, DnsSettings(srv=False))
    waiting = asking(locator, *(f"slow{number}.example" for number in range(20)))
    await begun()
    assert await asyncio.to_thread(lambda: "free") == "free"
    assert (await locator.locate(named_hop("registrar.example")))[0].host == "10.0.0.7"
    assert sum(names.asked[f"slow{number}.example"] for number in range(20)) <= THREADS
    names.let_go.set()
    assert {each[0].host for each in await asyncio.gather(*waiting)} == {"10.0.0.7"}
    locator.close()


async def test_any_number_of_slow_names_of_strangers_leaves_room_for_ours(names: Names) -> None:
    locator = Locator(lambda: 0.0, DnsSettings(srv=False))
    waiting = asking(locator, *(f"slow{number}.example" for number in range(MAX_ASKED + 20)))
    await begun()
    assert (await locator.locate(named_hop("registrar.example")))[0].host == "10.0.0.7"
    names.let_go.set()
    refused = await asyncio.gather(*waiting, return_exceptions=True)
    assert sum(isinstance(each, OSError) for each in refused) >= 20
    locator.close()


async def test_names_of_strangers_displace_no_answer_of_ours(names: Names) -> None:
    now = [0.0]
    locator = Locator(lambda: now[0], DnsSettings(srv=False))
    await locator.locate(named_hop("registrar.example"))
    for number in range(MAX_KEPT + 1):
        await locator.locate(named_hop(f"n{number}.example"), theirs=True)
    assert locator.known(named_hop("registrar.example")) is not None
    assert locator.known(named_hop("n0.example")) is None
    locator.close()


async def test_who_asks_for_the_same_name_waits_for_the_same_look_up(names: Names) -> None:
    locator = Locator(lambda: 0.0, DnsSettings(srv=False))
    waiting = asking(locator, *["slow.example"] * 30)
    await begun()
    waiting[0].cancel()
    await begun()
    names.let_go.set()
    found = await asyncio.gather(*waiting[1:])
    assert {each[0].host for each in found} == {"10.0.0.7"}
    assert names.asked == {"slow.example": 1}
    locator.close()


async def test_a_name_that_takes_too_long_is_an_error_and_is_not_asked_for_twice(
    names: Names,
) -> None:
    locator = Locator(lambda: 0.0, DnsSettings(srv=False, timeout_s=0.01))
    for _ in range(3):
        with pytest.raises(OSError, match="no answer within"):
            await locator.locate(named_hop("slow.example"), theirs=True)
    assert names.asked["slow.example"] <= 1
    locator.close()


async def test_more_names_than_may_wait_are_refused() -> None:
    let_go = threading.Event()
    threads = ResolverThreads(threads=1, waiting=2)
    waiting = [
        asyncio.ensure_future(threads.run(number, lambda: let_go.wait(30), 30))
        for number in range(3)
    ]
    await begun()
    with pytest.raises(OSError, match="3 names are being looked up"):
        await threads.run("one more", lambda: None, 30)
    let_go.set()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert await threads.run("one more", lambda: "again", 30) == "again"
    threads.close()


async def test_what_has_not_begun_when_its_asker_is_gone_is_left_out() -> None:
    let_go = threading.Event()
    began: list[int] = []
    threads = ResolverThreads(threads=1)
    first = asyncio.ensure_future(threads.run(0, lambda: let_go.wait(30), 30))
    late = asyncio.ensure_future(threads.run(1, lambda: began.append(1), 30))
    await begun()
    late.cancel()
    await begun()
    let_go.set()
    await first
    assert await threads.run(2, lambda: "next", 30) == "next"
    assert not began
    threads.close()


async def test_a_name_longer_than_any_asks_nothing(names: Names) -> None:
    with pytest.raises(OSError, match="too long"):
        await Locator(lambda: 0.0, DnsSettings(srv=False)).locate(named_hop("a." * 200))
    assert not names.asked


async def test_questions_to_the_dns_are_shared_as_well() -> None:
    class Slow(Domains):
        async def addresses(self, name: str, families: tuple[int, ...]):  # type: ignore[no-untyped-def]
            await gate.wait()
            return await Domains.addresses(self, name, families)  # type: ignore[arg-type]

    gate = asyncio.Event()
    domains = Slow(hosts={"pbx.example": ("10.0.0.7",)})
    locator = Locator(lambda: 0.0, DnsSettings(srv=False), records=domains)
    waiting = asking(locator, "pbx.example", "PBX.example", "pbx.example")
    await begun()
    gate.set()
    await asyncio.gather(*waiting)
    assert sum(domains.asked.values()) == 1


@pytest.mark.network
@pytest.mark.parametrize("theirs", [False, True])
async def test_a_name_from_a_far_end_is_looked_up_apart_from_names_of_ours(
    theirs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    async def locate(
        self: Locator, hop: Hop, transports: Sequence[str] = (), *, theirs: bool = False
    ) -> tuple[Hop, ...]:
        asked.append(theirs)
        raise OSError("no such name")

    monkeypatch.setattr(Locator, "locate", locate)
    async with SipEndpoint() as endpoint:
        with pytest.raises(CalleeUnreachable):
            await endpoint.media_host("sip:x@phone.example", theirs=theirs)
        with pytest.raises(CalleeUnreachable):
            await endpoint.place("sip:x@phone.example", "v=0", theirs=theirs)
    assert asked == [theirs, theirs]


ALL = ("udp", "tcp", "tls")


def hop(host: str, lookup: DnsLookup = "naptr", transport: str = "udp", port: int = 5060) -> Hop:
    return Hop(transport, host, port, name=host, lookup=lookup)


def locator(
    domains: Domains, clock: FakeClock | None = None, *, families: tuple[Family, ...] = (4,)
) -> Locator:
    now = (clock or FakeClock()).now
    return Locator(now, families=families, records=domains, rng=random.Random(1))


async def found(domains: Domains, asked: Hop, transports: tuple[str, ...] = ALL) -> list[str]:
    """``transport host port`` of each server, best first."""
    hops = await locator(domains).locate(asked, transports)
    return [f"{one.transport} {one.host} {one.port}" for one in hops]


HOSTS = {"a.example.org": ("192.0.2.1",), "b.example.org": ("192.0.2.2",)}


async def test_an_address_needs_no_question() -> None:
    domains = Domains()
    assert await found(domains, hop("192.0.2.9", "address", port=5070)) == ["udp 192.0.2.9 5070"]
    assert not domains.asked


async def test_a_port_asks_for_the_address_alone() -> None:
    domains = Domains(hosts={"example.org": ("192.0.2.7",)})
    asked = hop("example.org", "address", "tcp", 5070)
    assert await found(domains, asked) == ["tcp 192.0.2.7 5070"]
    assert set(domains.asked) == {"A example.org"}


async def test_a_transport_asks_for_the_servers_of_that_transport() -> None:
    servers = {
        "_sip._tcp.example.org": (
            SrvRecord(20, 0, 5070, "b.example.org"),
            SrvRecord(10, 0, 5080, "a.example.org"),
        ),
        "_sip._udp.example.org": (SrvRecord(1, 0, 9999, "a.example.org"),),
    }
    domains = Domains(hosts=HOSTS, servers=servers)
    asked = hop("example.org", "srv", "tcp")
    assert await found(domains, asked) == ["tcp 192.0.2.1 5080", "tcp 192.0.2.2 5070"]


async def test_naptr_says_the_transport_and_its_order_counts() -> None:
    ways = {
        "example.org": (
            NaptrRecord(50, 50, "s", "SIP+D2T", "_sip._tcp.example.org"),
            NaptrRecord(40, 90, "S", "sips+d2t", "_sips._tcp.example.org"),
            NaptrRecord(40, 10, "s", "SIP+D2U", "_sip._udp.other.example"),
            NaptrRecord(1, 1, "u", "E2U+sip", ""),
        )
    }
    servers = {
        "_sip._tcp.example.org": (SrvRecord(0, 0, 5060, "a.example.org"),),
        "_sips._tcp.example.org": (SrvRecord(0, 0, 5061, "a.example.org"),),
        "_sip._udp.other.example": (SrvRecord(0, 0, 5062, "b.example.org"),),
    }
    domains = Domains(hosts=HOSTS, servers=servers, ways=ways)
    assert await found(domains, hop("example.org")) == [
        "udp 192.0.2.2 5062",
        "tls 192.0.2.1 5061",
        "tcp 192.0.2.1 5060",
    ]


async def test_transports_that_we_do_not_speak_are_left_out() -> None:
    ways = {"example.org": (NaptrRecord(1, 1, "s", "SIPS+D2T", "_sips._tcp.example.org"),)}
    servers = {
        "_sips._tcp.example.org": (SrvRecord(0, 0, 5061, "a.example.org"),),
        "_sip._udp.example.org": (SrvRecord(0, 0, 5060, "b.example.org"),),
    }
    domains = Domains(hosts=HOSTS, servers=servers, ways=ways)
    assert await found(domains, hop("example.org"), ("udp", "tcp")) == ["udp 192.0.2.2 5060"]


async def test_without_naptr_the_servers_of_each_transport_are_asked_for_in_our_order() -> None:
    servers = {
        "_sip._udp.example.org": (SrvRecord(5, 0, 5060, "b.example.org"),),
        "_sip._tcp.example.org": (SrvRecord(1, 0, 5060, "a.example.org"),),
    }
    domains = Domains(hosts=HOSTS, servers=servers)
    asked = hop("example.org")
    assert await found(domains, asked) == ["udp 192.0.2.2 5060", "tcp 192.0.2.1 5060"]
    assert await found(domains, asked, ("tcp", "udp")) == [
        "tcp 192.0.2.1 5060",
        "udp 192.0.2.2 5060",
    ]


async def test_without_any_servers_the_domain_is_the_host() -> None:
    domains = Domains(hosts={"example.org": ("192.0.2.7", "192.0.2.8")})
    assert await found(domains, hop("example.org")) == ["udp 192.0.2.7 5060", "udp 192.0.2.8 5060"]


async def test_a_domain_that_has_no_such_service_says_so() -> None:
    servers = {"_sip._udp.example.org": (SrvRecord(0, 0, 0, ""),)}
    domains = Domains(hosts={"example.org": ("192.0.2.7",)}, servers=servers)
    with pytest.raises(OSError, match="no such service"):
        await found(domains, hop("example.org", "srv"))


async def test_servers_whose_hosts_have_no_address_are_passed_over() -> None:
    servers = {
        "_sip._udp.example.org": (
            SrvRecord(0, 0, 1, "gone.example.org"),
            SrvRecord(1, 0, 2, "a.example.org"),
        )
    }
    domains = Domains(hosts=HOSTS, servers=servers)
    assert await found(domains, hop("example.org", "srv")) == ["udp 192.0.2.1 2"]


async def test_a_name_without_an_address_is_an_error() -> None:
    with pytest.raises(OSError, match="no address"):
        await found(Domains(), hop("example.org"))


async def test_names_without_a_domain_ask_for_no_servers() -> None:
    domains = Domains(hosts={"localhost": ("127.0.0.1",), "pbx": ("10.0.0.1",)})
    assert await found(domains, hop("localhost")) == ["udp 127.0.0.1 5060"]
    assert await found(domains, hop("pbx")) == ["udp 10.0.0.1 5060"]
    assert not any(name.startswith(("SRV", "NAPTR")) for name in domains.asked)


async def test_servers_may_be_left_unasked() -> None:
    domains = Domains(hosts={"example.org": ("192.0.2.7",)})
    plain = Locator(FakeClock().now, DnsSettings(srv=False), records=domains)
    await plain.locate(hop("example.org"), ALL)
    assert set(domains.asked) == {"A example.org"}


async def test_answers_hold_for_their_time_to_live_and_are_asked_for_anew_after_it() -> None:
    clock = FakeClock()
    servers = {"_sip._udp.example.org": (SrvRecord(0, 0, 5060, "a.example.org"),)}
    domains = Domains(hosts=HOSTS, servers=servers, ttl_s=20.0)
    here = locator(domains, clock)
    asked = hop("example.org", "srv")
    assert (await here.locate(asked))[0].host == "192.0.2.1"
    await clock.advance(19.0)
    domains.hosts = {"a.example.org": ("192.0.2.5",)}
    assert (await here.locate(asked))[0].host == "192.0.2.1"
    assert domains.asked["A a.example.org"] == 1
    await clock.advance(2.0)
    assert here.known(asked) is None
    assert (await here.locate(asked))[0].host == "192.0.2.5"


async def test_an_old_answer_is_better_than_none() -> None:
    clock = FakeClock()
    domains = Domains(hosts={"example.org": ("192.0.2.7",)}, ttl_s=5.0)
    here = locator(domains, clock)
    asked = hop("example.org", "address")
    await here.locate(asked)
    domains.dead = True
    await clock.advance(100.0)
    assert (await here.locate(asked))[0].host == "192.0.2.7"


async def test_name_servers_that_are_dead_are_not_asked_anew_for_each_call() -> None:
    clock = FakeClock()
    domains = Domains(hosts={"example.org": ("192.0.2.7",)})
    here = locator(domains, clock)

    async def dead(name: str) -> object:
        domains.asked[f"SRV {name}"] += 1
        raise OSError("no answer")

    domains.srv = domains.naptr = dead  # type: ignore[method-assign,assignment]
    await here.locate(hop("example.org"), ALL)
    before = domains.asked.total()
    await clock.advance(NEGATIVE_S - 1.0)
    await here.locate(hop("example.org"), ALL)
    assert domains.asked.total() == before


async def test_the_rank_of_a_server_is_that_of_its_priority() -> None:
    servers = {
        "_sip._udp.example.org": (
            SrvRecord(10, 1, 1, "a.example.org"),
            SrvRecord(10, 1, 2, "a.example.org"),
            SrvRecord(20, 1, 3, "b.example.org"),
        )
    }
    hops = await locator(Domains(hosts=HOSTS, servers=servers)).locate(hop("example.org", "srv"))
    assert [one.rank for one in hops] == [0, 0, 1]
    assert {one.name for one in hops} == {"example.org"}


async def test_both_families_are_given_where_we_speak_both() -> None:
    domains = Domains(hosts={"example.org": ("192.0.2.7", "2001:db8::7")})
    asked = hop("example.org", "address")
    both = await locator(domains, families=(6, 4)).locate(asked)
    assert {one.host for one in both} == {"192.0.2.7", "2001:db8::7"}
    only = await locator(domains, families=(4,)).locate(asked)
    assert [one.host for one in only] == ["192.0.2.7"]


async def test_a_domain_with_very_many_servers_is_bounded() -> None:
    servers = {
        "_sip._udp.example.org": tuple(
            SrvRecord(n, 0, 5060, f"h{n}.example.org") for n in range(99)
        )
    }
    hosts = {f"h{n}.example.org": tuple(f"10.0.{n}.{m}" for m in range(5)) for n in range(99)}
    hops = await locator(Domains(hosts=hosts, servers=servers)).locate(hop("example.org", "srv"))
    assert len(hops) == MAX_HOPS


def test_servers_of_one_priority_are_chosen_by_weight() -> None:
    rng = random.Random(7)
    records = [
        SrvRecord(1, 70, 1, "a"),
        SrvRecord(1, 30, 2, "b"),
        SrvRecord(1, 0, 3, "c"),
        SrvRecord(0, 0, 4, "first"),
    ]
    seconds = Counter(order_srv(records, rng)[1].target for _ in range(4000))
    assert 0.65 < seconds["a"] / 4000 < 0.75
    assert 0.25 < seconds["b"] / 4000 < 0.35
    assert 0 < seconds["c"] / 4000 < 0.03


srv = st.builds(
    SrvRecord, *[st.integers(0, 65535)] * 3, st.sampled_from(["", "a.example.org", "b"])
)


@given(st.lists(srv, max_size=12), st.integers())
def test_every_server_is_tried_once_and_priorities_are_kept(
    records: list[SrvRecord], seed: int
) -> None:
    ordered = order_srv(records, random.Random(seed))
    assert Counter(ordered) == Counter(records)
    assert [r.priority for r in ordered] == sorted(r.priority for r in records)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("192.0.2.1", ("192.0.2.1", 53)),
        ("192.0.2.1:5353", ("192.0.2.1", 5353)),
        ("2001:db8::1", ("2001:db8::1", 53)),
        ("[2001:db8::1]:5353", ("2001:db8::1", 5353)),
    ],
)
def test_name_servers_are_addresses_with_or_without_a_port(
    text: str, wanted: tuple[str, int]
) -> None:
    assert split_nameserver(text) == wanted


@pytest.mark.parametrize("text", ["ns.example.org", "", "192.0.2.1:x", "192.0.2.1:99999", "[::1]x"])
def test_a_name_server_that_is_no_address_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"^dns\.nameservers"):
        DnsSettings(nameservers=(text,))
