"""Those who should not come in: keys, origins, and too many from one address."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest
from websockets import Subprotocol
from websockets.asyncio.client import connect

from qwen3tts_wire.addresses import DIRECT
from qwen3tts_wire.messages import PROTOCOL
from tests.fakes import settle
from tests.server.hostile.world import (
    KEY,
    NATIVE,
    PING,
    PROTOCOLS,
    SPEECH,
    TEXT,
    Attacker,
    attacked,
    frame,
    request,
    upgrade,
)
from tests.server.ops.test_tls import certificate, serving, trusting

pytestmark = pytest.mark.network


def offered(key: str) -> str:
    return "bearer." + base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


OTHER = KEY[:-1] + "Y"
WRONG: list[dict[str, str]] = [
    {},
    {"Authorization": ""},
    {"Authorization": KEY},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer "},
    {"Authorization": f"Bearer {OTHER}"},
    {"Authorization": f"Bearer {KEY[:-1]}"},
    {"Authorization": f"Bearer {KEY}x"},
    {"Authorization": f"Bearer {KEY} {KEY}"},
    {"Authorization": f"Bearer {KEY}, Bearer {KEY}"},
    {"Authorization": f"Bearer {KEY.upper()}"},
    {"Authorization": f"Basic {base64.b64encode(f'user:{KEY}'.encode()).decode()}"},
    {"Authorization": f"Token {KEY}"},
    {"Authorization": "Bearer " + "x" * 8000},
    {"Authorization": "Bearer \xff\xfe"},
    {"Authorization": f"Bearer {OTHER}\r\nAuthorization: Bearer {KEY}"},
    {"Authorization": f"Bearer {KEY}\r\nAuthorization: Bearer {KEY}"},
    {"Proxy_Authorization": f"Bearer {KEY}"},
    {"X_Api_Key": KEY},
    {"Cookie": f"api_key={KEY}"},
    {"Sec_WebSocket_Protocol": KEY},
    {"Sec_WebSocket_Protocol": f"bearer.{KEY}"},
    {"Sec_WebSocket_Protocol": f"{offered(OTHER)}"},
    {"Sec_WebSocket_Protocol": f"{offered(KEY)}, {offered(OTHER)}"},
    {"Sec_WebSocket_Protocol": "bearer., bearer.a", "Authorization": "Bearer x"},
]


async def test_without_a_good_key_nothing_is_served() -> None:
    paths = (SPEECH, "/v1/voices", "/v1/models", "/metrics", "/docs", "/openapi.json", "/nowhere")
    async with attacked(access={"api_keys": (KEY, "another-key")}) as world:
        for wrong in WRONG:
            for path in PROTOCOLS:
                (answer,) = await world.http(upgrade(path, **wrong))
                assert answer.status == 401, wrong
                assert answer.error["code"] == "invalid_api_key"
                assert answer.headers["www-authenticate"]
                assert KEY not in str(answer)
        for path in paths:
            (answer,) = await world.http(request("GET", f"{path}?api_key={KEY}&key={KEY}"))
            assert answer.status == 401, path
        for path in (
            "/health/",
            "//health",
            "/Health",
            "/health/../metrics",
            "/health;x",
            "/metrics",
        ):
            (answer,) = await world.http(request("GET", path))
            assert answer.status == 401, path
        for path in ("/health", "/ready", "/metrics"):
            (answer,) = await world.http(upgrade(path))
            assert answer.status == 401, path
        for path in ("/health", "/ready", "/%68ealth"):
            (answer,) = await world.http(request("GET", path))
            assert answer.status == 200
        for good in ("Bearer another-key", f"bearer {KEY}", f"BEARER   {KEY}  "):
            (answer,) = await world.http(request("GET", "/v1/models", Authorization=good))
            assert answer.status == 200


ORIGINS: list[tuple[str, str]] = [
    ("tts", "null"),
    ("tts", ""),
    ("tts", "https://evil.example"),
    ("evil.example", "http://evil.example"),
    ("localhost.evil.example", "http://localhost.evil.example"),
    ("127.0.0.1.evil.example", "http://127.0.0.1.evil.example"),
    ("127.0.0.1", "http://127.0.0.1:8080"),
    ("127.0.0.1", "http://evil.example@127.0.0.1"),
    ("127.0.0.1", "http://127.0.0.1, https://evil.example"),
    ("127.0.0.1", "http://[127.0.0.1"),
    ("good.example", "https://good.example.evil.example"),
    ("tts", "https://good.example.\xff"),
    ("tts", "https://good.example/"),
]


async def test_pages_of_other_origins_get_nothing() -> None:
    async with attacked(access={"origins": ("https://good.example",)}) as world:
        for host, origin in ORIGINS:
            for path in PROTOCOLS:
                (answer,) = await world.http(upgrade(path, Host=host, Origin=origin))
                assert answer.status == 403, (host, origin)
                assert answer.error["code"] == "origin_not_allowed"
            found = await world.http(request("GET", "/v1/models", Host=host, Origin=origin))
            assert found[0].status == 403, (host, origin)
            assert "access-control-allow-origin" not in found[0].headers
        for host, origin in [
            ("tts", "https://good.example"),
            ("localhost:1", "http://localhost:1"),
        ]:
            (answer,) = await world.http(request("GET", "/v1/models", Host=host, Origin=origin))
            assert answer.status == 200


async def test_a_flood_of_connections_from_one_address_leaves_the_others_their_place() -> None:
    bounds = {"max_sockets": 30, "max_sockets_per_address": 10, "max_connections_per_address": 5}
    async with attacked(access=bounds) as world:

        async def one_more(data: bytes) -> Attacker:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", world.server.port, local_addr=("127.0.0.2", 0)
            )
            one = Attacker(reader, writer)
            world.attackers.append(one)
            await one.send(data)
            return one

        spoofed = upgrade(NATIVE, "qwen3tts.speech.v1", X_Forwarded_For="10.1.2.3")
        told: list[int] = []
        for data in [spoofed] * 10 + [b"GET / HTTP/1.1\r\n"] * 10 + [spoofed] * 10:
            one = await one_more(data)
            if data is spoofed or len(told) >= 15:
                head = await one.reader.readuntil(b"\r\n\r\n")
                told.append(int(head.split()[1]))
        assert told == [101] * 5 + [429] * 5 + [503] * 10
        await world.heard_more()
        for each in world.attackers:
            each.reset()
        await world.until(lambda: world.server.service.connections == 1)
        last = await one_more(spoofed)
        assert (await last.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")


async def test_floods_and_large_messages_within_tls(tmp_path: Path) -> None:
    cert, key = await certificate(tmp_path, "server")
    async with serving(tls_cert=cert, tls_key=key, head_timeout_s=0.5) as server:
        context = trusting(cert)
        url = f"wss://127.0.0.1:{server.port}{NATIVE}"
        names = [Subprotocol(PROTOCOL)]
        async with connect(url, ssl=context, subprotocols=names, **DIRECT) as client:
            assert json.loads(await client.recv())["type"] == "session.created"
            large = {"type": "voice.load", "request_id": "r", "ref_audio": "A" * 1_900_000}
            await client.send(json.dumps(large))
            assert json.loads(await client.recv())["request_id"] == "r"
            client.transport.write((frame(PING) + frame(TEXT)) * 5000)
            errors = [json.loads(await client.recv())["type"] for _ in range(5000)]
            assert set(errors) == {"error"}
        for wrong in (
            upgrade(NATIVE, PROTOCOL),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
            b"\x16\x03\x01\xff\xff",
            b"\x80\x2e\x01\x00\x02",
            b"",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(wrong)
            assert b"HTTP" not in await reader.read()
            writer.close()
        while server.service.connections:
            await settle()
