"""A file of lines that only its owner may read, appended to by any number of processes."""

from __future__ import annotations

import os
import stat
from logging import getLogger
from pathlib import Path
from typing import Self

log = getLogger(__name__)


class LineFile:
    """Appends lines to a file that only its owner may read (mode 0600).

    Each line is one ``write`` in append mode, so several processes may share a file. A full disk
    does not end a call: what could not be written is counted in ``lost`` and warned of once.
    """

    def __init__(self, path: str | os.PathLike[str], *, what: str) -> None:
        """Open or create ``path``; raises ``OSError`` where that is impossible.

        ``what`` is what warnings call the file.
        """
        self.path = Path(path)
        self.written = 0
        self.lost = 0
        self._what = what
        flags = os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self.path, os.O_WRONLY | flags, 0o600)
        try:
            self._mend_last_line()
        except OSError:
            os.close(self._fd)
            raise

    def _mend_last_line(self) -> None:
        """End a line that a killed writer left open, so that ours is not glued to it."""
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
            return
        with self.path.open("rb") as existing:
            existing.seek(-1, os.SEEK_END)
            if existing.read(1) != b"\n":
                os.write(self._fd, b"\n")

    def write(self, text: str) -> None:
        """Append one line, ASCII without its end; never raises for a file system that fails."""
        line = text.encode("ascii") + b"\n"
        try:
            written = os.write(self._fd, line)
            while written < len(line):
                written += os.write(self._fd, line[written:])
        except OSError as error:
            if not self.lost:
                log.warning("%s %s cannot be written: %s", self._what, self.path, error.strerror)
            self.lost += 1
        else:
            self.written += 1

    def close(self) -> None:
        """Close the file; harmless when closed before."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
