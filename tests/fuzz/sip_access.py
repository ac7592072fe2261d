"""Registrars, DNS, the source gate, and the guard of outbound calls."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import random
from urllib.parse import unquote

from qwen3tts_phone.dialling.guard import Guard, GuardSettings
from qwen3tts_phone.dialling.numbers import EMERGENCY_EVERYWHERE, number_of, readings
from qwen3tts_phone.errors import BadSip, CallNotAllowed
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_phone.sip.core.settings import GateSettings, SipSettings
from qwen3tts_phone.sip.gate import DROP, Refusal, SourceGate
from qwen3tts_phone.sip.message.fields import parse_address, parse_uri
from qwen3tts_phone.sip.message.message import Request, Response, parse_message
from qwen3tts_phone.sip.message.network import DnsLookup, Hop
from qwen3tts_phone.sip.message.via import mapped_address
from qwen3tts_phone.sip.registration.keepalive import Keepalive, Located
from qwen3tts_phone.sip.registration.registration import RegistrationCore, RegistrationState
from qwen3tts_phone.sip.transport.dns import DnsAnswer, Family, NaptrRecord, SrvRecord
from qwen3tts_phone.sip.transport.locator import MAX_HOPS, Locator
from qwen3tts_phone.sip.user_agent import UserAgent
from tests.fuzz.target import Target, sequence, steps

MAX_SENDS = 600
"""More than this in one sequence would be a loop."""

OUR_HOST = "192.0.2.1"


class _Registrar:
    """Registration and keepalive of one account, with a simulated registrar."""

    def __init__(self) -> None:
        self.now = 100.0
        self.ours: tuple[str, int] = (OUR_HOST, 5060)
        self.hops: tuple[Hop, ...] = (
            Hop("udp", "192.0.2.5", 5060),
            Hop("tcp", "192.0.2.6", 5060, rank=1, server="sip:192.0.2.6;transport=tcp"),
        )
        self.last: Request | None = None
        self.sends = 0
        self.agent = UserAgent(
            SipSettings(host=OUR_HOST, port=5060, gate=None),
            now=lambda: self.now,
            local=lambda hop: self.ours,
            on_call=lambda call: None,
            rng=random.Random(1),
        )
        account = Account("sip:example.org", "alice", "secret", keepalive_s=30)
        self.core = RegistrationCore(
            self.agent, account, locate=self.locate, learn=self.learn, keep_trying=True
        )
        self.keepalive = Keepalive(
            self.agent, account, self.locate, self, current=lambda: self.core.hop, learn=self.learn
        )
        self.core.start(self.now)
        self.keepalive.start(self.now)
        self.drain()

    def locate(self, located: Located) -> None:
        located(self.hops, None if self.hops else OSError("no such name"), self.now)

    def learn(self, hop: Hop, response: Response) -> None:
        with contextlib.suppress(BadSip):
            seen = mapped_address(response)
            if seen is not None:
                ipaddress.ip_address(seen[0])
                assert 0 < seen[1] < 65536
                self.ours = seen

    def ping(self, hop: Hop) -> bool:
        return hop.reliable

    def heard_at(self, hop: Hop) -> float | None:
        return None

    def abort(self, hop: Hop) -> None:
        pass

    def drain(self) -> None:
        while self.agent.outbox:
            send = self.agent.outbox.popleft()
            self.sends += 1
            message = parse_message(send.data)
            if isinstance(message, Request):
                self.last = message
                for value in message.values("Contact"):
                    parse_uri(parse_address(value).uri)

    def answer(self, text: bytes) -> None:
        """Answer the last request: a status line's end, then header lines."""
        if self.last is None:
            return
        first, _, rest = text.partition(b"\n")
        copied = b"".join(
            f"{name}: {value}\r\n".encode()
            for name in ("From", "To", "Call-ID", "CSeq")
            for value in self.last.headers.getlist(name)
        )
        via = b"Via: " + self.last.values("Via")[0].encode()
        if rest.startswith(b";"):
            more, _, rest = rest.partition(b"\n")
            via += more
        data = b"SIP/2.0 " + first + b"\r\n" + via + b"\r\n" + copied + rest + b"\r\n\r\n"
        self.agent.receive(data, Hop("udp", "192.0.2.5", 5060), self.now)

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        for _ in range(200):
            at = self.agent.next_deadline()
            if at is None or at > end:
                break
            self.now = max(self.now, at)
            self.agent.tick(self.now)
            self.drain()
        self.now = end

    def step(self, kind: str, data: bytes) -> None:
        if kind == "a":
            self.answer(data)
        elif kind == "t":
            self.pass_time(float(int(data[:4])) if data[:4].isdigit() else 1.0)
        elif kind == "f":
            for hop in self.hops:
                self.agent.transport_failed(hop, self.now)
        elif kind == "l":
            self.core.connection_lost(Hop("tcp", "192.0.2.6", 5060, flow=1), self.now)
        elif kind == "m":
            self.ours = (OUR_HOST, 5060 + len(data))
            self.core.address_changed(self.now)
        elif kind == "d":
            self.hops = () if self.hops else (Hop("udp", "192.0.2.5", 5060),)
        elif kind == "u":
            self.core.stop(self.now)
        self.drain()


def run_accounts(data: bytes) -> None:
    registrar = _Registrar()
    for kind, argument in steps(data):
        registrar.step(kind, argument)
        over = registrar.core.state is RegistrationState.ENDED
        asked = registrar.core.state in (
            RegistrationState.REGISTERING,
            RegistrationState.REFRESHING,
            RegistrationState.UNREGISTERING,
        )
        # It always goes on: it waits for an answer, or for its time.
        assert over or asked or registrar.core.next_deadline() is not None
        assert registrar.core.granted_s >= 0
    assert registrar.sends < MAX_SENDS
    registrar.core.stop(registrar.now)
    registrar.keepalive.stop()
    for _ in range(5):
        registrar.pass_time(64.0)
    assert registrar.core.state is RegistrationState.ENDED
    assert not registrar.agent.timed


class _Zone:
    """Records of a text: ``name TYPE fields``, one a line."""

    def __init__(self, text: str) -> None:
        self.lines = [line.split() for line in text.splitlines()[:64]]

    def _of(self, name: str, kind: str) -> list[list[str]]:
        return [one[2:] for one in self.lines if one[:2] == [name, kind]]

    async def srv(self, name: str) -> DnsAnswer[SrvRecord]:
        found = [
            SrvRecord(
                _short(one[0]), _short(one[1]), _short(one[2]), one[3] if len(one) > 3 else ""
            )
            for one in self._of(name, "SRV")
            if len(one) >= 3 and all(text.isascii() and text.isdigit() for text in one[:3])
        ]
        return DnsAnswer(tuple(found), float(len(found)))

    async def naptr(self, name: str) -> DnsAnswer[NaptrRecord]:
        found = [NaptrRecord(1, 2, *one[:3]) for one in self._of(name, "NAPTR") if len(one) >= 3]
        return DnsAnswer(tuple(found), 0.0)

    async def addresses(self, name: str, families: tuple[Family, ...]) -> DnsAnswer[str]:
        found = [one[0] for one in self._of(name, "A") if one]
        if "dead" in found:
            raise OSError("no answer")
        usable = []
        for text in found:
            with contextlib.suppress(ValueError):
                usable.append(str(ipaddress.ip_address(text)))
        return DnsAnswer(tuple(usable), 60.0)


def _short(text: str) -> int:
    return int(text[:9]) % 65536


def run_locate(data: bytes) -> None:
    zone = _Zone(data.decode("utf-8", "replace"))

    async def ask() -> None:
        locator = Locator(lambda: 0.0, records=zone, rng=random.Random(1))
        kinds: tuple[DnsLookup, ...] = ("address", "srv", "naptr")
        for asks in kinds:
            hop = Hop("udp", "example.org", 5060, name="example.org", lookup=asks)
            try:
                hops = await locator.locate(hop, ("udp", "tcp", "tls"))
            except OSError:
                continue
            assert 0 < len(hops) <= MAX_HOPS
            for one in hops:
                ipaddress.ip_address(one.host)
                assert 0 < one.port < 65536
                assert one.transport in ("udp", "tcp", "tls")
                assert one.name == "example.org"
            assert locator.known(hop, ("udp", "tcp", "tls")) == hops

    asyncio.run(ask())


GRANTED = b"a200 OK\nContact: <sip:alice@192.0.2.1:5060>;expires=60\r\nExpires: 60"
CHALLENGED = b'a401 No\nWWW-Authenticate: Digest realm="r", nonce="n", qop="auth"'

ZONE = (
    b"example.org NAPTR s SIP+D2U _sip._udp.example.org\n"
    b"_sip._udp.example.org SRV 1 2 5060 a.example.org\n"
    b"_sip._tcp.example.org SRV 1 2 5060 b.example.org\n"
    b"a.example.org A 192.0.2.5\nb.example.org A 192.0.2.6\nexample.org A 192.0.2.7"
)

MOST_SOURCES = 8
TRUSTED = "198.51.100.1"

OPTIONS = (
    "OPTIONS sip:agent@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 203.0.113.9;branch=z9hG4bK1\r\n"
    "From: <sip:x@y>;tag=f\r\nTo: <sip:agent@192.0.2.1>\r\nCall-ID: c\r\nCSeq: 1 OPTIONS\r\n\r\n"
)

INVITE = OPTIONS.replace("OPTIONS", "INVITE")


def run_sip_gate(data: bytes) -> None:
    """Steps: a message (m), no message (u), a while (+), the next source (n), trust (t)."""
    settings = GateSettings(
        burst=5, invite_burst=3, users=("agent", "+49*"), ban_after=4, max_sources=MOST_SOURCES
    )
    gate = SourceGate(settings, own=lambda host, port: host == "192.0.2.1")
    gate.trust("trunk", (TRUSTED,))
    now, number, passed = 0.0, 0, dict[tuple[str, float], int]()
    for kind, rest in steps(data):
        source = Hop("udp", f"203.0.113.{number % 250}", 5060)
        if kind == "+":
            now += len(rest)
        elif kind == "n":
            number += 1
        elif kind == "u":
            gate.unreadable(source, now)
        elif kind == "t":
            with contextlib.suppress(ValueError):
                gate.trust("other", (rest.decode("utf-8", "replace"),))
        elif gate.message(rest, source, now):
            with contextlib.suppress(BadSip):
                message = parse_message(rest)
                if isinstance(message, Request):
                    _let_in(gate, message, source, now, passed)
        assert len(gate) <= MOST_SOURCES
    assert not gate.banned(TRUSTED, now)


def _let_in(
    gate: SourceGate,
    request: Request,
    source: Hop,
    now: float,
    passed: dict[tuple[str, float], int],
) -> None:
    verdict = gate.request(request, source, now, callers=(source.host,))
    if isinstance(verdict, Refusal):
        assert verdict.status in (403, 404, 486, 503)
        assert request.method != "ACK"
    elif verdict is not DROP and not gate.trusts(source.host):
        key = (source.host, now)
        passed[key] = passed.get(key, 0) + 1
        assert passed[key] <= 5, "more than its burst"
        assert request.to.tag is not None or request.method in ("INVITE", "OPTIONS", "CANCEL")
    assert gate.request(request, source, now, known=True) is None


def run_guard(data: bytes) -> None:
    """First a byte that chooses the rules, then a target."""
    choice, target = data[:1], data[1:].decode("utf-8", "replace")
    rules = {
        b"a": GuardSettings(allowed=("+49*", "@pbx.example.org", "bob"), country="49"),
        b"d": GuardSettings(denied=("+44", "@evil.example")),
        b"1": GuardSettings(country="1", max_calls_per_minute=2),
    }.get(choice, GuardSettings())
    guard = Guard(rules, home=("trunk.example.org",))
    refused = ""
    try:
        guard.check(target, 0.0)
    except CallNotAllowed as error:
        refused = error.message
    if refused:
        assert refused.isprintable()
        assert len(refused) < 400
        return
    text = target.strip()
    number = number_of(text)
    if not number:
        with contextlib.suppress(BadSip):
            number = number_of(parse_uri(text).user or "")
    digits = number.lstrip("+")
    assert digits not in EMERGENCY_EVERYWHERE, ascii(target)
    if choice == b"d":
        assert not any(each.startswith("+44") for each in readings(number)), ascii(target)
        assert not unquote(text).lower().partition(";")[0].rstrip(".").endswith("@evil.example")
    guard.check(target, 0.0)
    guard.admit(target, 0.0).over()


GUARD_SEEDS = tuple(
    kind + target
    for kind in (b"-", b"a", b"d", b"1")
    for target in (
        b"+4930123456",
        b"sip:0044%2020@trunk.example.org",
        b"tel:+1-201-555-0123;phone-context=+1",
        b'"Bob" <sip:bob@pbx.example.org:5070;transport=tls>',
        b"sip:911;phone-context=+1@trunk.example.org;user=phone",
        b"sip:*31%23112@[2001:db8::7]",
        b"sips:bob@evil.example;maddr=192.0.2.1?Replaces=x",
        b"urn:service:sos.fire",
    )
)

TARGETS = {
    "sip_accounts": Target(
        run_accounts,
        "Whatever a registrar answers, a registration goes on, is bounded, and can be ended.",
        (
            sequence(CHALLENGED, GRANTED, b"t0060", GRANTED, b"u", b"a200 OK\n"),
            sequence(b"t0032", b"a503 No\nRetry-After: 5", GRANTED, b"t0030", b"a200 OK\n"),
            sequence(GRANTED, b"m1", b"t0006", GRANTED, b"l", b"t0002", b"f", b"d", b"t0099"),
            sequence(b"a200 OK\n;received=198.51.100.7;rport=6000\nExpires: 60", b"t0001", GRANTED),
        ),
        (
            *(b"Min-Expires: 90", b"Expires: 0", b"Contact: *", b"423 Brief", b";rport=", b"a200"),
            *(b";received=", b"Retry-After: ", b"Proxy-Authenticate: ", b"stale=true", b"a407 x\n"),
        ),
        stepwise=True,
        hard=(
            sequence(*[b"a423 Brief\nMin-Expires: %d" % (1000 * n) for n in range(1, 12)]),
            sequence(b"a423 Brief\nMin-Expires: 99999999999999999999", GRANTED),
            sequence(b"a200 OK\nExpires: 0", b"t0001", b"a200 OK\nExpires: -1", b"t9999"),
            sequence(b"a200 OK\nContact: *;expires=5", b"a200 OK\nContact: <sip:\x00>;expires=x"),
            sequence(*[CHALLENGED] * 12),
            sequence(GRANTED, *[b"a200 OK\n;received=198.51.100.7;rport=%d" % n for n in range(9)]),
            sequence(b"a200 OK\n;received=::1;rport=0", b"a200 OK\n;received=[];rport=99999"),
            sequence(b"a503 No\nRetry-After: 999999999999", b"t9999", GRANTED),
            sequence(b"d", b"t0099", b"d", b"t0099", GRANTED, b"u", b"u", b"a481 No\n", b"t0064"),
            sequence(b"f", b"f", b"f", b"t0001", b"f", b"t0005", b"f", b"l", b"m", b"m1", b"m22"),
            sequence(b"a100 Trying\n", b"a301 Moved\nContact: <sip:x>", b"a699 \n", b"t0300"),
        ),
    ),
    "sip_locate": Target(
        run_locate,
        "Whatever DNS says, servers are addresses with ports, bounded in number, or an OSError.",
        (ZONE, b"example.org A dead", b"_sip._udp.example.org SRV 0 0 0 "),
        (b" SRV ", b" NAPTR ", b" A ", b"_sips._tcp.example.org", b"SIPS+D2T", b"dead", b"::1"),
        hard=(
            b"example.org NAPTR s SIP+D2U example.org\nexample.org SRV 1 2 3 example.org",
            b"example.org NAPTR s SIP+D2U _sip._udp.example.org",
            b"_sip._udp.example.org SRV 0 65535 65535 a\n" * 40 + b"a A ::ffff:192.0.2.1",
            b"_sip._udp.example.org SRV 1 1 0 a\na A 192.0.2.1",
            b"_sip._udp.example.org SRV 1 1 1 \xff\xfe\n\xff\xfe A 192.0.2.1",
            b"example.org A not-an-address\nexample.org A 192.0.2.1\nexample.org A 192.0.2.1",
            b"_sip._udp.example.org SRV 1 0 5 a.\na. A dead\n"
            b"_sip._tcp.example.org SRV 0 0 7 192.0.2.9",
        ),
    ),
    "sip_gate": Target(
        run_sip_gate,
        "Whatever untrusted sources send, the gate raises nothing, remembers few, lets no"
        " source beyond its burst and no foreign method through, and never bans a trusted one.",
        (
            sequence(f"m{OPTIONS}", f"m{INVITE}", "n", f"m{INVITE}", "+abc", "u"),
            sequence(*[f"m{OPTIONS}"] * 9, "+a", f"m{OPTIONS}"),
            sequence(
                "t203.0.113.0/24", f"m{OPTIONS.replace('OPTIONS', 'REGISTER')}", "mSIP/2.0 200"
            ),
            sequence(f"m{INVITE.replace('sip:agent', 'sip:100')}", *["u"] * 6, f"m{INVITE}"),
        ),
        (b"User-Agent: friendly-scanner\r\n", b";tag=t", b"sip:", b"tel:", b"@192.0.2.1"),
        stepwise=True,
        hard=(
            sequence(*[f"m{INVITE}"] * 30),
            sequence(*(step for _ in range(20) for step in ("n", f"m{OPTIONS}"))),
            sequence(*["u"] * 40, f"m{OPTIONS}"),
            sequence("t", "t::/0", "t0.0.0.0/0", f"m{OPTIONS}", "t\xff", "t198.51.100.1"),
            sequence(f"m{OPTIONS.replace('OPTIONS', 'ACK')}", f"m{INVITE.replace('sip:', 'tel:')}"),
            sequence(
                f"m{INVITE.replace('192.0.2.1', '[::1%25x]')}", f"m{INVITE.replace('agent', '%00')}"
            ),
        ),
    ),
    "call_guard": Target(
        run_guard,
        "Whatever is to be called, it is refused in a sentence or may be called; no way of writing"
        " an emergency number, or one that is denied, gets through.",
        GUARD_SEEDS,
        (b"sip:", b"tel:", b"911", b"+44", b"0044", b"%40", b";phone-context=", b"@evil.example"),
        hard=(
            b"dsip:good.example?x@evil.example",
            b"dsip:bob@EVIL.example.",
            b"dsip:bob@evil.example;maddr=192.0.2.1",
            b"dsip:b%40x@evil.example:99999",
            b"-sip:\xef\xbc\x99\xef\xbc\x91\xef\xbc\x91@host",
            b"-" + "\u0661\u0661\u0662".encode(),
            b"-sip:911",
            b"-tel:",
            b"-" + b"1" * 5000,
            b"1<<<<sip:112@h",
            b"a*" * 900,
            b"-[a-z]",
        ),
    ),
}
