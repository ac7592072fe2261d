"""Our own client before a server that asks for a key."""

from __future__ import annotations

import asyncio
import base64
import json
import logging

import pytest
from websockets import Subprotocol
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from qwen3tts_server.run import running_server
from qwen3tts_server.settings import AccessSettings, ServerSettings
from qwen3tts_wire.addresses import API_KEY_ENV, DIRECT
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.errors import BadRequest
from qwen3tts_wire.messages import PROTOCOL
from tests.engine.fake_engine import FakeEngine

pytestmark = pytest.mark.network

LOCKED = ServerSettings(access=AccessSettings(api_keys=("first-key", "second-key")))


async def test_it_is_let_in_with_a_key(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(API_KEY_ENV, raising=False)
    with caplog.at_level(logging.DEBUG):
        async with asyncio.timeout(30), running_server(FakeEngine(), settings=LOCKED) as server:
            async with await SpeechClient.connect(server.url, api_key="second-key") as client:
                assert client.session.voices
            monkeypatch.setenv(API_KEY_ENV, "first-key")
            async with await SpeechClient.connect(server.url):
                pass
    assert "-key" not in caplog.text


@pytest.mark.parametrize("key", [None, "", "wrong", "wrong key"])
async def test_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, key: str | None) -> None:
    monkeypatch.delenv(API_KEY_ENV, raising=False)
    async with asyncio.timeout(30), running_server(FakeEngine(), settings=LOCKED) as server:
        with pytest.raises(BadRequest, match="API key") as error:
            await SpeechClient.connect(server.url, api_key=key)
    assert API_KEY_ENV in error.value.remedy
    assert "wrong" not in str(error.value)


async def test_a_browser_brings_it_as_a_subprotocol() -> None:
    offered = ["bearer." + base64.urlsafe_b64encode(b"first-key").decode().rstrip("="), PROTOCOL]
    async with asyncio.timeout(30), running_server(FakeEngine(), settings=LOCKED) as server:
        async with connect(
            server.url, subprotocols=list(map(Subprotocol, offered)), **DIRECT
        ) as it:
            assert it.subprotocol == PROTOCOL
            assert json.loads(await it.recv())["type"] == "session.created"
        with pytest.raises(InvalidStatus) as refused:
            await connect(server.url, subprotocols=[Subprotocol(PROTOCOL)], **DIRECT)
        answer = refused.value.response
        assert answer.status_code == 401
        assert json.loads(answer.body or b"")["error"]["code"] == "invalid_api_key"
