"""A new dialect is one module and one line in the table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from qwen3tts_server.app import create_app
from qwen3tts_server.dialects import table
from qwen3tts_server.settings import ServerSettings
from qwen3tts_settings.entries import BadConfiguration
from tests.engine.fake_engine import FakeEngine
from tests.server.ops.asgi import scope_of, sent_by

MODULE = '''
from dataclasses import dataclass

from fastapi import FastAPI, Request, Response
from starlette.websockets import WebSocket

from qwen3tts_server.connection import Close, Connection, ConnectionBounds, ConnectionSession
from qwen3tts_server.keys import WEBSOCKET, Role
from qwen3tts_server.service import Service
from qwen3tts_server.utterance import AudioPiece
from qwen3tts_settings.constraints import bounded, check_fields
from qwen3tts_wire.messages import ContextOpen

NAME = "plain"
ROUTES = {("POST", "/plain"): Role.VOICES, (WEBSOCKET, "/plain/stream"): Role.SPEAK}


@dataclass(frozen=True)
class PlainSettings:
    max_chars: int = bounded(1, 1000, default=100)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Say:
    text: str


class PlainSession(ConnectionSession[Say | Close]):
    """Every text message is spoken; its sound comes back."""

    busy = False

    def __init__(self, settings: PlainSettings, now: float) -> None:
        bounds = ConnectionBounds(settings.max_chars, 1 << 20, first_message_s=5, idle_s=5)
        super().__init__(bounds, now)
        self._out: list[str | bytes] = []

    def _handle(self, data: str | bytes, now: float) -> None:
        self._commands.append(Say(str(data)))

    def sound(self, data: bytes) -> list[Say | Close]:
        self._out.append(data)
        return self._take_commands()

    def data_to_send(self, now: float) -> list[str | bytes]:
        data, self._out = self._out, []
        return data

    def _close(self, code: int, reason: str) -> None:
        self._closed = True
        self._commands.append(Close(code, reason))

    def _drain_expired(self, now: float) -> None:
        self._close(1012, "stopping")


class PlainConnection(Connection[Say | Close]):
    def __init__(self, socket: WebSocket, service: Service, settings: PlainSettings) -> None:
        self._session = PlainSession(settings, 0.0)
        super().__init__(socket, self._session, NAME, lambda: 0.0)
        self._service = service

    def perform(self, command: Say | Close) -> None:
        assert isinstance(command, Say)
        self.start(self._say(command.text), "say")

    async def _say(self, text: str) -> None:
        order = ContextOpen(context_id="a", context_no=1)
        async with self._service.speaking(order, NAME) as speaking:
            speaking.append(text)
            speaking.end()
            async for item in speaking:
                if isinstance(item, AudioPiece):
                    self.act(self._session.sound(item.data))
        self.act([Close(1000, "said")])


def add_routes(app: FastAPI, service: Service) -> None:
    settings = service.dialect_settings(NAME, PlainSettings)

    @app.post("/plain")
    async def plain(request: Request) -> Response:
        return Response(f"{len(await request.body())} of {settings.max_chars}")

    @app.websocket("/plain/stream")
    async def stream(socket: WebSocket) -> None:
        await socket.accept()
        await PlainConnection(socket, service, settings).serve(service, None)
'''


@pytest.fixture
def _plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "plain_dialect"
    package.mkdir()
    (package / "__init__.py").write_text(MODULE, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(table, "DIALECTS", ["plain_dialect", *table.DIALECTS])
    monkeypatch.delitem(sys.modules, "plain_dialect", raising=False)


@pytest.mark.usefixtures("_plain")
async def test_a_dialect_of_another_package_is_served_with_its_settings() -> None:
    settings = ServerSettings(dialects={"plain": {"max_chars": 7}})
    app = create_app(FakeEngine(), settings)
    scope = {**scope_of("http", "/plain"), "method": "POST"}
    (start, body, *_) = await sent_by(app, scope)
    assert start["status"] == 200
    assert body["body"].endswith(b" of 7")


@pytest.mark.usefixtures("_plain")
async def test_its_websocket_uses_the_shell_of_all_dialects() -> None:
    from tests.server.test_connection import FakeSocket

    app = create_app(FakeEngine(), ServerSettings(dialects={"plain": {"max_chars": 20}}))
    service = app.state.service
    await service.start()
    module = sys.modules["plain_dialect"]
    for text, code in (("Hello there.", 1000), ("A text that is too long for it.", 1009)):
        socket = FakeSocket()
        connection = module.PlainConnection(socket, service, module.PlainSettings(max_chars=20))
        socket.say(text)
        await connection.serve(service, None)
        assert socket.closed is not None
        assert socket.closed[0] == code
        assert any(socket.sent) == (code == 1000)
    await service.close()


@pytest.mark.usefixtures("_plain")
@pytest.mark.parametrize(
    ("section", "error"),
    [
        ({"plain": {"max_chars": 0}}, "max_chars=0 must be from 1 to 1000"),
        ({"plain": {"max_char": 1}}, "server.dialects.plain.max_char is unknown"),
        ({"other": {}}, "server.dialects.other is unknown"),
    ],
    ids=json.dumps,
)
def test_its_settings_are_checked_like_all_others(section: dict[str, object], error: str) -> None:
    with pytest.raises(BadConfiguration, match=error):
        create_app(FakeEngine(), ServerSettings(dialects=section))  # type: ignore[arg-type]
