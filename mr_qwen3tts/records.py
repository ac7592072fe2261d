"""What happened: the last utterances, counts and problems, for the admin page and the logs.

Everything here is kept in memory and bounded. What a caller heard is kept only where the settings
say so (``MR_QWEN3TTS_LOG_TEXT``), and secrets in addresses are left out before anything is kept.
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
"""Utterances that the page shows."""
MAX_PROBLEMS = 20
"""Different problems that are kept, the latest ones."""
MAX_KINDS = 200
"""Bound on the names of counts, and of problems whose last log line is remembered."""
MAX_NAME_CHARS = 120
MAX_ERROR_CHARS = 500
MAX_TEXT_CHARS = 2_000
"""Bound on each text that is kept, where texts are kept at all."""
MAX_CALLS = 4_096
"""Conversations whose utterances are numbered on; the longest silent is forgotten first."""
LOG_AGAIN_S = 60.0
"""A problem of one kind is logged at once, and then at most once in so long."""
WAITED_MS = 20.0
"""An utterance that waited longer than a frame came behind another; its start tells nothing."""
STAGES = {
    "first_delta": Mark.FIRST_DELTA,
    "request_sent": Mark.REQUEST_SENT,
    "first_sound": Mark.RECEIVED,
    "first_frame": Mark.FIRST_FRAME_WIRE,
}
"""The way of an utterance's first sound, each after `Mark.TEXT_IN`."""
COUNTED = ("utterances", "interrupted", "failed", "starved", "mixups", "stale_partials", "halts")
"""Counts that are shown even while they are 0."""


class LogChoices(Protocol):
    """The settings that say what is written where."""

    @property
    def log_text(self) -> bool:
        """Whether callers' words may be kept and written."""

    @property
    def latency_log(self) -> str | None:
        """A file for one line of JSON an utterance."""

    @property
    def e2e_log(self) -> str | None:
        """A file for the lines that the SIP plugin's latency script reads."""

    @property
    def otel(self) -> str | None:
        """A collector that gets spans."""


@dataclass(frozen=True, slots=True)
class ShownUtterance:
    """One utterance as the page shows it."""

    at_unix_s: float
    """When its text came."""
    log_id: str
    number: int
    """Counted within its conversation, from 1."""
    agent: str
    voice: str
    engine: str
    outcome: str
    error: str
    interrupted: bool
    chars: int
    """Length of the text."""
    stages_ms: dict[str, float | None]
    """By the names of `STAGES`: milliseconds after its text came; None where it did not happen."""
    waited_ms: float
    """How long its first frame waited for earlier utterances to be handed over."""
    silence_ms: float | None
    """From the interruption to silence."""
    starvations: int
    starved_ms: float
    longest_gap_ms: float
    heard_s: float
    generated_s: float
    heard: str | None = None
    """The text that reached the caller; None where words are not kept."""
    remaining: str | None = None
    """The text that did not."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that went wrong, as often as it did."""

    what: str
    error: str
    remedy: str
    first_unix_s: float
    last_unix_s: float
    times: int = 1
    log_id: str = ""
    """The conversation that met it last; empty where it belongs to none."""


class Records:
    """The plugin's memory. Its methods return at once, never raise, and may be called by threads.

    Args:
        choices: gives the settings in force; asked at each utterance.
        unix_s: the wall clock.
    """

    def __init__(
        self,
        choices: Callable[[], LogChoices] | None = None,
        *,
        files: LogFiles | None = None,
        unix_s: Callable[[], float] = time.time,
    ) -> None:
        self.last: deque[ShownUtterance] = deque(maxlen=LAST)
        """The last utterances, the latest at the end."""
        self._choices = choices
        self._unix_s = unix_s
        self._files = files or LogFiles(self.problem)
        self._lock = Lock()
        self._counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self._problems: OrderedDict[tuple[str, str], Problem] = OrderedDict()
        self._logged: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """When a kind of problem was last logged, and how many were not since."""
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
        """Note an utterance that is over.

        Args:
            outcome: in a word: ``spoken``, ``interrupted``, ``no_text``, or an error's code.
            heard: what reached the caller; kept only where words are.
            choices: the settings of this conversation; without them those of the plugin.
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
        """Note that something went wrong, and log it.

        Args:
            what: its kind, in a few words that are always the same.
            error: what was raised; a `SpeechError`'s remedy is kept beside it.
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
        # A traceback says more of what nobody foresaw; of the line's own errors all is said.
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
        """Count something, such as ``mixups``, ``stale_partials``, ``halts`` or ``fallbacks``."""
        name = re.sub(r"\W+", "_", name[:MAX_NAME_CHARS]).lower()
        with self._lock:
            if name in self._counts or len(self._counts) < MAX_KINDS:
                self._counts[name] += n

    def counted(self, name: str) -> int:
        """How often it was counted."""
        return self._counts[name]

    def snapshot(self) -> dict[str, Any]:
        """All of it in types that JSON has; the latest first."""
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
        """Let the log files be finished; what comes later is not written."""
        self._files.close()

    # --- inside

    def _number(self, log_id: str) -> int:
        """The conversation's own count: nobody else's numbers are known to fit it."""
        number = self._numbers.pop(log_id, 0) + 1
        self._numbers[log_id] = number
        while len(self._numbers) > MAX_CALLS:
            self._numbers.popitem(last=False)
        return number

    def _may_log(self, what: str, now: float) -> int | None:
        """How many were kept back since the last line; None where it is too early for one."""
        last, kept_back = self._logged.pop(what, (-math.inf, 0))
        early = 0 <= now - last < LOG_AGAIN_S
        self._logged[what] = (last, kept_back + 1) if early else (now, 0)
        while len(self._logged) > MAX_KINDS:
            self._logged.popitem(last=False)
        return None if early else kept_back


_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]{0,20}://)(?:[^\s/?#]*@)?([^\s?#]*)(?:[?#]\S*)?", re.I)
_BEARER = re.compile(r"\b(bearer)\s+\S+", re.I)


def without_secrets(text: str) -> str:
    """Addresses without user, password, query and fragment; keys that are named as such hidden."""
    return _BEARER.sub(r"\1 …", _ADDRESS.sub(r"\1\2", text[: 4 * MAX_ERROR_CHARS]))


def _told(error: BaseException | str) -> tuple[str, str]:
    """What an error says, and its remedy."""
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
    """As ``dataclasses.asdict``, which copies each value deeply and takes much longer."""
    return {each.name: getattr(shown, each.name) for each in fields(shown)}


def _rounded(ms: float | None) -> float | None:
    return None if ms is None or not math.isfinite(ms) else round(ms, 1)


def _spread(utterances: list[ShownUtterance]) -> dict[str, Any]:
    """Of the last utterances that came behind no other: how many, p50 and p95 of the first frame.

    Nearest rank.
    """
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
