"""What may be set of vLLM-Omni's WebSocket."""

from __future__ import annotations

from dataclasses import dataclass

from qwen3tts_settings.constraints import bounded, check_fields


@dataclass(frozen=True)
class VllmOmniSettings:
    """What may be set of vLLM-Omni's WebSocket. ValueError for what cannot be."""

    config_timeout_s: float = bounded(0, default=10.0)
    """Time for the first ``session.config``; 0 is any."""
    idle_timeout_s: float = bounded(0, default=30.0)
    """Time between messages while nothing is being said; 0 is any."""
    max_config_chars: int = bounded(1, default=4 * 1024 * 1024)
    """Characters of ``session.config``."""
    max_message_chars: int = bounded(1, default=128 * 1024)
    """Characters of any other message."""
    max_waiting_chars: int = bounded(1, default=256 * 1024)
    """Characters of text that a connection may have sent and that is not being said yet."""
    max_waiting_answers: int = bounded(1, default=1000)
    """Answers that may wait for what is being said before them."""
    max_file_s: float = bounded(above=0, default=600.0)
    """Longest sound of one unit that is sent as one file, seconds: it is held here meanwhile."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.max_waiting_chars < self.max_message_chars:
            raise ValueError(
                f"max_waiting_chars={self.max_waiting_chars} must be at least "
                f"max_message_chars={self.max_message_chars}"
            )
