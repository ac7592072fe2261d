"""The two opt-in files of one line or three an utterance, written by a thread of their own.

A disk that hangs must not delay a frame: lines are handed over through a bounded queue. A file is
opened for each utterance, so that moving it away starts a new one, and no setting needs a restart.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from queue import SimpleQueue
from typing import Final

from qwen3tts_speech.latency import LatencyLog, Mark, UtteranceRecord

MAX_WAITING = 1_000
"""Utterances that may wait for the disk; what comes beyond is lost and told of."""
CLOSE_S = 1.0
"""How long the end of the host waits for the disk."""
E2E_EVENTS: Final = (
    ("LLM_FIRST_PARTIAL_SPEAK", Mark.TEXT_IN),
    ("KYUTAI_FIRST_TEXT_DELTA", Mark.REQUEST_SENT),
    ("KYUTAI_FIRST_AUDIO_FRAME", Mark.RECEIVED),
)
"""The names that the SIP plugin's latency script expects of whatever speaks, and our marks."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One utterance and where it is to be written."""

    log_id: str
    number: int
    record: UtteranceRecord
    """The writer's own copy."""
    latency_log: str | None
    e2e_log: str | None
    with_text: bool
    """Whether the latency log may hold the words."""


class LogFiles:
    """Writes what it is given, later.

    Args:
        problem: called with a kind and an error where a file cannot be written; by the thread.
        perf_offset_s: how far ``time.perf_counter`` is ahead of the clock of the marks.
    """

    def __init__(
        self,
        problem: Callable[[str, BaseException | str], None],
        *,
        perf_offset_s: float | None = None,
    ) -> None:
        self.lost = 0
        """Utterances that found no room."""
        self._problem = problem
        if perf_offset_s is None:  # the loop's clock is time.monotonic
            perf_offset_s = time.perf_counter() - time.monotonic()
        self._perf_offset_s = perf_offset_s
        self._waiting: SimpleQueue[LogLine | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def write(self, line: LogLine) -> None:
        """Have it written soon; returns at once."""
        if self._closed:
            return
        if self._waiting.qsize() >= MAX_WAITING:
            self.lost += 1
            self._problem("log files", "The disk is too slow: utterances are not written.")
            return
        self._waiting.put(line)
        if self._thread is None:
            # A daemon: a disk that hangs must not keep the host from ending.
            self._thread = threading.Thread(target=self._run, name="qwen3tts logs", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write what waits, for at most `CLOSE_S`."""
        self._closed = True
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while (line := self._waiting.get()) is not None:
            self._write_latency(line)
            self._write_e2e(line)

    def _write_latency(self, line: LogLine) -> None:
        if not line.latency_log:
            return
        try:
            with LatencyLog(line.latency_log, include_text=line.with_text) as log:
                log.append(line.record)
                lost = log.lost
        except (OSError, ValueError) as error:  # ValueError: a path with a null character
            self._problem("latency log", error)
            return
        if lost:
            self._problem("latency log", f"{line.latency_log} cannot be written; is the disk full?")

    def _write_e2e(self, line: LogLine) -> None:
        lines = e2e_lines(line.log_id, line.number, line.record, self._perf_offset_s)
        if line.e2e_log and lines:
            try:
                append(line.e2e_log, lines)
            except (OSError, ValueError) as error:
                self._problem("e2e log", error)


def append(path: str, lines: str) -> None:
    """Add lines to a file in one write; a new one is its owner's alone (mode 0600).

    Raises ``OSError`` where that is impossible. The file often lies in a folder that all users
    may write: a link there is not followed, and what is no ordinary file is left alone.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(path, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(f"{path} is no ordinary file")
        rest = lines.encode("ascii")
        while rest:
            rest = rest[os.write(file, rest) :]
    finally:
        os.close(file)


def e2e_lines(log_id: str, number: int, record: UtteranceRecord, perf_offset_s: float = 0.0) -> str:
    """An utterance's lines for the SIP plugin's latency script; empty where a stage is missing.

    That script cannot print an utterance of which it knows one stage and not the next.

    Args:
        number: of the utterance, within ``log_id``.
        perf_offset_s: how far the script's clock is ahead of the record's.
    """
    marks = record.marks
    if any(mark not in marks for _, mark in E2E_EVENTS):
        return ""
    began = marks[Mark.TEXT_IN]
    session = re.sub(r"[^\x21-\x7e]", "_", log_id)[:120] or "unknown"
    lines = []
    for event, mark in E2E_EVENTS:
        at = datetime.fromtimestamp(record.started_unix_s + marks[mark] - began)  # noqa: DTZ006
        wall = at.isoformat(sep=" ", timespec="milliseconds")
        lines.append(
            f"[{wall}] [E2E] {event} perf_counter={marks[mark] + perf_offset_s:.6f}"
            f" utterance={number} session={session} plugin=mr_qwen3tts\n"
        )
    return "".join(lines)
