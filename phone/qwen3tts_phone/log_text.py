"""Values from the network as log lines carry them: see `qwen3tts_wire.log_text`."""

from __future__ import annotations

from qwen3tts_wire.log_text import MOST_CHARS, MOST_SENTENCE_CHARS, log_text

__all__ = ["MOST_CHARS", "MOST_SENTENCE_CHARS", "log_text"]
