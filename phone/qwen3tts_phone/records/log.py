"""Log of call records: appended by any number of processes, rotated by size."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from logging import getLogger
from pathlib import Path
from typing import BinaryIO

from qwen3tts_phone.records.record import CallRecord
from qwen3tts_phone.settings.records import RecordSettings

logger = getLogger(__name__)

MAX_LINE_BYTES = 1 << 20
"""A longer line of a log is damaged; it is skipped without being held in memory."""
MAX_EXAMPLES = 20
"""Damaged lines that a reader names; all are counted."""
DAY_S = 86_400.0


class CallRecordLog:
    """Appender to a file (mode 0600) shared by any number of processes.

    Each line is one ``write`` in append mode under a lock, also during rotation (``NAME.1`` is the
    newest). Failed writes are counted in ``lost`` and logged once.
    """

    def __init__(
        self, path: str | os.PathLike[str], settings: RecordSettings | None = None
    ) -> None:
        self.path = Path(path)
        self.settings = settings or RecordSettings()
        self.written = 0
        self.lost = 0
        self._fd = -1
        self._closed = False
        self._open()

    def append(self, record: CallRecord) -> None:
        line = record.to_json().encode("ascii") + b"\n"
        try:
            self._write(line)
        except OSError as error:
            if not self.lost:
                logger.warning(
                    "call records %s cannot be written: %s", self.path, error.strerror or error
                )
            self.lost += 1
        else:
            self.written += 1

    def sweep(self, now_wall: float) -> list[Path]:
        days = self.settings.log_keep_days
        gone: list[Path] = []
        for path, _ in self._rotated():
            try:
                if days and path.stat().st_mtime < now_wall - days * DAY_S:
                    path.unlink()
                    gone.append(path)
            except FileNotFoundError:
                continue  # put aside further by another process
            except OSError as error:
                logger.warning("call records %s cannot be deleted: %s", path, error.strerror)
        return gone

    def close(self) -> None:
        self._closed = True
        self._leave()

    def __enter__(self) -> CallRecordLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside

    def _leave(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self.path, flags, 0o600)
        try:
            if stat.S_ISREG(os.fstat(self._fd).st_mode):
                os.fchmod(self._fd, 0o600)
        except PermissionError:
            logger.warning("call records %s belong to another user", self.path)

    def _write(self, line: bytes) -> None:
        if self._closed:
            raise OSError("the log is closed")
        if self._fd < 0:
            self._open()
        regular = stat.S_ISREG(os.fstat(self._fd).st_mode)
        if regular:
            self._lock()
        try:
            size = os.fstat(self._fd).st_size if regular else 0
            if size and os.pread(self._fd, 1, size - 1) != b"\n":
                line = b"\n" + line  # a writer was killed in the middle of its line
            written = os.write(self._fd, line)
            if written < len(line):
                if regular:  # no half lines
                    os.ftruncate(self._fd, size)
                raise OSError("no space left")
            if regular and self.settings.log_max_bytes:
                self._rotate(size + written)
        finally:
            if regular and self._fd >= 0:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _lock(self) -> None:
        for _ in range(100):
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                there = os.stat(self.path)
            except FileNotFoundError:
                there = None
            ours = os.fstat(self._fd)
            if there is not None and (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
                return
            self._leave()
            self._open()
        raise OSError("the log is replaced all the time")

    def _rotate(self, size: int) -> None:
        if size < self.settings.log_max_bytes:
            return
        keep = self.settings.log_files
        for path, number in sorted(self._rotated(), key=lambda each: -each[1]):
            if number >= keep:
                path.unlink(missing_ok=True)
            else:
                path.rename(self._name(number + 1))
        if keep:
            self.path.rename(self._name(1))
        else:
            self.path.unlink()

    def _rotated(self) -> list[tuple[Path, int]]:
        found = []
        for path in self.path.parent.glob(f"{_escaped(self.path.name)}.*"):
            suffix = path.name[len(self.path.name) + 1 :]
            if suffix.isascii() and suffix.isdigit() and len(suffix) <= 6:
                found.append((path, int(suffix)))
        return found

    def _name(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


class RecordReader:
    """Iterator over a log, one line in memory at a time.

    Damaged lines are counted in ``damaged``; the first are in ``examples`` as (line number,
    cause).
    """

    def __init__(self, stream: BinaryIO, *, close: bool = False) -> None:
        self._stream = stream
        self._close = close
        self.lines = 0
        self.damaged = 0
        self.examples: list[tuple[int, str]] = []

    def __iter__(self) -> Iterator[CallRecord]:
        try:
            while line := self._stream.readline(MAX_LINE_BYTES):
                self.lines += 1
                if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                    while (rest := self._stream.readline(MAX_LINE_BYTES)) and rest[-1:] != b"\n":
                        pass
                    self._note(f"longer than {MAX_LINE_BYTES} bytes")
                elif not line.isspace():
                    try:
                        record = CallRecord.from_json(line)
                    except ValueError as error:
                        self._note(str(error))
                    else:
                        yield record
        finally:
            if self._close:
                self._stream.close()

    def _note(self, why: str) -> None:
        self.damaged += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append((self.lines, why))


def read_records(source: str | os.PathLike[str] | BinaryIO) -> RecordReader:
    """Read the records of a file or binary stream; raises ``OSError``."""
    if isinstance(source, str | os.PathLike):
        return RecordReader(Path(source).open("rb"), close=True)
    return RecordReader(source)


def _escaped(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)
