"""What can go wrong when a caller's words are written down; none of it ends a call.

RecogniserUnavailable           it cannot work here: a package, a model or an address is missing
RecognitionFailed               it broke over one turn; the next may be understood
├── RecognitionTimeout          no text came in time
└── RecogniserBusy              more turns wait than it may keep
"""

from __future__ import annotations

from qwen3tts_wire.errors import SpeechError


class RecogniserUnavailable(SpeechError):
    """The recogniser cannot work here: a package, a model, a key or an address is missing."""

    code = "recogniser_unavailable"


class RecognitionFailed(SpeechError):
    """One turn could not be written down; its words are lost, the next may be understood."""

    code = "recognition_failed"
    retryable = True


class RecognitionTimeout(RecognitionFailed):
    """The text of a turn did not come in time."""

    code = "recognition_timeout"


class RecogniserBusy(RecognitionFailed):
    """More turns wait for the recogniser than it may keep."""

    code = "recogniser_busy"
