"""A speech server that misbehaves: the real one, behind something that spoils what it sends."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

NONSENSE = [
    b"\x81\x0ano json at",  # a text message that is no JSON
    b'\x81\x0b{"type": 17}',  # JSON that is no event
    b"\x82\x05\x00\x01\x02\x03\xff",  # sound of no context
]
"""WebSocket frames of a server, whole and unmasked."""
NO_FRAME = b"\xff\xfe\xfd\xfc\xfb\xfa"
"""Reserved bits and an unknown opcode."""


class Wild:
    """Relays to the real server; in a thread of its own, as the hosts outlive a test's loop.

    ``mode``, read at each piece that the server sends:
    ``pass``: relayed. ``deaf``: swallowed, and the connection stays. ``cut``: the connection is
    reset. ``half``: half of the piece, then reset. ``noise``: bytes that are no WebSocket frame.
    ``nonsense``: messages that mean nothing, before the piece. The last four act once and then
    let pass. ``silent``: new connections are accepted and never answered.
    """

    def __init__(self, target: int) -> None:
        self.mode = "pass"
        self.acted = 0
        """How often a mode that acts once has acted."""
        self.port = 0
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        started: Future[int] = Future()
        self._thread = threading.Thread(
            target=lambda: self._loop.run_until_complete(self._serve(started)), daemon=True
        )
        self._thread.start()
        self.port = started.result(30)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/speech"

    def drop(self) -> None:
        """Reset the connections of now."""
        self._loop.call_soon_threadsafe(self._drop)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._loop.close()

    def _drop(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, started: Future[int]) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        started.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        self._drop()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        upstream: asyncio.StreamWriter | None = None
        try:
            if self.mode == "silent":
                while await reader.read(65536):
                    pass
                return
            theirs, upstream = await asyncio.open_connection("127.0.0.1", self._target)
            asked = asyncio.create_task(self._ask(reader, upstream))
            await self._answer(theirs, writer)
            asked.cancel()
        except OSError:
            pass  # either side has gone
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
            if upstream is not None:
                upstream.transport.abort()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = Frames()
        while data := await reader.read(65536):
            at_joint = frames.whole
            frames.push(data)
            mode = self.mode
            if mode == "deaf":
                continue
            if mode in {"cut", "half", "noise", "nonsense"} and at_joint:
                self.mode = "pass"
                self.acted += 1
                if mode == "half":
                    writer.write(data[: len(data) // 2])
                if mode == "noise":
                    writer.write(NO_FRAME)
                if mode == "nonsense":
                    writer.write(b"".join(NONSENSE))
                else:
                    await writer.drain()
                    return
            writer.write(data)
            await writer.drain()


class Frames:
    """Follows WebSocket frames of a server, to know where one ends."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self._shaken = False

    @property
    def whole(self) -> bool:
        """Whether no frame is under way."""
        return self._shaken and not self._left and not self._head

    def push(self, data: bytes) -> None:
        if not self._shaken:
            self._head += data
            _, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            self._shaken, self._head = True, b""
        while data:
            if self._left:
                taken = min(self._left, len(data))
                self._left -= taken
                data = data[taken:]
                continue
            self._head += data[:1]
            data = data[1:]
            if len(self._head) < 2:
                continue
            length = self._head[1] & 127
            more = {126: 2, 127: 8}.get(length, 0)
            if len(self._head) == 2 + more:
                self._left = int.from_bytes(self._head[2:]) if more else length
                self._head = b""
