"""Whom this line may call, how often, and for how long."""

from __future__ import annotations

import pytest

from qwen3tts_phone.dialling.guard import CallNotAllowed, Guard, GuardSettings, refuse_emergency
from qwen3tts_phone.errors import CallError

TRUNK = "sip:trunk.example.org:5070"


def rule_of(guard: Guard, target: str, now: float = 0.0) -> str:
    """Which rule forbids it; empty where none does."""
    try:
        guard.check(target, now)
    except CallNotAllowed as error:
        return error.rule if error.message and error.remedy else "says nothing"
    return ""


@pytest.mark.parametrize(
    "target",
    [
        "112",
        "911",
        "999",
        "000",
        "tel:911",
        "tel:112;phone-context=+49",
        "sip:911@trunk.example.org",
        "sip:911@elsewhere.example",
        "sips:+112@elsewhere.example",
        "sip:%39%31%31@elsewhere.example",
        "sip:911;phone-context=+1@trunk.example.org;user=phone",
        '"Nobody" <sip:911@trunk.example.org>',
        "sip:911",
        "urn:service:sos",
        "urn:service:sos.fire",
        "sip:*31%23112@trunk.example.org",
        "sip:9-1-1@trunk.example.org",
        "sip:9911@trunk.example.org",
    ],
)
def test_emergency_numbers_are_refused_however_they_are_written(target: str) -> None:
    assert rule_of(Guard(home=(TRUNK,)), target) == "emergency" or "9911" in target
    assert rule_of(Guard(GuardSettings(allowed=("*",)), home=(TRUNK,)), target) != ""


def test_emergency_calls_can_be_allowed_where_the_line_is_made_for_them() -> None:
    assert rule_of(Guard(GuardSettings(emergency=True)), "112") == ""


def test_an_extension_that_is_an_emergency_number_elsewhere_can_be_written_out() -> None:
    assert rule_of(Guard(home=(TRUNK,)), "sip:100@trunk.example.org") == "emergency_somewhere"
    assert rule_of(Guard(home=(TRUNK,)), "sip:100@192.0.2.7") == ""
    allowed = GuardSettings(allowed=("100", "*"))
    assert rule_of(Guard(allowed, home=(TRUNK,)), "sip:100@trunk.example.org") == ""


@pytest.mark.parametrize(
    "target",
    [
        "+19005550123",
        "sip:0019005550123@trunk.example.org",
        "sip:01119005550123@192.0.2.7",
        "sip:+979123456789@trunk.example.org",
        "sip:*31%23+19005550123@trunk.example.org",
        "0900 123456",
        "sip:4990012345678@trunk.example.org",
        "0-0049 900 123456",
    ],
)
def test_premium_numbers_are_refused_at_every_host(target: str) -> None:
    assert rule_of(Guard(GuardSettings(country="49"), home=(TRUNK,)), target) == "premium"
    assert rule_of(Guard(GuardSettings(country="49", premium=True)), target) == ""


def test_a_premium_number_that_is_written_out_may_be_called() -> None:
    guard = Guard(GuardSettings(allowed=("+4990012345*", "*"), country="49"))
    assert rule_of(guard, "+4990012345") == ""
    assert rule_of(guard, "+19005550123") == "premium"


@pytest.mark.parametrize(
    ("target", "allowed", "may"),
    [
        ("+4930123", ("+4930*",), True),
        ("+4930123", ("+49",), True),
        ("sip:004930123@trunk.example.org", ("+49",), True),
        ("sip:030123@trunk.example.org", ("+4930*",), True),
        ("sip:4930123456@trunk.example.org", ("+49",), False),
        ("+4340123", ("+49",), False),
        ("sip:+4930123@elsewhere.example", ("+49",), False),
        ("sip:+4930123@elsewhere.example", ("@elsewhere.example",), True),
        ("sip:bob@pbx.example.org", ("bob@pbx.example.org",), True),
        ("sip:BOB@PBX.example.org.", ("bob@pbx.example.org",), True),
        ("sip:bob@pbx.example.org:5070", ("bob@pbx.example.org:5070",), True),
        ("sip:bob@pbx.example.org:5071", ("bob@pbx.example.org:5070",), False),
        ("sip:bob@pbx.example.org", ("sip:*@pbx.example.org",), True),
        ("sip:bob%40pbx.example.org@evil.example", ("@pbx.example.org",), False),
        ("sip:bob@evil.example;x=pbx.example.org", ("@pbx.example.org",), False),
        ("sip:bob@evil.example?to=pbx.example.org", ("@pbx.example.org",), False),
        ("sip:reception@trunk.example.org", ("reception",), True),
        ("sip:reception@elsewhere.example", ("reception",), False),
        ("sip:[2001:db8::7]", ("@[2001:db8::7]",), True),
        ("sip:bob@[2001:db8::7]", ("bob@2001:db8::7",), True),
        ("sip:bob@anywhere.example", ("*",), True),
        ("tel:+4930123", ("+4930123",), True),
    ],
)
def test_what_is_allowed_is_called_and_nothing_else(
    target: str, allowed: tuple[str, ...], may: bool
) -> None:
    guard = Guard(GuardSettings(allowed=allowed, country="49"), home=(TRUNK,))
    assert rule_of(guard, target) == ("" if may else "not_allowed")


@pytest.mark.parametrize(
    "target",
    [
        "+442071234567",
        "sip:00442071234567@trunk.example.org",
        "sip:0-0044 2071234567@trunk.example.org".replace(" ", "%20"),
        "sip:442071234567@elsewhere.example",
        "sip:+442071234567@192.0.2.7",
        "sip:*67%23+442071234567@trunk.example.org",
    ],
)
def test_what_is_denied_is_refused_however_it_is_written_and_whatever_is_allowed(
    target: str,
) -> None:
    guard = Guard(GuardSettings(allowed=("*",), denied=("+44",)), home=(TRUNK,))
    assert rule_of(guard, target) == "denied"
    assert rule_of(guard, "+4930123") == ""


def test_addresses_can_be_denied() -> None:
    guard = Guard(GuardSettings(denied=("@evil.example", "carol@*")))
    assert rule_of(guard, "sip:bob@evil.example") == "denied"
    assert rule_of(guard, "sip:carol@good.example:5080") == "denied"
    assert rule_of(guard, "sip:bob@good.example") == ""


@pytest.mark.parametrize(
    "target",
    [
        "",
        "http://example.org/",
        "mailto:bob@example.org",
        "urn:service:counseling",
        "sip:@@",
        "sip:bob@host;maddr=192.0.2.66",
        "sip:bob@host\r\nX: y",
        "sip:good.example?x@evil.example",
        "030:bob@evil.example",
        "tel:bob",
        "<sip:bob@host",
        "a" * 9000,
    ],
)
def test_what_cannot_be_looked_into_is_not_called(target: str) -> None:
    assert rule_of(Guard(), target) == "address"


def test_so_many_calls_may_begin_in_a_minute() -> None:
    guard = Guard(GuardSettings(max_calls_per_minute=2, max_calls_per_hour=3))
    for now in (0.0, 10.0):
        guard.admit("sip:bob@host", now).over()
    with pytest.raises(CallNotAllowed, match="2 calls were made within the last minute") as error:
        guard.admit("sip:bob@host", 20.0)
    assert error.value.rule == "rate"
    assert "40 s" in error.value.remedy
    guard.admit("sip:bob@host", 60.0).over()
    with pytest.raises(CallNotAllowed, match="3 calls were made within the last hour"):
        guard.check("sip:bob@host", 200.0)
    guard.check("sip:bob@host", 3600.0)


def test_a_check_is_not_counted() -> None:
    guard = Guard(GuardSettings(max_calls_per_minute=1, max_concurrent=1))
    for _ in range(5):
        guard.check("sip:bob@host", 0.0)
    guard.admit("sip:bob@host", 0.0)


def test_a_call_that_is_refused_is_not_counted() -> None:
    guard = Guard(GuardSettings(max_calls_per_minute=1))
    with pytest.raises(CallNotAllowed):
        guard.admit("112", 0.0)
    guard.admit("sip:bob@host", 0.0)


def test_so_many_calls_may_be_under_way_at_once() -> None:
    guard = Guard(GuardSettings(max_concurrent=2))
    first, _ = guard.admit("sip:a@host", 0.0), guard.admit("sip:b@host", 0.0)
    assert rule_of(guard, "sip:c@host") == "concurrent"
    first.over()
    first.over()
    assert guard.concurrent == 1
    guard.admit("sip:c@host", 0.0)
    assert rule_of(guard, "sip:d@host") == "concurrent"


def test_a_call_has_a_time_at_which_it_must_be_over() -> None:
    assert Guard(GuardSettings(max_minutes=2)).admit("sip:a@host", 100.0).until == 220.0
    assert Guard().admit("sip:a@host", 100.0).until is None


def test_without_limits_nothing_is_remembered() -> None:
    guard = Guard()
    for now in range(1000):
        guard.admit("sip:a@host", now).over()
    assert not guard._begun
    assert guard.concurrent == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_calls_per_minute", -1),
        ("max_minutes", float("nan")),
        ("allowed", ("",)),
        ("denied", (" ",)),
        ("country", "+49"),
        ("international_prefixes", ("",)),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name}"):
        GuardSettings(**{name: value})  # type: ignore[arg-type]


def test_its_error_is_one_of_a_call() -> None:
    with pytest.raises(CallError, match=r"^112 is an emergency number"):
        Guard().check("112", 0.0)


@pytest.mark.parametrize("target", ["911", "sip:112@10.0.0.5", "tel:999", "urn:service:sos.police"])
def test_a_phone_without_rules_refuses_emergency_numbers(target: str) -> None:
    with pytest.raises(CallNotAllowed) as raised:
        refuse_emergency(target)
    assert raised.value.rule == "emergency"


@pytest.mark.parametrize("target", ["sip:100@pbx.example.org", "sip:bob@127.0.0.1", "+4930112"])
def test_a_phone_without_rules_calls_extensions_and_everybody_else(target: str) -> None:
    refuse_emergency(target)
