"""Latency log, SIP plugin log and spans of utterances, written by a thread of its own.

A disk that hangs must not delay a frame: utterances pass a bounded queue. A file is opened for each
utterance, so moving it away starts a new one.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from qwen3tts_speech.e2e_lines import e2e_lines
from qwen3tts_speech.latency import LatencyLog, UtteranceRecord
from qwen3tts_speech.record_sinks import Spans, open_spans
from qwen3tts_wire.errors import SpeechError

MAX_WAITING = 1_000
"""Utterances queued for the disk; further ones are dropped and reported."""
CLOSE_S = 1.0
"""Timeout of the disk when the host stops."""
MAX_COLLECTORS = 8
"""Distinct OpenTelemetry collectors."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One utterance and its destinations."""

    log_id: str
    number: int
    record: UtteranceRecord
    """A copy of the writer's own."""
    latency_log: str | None
    e2e_log: str | None
    with_text: bool
    """Whether the latency log may hold text."""
    otel: str | None = None
    """OpenTelemetry collector; the record holds text where spans may."""


class LogFiles:
    """Writer thread.

    Args:
        problem: called by the thread with kind and error of a failed write.
        perf_offset_s: ``time.perf_counter`` minus the clock of the marks.
    """

    def __init__(
        self,
        problem: Callable[[str, BaseException | str], None],
        *,
        perf_offset_s: float | None = None,
    ) -> None:
        self.lost = 0
        """Utterances dropped from a full queue."""
        self._problem = problem
        if perf_offset_s is None:  # the loop's clock is time.monotonic
            perf_offset_s = time.perf_counter() - time.monotonic()
        self._perf_offset_s = perf_offset_s
        self._waiting: SimpleQueue[LogLine | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._spans: dict[str, Spans | None] = {}
        """By settings; None where spans cannot be made."""

    def write(self, line: LogLine) -> None:
        """Queue it."""
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
        """Write the queue, for at most `CLOSE_S`."""
        self._closed = True
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while (line := self._waiting.get()) is not None:
            self._write_latency(line)
            self._write_e2e(line)
            self._send_spans(line)
        for spans in self._spans.values():
            if spans is not None:
                spans.close(CLOSE_S)

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
        lines = e2e_lines(line.log_id, line.number, line.record, perf_offset_s=self._perf_offset_s)
        if line.e2e_log and lines:
            try:
                append(line.e2e_log, lines)
            except (OSError, ValueError) as error:
                self._problem("e2e log", error)

    def _send_spans(self, line: LogLine) -> None:
        destination = line.otel
        if not destination:
            return
        if destination not in self._spans and len(self._spans) < MAX_COLLECTORS:
            self._spans[destination] = None
            try:
                self._spans[destination] = open_spans(destination, with_text=True)
            except (SpeechError, ValueError) as error:
                self._problem("otel", error)
        spans = self._spans.get(destination)
        if spans is not None:
            spans.append(line.record)


def append(path: str, lines: str) -> None:
    """Append lines in one write; a new file has mode 0600.

    Raises ``OSError``. Links are not followed and special files not written: the folder may be
    writable by all users.
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
