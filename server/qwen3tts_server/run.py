"""A running server: from a process of its own, or inside another program."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace

import uvicorn
from uvicorn.config import WS_PROTOCOLS

from qwen3tts_engine.base import Engine
from qwen3tts_wire.errors import BadRequest, SpeechError

from .app import SPEECH_PATH, create_app
from .service import Service
from .settings import ServerSettings

log = logging.getLogger(__name__)


_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class AddressBusy(SpeechError):
    """The address to listen on is taken."""

    code = "address_busy"


@dataclass(frozen=True)
class RunningServer:
    """A server that listens."""

    url: str
    """Where a SpeechClient connects."""
    port: int
    service: Service


@contextlib.asynccontextmanager
async def running_server(
    engine: Engine,
    host: str = "127.0.0.1",
    port: int = 0,
    settings: ServerSettings | None = None,
) -> AsyncIterator[RunningServer]:
    """Serve ``engine`` in this event loop; the engine is started before and closed after.

    Raises:
        EngineUnavailable: the engine cannot start.
        AddressBusy: something else listens there.
        BadRequest: the address is not one of this machine.
    """
    settings = replace(settings or ServerSettings(), host=host, port=port)
    listener = _listen(host, port)
    with contextlib.closing(listener):
        app = create_app(engine, settings)
        service: Service = app.state.service
        await service.start()
        try:
            server = _Server(_config(app, settings))
            running = asyncio.create_task(server.serve(sockets=[listener]), name="speech server")
            try:
                await server.listening(running)
                bound = listener.getsockname()[1]
                shown = f"[{host}]" if ":" in host else host
                yield RunningServer(f"ws://{shown}:{bound}{SPEECH_PATH}", bound, service)
            finally:
                await service.drain(0)
                server.should_exit = True
                await running
        finally:
            await service.close()


def serve(
    engine: Engine,
    settings: ServerSettings | None = None,
    *,
    on_ready: Callable[[RunningServer], None] | None = None,
    on_stopping: Callable[[RunningServer], None] | None = None,
) -> signal.Signals | None:
    """Serve until SIGTERM or SIGINT, then let open contexts finish; a second signal ends at once.

    Returns the signal if it came before the server was ready. A thread of the engine may still be
    loading then (``Engine.start`` cannot interrupt it). Raises what ``running_server`` raises.
    """
    return asyncio.run(
        serve_until_signal(engine, settings, on_ready=on_ready, on_stopping=on_stopping)
    )


async def serve_until_signal(
    engine: Engine,
    settings: ServerSettings | None = None,
    *,
    on_ready: Callable[[RunningServer], None] | None = None,
    on_stopping: Callable[[RunningServer], None] | None = None,
) -> signal.Signals | None:
    """``serve`` for a program that has its event loop already."""
    settings = settings or ServerSettings()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    ready = False
    early: signal.Signals | None = None

    def arrived(number: signal.Signals) -> None:
        nonlocal early
        if ready:
            signals.put_nowait(number)
        elif early is None:
            early = number
            task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, arrived, number)
    try:
        async with running_server(engine, settings.host, settings.port, settings) as server:
            ready = True
            if on_ready is not None:
                on_ready(server)
            await signals.get()
            if on_stopping is not None:
                on_stopping(server)
            log.info("stopping; open contexts have %g s to finish", settings.drain_timeout_s)
            draining = asyncio.create_task(server.service.drain())
            again = asyncio.create_task(signals.get())
            await asyncio.wait({draining, again}, return_when=asyncio.FIRST_COMPLETED)
            for each in (draining, again):
                each.cancel()
    except asyncio.CancelledError:
        # Otherwise somebody else wants it to end.
        if early is None or task.uncancel():
            raise
        log.info("stopped before it was ready")
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
    return early


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers, and with a moment at which it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are handled by ``serve``, or belong to the program around."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        self._up.set()

    async def listening(self, running: asyncio.Task[None]) -> None:
        """Wait until it listens; raises what kept it from that."""
        up = asyncio.create_task(self._up.wait())
        await asyncio.wait({up, running}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if running.done():
            await running


def _config(app: object, settings: ServerSettings) -> uvicorn.Config:
    # The implementation on websockets' protocol without I/O is kept; the older one is deprecated.
    # While debugging, uvicorn writes every message, that is, what people say, to its log.
    level = max(logging.INFO, logging.getLogger("uvicorn.error").getEffectiveLevel())
    ws = "websockets-sansio" if "websockets-sansio" in WS_PROTOCOLS else "websockets"
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        ws=ws,
        ws_max_size=settings.limits.max_message_bytes,
        ws_ping_interval=settings.ping_interval_s,
        ws_ping_timeout=settings.ping_timeout_s,
        # Speech does not shrink, and deflate costs a copy and tens of microseconds a message.
        ws_per_message_deflate=False,
        log_config=None,
        log_level=level,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by what is accepted: a frame of speech is not to wait for an acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.listen(512)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressBusy(
                f"Port {port} of {host} is in use.",
                remedy="Stop what listens there or choose another port; 0 takes any free one.",
            ) from error
        raise BadRequest(
            f"Cannot listen on {host} port {port}: {error.strerror or error}.",
            remedy="Use an address of this machine, such as 127.0.0.1.",
        ) from error
    return listener
