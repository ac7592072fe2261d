"""One process that speaks: ``python -m qwen3tts_engine.embedded.worker LIBRARY DATA``.

Takes messages (messages.py) on standard input and answers on standard output, one job at a time.
It ends when standard input ends: with its parent, that is. It writes nothing else anywhere; what
the library prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
from collections import deque
from pathlib import Path

from qwen3tts_engine.embedded.library import Library, LibraryMissing, SpeakFailed
from qwen3tts_engine.embedded.messages import (
    Decoder,
    Done,
    Failed,
    Message,
    Missing,
    Ready,
    Say,
    Sound,
    Stop,
)

PIPE_BYTES = 1 << 20
"""Room on standard output: some 23 s of sound."""
HANG_S = 60
"""A job that takes longer ends the process, also when the parent is gone and cannot."""


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


def write(fd: int, message: Ready | Missing | Sound | Done | Failed) -> None:
    """Write the whole message."""
    data = memoryview(message.encode())
    while data:
        data = data[os.write(fd, data) :]


def speak(library: Library, say: Say, inbox: Inbox, out: int) -> None:
    """Serve one job: SOUND as it comes, then DONE or FAILED."""

    def on_sound(pcm: bytes, words: list[tuple[int, int]]) -> bool:
        if inbox.stops(say.job):
            return False
        write(out, Sound(say.job, pcm, tuple(words)))
        return True

    signal.alarm(HANG_S)
    try:
        to_the_end = library.speak(say.text, say.voice, say.rate, say.pause, on_sound)
    except SpeakFailed as error:
        write(out, Failed(say.job, str(error)))
    else:
        write(out, Done(say.job, to_the_end))
    finally:
        signal.alarm(0)


def serve(library_path: Path, data_path: Path, given: int, out: int) -> int:
    """Load the library, then serve what is read from ``given`` until it ends; the exit status."""
    try:
        library = Library(library_path, data_path)
    except LibraryMissing as error:
        write(out, Missing(str(error)))
        return 1
    voices, variants = tuple(library.voices()), tuple(library.variants())
    write(out, Ready(library.version, library.sample_rate, voices, variants))
    inbox = Inbox(given)
    while (message := inbox.next()) is not None:
        if isinstance(message, Say):
            speak(library, message, inbox, out)
    return 0


def _widen(pipe: int) -> None:
    """Have room for a whole clause, so that a busy parent does not hold up the next job."""
    # Linux alone, and there not beyond what the system allows.
    if (set_size := getattr(fcntl, "F_SETPIPE_SZ", None)) is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, set_size, PIPE_BYTES)


def main() -> int:
    """Entry point."""
    # The terminal's interrupt goes to the whole group; the parent decides when to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever the library prints must not mix with the messages.
    out = os.dup(sys.stdout.fileno())
    _widen(out)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with contextlib.suppress(BrokenPipeError):
        return serve(Path(sys.argv[1]), Path(sys.argv[2]), sys.stdin.fileno(), out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
