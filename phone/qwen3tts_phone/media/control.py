"""Parent's end of the control socket: commands out, messages in, both bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.media.loop import MESSAGE_MOST


class MediaLost(CallError):
    """The media process ended: its calls are silent; start another."""

    code = "media_lost"
    retryable = True


class MediaRefused(CallError):
    """The media process refused a command of this leg."""

    code = "media_refused"


class LegClosed(CallError):
    """The leg was closed."""

    code = "leg_closed"


LIVENESS_CHECKS = 10
"""Checks within the time limit that the process is alive."""


class _Command(NamedTuple):
    number: int
    data: bytes
    fds: tuple[int, ...]


class _Asked(NamedTuple):
    reply: asyncio.Future[dict[str, Any]]
    until: float
    """Check by which the reply must have come."""


class Control:
    """Sends commands and takes messages; a process that sends nothing is hung.

    Time is counted in checks of its own timer, so a stall of this process is not silence of the
    other.

    Args:
        sock: non-blocking end of the SEQPACKET socket.
        timeout_s: limit of silence, and of an answer.
        message: called with messages that are no replies.
        ended: called when the process has closed its end.
        hung: called with the reason when the limit has passed.
    """

    def __init__(
        self,
        sock: socket.socket,
        timeout_s: float,
        *,
        message: Callable[[dict[str, Any]], None],
        ended: Callable[[], None],
        hung: Callable[[str], None],
    ) -> None:
        self.cause: MediaLost | None = None
        """Why no command can be sent; None = it can."""
        self._sock = sock
        self._timeout_s = timeout_s
        self._message = message
        self._ended = ended
        self._hung = hung
        self._loop = asyncio.get_running_loop()
        self._count = 0
        self._asked: dict[int, _Asked] = {}
        self._unsent: deque[_Command] = deque()
        self._reading = True
        self._writing = False
        self._looks = 0
        self._heard = 0
        self._timer: asyncio.TimerHandle | None = None
        self._loop.add_reader(sock.fileno(), self._readable)

    def watch(self) -> None:
        if self._timer is None and self._reading:
            self._heard = self._looks
            self._timer = self._loop.call_later(self._timeout_s / LIVENESS_CHECKS, self._look)

    async def request(
        self, message: dict[str, Any], fds: Sequence[int] = (), *, limited: bool = True
    ) -> dict[str, Any]:
        """Return the answer to a command; ``fds`` stay open until then.

        Raises MediaRefused, MediaLost.

        ``limited=False``: the answer may take its time while the process is alive.
        """
        if self.cause is not None:
            raise self.cause
        self._count += 1
        number = self._count
        data = json.dumps({**message, "id": number}).encode()
        if len(data) > MESSAGE_MOST:
            raise MediaRefused(
                f"A command of {len(data)} bytes; the media process takes {MESSAGE_MOST}."
            )
        reply: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        until = self._looks + LIVENESS_CHECKS + 1 if limited else float("inf")
        self._asked[number] = _Asked(reply, until)
        command = _Command(number, data, tuple(fds))
        self._unsent.append(command)
        self._send()
        try:
            answer = await reply
        finally:
            del self._asked[number]
            with contextlib.suppress(ValueError):
                self._unsent.remove(command)  # its descriptors are about to be closed
        if "error" in answer:
            error = MediaRefused(f"The media process refused: {answer['error']}.")
            if not answer["refused"]:
                error.add_note(answer["traceback"])
            raise error
        return answer

    def shut(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self, cause: MediaLost) -> None:
        self.cause = cause
        self._stop()
        self._sock.close()
        for asked in self._asked.values():
            if not asked.reply.done():
                asked.reply.set_exception(cause)
                asked.reply.exception()  # retrieved, also where the wait was cancelled

    def _send(self) -> None:
        try:
            while self._unsent:
                command = self._unsent[0]
                socket.send_fds(self._sock, [command.data], command.fds)
                self._unsent.popleft()
        except BlockingIOError:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._sock.fileno(), self._send)
            return
        except OSError:  # the process has gone; reading finds that out as well
            self._unsent.clear()
        self._stop_writing()

    def _readable(self) -> None:
        for _ in range(256):
            try:
                data = self._sock.recv(MESSAGE_MOST)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._stop()
                self._ended()
                return
            self._heard = self._looks
            message = json.loads(data)
            if message["type"] == "reply":
                asked = self._asked.get(message["to"])
                if asked is not None and not asked.reply.done():
                    asked.reply.set_result(message)
            else:
                self._message(message)

    def _look(self) -> None:
        self._looks += 1
        self._readable()  # what came while this process was stalled
        if not self._reading:
            return
        why = ""
        if self._looks - self._heard > LIVENESS_CHECKS:
            why = f"has sent nothing for {self._timeout_s:g} s"
        elif any(self._looks > each.until for each in self._asked.values()):
            why = f"has not answered a command for {self._timeout_s:g} s"
        if why:
            self._hung(why)
        self._timer = self._loop.call_later(self._timeout_s / LIVENESS_CHECKS, self._look)

    def _stop(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._sock.fileno())
            self._stop_writing()
        if self._timer is not None:
            self._timer.cancel()

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._sock.fileno())
