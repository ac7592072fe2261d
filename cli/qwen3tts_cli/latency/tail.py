"""The end of a file that grows, is moved away, cut off, or not there yet."""

from __future__ import annotations

import os
import stat
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final

from qwen3tts_speech.latency import MAX_LINE_BYTES

CHUNK_BYTES: Final = 1 << 20
"""So much is read at once: in between, somebody may press a key."""


class Change(StrEnum):
    """What became of a file."""

    CUT_OFF = "cut off"
    REPLACED = "moved away or replaced"


class Lines:
    """Cuts bytes into whole lines, the last one kept until it is whole."""

    def __init__(self) -> None:
        self.too_long = 0
        """Lines beyond `MAX_LINE_BYTES`, which are passed over."""
        self._rest = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole now, with their ends."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        if self._skipping and whole:
            whole, self._skipping = whole[1:], False
        if len(self._rest) > MAX_LINE_BYTES:
            self.too_long += not self._skipping
            self._rest, self._skipping = b"", True
        kept = [line + b"\n" for line in whole if len(line) <= MAX_LINE_BYTES]
        self.too_long += len(whole) - len(kept)
        return kept

    def end(self) -> list[bytes]:
        """What is left, where no more will come to this line."""
        rest, self._rest = self._rest, b""
        left = [] if self._skipping or not rest else [rest]
        self._skipping = False
        return left


class Tail:
    """Reads what is added to a file; never waits.

    A file that was moved away is read to its end, and then the one that has its name now, from the
    beginning. One that has become shorter was cut off: it is read from the beginning, too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.news: list[str] = []
        """What happened to the file, in words; the caller takes them out."""
        self.lines = Lines()
        self._file: BinaryIO | None = None
        self._missing = False

    def poll(self) -> list[bytes]:
        """The lines that are whole now, at most about `CHUNK_BYTES` of them."""
        if self._file is None:
            return self._read() if self._open() else []
        found = self._read()
        if not found and (changed := self._changed()):
            found = self._read()  # what came between the reading and the moving
            self.news.append(f"{self.path} was {changed}; it is read from the beginning.")
            rest = self.lines.end()
            found += [] if changed is Change.CUT_OFF else rest
            self.close()
        return found

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> bool:
        try:
            # A named pipe that nobody writes to would hold whoever opens it.
            self._file = os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK), "rb", 0)
            if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                self.close()
                return self._waits("no plain file; give it as standard input: latency - --follow")
        except OSError as error:
            return self._waits(f"{error.strerror}; it is waited for")
        self._missing = False
        return True

    def _waits(self, why: str) -> bool:
        if not self._missing:
            self.news.append(f"{self.path}: {why}.")
        self._missing = True
        return False

    def _read(self) -> list[bytes]:
        assert self._file is not None
        try:
            data = self._file.read(CHUNK_BYTES)
        except OSError as error:
            self.news.append(f"{self.path}: {error.strerror}.")
            self.close()
            return []
        return self.lines.feed(data) if data else []

    def _changed(self) -> Change | None:
        """What was done to the file that is open; None where nothing was."""
        assert self._file is not None
        mine = os.fstat(self._file.fileno())
        if mine.st_size < self._file.tell():
            return Change.CUT_OFF
        try:
            named = os.stat(self.path)
        except OSError:
            return None  # moved away, and no other one is there yet
        return None if os.path.samestat(mine, named) else Change.REPLACED
