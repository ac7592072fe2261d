"""Who is let in, and what the others are told."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from qwen3tts_server.app import create_app
from qwen3tts_server.gate import KEY_SUBPROTOCOL, Gate, group_of, origin_allowed
from qwen3tts_server.keys import ApiKeys
from qwen3tts_server.settings import AccessSettings, ServerSettings
from tests.engine.fake_engine import FakeEngine
from tests.fakes import settle
from tests.server.ops.asgi import Reached, scope_of, sent_by

KEYS = ("first-key-of-two", "second-key-of-two")


def gate(**settings: Any) -> tuple[Gate, Reached]:
    reached = Reached()
    settings.setdefault("api_keys", KEYS)
    access = AccessSettings(**settings)
    return Gate(reached, access, ApiKeys(access.api_keys, access.api_key_file)), reached


def bearer(key: str) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {key}")]


def offered(key: str) -> str:
    return KEY_SUBPROTOCOL + base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


async def status_of(app: Gate, scope: Scope) -> int:
    (start, *_) = await sent_by(app, scope)
    if start["type"] == "websocket.accept":
        return 101
    status: int = start["status"]
    return status


async def test_refusals_are_counted_by_code() -> None:
    settings = ServerSettings(access=AccessSettings(api_keys=KEYS))
    app = create_app(FakeEngine(), settings)
    for headers in ([], bearer("wrong"), [*bearer(KEYS[0]), ("Origin", "https://evil.example")]):
        await sent_by(app, scope_of("http", headers=headers))
    text = app.state.service.meter.exposition("", ready=True)[0].decode()
    assert 'qwen3tts_errors_total{code="invalid_api_key",dialect="gate"} 2.0' in text
    assert 'qwen3tts_errors_total{code="origin_not_allowed",dialect="gate"} 1.0' in text


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_each_key_lets_in(kind: str, key: str) -> None:
    app, reached = gate()
    assert await status_of(app, scope_of(kind, headers=bearer(key))) in (200, 101)
    assert len(reached.scopes) == 1


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    "headers",
    [
        [],
        bearer("wrong"),
        bearer(""),
        bearer(KEYS[0][:-1]),
        bearer(KEYS[0] + "x"),
        bearer(f"{KEYS[0]},{KEYS[1]}"),
        [("Authorization", KEYS[0])],
        [("Authorization", f"Basic {KEYS[0]}")],
        [*bearer(KEYS[0]), *bearer(KEYS[1])],
        bearer("ÿ" * 10),
        bearer("x" * 100_000),
        [("X-Api-Key", KEYS[0])],
    ],
    ids=lambda headers: str(headers)[:40],
)
async def test_nothing_else_lets_in(kind: str, headers: list[tuple[str, str]]) -> None:
    app, reached = gate()
    start, body = await sent_by(app, scope_of(kind, headers=headers))
    assert start["status"] == 401
    assert dict(start["headers"])[b"www-authenticate"].startswith(b"Bearer")
    error = json.loads(body["body"])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == "invalid_api_key"
    assert not reached.scopes


@given(
    st.lists(
        st.tuples(
            st.sampled_from((b"authorization", b"Authorization", b"origin", b"host", b"x")),
            st.binary(max_size=40) | st.builds(lambda b: b"Bearer " + b, st.binary(max_size=40)),
        ),
        max_size=4,
    ),
    st.lists(st.text(max_size=30) | st.builds(lambda t: "bearer." + t, st.text(max_size=30))),
    st.sampled_from(("http", "websocket")),
    st.text(),
)
async def test_no_headers_break_the_gate_or_open_it(
    headers: list[tuple[bytes, bytes]], subprotocols: list[str], kind: str, path: str
) -> None:
    app, reached = gate()
    scope = {**scope_of(kind, path, subprotocols=subprotocols), "headers": headers}
    status = await status_of(app, scope)
    let_in = kind == "http" and path in ("/health", "/ready") and status == 200
    assert let_in or status in (401, 403)
    assert bool(reached.scopes) == let_in


async def test_where_no_key_is_set_everybody_is_let_in() -> None:
    app, _ = gate(api_keys=())
    assert await status_of(app, scope_of()) == 200
    assert await status_of(app, scope_of(headers=bearer("any"))) == 200


async def test_health_and_what_is_opened_ask_for_no_key() -> None:
    app, _ = gate(open_paths=("/metrics",))
    for path in ("/health", "/ready", "/metrics"):
        assert await status_of(app, scope_of(path=path)) == 200
    for path in ("/health/", "/healthy", "//health", "/v1/health", "/Health", "/v1/audio/speech"):
        assert await status_of(app, scope_of(path=path)) == 401
    assert await status_of(app, scope_of("websocket", "/health")) == 401


async def test_below_a_root_the_paths_are_known() -> None:
    app, _ = gate()
    assert await status_of(app, scope_of(path="/tts/health", root_path="/tts")) == 200
    assert await status_of(app, scope_of(path="/tts/v1", root_path="/tts")) == 401


async def test_a_browser_brings_its_key_as_a_subprotocol_that_no_route_sees() -> None:
    app, reached = gate()
    scope = scope_of("websocket", subprotocols=["qwen3tts.speech.v1", offered(KEYS[1])])
    assert await status_of(app, scope) == 101
    assert reached.scopes[0]["subprotocols"] == ["qwen3tts.speech.v1"]


@pytest.mark.parametrize(
    "subprotocols",
    [
        [offered("wrong")],
        [KEY_SUBPROTOCOL],
        [KEY_SUBPROTOCOL + "%%%"],
        [KEY_SUBPROTOCOL + "_w"],
        [KEY_SUBPROTOCOL + KEYS[0]],
        [offered(KEYS[0]), offered(KEYS[1])],
    ],
)
async def test_a_wrong_subprotocol_lets_nobody_in(subprotocols: list[str]) -> None:
    app, _ = gate()
    assert await status_of(app, scope_of("websocket", subprotocols=subprotocols)) == 401


async def test_where_a_websocket_cannot_be_answered_by_http_it_is_closed() -> None:
    app, _ = gate()
    (closed,) = await sent_by(app, scope_of("websocket", refusable=False))
    assert closed == {"type": "websocket.close", "code": 1008, "reason": "invalid_api_key"}


async def test_what_is_neither_passes() -> None:
    app, reached = gate()
    assert await sent_by(app, {"type": "lifespan"}) == []
    assert reached.scopes == [{"type": "lifespan"}]


async def test_no_key_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    app, _ = gate()
    with caplog.at_level(logging.DEBUG):
        await sent_by(app, scope_of(headers=bearer(KEYS[0])))
        await sent_by(app, scope_of(headers=bearer("nearly-" + KEYS[0])))
    assert "refused: invalid_api_key" in caplog.text
    assert KEYS[0] not in caplog.text


# --- origins ---


@pytest.mark.parametrize(
    ("origin", "host", "allowed", "good"),
    [
        ("https://a.example", "tts.example", ("https://a.example",), True),
        ("HTTPS://A.example", "tts.example", ("https://a.example",), True),
        ("https://a.example:444", "tts.example", ("https://a.example",), False),
        ("http://a.example", "tts.example", ("https://a.example",), False),
        ("https://a.example.evil", "tts.example", ("https://a.example",), False),
        ("https://evil", "tts.example", ("*",), True),
        ("null", "tts.example", (), False),
        ("null", "tts.example", ("null",), True),
        ("http://127.0.0.1:8765", "127.0.0.1:8765", (), True),
        ("http://[::1]:8765", "[::1]:8765", (), True),
        ("http://localhost:8765", "localhost:8765", (), True),
        ("http://127.0.0.1:80", "127.0.0.1:8765", (), False),
        ("http://evil.example:8765", "evil.example:8765", (), False),
        ("http://evil.example", "127.0.0.1:8765", (), False),
        ("http://[::1", "[::1", (), False),
        ("", "", (), False),
        ("http://127.0.0.1@evil.example", "127.0.0.1@evil.example", (), False),
    ],
)
def test_an_origin_is_allowed_or_not(
    origin: str, host: str, allowed: tuple[str, ...], good: bool
) -> None:
    assert origin_allowed([origin], [host], allowed) is good


def test_two_origins_are_none() -> None:
    assert not origin_allowed(["https://a", "https://a"], ["h"], ("https://a",))


@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_a_page_of_another_origin_is_refused_even_with_a_key(kind: str) -> None:
    app, reached = gate()
    headers = [*bearer(KEYS[0]), ("Origin", "https://evil.example"), ("Host", "127.0.0.1:8765")]
    start, body = await sent_by(app, scope_of(kind, headers=headers))
    assert start["status"] == 403
    assert json.loads(body["body"])["error"]["code"] == "origin_not_allowed"
    assert not reached.scopes


# --- connections of one address ---


class Held:
    """An application that holds requests until it is released."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.here = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.here += 1
        await self.go.wait()
        if scope["path"] == "/broken":
            raise RuntimeError("broken")
        await Reached()(scope, receive, send)


async def test_an_address_has_so_many_connections_and_no_more() -> None:
    held = Held()
    app = Gate(held, AccessSettings(max_connections_per_address=2), ApiKeys())
    first = [
        asyncio.create_task(status_of(app, scope_of("websocket"))),
        asyncio.create_task(sent_by(app, scope_of(path="/broken"))),
    ]
    await settle()
    assert held.here == 2
    start, body = await sent_by(app, scope_of())
    assert start["status"] == 429
    assert dict(start["headers"])[b"retry-after"] == b"1"
    assert json.loads(body["body"])["error"]["type"] == "rate_limit_error"
    assert await status_of(app, scope_of("websocket")) == 429
    other = asyncio.create_task(status_of(app, scope_of(client="192.0.2.8")))
    unknown = asyncio.create_task(status_of(app, scope_of(client=None)))
    held.go.set()
    assert await other == await unknown == 200
    assert await first[0] == 101
    with pytest.raises(RuntimeError):
        await first[1]
    assert not app._under_way
    assert await status_of(app, scope_of()) == 200


async def test_what_looks_after_the_server_is_never_one_too_many() -> None:
    held = Held()
    app = Gate(held, AccessSettings(max_connections_per_address=1), ApiKeys())
    held.go.set()
    app._under_way["192.0.2.7"] = 1
    assert await status_of(app, scope_of(path="/ready")) == 200


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_addresses_are_counted_by_customer(address: str, group: str) -> None:
    assert group_of(address) == group
