"""The worker's end of the pipes: orders on standard input, answers on standard output.

A worker ends when its standard input ends: with its parent, that is. It writes nothing else
anywhere; what its libraries print goes to standard error.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
from collections import deque
from collections.abc import Callable

from qwen3tts_engine.workers.messages import (
    Decoder,
    Done,
    Failed,
    Message,
    Missing,
    Note,
    Paused,
    Ready,
    Sound,
    Stop,
)

PIPE_BYTES = 1 << 20
"""Room on standard output: some 23 s of sound."""


class Inbox:
    """Messages from the parent."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._decoder = Decoder()
        self._messages: deque[Message] = deque()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self.ended = False

    def next(self) -> Message | None:
        """The next message, waiting for it; None when the parent is gone."""
        while not self._messages and not self.ended:
            self._read()
        return self._messages.popleft() if self._messages and not self.ended else None

    def stops(self, job: int) -> bool:
        """Whether the job is not wanted any more; never waits."""
        while not self.ended and self._poll.poll(0):
            self._read()
        return self.ended or Stop(job) in self._messages

    def _read(self) -> None:
        data = os.read(self._fd, 1 << 16)
        if data:
            self._messages.extend(self._decoder.push(data))
        else:
            self.ended = True


def write(fd: int, message: Ready | Missing | Note | Sound | Paused | Done | Failed) -> None:
    """Write the whole message."""
    data = memoryview(message.encode())
    while data:
        data = data[os.write(fd, data) :]


def main(serve: Callable[[int, int], int]) -> int:
    """Run ``serve`` with the descriptors of orders and answers; the process's exit status."""
    # The terminal's interrupt goes to the whole group; the parent decides when to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever a library prints must not mix with the messages.
    out = os.dup(sys.stdout.fileno())
    _widen(out)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with contextlib.suppress(BrokenPipeError):
        return serve(sys.stdin.fileno(), out)
    return 0


def _widen(pipe: int) -> None:
    """Have room for a whole clause, so that a busy parent does not hold up the next job."""
    # Linux alone, and there not beyond what the system allows.
    if (set_size := getattr(fcntl, "F_SETPIPE_SZ", None)) is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, set_size, PIPE_BYTES)
