"""The stages of an utterance: which mark follows which, and the times that matter most."""

from __future__ import annotations

from typing import Final

from qwen3tts_speech.latency import SERVER_MARKS, Mark

CHAIN: Final = (
    Mark.SPEECH_END,
    Mark.TRANSCRIBED,
    Mark.TURN_END,
    Mark.TEXT_IN,
    Mark.FIRST_DELTA,
    Mark.REQUEST_SENT,
    Mark.REQUEST_RECEIVED,
    Mark.SEGMENT_READY,
    Mark.SLOT,
    Mark.PREFILL,
    Mark.FIRST_CODES,
    Mark.FIRST_PCM,
    Mark.RECEIVED,
    Mark.RESAMPLED,
    Mark.QUEUED,
    Mark.FIRST_FRAME_WIRE,
    Mark.FIRST_AUDIBLE_WIRE,
)
"""The marks that follow each other on the way to the first sound; a missing one is skipped."""

WAIT: Final = "caller's last sound → first sound"
"""The caller's wait for an answer; there where the agent has a recogniser."""
FIRST_SOUND: Final = "first delta → first sound"
GREETING: Final = "greeting: asked → first sound"
HEADLINES: Final = {
    WAIT: (Mark.SPEECH_END, Mark.FIRST_AUDIBLE_WIRE),
    FIRST_SOUND: (Mark.FIRST_DELTA, Mark.FIRST_AUDIBLE_WIRE),
    "asked → first sound": (Mark.TEXT_IN, Mark.FIRST_AUDIBLE_WIRE),
    "silence before the sound": (Mark.FIRST_FRAME_WIRE, Mark.FIRST_AUDIBLE_WIRE),
}
"""The times that matter most, without greetings; sound is there when its frame is sent."""
SILENCE: Final = "interrupted → silence"

OF_SERVER: Final = frozenset(SERVER_MARKS.values())
"""Marks taken by the server's clock: to the client's they are known to ± ``clock_error_ms``."""


def crosses_clocks(first: Mark | str, last: Mark | str) -> bool:
    """Whether the one mark is by the server's clock and the other by the client's."""
    return (first in OF_SERVER) != (last in OF_SERVER)


def stage_name(first: Mark | str, last: Mark | str) -> str:
    """What the time from one mark to the other is called."""
    return f"{first} → {last}"
