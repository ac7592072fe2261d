"""Append-only private file of lines."""

from __future__ import annotations

import os
import stat
from logging import getLogger
from pathlib import Path
from typing import Self

log = getLogger(__name__)


class LineFile:
    """Appender (mode 0600) that processes may share, one ``write`` a line.

    Lost lines (a full disk) are counted in ``lost`` and logged once.
    """

    def __init__(self, path: str | os.PathLike[str], *, what: str) -> None:
        """Open ``path``, called ``what`` in logs. Raises OSError."""
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
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
            return
        with self.path.open("rb") as existing:
            existing.seek(-1, os.SEEK_END)
            if existing.read(1) != b"\n":
                os.write(self._fd, b"\n")

    def write(self, text: str) -> None:
        """Append one ASCII line; never raises for a failing file system."""
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
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
