"""uvicorn: listening, signals, draining, systemd."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import uvicorn

from qwen3tts_engine.base import Engine
from qwen3tts_server.app import create_app
from qwen3tts_server.dialects.native.connection import SPEECH_PATH
from qwen3tts_server.service import Service
from qwen3tts_server.settings import ServerSettings
from qwen3tts_server.sockets import BoundedConfig, SocketCounter
from qwen3tts_server.tls import ServerTls, tls_of
from qwen3tts_wire.errors import BadRequest, SpeechError
from qwen3tts_wire.process import heap, raise_descriptor_limit, short_switches


def notify(state: str, env: Mapping[str, str] | None = None) -> bool:
    """Send ``READY=1`` or the like to systemd; False without it."""
    address = (os.environ if env is None else env).get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):  # Linux: a name that is in no file system
        address = "\0" + address[1:]
    with contextlib.suppress(OSError):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
            notifier.settimeout(1)
            notifier.sendto(state.encode(), address)
        return True
    return False


log = logging.getLogger(__name__)


BACKLOG = 1024
"""Connections not yet accepted."""
MOST_FILES = 65_536
"""Descriptors where sockets are unbounded."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class AddressBusy(SpeechError):
    """The address is taken."""

    code = "address_busy"


@dataclass(frozen=True)
class RunningServer:
    url: str
    """For SpeechClient."""
    port: int
    service: Service
    reload: Callable[[], None] = lambda: None
    """Reloads certificate and keys; invalid ones leave the old."""


@contextlib.asynccontextmanager
async def running_server(
    engine: Engine,
    host: str = "127.0.0.1",
    port: int = 0,
    settings: ServerSettings | None = None,
) -> AsyncIterator[RunningServer]:
    """Serve ``engine`` in this event loop, started and closed here.

    Raises:
        EngineUnavailable: the engine cannot start.
        AddressBusy: the port is in use.
        BadRequest: invalid address, certificate or file of keys.
    """
    settings = replace(settings or ServerSettings(), host=host, port=port)
    tls = tls_of(settings.access)
    listener = _listen(host, port, settings.access.unread_timeout_s)
    with contextlib.closing(listener), short_switches():
        app = create_app(engine, settings)

        def reload() -> None:
            app.state.keys.reload()
            if tls is not None:
                _reload_certificate(tls)

        service: Service = app.state.service
        await service.start()
        try:
            context = None if tls is None else tls.context
            server = _Server(_config(app, settings, context), settings.access.head_timeout_s)
            running = asyncio.create_task(server.serve(sockets=[listener]), name="speech server")
            try:
                await server.listening(running)
                bound = listener.getsockname()[1]
                shown = f"[{host}]" if ":" in host else host
                scheme = "ws" if tls is None else "wss"
                url = f"{scheme}://{shown}:{bound}{SPEECH_PATH}"
                yield RunningServer(url, bound, service, reload)
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
    """Serve until SIGTERM or SIGINT, then drain; a second signal stops.

    SIGHUP reloads certificate and keys. Returns the signal that interrupted start (a thread of
    ``Engine.start`` may still load) or drain, else None. Raises as ``running_server``.
    """
    raise_descriptor_limit((settings or ServerSettings()).access.max_sockets or MOST_FILES)
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
    """``serve`` within an event loop."""
    settings = settings or ServerSettings()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    ready = False
    cut: signal.Signals | None = None

    def arrived(number: signal.Signals) -> None:
        nonlocal cut
        if ready:
            signals.put_nowait(number)
        elif cut is None:
            cut = number
            task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, arrived, number)
    try:
        async with running_server(engine, settings.host, settings.port, settings) as server:
            ready = True
            settle_heap()
            loop.add_signal_handler(signal.SIGHUP, server.reload)
            if on_ready is not None:
                on_ready(server)
            notify("READY=1")
            await signals.get()
            notify("STOPPING=1")
            if on_stopping is not None:
                on_stopping(server)
            log.info("stopping; open contexts have %g s to finish", settings.drain_timeout_s)
            draining = asyncio.create_task(server.service.drain())
            again = asyncio.create_task(signals.get())
            await asyncio.wait({draining, again}, return_when=asyncio.FIRST_COMPLETED)
            if not draining.done():
                cut = again.result()
            for each in (draining, again):
                each.cancel()
    except asyncio.CancelledError:
        # Otherwise somebody else wants it to end.
        if cut is None or task.uncancel():
            raise
        log.info("stopped before it was ready")
    finally:
        if ready:
            heap.release()
        for number in (*_SIGNALS, signal.SIGHUP):
            loop.remove_signal_handler(number)
    return cut


def settle_heap() -> None:
    heap.hold()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, handshake_s: float) -> None:
        super().__init__(config)
        self._handshake_s = handshake_s
        self._up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        config = self.config

        def protocol() -> asyncio.Protocol:
            return config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )

        loop = asyncio.get_running_loop()
        limit = self._handshake_s if config.ssl is not None else None
        self.servers = [
            await loop.create_server(
                protocol,
                sock=each,
                ssl=config.ssl,
                backlog=BACKLOG,
                ssl_handshake_timeout=limit,
            )
            for each in sockets or ()
        ]
        self.started = True
        self._up.set()

    async def listening(self, running: asyncio.Task[None]) -> None:
        up = asyncio.create_task(self._up.wait())
        await asyncio.wait({up, running}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if running.done():
            await running


def _config(
    app: object, settings: ServerSettings, tls: ssl.SSLContext | None = None
) -> uvicorn.Config:
    # While debugging, uvicorn writes every message, that is, what people say, to its log; and at
    # its usual level whole addresses with what clients put into their queries.
    level = max(logging.WARNING, logging.getLogger("uvicorn.error").getEffectiveLevel())
    access = settings.access
    config = BoundedConfig(
        app,
        SocketCounter(access),
        ws_max_size=largest_message(settings),
        ws_ping_interval=settings.ping_interval_s,
        ws_ping_timeout=settings.ping_timeout_s,
        # Speech does not shrink, and deflate costs a copy and tens of microseconds a message.
        ws_per_message_deflate=False,
        log_config=None,
        log_level=level,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=bool(access.trusted_proxies),
        forwarded_allow_ips=list(access.trusted_proxies),
        timeout_keep_alive=access.keep_alive_s,
        timeout_graceful_shutdown=5,
    )
    config.load()
    config.ssl = tls
    return config


def largest_message(settings: ServerSettings) -> int:
    """Return the largest message of any dialect, bytes."""
    return max(
        settings.limits.max_message_bytes,
        settings.vllm_omni.max_config_chars * 4,
        settings.vllm_omni.max_message_chars * 4,
        settings.runvnc.max_init_bytes,
        settings.runvnc.max_message_chars * 4,
    )


def _reload_certificate(tls: ServerTls) -> None:
    try:
        tls.reload()
    except BadRequest as error:
        log.warning("%s The old one is kept. %s", error.message, error.remedy)
    else:
        log.info("the TLS certificate was read again")


def _listen(host: str, port: int, unread_s: float = 60.0) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by what is accepted: a frame of speech is not to wait for an acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Inherited as well (Linux): unacknowledged data ends the connection after this time,
        # also when nothing here waits for it any more.
        if (user_timeout := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:
            listener.setsockopt(socket.IPPROTO_TCP, user_timeout, int(unread_s * 1000))
        listener.bind((host, port))
        listener.listen(BACKLOG)
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
