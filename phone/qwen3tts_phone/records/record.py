"""Call detail record: a JSON line with times, media, end, quality and findings.

Times are seconds after the INVITE; the two wall clock times are ISO 8601 in UTC. Keys and
transcript are in it only where the settings ask for them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from qwen3tts_phone.facts import CallFacts
from qwen3tts_phone.records.fields import VERSION, record_values
from qwen3tts_phone.settings.records import RecordSettings


@dataclass(frozen=True, slots=True)
class CallRecord:
    """Plain JSON values under the names of `FIELDS`."""

    values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: CallFacts, settings: RecordSettings | None = None) -> CallRecord:
        return cls(record_values(facts, settings or RecordSettings()))

    @classmethod
    def from_json(cls, line: str | bytes) -> CallRecord:
        try:
            values = json.loads(line, parse_constant=_no_number, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"no JSON: {error}") from None
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
        version = values.get("record")
        if type(version) is not int or version < 1:
            raise ValueError("no call record: the field record is missing")
        if version > VERSION:
            raise ValueError(f"a call record of version {version}; this program knows {VERSION}")
        for name in ("id", "direction", "started"):
            if not isinstance(values.get(name), str):
                raise ValueError(f"the field {name} is missing")
        datetime.fromisoformat(values["started"])
        return cls(values)

    def to_json(self) -> str:
        return json.dumps(self.values, allow_nan=False, separators=(",", ":"))

    @property
    def id(self) -> str:
        return str(self.values["id"])

    @property
    def started(self) -> datetime:
        return datetime.fromisoformat(self.values["started"])

    @property
    def outcome(self) -> str:
        return str(self.values.get("outcome", ""))

    @property
    def diagnosis(self) -> str:
        return str(self.values.get("diagnosis", ""))


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text[:20])
