"""Last utterances, counts and problems, bounded, in memory.

Text needs ``MR_QWEN3TTS_LOG_TEXT``; secrets in addresses are removed.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from logging import getLogger
from threading import Lock
from typing import Any, Protocol

from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_wire.errors import SpeechError, log_text

from .log_files import LogFiles, LogLine

logger = getLogger(__name__)

LAST = 50
"""Utterances shown."""
MAX_PROBLEMS = 20
"""Distinct problems."""
MAX_KINDS = 200
"""Names of counts and logged problems."""
MAX_NAME_CHARS = 120
MAX_ERROR_CHARS = 500
MAX_TEXT_CHARS = 2_000
"""Characters a text."""
MAX_CALLS = 4_096
"""Numbered conversations; the longest silent is forgotten."""
LOG_AGAIN_S = 60.0
"""Interval of a problem's log lines."""
WAITED_MS = 20.0
"""Wait of queued utterances, left out of statistics."""
STAGES = {
    "first_delta": Mark.FIRST_DELTA,
    "request_sent": Mark.REQUEST_SENT,
    "first_sound": Mark.RECEIVED,
    "first_frame": Mark.FIRST_FRAME_WIRE,
}
"""Stages from `Mark.TEXT_IN` to the first frame."""
COUNTED = ("utterances", "interrupted", "failed", "starved", "mixups", "stale_partials", "halts")
"""Shown at 0, too."""


class LogChoices(Protocol):
    """Settings of the logs."""

    @property
    def log_text(self) -> bool: ...

    @property
    def latency_log(self) -> str | None: ...

    @property
    def e2e_log(self) -> str | None: ...

    @property
    def otel(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class ShownUtterance:
    """Utterance on the page."""

    at_unix_s: float
    log_id: str
    number: int
    """From 1 in its conversation."""
    agent: str
    voice: str
    engine: str
    outcome: str
    error: str
    interrupted: bool
    chars: int
    stages_ms: dict[str, float | None]
    """By `STAGES`, milliseconds after the text, or None."""
    waited_ms: float
    """Wait for earlier utterances."""
    silence_ms: float | None
    """Interruption to silence."""
    starvations: int
    starved_ms: float
    longest_gap_ms: float
    heard_s: float
    generated_s: float
    heard: str | None = None
    """None: text is not kept."""
    remaining: str | None = None
    """Text not heard."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A failure and its count."""

    what: str
    error: str
    remedy: str
    first_unix_s: float
    last_unix_s: float
    times: int = 1
    log_id: str = ""
    """Last conversation, or empty."""


class Records:
    """Bounded memory; thread-safe, never raises.

    Args:
        choices: settings, read at each utterance.
        unix_s: wall clock.
    """

    def __init__(
        self,
        choices: Callable[[], LogChoices] | None = None,
        *,
        files: LogFiles | None = None,
        unix_s: Callable[[], float] = time.time,
    ) -> None:
        self.last: deque[ShownUtterance] = deque(maxlen=LAST)
        self._choices = choices
        self._unix_s = unix_s
        self._files = files or LogFiles(self.problem)
        self._lock = Lock()
        self._counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self._problems: OrderedDict[tuple[str, str], Problem] = OrderedDict()
        self._logged: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Last log time by kind, and suppressed lines."""
        self._numbers: OrderedDict[str, int] = OrderedDict()
        self._began_unix_s = unix_s()

    def utterance(
        self,
        log_id: str,
        agent: str,
        record: UtteranceRecord,
        *,
        outcome: str,
        error: str = "",
        heard: str = "",
        remaining: str = "",
        choices: LogChoices | None = None,
    ) -> None:
        """Note a finished utterance.

        ``outcome``: ``spoken``, ``interrupted``, ``no_text``, or an error's code; ``choices``:
        the conversation's settings, else the plugin's.
        """
        try:
            choices = choices or (self._choices() if self._choices is not None else None)
        except ValueError as wrong:  # a setting that cannot be read: its reader reports it too
            self.problem("settings", wrong, log_id)
            choices = None
        with_text = choices is not None and choices.log_text
        number = self._number(log_id)
        shown = _shown(log_id, number, agent, record, outcome, error)
        if with_text:
            shown = replace(
                shown, heard=heard[:MAX_TEXT_CHARS], remaining=remaining[:MAX_TEXT_CHARS]
            )
        self.last.append(shown)
        self.count("utterances")
        if shown.interrupted:
            self.count("interrupted")
        if shown.error:
            self.count("failed")
        if shown.starvations:
            self.count("starved")
        if choices is not None and (choices.latency_log or choices.e2e_log or choices.otel):
            # A copy: the writer has a thread of its own, and the record is the speaker's.
            copy = replace(
                record,
                marks=dict(record.marks),
                call_id=record.call_id or log_id,
                text=record.text if with_text else None,
            )
            self._files.write(
                LogLine(
                    log_id,
                    number,
                    copy,
                    choices.latency_log,
                    choices.e2e_log,
                    with_text,
                    choices.otel,
                )
            )

    def problem(self, what: str, error: BaseException | str, log_id: str = "") -> None:
        """Note and log a failure.

        ``what``: its kind, constant text; a `SpeechError`'s remedy is kept.
        """
        what = what[:MAX_NAME_CHARS]
        message, remedy = _told(error)
        now = self._unix_s()
        with self._lock:
            key = what, message
            before = self._problems.pop(key, None)
            if before is None:
                now_known = Problem(what, message, remedy, now, now, 1, log_id[:MAX_NAME_CHARS])
            else:
                now_known = replace(
                    before,
                    last_unix_s=now,
                    times=before.times + 1,
                    log_id=log_id[:MAX_NAME_CHARS],
                )
            self._problems[key] = now_known
            while len(self._problems) > MAX_PROBLEMS:
                self._problems.popitem(last=False)
            kept_back = self._may_log(what, now)
        if kept_back is None:
            return
        more = f" ({kept_back} more of the kind since the last line)" if kept_back else ""
        call = f" [{log_id[:MAX_NAME_CHARS]}]" if log_id else ""
        # A traceback only for unforeseen errors; the line's own errors are complete.
        foreign = isinstance(error, BaseException) and not isinstance(error, SpeechError | OSError)
        logger.error(
            "%s%s: %s%s",
            what,
            call,
            log_text(f"{message} {remedy}".rstrip(), 2 * MAX_ERROR_CHARS),
            more,
            exc_info=error if foreign and isinstance(error, BaseException) else None,
        )

    def count(self, name: str, n: int = 1) -> None:
        """Count ``mixups``, ``stale_partials``, ``halts``, ``fallbacks`` or another event."""
        name = re.sub(r"\W+", "_", name[:MAX_NAME_CHARS]).lower()
        with self._lock:
            if name in self._counts or len(self._counts) < MAX_KINDS:
                self._counts[name] += n

    def counted(self, name: str) -> int:
        return self._counts[name]

    def snapshot(self) -> dict[str, Any]:
        """Return JSON types, latest first."""
        with self._lock:
            problems = [_as_dict(each) for each in reversed(self._problems.values())]
            counts = dict(self._counts)
        utterances = list(self.last)
        return {
            "began_unix_s": self._began_unix_s,
            "now_unix_s": self._unix_s(),
            "counts": counts,
            "problems": problems,
            "first_frame_ms": _spread(utterances),
            "utterances": [_as_dict(each) for each in reversed(utterances)],
        }

    def close(self) -> None:
        self._files.close()

    # --- inside

    def _number(self, log_id: str) -> int:
        number = self._numbers.pop(log_id, 0) + 1
        self._numbers[log_id] = number
        while len(self._numbers) > MAX_CALLS:
            self._numbers.popitem(last=False)
        return number

    def _may_log(self, what: str, now: float) -> int | None:
        last, kept_back = self._logged.pop(what, (-math.inf, 0))
        early = 0 <= now - last < LOG_AGAIN_S
        self._logged[what] = (last, kept_back + 1) if early else (now, 0)
        while len(self._logged) > MAX_KINDS:
            self._logged.popitem(last=False)
        return None if early else kept_back


_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]{0,20}://)(?:[^\s/?#]*@)?([^\s?#]*)(?:[?#]\S*)?", re.I)
_BEARER = re.compile(r"\b(bearer)\s+\S+", re.I)


def without_secrets(text: str) -> str:
    """Remove user, password, query, fragment; hide named keys."""
    return _BEARER.sub(r"\1 …", _ADDRESS.sub(r"\1\2", text[: 4 * MAX_ERROR_CHARS]))


def _told(error: BaseException | str) -> tuple[str, str]:
    if isinstance(error, SpeechError):
        message, remedy = error.message, error.remedy
    elif isinstance(error, BaseException):
        message, remedy = f"{type(error).__name__}: {error}".rstrip(": "), ""
    else:
        message, remedy = error, ""
    return without_secrets(message)[:MAX_ERROR_CHARS], without_secrets(remedy)[:MAX_ERROR_CHARS]


def _shown(
    log_id: str, number: int, agent: str, record: UtteranceRecord, outcome: str, error: str
) -> ShownUtterance:
    stages = {name: record.between_ms(Mark.TEXT_IN, mark) for name, mark in STAGES.items()}
    rate_hz = record.rate_hz or 24_000
    return ShownUtterance(
        at_unix_s=record.started_unix_s,
        log_id=log_id[:MAX_NAME_CHARS],
        number=number,
        agent=agent[:MAX_NAME_CHARS],
        voice=record.voice[:MAX_NAME_CHARS],
        engine=record.engine[:MAX_NAME_CHARS],
        outcome=outcome[:MAX_NAME_CHARS],
        error=without_secrets(error)[:MAX_ERROR_CHARS],
        interrupted=outcome == "interrupted" or Mark.INTERRUPTED in record.marks,
        chars=len(record.text or ""),
        stages_ms={name: _rounded(at) for name, at in stages.items()},
        waited_ms=_rounded(record.between_ms(Mark.RESAMPLED, Mark.QUEUED)) or 0.0,
        silence_ms=_rounded(record.silence_ms),
        starvations=record.starvations,
        starved_ms=_rounded(record.starved_ms) or 0.0,
        longest_gap_ms=_rounded(record.longest_gap_ms) or 0.0,
        heard_s=round(record.heard_samples / rate_hz, 3),
        generated_s=round(record.generated_samples / rate_hz, 3),
    )


def _as_dict(shown: ShownUtterance | Problem) -> dict[str, Any]:
    return {each.name: getattr(shown, each.name) for each in fields(shown)}


def _rounded(ms: float | None) -> float | None:
    return None if ms is None or not math.isfinite(ms) else round(ms, 1)


def _spread(utterances: list[ShownUtterance]) -> dict[str, Any]:
    """Return count, p50 and p95 (nearest rank) of unqueued utterances."""
    sorted_ms = sorted(
        at
        for each in utterances
        if (at := each.stages_ms["first_frame"]) is not None and each.waited_ms <= WAITED_MS
    )
    n = len(sorted_ms)
    return {
        "n": n,
        "p50": sorted_ms[math.ceil(0.5 * n) - 1] if n else None,
        "p95": sorted_ms[math.ceil(0.95 * n) - 1] if n else None,
    }
