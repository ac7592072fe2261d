"""Where utterances are noted on request: two files, and spans; by a thread of their own.

A disk that hangs must not delay a frame: utterances are handed over through a bounded queue. A file
is opened for each utterance, so that moving it away starts a new one, and no setting needs a
restart.
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
from qwen3tts_speech.spans import Spans, open_spans
from qwen3tts_wire.errors import SpeechError

MAX_WAITING = 1_000
"""Utterances that may wait for the disk; what comes beyond is lost and told of."""
CLOSE_S = 1.0
"""How long the end of the host waits for the disk."""
MAX_COLLECTORS = 8
"""Different collectors of spans that agents may ask for."""


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
    otel: str | None = None
    """Collector that gets spans; the record holds the words where they may be in them."""


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
        self._spans: dict[str, Spans | None] = {}
        """By the settings that ask for them; None where they cannot be made."""

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
        wish = line.otel
        if not wish:
            return
        if wish not in self._spans and len(self._spans) < MAX_COLLECTORS:
            self._spans[wish] = None
            try:
                self._spans[wish] = open_spans(wish, with_text=True)
            except (SpeechError, ValueError) as error:
                self._problem("otel", error)
        spans = self._spans.get(wish)
        if spans is not None:
            spans.append(line.record)


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
