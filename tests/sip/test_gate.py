"""The gate: who may ask us for something, and how often."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.sip.core.settings import GateSettings
from qwen3tts_phone.sip.gate import DROP, Refusal, SourceGate, Verdict
from qwen3tts_phone.sip.message.message import Request
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.message.via import FORWARDED, origin_of

OURS = "192.0.2.1"
STRANGER = Hop("udp", "203.0.113.9", 5060)
TRUNK = Hop("udp", "198.51.100.1", 5060)


def own(host: str, port: int | None) -> bool:
    return host == OURS


def gate_of(**settings: Any) -> SourceGate:
    gate = SourceGate(GateSettings(**settings), own=own)
    gate.trust("trunk", ("198.51.100.0/24",))
    return gate


def asked(
    method: str = "INVITE", uri: str = f"sip:agent@{OURS}", *, tag: str = "", agent: str = ""
) -> Request:
    request = Request(method, uri)
    request.add("From", "<sip:x@y>;tag=f")
    request.add("To", f"<{uri}>" + (f";tag={tag}" if tag else ""))
    if agent:
        request.add("User-Agent", agent)
    return request


def status(verdict: Verdict) -> int | None:
    """The status of a refusal; 0 = no answer, None = let through."""
    if verdict is DROP:
        return 0
    return verdict.status if isinstance(verdict, Refusal) else None


@pytest.mark.parametrize("source", [STRANGER, TRUNK, Hop("udp", "127.0.0.1", 9)])
def test_a_call_for_us_is_let_through(source: Hop) -> None:
    assert gate_of().request(asked(), source, 0.0) is None
    assert gate_of().request(asked("OPTIONS"), source, 0.0) is None


@pytest.mark.parametrize("method", ["REGISTER", "SUBSCRIBE", "PUBLISH", "MESSAGE", "REFER", "FOO"])
@pytest.mark.parametrize("user", ["agent", "absent"])
def test_a_stranger_learns_nothing_from_other_methods(method: str, user: str) -> None:
    gate = gate_of(users=("agent",))
    verdict = gate.request(asked(method, f"sip:{user}@{OURS}"), STRANGER, 0.0)
    assert verdict == Refusal(404, ())


def test_options_say_the_same_for_every_name() -> None:
    gate = gate_of(users=("agent",))
    for user in ("agent", "absent"):
        assert gate.request(asked("OPTIONS", f"sip:{user}@{OURS}"), STRANGER, 0.0) is None


@pytest.mark.parametrize(
    ("user", "known"),
    [
        ("agent", True),
        ("AGENT", True),
        ("%61gent", True),
        ("agent;phone-context=x", True),
        ("+4930123", True),
        ("+4940123", False),
        ("absent", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("source", [STRANGER, TRUNK])
def test_who_cannot_be_called_is_not_found_for_strangers_and_trunks(
    user: str, known: bool, source: Hop
) -> None:
    gate = gate_of(users=("agent", "+4930*"))
    uri = f"sip:{user}@{OURS}" if user else f"sip:{OURS}"
    assert status(gate.request(asked(uri=uri), source, 0.0)) == (None if known else 404)


def test_nothing_is_taken_for_another_host() -> None:
    gate = gate_of(hosts=("Phone.example.org",))
    assert status(gate.request(asked(uri="sip:00972@elsewhere.example"), STRANGER, 0.0)) == 404
    assert status(gate.request(asked("OPTIONS", "sip:x@elsewhere"), STRANGER, 0.0)) == 404
    assert gate.request(asked(uri="sip:agent@phone.example.org"), STRANGER, 0.0) is None
    assert gate.request(asked(uri="sips:agent@PHONE.example.org."), STRANGER, 0.0) is None
    assert gate.request(asked(uri="sip:agent@pbx.example.org"), TRUNK, 0.0) is None


def test_whoever_may_not_ask_is_told_so_or_nothing() -> None:
    gate = gate_of(allow=("203.0.113.0/28",), deny=("198.51.100.66",))
    assert gate.request(asked(), STRANGER, 0.0) is None
    assert status(gate.request(asked(), Hop("udp", "203.0.113.99", 5060), 0.0)) == 403
    assert gate.request(asked(), TRUNK, 0.0) is None
    assert status(gate.request(asked(), Hop("udp", "198.51.100.66", 5060), 0.0)) == 403
    quiet = gate_of(allow=(), quiet=True)
    assert quiet.request(asked(), STRANGER, 0.0) is DROP
    assert gate.counts == {"network": 2}


@pytest.mark.parametrize(
    "agent", ["friendly-scanner", "SIPVicious 0.3", "sundayddr", "sipcli/v1.8", "VaxSIPUserAgent/3"]
)
@pytest.mark.parametrize("source", [STRANGER, TRUNK])
def test_scanners_get_no_answer(agent: str, source: Hop) -> None:
    gate = gate_of()
    assert gate.request(asked("OPTIONS", agent=agent), source, 0.0) is DROP
    assert gate.request(asked(agent="Linphone/5 (friendly)"), source, 0.0) is None


def test_what_belongs_to_a_call_always_passes() -> None:
    gate = gate_of(allow=(), requests_per_s=1, burst=1)
    for _ in range(50):
        assert gate.request(asked("BYE", tag="t"), STRANGER, 0.0, known=True) is None
    assert gate.counts == {}


def test_a_request_of_a_call_that_is_over_is_left_to_the_agent() -> None:
    assert gate_of(users=()).request(asked("BYE", tag="gone"), STRANGER, 0.0) is None


def test_an_ack_for_nothing_is_never_answered() -> None:
    gate = gate_of(users=("agent",))
    for uri in (f"sip:agent@{OURS}", f"sip:absent@{OURS}", "sip:agent@elsewhere"):
        assert gate.request(asked("ACK", uri), STRANGER, 0.0) is DROP


def test_more_requests_than_allowed_get_no_answer_and_others_are_heard() -> None:
    gate = gate_of(requests_per_s=2, burst=5)
    verdicts = [gate.request(asked("OPTIONS"), STRANGER, 0.0) for _ in range(8)]
    assert verdicts == [None] * 5 + [DROP] * 3
    assert gate.request(asked("OPTIONS"), Hop("udp", "203.0.113.10", 5060), 0.0) is None
    assert [gate.request(asked("OPTIONS"), STRANGER, 1.0) for _ in range(3)] == [None, None, DROP]
    assert gate.counts["rate"] == 4


def test_an_ipv6_customer_cannot_send_from_one_address_after_another() -> None:
    gate = gate_of(requests_per_s=1, burst=3)
    hops = [Hop("udp", f"2001:db8:0:1::{number:x}", 5060) for number in range(1, 9)]
    verdicts = [gate.request(asked("OPTIONS"), hop, 0.0) for hop in hops]
    assert verdicts == [None] * 3 + [DROP] * 5


def test_a_flood_from_forged_addresses_leaves_the_trunk_its_calls() -> None:
    gate = gate_of(total_per_s=10, total_burst=20, max_sources=100)
    let_in = 0
    for number in range(5000):
        hop = Hop("udp", f"10.{number // 250}.{number % 250}.1", 5060)
        let_in += gate.request(asked(), hop, 0.0) is None
    assert let_in == 20
    assert len(gate) == 100
    assert all(gate.request(asked(), TRUNK, 0.0) is None for _ in range(200))


def test_a_stranger_may_make_so_many_calls_in_a_time() -> None:
    gate = gate_of(invites_per_s=0.5, invite_burst=2)
    assert [status(gate.request(asked(), STRANGER, 0.0)) for _ in range(3)] == [None, None, 503]
    assert gate.request(asked(), STRANGER, 0.0) == Refusal(503, (("Retry-After", "2"),))
    assert gate.request(asked(), STRANGER, 2.0) is None


def test_a_stranger_may_have_so_many_calls_at_once() -> None:
    gate = gate_of(max_calls_per_source=2)
    others = ["203.0.113.10"] * 5
    assert gate.request(asked(), STRANGER, 0.0, callers=["203.0.113.9", *others]) is None
    busy = gate.request(asked(), STRANGER, 0.0, callers=["203.0.113.9", *others, "203.0.113.9"])
    assert busy == Refusal(486, (("Retry-After", "10"),))
    assert gate.request(asked(), TRUNK, 0.0, callers=[TRUNK.host] * 50) is None


def test_who_is_refused_too_often_gets_no_answer_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = gate_of(users=("agent",), ban_after=3, ban_s=60.0)
    wrong = asked(uri=f"sip:100@{OURS}")
    with caplog.at_level(logging.WARNING):
        assert [status(gate.request(wrong, STRANGER, 0.0)) for _ in range(5)] == [404] * 4 + [0]
    assert len(caplog.records) == 1
    assert gate.banned(STRANGER.host, 1.0)
    assert gate.request(asked(), STRANGER, 59.0) is DROP
    assert gate.request(asked("BYE", tag="t"), STRANGER, 59.0, known=True) is None
    assert gate.request(asked(), STRANGER, 61.0) is None


def test_a_mistake_now_and_then_bans_nobody() -> None:
    gate = gate_of(users=("agent",), ban_after=3, ban_s=60.0)
    wrong = asked(uri=f"sip:100@{OURS}")
    assert {status(gate.request(wrong, STRANGER, 21.0 * n)) for n in range(50)} == {404}


def test_a_trunk_is_never_banned_so_forged_requests_cannot_cut_it_off() -> None:
    gate = gate_of(users=("agent",), ban_after=1)
    wrong = asked(uri=f"sip:100@{OURS}", agent="friendly-scanner")
    for _ in range(50):
        gate.request(wrong, TRUNK, 0.0)
    assert not gate.banned(TRUNK.host, 0.0)
    assert gate.request(asked(), TRUNK, 0.0) is None


def test_a_flood_of_bans_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    gate = gate_of(users=("agent",), ban_after=1)
    wrong = asked(uri=f"sip:100@{OURS}")
    with caplog.at_level(logging.WARNING):
        for number in range(200):
            for _ in range(3):
                gate.request(wrong, Hop("udp", f"10.0.0.{number}", 5060), 0.0)
    assert len(caplog.records) == 1


def test_a_quiet_gate_answers_no_stranger_whom_it_refuses() -> None:
    gate = gate_of(users=("agent",), quiet=True)
    for request in (
        asked("OPTIONS"),
        asked("REGISTER"),
        asked(uri=f"sip:absent@{OURS}"),
        asked(uri="sip:agent@elsewhere"),
    ):
        assert gate.request(request, STRANGER, 0.0) is DROP
    assert gate.request(asked(), STRANGER, 0.0) is None
    assert gate.request(asked("OPTIONS"), TRUNK, 0.0) is None


def test_messages_beyond_the_limit_are_not_even_read_but_answers_to_us_are() -> None:
    gate = gate_of(messages_per_s=5)
    read = [gate.message(b"OPTIONS sip:x SIP/2.0\r\n", STRANGER, 0.0) for _ in range(12)]
    assert read == [True] * 10 + [False] * 2
    assert gate.message(b"SIP/2.0 200 OK\r\n", STRANGER, 0.0)
    assert gate.message(b"OPTIONS", TRUNK, 0.0)
    assert gate.message(b"OPTIONS", STRANGER, 1.0)
    assert gate.counts["messages"] == 2


def test_what_cannot_be_read_is_answered_seldom_and_counts_towards_a_ban() -> None:
    gate = gate_of(ban_after=5, burst=3)
    answered = [gate.unreadable(STRANGER, 0.0) for _ in range(8)]
    assert answered == [True] * 3 + [False] * 5
    assert gate.request(asked(), STRANGER, 0.0) is DROP
    assert gate.unreadable(TRUNK, 0.0)
    assert not gate_of(quiet=True).unreadable(STRANGER, 0.0)
    assert not gate_of(allow=()).unreadable(STRANGER, 0.0)
    assert not gate_of().unreadable(TRUNK, 0.0, asked(agent="sipvicious"))


def test_one_source_may_open_so_many_connections() -> None:
    gate = gate_of(max_connections_per_source=2, deny=("198.51.100.66",))
    others = ["203.0.113.10"] * 5
    assert gate.connection(STRANGER.host, [STRANGER.host, *others], 0.0)
    assert not gate.connection(STRANGER.host, [STRANGER.host, *others, STRANGER.host], 0.0)
    assert gate.connection(TRUNK.host, [TRUNK.host] * 50, 0.0)
    assert not gate.connection("198.51.100.66", [], 0.0)
    assert not gate_of(allow=()).connection(STRANGER.host, [], 0.0)


def test_one_source_may_open_connections_so_often_as_it_may_ask() -> None:
    gate = gate_of(requests_per_s=1.0, burst=3)
    assert [gate.connection(STRANGER.host, [], 0.0) for _ in range(5)] == [True] * 3 + [False] * 2
    assert gate.connection(STRANGER.host, [], 1.5)
    assert gate.counts["rate"] == 2
    assert all(gate.connection(TRUNK.host, [], 0.0) for _ in range(20))


def test_the_servers_of_an_account_are_trusted_until_they_change() -> None:
    gate = gate_of(allow=())
    gate.trust("home", ["203.0.113.9"])
    assert gate.request(asked(), STRANGER, 0.0) is None
    gate.trust("home", ["203.0.113.10"])
    assert status(gate.request(asked(), STRANGER, 0.0)) == 403
    assert gate.trusts(TRUNK.host)
    with pytest.raises(ValueError, match="no address"):
        gate.trust("home", ["pbx.example.org"])


def test_without_limits_of_the_hosts_every_host_is_ours() -> None:
    gate = SourceGate(GateSettings())
    assert gate.request(asked(uri="sip:agent@elsewhere"), STRANGER, 0.0) is None


@pytest.mark.parametrize("uri", ["tel:+4930123", "sip:@@", "http://x", "sip:" + "a" * 9000])
def test_what_is_no_sip_address_is_left_to_the_agent(uri: str) -> None:
    request = Request("INVITE", uri)
    request.add("To", "<sip:x@y>")
    assert gate_of().request(request, STRANGER, 0.0) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("requests_per_s", 0),
        ("burst", 0),
        ("invites_per_s", float("nan")),
        ("max_sources", 0),
        ("ban_after", -1),
        ("ban_s", 0),
        ("allow", ("pbx",)),
        ("deny", ("1.2.3.4/99",)),
        ("trusted", ("x",)),
        ("users", ("",)),
        ("hosts", (" ",)),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}"):
        dataclasses.replace(GateSettings(), **{name: value})


HERE = Hop("udp", "127.0.0.1", 5070)


def forwarded(*vias: str, method: str = "INVITE", user: str = "agent") -> Request:
    """A request with these Via values, the proxy's own first."""
    request = asked(method, f"sip:{user}@{OURS}")
    for each in vias:
        request.add("Via", each)
    return request


PROXY = "SIP/2.0/UDP 127.0.0.1:5070;branch=z9hG4bKp"
OUTSIDE = "SIP/2.0/UDP 10.0.0.5:5060;received=203.0.113.9;branch=z9hG4bKa"


@pytest.mark.parametrize(
    ("vias", "origin"),
    [
        ((), "127.0.0.1"),
        ((PROXY,), "127.0.0.1"),
        (("SIP/2.0/UDP a-phone;branch=z9hG4bKp",), "127.0.0.1"),
        # Through a tunnel or port forwarder, which adds no Via.
        (("SIP/2.0/TCP 203.0.113.9:5060;branch=z9hG4bKa",), FORWARDED),
        (("SIP/2.0/TCP [2001:db8::7]:5060;branch=z9hG4bKa",), FORWARDED),
        (("SIP/2.0/TCP 0.0.0.0;branch=z9hG4bKa",), FORWARDED),
        (("SIP/2.0/TCP 224.0.0.1;branch=z9hG4bKa",), FORWARDED),
        (("SIP/2.0/TCP 255.255.255.255;branch=z9hG4bKa",), FORWARDED),
        (("nonsense",), FORWARDED),
        ((PROXY, "SIP/2.0/UDP 127.0.0.1:5090;branch=z9hG4bKq"), "127.0.0.1"),
        ((PROXY, PROXY, "SIP/2.0/TCP [::1]:5090;branch=z9hG4bKq"), "127.0.0.1"),
        ((PROXY, OUTSIDE), "203.0.113.9"),
        ((PROXY, PROXY, OUTSIDE), "203.0.113.9"),
        ((PROXY, "SIP/2.0/TCP 203.0.113.9:5060;branch=z9hG4bKa"), "203.0.113.9"),
        ((PROXY, "SIP/2.0/TCP [2001:db8::7]:5060;branch=z9hG4bKa"), "2001:db8::7"),
        ((PROXY, "SIP/2.0/UDP phone.example;branch=z9hG4bKa"), FORWARDED),
        ((PROXY, "nonsense"), FORWARDED),
        ((PROXY,) * 20, FORWARDED),
        # Vias beneath the one stamped by the proxy are the stranger's own words.
        ((PROXY, OUTSIDE, "SIP/2.0/UDP 127.0.0.1;branch=z9hG4bKb"), "203.0.113.9"),
    ],
)
def test_a_proxy_on_this_machine_is_looked_behind(vias: tuple[str, ...], origin: str) -> None:
    assert origin_of(forwarded(*vias), "127.0.0.1") == origin
    assert origin_of(forwarded(*vias), "198.51.100.7") == "198.51.100.7"


@given(st.lists(st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=60), max_size=12))
def test_whatever_a_stranger_writes_into_via_he_is_no_program_of_this_machine(
    texts: list[str],
) -> None:
    origin = origin_of(forwarded(PROXY, OUTSIDE, *texts), "127.0.0.1")
    assert origin == "203.0.113.9"
    assert not gate_of().trusts("127.0.0.1", forwarded(PROXY, f"SIP/2.0/UDP {texts};x", *texts))


def test_who_comes_through_a_proxy_on_this_machine_has_the_limits_of_a_stranger() -> None:
    gate = gate_of(invite_burst=2, ban_after=3, users=("agent",))
    calls = [gate.request(forwarded(PROXY, OUTSIDE), HERE, 0.0) for _ in range(3)]
    assert [status(each) for each in calls] == [None, None, 503]
    assert status(gate.request(forwarded(PROXY, OUTSIDE, method="REGISTER"), HERE, 0.0)) == 404
    for _ in range(4):
        gate.request(forwarded(PROXY, OUTSIDE, user="absent"), HERE, 0.0)
    assert gate.banned("203.0.113.9", 0.0)
    assert status(gate.request(forwarded(PROXY, OUTSIDE), HERE, 0.0)) == 0
    assert not gate.trusts("127.0.0.1", forwarded(PROXY, OUTSIDE))


def test_programs_of_this_machine_and_other_callers_are_not_locked_out_with_a_stranger() -> None:
    gate = gate_of(invite_burst=2, ban_after=1, users=("agent",))
    other = OUTSIDE.replace("203.0.113.9", "203.0.113.77")
    for _ in range(9):
        gate.request(forwarded(PROXY, OUTSIDE, user="absent"), HERE, 0.0)
    assert gate.request(forwarded(PROXY, other), HERE, 0.0) is None
    assert not gate.banned("127.0.0.1", 0.0)
    assert gate.trusts("127.0.0.1")
    for _ in range(100):
        assert gate.request(forwarded(PROXY), HERE, 0.0) is None


def test_networks_that_are_shut_out_are_so_behind_a_proxy_on_this_machine_too() -> None:
    gate = gate_of(deny=("203.0.113.0/24",))
    assert status(gate.request(forwarded(PROXY, OUTSIDE), HERE, 0.0)) == 403
    assert gate.request(forwarded(PROXY), HERE, 0.0) is None


def test_an_accounts_server_on_this_machine_speaks_for_its_callers() -> None:
    gate = gate_of(invite_burst=1)
    gate.trust("office", ("127.0.0.1",))
    for _ in range(9):
        assert gate.request(forwarded(PROXY, OUTSIDE), HERE, 0.0) is None
