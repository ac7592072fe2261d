"""Child's side of the pipes; it ends with its standard input, that is, with its parent."""

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
"""Buffer of standard output: some 23 s of audio."""


class Inbox(Generic[M]):
    """Messages from the parent.

    Args:
        fd: descriptor to read.
        decode: as ``Decoder.push``.
    """

    def __init__(self, fd: int, decode: Callable[[bytes], list[M]]) -> None:
        self._fd = fd
        self._decode = decode
        self._messages: deque[M] = deque()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self.ended = False

    def next(self) -> M | None:
        """Wait for a message; None when the parent is gone."""
        while not self._messages and not self.ended:
            self._read()
        return self._messages.popleft() if self._messages and not self.ended else None

    def has(self, wanted: Callable[[M], bool]) -> bool:
        """Return whether a message waits, or the parent is gone; never blocks."""
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
    """Inbox whose thread ends the process with the parent.

    For a main thread that may compute for minutes.
    """

    def __init__(self, fd: int, decode: Callable[[bytes], list[M]]) -> None:
        super().__init__(fd, decode)
        self._arrived = threading.Condition()
        threading.Thread(target=self._read_all, name="inbox", daemon=True).start()

    def next(self) -> M:
        with self._arrived:
            self._arrived.wait_for(lambda: self._messages)
            return self._messages.popleft()

    def has(self, wanted: Callable[[M], bool]) -> bool:
        """Return whether a message waits; never blocks."""
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
    data = memoryview(message)
    while data:
        data = data[os.write(fd, data) :]


def main(serve: Callable[[int, int], int]) -> int:
    """Run ``serve`` with both descriptors; return the exit status."""
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
    # Linux only, up to what the system allows.
    if (set_size := getattr(fcntl, "F_SETPIPE_SZ", None)) is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, set_size, PIPE_BYTES)
