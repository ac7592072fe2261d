"""What can go wrong with listening."""

from __future__ import annotations

from qwen3tts_phone.errors import CallError


class MissingDetector(CallError):
    """The voice activity detector that was asked for is not installed, or cannot be read."""

    code = "missing_detector"
