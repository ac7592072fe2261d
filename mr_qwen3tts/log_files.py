"""Latency log, SIP plugin log and spans, by a writer thread.

A hanging disk must not delay frames: the queue is bounded. Files are opened an utterance: moving
one away starts another.
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
"""Queued utterances; more are dropped and reported."""
CLOSE_S = 1.0
"""Disk timeout at the host's stop."""
MAX_COLLECTORS = 8
"""Distinct OpenTelemetry collectors."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """Utterance with destinations."""

    log_id: str
    number: int
    record: UtteranceRecord
    """The writer's own copy."""
    latency_log: str | None
    e2e_log: str | None
    with_text: bool
    """True if the latency log may hold text."""
    otel: str | None = None
    """Collector; its record holds text where spans may."""


class LogFiles:
    """Writer thread.

    Args:
        problem: gets kind and error of a failure, in the thread.
        perf_offset_s: ``time.perf_counter`` minus the marks' clock.
    """

    def __init__(
        self,
        problem: Callable[[str, BaseException | str], None],
        *,
        perf_offset_s: float | None = None,
    ) -> None:
        self.lost = 0
        """Dropped utterances."""
        self._problem = problem
        if perf_offset_s is None:  # the loop's clock is time.monotonic
            perf_offset_s = time.perf_counter() - time.monotonic()
        self._perf_offset_s = perf_offset_s
        self._waiting: SimpleQueue[LogLine | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._spans: dict[str, Spans | None] = {}
        """By settings; None: impossible."""

    def write(self, line: LogLine) -> None:
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
        """Write the queue within `CLOSE_S`."""
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
    """Append in one write, with mode 0600; raises ``OSError``.

    No links or special files: the folder may be world-writable.
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
