"""What one message of a stranger may cost, in function calls, and when others get their turn."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qwen3tts_pacer.clock import LoopClock
from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip import scheduling as timekeeper
from qwen3tts_phone.sip.core.settings import GateSettings, SipSettings
from qwen3tts_phone.sip.gate import SourceGate
from qwen3tts_phone.sip.message import fields
from qwen3tts_phone.sip.message.message import (
    MAX_STRUCTURE,
    MAX_VALUES,
    Response,
    StreamFramer,
    parse_message,
)
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.scheduling import LATE_MOST_S, SEARCH_SHARE, TimerScheduler
from qwen3tts_phone.sip.transport.udp import MAX_TURN_S, TransportCallbacks, UdpTransport
from qwen3tts_phone.sip.user_agent import UserAgent
from tests.sip.wire import OFFER

MOST_CALLS = 12_000
"""Function calls that one datagram may cause; an ordinary INVITE causes about a tenth."""
STRANGER = Hop("udp", "10.0.0.9", 5060)
VIA = "SIP/2.0/UDP 10.0.0.9:5060;branch=z9hG4bKx;rport"


def datagram(*changed: tuple[str, str], method: str = "INVITE") -> bytes:
    """A request whose headers are replaced by these, or that has them besides."""
    headers = {
        "Via": VIA,
        "From": "<sip:b@10.0.0.9>;tag=1",
        "To": "<sip:a@10.0.0.1>",
        "Call-ID": "one",
        "CSeq": f"1 {method}",
        "Contact": "<sip:b@10.0.0.9>",
        "Max-Forwards": "70",
    }
    more = [(name, value) for name, value in changed if name not in headers]
    headers |= {name: value for name, value in changed if name in headers}
    lines = [f"{method} sip:a@10.0.0.1 SIP/2.0"]
    lines += [f"{name}: {value}" for name, value in (*headers.items(), *more)]
    return "\r\n".join([*lines, "", OFFER]).encode()


def agent() -> UserAgent:
    gate = SourceGate(GateSettings(ban_after=0))
    made = UserAgent(
        SipSettings(),
        now=lambda: 0.0,
        local=lambda hop: ("10.0.0.1", 5060),
        on_call=lambda call: None,
        gate=gate,
    )
    return made


def calls_of(work: Callable[[], object]) -> int:
    """How many functions, of Python and of C, something calls."""
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def cost(data: bytes) -> int:
    for cached in (fields.parse_uri, fields.parse_address, fields.parse_via, fields._split):
        cached.cache_clear()
    receiver = agent()
    return calls_of(lambda: receiver.receive(data, STRANGER, 0.0))


def listed(name: str, value: str, count: int) -> bytes:
    return datagram((name, ",".join([value] * count)))


ROOM = 14_000
PATTERNS = {
    "via commas": datagram(("Via", VIA + "," * ROOM)),
    "via commas first": datagram(("Via", "," * ROOM + VIA)),
    "via many": listed("Via", VIA, 290),
    "via most": listed("Via", VIA, MAX_VALUES),
    "via long": datagram(("Via", f"{VIA};x={'a' * 3900},{'b' * 9000}")),
    "via parameters": datagram(("Via", VIA + ";a" * 1900)),
    "via received": datagram(("Via", VIA + ";received=:" * 350)),
    "contact commas": datagram(("Contact", "<sip:b@10.0.0.9>" + "," * ROOM)),
    "contact many": listed("Contact", "<sip:b@h>", 1400),
    "contact most": listed("Contact", "<sip:b@h>", MAX_VALUES),
    "contact parameters": datagram(("Contact", f"<sip:b@h{';a=b' * 1000}>")),
    "record-route many": listed("Record-Route", "<sip:b@h;lr>", 1100),
    "record-route most": listed("Record-Route", "<sip:b@h;lr>", 32),
    "route many": listed("Route", "<sip:b@h;lr>", 1100),
    "from parameters": datagram(("From", "<sip:b@10.0.0.9>;tag=1" + ";a" * 2000)),
    "all parameters": datagram(
        ("From", "<sip:b@10.0.0.9>;tag=1" + ";a=b" * 60),
        ("To", "<sip:a@10.0.0.1>" + ";c=d" * 60),
        ("Contact", f"<sip:b@h{';e=f' * 60}>"),
        ("Via", VIA + ";g=h" * 60),
    ),
    "quoted": datagram(("From", '"' + "\\a" * 2000 + '" <sip:b@10.0.0.9>;tag=1')),
    "quoted most": datagram(("From", '"' + "\\a" * 900 + '" <sip:b@10.0.0.9>;tag=1')),
    "quotes": datagram(("Contact", '"' * ROOM)),
    "brackets": datagram(("Contact", "<>" * (ROOM // 2))),
    "folded": datagram(("X", "a\r\n" + "\r\n".join([" " + "c" * 100] * 138))),
    "names": datagram(*((f"X{i}", "a") for i in range(150))),
    "lines": datagram(*((f"X{i % 70}", "a") for i in range(150))),
    "lengths": datagram(*((("Content-Length"), "0") for _ in range(140))),
    "supported": listed("Supported", "a" * 100, 99),
    "require": datagram(("Require", "a," * 7000)),
    "identities": listed("P-Asserted-Identity", "<sip:b@h>", 1400),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_no_datagram_costs_more_than_some_ordinary_ones(name: str) -> None:
    assert len(PATTERNS[name]) < 16_384
    assert cost(PATTERNS[name]) < MOST_CALLS


NAMES = st.sampled_from(
    ["Via", "Contact", "Route", "Record-Route", "From", "To", "Supported", "Allow", "X-Y", "Reason"]
)
UNITS = st.sampled_from(
    [
        *(
            ",",
            ";",
            '"',
            "<",
            ">",
            "\\",
            " ",
            "=",
            "a",
            ";a",
            ";a=b",
            ",a",
            VIA,
            "<sip:b@h>",
            '\\"',
        ),
        *("%41", "\r\n ", ";received=:", "<sip:b@h;lr>,", ", ", "sip:", "@", "[", ":"),
    ]
)
VALUES = st.lists(st.tuples(UNITS, st.integers(1, 1500)), max_size=4).map(
    lambda parts: "".join(unit * count for unit, count in parts)[:12_000]
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(NAMES, VALUES), max_size=4), st.sampled_from(["INVITE", "OPTIONS"]))
@example([("Via", VIA + "," * 12_000)], "INVITE")
def test_no_heap_of_repeated_pieces_costs_more(changed: list[tuple[str, str]], method: str) -> None:
    assert cost(datagram(*changed, method=method)) < MOST_CALLS


@pytest.mark.parametrize("char", list(',;"<>\\'))
def test_a_head_full_of_separators_is_refused_before_it_is_split(char: str) -> None:
    data = datagram(("X-Y", char * (MAX_STRUCTURE + 1)))
    with pytest.raises(BadSip, match="separators"):
        parse_message(data)
    assert calls_of(lambda: _refused(data)) < 50


def _refused(data: bytes) -> None:
    try:
        parse_message(data)
    except BadSip:
        return


def test_the_values_of_a_header_are_counted_over_all_its_lines() -> None:
    lines = [("X-Y", ",".join("abc")) for _ in range(MAX_VALUES // 2)]
    with pytest.raises(BadSip, match="X-Y"):
        parse_message(datagram(*lines))


def test_what_real_networks_send_is_within_the_bounds() -> None:
    """Twenty proxies, each with a Via and a Record-Route, and what a carrier adds."""
    via = f"{VIA};received=198.51.100.7;i=1;x=2"
    message = parse_message(
        datagram(
            ("Via", ",".join([via] * 20)),
            ("Record-Route", ",".join(["<sip:198.51.100.7;lr=on;ftag=1;did=2>"] * 20)),
            ("Allow", "INVITE, ACK, CANCEL, BYE, OPTIONS, REGISTER, INFO, PRACK, UPDATE, REFER"),
            ("History-Info", ",".join(["<sip:b@h?Reason=SIP%3Bcause=302>;index=1"] * 10)),
            *((f"X-Carrier-{number}", "a;b=c, d") for number in range(40)),
        )
    )
    assert len(message.values("Via")) == 20


def test_an_answer_with_many_challenges_is_read() -> None:
    challenge = 'Digest realm="r", nonce="n", qop="auth,auth-int", algorithm=MD5, opaque="o"'
    data = datagram(*(("WWW-Authenticate", challenge) for _ in range(8)))
    data = b"SIP/2.0 401 No" + data[data.index(b"\r\n") :]
    assert isinstance(parse_message(data), Response)


def test_a_stream_gives_one_message_at_a_time() -> None:
    """So that its reader can let others have their turn between two of them."""
    framer = StreamFramer()
    framer.feed(b"a\r\n\r\n" * 3)
    assert [framer.next(), framer.next()] == [b"a\r\n\r\n"] * 2
    framer.feed(b"b")
    assert framer.next() == b"a\r\n\r\n"
    assert framer.next() is None


@pytest.mark.network
async def test_datagrams_that_take_their_time_leave_the_loop_to_others_in_between() -> None:
    now = 0.0
    got: list[bytes] = []

    def receive(data: bytes, hop: Hop) -> None:
        nonlocal now
        got.append(data)
        now += MAX_TURN_S / 2

    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        listener = socket.socket(type=socket.SOCK_DGRAM)
        listener.setblocking(False)
        listener.bind(("127.0.0.1", 0))
        transport = UdpTransport(
            listener, TransportCallbacks(receive, lambda hop, cause: None, now=lambda: now)
        )
        for _ in range(12):
            sender.sendto(b"OPTIONS", listener.getsockname())
        most = seen = 0
        while len(got) < 12:
            await asyncio.sleep(0)
            most, seen = max(most, len(got) - seen), len(got)
        transport.close()
    assert most == 2


async def test_looks_that_take_long_are_made_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    now = [1000.0]

    def slow() -> float | None:
        looks.append(now[0])
        now[0] += 0.004  # it looks at very many calls
        return None

    monkeypatch.setattr(f"{timekeeper.__name__}.time.perf_counter", lambda: now[0])
    loop = asyncio.get_running_loop()
    waits: list[float] = []
    monkeypatch.setattr(loop, "call_later", lambda wait_s, _: waits.append(wait_s))
    keeper = TimerScheduler(LoopClock(), slow, lambda: None)
    keeper.reschedule()
    await asyncio.sleep(0)
    assert len(looks) == 1
    keeper.reschedule()
    assert waits == [pytest.approx(0.004 / SEARCH_SHARE)]
    assert waits[0] <= LATE_MOST_S
    keeper.stop()


async def test_looks_that_take_no_time_are_made_as_they_are_asked_for() -> None:
    looks: list[float] = []

    def quick() -> float | None:
        looks.append(time.perf_counter())
        return None

    keeper = TimerScheduler(LoopClock(), quick, lambda: None)
    for _ in range(5):
        keeper.reschedule()
        await asyncio.sleep(0)
    assert len(looks) >= 1
    keeper.stop()
