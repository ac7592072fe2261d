"""Receiver of an agent's webhook posts."""

from __future__ import annotations

import asyncio
import json

import pytest

from qwen3tts_phone.errors import PortBusy
from qwen3tts_rehearsal import webhook
from qwen3tts_rehearsal.webhook import HOST, WebhookReceiver
from tests.fakes import FakeClock

pytestmark = pytest.mark.network


async def asked(receiver: WebhookReceiver, request: bytes) -> tuple[int, object]:
    reader, writer = await asyncio.open_connection(HOST, int(receiver.url.rpartition(":")[2]))
    writer.write(request)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(body)


def post(path: str, body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"POST {path} HTTP/1.1\r\nContent-Length: {size}\r\n\r\n".encode() + body


async def test_posts_of_json_are_kept_with_their_time() -> None:
    clock = FakeClock()
    async with WebhookReceiver(clock=clock) as receiver:
        assert await asked(receiver, post("/a?x=1", b'{"n": 1}')) == (200, {})
        await clock.advance(5.0)
        assert await asked(receiver, post("/b", b"[2]")) == (200, {})
        assert [(each.path, each.content) for each in receiver.posts] == [
            ("/a", {"n": 1}),
            ("/b", [2]),
        ]
        assert [each.path for each in receiver.since(clock.now() - 1.0)] == ["/b"]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /a HTTP/1.1\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"POST /a HTTP/1.1\r\n\r\n", 400),
        (b"POST /a HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (post("/a", b"{"), 400),
        (post("/a", b"\xff"), 400),
        (post("/a", b"[" * 100_000), 400),
        ("POST /a HTTP/1.1\r\nContent-Length: ²\r\n\r\n".encode("latin-1"), 400),
        (b"POST /a HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
        (post("/a", b"", 10**9), 413),
        (b"POST /a HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 413),
    ],
)
async def test_anything_else_is_answered_with_an_error(request_bytes: bytes, status: int) -> None:
    async with WebhookReceiver() as receiver:
        found, content = await asked(receiver, request_bytes)
        assert found == status
        assert isinstance(content, dict)
        assert content["error"]
        assert receiver.posts == []
        assert (await asked(receiver, post("/a", b"1")))[0] == 200


async def test_the_oldest_posts_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "KEPT_BYTES", 8)
    async with WebhookReceiver() as receiver:
        for number in range(4):
            assert (await asked(receiver, post("/a", f"[{number}]".encode())))[0] == 200
        assert [each.content for each in receiver.posts] == [[2], [3]]
        monkeypatch.setattr(webhook, "KEPT", 1)
        assert (await asked(receiver, post("/a", b"[4]")))[0] == 200
        assert [each.content for each in receiver.posts] == [[4]]


async def test_only_this_machine_can_post() -> None:
    async with WebhookReceiver() as receiver:
        assert receiver._server is not None
        assert {each.getsockname()[0] for each in receiver._server.sockets} == {"127.0.0.1"}


async def test_a_port_in_use_is_an_error_with_its_remedy() -> None:
    async with WebhookReceiver() as receiver:
        port = int(receiver.url.rpartition(":")[2])
        with pytest.raises(PortBusy, match=str(port)) as error:
            await WebhookReceiver(port).__aenter__()
        assert error.value.remedy
