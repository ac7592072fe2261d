"""The same floods within TLS, and TLS that is none."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from websockets import Subprotocol
from websockets.asyncio.client import connect

from qwen3tts_wire.addresses import DIRECT
from qwen3tts_wire.messages import PROTOCOL
from tests.fakes import settle
from tests.server.hostile.world import NATIVE, PING, TEXT, frame, upgrade
from tests.server.ops.test_tls import certificate, serving, trusting

pytestmark = pytest.mark.network


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
