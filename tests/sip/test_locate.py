"""Which servers a SIP address leads to (RFC 3263), without a network."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.sip.message.network import DnsLookup, Hop
from qwen3tts_phone.sip.settings import DnsSettings, split_nameserver
from qwen3tts_phone.sip.transport.dns import NEGATIVE_S, Family, NaptrRecord, SrvRecord
from qwen3tts_phone.sip.transport.locator import MAX_HOPS, Locator, order_srv
from tests.fakes import FakeClock
from tests.sip.name_server import Domains

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
