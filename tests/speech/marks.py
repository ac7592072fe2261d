"""The moments of an utterance that was heard to its end."""

from __future__ import annotations

from qwen3tts_speech.latency import Mark

HEARD_WHOLE = {
    Mark.TEXT_IN: 0.0,
    Mark.FIRST_DELTA: 0.05,
    Mark.REQUEST_SENT: 0.052,
    Mark.REQUEST_RECEIVED: 0.053,
    Mark.SLOT: 0.054,
    Mark.FIRST_PCM: 0.198,
    Mark.RECEIVED: 0.2,
    Mark.QUEUED: 0.2004,
    Mark.FIRST_FRAME_WIRE: 0.201,
    Mark.FIRST_AUDIBLE_WIRE: 0.221,
    Mark.LAST_FRAME: 2.2,
}
"""Seconds after its first."""
