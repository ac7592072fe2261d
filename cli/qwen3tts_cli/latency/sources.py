"""The logs that a command line names: files, folders, patterns, standard input."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from qwen3tts_wire.errors import SpeechError

STANDARD_INPUT: Final = "-"
IN_FOLDERS: Final = ("*.jsonl", "*.jsonl.*", "*.log", "*.log.*")
"""What is taken for a log in a folder, at any depth; hidden files and folders are passed over."""


class NoLog(SpeechError):
    """A log that was named cannot be read."""

    code = "no_log"


class LogChanged(SpeechError):
    """A log is no longer what it was when it was read."""

    code = "log_changed"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} was changed while it was being read.",
            remedy="Run the command again; --follow watches logs that are being written.",
        )


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file to be read."""

    path: Path
    found: bool = False
    """Whether it was found in a folder or by a pattern: it need not be a log, then."""
    stream: BinaryIO | None = None
    """Read for the path ``-`` in place of the process's standard input."""

    @property
    def is_input(self) -> bool:
        """Whether it is standard input."""
        return str(self.path) == STANDARD_INPUT

    @property
    def name(self) -> str:
        """What people call it."""
        return "standard input" if self.is_input else str(self.path)


@dataclass(slots=True)
class Found:
    """What a command line's names stand for."""

    files: list[LogFile] = field(default_factory=list)
    """In the order in which they were named; those of a folder by name."""
    missing: list[NoLog] = field(default_factory=list)
    """Names that stand for nothing."""
    remarks: list[str] = field(default_factory=list)


def find_logs(names: Iterable[str | os.PathLike[str]]) -> Found:
    """The files that these names stand for, each once, whatever its names."""
    found = Found()
    seen: set[tuple[int, int]] = set()
    twice: dict[str, None] = {}
    for each in names:
        name = os.fspath(each)
        count = len(found.files)
        for file in _meant(name, found):
            identity = _identity(file)
            if identity in seen:
                twice[file.name] = None
            else:
                seen.add(identity)
                found.files.append(file)
        if os.path.isdir(name) and len(found.files) == count and not twice:
            found.missing.append(
                NoLog(
                    f"{name}: no log is in this folder.",
                    remedy=f"Name the file; in a folder {', '.join(IN_FOLDERS)} are looked for.",
                )
            )
    found.remarks += [f"{name} was given more than once; it is read once." for name in twice]
    return found


def _meant(name: str, found: Found) -> Iterator[LogFile]:
    if name == STANDARD_INPUT:
        yield LogFile(Path(name))
    elif os.path.isdir(name):
        yield from (LogFile(path, found=True) for path in _in_folder(Path(name)))
    elif os.path.lexists(name):
        if (why := _unreadable(name)) is None:
            yield LogFile(Path(name))
        else:
            found.missing.append(why)
    elif glob.has_magic(name) and (paths := sorted(glob.glob(name, recursive=True))):
        for each in paths:
            yield from (
                (LogFile(path, found=True) for path in _in_folder(Path(each)))
                if os.path.isdir(each)
                else [LogFile(Path(each), found=True)]
            )
    else:
        found.missing.append(
            NoLog(
                f"{name}: No such file or folder.",
                remedy="Make one with: mr-qwen3tts call … --latency-log FILE",
            )
        )


def _in_folder(folder: Path) -> list[Path]:
    paths = {path for pattern in IN_FOLDERS for path in folder.rglob(pattern)}
    return sorted(
        path
        for path in paths
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _unreadable(name: str) -> NoLog | None:
    """A device may never end; a pipe ends with its writer."""
    try:
        mode = os.stat(name).st_mode
    except OSError as error:
        return NoLog(f"{name}: {error.strerror}.")
    if stat.S_ISREG(mode) or stat.S_ISFIFO(mode):
        return None
    return NoLog(f"{name} is no file.", remedy="Name a log, or - for standard input.")


def _identity(file: LogFile) -> tuple[int, int]:
    if file.is_input:
        return (-1, -1)
    status = os.stat(file.path)
    return status.st_dev, status.st_ino
