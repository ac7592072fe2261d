"""Moments as people write them on a command line (pure)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_AGO: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*([smhdw])", re.ASCII)
_TODAY: Final = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?", re.ASCII)
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
EXAMPLES: Final = "'2026-03-01 14:30', '2026-03-01T14:30:00Z', '14:30' (today) or '90m' (ago)"


def moment(text: str, now: datetime) -> float:
    """Unix time (s) of a date, a date with time, a time of today, or a while ago.

    ``now`` has a zone; times without one are in it. Units of a while: s, m, h, d, w.
    Raises ``ValueError`` with examples for anything else.
    """
    said = text.strip()
    try:
        if ago := _AGO.fullmatch(said):
            before = timedelta(seconds=float(ago[1]) * _UNITS[ago[2]])
            return (now - before).timestamp()
        if _TODAY.fullmatch(said):
            said = f"{now:%Y-%m-%d} {said:0>5}" if said.count(":") == 1 else f"{now:%F} {said:0>8}"
        when = datetime.fromisoformat(said)
        if when.tzinfo is None:
            # The system's zone knows on which days its clocks are changed; an offset does not.
            when = when.astimezone() if _is_local(now) else when.replace(tzinfo=now.tzinfo)
        return when.timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is no moment; write {EXAMPLES}.") from None


def _is_local(now: datetime) -> bool:
    return now.utcoffset() == datetime.fromtimestamp(now.timestamp(), UTC).astimezone().utcoffset()
