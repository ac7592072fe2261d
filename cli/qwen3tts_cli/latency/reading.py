"""Reading of logs into columns."""

from __future__ import annotations

import glob
import gzip
import io
import os
import stat
import sys
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from qwen3tts_cli.latency.choices import LogKind
from qwen3tts_cli.latency.columns import Columns, ColumnsBuilder, Source
from qwen3tts_cli.latency.findings import MAX_EXAMPLES, DamagedLine, Findings, LogChanged
from qwen3tts_cli.latency.order import backwards_ms, steps_back
from qwen3tts_cli.latency.selection import Selection
from qwen3tts_speech.latency import MAX_LINE_BYTES, Damaged, LogReader, UtteranceRecord
from qwen3tts_wire.errors import SpeechError

STANDARD_INPUT: Final = "-"
IN_FOLDERS: Final = ("*.jsonl", "*.jsonl.*", "*.log", "*.log.*")
"""Patterns of logs in folders, recursive; hidden ones are skipped."""


class NoLog(SpeechError):
    code = "no_log"


@dataclass(frozen=True, slots=True)
class LogFile:
    path: Path
    found: bool = False
    """From a folder or pattern, so it may be no log."""
    stream: BinaryIO | None = None
    """Replaces standard input for ``-``."""

    @property
    def is_input(self) -> bool:
        return str(self.path) == STANDARD_INPUT

    @property
    def name(self) -> str:
        return "standard input" if self.is_input else str(self.path)


@dataclass(slots=True)
class ResolvedLogs:
    files: list[LogFile] = field(default_factory=list)
    """In order of names; folders sorted."""
    missing: list[NoLog] = field(default_factory=list)
    """Names without a file."""
    remarks: list[str] = field(default_factory=list)


def find_logs(names: Iterable[str | os.PathLike[str]]) -> ResolvedLogs:
    """Resolve names to distinct files."""
    found = ResolvedLogs()
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


def _meant(name: str, found: ResolvedLogs) -> Iterator[LogFile]:
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


GZIP: Final = b"\x1f\x8b"
HEAD_BYTES: Final = 4096
"""Bytes that identify a format."""
LENGTH_BYTES: Final = 4


class Reader(Protocol):
    lines: int
    damaged: int
    examples: list[Damaged]

    def __iter__(self) -> Iterator[UtteranceRecord]: ...


class FileSource:
    """Rereadable file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        return str(self.path)

    def records_at(self, offsets: Iterable[int]) -> Iterator[UtteranceRecord]:
        """Yield utterances at these offsets; raises LogChanged, OSError."""
        with self.path.open("rb") as file:
            for offset in offsets:
                file.seek(offset)
                try:
                    yield UtteranceRecord.from_json(file.readline(MAX_LINE_BYTES))
                except ValueError:
                    raise LogChanged(self.name) from None


class SpooledSource:
    """Anonymous spool file of a stream; each line follows its length."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._end = 0
        self._descriptor, path = tempfile.mkstemp(prefix="latency-")
        os.unlink(path)
        weakref.finalize(self, os.close, self._descriptor)

    def keep(self, line: bytes) -> int:
        """Keep one line; return its offset."""
        begin, kept = self._end, len(line).to_bytes(LENGTH_BYTES, "big") + line
        while kept:
            written = os.pwrite(self._descriptor, kept, self._end)
            kept, self._end = kept[written:], self._end + written
        return begin

    def records_at(self, offsets: Iterable[int]) -> Iterator[UtteranceRecord]:
        for offset in offsets:
            length = int.from_bytes(os.pread(self._descriptor, LENGTH_BYTES, offset), "big")
            line = os.pread(self._descriptor, length, offset + LENGTH_BYTES)
            yield UtteranceRecord.from_json(line)


@dataclass
class ReadFilter:
    """Filter while reading."""

    selection: Selection
    chosen: str | None = None
    """Id of one utterance: call, context, or ``call/context``."""
    found: int | None = None
    seen: int = 0
    """Utterances read in total."""


def read_columns(
    files: Iterable[LogFile],
    wanted: ReadFilter | None = None,
    *,
    kind: LogKind | None = None,
    progress: Callable[[int], None] | None = None,
) -> Columns:
    """Read logs line by line; damage is counted in ``findings``. Raises OSError."""
    wanted = wanted or ReadFilter(Selection())
    builder = ColumnsBuilder()
    seen: dict[int, int] = {}
    for number, file in enumerate(files):
        reading = _Reading(file, number, builder, wanted, seen, progress)
        reading.run(kind)
    columns = builder.columns()
    findings = columns.findings
    findings.out_of_order = int((backwards_ms(columns) > 0).sum())
    findings.clock_steps = len(steps_back(columns))
    return columns


class _Reading:
    def __init__(
        self,
        file: LogFile,
        number: int,
        builder: ColumnsBuilder,
        wanted: ReadFilter,
        seen: dict[int, int],
        progress: Callable[[int], None] | None,
    ) -> None:
        self._file = file
        self._number = number
        self._builder = builder
        self._wanted = wanted
        self._seen = seen
        """First source of each line, by hash."""
        self._progress = progress or (lambda lines: None)

    def run(self, kind: LogKind | None) -> None:
        findings, before = self._builder.findings, self._wanted.seen
        head, lines, cut_short = b"", findings.lines, False
        with ExitStack() as stack:
            try:
                stream, again = self._open(stack)
                head = stream.peek(HEAD_BYTES)[:HEAD_BYTES]
                reader, offsets = _reader(stream, kind or _kind(head))
                stack.callback(self._tell, reader, findings)
                source = FileSource(self._file.path) if again and offsets else None
                self._take(reader, source or SpooledSource(self._file.name))
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                cut_short = True
                findings.remarks.append(
                    f"{self._file.name} is cut short or damaged ({str(error).rstrip('.')});"
                    " it was read as far as it goes."
                )
        if self._wanted.seen == before and not cut_short:
            findings.remarks.append(self._nothing(head, findings.lines - lines))

    def _open(self, stack: ExitStack) -> tuple[io.BufferedReader, bool]:
        if self._file.is_input:
            plain, again = _buffered(self._file.stream or sys.stdin.buffer), False
        else:
            plain = stack.enter_context(self._file.path.open("rb"))
            again = plain.seekable()
        if plain.peek(2)[:2] != GZIP:
            return plain, again
        return _buffered(stack.enter_context(gzip.GzipFile(fileobj=plain))), False

    def _take(self, reader: Reader, source: Source) -> None:
        builder, wanted, selection = self._builder, self._wanted, self._wanted.selection
        all_taken, spool = selection.all, source if isinstance(source, SpooledSource) else None
        ours = reader if isinstance(reader, LogReader) else None
        for record in reader:
            wanted.seen += 1
            if not wanted.seen % 5000:
                self._progress(builder.findings.lines + reader.lines)
            line = ours.line if ours else record.to_json(include_text=True).encode()
            if self._seen.setdefault(hash(line), self._number) != self._number:
                builder.findings.repeated += 1
                continue
            if not all_taken and not selection.takes(record):
                continue
            if wanted.chosen is not None and wanted.found is None and has_id(record, wanted):
                wanted.found = len(builder)
            offset = spool.keep(line) if spool else ours.offset if ours else 0
            builder.add(record, source, offset)

    def _tell(self, reader: Reader, findings: Findings) -> None:
        name = self._file.name
        findings.lines += reader.lines
        findings.damaged += reader.damaged
        findings.newer += getattr(reader, "newer", 0)
        if unplaced := getattr(reader, "unplaced", 0):
            findings.remarks.append(
                f"{name}: {unplaced} lines name no utterance and fit none; left out."
            )
        room = MAX_EXAMPLES - len(findings.examples)
        findings.examples += [
            DamagedLine(name, each.line, each.why) for each in reader.examples[:room]
        ]

    def _nothing(self, head: bytes, lines: int) -> str:
        name = self._file.name
        if not head:
            return f"{name} is empty."
        if b"\0" in head:
            return f"{name} holds no utterance: it is no text."
        return f"{name} holds no utterance in {lines} lines."


def has_id(record: UtteranceRecord, wanted: ReadFilter) -> bool:
    return wanted.chosen in names(record)


def names(record: UtteranceRecord) -> set[str]:
    return {record.context, record.call_id, f"{record.call_id}/{record.context}"} - {""}


def _buffered(stream: Any) -> io.BufferedReader:
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)


def _kind(head: bytes) -> LogKind:
    from qwen3tts_speech.e2e_lines import is_e2e_line

    for line in head.splitlines():
        if is_e2e_line(line):
            return LogKind.MR_SIP
        if line.lstrip().startswith(b"{"):
            break
    return LogKind.OURS


def _reader(stream: io.BufferedReader, kind: LogKind) -> tuple[Reader, bool]:
    if kind is LogKind.MR_SIP:
        from qwen3tts_speech.e2e_reader import E2eReader

        return E2eReader(stream), False
    return LogReader(stream), True
