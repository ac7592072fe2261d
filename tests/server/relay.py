"""A way to a server that can be cut in the middle, on 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Relay:
    """Passes connections on to ``port``; cuts them when told, or after so many bytes down."""

    def __init__(self, port: int) -> None:
        self.to = port
        """Where new connections go."""
        self.port = 0
        """Where it listens."""
        self.cut_after: int | None = None
        """The next connection is cut when so many bytes have come down; only that one."""
        self.connections = 0
        self._open: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """As when the machine behind it is gone: no close frame."""
        for writer in self._open:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        most, self.cut_after = self.cut_after, None
        with contextlib.suppress(OSError):
            up, down = await asyncio.open_connection("127.0.0.1", self.to)
            self._open |= {writer, down}
            with contextlib.suppress(OSError):
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._pass(reader, down, None))
                    tasks.create_task(self._pass(up, writer, most))
            self._open -= {writer, down}
            down.transport.abort()
        writer.transport.abort()

    @staticmethod
    async def _pass(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int | None
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if most is not None and len(data) >= most:
                    writer.write(data[:most])
                    await writer.drain()
                    break
                if most is not None:
                    most -= len(data)
                writer.write(data)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def relay(port: int) -> AsyncIterator[Relay]:
    """One that leads to ``port``."""
    running = Relay(port)
    listener = await asyncio.start_server(running._accept, "127.0.0.1", 0)
    running.port = listener.sockets[0].getsockname()[1]
    async with listener:
        try:
            yield running
        finally:
            running.cut()
