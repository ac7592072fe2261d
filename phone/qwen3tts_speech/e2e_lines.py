"""Lines of mr_sip's latency log, as latency records.

::

    [2026-05-01 22:00:00.123] [E2E] EVENT perf_counter=1234.567890 utterance=3 session=abc k=v
        ...

The wall clock is local, ``perf_counter`` is seconds of one clock of the machine, and an utterance
is all events of one session and number (``scripts/sip_e2e_latency_calc.py`` of mr_sip). The
caller's first words (``text=``) are not kept.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TextIO

from qwen3tts_speech.latency import MARKS, MAX_NAME_CHARS, Mark, UtteranceRecord

PLUGIN = "mr_qwen3tts"
MAX_SESSION_CHARS = 120
MAX_LINE_CHARS = 8192
MAX_PERF_S = 1e9
"""Bound of ``perf_counter``."""
UNKNOWN = "unknown"
"""Session of a line without one."""
SPOKEN: Final = (
    ("LLM_FIRST_PARTIAL_SPEAK", Mark.TEXT_IN),
    ("KYUTAI_FIRST_TEXT_DELTA", Mark.REQUEST_SENT),
    ("KYUTAI_FIRST_AUDIO_FRAME", Mark.RECEIVED),
    ("FIRST_CHUNK_QUEUED", Mark.QUEUED),
)
"""Events that the calculator expects of the speaker, and our marks. All four or none: it aborts at
an utterance with the agent's turn and the first of these only. mr_sip writes the last one too; the
first line counts."""
OTHERS: Final = {
    Mark.SPEECH_END: "VAD_EAGER_END",
    Mark.TRANSCRIBED: "TRANSCRIBE_DONE",
    Mark.TURN_END: "UTTERANCE_CALLBACK",
    Mark.FIRST_FRAME_WIRE: "FIRST_RTP_SENT",
}
"""Events of mr_sip where its line is used; the calculator's headline is from the first to the last.
"""
OWN = "QWEN3TTS_"
RECORD = "QWEN3TTS_RECORD"
"""Event that holds the rest of a record."""
COUNTS: Final = ("starvations", "heard_samples", "generated_samples", "rate_hz")
TIMES: Final = ("starved_ms", "longest_gap_ms", "clock_error_ms")
NAMES: Final = ("context", "voice", "engine", "end_reason", "line", "codec")
"""Fields of a record in `RECORD`'s line."""
_LINE: Final = re.compile(
    r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3})\] \[E2E\] (\w{1,64})"
    r" perf_counter=(\d{1,12}(?:\.\d{1,12})?)(?: utterance=(\d{1,10}))?(?: (.*))?",
    re.ASCII,
)
_FIELD: Final = re.compile(r"(?:^|(?<= ))(\w{1,64})=(\S{1,256})", re.ASCII)
_SESSION_AT_THE_END: Final = re.compile(r" session=(\S+)\s*$", re.ASCII)


class BadE2eLine(ValueError):
    """Line that is no event; says why."""


@dataclass(frozen=True, slots=True)
class E2eLine:
    """Event of mr_sip's log."""

    at_unix_s: float
    event: str
    perf_s: float
    """Seconds of the machine's clock."""
    utterance: int
    session: str
    """`UNKNOWN` if missing."""
    fields: dict[str, str]
    """Other fields, without the caller's words."""

    def number(self, field: str) -> float | None:
        try:
            value = float(self.fields.get(field, ""))
        except ValueError:
            return None
        return value if math.isfinite(value) and abs(value) <= MAX_PERF_S else None


def is_e2e_line(line: bytes | str) -> bool:
    text = line[:64].decode("latin-1") if isinstance(line, bytes) else line[:64]
    return re.match(r"\[\d{4}-\d\d-\d\d [\d:.]{12}\] \[E2E\] \w", text, re.ASCII) is not None


def read_line(line: bytes | str) -> E2eLine:
    """Parse one line. Raises `BadE2eLine`."""
    if len(line) > MAX_LINE_CHARS:
        raise BadE2eLine(f"longer than {MAX_LINE_CHARS} characters")
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    match = _LINE.fullmatch(text.strip())
    if match is None:
        raise BadE2eLine("no line of mr_sip's latency log")
    wall, event, perf, utterance, rest = match.groups()
    fields = _fields(rest or "")
    number = fields.pop("utterance", utterance) or fields.pop("utterance_num", "0")
    try:
        # The wall clock of the machine that wrote it; nothing says where on earth that was.
        at_unix_s = datetime.strptime(wall, "%Y-%m-%d %H:%M:%S.%f").timestamp()  # noqa: DTZ007
    except (ValueError, OverflowError, OSError):
        raise BadE2eLine(f"{wall} is no time") from None
    if not re.fullmatch(r"\d{1,9}", number, re.ASCII):
        raise BadE2eLine("the utterance has no number")
    perf_s = float(perf)
    if perf_s > MAX_PERF_S:
        raise BadE2eLine("perf_counter is not in range")
    session = fields.pop("session", UNKNOWN)[:MAX_SESSION_CHARS]
    return E2eLine(at_unix_s, event, perf_s, int(number), session, fields)


def _fields(rest: str) -> dict[str, str]:
    """Return the fields of a line without ``text=``.

    The words are unquoted and may look like fields: after them only a session at the line's end
    counts, if none stands before.
    """
    before, words, after = f" {rest}".partition(" text=")
    fields = dict(_FIELD.findall(before.strip()))
    if words and "session" not in fields:
        at_the_end = _SESSION_AT_THE_END.search(after)
        if at_the_end is not None:
            fields["session"] = at_the_end[1]
    return fields


def e2e_lines(
    session: str,
    number: int,
    record: UtteranceRecord,
    *,
    every_mark: bool = False,
    perf_offset_s: float = 0.0,
) -> str:
    """Return an utterance's lines for mr_sip's calculator, if it has all of `SPOKEN`.

    Args:
        session: names the call.
        number: of the utterance within ``session``.
        record: the utterance.
        every_mark: also `OTHERS`, our further marks and the record's facts, for calls of our own
            telephone.
        perf_offset_s: lead of the calculator's clock over the record's.
    """
    marks = record.marks
    if any(mark not in marks for _, mark in SPOKEN):
        return ""
    events: list[tuple[str, float, str]] = [
        (event, marks[mark], f" plugin={PLUGIN}") for event, mark in SPOKEN
    ]
    if every_mark:
        events += _further(record)
    began = marks[Mark.TEXT_IN]
    lines = []
    for event, at, rest in events:
        perf_s = at + perf_offset_s
        if not 0 <= perf_s <= MAX_PERF_S:
            return ""
        try:
            local = datetime.fromtimestamp(record.started_unix_s + at - began)  # noqa: DTZ006
        except (ValueError, OverflowError, OSError):  # a year beyond 9999
            return ""
        wall = local.isoformat(sep=" ", timespec="milliseconds")
        lines.append(
            f"[{wall}] [E2E] {event} perf_counter={perf_s:.6f}"
            f" utterance={number} session={_token(session, MAX_SESSION_CHARS)}{rest}\n"
        )
    return "".join(lines)


def _further(record: UtteranceRecord) -> list[tuple[str, float, str]]:
    marks, known = record.marks, {mark for _, mark in SPOKEN}
    facts = {name: str(getattr(record, name)) for name in COUNTS}
    facts |= {name: f"{getattr(record, name):.3f}" for name in TIMES}
    facts |= {name: held for name in NAMES if (held := getattr(record, name))}
    written = "".join(f" {name}={_token(value, 200)}" for name, value in facts.items())
    events = [(RECORD, marks[Mark.TEXT_IN], written)]
    others = {str(mark): event for mark, event in OTHERS.items()}
    events += [
        (others.get(name, f"{OWN}{name.upper()}"), at, "")
        for name, at in sorted(marks.items(), key=lambda item: item[1])
        if name not in known
    ]
    return events


def _token(value: str, most: int) -> str:
    return re.sub(r"[^\x21-\x7e]", "_", value)[:most] or UNKNOWN


class E2eWriter:
    """Writer of records as mr_sip's lines; utterances count from 1."""

    def __init__(self, stream: TextIO) -> None:
        self.written = 0
        self.left_out = 0
        """Records without a stage that the calculator needs."""
        self._stream = stream
        self._numbers: dict[str, int] = {}

    def append(self, record: UtteranceRecord) -> None:
        session = record.call_id or UNKNOWN
        number = self._numbers.get(session, 0) + 1
        lines = e2e_lines(session, number, record, every_mark=True)
        if not lines:
            self.left_out += 1
            return
        self._numbers[session] = number
        self._stream.write(lines)
        self.written += 1


def marks_of(line: E2eLine) -> dict[str, float]:
    """Return an event's marks, seconds of the machine's clock."""
    event, at = line.event, line.perf_s
    if event in ("VAD_EAGER_END", "SMART_TURN_EAGER_END"):
        spoke_until = line.number("last_speech_audio_pc")
        return {Mark.SPEECH_END: at if spoke_until is None else spoke_until}
    if event == "E2E_LATENCY":
        sent = line.number("rtp_sent_pc")
        return {} if sent is None else {Mark.FIRST_FRAME_WIRE: sent}
    if event.startswith(OWN):
        own = event.removeprefix(OWN).lower()
        return {own: at} if own in MARKS else {}
    known = [*SPOKEN, *((name, mark) for mark, name in OTHERS.items())]
    return {mark: at for name, mark in known if name == event}


def take_facts(record: UtteranceRecord, line: E2eLine) -> None:
    """Take over a `RECORD` line's valid facts."""
    for name in COUNTS:
        if (value := line.number(name)) is not None and value >= 0:
            setattr(record, name, int(value))
    for name in TIMES:
        if (value := line.number(name)) is not None and value >= 0:
            setattr(record, name, value)
    for name in NAMES:
        if name in line.fields:
            setattr(record, name, line.fields[name][:MAX_NAME_CHARS])
