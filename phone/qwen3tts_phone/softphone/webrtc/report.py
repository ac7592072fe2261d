"""Browser statistics: the message ``report``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from qwen3tts_wire.fields import Real

Number = Annotated[float, Real(0, 1e12)]


@dataclass(frozen=True)
class Report:
    type: ClassVar[str] = "report"
    jitter_buffer_ms: Number | None = None
    rtt_ms: Number | None = None
    lost: Number | None = None
    concealed: Number | None = None
    received: Number | None = None
