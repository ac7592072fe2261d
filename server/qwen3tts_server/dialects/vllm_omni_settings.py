"""What may be set of vLLM-Omni's WebSocket."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class VllmOmniSettings:
    """What may be set of vLLM-Omni's WebSocket. ValueError for what cannot be."""

    config_timeout_s: float = 10.0
    """Time for the first ``session.config``; 0 is any."""
    idle_timeout_s: float = 30.0
    """Time between messages while nothing is being said; 0 is any."""
    max_config_chars: int = 4 * 1024 * 1024
    """Characters of ``session.config``."""
    max_message_chars: int = 128 * 1024
    """Characters of any other message."""
    max_waiting_chars: int = 256 * 1024
    """Characters of text that a connection may have sent and that is not being said yet."""
    max_waiting_answers: int = 1000
    """Answers that may wait for what is being said before them."""
    max_file_s: float = 600.0
    """Longest sound of one unit that is sent as one file, seconds: it is held here meanwhile."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value < 0 or not math.isfinite(value):
                raise ValueError(f"{each.name}={value} must not be negative")
            if value == 0 and not each.name.endswith("timeout_s"):
                raise ValueError(f"{each.name} must be more than 0")
        if self.max_waiting_chars < self.max_message_chars:
            raise ValueError(
                f"max_waiting_chars={self.max_waiting_chars} must be at least "
                f"max_message_chars={self.max_message_chars}"
            )
