"""Growing logs, followed as ``tail -F`` does."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from qwen3tts_cli.latency.reading import STANDARD_INPUT, find_logs
from qwen3tts_cli.latency.selection import Selection
from qwen3tts_speech.e2e_lines import is_e2e_line
from qwen3tts_speech.e2e_reader import E2eGroups
from qwen3tts_speech.latency import MAX_LINE_BYTES, VERSION, UtteranceRecord
from qwen3tts_wire.errors import BadRequest

CHUNK_BYTES: Final = 1 << 20
"""Bytes a read; keys are polled in between."""


class FileChange(StrEnum):
    CUT_OFF = "cut off"
    REPLACED = "moved away or replaced"


class LineSplitter:
    """Splitter of bytes into complete lines."""

    def __init__(self) -> None:
        self.too_long = 0
        """Skipped lines beyond `MAX_LINE_BYTES`."""
        self._rest = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes]:
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
        rest, self._rest = self._rest, b""
        left = [] if self._skipping or not rest else [rest]
        self._skipping = False
        return left


class Tail:
    """Non-blocking reader of a growing file.

    A renamed file is read to its end, then its successor; a truncated one from the beginning.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.news: list[str] = []
        """File changes in words; cleared by the caller."""
        self.lines = LineSplitter()
        self._file: BinaryIO | None = None
        self._missing = False

    def poll(self) -> list[bytes]:
        """Return complete lines, at most about `CHUNK_BYTES`."""
        if self._file is None:
            return self._read() if self._open() else []
        found = self._read()
        if not found and (changed := self._changed()):
            found = self._read()  # what came between the reading and the moving
            self.news.append(f"{self.path} was {changed}; it is read from the beginning.")
            rest = self.lines.end()
            found += [] if changed is FileChange.CUT_OFF else rest
            self.close()
        return found

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> bool:
        try:
            # Opening a named pipe without a writer would block.
            self._file = os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK), "rb", 0)
            if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                self.close()
                return self._waits("no plain file; give it as standard input: latency - --follow")
        except OSError as error:
            return self._waits(f"{error.strerror}; waiting for it")
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

    def _changed(self) -> FileChange | None:
        assert self._file is not None
        mine = os.fstat(self._file.fileno())
        if mine.st_size < self._file.tell():
            return FileChange.CUT_OFF
        try:
            named = os.stat(self.path)
        except OSError:
            return None  # moved away, and no other one is there yet
        return None if os.path.samestat(mine, named) else FileChange.REPLACED


MAX_UTTERANCES: Final = 1000
"""Utterances in the figures, the latest."""
RESCAN_INTERVAL_S: Final = 2.0
"""Interval of directory scans."""
MAX_NEWS: Final = 3
"""Remarks shown."""


class GrowingSource(Protocol):
    lines: LineSplitter
    news: list[str]

    def poll(self) -> list[bytes]:
        """Return complete lines without waiting."""

    def close(self) -> None: ...


class _Records:
    def __init__(self) -> None:
        self.newer = self.damaged = 0
        self._groups: E2eGroups | None = None
        self._number = 0

    def of(self, lines: Iterable[bytes]) -> list[UtteranceRecord]:
        found: list[UtteranceRecord] = []
        for line in lines:
            self._number += 1
            if line.isspace():
                continue
            try:
                found += self._of(line)
            except ValueError:
                self.damaged += 1
        return found

    def _of(self, line: bytes) -> list[UtteranceRecord]:
        if is_e2e_line(line):  # of mr_sip: an utterance has several
            self._groups = self._groups or E2eGroups()
            return [record for record, _ in self._groups.add(line, self._number)]
        record = UtteranceRecord.from_json(line)
        self.newer += record.version > VERSION
        return [record]


@dataclass(slots=True)
class _Source:
    name: str
    grows: GrowingSource
    records: _Records = field(default_factory=_Records)


class LogFollower:
    """Follower of several logs; never blocks, bounded memory.

    Args:
        names: files (may be missing yet), folders, patterns; ``-`` needs ``standard``.

    Raises:
        BadRequest: a compressed log.
    """

    def __init__(
        self,
        names: Iterable[str],
        selection: Selection,
        *,
        standard: GrowingSource | None = None,
    ) -> None:
        self.last: deque[UtteranceRecord] = deque(maxlen=MAX_UTTERANCES)
        """Latest utterances, without text."""
        self.seen = 0
        """Utterances taken in total."""
        self._names = list(names)
        self._selection = selection
        self._sources: dict[str, _Source] = {}
        self._looked_at = -RESCAN_INTERVAL_S
        self._news: deque[str] = deque(maxlen=MAX_NEWS)
        for name in self._names:
            if name == STANDARD_INPUT:
                if standard is not None:
                    self._sources[name] = _Source("standard input", standard)
            elif name.endswith(".gz"):
                raise BadRequest(
                    f"{name} is compressed: nothing is added to it.",
                    remedy="Read it without --follow.",
                )

    @property
    def files(self) -> list[str]:
        return [source.name for source in self._sources.values()]

    @property
    def damaged(self) -> int:
        sources = self._sources.values()
        return sum(each.records.damaged + each.grows.lines.too_long for each in sources)

    @property
    def newer(self) -> int:
        return sum(each.records.newer for each in self._sources.values())

    @property
    def news(self) -> list[str]:
        return list(self._news)

    def poll(self, now: float) -> list[UtteranceRecord]:
        """Return new utterances; ``now`` in seconds of any clock."""
        if now - self._looked_at >= RESCAN_INTERVAL_S:
            self._looked_at = now
            self._look()
        found: list[UtteranceRecord] = []
        for source in self._sources.values():
            records = source.records.of(source.grows.poll())
            found += [each for each in records if self._selection.takes(each)]
            self._news.extend(source.grows.news)
            source.grows.news.clear()
        self.seen += len(found)
        for record in found:
            record.text = None
        self.last.extend(found)
        return found

    def close(self) -> None:
        for source in self._sources.values():
            source.grows.close()

    def _look(self) -> None:
        for name in self._names:
            if name == STANDARD_INPUT:
                continue
            files = [str(each.path) for each in find_logs([name]).files]
            if not files and not os.path.isdir(name) and not any(char in name for char in "*?["):
                files = [name]  # it is waited for
            for file in files:
                if file not in self._sources and not file.endswith(".gz"):
                    self._sources[file] = _Source(file, Tail(Path(file)))
