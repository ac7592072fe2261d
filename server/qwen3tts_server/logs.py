"""Logs, plain or JSON, without callers' words."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

TEXT_LOG = "qwen3tts_server.text"
"""Logger of spoken text; silent unless ``log_text``."""
MAX_CHARS = 2000
"""Characters of a message; a traceback has MAX_TRACEBACK_CHARS."""
MAX_TRACEBACK_CHARS = 20_000

LIBRARIES = (
    *("httpx", "httpcore", "websockets", "uvicorn", "multipart", "python_multipart"),
    *("urllib3", "botocore", "aiobotocore", "s3fs", "gcsfs", "fsspec"),
)
"""Their finer levels write headers, addresses and messages: keys, callers' words."""

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Request or connection of a line."""

_text_log = logging.getLogger(TEXT_LOG)
_NEVER = logging.CRITICAL + 10
_text_log.setLevel(_NEVER)


@dataclass(frozen=True)
class LogSettings:
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level written."""
    form: Literal["text", "json"] = "text"
    """Lines for people, or one JSON object a line."""
    access: bool = True
    """A line for every request and connection."""
    log_text: bool = False
    """True if what callers hear (words, names, numbers) may be written."""


def configure_logs(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Write logs to ``stream``, default standard error."""
    handler = StandardError() if stream is None else logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if settings.form == "json" else TextLines())
    root = logging.getLogger()
    for each in list(root.handlers):
        root.removeHandler(each)
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("qwen3tts_server.settings").setLevel(
        logging.NOTSET if settings.access else logging.WARNING
    )
    _text_log.setLevel(logging.INFO if settings.log_text else _NEVER)


class StandardError(logging.StreamHandler[TextIO]):
    """Handler of the current, replaceable ``sys.stderr``."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


class JsonLines(logging.Formatter):
    """Formatter: a JSON object with time, level, logger, message, request and fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:MAX_CHARS],
        }
        if asked := _request(record):
            line["request"] = asked
        for name, value in _fields(record).items():
            line.setdefault(name, value)
        if error := _error(record):
            line["error"] = error
        return json.dumps(line, ensure_ascii=False, default=str).translate(_CONTROLS)


class TextLines(logging.Formatter):
    """Formatter for people, with indented tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        parts = [_time(record), record.levelname, f"{record.name}:"]
        parts.append(_one_line(record.getMessage()[:MAX_CHARS]))
        parts += [f"{name}={_value(value)}" for name, value in _fields(record).items()]
        if asked := _request(record):
            parts.append(f"request={asked}")
        line = " ".join(parts)
        if error := _error(record):
            # Its own messages may hold anything: no line of them can be taken for another event.
            line += "".join(f"\n    {_one_line(each)}" for each in error.splitlines())
        return line


_CONTROLS = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}
"""Line ends and terminal controls that JSON does not escape."""


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return _one_line(text)


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _request(record: logging.LogRecord) -> str:
    return str(getattr(record, "request", "") or request_id.get())


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found = getattr(record, "fields", None)
    return found if isinstance(found, dict) else {}


def _error(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    text = "".join(traceback.format_exception(*record.exc_info)).rstrip()
    return text if len(text) <= MAX_TRACEBACK_CHARS else "…" + text[-MAX_TRACEBACK_CHARS:]
