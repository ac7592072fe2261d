"""Registrars on the wire of the tests, as many as are wanted."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable

from qwen3tts_phone.sip.message.message import Request, Response, StreamFramer, parse_message, reply
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.message.via import stamp_via
from tests.sip.wire import CHALLENGE, Stranger, Wire


class Registrar(Stranger):
    """Answers REGISTER and OPTIONS as a test tells it."""

    def __init__(self, wire: Wire, host: str = "10.0.0.5", port: int = 5060) -> None:
        super().__init__(wire, host, port)
        self.grants: int | None = None
        """Seconds in the Contact of the answer; None = as asked, in Expires."""
        self.least = 0
        self.challenges = 0
        self.status = 200
        self.silent = False
        self.seen_at: tuple[str, int] | None = None
        """Where it sees requests come from; None = it does not say."""
        self.asked: list[int] = []
        self.times: list[float] = []
        self.contacts: list[list[str]] = []
        """Contact values of each REGISTER."""
        self.options = 0
        self.respond = self._answer

    @property
    def registered(self) -> bool:
        """Whether the last REGISTER that was answered with 200 asked for some time."""
        return bool(self.asked) and self.asked[-1] > 0

    def _answer(self, request: Request) -> list[Response]:
        if self.silent:
            return []
        if request.method == "OPTIONS":
            self.options += 1
            return [self._seen(request, reply(request, self.status, to_tag="x"))]
        if request.method != "REGISTER":
            return []
        asked = int(request.require("Expires"))
        self.asked.append(asked)
        self.times.append(self.wire.now)
        self.contacts.append(request.values("Contact"))
        if self.challenges and request.get("Authorization") is None:
            self.challenges -= 1
            response = reply(request, 401, "Unauthorized", to_tag="x")
            response.add("WWW-Authenticate", CHALLENGE)
        elif asked and asked < self.least:
            response = reply(request, 423, "Interval Too Brief", to_tag="x")
            response.add("Min-Expires", str(self.least))
        elif self.status != 200:
            response = reply(request, self.status, "No", to_tag="x")
            response.add("Retry-After", "7 (back soon);duration=9")
        else:
            response = reply(request, 200, to_tag="x")
            if asked and self.grants is not None:
                response.add("Contact", "<sip:agent@10.0.0.77:5060>;expires=9999")
                response.add("Contact", f"{request.values('Contact')[0]};expires={self.grants}")
                response.add("Expires", "8888")
            else:
                response.add("Expires", str(asked))
        return [self._seen(request, response)]

    def _seen(self, request: Request, response: Response) -> Response:
        if self.seen_at is not None:
            host, port = self.seen_at
            lines = response.headers.getlist("Via")
            lines[0] = lines[0].replace(";rport", f";rport={port}") + f";received={host}"
        return response


class RegistrarServer(asyncio.DatagramProtocol):
    """Grants what is asked, unless told otherwise; remembers what came."""

    def __init__(self, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.host = host
        self.port = 0
        self.status = 200
        self.silent = False
        self.challenge = False
        self.requests: list[Request] = []
        self.pings = 0
        """Blank-line keepalives over UDP."""
        self.writers: list[asyncio.StreamWriter] = []
        self.deaf = False
        """Whether connections are read and not answered, not even a ping."""
        self._tls = tls
        self._came = asyncio.Event()
        self._udp: asyncio.DatagramTransport | None = None
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> RegistrarServer:
        self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        self._udp, _ = await loop.create_datagram_endpoint(
            lambda: self, local_addr=(self.host, self.port)
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._udp is not None:
            self._udp.close()
        for writer in self.writers:
            writer.transport.abort()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    @property
    def uri(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"sip:{host}:{self.port}"

    def of(self, method: str) -> list[Request]:
        """Requests of one method, in order."""
        return [request for request in self.requests if request.method == method]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so after a request."""
        async with asyncio.timeout(10):
            while not condition():
                self._came.clear()
                await self._came.wait()

    def drop_connections(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if not data.strip():
            self.pings += 1
            self._came.set()
            return
        answer = self._answer(data, Hop("udp", addr[0], addr[1]))
        if answer is not None and self._udp is not None:
            self._udp.sendto(bytes(answer), addr)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        framer = StreamFramer()
        host, port = writer.get_extra_info("peername")[:2]
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                for message in framer.push(data):
                    answer = self._answer(message, Hop("tcp", host, port, 1))
                    if answer is not None:
                        writer.write(bytes(answer))
                while framer.pings and not self.deaf:
                    framer.pings -= 1
                    self.pings += 1
                    writer.write(b"\r\n")
                    self._came.set()
        writer.close()

    def _answer(self, data: bytes, source: Hop) -> Response | None:
        message = parse_message(data)
        if not isinstance(message, Request):
            return None
        if not any(message.branch == known.branch for known in self.requests):
            # On a slow machine requests are repeated before they are answered.
            self.requests.append(message)
        self._came.set()
        if self.silent or self.deaf or message.method == "ACK":
            return None
        stamp_via(message, source)
        if self.challenge and message.get("Authorization") is None and message.method != "OPTIONS":
            response = reply(message, 401, "Unauthorized", to_tag="x")
            response.add("WWW-Authenticate", CHALLENGE)
            return response
        status = 404 if message.method == "INVITE" else self.status
        response = reply(message, status, to_tag="x")
        response.add("Server", "test registrar")
        if message.method == "REGISTER":
            response.add("Expires", message.require("Expires"))
        return response
