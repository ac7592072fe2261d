"""Starting and stopping a server."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import textwrap
import urllib.request

import pytest

from qwen3tts_server.run import AddressBusy, _listen, running_server, serve_until_signal
from qwen3tts_server.settings import ServerSettings
from qwen3tts_wire.client import Done, SpeechClient
from qwen3tts_wire.errors import BadRequest, ConnectionLost, EngineUnavailable
from qwen3tts_wire.process import SWITCH_INTERVAL_S
from tests.engine.fake_engine import FakeEngine
from tests.fakes import settle

pytestmark = pytest.mark.network


async def get(url: str) -> tuple[int, object]:
    def fetch() -> tuple[int, object]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, timeout=5) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    return await asyncio.to_thread(fetch)


async def test_a_port_in_use_is_named_with_the_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(AddressBusy, match=rf"{port} .*in use.*another port"):
            async with running_server(FakeEngine(), port=port):
                pass


async def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"192\.0\.2\.1"):
        async with running_server(FakeEngine(), host="192.0.2.1"):
            pass


async def test_an_engine_that_cannot_start_says_why_and_frees_the_port() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(EngineUnavailable, match="No tones here"):
        async with running_server(FakeEngine(available=False), port=port):
            pass
    async with running_server(FakeEngine(), port=port) as server:
        assert server.port == port


async def test_what_is_said_is_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with (
            running_server(FakeEngine()) as server,
            await SpeechClient.connect(server.url) as client,
        ):
            context = await client.open()
            await context.append("Confidential words.")
            await context.end()
            async for _ in context:
                pass
            assert (await context.cancel(1)).text_remaining
    assert "onfidential" not in caplog.text


async def test_the_engine_is_started_before_and_closed_after() -> None:
    engine = FakeEngine()
    async with running_server(engine):
        assert engine.started
    assert not engine.started


async def test_only_the_host_given_is_bound() -> None:
    async with running_server(FakeEngine(), host="127.0.0.1") as server:
        with socket.socket() as probe:
            probe.settimeout(2)
            assert probe.connect_ex(("127.0.0.2", server.port)) != 0


async def test_health_ready_and_voices_answer() -> None:
    async with running_server(FakeEngine()) as server:
        base = server.url.replace("ws://", "http://").removesuffix("/v1/speech")
        assert await get(base + "/health") == (200, {"status": "ok", "connections": 0})
        assert await get(base + "/ready") == (200, {"status": "ready"})
        status, voices = await get(base + "/v1/voices")
        assert status == 200
        assert isinstance(voices, dict)
        assert voices["voices"][0]["id"] == "tone"
        server.service.draining = True
        assert await get(base + "/ready") == (503, {"status": "draining"})
        server.service.draining = False


async def test_a_client_that_never_closes_does_not_keep_the_server_from_stopping() -> None:
    async with asyncio.timeout(20):
        async with running_server(FakeEngine()) as server:
            client = await SpeechClient.connect(server.url)
            client._connection.socket.transport.pause_reading()
        client._connection.socket.transport.abort()
        await client.close()


SERVER = textwrap.dedent(
    """
    import sys
    from qwen3tts_server.run import serve
    from qwen3tts_server.settings import ServerSettings
    from tests.engine.fake_engine import FakeEngine
    serve(
        FakeEngine(),
        ServerSettings(port=0, drain_timeout_s=float(sys.argv[1])),
        on_ready=lambda server: print(server.url, flush=True),
    )
    print("stopped", flush=True)
    """
)


async def start(drain_s: float) -> tuple[asyncio.subprocess.Process, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SERVER,
        str(drain_s),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    return process, url


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_open_contexts_finish_and_ends_the_process_well(
    number: signal.Signals,
) -> None:
    async with asyncio.timeout(30):
        process, url = await start(20)
        client = await SpeechClient.connect(url)
        context = await client.open(window_ms=20.0)
        await context.append("Hello there.")
        await context.end()
        while not context.received:
            await settle()
        process.send_signal(number)
        await client.draining.wait()
        events = [event async for event in context]
        assert isinstance(events[-1], Done)
        assert process.stdout is not None
        assert (await process.stdout.readline()).decode() == "stopped\n"
        assert await process.wait() == 0
        await client.close()


async def test_a_server_that_is_killed_leaves_every_context_with_what_was_not_spoken() -> None:
    async with asyncio.timeout(30):
        process, url = await start(20)
        client = await SpeechClient.connect(url)
        contexts = [await client.open(window_ms=200.0) for _ in range(2)]
        for context in contexts:
            await context.append("Hello there. And here is more. And more.")
            await context.end()
            while not context.words:
                await settle()
        process.kill()
        await process.wait()
        for context in contexts:
            with pytest.raises(ConnectionLost, match="lost") as caught:
                async for _ in context:
                    pass
            assert caught.value.retryable
            cut = await context.cancel(context.words[0].end)
            assert not cut.confirmed
            assert cut.text_heard == "Hello"
            assert cut.text_remaining == " there. And here is more. And more."
        await client.close()


async def test_a_second_signal_ends_at_once() -> None:
    async with asyncio.timeout(30):
        process, url = await start(60)
        client = await SpeechClient.connect(url)
        await client.open(voice="stall")
        process.send_signal(signal.SIGTERM)
        await client.draining.wait()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        await client.close()


class LoadsForEver(FakeEngine):
    """Not ready before the end of the world."""

    def __init__(self) -> None:
        super().__init__()
        self.loading = asyncio.Event()
        self.given_up = False

    async def start(self) -> None:
        self.loading.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up = True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_while_the_engine_starts_ends_it_at_once(number: signal.Signals) -> None:
    engine = LoadsForEver()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with asyncio.timeout(30):
        serving = asyncio.create_task(serve_until_signal(engine, ServerSettings(port=port)))
        await engine.loading.wait()
        os.kill(os.getpid(), number)
        assert await serving is number
    assert engine.given_up
    _listen("127.0.0.1", port).close()


async def test_a_start_that_somebody_else_cancels_is_cancelled() -> None:
    engine = LoadsForEver()
    serving = asyncio.create_task(serve_until_signal(engine, ServerSettings(port=0)))
    await engine.loading.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert engine.given_up


def test_accepted_sockets_send_small_messages_at_once() -> None:
    with _listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_server_leaves_the_interpreter_to_its_engine_in_time() -> None:
    """An engine's thread that waited for its device must not wait 5 ms for the event loop."""
    before = sys.getswitchinterval()
    async with running_server(FakeEngine()):
        assert sys.getswitchinterval() <= SWITCH_INTERVAL_S + 2e-6
    assert sys.getswitchinterval() == pytest.approx(before, abs=2e-6)


async def test_settings_of_the_server_reach_the_listener() -> None:
    settings = ServerSettings(done_kept=3)
    async with running_server(FakeEngine(), settings=settings) as server:
        assert server.service.settings.done_kept == 3
        assert server.url == f"ws://127.0.0.1:{server.port}/v1/speech"
