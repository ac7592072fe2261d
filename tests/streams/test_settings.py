from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qwen3tts_phone.streams.admission import StreamAdmission
from qwen3tts_phone.streams.carriers import CARRIERS, carrier_kind
from qwen3tts_phone.streams.carriers.adapter import Handshake, Refused, StreamKind
from qwen3tts_phone.streams.settings import StreamSettings
from tests.streams.far_end import PlainAdapter


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kinds", ()),
        ("kinds", ("twilio", "sip")),
        ("kinds", ("twilio", "twilio")),
        ("port", 65_536),
        ("audiosocket_port", -1),
        ("lead_ms", 20),
        ("lead_ms", 500),
        ("mark_ms", 0),
        ("max_calls", 0),
        ("max_per_address", -1),
        ("max_message_bytes", 10),
        ("start_s", 0.0),
        ("vanished_s", -1.0),
        ("ping_s", float("nan")),
        ("audiosocket_hz", 11_025),
        ("allow", ("10.0.0.1/8",)),
        ("allow", ("example.org",)),
        ("key", Path("key.pem")),
    ],
)
def test_a_value_that_is_none_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}"):
        StreamSettings(**{name: value})


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(StreamSettings(token="secret"))


@pytest.mark.parametrize("name", list(CARRIERS))
def test_every_kind_can_be_made_without_keys(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("TWILIO_AUTH_TOKEN", "TELNYX_PUBLIC_KEY", "PLIVO_AUTH_TOKEN"):
        monkeypatch.delenv(key, raising=False)
    kind = carrier_kind(name)
    assert kind.name == name
    adapter = kind.make(Handshake(path=f"/{name}"))
    assert adapter.line
    assert adapter.payload.frame_bytes(adapter.ptime_ms)


def test_a_kind_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="'sip'"):
        carrier_kind("sip")


def test_a_kind_does_not_show_what_may_hold_keys() -> None:
    async def hang_up(call_id: str) -> None: ...

    kind = StreamKind("plain", lambda handshake: PlainAdapter(), hang_up=hang_up)
    assert "hang_up" not in repr(kind)


# --- the gate


def refused(gate: StreamAdmission, handshake: Handshake) -> int:
    with pytest.raises(Refused) as why:
        gate.check(handshake)
    return why.value.status


def test_all_come_in_where_nothing_is_asked() -> None:
    StreamAdmission(StreamSettings()).check(Handshake(peer="192.0.2.1"))


@pytest.mark.parametrize(
    "handshake",
    [
        Handshake(query="a=1&token=secret"),
        Handshake(headers={"authorization": "Bearer secret"}),
        Handshake(headers={"authorization": "bearer  secret "}),
        Handshake(headers={"authorization": "Basic dTpzZWNyZXQ="}),
    ],
)
def test_the_token_is_taken_from_the_query_and_the_header(handshake: Handshake) -> None:
    StreamAdmission(StreamSettings(token="secret")).check(handshake)


@pytest.mark.parametrize(
    "handshake",
    [
        Handshake(),
        Handshake(query="token=secre"),
        Handshake(query="token="),
        Handshake(headers={"authorization": "Basic !!!"}),
        Handshake(headers={"authorization": "secret"}),
        Handshake(query="token=s\udcffecret"),
    ],
)
def test_without_it_nobody_comes_in(handshake: Handshake) -> None:
    assert refused(StreamAdmission(StreamSettings(token="secret")), handshake) == 401


@pytest.mark.parametrize("peer", ["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::7"])
def test_an_allowed_network_comes_in_however_it_is_written(peer: str) -> None:
    gate = StreamAdmission(StreamSettings(allow=("10.0.0.0/8", "2001:db8::/32")))
    gate.check(Handshake(peer=peer))


@pytest.mark.parametrize("peer", ["192.0.2.1", "2001:db9::7", "", "nowhere"])
def test_others_do_not(peer: str) -> None:
    gate = StreamAdmission(StreamSettings(allow=("10.0.0.0/8", "2001:db8::/32")))
    assert refused(gate, Handshake(peer=peer)) == 403


def test_who_has_left_makes_room() -> None:
    gate = StreamAdmission(StreamSettings(max_calls=2, max_per_address=1))
    gate.enter("a")
    assert refused(gate, Handshake(peer="a")) == 429
    gate.enter("b")
    assert refused(gate, Handshake(peer="c")) == 503
    gate.leave("a")
    gate.check(Handshake(peer="a"))


def test_while_it_drains_nobody_comes_in() -> None:
    gate = StreamAdmission(StreamSettings())
    gate.draining = True
    assert refused(gate, Handshake()) == 503
