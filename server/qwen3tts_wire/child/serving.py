"""The child's side of the pipes: messages on standard input, answers on standard output.

A child ends when its standard input ends, that is, with its parent.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

M = TypeVar("M")
PIPE_BYTES = 1 << 20
"""Room on standard output: some 23 s of sound."""


class Inbox(Generic[M]):
    """Messages from the parent.

    Args:
        fd: descriptor to read them from.
        decode: takes bytes and returns the messages that are complete, as ``Decoder.push``.
    """

    def __init__(self, fd: int, decode: Callable[[bytes], list[M]]) -> None:
        self._fd = fd
        self._decode = decode
        self._messages: deque[M] = deque()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self.ended = False

    def next(self) -> M | None:
        """Wait for the next message and return it; None when the parent is gone."""
        while not self._messages and not self.ended:
            self._read()
        return self._messages.popleft() if self._messages and not self.ended else None

    def has(self, wanted: Callable[[M], bool]) -> bool:
        """Return whether such a message waits, or the parent is gone; never blocks."""
        while not self.ended and self._poll.poll(0):
            self._read()
        return self.ended or any(map(wanted, self._messages))

    def _read(self) -> None:
        data = os.read(self._fd, 1 << 16)
        if data:
            self._messages.extend(self._decode(data))
        else:
            self.ended = True


class BackgroundInbox(Inbox[M]):
    """Inbox read by a thread that ends the process as soon as the parent is gone.

    For a child whose main thread may compute for minutes without a look at its messages.
    """

    def __init__(self, fd: int, decode: Callable[[bytes], list[M]]) -> None:
        super().__init__(fd, decode)
        self._arrived = threading.Condition()
        threading.Thread(target=self._read_all, name="inbox", daemon=True).start()

    def next(self) -> M:
        """Wait for the next message and return it."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._messages)
            return self._messages.popleft()

    def has(self, wanted: Callable[[M], bool]) -> bool:
        """Return whether such a message waits; never blocks."""
        with self._arrived:
            return any(map(wanted, self._messages))

    def _read_all(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self._fd, 1 << 16):
                messages = self._decode(data)
                with self._arrived:
                    self._messages.extend(messages)
                    self._arrived.notify()
        os._exit(0)


def write(fd: int, message: bytes) -> None:
    """Write the whole of an encoded message."""
    data = memoryview(message)
    while data:
        data = data[os.write(fd, data) :]


def main(serve: Callable[[int, int], int]) -> int:
    """Run ``serve`` with the descriptors of messages and answers; returns the exit status."""
    # The terminal's interrupt goes to the whole group; the parent decides when to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a library prints must not come between the messages.
    out = os.dup(sys.stdout.fileno())
    _widen(out)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with contextlib.suppress(BrokenPipeError):
        return serve(sys.stdin.fileno(), out)
    return 0


def _widen(pipe: int) -> None:
    """Make room for a whole clause, so that a busy parent does not hold up the next job."""
    # Linux only, up to what the system allows.
    if (set_size := getattr(fcntl, "F_SETPIPE_SZ", None)) is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, set_size, PIPE_BYTES)
