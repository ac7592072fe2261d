"""Fuzz targets: the gate before requests, and the guard before calls of ours."""

from __future__ import annotations

import contextlib
from urllib.parse import unquote

from qwen3tts_phone.dialling.guard import Guard, GuardSettings
from qwen3tts_phone.dialling.numbers import EMERGENCY_EVERYWHERE, number_of, readings
from qwen3tts_phone.errors import BadSip, CallNotAllowed
from qwen3tts_phone.sip.core.settings import GateSettings
from qwen3tts_phone.sip.gate import DROP, Refusal, SourceGate
from qwen3tts_phone.sip.message.fields import parse_uri
from qwen3tts_phone.sip.message.message import Request, parse_message
from qwen3tts_phone.sip.message.network import Hop
from tests.fuzz.target import Target, steps, story

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
HARD: dict[str, tuple[bytes, ...]] = {
    "sip_gate": (
        story(*[f"m{INVITE}"] * 30),
        story(*(step for _ in range(20) for step in ("n", f"m{OPTIONS}"))),
        story(*["u"] * 40, f"m{OPTIONS}"),
        story("t", "t::/0", "t0.0.0.0/0", f"m{OPTIONS}", "t\xff", "t198.51.100.1"),
        story(f"m{OPTIONS.replace('OPTIONS', 'ACK')}", f"m{INVITE.replace('sip:', 'tel:')}"),
        story(f"m{INVITE.replace('192.0.2.1', '[::1%25x]')}", f"m{INVITE.replace('agent', '%00')}"),
    ),
    "call_guard": (
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
}
TARGETS = {
    "sip_gate": Target(
        run_sip_gate,
        "Whatever strangers send, the gate raises nothing, remembers few, lets no source beyond its"
        " burst and no foreign method through, and never bans a trusted one.",
        (
            story(f"m{OPTIONS}", f"m{INVITE}", "n", f"m{INVITE}", "+abc", "u"),
            story(*[f"m{OPTIONS}"] * 9, "+a", f"m{OPTIONS}"),
            story("t203.0.113.0/24", f"m{OPTIONS.replace('OPTIONS', 'REGISTER')}", "mSIP/2.0 200"),
            story(f"m{INVITE.replace('sip:agent', 'sip:100')}", *["u"] * 6, f"m{INVITE}"),
        ),
        (b"User-Agent: friendly-scanner\r\n", b";tag=t", b"sip:", b"tel:", b"@192.0.2.1"),
        stepwise=True,
    ),
    "call_guard": Target(
        run_guard,
        "Whatever is to be called, it is refused in a sentence or may be called; no way of writing"
        " an emergency number, or one that is denied, gets through.",
        GUARD_SEEDS,
        (b"sip:", b"tel:", b"911", b"+44", b"0044", b"%40", b";phone-context=", b"@evil.example"),
    ),
}
